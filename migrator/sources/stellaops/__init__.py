"""The profile ``stellaops``, modelled on what is publicly documented of that scheduler's data.

``docs/sources-stellaops.md`` shows the canonical document of every collection, and what is tolerated beside it.
"""

from migrator.sources.profile import Profile
from migrator.sources.stellaops import (
    audit,
    graph,
    impact_snapshots,
    locks,
    names,
    own,
    policy,
    runs,
    schedules,
    summaries,
)

PROFILE = Profile(
    name=names.NAME,
    version=1,
    kept_by_store=True,
    collections=(
        schedules.COLLECTION,
        own.TRIGGERS,
        runs.COLLECTION,
        own.EXECUTION_LOGS,
        impact_snapshots.COLLECTION,
        graph.JOBS,
        graph.EVENTS,
        policy.RUNS,
        policy.JOBS,
        summaries.COLLECTION,
        own.WORKERS,
        locks.COLLECTION,
        audit.COLLECTION,
        own.HANDLERS,
    ),
)
