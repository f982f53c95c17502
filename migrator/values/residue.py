"""The residue: what columns cannot carry of a document, typed, by path.

A residue is a JSON object from field paths (``values.paths``) to typed values (``values.typed``), and
survives jsonb. The law, for every document and every rebuilt one: ``same(apply(rebuilt, difference(document,
rebuilt)), document)``. A path that begins with ``+`` adds a member that the rebuilt document lacks; any other
replaces what stands there; ``{"$absent": true}`` takes it away. Documents are compared member by member,
arrays element by element when they have the same length and else replaced as a whole.
"""

import re
from collections.abc import Mapping
from operator import attrgetter
from typing import Any, Final, Literal, TypeAlias

import msgspec

from migrator.values import jsonb, paths, typed
from migrator.values.canonical import EXACT, same
from migrator.values.document import Value

EMPTY: Final = b"{}"

Kind: TypeAlias = Literal["added", "absent", "null", "nul", "nan", "type", "precision", "spelling", "value"]
"""Why the columns do not carry it.

``added``: no column for this member. ``absent``: the column gives a member that the document lacks. ``null``:
an explicit null. ``nul``: a text with NUL. ``nan``: NaN or an infinity. ``type``: the same or another value
of a type that JSON lacks. ``precision``: a time finer than microseconds. ``spelling``: another text for what
the column holds. ``value``: any other replacement.
"""

LOSSES: Final[frozenset[Kind]] = frozenset({"nul", "nan", "type", "precision"})
"""Kinds where the column holds less than the document did: the loss ledger counts them."""


class Entry(msgspec.Struct, frozen=True):
    """One entry of a residue: its exact path, the path without indexes (for counting), and why it is there."""

    path: str
    field: str
    kind: Kind


_write = msgspec.json.Encoder(order="sorted").encode
_path_of = attrgetter("path")
_MISSING: Final = object()
_KINDS: Final[dict[str, Kind]] = {"$absent": "absent", "$text": "nul", "$nan": "nan", "$object": "value"}
"""Of a typed form, by its marker; the rest is of another type."""

_finer_time = re.compile(r"[0-9-]{10}T[0-9:]{8}\.[0-9]{6}[0-9]*[1-9]").match


def difference(document: Value, rebuilt: Value) -> bytes:
    """Return the residue that turns ``rebuilt`` into ``document``; ``b"{}"`` when they are the same."""
    entries: dict[str, Any] = {}
    if type(document) is dict and type(rebuilt) is dict:
        _compare_members(document, rebuilt, "", entries)
    elif not same(document, rebuilt):
        entries[""] = typed.write(document, ordered=isinstance(document, Mapping))
    return _write(entries) if entries else EMPTY


def apply(rebuilt: Value, residue: bytes) -> Value:
    """Return the document; ``rebuilt`` stays as it is. Raises ``ValueError`` when the residue does not fit it."""
    if residue == EMPTY:
        return rebuilt
    holder = {"": rebuilt}
    own: set[int] = {id(holder)}
    for text, form in jsonb.decode(residue).items():
        node: Any = holder
        step: paths.Step = ""
        for following in paths.parse(text.removeprefix("+")):
            node, step = _own_child(node, step, own), following
        try:
            if form == typed.ABSENT:
                del node[step]
            else:
                node[step] = typed.read(form)
        except (KeyError, IndexError, TypeError) as error:
            raise ValueError(f"a residue does not fit its rows at {text}") from error
    return holder[""]


def entries(residue: bytes) -> list[Entry]:
    """Return what a residue holds, in the order of its paths; no values."""
    if residue == EMPTY:
        return []
    found: list[Entry] = []
    for text, form in jsonb.decode(residue).items():
        path = text.removeprefix("+")
        found.append(Entry(path, paths.general(path), _kind(form, added=path != text)))
    return sorted(found, key=_path_of)


def _own_child(node: Value, step: paths.Step, own: set[int]) -> Value:
    """Return the container at ``step`` as a copy that may be changed; it is copied once."""
    try:
        child = node[step]
        if id(child) not in own:
            child = node[step] = child.copy()
            own.add(id(child))
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise ValueError("a residue does not fit its rows") from error
    return child


def _compare_members(document: dict[str, Any], rebuilt: dict[str, Any], path: str, found: dict[str, Any]) -> None:
    for key, value in document.items():
        other = rebuilt.get(key, _MISSING)
        if type(value) is type(other) and type(value) in EXACT and value == other:
            continue
        is_id = not path and key == "_id"
        if other is _MISSING:
            found["+" + paths.member(path, key)] = typed.write(value, ordered=is_id)
        elif is_id and isinstance(value, dict):
            if not same({"_id": value}, {"_id": other}):
                found[key] = typed.write(value, ordered=True)
        else:
            _compare(value, other, paths.member(path, key), found)
    for key in rebuilt:
        if key not in document:
            found[paths.member(path, key)] = typed.ABSENT


def _compare(value: Value, other: Value, path: str, found: dict[str, Value]) -> None:
    if type(value) is dict and type(other) is dict:
        _compare_members(value, other, path, found)
    elif type(value) is list and type(other) is list and len(value) == len(other):
        for index, item in enumerate(value):
            if type(item) not in EXACT or type(item) is not type(other[index]) or item != other[index]:
                _compare(item, other[index], f"{path}[{index}]", found)
    elif not same(value, other):
        found[path] = typed.write(value)


def _kind(form: Value, *, added: bool) -> Kind:
    if form is None:
        return "null"
    if added:
        return "added"
    if isinstance(form, str):
        return "precision" if _finer_time(form) else "spelling"
    if isinstance(form, dict) and len(form) == 1:
        [(key, content)] = form.items()
        if key == "$double" and content in {"nan", "inf", "-inf"}:
            return "nan"
        if key.startswith("$"):
            return _KINDS.get(key, "type")
    return "value" if isinstance(form, bool | dict | list) else "type"
