"""docs/tables.md: what an application in another language does (``tables_head.md``), then each column's comment."""

from pathlib import Path

from migrator.schema.revisions import known_revisions
from migrator.schema.security import APPEND_ONLY, DELETED_BY_DISPATCHER, DELETED_BY_SERVICE, WRITTEN_BY_DISPATCHER
from tests.schema_dump import Column, read_tables

HEAD = Path(__file__).with_name("tables_head.md")


def tables_page(notice: str) -> str:
    """Return the page."""
    lines = [notice, *HEAD.read_text().splitlines()]
    tables = read_tables("scheduler")
    for table in [tables[name] for revision in known_revisions("scheduler") for name in revision.tables]:
        lines += ["", f"### {table.name}", "", f"{table.comment}{_rights(table.name)}", ""]
        lines += ["| column | type | null | default | meaning |", "|---|---|---|---|---|"]
        lines += [_row(column) for column in table.columns.values()]
    return "\n".join(lines) + "\n"


def _rights(table: str) -> str:
    """Return the rights that the roles lack, or have besides."""
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
    written = " `scheduler_dispatcher` alone may insert and change rows." if table in WRITTEN_BY_DISPATCHER else ""
    return written + (f" {' and '.join(who)} may delete rows." if who else " Rows may not be deleted.")


def _row(column: Column) -> str:
    null = "yes" if column.nullable else ""
    default = "computed" if column.computed else f"`{column.default}`" if column.default else ""
    meaning = str(column.comment).replace("|", "\\|")
    return f"| `{column.name}` | {column.type} | {null} | {default} | {meaning} |"
