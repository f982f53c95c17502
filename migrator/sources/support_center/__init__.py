"""The source ``support-center``: a move from in-process APScheduler jobs to five tables of PostgreSQL.

``docs/sources-other.md`` says where each column goes. The table of job types makes no rows: each job inherits its type.
"""

from migrator.sources.profile import POSTGRESQL, Profile
from migrator.sources.support_center import executions, handlers, jobs, names

PROFILE = Profile(
    name=names.NAME,
    version=1,
    servers=(POSTGRESQL,),
    documents="modelled: tables made from the migrations of support-center",
    collections=(handlers.COLLECTION, jobs.COLLECTION, executions.COLLECTION, executions.INSTANCES),
)
