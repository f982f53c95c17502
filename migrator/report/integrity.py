"""Signatures over a result, and whether a report belongs to its result.

A signature is Ed25519 over two lines (``result.signed_text``): the digest of the evidence and the digest of the run, so
that no change of ``result.json`` goes unseen. Any tool that knows Ed25519 can verify it. Needs the extra ``sign``.
A report is checked by taking the digest again, verifying the signature, and making each rendering again.
"""

import base64
import binascii
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, Literal, TypeAlias

import msgspec

from migrator import __version__
from migrator.errors import RefusedError, UsageError, install_extra
from migrator.exit_status import mask
from migrator.files import UnreadableError, read_bytes
from migrator.report import renderer
from migrator.result import Result, Signature, decode, digest, signed_text

try:
    from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
    from cryptography.hazmat.primitives import serialization as forms
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
except ImportError:
    SIGNS = False
else:
    SIGNS = True
"""Whether the extra ``sign`` is installed."""

MOST_KEY: Final = 65_536
MOST_RESULT: Final = 1024 * 1024 * 1024
"""Bytes that a key, and a result or a rendering of it, may have at most."""

SignatureState: TypeAlias = Literal["none", "good", "bad", "another-key", "untold"]
"""``none``: not signed; ``untold``: signed, and the extra that could prove it is not installed."""

EXTRA_MISSING = f"signatures need the extra sign, which is not installed: {install_extra('sign')}"


def read_private_key(path: Path) -> "Ed25519PrivateKey":
    """Read a private key, PEM or OpenSSH, without passphrase; raises ``UsageError`` for anything else."""
    _require_extra()
    loaders = {b"OPENSSH": forms.load_ssh_private_key, b"": forms.load_pem_private_key}
    key = _load_key(path, "private", loaders, None)
    if not isinstance(key, Ed25519PrivateKey):
        raise _wrong_key_type(path)
    return key


def read_public_key(path: Path) -> "Ed25519PublicKey":
    """Read a public key, PEM or one line of OpenSSH; raises ``UsageError`` for anything else."""
    _require_extra()
    key = _load_key(path, "public", {b"-----": forms.load_pem_public_key, b"": forms.load_ssh_public_key})
    if not isinstance(key, Ed25519PublicKey):
        raise _wrong_key_type(path)
    return key


def _require_extra() -> None:
    if not SIGNS:
        raise UsageError(EXTRA_MISSING)


def _wrong_key_type(path: Path) -> UsageError:
    return UsageError(f"{path} holds a key of another kind; signatures are made with Ed25519 only")


def _load_key(path: Path, word: str, loaders: Mapping[bytes, Callable[..., object]], *more: object) -> object:
    try:
        content = read_bytes(path, most=MOST_KEY)
    except UnreadableError as error:
        raise UsageError(f"cannot read {path}: {error}") from None
    load = next(one for mark, one in loaders.items() if mark in content[:40])
    try:
        return load(content, *more)
    except TypeError:
        raise UsageError(f"{path}: the key has a passphrase; give one without") from None
    except (ValueError, UnsupportedAlgorithm):
        raise UsageError(f"{path} holds no {word} key in PEM or OpenSSH form") from None


def sign(result: Result, key: "Ed25519PrivateKey") -> Result:
    """Return the result with its signature; refuses evidence that its digest does not fit (``RefusedError``)."""
    if digest(result.evidence) != result.digest:
        raise RefusedError("the evidence does not match its digest, so it is not signed")
    public = key.public_key().public_bytes_raw()
    signature = Signature(algorithm="ed25519", key=_base64(public), value=_base64(key.sign(signed_text(result))))
    return msgspec.structs.replace(result, signature=signature)


def signature_state(result: Result, expected: "Ed25519PublicKey | None" = None) -> SignatureState:
    """Whether the signature in ``result`` fits it, and was made with the ``expected`` key where one is given."""
    signature = result.signature
    if signature is None:
        return "none"
    if not SIGNS:
        return "untold"
    try:
        key = Ed25519PublicKey.from_public_bytes(_bytes_of(signature.key))
        key.verify(_bytes_of(signature.value), signed_text(result))
    except (InvalidSignature, ValueError, binascii.Error):
        return "bad"
    if expected is not None and expected.public_bytes_raw() != key.public_bytes_raw():
        return "another-key"
    return "good"


