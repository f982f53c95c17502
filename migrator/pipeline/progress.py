"""Where the copy stands, read from the ledger."""

import msgspec

from migrator.config import Settings
from migrator.pipeline import deferred, ledger
from migrator.pipeline.model import Plan
from migrator.store.postgres.connection import open_target, speaking_of


class StandingCollection(msgspec.Struct, frozen=True, kw_only=True):
    """One collection of the plan."""

    collection: str
    chunks: int
    done: int
    documents: int
    skipped: int
    quarantined: int
    bytes: int


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """The newest plan and how far it is."""

    plan: Plan | None
    collections: tuple[StandingCollection, ...] = ()
    owed: int = 0
    """Indexes and foreign keys that were dropped for the load and are not built again yet."""
    quarantined: int = 0


def standing(settings: Settings) -> Standing:
    """Return where the copy stands."""
    with open_target(settings, autocommit=True) as target, speaking_of("the target"):
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
        )
