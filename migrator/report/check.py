"""Does a report belong to its evidence: the digest is taken again, the signature proven, each rendering made again."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Literal

import msgspec

from migrator import __version__
from migrator.errors import UsageError
from migrator.exit_status import mask
from migrator.report import render, signing
from migrator.report.signing import Seal
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
    signature: Seal = "none"
    signed_by: str = ""
    """Public key of the signature, base64."""
    signature_wanted: bool = False
    """A public key was given, so that a missing signature is wrong."""

    def exit_status(self) -> int:
        """Return 1 for evidence or a report that was changed, 4 where nothing could be told, else 0."""
        states = {one.state for one in self.renderings}
        unsigned = self.signature == "none" and self.signature_wanted
        forged = self.signature in ("bad", "another-key")
        wrong = not self.evidence_is_whole or "differs" in states or unsigned or forged
        unsure = not states or "other-version" in states or self.signature == "untold"
        return mask(different=wrong, unverified=unsure)

    def lines(self) -> list[str]:
        """Return the answer as lines for a reader."""
        said = [f"{'the evidence is whole' if self.evidence_is_whole else 'THE EVIDENCE WAS CHANGED'}: {self.digest}"]
        if self.signature != "none" or self.signature_wanted:
            said.append(_SEALS[self.signature].format(key=self.signed_by))
        if self.signature == "good" and not self.signature_wanted:
            said.append("whose key that is, only --public-key can tell")
        said += [f"{_WORDS[one.state]}: {one.file}" for one in self.renderings]
        return said if self.renderings else [*said, "no report to compare"]


_WORDS: dict[State, str] = {
    "belongs": "belongs to it",
    "differs": "DOES NOT BELONG TO IT",
    "other-version": "carries the digest; made by another version of the tool, so not compared",
}


_SEALS: dict[Seal, str] = {
    "none": "NOT SIGNED",
    "good": "signed, evidence and run, with the key {key}",
    "bad": "THE SIGNATURE DOES NOT FIT",
    "another-key": "SIGNED WITH ANOTHER KEY: {key}",
    "untold": "signed, and not proven: the extra sign is not installed",
}


def read(path: Path) -> Result:
    """Read a stored result; raise ``UsageError`` when it cannot be read or is none."""
    try:
        return decode(path.read_bytes())
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or type(error).__name__}") from None
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None


def changed(result: Result) -> str | None:
    """Return in words how a result was changed after it was made; None where that cannot be seen."""
    if digest(result.evidence) != result.digest:
        return "the evidence does not match its digest"
    return "the signature does not fit the result" if signing.proven(result) == "bad" else None


def belongs(path: Path, reports: Sequence[Path] = (), public_key: Path | None = None) -> Answer:
    """Check the result at ``path``, its signature, and ``reports`` (default: the renderings that are beside it)."""
    result = read(path)
    expected = None if public_key is None else signing.public_key(public_key)
    chosen = list(reports) or [path.parent / name for name in render.RENDERINGS if (path.parent / name).exists()]
    return Answer(
        digest=result.digest,
        evidence_is_whole=digest(result.evidence) == result.digest,
        renderings=tuple(Rendering(str(one), _state(result, one)) for one in chosen),
        signature=signing.proven(result, expected),
        signed_by=result.signature.key if result.signature else "",
        signature_wanted=public_key is not None,
    )


_ENDINGS: Final = {
    ".html": render.HTML,
    ".md": render.MARKDOWN,
    ".xml": render.JUNIT,
    "sarif.json": render.SARIF,
    ".sarif": render.SARIF,
}


def _maker(report: Path) -> Callable[[Result], bytes] | None:
    return next((render.RENDERINGS[name] for end, name in _ENDINGS.items() if report.name.endswith(end)), None)


def _state(result: Result, report: Path) -> State:
    make = _maker(report)
    if make is None:
        raise UsageError(f"{report} is no rendering: expected a file that ends in {' or '.join(_ENDINGS)}")
    try:
        content = report.read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read {report}: {error.strerror or type(error).__name__}") from None
    if content == make(result):
        return "belongs"
    same_tool = result.evidence.basis.get("tool") == f"migrator {__version__}"
    return "differs" if same_tool or result.digest.encode() not in content else "other-version"
