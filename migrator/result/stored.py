"""A result as bytes: its digest, ``result.json``, and what a signature is taken over."""

import hashlib
import json

import msgspec

from migrator.errors import UsageError
from migrator.result.parts import Evidence, Run
from migrator.result.whole import FORMAT, Result


def build(evidence: Evidence, run: Run) -> Result:
    """Put the two halves together under the digest of the first.

    What is returned is what would be read back, the order of names included: the same result, the same rendering.
    """
    return decode(encode(Result(evidence=evidence, run=run, digest=digest(evidence))))


def digest(half: Evidence | Run) -> str:
    """Return ``sha256:<hex>`` over the canonical bytes of one half of a result."""
    return "sha256:" + hashlib.sha256(msgspec.json.encode(half, order="sorted")).hexdigest()


def signed_text(result: Result) -> bytes:
    """Return what a signature is taken over: two lines, the digest of the evidence and that of the run."""
    return f"migrator evidence {result.digest}\nmigrator run {digest(result.run)}\n".encode()


def encode(result: Result) -> bytes:
    """Return the bytes of ``result.json``: keys sorted, two spaces, one newline at the end."""
    return msgspec.json.format(msgspec.json.encode(result, order="sorted"), indent=2) + b"\n"


def decode(text: bytes) -> Result:
    """Read ``result.json``; raise ``UsageError`` when it is none, or of another format.

    A name that stands twice in one object is refused: readers differ in which of its values they take. So is a name
    that this format does not have: no digest is taken over it.
    """
    try:
        version = msgspec.json.decode(text, type=_Versioned).format
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise UsageError(f"not a result of this tool: {str(error).lower()}") from None
    if version != FORMAT:
        raise UsageError(f"a result of format {version}; this version of the tool reads format {FORMAT}")
    try:
        json.loads(text.decode(), object_pairs_hook=_unique)
        return msgspec.json.decode(text, type=Result)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise UsageError(f"not a whole result: {str(error).lower()}") from None


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"the name {max(names, key=names.count)} stands in it twice")
    return found


class _Versioned(msgspec.Struct):
    format: int
