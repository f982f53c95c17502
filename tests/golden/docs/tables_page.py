"""docs/tables.md: what an application in another language does (``tables_head.md``), then each column's comment."""

from collections.abc import Iterator
from pathlib import Path

from sqlalchemy import Column, Computed
from sqlalchemy.dialects import postgresql

from migrator.schema.scheduler_tables import SCHEDULER
from migrator.schema.security import APPEND_ONLY, DELETED_BY_DISPATCHER, DELETED_BY_SERVICE

HEAD = Path(__file__).with_name("tables_head.md")


def tables_page(notice: str) -> str:
    """Return the page."""
    lines = [notice, *HEAD.read_text().splitlines()]
    for table in SCHEDULER.tables.values():
        lines += ["", f"### {table.name}", "", f"{table.comment}{_rights(table.name)}", ""]
        lines += ["| column | type | null | default | meaning |", "|---|---|---|---|---|"]
        lines += [_row(column) for column in table.columns]
    return "\n".join(lines) + "\n"


def _rights(table: str) -> str:
    """Return what the roles may not, or may also, do."""
    if table in APPEND_ONLY:
        return " Rows may be inserted, and neither changed nor deleted."
    who = [
        f"`{role}`"
        for role, tables in (
            ("scheduler_service", DELETED_BY_SERVICE),
            ("scheduler_dispatcher", DELETED_BY_DISPATCHER),
        )
        if table in tables
    ]
    return f" {' and '.join(who)} may delete rows." if who else " Rows may not be deleted."


def _row(column: Column[object]) -> str:
    spelled = str(column.type.compile(postgresql.dialect())).lower()  # type: ignore[no-untyped-call]
    null = "yes" if column.nullable and not column.primary_key else ""
    meaning = str(column.comment).replace("|", "\\|")
    return f"| `{column.name}` | {spelled} | {null} | {''.join(_default(column))} | {meaning} |"


def _default(column: Column[object]) -> Iterator[str]:
    if isinstance(column.server_default, Computed):
        yield "computed"
    elif column.server_default is not None:
        yield f"`{column.server_default.arg}`"  # type: ignore[attr-defined]  # a DefaultClause has it
