"""The source ``crawler``: a scheduler on its way from cron to intervals, two tables of PostgreSQL.

Rows of the base table and of every later migration are read. ``docs/sources-other.md`` says where each column goes.
"""

from migrator.sources.crawler import executions, jobs, names
from migrator.sources.profile import POSTGRESQL, Profile

PROFILE = Profile(
    name=names.NAME,
    version=1,
    servers=(POSTGRESQL,),
    documents="modelled: tables made from the migrations of north-cloud",
    collections=(jobs.COLLECTION, executions.COLLECTION),
)
