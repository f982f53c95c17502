"""``task_functions``: handlers; and seeding them twice without a second row or a silent change."""

import re
from collections.abc import Iterable
from typing import Final

import msgspec

from migrator.records import Handler
from migrator.sources.profile import Context, Decoded, Note, Rows
from migrator.sources.rows import (
    Origin,
    Row,
    collection_of,
    counted,
    key_text,
    read_row,
    summed,
    tenant_of,
    text_of_key,
    the,
)
from migrator.sources.shapes import choice, indexed
from migrator.sources.support_center import names
from migrator.sources.support_center.shapes import TaskFunction

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


def decode(row: Row, context: Context) -> Decoded:
    """Return the handler."""
    function = read_row(row, TaskFunction)
    notes: tuple[Note, ...] = ()
    if _METHOD.search(function.handler_path):
        # The contract is a function with keyword arguments; a method of a class cannot be called by its path.
        notes = (Note("method-path", "handler_path"),)
    origin = Origin(names.NAME, names.TASK_FUNCTIONS, tenant_of(context), key_text(row))
    handler = Handler(
        **origin.columns(Handler),
        name=indexed(function.name, "name"),
        handler_path=function.handler_path,
        handler_type=choice(function.handler_type, names.HANDLER_TYPES, "handler_type"),
        queue=function.queue,
        default_timeout_ms=function.default_timeout_seconds * names.MILLISECONDS,
        is_active=function.is_active,
        is_system=function.is_system,
    )
    return Decoded((handler,), notes)


def encode(rows: Rows) -> Row:
    """Return the row as far as the handler carries it; texts for people and times are remainder."""
    handler = the(rows, Handler)
    timeout = handler.default_timeout_ms
    return {
        "id": text_of_key(handler),
        "name": handler.name,
        "handler_path": handler.handler_path,
        "handler_type": handler.handler_type,
        "queue": handler.queue,
        "default_timeout_seconds": None if timeout is None else timeout // names.MILLISECONDS,
        "is_active": handler.is_active,
        "is_system": handler.is_system,
    }


COLLECTION: Final = collection_of(
    names.TASK_FUNCTIONS,
    TaskFunction,
    (Handler,),
    decode,
    encode,
    unique=(("tenant_id", "name"),),
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
