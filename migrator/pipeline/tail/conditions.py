"""The conditions under which the tail may write rows: no copy is unfinished, and documents still make the same rows.

They prevent that a late chunk undoes a newer event, or that a deleted document comes back. While a copy is unfinished,
the tail only records which documents have changed. Afterwards it reads them. What it reads then is newer than what any
chunk has read, and no chunk writes any more.
"""

from uuid import UUID

import msgspec

from migrator.connections import advisory_locks
from migrator.connections.postgres import Connection
from migrator.errors import RefusedError
from migrator.pipeline import ledger
from migrator.pipeline import plan as plans
from migrator.pipeline.ledger import Plan
from migrator.pipeline.locks import ROWS_KEY
from migrator.pipeline.sessions import Sessions

UNFINISHED = "the copy is unfinished; changes are recorded until it is complete"
WRITING = "a backfill, a retry or a repair is writing rows"


class WritePermission(msgspec.Struct, frozen=True):
    """The answer: the plan whose rows may be updated, or why none may be."""

    plan: Plan | None
    reason: str = ""


def write_permission(target: Connection, known: Plan | None, *, shared: bool = False) -> WritePermission:
    """Evaluate the conditions for this transaction; ``known``: the plan of the last answer, which is not read again.

    ``shared``: other sessions that share the lock of the rows may write at the same time.
    """
    # first: a plan is opened only under this lock
    locked = advisory_locks.try_in_transaction(target, ROWS_KEY, shared=shared)
    row = target.execute(
        "SELECT id, state, EXISTS (SELECT FROM migration.plans WHERE state = 'open')"
        " FROM migration.plans ORDER BY created_at DESC, id LIMIT 1"
    ).fetchone()
    newest: tuple[UUID, str, bool] | None = row
    if newest is None or newest[1] != "complete" or newest[2]:
        return WritePermission(None, UNFINISHED)
    if not locked:
        return WritePermission(None, WRITING)
    if known is not None and known.id == newest[0]:
        return WritePermission(known)
    return WritePermission(ledger.latest_plan(target))


def require_same_conditions(sessions: Sessions, plan: Plan) -> None:
    """Raise ``RefusedError`` if documents would not become the rows that the copy has made of them.

    That depends on the profile, and on the part of the configuration that concerns the source.
    """
    scope = plans.plan_scope(plan)
    if scope.tenants:
        raise RefusedError("only some tenants were copied, and the tail needs all: copy all of them first")
    profile = sessions.profile
    digest = plans.config_digest(sessions.settings, scope)
    differs = plans.differences(
        ("profile", f"{plan.profile}/{plan.profile_version}", f"{profile.name}/{profile.version}"),
        ("digest of the section [source] of the configuration", plan.config_digest[:12], digest[:12]),
    )
    if differs:
        raise RefusedError(
            f"the copy was made with other settings ({differs}): call migrator backfill, which updates every row"
        )


def tailed_collections(sessions: Sessions) -> tuple[str, ...]:
    """Return the collections whose rows are updated: all, once all were copied; before that those that were."""
    rows = sessions.target.execute("SELECT context FROM migration.plans WHERE state = 'complete'").fetchall()
    names = [one.name for one in sessions.profile.collections]
    if any(not context["scope"]["only"] for (context,) in rows):
        return tuple(names)
    copied = ledger.copied_collections(sessions.target)
    return tuple(name for name in names if name in copied)
