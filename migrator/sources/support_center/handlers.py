"""``task_functions``: handlers."""

import re
from typing import Final

from migrator.sources.mapping.language import Mapped, Reading
from migrator.sources.profile import Context, Document, Note
from migrator.sources.shapes import Int32
from migrator.sources.support_center import names
from migrator.sources.table_columns import Positive, counted, flag, key, seconds, summed, text, utc, words

_METHOD: Final = re.compile(r"(?:^|\.)_*[A-Z][A-Za-z0-9]*\.[^.]+\Z")


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
