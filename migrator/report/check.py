"""Does a report belong to its evidence: the digest is taken again, and every rendering is made again and compared."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import msgspec

from migrator import __version__
from migrator.errors import UsageError
from migrator.exit_status import mask
from migrator.report import render
from migrator.result import Result, decode, digest

State = Literal["belongs", "differs", "other-version"]


class Rendering(msgspec.Struct, frozen=True):
    """One report file and what was found about it."""

    file: str
    state: State


class Answer(msgspec.Struct, frozen=True):
    """What the check found."""

    digest: str
    """As stored in the result."""
    evidence_is_whole: bool
    """The digest taken again is the stored one."""
    renderings: tuple[Rendering, ...]

    def exit_status(self) -> int:
        """Return 1 for evidence or a report that was changed, 4 where nothing could be told, else 0."""
        states = {one.state for one in self.renderings}
        wrong = not self.evidence_is_whole or "differs" in states
        unsure = not states or "other-version" in states
        return mask(different=wrong, unverified=unsure)

    def lines(self) -> list[str]:
        """Return the answer as lines for a reader."""
        said = [f"{'the evidence is whole' if self.evidence_is_whole else 'THE EVIDENCE WAS CHANGED'}: {self.digest}"]
        said += [f"{_WORDS[one.state]}: {one.file}" for one in self.renderings]
        return said if self.renderings else [*said, "no report to compare"]


_WORDS: dict[State, str] = {
    "belongs": "belongs to it",
    "differs": "DOES NOT BELONG TO IT",
    "other-version": "carries the digest; made by another version of the tool, so not compared",
}


def read(path: Path) -> Result:
    """Read a stored result; raise ``UsageError`` when it cannot be read or is none."""
    try:
        return decode(path.read_bytes())
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or type(error).__name__}") from None


def belongs(path: Path, reports: Sequence[Path] = ()) -> Answer:
    """Check the result at ``path`` and ``reports`` (default: the renderings that are beside it)."""
    result = read(path)
    chosen = list(reports) or [path.parent / name for name in render.RENDERINGS if (path.parent / name).exists()]
    return Answer(
        digest=result.digest,
        evidence_is_whole=digest(result.evidence) == result.digest,
        renderings=tuple(Rendering(str(one), _state(result, one)) for one in chosen),
    )


def _state(result: Result, report: Path) -> State:
    kind = {Path(name).suffix: make for name, make in render.RENDERINGS.items()}
    if report.suffix not in kind:
        raise UsageError(f"{report} is no rendering: expected a file that ends in {' or '.join(kind)}")
    try:
        content = report.read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read {report}: {error.strerror or type(error).__name__}") from None
    if content == kind[report.suffix](result):
        return "belongs"
    same_tool = result.evidence.basis.get("tool") == f"migrator {__version__}"
    return "differs" if same_tool or result.digest.encode() not in content else "other-version"
