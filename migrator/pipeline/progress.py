"""Where the copy stands, read from the ledger."""

from datetime import datetime

import msgspec

from migrator.config import Settings
from migrator.connections.postgres import Connection, open_target, translate_errors
from migrator.pipeline import deferred, ledger
from migrator.pipeline.model import Plan
from migrator.pipeline.tail import lock, positions, touched


class StandingCollection(msgspec.Struct, frozen=True, kw_only=True):
    """One collection of the plan."""

    collection: str
    chunks: int
    done: int
    documents: int
    skipped: int
    quarantined: int
    bytes: int


class StandingTail(msgspec.Struct, frozen=True, kw_only=True):
    """Where the tail is."""

    follows: bool
    """One follows now."""
    position_at: datetime
    """Cluster time up to which everything was seen."""
    behind_s: float
    """From the position to the target's clock; of an idle source up to 10 s, since it notes the time so often."""
    last_event_at: datetime | None
    updated_at: datetime
    events: int
    documents: int
    written: int
    removed: int
    rate: float
    """Events per second, lately."""
    owed: int
    """Documents that are still to be read again."""
    alarm: str | None
    alarm_at: datetime | None


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """The newest plan and how far it is."""

    plan: Plan | None
    collections: tuple[StandingCollection, ...] = ()
    owed: int = 0
    """Indexes and foreign keys that were dropped for the load and are not built again yet."""
    quarantined: int = 0
    tail: StandingTail | None = None
    """None: no tail ever ran."""


def standing(settings: Settings) -> Standing:
    """Return where the copy stands."""
    with open_target(settings, autocommit=True) as target, translate_errors("the target"):
        plan = ledger.latest_plan(target)
        if plan is None:
            return Standing(plan=None)
        row = target.execute("SELECT count(*) FROM migration.quarantine WHERE state = 'open'").fetchone()
        return Standing(
            plan=plan,
            collections=tuple(
                StandingCollection(
                    collection=name,
                    **{key: figures[key] for key in ("chunks", "done", "documents", "skipped", "quarantined", "bytes")},
                )
                for name, figures in ledger.totals(target, plan.id).items()
            ),
            owed=len(deferred.owed(target)),
            quarantined=row[0] if row else 0,
            tail=_tail(target, plan.profile),
        )


def _tail(target: Connection, profile: str) -> StandingTail | None:
    found = positions.standing(target, profile)
    row = target.execute("SELECT clock_timestamp()").fetchone()
    if found is None or row is None:
        return None
    now: datetime = row[0]
    return StandingTail(
        follows=lock.held(target),
        position_at=found.position_at,
        behind_s=max(0.0, (now - found.position_at).total_seconds()),
        last_event_at=found.last_event_at,
        updated_at=found.updated_at,
        events=found.events,
        documents=found.documents,
        written=found.written,
        removed=found.removed,
        rate=found.rate,
        owed=touched.count(target),
        alarm=found.alarm,
        alarm_at=found.alarm_at,
    )
