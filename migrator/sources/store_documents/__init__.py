"""The documents in which our own store for MongoDB keeps its rows, as mappings; the profile ``stellaops`` reads them.

They are the documents of that scheduler, with fields and collections of our own beside them, so that the store works on
its database before a migration, and a migration reads what the store wrote.
"""

from migrator.sources.mapping.codec import collection_of
from migrator.sources.mapping.language import SourceMapping
from migrator.sources.store_documents import graph, names
from migrator.sources.store_documents.audit import AUDIT
from migrator.sources.store_documents.impact_snapshots import IMPACT_SNAPSHOTS
from migrator.sources.store_documents.locks import LOCKS
from migrator.sources.store_documents.own import EXECUTION_LOGS, HANDLERS, TRIGGERS, WORKERS
from migrator.sources.store_documents.policy import POLICY_JOBS, POLICY_RUNS
from migrator.sources.store_documents.runs import RUNS
from migrator.sources.store_documents.schedules import SCHEDULES
from migrator.sources.store_documents.summaries import SUMMARIES

_BEFORE_GRAPHS = (SCHEDULES, TRIGGERS, RUNS, EXECUTION_LOGS, IMPACT_SNAPSHOTS)
_AFTER_GRAPHS = (POLICY_RUNS, POLICY_JOBS, SUMMARIES, WORKERS, LOCKS, AUDIT, HANDLERS)

MAPPING = SourceMapping(
    name=names.NAME,
    collections=(*_BEFORE_GRAPHS, *_AFTER_GRAPHS),
    documents="documents of schema version 1: modelled on public documents",
)

COLLECTIONS = (
    *(collection_of(MAPPING, one) for one in _BEFORE_GRAPHS),
    graph.JOBS,
    graph.EVENTS,
    *(collection_of(MAPPING, one) for one in _AFTER_GRAPHS),
)
"""In load order."""
