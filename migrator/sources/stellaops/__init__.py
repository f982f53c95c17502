"""The profile ``stellaops``, modelled on what is publicly documented of that scheduler's data.

``docs/sources-stellaops.md`` shows the canonical document of every collection, and what is tolerated beside it.
"""

from migrator.sources.mapping.codec import collection_of
from migrator.sources.mapping.language import SourceMapping
from migrator.sources.profile import Profile
from migrator.sources.stellaops import graph, names
from migrator.sources.stellaops.audit import AUDIT
from migrator.sources.stellaops.impact_snapshots import IMPACT_SNAPSHOTS
from migrator.sources.stellaops.locks import LOCKS
from migrator.sources.stellaops.own import EXECUTION_LOGS, HANDLERS, TRIGGERS, WORKERS
from migrator.sources.stellaops.policy import POLICY_JOBS, POLICY_RUNS
from migrator.sources.stellaops.runs import RUNS
from migrator.sources.stellaops.schedules import SCHEDULES
from migrator.sources.stellaops.summaries import SUMMARIES

_BEFORE_GRAPHS = (SCHEDULES, TRIGGERS, RUNS, EXECUTION_LOGS, IMPACT_SNAPSHOTS)
_AFTER_GRAPHS = (POLICY_RUNS, POLICY_JOBS, SUMMARIES, WORKERS, LOCKS, AUDIT, HANDLERS)

MAPPING = SourceMapping(
    name=names.NAME,
    collections=(*_BEFORE_GRAPHS, *_AFTER_GRAPHS),
    documents="documents of schema version 1: modelled on public documents",
)

PROFILE = Profile(
    name=MAPPING.name,
    version=1,
    documents=MAPPING.documents,
    kept_by_store=True,
    slots="runs",
    collections=(
        *(collection_of(MAPPING, one) for one in _BEFORE_GRAPHS),
        graph.JOBS,
        graph.EVENTS,
        *(collection_of(MAPPING, one) for one in _AFTER_GRAPHS),
    ),
)
