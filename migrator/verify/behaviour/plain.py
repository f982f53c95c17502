"""Answers as two backends must agree on them: without where a row came from, JSON by its meaning."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from migrator.values import jsonb

_OF_THE_BACKEND: Final = frozenset({"source", "source_id", "extra", "store"})
"""Columns and members that say where a row lies."""


def plain(answer: Any) -> Any:  # noqa: ANN401 - answers of all calls
    """Return an answer as lists, mappings and plain values."""
    if isinstance(answer, bytes):
        return jsonb.decode(answer)
    if isinstance(answer, msgspec.Struct):
        names = (name for name in answer.__struct_fields__ if name not in _OF_THE_BACKEND)
        return {"": type(answer).__name__} | {name: plain(getattr(answer, name)) for name in names}
    if isinstance(answer, Mapping):
        return {plain(key): plain(value) for key, value in answer.items()}
    if isinstance(answer, (list, tuple)):
        return [plain(each) for each in answer]
    return answer


def differences(one: Any, other: Any, path: str = "") -> Iterator[str]:  # noqa: ANN401 - as above
    """Yield where two plain answers differ, and how."""
    if isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
        for key, value in one.items():
            yield from differences(value, other[key], f"{path}.{key}".lstrip("."))
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for place, (mine, theirs) in enumerate(zip(one, other, strict=True)):
            yield from differences(mine, theirs, f"{path}[{place}]")
    elif one != other:
        yield f"{path or 'answer'}: {shown(one)} against {shown(other)}"


def shown(value: Any, longest: int = 160) -> str:  # noqa: ANN401 - as above
    """Return a value as a few words; all values here were made by the verification itself."""
    words = value.isoformat() if hasattr(value, "isoformat") else repr(value)
    return words if len(words) <= longest else f"{words[: longest - 1]}…"
