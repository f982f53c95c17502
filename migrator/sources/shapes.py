"""Strict reading of documents: what the profiles share.

A profile declares one ``Shape`` per document and per declared sub-document. The declaration is the only place where a
field is spelled: the reader, the key order of ``encode`` and the census' list of known paths all come from it.
Everything here either returns what was asked for or raises ``Rejected``; no message holds a document value.
"""

import re
from collections.abc import Callable, Container, Iterable, Mapping
from datetime import datetime
from types import MappingProxyType, UnionType
from typing import Annotated, Any, ClassVar, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec
from bson.code import Code
from bson.datetime_ms import DatetimeMS

from migrator.sources.profile import Document, Rejected
from migrator.values import times

Value = TypeVar("Value")
AnyShape = TypeVar("AnyShape", bound="Shape")

Int16 = Annotated[int, msgspec.Meta(ge=-(2**15), le=2**15 - 1)]
Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
Moment = Any
"""A time: a BSON date, or a text read by ``instant``; checked there because msgspec would take any text."""

_NATIVE = (datetime,)
"""Types that msgspec must not make out of a string."""


class Shape(msgspec.Struct, rename="camel", kw_only=True, gc=False):
    """The fields of a document that a profile knows, in the order in which the source writes them.

    A default of None means that the field may be absent or null; other fields must be there.
    """

    aliases: ClassVar[frozenset[str]] = frozenset()
    """Names that are read but never written (an older spelling of a field)."""


class _FaultError(ValueError):
    """Carries a rejection out of msgspec, which knows the path to the sub-document."""

    def __init__(self, rejected: Rejected) -> None:
        super().__init__(rejected.reason)
        self.rejected = rejected


class Checked(Shape):
    """A sub-document that is stored as it stands, whose times and words are checked all the same."""

    times: ClassVar[tuple[str, ...]] = ()
    """Attributes that must be times."""
    choices: ClassVar[Mapping[str, Container[str]]] = MappingProxyType({})
    """Attributes whose text must be one of these."""

    def __post_init__(self) -> None:
        """Raise the first fault; called by msgspec."""
        try:
            for name in self.times:
                optional_instant(getattr(self, name), spelling(type(self), name))
            for name, allowed in self.choices.items():
                word = getattr(self, name)
                if word is not None and word not in allowed:
                    raise unknown_value(spelling(type(self), name), allowed)
        except Rejected as rejected:
            raise _FaultError(rejected) from None


def read(document: Document, shape: type[AnyShape]) -> AnyShape:
    """Return the document's known fields, or raise ``Rejected`` for the first one of a wrong type."""
    if Code in map(type, document.values()):
        _refuse_code(document, shape)
    try:
        return msgspec.convert(document, shape, builtin_types=_NATIVE)
    except msgspec.ValidationError as error:
        raise rejection(error) from None


def _refuse_code(document: Document, shape: type[Shape]) -> None:
    """Raise for JavaScript code in a known field: it is a ``str`` to Python, and to msgspec."""
    for name in keys(shape):
        if name != "_id" and isinstance(document.get(name), Code):
            raise Rejected("wrong-type", name, "text, not code")


