"""The text of the file of a shape, as ``integration/targets/test_catalogues.py`` writes it."""

from collections.abc import Mapping
from typing import Any

import msgspec
import tomlkit

from migrator.targets.catalogue import Shape


def encode(shape: Shape) -> str:
    """Return a shape as the text of its file."""
    content = msgspec.to_builtins(shape)
    catalogue = content.pop("catalogue")
    tables = catalogue.pop("tables")
    document = tomlkit.document()
    for name, value in content.items():
        document.add(name, _inline(value))
    inner = tomlkit.table()
    for name, value in catalogue.items():
        inner.add(name, _section(value))
    document.add("catalogue", inner)
    listed = tomlkit.table(is_super_table=True)
    for name, table in tables.items():
        listed.add(name, _section(table))
    inner.add("tables", listed)
    return tomlkit.dumps(document)


def _section(value: Mapping[str, Any]) -> Any:  # noqa: ANN401 - an item of tomlkit
    section = tomlkit.table()
    for name, inner in value.items():
        section.add(name, _inline(inner, multiline=name == "columns"))
    return section


def _inline(value: Any, *, multiline: bool = False) -> Any:  # noqa: ANN401 - builtins, and items of tomlkit
    if isinstance(value, dict):
        table = tomlkit.inline_table()
        table.update(value)
        return table
    if isinstance(value, list):
        array = tomlkit.array().multiline(multiline)
        array.extend(_inline(inner) for inner in value)
        return array
    return tomlkit.item(value)
