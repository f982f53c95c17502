"""``task_functions``: handlers; and seeding them twice without a second row or a silent change."""

import re
from collections.abc import Iterable
from typing import Final

import msgspec

from migrator.records import Handler
from migrator.sources.mapping.language import Mapped, Reading
from migrator.sources.profile import Context, Document, Note
from migrator.sources.shapes import Int32
from migrator.sources.support_center import names
from migrator.sources.table_columns import Positive, counted, flag, key, seconds, summed, text, utc, words

_METHOD: Final = re.compile(r"(?:^|\.)_*[A-Z][A-Za-z0-9]*\.[^.]+\Z")
_COMPARED: Final = (
    "handler_path",
    "handler_type",
    "queue",
    "default_timeout_ms",
    "is_active",
    "is_system",
    "idempotent",
)


def _derive(document: Document, reading: Reading, _context: Context) -> None:
    if _METHOD.search(document["handler_path"]):
        # The contract is a function with keyword arguments; a method of a class cannot be called by its path.
        reading.notes.append(Note("method-path", "handler_path"))


TASK_FUNCTIONS: Final = Mapped(
    name=names.TASK_FUNCTIONS,
    tables=("handlers",),
    fields=(
        text("name", "handlers.name", required=True),
        text("handler_path", "handlers.handler_path", required=True),
        words("handler_type", "handlers.handler_type", names.HANDLER_TYPES),
        text("queue", "handlers.queue"),
        seconds("default_timeout_seconds", "handlers.default_timeout_ms", Positive, required=True),
        flag("is_active", "handlers.is_active"),
        flag("is_system", "handlers.is_system"),
        # Texts for people and times are remainder.
        text("display_name", required=True),
        text("description"),
        utc("created_at", required=True),
        utc("updated_at", required=True),
    ),
    admit=key(Int32),
    derive=_derive,
    measures=(
        counted("handler_type", "this.handler_type"),
        counted("is_active", "this.is_active"),
        summed("default_timeout_ms", "this.default_timeout_seconds * 1000"),
    ),
)


class Conflict(msgspec.Struct, frozen=True):
    """A handler that a seed would change: what is there wins, and somebody must decide."""

    name: str
    there: str
    """Name under which it is there: another one where only the path is the same."""
    columns: tuple[str, ...]


class Seeding(msgspec.Struct, frozen=True, kw_only=True):
    """What a seed of handlers comes to; nothing that is there is changed."""

    insert: tuple[Handler, ...]
    unchanged: tuple[str, ...]
    conflicts: tuple[Conflict, ...]
    unseeded: tuple[str, ...]
    """Names that are there and that the seed does not know: another seeder's, or somebody's own."""


def seed(there: Iterable[Handler], wanted: Iterable[Handler]) -> Seeding:
    """Compare a seed with the handlers of one tenant; a second time it inserts nothing.

    A wanted handler is in conflict when one of its name differs, or when its path is there under another name: the
    source has two seeders that do both, and whichever ran first won unnoticed.
    """
    by_name = {handler.name: handler for handler in there}
    by_path = {handler.handler_path: handler for handler in by_name.values() if handler.handler_path is not None}
    insert: dict[str, Handler] = {}
    unchanged: list[str] = []
    conflicts: list[Conflict] = []
    known: set[str] = set()
    for handler in wanted:
        known.add(handler.name)
        same = by_name.get(handler.name) or insert.get(handler.name)
        renamed = None if handler.handler_path is None else by_path.get(handler.handler_path)
        if same is not None:
            columns = tuple(name for name in _COMPARED if getattr(same, name) != getattr(handler, name))
            if columns:
                conflicts.append(Conflict(handler.name, same.name, columns))
            elif same is not insert.get(handler.name):
                unchanged.append(handler.name)
        elif renamed is not None:
            conflicts.append(Conflict(handler.name, renamed.name, ("name",)))
        else:
            insert[handler.name] = handler
    return Seeding(
        insert=tuple(insert.values()),
        unchanged=tuple(unchanged),
        conflicts=tuple(conflicts),
        unseeded=tuple(sorted(by_name.keys() - known)),
    )
