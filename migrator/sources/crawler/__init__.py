"""The source ``crawler``: a scheduler on its way from cron to intervals, two tables of PostgreSQL.

Rows of the base table and of every later migration are read. ``docs/sources-other.md`` says where each column goes.
"""

from migrator.sources.crawler import names
from migrator.sources.crawler.executions import EXECUTIONS
from migrator.sources.crawler.jobs import JOBS
from migrator.sources.mapping.codec import profile_of_mapping
from migrator.sources.mapping.language import SourceMapping
from migrator.sources.profile import POSTGRESQL

MAPPING = SourceMapping(
    name=names.NAME,
    collections=(JOBS, EXECUTIONS),
    documents="modelled: tables made from the migrations of north-cloud",
)
PROFILE = profile_of_mapping(MAPPING, version=1, servers=(POSTGRESQL,))
