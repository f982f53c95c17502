"""Strict reading of documents, and their keys in the order in which the source writes them: what the profiles share.

A profile declares one ``Shape`` per document and per declared sub-document. The declaration is the only place where a
field is spelled: the reader, the key order of ``encode`` and the census' list of known paths all come from it.
Everything here either returns what was asked for or raises ``Rejected``; no message holds a document value.

jsonb has an order of its own, and a document is clean only when its bytes come back. Most jsonb texts hold nothing but
what their shape declares: those are read by an exact struct made from it, in C. Any other is arranged key by key.
"""

import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from datetime import datetime
from functools import cache, partial
from types import UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    Literal,
    TypeAlias,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec
from bson.datetime_ms import DatetimeMS

from migrator.constraints import LONGEST_KEY
from migrator.sources.profile import Document, Rejected
from migrator.values import jsonb, times

Value = TypeVar("Value")
AnyShape = TypeVar("AnyShape", bound="Shape")

Int16 = Annotated[int, msgspec.Meta(ge=-(2**15), le=2**15 - 1)]
Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]


class AnyTime(type):
    """Lets msgspec take the ``datetime`` that the hook returns for a type that stands in shapes for a time."""

    # The bound method of another class is no method of this one: it is called with the value alone, and in C.
    __instancecheck__ = datetime.__instancecheck__


class Instant(metaclass=AnyTime):
    """Stands in shapes for a time, a date or a text: msgspec leaves a type it does not know to the hook."""

    read: ClassVar[Callable[[object], datetime]]
    """``instant``, without a path: the hook adds it."""


if TYPE_CHECKING:
    Moment: TypeAlias = datetime | None
else:
    Moment = Instant | None
    """A time (aware, UTC) or none; read by ``instant``, wherever in the document it stands."""

_NATIVE = (datetime,)
"""Types that msgspec must not make out of a string."""


class Shape(msgspec.Struct, rename="camel", kw_only=True, gc=False):
    """The fields of a document that a profile knows, in the order in which the source writes them.

    A default of None means that the field may be absent or null; other fields must be there.
    """

    aliases: ClassVar[frozenset[str]] = frozenset()
    """Names that are read but never written (an older spelling of a field)."""


class _FaultError(ValueError):
    """Carries a rejection through msgspec, which knows the path."""

    def __init__(self, rejected: Rejected) -> None:
        super().__init__(rejected.reason)
        self.rejected = rejected


def _read_stand_in(kind: Any, value: object) -> object:  # noqa: ANN401 - a type that has a function ``read``
    """Read a value for which a type stands in a shape."""
    try:
        return kind.read(value)
    except Rejected as rejected:
        raise _FaultError(rejected) from None


def read(document: Document, shape: type[AnyShape]) -> AnyShape:
    """Return the document's known fields, or raise ``Rejected`` for the first one of a wrong type.

    JavaScript code passes for the text it is a subclass of: ``text`` and ``plain`` refuse it where a column is filled.
    """
    try:
        return msgspec.convert(document, shape, builtin_types=_NATIVE, dec_hook=_read_stand_in)
    except msgspec.ValidationError as error:
        raise rejection(error, shape) from None


