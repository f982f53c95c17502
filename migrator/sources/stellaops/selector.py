"""What a schedule or an impact set selects."""

from collections.abc import Mapping
from typing import Any

from migrator.sources.profile import Document, Note
from migrator.sources.shapes import Shape, ordered_reader
from migrator.sources.stellaops import names
from migrator.values import jsonb


class Label(Shape):
    """A label and its accepted values."""

    key: str | None = None
    values: list[str] | None = None


class Selector(Shape):
    """A selection of images; filters that select nothing stay as empty lists."""

    scope: names.Scope | None = None
    tenant_id: str | None = None
    namespaces: list[str] | None = None
    repositories: list[str] | None = None
    digests: list[str] | None = None
    include_tags: list[str] | None = None
    labels: list[Label] | None = None
    resolves_tags: bool | None = None


read_back = ordered_reader(Selector)


def stored(value: Document, found: Selector, path: str, notes: list[Note]) -> bytes:
    """Return the JSON text of a selector, with the one spelling of its scope."""
    if found.scope in names.SCOPES:
        notes.append(Note("alias", f"{path}.scope"))
        return jsonb.encode(respelled(value, "scope", names.SCOPES))
    return jsonb.encode(value)


def respelled(value: Any, field: str, table: Mapping[str, str]) -> Any:  # noqa: ANN401 - whatever the document held
    """Return a document whose word is spelled as the table says, where it has it."""
    word = value.get(field) if isinstance(value, dict) else None
    return {**value, field: table[word]} if isinstance(word, str) and word in table else value