def _base64(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


def _bytes_of(text: str) -> bytes:
    """Return the bytes of a text in base64; raise ``ValueError`` for another spelling than the one that is written.

    The last character of 32 or 64 bytes has bits that mean nothing, so that a changed text could mean the same.
    """
    raw = base64.b64decode(text, validate=True)
    if _base64(raw) != text:
        raise ValueError("not the canonical base64 of these bytes")
    return raw


RenderingState = Literal["belongs", "differs", "other-version"]


class Rendering(msgspec.Struct, frozen=True):
    """One report file and what was found about it."""

    file: str
    state: RenderingState


class ReportCheck(msgspec.Struct, frozen=True):
    """What the check found."""

    digest: str
    """As stored in the result."""
    evidence_is_whole: bool
    """The digest taken again is the stored one."""
    renderings: tuple[Rendering, ...]
    signature: SignatureState = "none"
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
        lines = [f"{'the evidence is whole' if self.evidence_is_whole else 'THE EVIDENCE WAS CHANGED'}: {self.digest}"]
        if self.signature != "none" or self.signature_wanted:
            lines.append(_SIGNATURE_WORDS[self.signature].format(key=self.signed_by))
        if self.signature == "good" and not self.signature_wanted:
            lines.append("whose key that is, only --public-key can tell")
        lines += [f"{_RENDERING_WORDS[one.state]}: {one.file}" for one in self.renderings]
        return lines if self.renderings else [*lines, "no report to compare"]


_RENDERING_WORDS: dict[RenderingState, str] = {
    "belongs": "belongs to it",
    "differs": "DOES NOT BELONG TO IT",
    "other-version": "has the digest; another version of the tool made it, so it was not compared",
}


_SIGNATURE_WORDS: dict[SignatureState, str] = {
    "none": "NOT SIGNED",
    "good": "signed, evidence and run, with the key {key}",
    "bad": "THE SIGNATURE DOES NOT MATCH",
    "another-key": "SIGNED WITH ANOTHER KEY: {key}",
    "untold": "signed, and not verified: the extra sign is not installed",
}


def read_result(path: Path) -> Result:
    """Read a stored result; raise ``UsageError`` when it cannot be read or is none."""
    try:
        return decode(read_bytes(path, most=MOST_RESULT))
    except UnreadableError as error:
        raise UsageError(f"cannot read {path}: {error}") from None
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None


def tampering(result: Result) -> str | None:
    """Return in words how a result was changed after it was made; None where that cannot be seen."""
    if digest(result.evidence) != result.digest:
        return "the evidence does not match its digest"
    return "the signature does not match the result" if signature_state(result) == "bad" else None


def check_report(path: Path, reports: Sequence[Path] = (), public_key: Path | None = None) -> ReportCheck:
    """Check the result at ``path``, its signature, and ``reports`` (default: the renderings in its folder)."""
    result = read_result(path)
    expected = None if public_key is None else read_public_key(public_key)
    chosen = list(reports) or [path.parent / name for name in renderer.RENDERINGS if (path.parent / name).exists()]
    return ReportCheck(
        digest=result.digest,
        evidence_is_whole=digest(result.evidence) == result.digest,
        renderings=tuple(Rendering(str(one), _rendering_state(result, one)) for one in chosen),
        signature=signature_state(result, expected),
        signed_by=result.signature.key if result.signature else "",
        signature_wanted=public_key is not None,
    )


_ENDINGS: Final = {
    ".html": renderer.HTML,
    ".md": renderer.MARKDOWN,
    ".xml": renderer.JUNIT,
    "sarif.json": renderer.SARIF,
    ".sarif": renderer.SARIF,
}


def _renderer_of(report: Path) -> Callable[[Result], bytes] | None:
    return next((renderer.RENDERINGS[name] for end, name in _ENDINGS.items() if report.name.endswith(end)), None)


def _rendering_state(result: Result, report: Path) -> RenderingState:
    make = _renderer_of(report)
    if make is None:
        raise UsageError(f"{report} is no rendering: expected a file that ends in {' or '.join(_ENDINGS)}")
    try:
        content = read_bytes(report, most=MOST_RESULT)
    except UnreadableError as error:
        raise UsageError(f"cannot read {report}: {error}") from None
    if content == make(result):
        return "belongs"
    same_tool = result.evidence.basis.get("tool") == f"migrator {__version__}"
    return "differs" if same_tool or result.digest.encode() not in content else "other-version"