_SENTENCE = re.compile(r"(?P<head>.*?)(?: - at (?:`key` in )?`(?P<path>[^`]*)`)?\Z", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(?P<name>.*)`\Z", re.DOTALL)
_EXPECTED = re.compile(r"Expected (?P<what>.+?)(?:, got .*)?\Z", re.DOTALL)
_TYPE = re.compile(r"`(.*?)`")
_BSON = {"str": "string", "float": "double"}
"""What msgspec calls a type, and BSON otherwise."""
_INDEX = re.compile(r"\[(?:\d+|\.\.\.)\]")


def rejection(error: msgspec.ValidationError, shape: type[Shape]) -> Rejected:
    """Turn msgspec's error about a document into a rejection; positions in lists and keys of maps become ``[]``."""
    match = _SENTENCE.match(str(error))
    head, place = (match["head"], match["path"] or "$") if match else (str(error), "$")
    path = _INDEX.sub("[]", place.removeprefix("$").removeprefix("."))
    if isinstance(error.__cause__, _FaultError):
        fault = error.__cause__.rejected
        return Rejected(fault.reason, path, fault.expected)
    missing = _MISSING.match(head)
    if missing:
        return Rejected("missing-field", f"{path}.{missing['name']}" if path else missing["name"], "a value")
    if head.startswith("Invalid enum value"):
        return unknown_value(path, _words_at(shape, path))
    expected = _EXPECTED.match(head)
    what = expected["what"].replace(" | ", " or ") if expected else "another value"
    what = _TYPE.sub(lambda match: _BSON.get(match[1], match[1]), what)
    bounded = "<=" in what or ">=" in what
    return Rejected("out-of-range" if bounded else "wrong-type", path, what)


def _words_at(shape: type[Shape], path: str) -> tuple[str, ...]:
    """Return the words that a field of the shape, or of one inside it, may hold."""
    first, _, rest = path.partition(".")
    first = first.removesuffix("[]")
    if rest:
        return next((_words_at(inner, rest) for _, name, inner, _ in nested(shape) if name == first), ())
    hints = get_type_hints(shape)
    kinds = [
        kind
        for field in msgspec.structs.fields(shape)
        if field.encode_name == first
        for kind in parts(hints[field.name])
    ]
    return tuple(word for kind in kinds if get_origin(kind) is Literal for word in get_args(kind))


def instant(value: object, path: str) -> datetime:
    """Return the time (aware, UTC, cut to microseconds) of a BSON date or of an ISO text that names its offset.

    A time that was read already is returned as it is.
    """
    if type(value) is str:
        try:
            return times.parse_iso(value)
        except ValueError:
            raise _bad_date(path) from None
    if type(value) is datetime:
        return times.from_bson(value) if value.tzinfo is None else value
    if value is None:
        raise Rejected("missing-field", path, "a value")
    if isinstance(value, DatetimeMS):
        raise Rejected("bad-date", path, "a time in the years 1 to 9999")
    raise Rejected("wrong-type", path, "a date or an ISO 8601 text")


Instant.read = partial(instant, path="")


def _bad_date(path: str) -> Rejected:
    return Rejected("bad-date", path, "an ISO 8601 time that names its offset")


def optional_instant(value: object, path: str) -> datetime | None:
    """Return the time as ``instant`` does; None stays None."""
    return None if value is None else instant(value, path)


def choice(value: str, table: Mapping[str, Value], path: str) -> Value:
    """Return the entry of a table for a member's spelling; an unknown spelling is rejected."""
    if type(value) is str and value in table:
        return table[value]
    raise unknown_value(path, table)


def unknown_value(path: str, allowed: Container[str]) -> Rejected:
    """Return the rejection of a word that is none of those allowed."""
    words = sorted(allowed) if isinstance(allowed, Iterable) else ()
    return Rejected("unknown-value", path, "one of " + ", ".join(words))


def text(value: str | None, path: str) -> str | None:
    """Return an optional text as the source's model keeps it: trimmed, blank is none."""
    if value is None:
        return None
    return (value if type(value) is str else plain(value, path)).strip() or None


def plain(value: str, path: str) -> str:
    """Return the text; JavaScript code, a ``str`` to Python, is rejected."""
    if type(value) is not str:
        raise Rejected("wrong-type", path, "text, not code")
    return value


def indexed(value: str, path: str, longest: int = LONGEST_KEY) -> str:
    """Return a text that the target indexes; a longer one, on which the whole chunk would fail, is rejected."""
    if len(value) * 4 > longest and len(value.encode()) > longest:
        raise Rejected("too-long", path, f"at most {longest} bytes of UTF-8, since it is indexed")
    return plain(value, path)


def required(value: Value | None, path: str) -> Value:
    """Return the value, or reject the document that has none."""
    if value is None:
        raise Rejected("missing-field", path, "a value")
    return value


def keys(shape: type[Shape]) -> tuple[str, ...]:
    """Return the names a source writes, in its order."""
    return tuple(name for name in shape.__struct_encode_fields__ if name not in shape.aliases)


@cache
def known_paths(shape: type[Shape]) -> frozenset[str]:
    """Return the path of every field the shape knows; ``[]`` are the items of a list, ``*`` any key of a map."""
    hints = get_type_hints(shape)
    return frozenset(
        f"{field.encode_name}{inner}"
        for field in msgspec.structs.fields(shape)
        for inner in ("", *paths_of_type(hints[field.name]))
    )


def paths_of_type(hint: object) -> Iterator[str]:
    """Yield the ends of paths below a field of this type: ``[]``, ``.*``, and the members of a shape in it."""
    for kind in parts(hint):
        inner, step = (get_args(kind)[0], "[]") if get_origin(kind) is list else (kind, "")
        if step:
            yield step
        elif get_origin(kind) is dict:
            yield ".*"
        if isinstance(inner, type) and issubclass(inner, Shape):
            yield from (f"{step}.{path}" for path in known_paths(inner))


@cache
def nested(shape: type[Shape]) -> tuple[tuple[str, str, type[Shape], bool], ...]:
    """List the fields that hold a shape or a list of one: attribute, name in the document, shape, whether a list."""
    paths = []
    hints = get_type_hints(shape)
    for field in msgspec.structs.fields(shape):
        for kind in parts(hints[field.name]):
            inner = get_args(kind)[0] if get_origin(kind) is list else kind
            if isinstance(inner, type) and issubclass(inner, Shape):
                paths.append((field.name, field.encode_name, inner, inner is not kind))
    return tuple(paths)


def parts(kind: object) -> tuple[object, ...]:
    """Return the members of a union, or the type itself."""
    return get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)


def ordered_reader(shape: type[Shape], *, many: bool = False) -> Callable[[bytes], Any]:
    """Return a function that reads a jsonb text of this shape (``many``: of a list of it) in the source's order.

    Unknown members follow the known ones; what has another form altogether comes back as it is.
    """
    arrange = each(shape) if many else arranger(shape)
    exact = _exact(shape)
    if exact is None:
        return lambda text: arrange(jsonb.decode(text))
    decode: Callable[[bytes], Any] = msgspec.json.Decoder(list[exact] if many else exact).decode  # type: ignore[valid-type] # made at run time

    def read(text: bytes) -> Any:  # noqa: ANN401 - a document, or a list of them
        try:
            return msgspec.to_builtins(decode(text))
        except msgspec.ValidationError:
            return arrange(jsonb.decode(text))

    return read


def arranger(shape: type[Shape]) -> Callable[[Any], Any]:
    """Return a function that gives a document its keys in the source's order, at every level."""
    order = keys(shape)
    inner = tuple((name, each(part) if many else arranger(part)) for _, name, part, many in nested(shape))

    def arrange(value: Any) -> Any:  # noqa: ANN401 - whatever jsonb held
        if type(value) is not dict:
            return value
        arranged: Document = {name: value[name] for name in order if name in value}
        if len(arranged) != len(value):
            arranged.update((name, member) for name, member in value.items() if name not in arranged)
        for name, arrange_part in inner:
            if name in arranged:
                arranged[name] = arrange_part(arranged[name])
        return arranged

    return arrange


def each(shape: type[Shape]) -> Callable[[Any], Any]:
    """Return a function that does for the items of a list what ``arranger`` does for one."""
    arrange = arranger(shape)
    return lambda value: [arrange(item) for item in value] if type(value) is list else value


class _InexactError(Exception):
    """A field's values have more than one JSON form that must be told apart."""


def _exact(shape: type[Shape]) -> type[msgspec.Struct] | None:
    """Return a struct that takes only what is declared, nothing null, or None where types alone cannot tell."""
    try:
        return _struct(shape)
    except _InexactError:
        return None


def _struct(shape: type[Shape]) -> type[msgspec.Struct]:
    hints = get_type_hints(shape, include_extras=True)
    fields: list[tuple[str, Any, Any]] = []
    names: dict[str, str] = {}
    for field in msgspec.structs.fields(shape):
        if field.encode_name not in shape.aliases:
            fields.append((field.name, _union(hints[field.name]), msgspec.UNSET))
            names[field.name] = field.encode_name
    return msgspec.defstruct(f"Exact{shape.__name__}", fields, rename=names, forbid_unknown_fields=True, gc=False)


def _union(hint: object) -> Any:  # noqa: ANN401 - an annotation
    union: Any = msgspec.UnsetType
    for part in parts(hint):
        if part is not type(None):
            union |= _plain(part)
    return union


def _plain(hint: Any) -> Any:  # noqa: ANN401 - annotations
    """Return the type of a value in JSON; times and ids are texts there (other forms go the long way)."""
    if get_origin(hint) is Annotated:
        return get_args(hint)[0]
    if get_origin(hint) is Literal or hint in (Any, Instant):
        return str
    if get_origin(hint) is list:
        return list[_plain(get_args(hint)[0])]  # type: ignore[misc] # made at run time
    if isinstance(hint, type) and issubclass(hint, Shape):
        return _struct(hint)
    if hint in (str, int, bool) or hint == dict[str, str]:
        return hint
    raise _InexactError
