"""What a script expected, and what it saw."""

from collections.abc import Callable
from typing import Any

import msgspec

from migrator.errors import DeniedError, MigratorError, UnreachableError
from migrator.result import Exhibit, Machine, Measurement
from migrator.verify.behaviour.plain import differences, plain, shown


def could_not_tell(error: MigratorError) -> bool:
    """Tell whether an error says nothing about the scheduler: a server is gone, or a right is missing."""
    gone = isinstance(error, UnreachableError) and not isinstance(error, DeniedError)  # denied in the service's role
    return gone or bool(error.grant)


class Failure(msgspec.Struct, frozen=True):
    """An expectation that did not hold."""

    what: str
    words: tuple[str, ...]


class Notes:
    """The notes of one script on one backend, in the order of what it did."""

    def __init__(self) -> None:
        """Begin with none."""
        self.expected = 0
        self.failures: list[Failure] = []
        self.seen: list[tuple[str, Any]] = []
        """What every backend must answer alike."""
        self.machines: list[Machine] = []
        self.exhibits: list[Exhibit] = []
        self.varying: list[Exhibit] = []
        self.measurements: list[Measurement] = []

    def expect(self, what: str, wanted: Any, found: Any) -> bool:  # noqa: ANN401 - answers of all calls
        """Expect an answer, compared by its meaning; tell whether it came."""
        self.expected += 1
        wanted, found = plain(wanted), plain(found)
        self.seen.append((what, found))
        if wanted == found:
            return True
        self.failures.append(Failure(what, tuple(differences(wanted, found))[:3]))
        return False

    def holds(self, what: str, found: Any) -> bool:  # noqa: ANN401 - as above
        """Expect the answer true."""
        return self.expect(what, wanted=True, found=found)

    def fails(self, what: str, found: Any) -> bool:  # noqa: ANN401 - as above
        """Expect the answer false."""
        return self.expect(what, wanted=False, found=found)

    def expect_refused(self, what: str, error: type[MigratorError], call: Callable[[], Any]) -> None:
        """Expect that a call is refused with this error."""
        try:
            answer = call()
        except MigratorError as raised:
            if could_not_tell(raised) and not isinstance(raised, error):
                raise
            name = error.__name__ if isinstance(raised, error) else type(raised).__name__
            self.expect(what, error.__name__, name)
        else:
            self.expect(what, error.__name__, f"answered {shown(plain(answer))}")

    def same(self, what: str, found: Any) -> None:  # noqa: ANN401 - as above
        """Note an answer that has no oracle here, but must be the same on every backend."""
        self.seen.append((what, plain(found)))

    def broke(self, error: Exception) -> None:
        """Note that a call was refused, or ended in an error, where nobody expected it."""
        self.expected += 1
        self.failures.append(Failure("goes through to its end", (f"{type(error).__name__}: {error}",)))
