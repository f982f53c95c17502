"""The source ``orchestrator``: four tables of PostgreSQL made by Prisma.

``docs/sources-other.md`` says where each column goes.
"""

from migrator.sources.orchestrator import events, executions, jobs, names
from migrator.sources.profile import POSTGRESQL, Profile

PROFILE = Profile(
    name=names.NAME,
    version=1,
    servers=(POSTGRESQL,),
    documents="modelled: tables made from the Prisma schema of agentic-sdlc",
    collections=(jobs.COLLECTION, events.COLLECTION, executions.COLLECTION, executions.LOGS),
)
