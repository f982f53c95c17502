"""The profile ``stellaops``, modelled on what is publicly documented of that scheduler's data.

Our own store for MongoDB keeps its rows in the same documents, so their mapping is the store's
(``sources.store_documents``). ``docs/sources-stellaops.md`` shows the canonical document of every collection, and what
is tolerated beside it.
"""

from migrator.sources.profile import Profile
from migrator.sources.store_documents import COLLECTIONS, MAPPING, names

PROFILE = Profile(
    name=MAPPING.name,
    version=1,
    documents=MAPPING.documents,
    kept_by_store=True,
    slots="runs",
    collections=COLLECTIONS,
    signs={
        names.SCHEDULES: ("tenantId", "selection"),
        names.RUNS: ("tenantId", "trigger", "state"),
        names.IMPACT_SNAPSHOTS: ("tenantId", "selector", "usageOnly"),
        names.POLICY_RUNS: ("tenantId", "policyId"),
        names.POLICY_JOBS: ("tenantId", "policyId"),
        names.GRAPH_JOBS: ("tenantId", "sbomId"),
        names.RUN_SUMMARIES: ("tenantId", "scheduleId", "counters"),
    },
)
