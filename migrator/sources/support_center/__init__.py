"""The source ``support-center``: a move from in-process APScheduler jobs to five tables of PostgreSQL.

``docs/sources-other.md`` says where each column goes. The table of job types makes no rows: each job inherits its type.
"""

from migrator.sources.mapping.codec import profile_of_mapping
from migrator.sources.mapping.language import SourceMapping
from migrator.sources.profile import POSTGRESQL
from migrator.sources.support_center import names
from migrator.sources.support_center.executions import EXECUTIONS, INSTANCES
from migrator.sources.support_center.handlers import TASK_FUNCTIONS
from migrator.sources.support_center.jobs import JOBS

MAPPING = SourceMapping(
    name=names.NAME,
    collections=(TASK_FUNCTIONS, JOBS, EXECUTIONS, INSTANCES),
    documents="modelled: tables made from the migrations of support-center",
    left_out={
        names.JOB_TYPES: "its names are the kinds of triggers; the titles and descriptions of the types have no column"
    },
)
PROFILE = profile_of_mapping(MAPPING, version=1, servers=(POSTGRESQL,))
