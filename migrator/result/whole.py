"""A whole result: its two halves together, the verdict, and the exit status."""

from typing import Final

from migrator.exit_status import DIFFERENT, QUARANTINE, TOOL_FAILED, UNVERIFIED, mask
from migrator.result.parts import Check, Evidence, Part, Run, Signature, Status, Verdict

FORMAT: Final = 2
"""Version of ``result.json``; it rises when a reader of the old one would misread the new one."""


class Result(Part, frozen=True, kw_only=True):
    """A verification: what was found, and under which circumstances."""

    format: int = FORMAT
    evidence: Evidence
    run: Run
    digest: str
    """``sha256:`` and 64 hexadecimal digits, over ``evidence``."""
    signature: Signature | None = None

    def statuses(self) -> dict[Status, int]:
        """Count the checks by how they ended."""
        counts: dict[Status, int] = {"passed": 0, "failed": 0, "unverified": 0, "not-applicable": 0}
        for check in self.evidence.checks:
            counts[check.outcome.status] += 1
        return counts

    def exit_status(self) -> int:
        """Return the bit mask: 1 failed, 4 unverified, 8 quarantine, 16 the tool failed; 0 when none holds.

        Settled findings, warnings outside ``fail_on``, failures in ``accepted`` areas, and what is not applicable set
        no bit.
        """
        checks = self.evidence.checks
        skipped = any(area.standing == "skipped" for area in self.evidence.areas)
        return mask(
            different=any(map(self.counts_as_failed, checks)),
            unverified=skipped or not checks or any(map(is_unverified, checks)),
            quarantine=self.evidence.quarantined,
            tool_failed=any(check.broke for check in checks),
        )

    def verdict(self) -> Verdict:
        """Return the worst thing that can be said, in one word: what is wrong before what is not known."""
        status = self.exit_status()
        if status & DIFFERENT:
            return "different"
        if status & TOOL_FAILED:
            return "tool-failed"
        if status & UNVERIFIED:
            return "unverified"
        if self.accepted_failures():
            return "accepted"
        return "equal-but-quarantine" if status & QUARANTINE else "equal"

    def counts_as_failed(self, check: Check) -> bool:
        """Tell whether a check sets bit 1: it failed and that is not accepted, or it warned where that fails."""
        policy = self.evidence.policy
        if check.outcome.status == "failed":
            return check.area not in policy.accepted
        return check.area in policy.fail_on and self.warns(check)

    def warns(self, check: Check) -> bool:
        """Tell whether a check has a warning, or a measurement above its ceiling."""
        slow = any(one.check == check.id and one.is_over for one in self.run.measurements)
        return slow or any(one.severity == "warning" for one in check.tallies)

    def accepted_failures(self) -> list[Check]:
        """Return the checks that failed in an area whose failures were declared acceptable."""
        accepted = self.evidence.policy.accepted
        return [one for one in self.evidence.checks if one.outcome.status == "failed" and one.area in accepted]


def is_unverified(check: Check) -> bool:
    """Tell whether a check, or what it says of one table, could not be made."""
    return "unverified" in (check.outcome.status, *(cell.outcome.status for cell in check.cells))
