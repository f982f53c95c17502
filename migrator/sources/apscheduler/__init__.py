"""APScheduler 3: a scheduler for Python that keeps its jobs as pickles.

A document of its ``MongoDBJobStore`` and a row of its ``SQLAlchemyJobStore`` hold the same: an id, the next run and a
pickle.

A pickle is read without being unpickled: nothing of it is imported and nothing is called.
``docs/sources-apscheduler.md`` says where each member goes, and what is refused.
"""

from migrator.records import Schedule, Trigger
from migrator.sources.apscheduler import jobs, native_jobs
from migrator.sources.apscheduler.aggregates import MEASURES
from migrator.sources.profile import MONGODB, POSTGRESQL, Collection, NextFire, Profile

PROFILE = Profile(
    name=jobs.NAME,
    version=1,
    servers=(MONGODB, POSTGRESQL),
    slots="moves",
    read_only="a job is a pickle, which the tool reads as plain data and never writes",
    collections=(
        Collection(
            name=jobs.JOBS,
            table="apscheduler_jobs",
            tables=(Schedule, Trigger),
            decode=jobs.decode,
            encode=jobs.encode,
            measures=MEASURES,
            next_fire=NextFire(field="next_run_time", seconds=True),
            native=native_jobs.reader,
            known=frozenset({"_id", "next_run_time", "job_state"}),
        ),
    ),
    signs={jobs.JOBS: ("next_run_time", "job_state")},
    documents="3.6.3, 3.10.4 (pytz) and 3.11.3 (zoneinfo), pickle protocols 0 to 5; SQLAlchemyJobStore",
)
"""The profile, with the library's own name of the collection; ``[source] collections`` maps it to a deployment's."""
