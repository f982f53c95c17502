"""Every error of the tool, by what the operator can do about it.

MigratorError                exit status 16: the tool failed
├── UsageError               2: a wrong command, option or setting; change it and call again
│   ├── ConfigurationError   2: a setting is missing, unknown, of the wrong type, or contradicts another
│   └── RefusedError         2: understood, and would do harm as things stand; the message says what to do first
├── UnreachableError         16: a server cannot be reached, or answers that it may not or cannot; mend it, call again
│   ├── DeniedError          16: a server denies a right; verify leaves unverified what needs it
│   └── LockedError          16: another session holds a lock, and was waited for in vain
├── ArchiveError             16: removed runs could not be archived, so they are where they were
├── UnexpectedError          16: an error of the tool itself, raised from what happened
└── StoreError               what the scheduler's store refuses; the application decides
    ├── ConflictError        a key is taken already
    │   └── OvertakenError   another session changed the same at the same moment; the call may be made again
    ├── TransitionError      the state machine has no such edge
    ├── NotFoundError        there is no such row
    └── LostLockError        the lock is held by another one now, or by nobody
        └── BackendMovedError 2: the scheduler's data is on the other side now; open the store anew
            └── CopyError    2: the database is a copy, and no cutover has made it active

Errors about one document (``Rejected``, ``Skipped`` in ``migrator.sources.profile``) are not errors of the tool: they
end in quarantine or in a count, and the copy goes on. Messages are lower case, have no full stop, and never hold
document values.
"""

from typing import TYPE_CHECKING, ClassVar

from migrator.exit_status import TOOL_FAILED, USAGE
from migrator.redaction import redact

if TYPE_CHECKING:
    from collections.abc import Iterable

DISTRIBUTION = "scheduler-migrator"
"""What pip installs. It differs from the command: ``migrator`` on the public index is another project's."""


def install_extra(name: str) -> str:
    """Return the command that installs an extra of this distribution."""
    return f"pip install '{DISTRIBUTION}[{name}]'"


def _safe(text: str) -> str:
    """Return a text without credentials, as one line: a line end that it quotes would begin a line of its own."""
    return redact(text).replace("\r", r"\u000d").replace("\n", r"\u000a")


class MigratorError(Exception):
    """The tool failed; base of everything raised on purpose."""

    exit_status: ClassVar[int] = TOOL_FAILED

    def __init__(self, *words: object, grant: str = "", lines: "Iterable[str]" = ()) -> None:
        """Redact the words, and spell out their line ends: a message may quote what a user wrote.

        ``grant``: the statement with which an administrator gives the missing right, where that can be told. ``lines``:
        what follows the message, line by line.
        """
        super().__init__(*(_safe(word) if isinstance(word, str) else word for word in words))
        self.grant = grant
        self.lines = tuple(map(_safe, lines))

    @property
    def sentence(self) -> str:
        """Return the message without the statement."""
        return super().__str__()

    def __str__(self) -> str:
        """Return the message, the statement that an administrator runs, and the lines that follow."""
        return "\n".join([f"{self.sentence}: {self.grant}" if self.grant else self.sentence, *self.lines])


class UsageError(MigratorError):
    """The call cannot be carried out as it stands."""

    exit_status: ClassVar[int] = USAGE


class ConfigurationError(UsageError):
    """A setting is missing, unknown, of the wrong type, or contradicts another."""


class RefusedError(UsageError):
    """The call is understood, and refused because it would do harm as things stand."""


class UnreachableError(MigratorError):
    """A server cannot be reached, or refuses: wrong address, password, rights, disk full, stopped."""


class DeniedError(UnreachableError):
    """A server answers that the user has no right to what was asked."""


class LockedError(UnreachableError):
    """A table, or a lock of the tool's, is held by another session, and was waited for in vain."""


class ArchiveError(MigratorError):
    """A file of an archive cannot be written, or does not read back as what was written."""


class UnexpectedError(MigratorError):
    """Something that nobody foresaw; its cause is the error itself."""


class StoreError(MigratorError):
    """The store refuses a write; the application decides what to do."""


class ConflictError(StoreError):
    """A key is taken already."""


class OvertakenError(ConflictError):
    """Another session changed the same at the same moment. Nothing was written; the call may be made again."""


class TransitionError(StoreError):
    """The state machine has no such edge."""


class NotFoundError(StoreError):
    """There is no such row."""


class LostLockError(StoreError):
    """The lock is held by another one now, or by nobody."""


class BackendMovedError(LostLockError):
    """The scheduler's data is on the other side since a cutover, or a rollback: nothing may be done here any more."""

    exit_status: ClassVar[int] = USAGE


class CopyError(BackendMovedError):
    """The database holds a copy of another scheduler's data, and no cutover has made it active."""
