"""jsonb texts back into documents whose keys stand in the order in which the source writes them.

jsonb has an order of its own, and a document is clean only when its bytes come back. Most texts hold nothing but what
their shape declares: those are read by an exact struct made from it, in C. Any other goes the long way.
"""

from collections.abc import Callable
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import msgspec

from migrator.sources.profile import Document
from migrator.sources.shapes import Instant, Shape, keys, nested, parts
from migrator.values import jsonb


def reader(shape: type[Shape], *, many: bool = False) -> Callable[[bytes], Any]:
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
    found: Any = msgspec.UnsetType
    for part in parts(hint):
        if part is not type(None):
            found |= _plain(part)
    return found


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
