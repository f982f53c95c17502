"""Ed25519 signatures over a result: made with a private key, proven with the public one. Needs the extra ``sign``.

The signature is taken over two lines (``result.signed_text``): the digest of the evidence and that of the run, so that
nothing in ``result.json`` can be changed under it. Any tool that knows Ed25519 can prove it.
"""

import base64
import binascii
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec

from migrator.errors import RefusedError, UsageError, install_extra
from migrator.result import Result, Signature, digest, signed_text

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

Seal: TypeAlias = Literal["none", "good", "bad", "another-key", "untold"]
"""``none``: not signed; ``untold``: signed, and the extra that could prove it is not installed."""

MISSING = f"signatures need the extra sign, which is not installed: {install_extra('sign')}"


def private_key(path: Path) -> "Ed25519PrivateKey":
    """Read a private key, PEM or OpenSSH, without passphrase; raises ``UsageError`` for anything else."""
    try:
        from cryptography.hazmat.primitives import serialization as forms  # noqa: PLC0415 - an extra
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # noqa: PLC0415 - as above
    except ImportError:
        raise UsageError(MISSING) from None
    loaders = {b"OPENSSH": forms.load_ssh_private_key, b"": forms.load_pem_private_key}
    found = _load(path, "private", loaders, None)
    if not isinstance(found, Ed25519PrivateKey):
        raise _of_another_kind(path)
    return found


def public_key(path: Path) -> "Ed25519PublicKey":
    """Read a public key, PEM or one line of OpenSSH; raises ``UsageError`` for anything else."""
    try:
        from cryptography.hazmat.primitives import serialization as forms  # noqa: PLC0415 - an extra
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey  # noqa: PLC0415 - as above
    except ImportError:
        raise UsageError(MISSING) from None
    found = _load(path, "public", {b"-----": forms.load_pem_public_key, b"": forms.load_ssh_public_key})
    if not isinstance(found, Ed25519PublicKey):
        raise _of_another_kind(path)
    return found


def _of_another_kind(path: Path) -> UsageError:
    return UsageError(f"{path} holds a key of another kind; signatures are made with Ed25519 only")


def _load(path: Path, word: str, loaders: Mapping[bytes, Callable[..., object]], *more: object) -> object:
    from cryptography.exceptions import UnsupportedAlgorithm  # noqa: PLC0415 - an extra, seen to be there

    try:
        content = path.read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or type(error).__name__}") from None
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
        raise RefusedError("the evidence is not what its digest was taken over, so it is not signed")
    public = key.public_key().public_bytes_raw()
    signature = Signature(algorithm="ed25519", key=_text(public), value=_text(key.sign(signed_text(result))))
    return msgspec.structs.replace(result, signature=signature)


def proven(result: Result, expected: "Ed25519PublicKey | None" = None) -> Seal:
    """Tell whether the signature in ``result`` fits it, and was made with the ``expected`` key where one is given."""
    signature = result.signature
    if signature is None:
        return "none"
    try:
        from cryptography.exceptions import InvalidSignature  # noqa: PLC0415 - an extra
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey  # noqa: PLC0415 - as above
    except ImportError:
        return "untold"
    try:
        key = Ed25519PublicKey.from_public_bytes(base64.b64decode(signature.key, validate=True))
        key.verify(base64.b64decode(signature.value, validate=True), signed_text(result))
    except (InvalidSignature, ValueError, binascii.Error):
        return "bad"
    if expected is not None and expected.public_bytes_raw() != key.public_bytes_raw():
        return "another-key"
    return "good"


def _text(raw: bytes) -> str:
    return base64.b64encode(raw).decode()
