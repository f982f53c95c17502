"""Field paths as text: ``stats.queued``, ``images[3].digest``; the empty text is the whole value.

Keys may hold anything, so what has a meaning in a path is escaped with ``~``: ``~0`` for ``~``, ``~1`` for
``.``, ``~2`` for NUL, ``~3`` for an empty key, ``~4`` for ``[``, ``~5`` for ``+``.
"""

import re
from typing import TypeAlias

Step: TypeAlias = str | int
"""A key of a document, or an index of an array."""

_ESCAPES = (("~", "~0"), (".", "~1"), ("\0", "~2"), ("[", "~4"), ("+", "~5"))
_special = re.compile(r"[~.\0\[+]").search
_index = re.compile(r"\[\d+\]")


def member(path: str, key: str) -> str:
    """Return the path of a document's member."""
    if not key or _special(key):
        for character, escape in _ESCAPES:
            key = key.replace(character, escape)
        key = key or "~3"
    return f"{path}.{key}" if path else key


def parse(path: str) -> list[Step]:
    """Return the steps of a path."""
    if not path:
        return []
    parts = path.replace("[", ".[").split(".")
    if path.startswith("["):
        del parts[0]
    return [int(part[1:-1]) if part.startswith("[") else _key(part) for part in parts]


def general(path: str) -> str:
    """Return the path with every index left out (``images[].digest``), for counting."""
    return _index.sub("[]", path) if "[" in path else path


def _key(part: str) -> str:
    if part == "~3":
        return ""
    if "~" in part:
        for character, escape in reversed(_ESCAPES):
            part = part.replace(escape, character)
    return part
