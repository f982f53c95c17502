"""Functions that are compiled for one mapping, with its fields one after the other in place of a loop over them.

A copy reads and writes millions of documents by the same few fields. ``benchmarks/codec.py`` measures what is saved
where there is no native codec.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, Final, TypeAlias

import msgspec

NULL: Final = object()
"""What a writer returns for a field that is written as null."""

Place: TypeAlias = tuple[str, str, Callable[..., Any] | None]
"""Of an attribute: table, column and reader; the value as it is if there is no reader."""
Entry: TypeAlias = tuple[tuple[str, ...], Callable[[Any], Any] | None, bool]
"""Of a column: path of the field, writer (the value as it is if there is none), and whether nothing is null: neither
what the column does not hold, nor what the writer does not write."""


def filling(places: Sequence[Place | None]) -> Callable[[Any, Any], None]:
    """Return the function of a struct and a ``Reading`` that fills columns.

    ``places``: for each attribute of the struct, in its order; None for one that fills nothing.
    """
    fed = list(dict.fromkeys(place[0] for place in places if place is not None))
    lines = ["columns = reading.columns"]
    lines += [f"t{index} = columns[{table!r}]" for index, table in enumerate(fed)]
    lines.append(f"{_values(len(places))} = values_of(found)")
    names: dict[str, Any] = {"values_of": msgspec.structs.astuple}
    for index, place in enumerate(places):
        if place is None:
            continue
        table, column, convert = place
        fill = f"t{fed.index(table)}[{column!r}] = v{index}"
        lines.append(f"if v{index} is not None:")
        if convert is None:
            lines.append(f"    {fill}")
        else:
            names[f"r{index}"] = convert
            lines += [f"    v{index} = r{index}(v{index}, reading)", f"    if v{index} is not None: {fill}"]
    return _function("found, reading", lines, names)


def writing(entries: Sequence[Entry]) -> Callable[[Sequence[Any], dict[str, Any]], None]:
    """Return the function of the values of columns and a document that adds the fields to the document."""
    lines = [f"{_values(len(entries))} = values"]
    names: dict[str, Any] = {"null": NULL, "place": _place}
    for index, (path, write, is_null) in enumerate(entries):
        *parents, name = path
        begin, end = (
            (f"place(document, {tuple(parents)!r}, {name!r}, ", ")") if parents else (f"document[{name!r}] = ", "")
        )
        stored = f"{begin}None if v{index} is null else v{index}{end}"
        lines.append(f"if v{index} is not None:")
        if write is None:
            lines.append(f"    {stored}")
        else:
            names[f"w{index}"] = write
            lines += [f"    v{index} = w{index}(v{index})", f"    if v{index} is not None: {stored}"]
            if is_null:
                lines.append(f"    else: {begin}None{end}")
        if is_null:
            lines.append(f"else: {begin}None{end}")
    return _function("values, document", lines, names)


def _values(count: int) -> str:
    return "".join(f"v{index}, " for index in range(count)).rstrip() or "()"


def _function(parameters: str, lines: Sequence[str], names: Mapping[str, Any]) -> Callable[..., Any]:
    text = f"def compiled({parameters}):\n" + "".join(f"    {line}\n" for line in lines)

    @cache
    def function() -> Callable[..., Any]:
        scope = dict(names)
        exec(compile(text, "<mapping>", "exec"), scope)  # noqa: S102 - of a mapping, only names are in it, as literals
        found: Callable[..., Any] = scope["compiled"]
        return found

    def compiled(*given: Any) -> Any:  # noqa: ANN401 - what the function of the mapping takes and returns
        return function()(*given)

    return compiled  # a process reads few collections of its profile: it compiles the functions of these


def _place(document: dict[str, Any], parents: Sequence[str], name: str, value: object) -> None:
    for parent in parents:
        document = document.setdefault(parent, {})
    document[name] = value
