"""The status of the copy and of the tail, read from the ledger."""

from datetime import datetime, timedelta

import msgspec
import psycopg

from migrator.config import Settings
from migrator.connections.postgres import Connection, fetch_structs, fetch_value, target_connection
from migrator.errors import MigratorError
from migrator.pipeline import control, deferred_ddl, ledger, locks
from migrator.pipeline.control import Control
from migrator.pipeline.ledger import Plan
from migrator.pipeline.tail import backlog, positions
from migrator.pipeline.tail.positions import TailCounts


class CollectionStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One collection of the plan."""

    collection: str
    chunks: int
    done: int
    documents: int
    skipped: int
    quarantined: int
    bytes: int


class TailStatus(TailCounts, frozen=True, kw_only=True):
    """The state of the tail."""

    follows: bool
    """Whether a tail runs now."""
    lag_s: float
    """From the position to the target's clock. It is up to 10 s for an idle source, which records the time so often."""
    owed: int
    """Documents that must still be read again."""


class CopyStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The newest plan and its progress."""

    plan: Plan | None
    collections: tuple[CollectionStatus, ...] = ()
    owed: int = 0
    """Indexes and foreign keys that were dropped for the load and are not created again yet."""
    quarantined: int = 0
    dropped: int = 0
    """Documents that people gave up (``quarantine drop``)."""
    tail: TailStatus | None = None
    """None: no tail ever ran."""
    control: Control = Control()
    """What operators set while it runs."""


def copy_status(settings: Settings) -> CopyStatus:
    """Return the status of the copy."""
    with target_connection(settings) as target:
        plan = ledger.latest_plan(target)
        if plan is None:
            return CopyStatus(plan=None, control=control.read(target))
        collections = fetch_structs(
            target,
            CollectionStatus,
            "SELECT collection, count(*) AS chunks, count(*) FILTER (WHERE state = 'done') AS done,"
            " coalesce(sum(documents), 0)::bigint AS documents, coalesce(sum(skipped), 0)::bigint AS skipped,"
            " coalesce(sum(quarantined), 0)::bigint AS quarantined, coalesce(sum(bytes), 0)::bigint AS bytes"
            " FROM migration.chunks WHERE plan_id = %s GROUP BY collection ORDER BY collection",
            (plan.id,),
        )
        return CopyStatus(
            plan=plan,
            collections=tuple(collections),
            owed=len(deferred_ddl.outstanding(target)),
            quarantined=ledger.quarantined_count(target, plan.profile),
            dropped=ledger.dropped_count(target, plan.profile),
            tail=_tail_status(target, plan.profile),
            control=control.read(target),
        )


def copied_until(settings: Settings) -> datetime | None:
    """Return how far the copy follows its source: the tail's position, else the time of the plan; None: not known."""
    try:
        with target_connection(settings) as target:
            plan = ledger.latest_plan(target)
            tail = None if plan is None else positions.tail_state(target, plan.profile)
    except (MigratorError, psycopg.Error):  # a user who may not read the ledger
        return None
    if plan is None:
        return None
    return plan.as_of if tail is None else tail.position_at


def _tail_status(target: Connection, profile: str) -> TailStatus | None:
    state = positions.tail_state(target, profile)
    if state is None:
        return None
    lag: timedelta = fetch_value(target, "SELECT clock_timestamp()") - state.position_at
    return TailStatus(
        **{name: getattr(state, name) for name in TailCounts.__struct_fields__},
        follows=locks.is_tail_running(target),
        lag_s=max(0.0, lag.total_seconds()),
        owed=backlog.count(target),
    )
