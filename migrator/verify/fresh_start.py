"""The fresh start: a person decides that there is no MongoDB to copy, and the decision is recorded and reported.

What needs a source is *not applicable* then, and names the decision; everything else runs. MongoDB is not asked, also
where it is configured.
"""

from datetime import UTC, datetime
from typing import Final

import msgspec
from psycopg import sql

from migrator import __version__
from migrator.config import Settings, postgres_dsn
from migrator.connections.postgres import Connection, open_login, open_target, translate_errors
from migrator.errors import RefusedError
from migrator.records import ALL
from migrator.result import Decision
from migrator.schema import decisions, revisions
from migrator.schema.decisions import Approval
from migrator.schema.security import Roles
from migrator.store.queue import SCRATCH

KIND: Final = "fresh start"
_COPY_TABLES: Final = ("plans", "quarantine")
"""Tables of the schema ``migration`` that a copy fills: if one was made, there is a source."""


class FreshStart(msgspec.Struct, frozen=True, kw_only=True):
    """What the caller decided, and allows."""

    by: Approval
    """Who decided it, and why."""
    upgrade: bool = False
    """Upgrade the schema to its head first."""
    allow_nonempty: bool = False
    """Begin although the target holds rows."""
    at: str = ""
    """When it was first recorded; empty: not yet."""
    version: str = __version__
    """Of the tool that recorded it first."""

    @property
    def decision(self) -> Decision:
        """The decision, for a result."""
        return Decision(kind=KIND, who=self.by.who, at=self.at, why=self.by.reason, tool=f"migrator {self.version}")

    @property
    def reason(self) -> str:
        """Why a check that needs a source is not applicable."""
        return f"there is no source: {KIND}, decided by {self.by.who}, because {self.by.reason}"


def record(settings: Settings, start: FreshStart) -> FreshStart:
    """Record the decision, and return it with the time at which it was first made.

    Raises ``RefusedError`` for a target that holds rows, unless that is allowed, or
    that is not migrated, unless it is to be upgraded. A refusal leaves the target as it is.
    """
    full = _tables_with_rows(settings)
    if full and not start.allow_nonempty:
        raise RefusedError(
            f"the target is not empty: {', '.join(full)}; a fresh start begins with nothing: verify against the source"
            " without --fresh-start, or call again with --allow-nonempty"
        )
    _require_latest_schema(settings, upgrade=start.upgrade)
    with open_target(settings) as target, translate_errors("the target"):
        at, version = _first_decision(target, start.by, allowed=start.allow_nonempty)
        target.commit()
    return msgspec.structs.replace(start, at=at.astimezone(UTC).isoformat(timespec="seconds"), version=version)


def _tables_with_rows(settings: Settings) -> list[str]:
    """Return the tables that hold rows; what a verification itself left does not count."""
    full = []
    with open_login(settings) as connection, translate_errors("the target"):
        _bypass_row_security(connection, settings.postgres.migration_role)
        for record in ALL:
            own = sql.SQL("WHERE NOT starts_with(tenant_id, {})").format(sql.Literal(SCRATCH))
            full += _with_rows(connection, "scheduler", record.table, own)
        for table in _COPY_TABLES:
            full += _with_rows(connection, "migration", table, sql.SQL(""))
    return full


def _bypass_row_security(connection: Connection, owner: str) -> None:
    """Act as the owner of the tables, whom row-level security does not bind; where there is none, there are none."""
    row = connection.execute("SELECT count(*) FROM pg_roles WHERE rolname = %s", (owner,)).fetchone()
    if row == (1,):
        connection.execute(sql.SQL("SET ROLE {}").format(sql.Identifier(owner)))


def _with_rows(connection: Connection, schema: str, table: str, where: sql.Composable) -> list[str]:
    if connection.execute("SELECT to_regclass(%s)", (f"{schema}.{table}",)).fetchone() == (None,):
        return []
    query = sql.SQL("SELECT EXISTS (SELECT FROM {} {})").format(sql.Identifier(schema, table), where)
    return [f"{schema}.{table} has rows"] if connection.execute(query).fetchone() == (True,) else []


def _require_latest_schema(settings: Settings, *, upgrade: bool) -> None:
    dsn = postgres_dsn(settings)
    behind = [one.branch for one in revisions.current(dsn) if one.pending]
    if behind and not upgrade:
        raise RefusedError(
            f"the schema is not at its latest revision ({' and '.join(behind)}): call again with --upgrade, or call"
            " migrator schema upgrade first"
        )
    if behind:
        revisions.upgrade(dsn, names=Roles.of(settings.postgres))


def _first_decision(target: Connection, by: Approval, *, allowed: bool) -> tuple[datetime, str]:
    """Return the time and the version of the first decision with the same words; it is written where there is none."""
    target.execute("LOCK TABLE migration.decisions IN SHARE ROW EXCLUSIVE MODE")  # of two callers, one writes
    first = (
        "SELECT at, tool_version FROM migration.decisions WHERE kind = %s AND who = %s AND reason = %s"
        " ORDER BY id LIMIT 1"
    )
    row = target.execute(first, (KIND, by.who, by.reason)).fetchone()
    if row is None:
        return decisions.record(target, KIND, by, allow_nonempty=allowed), __version__
    return row[0], row[1]
