"""The source ``orchestrator``: four tables of PostgreSQL made by Prisma.

``docs/sources-other.md`` says where each column goes.
"""

from migrator.sources.mapping.codec import profile_of_mapping
from migrator.sources.mapping.language import SourceMapping
from migrator.sources.orchestrator import names
from migrator.sources.orchestrator.events import EVENT_HANDLERS
from migrator.sources.orchestrator.executions import EXECUTIONS, LOGS
from migrator.sources.orchestrator.jobs import JOBS
from migrator.sources.profile import POSTGRESQL

MAPPING = SourceMapping(
    name=names.NAME,
    collections=(JOBS, EVENT_HANDLERS, EXECUTIONS, LOGS),
    documents="modelled: tables made from the Prisma schema of agentic-sdlc",
)
PROFILE = profile_of_mapping(MAPPING, version=1, servers=(POSTGRESQL,))
