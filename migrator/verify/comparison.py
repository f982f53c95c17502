"""A context of checks that compares every document with its rows."""

from migrator.parity.check import check_parity
from migrator.parity.model import ParityOutcome
from migrator.parity.recorded_check import check_and_record
from migrator.pipeline.plan import Scope
from migrator.verify.check import Context


class ComparingContext(Context):
    """A context of both databases; the comparison is recorded where ``on_record`` says so."""

    def compare(self) -> ParityOutcome:
        """Compare every document with its rows, and the rows with the document."""
        if self.on_record:
            return check_and_record(self.settings, must=False)
        return check_parity(self.settings, Scope())
