"""One bad input as a row: what is wrong, where, the call, the exit status, and the words that name the thing."""

from collections.abc import Mapping
from dataclasses import dataclass, field

SECRET = "hunter2-9c1e"
"""In every setting that holds a secret; no output may hold it, nor a piece of it."""

DONE, DIFFERENT, USAGE, UNVERIFIED, QUARANTINE, FAILED = 0, 1, 2, 4, 8, 16


@dataclass(frozen=True)
class Case:
    """A call that must not do what it seems to ask for.

    ``{mongo}``, ``{database}``, ``{dsn}``, ``{folder}``, ``{secret}`` and the names of ``places.Places`` are filled in,
    in settings, arguments, files and words.
    """

    wrong: str
    """What is wrong."""
    arguments: tuple[str, ...]
    """The command."""
    status: int
    words: tuple[str, ...]
    """Each must be in what is printed; they name the thing and the place."""
    config: Mapping[str, str] | str | None = None
    """Settings that differ from the good ones, as ``section.key`` → TOML; a text is the whole file."""
    environment: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, bytes] = field(default_factory=dict)
    """Files in the folder of the call."""
    pipes: tuple[str, ...] = ()
    """Named pipes in that folder, which nobody writes."""
    links: Mapping[str, str] = field(default_factory=dict)
    """Symbolic links in that folder: name → what it leads to."""
    places: tuple[str, ...] = ()
    """What of ``Places`` the case needs."""
    writes: tuple[str, ...] = ()
    """Names of files or folders that the call makes and may make."""


def case(wrong: str, command: str, status: int, *words: str, **more: object) -> Case:
    """Return a row; ``command`` is split at blanks, and at nothing else."""
    return Case(wrong, tuple(command.split(" ")), status, words, **more)  # type: ignore[arg-type]
