"""The status of the copy and of the tail, read from the ledger."""

from datetime import datetime

import msgspec

from migrator.config import Settings
from migrator.connections.postgres import Connection, target_connection
from migrator.pipeline import deferred_ddl, ledger, locks
from migrator.pipeline.ledger import Plan
from migrator.pipeline.tail import backlog, positions


class CollectionStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One collection of the plan."""

    collection: str
    chunks: int
    done: int
    documents: int
    skipped: int
    quarantined: int
    bytes: int


class TailStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The state of the tail."""

    follows: bool
    """Whether a tail runs now."""
    position_at: datetime
    """Cluster time up to which all events were read."""
    lag_s: float
    """From the position to the target's clock. It is up to 10 s for an idle source, which records the time so often."""
    last_event_at: datetime | None
    updated_at: datetime
    events: int
    documents: int
    written: int
    removed: int
    rate: float
    """Events per second, averaged over the last batches."""
    owed: int
    """Documents that must still be read again."""
    alarm: str | None
    alarm_at: datetime | None


class CopyStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The newest plan and its progress."""

    plan: Plan | None
    collections: tuple[CollectionStatus, ...] = ()
    owed: int = 0
    """Indexes and foreign keys that were dropped for the load and are not created again yet."""
    quarantined: int = 0
    tail: TailStatus | None = None
    """None: no tail ever ran."""


def copy_status(settings: Settings) -> CopyStatus:
    """Return the status of the copy."""
    with target_connection(settings) as target:
        plan = ledger.latest_plan(target)
        if plan is None:
            return CopyStatus(plan=None)
        row = target.execute("SELECT count(*) FROM migration.quarantine WHERE state = 'open'").fetchone()
        return CopyStatus(
            plan=plan,
            collections=tuple(
                CollectionStatus(
                    collection=name,
                    **{key: figures[key] for key in ("chunks", "done", "documents", "skipped", "quarantined", "bytes")},
                )
                for name, figures in ledger.totals(target, plan.id).items()
            ),
            owed=len(deferred_ddl.outstanding(target)),
            quarantined=row[0] if row else 0,
            tail=_tail_status(target, plan.profile),
        )


def _tail_status(target: Connection, profile: str) -> TailStatus | None:
    found = positions.tail_state(target, profile)
    row = target.execute("SELECT clock_timestamp()").fetchone()
    if found is None or row is None:
        return None
    now: datetime = row[0]
    return TailStatus(
        follows=locks.is_tail_running(target),
        position_at=found.position_at,
        lag_s=max(0.0, (now - found.position_at).total_seconds()),
        last_event_at=found.last_event_at,
        updated_at=found.updated_at,
        events=found.events,
        documents=found.documents,
        written=found.written,
        removed=found.removed,
        rate=found.rate,
        owed=backlog.count(target),
        alarm=found.alarm,
        alarm_at=found.alarm_at,
    )