_SENTENCE = re.compile(r"(?P<head>.*?)(?: - at (?:`key` in )?`(?P<path>[^`]*)`)?\Z", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(?P<name>.*)`\Z", re.DOTALL)
_EXPECTED = re.compile(r"Expected (?P<what>.+?)(?:, got .*)?\Z", re.DOTALL)
_INDEX = re.compile(r"\[(?:\d+|\.\.\.)\]")


def rejection(error: msgspec.ValidationError) -> Rejected:
    """Turn msgspec's error about a document into a rejection; positions in lists and keys of maps become ``[]``."""
    match = _SENTENCE.match(str(error))
    head, place = (match["head"], match["path"] or "$") if match else (str(error), "$")
    path = _INDEX.sub("[]", place.removeprefix("$").removeprefix("."))
    if isinstance(error.__cause__, _FaultError):
        inner = error.__cause__.rejected
        return Rejected(inner.reason, _join(path, inner.path), inner.expected)
    missing = _MISSING.match(head)
    if missing:
        return Rejected("missing-field", _join(path, missing["name"]), "a value")
    expected = _EXPECTED.match(head)
    what = expected["what"].replace("`", "").replace(" | ", " or ") if expected else "another value"
    bounded = "<=" in what or ">=" in what
    return Rejected("out-of-range" if bounded else "wrong-type", path, what)


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def instant(value: object, path: str) -> datetime:
    """Return the time (aware, UTC, cut to microseconds) of a BSON date or of an ISO text that names its offset."""
    if type(value) is str:
        try:
            return times.parse_iso(value)
        except ValueError:
            raise Rejected("bad-date", path, "an ISO 8601 time that names its offset") from None
    if type(value) is datetime:
        return times.from_bson(value)
    if value is None:
        raise Rejected("missing-field", path, "a value")
    if isinstance(value, DatetimeMS):
        raise Rejected("bad-date", path, "a time in the years 1 to 9999")
    raise Rejected("wrong-type", path, "a date or an ISO 8601 text")


def optional_instant(value: object, path: str) -> datetime | None:
    """Return the time as ``instant`` does; None stays None."""
    return None if value is None else instant(value, path)


def choice(value: str, table: Mapping[str, Value], path: str) -> Value:
    """Return what the table says about a member's spelling; an unknown one is rejected."""
    try:
        return table[value]
    except KeyError:
        raise unknown_value(path, table) from None


def unknown_value(path: str, allowed: Container[str]) -> Rejected:
    """Return the rejection of a word that is none of those allowed."""
    words = sorted(allowed) if isinstance(allowed, Iterable) else ()
    return Rejected("unknown-value", path, "one of " + ", ".join(words))


def text(value: str | None) -> str | None:
    """Return an optional text as the source's model keeps it: trimmed, blank is none."""
    return None if value is None else (value.strip() or None)


def required(value: Value | None, path: str) -> Value:
    """Return the value, or reject the document that has none."""
    if value is None:
        raise Rejected("missing-field", path, "a value")
    return value


def spelling(shape: type[Shape], attribute: str) -> str:
    """Return how the source spells an attribute of the shape."""
    return shape.__struct_encode_fields__[shape.__struct_fields__.index(attribute)]


def keys(shape: type[Shape]) -> tuple[str, ...]:
    """Return the names a source writes, in its order."""
    return tuple(name for name in shape.__struct_encode_fields__ if name not in shape.aliases)


def filled(names: Iterable[str], values: Iterable[object]) -> Document:
    """Return the document of these names and values, without the ones that are None."""
    return {name: value for name, value in zip(names, values, strict=True) if value is not None}


def arranger(shape: type[Shape]) -> Callable[[Any], Any]:
    """Return a function that gives a sub-document read from jsonb its keys in the source's order, at every level.

    Unknown members follow the known ones; what is not a document comes back as it is.
    """
    order = keys(shape)
    size = len(order)
    nested = tuple((name, _each(inner, many=many)) for name, inner, many in _nested(shape))

    def arrange(value: Any) -> Any:  # noqa: ANN401 - whatever jsonb held
        if type(value) is not dict:
            return value
        if len(value) == size:
            try:
                arranged = {name: value[name] for name in order}
            except KeyError:
                arranged = _known_first(value, order)
        else:
            arranged = _known_first(value, order)
        for name, inner in nested:
            if name in arranged:
                arranged[name] = inner(arranged[name])
        return arranged

    return arrange


def _known_first(value: Document, order: tuple[str, ...]) -> Document:
    arranged = {name: value[name] for name in order if name in value}
    if len(arranged) != len(value):
        arranged.update((name, inner) for name, inner in value.items() if name not in arranged)
    return arranged


def _each(shape: type[Shape], *, many: bool) -> Callable[[Any], Any]:
    one = arranger(shape)
    if not many:
        return one
    return lambda value: [one(item) for item in value] if type(value) is list else value


def known_paths(shape: type[Shape]) -> frozenset[str]:
    """Return the path of every field the shape knows; ``[]`` are the items of a list, ``*`` any key of a map."""
    paths: set[str] = set()
    _collect(shape, "", paths)
    return frozenset(paths)


def _collect(shape: type[Shape], prefix: str, paths: set[str]) -> None:
    inner_shapes = {name: (inner, many) for name, inner, many in _nested(shape)}
    for field in msgspec.structs.fields(shape):
        path = prefix + field.encode_name
        paths.add(path)
        for kind in _parts(field.type):
            if get_origin(kind) in (list, tuple):
                paths.add(f"{path}[]")
            elif get_origin(kind) is dict:
                paths.add(f"{path}.*")
        if field.encode_name in inner_shapes:
            inner, many = inner_shapes[field.encode_name]
            _collect(inner, f"{path}[]." if many else f"{path}.", paths)


def _nested(shape: type[Shape]) -> list[tuple[str, type[Shape], bool]]:
    """List the fields that hold a shape (name, shape, False) or a list of one (name, shape, True)."""
    found = []
    hints = get_type_hints(shape)
    for field in msgspec.structs.fields(shape):
        for kind in _parts(hints[field.name]):
            inner = get_args(kind)[0] if get_origin(kind) is list else kind
            if isinstance(inner, type) and issubclass(inner, Shape):
                found.append((field.encode_name, inner, inner is not kind))
    return found


def _parts(kind: object) -> tuple[object, ...]:
    """Return the members of a union, or the type itself."""
    return get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
