"""What holds for every source whose documents are at hand (``migrator.testing.sources``)."""

from typing import Any

import bson

from migrator.testing.sources import Documents, read_documents, read_hostile, source_tests
from tests import stellaops_documents
from tests.apscheduler_documents import FILES
from tests.modelled_documents import MODELLED
from tests.real_documents import DATA, real_documents


def files(collection: str, *names: str) -> Documents:
    """Return the documents of several files, as those of one collection."""
    return encoded({collection: [document for name in names for document in real_documents(name)]})


def encoded(documents: dict[str, list[dict[str, Any]]]) -> Documents:
    return {name: [bson.encode(one) for one in some] for name, some in documents.items()}


AGENDA = {
    **files("agendaJobs", *(f"{folder}/agendaJobs" for folder in ("agenda-4", "agenda-5", "agenda-6", "hokify-6"))),
    **files("pulseJobs", "pulse-1/pulseJobs"),
    **files("agenda_logs", "agenda-6/agenda_logs"),
}

TestStellaops = source_tests(
    "stellaops",
    stellaops_documents.CANONICAL,
    read_hostile(DATA / "stellaops" / "hostile.jsonl"),
    context=stellaops_documents.CONTEXT,
)
TestAgenda = source_tests("agenda", AGENDA, read_hostile(DATA / "agenda" / "hostile.jsonl"), ordered=True)
TestApscheduler = source_tests(
    "apscheduler",
    files("jobs", *(f"apscheduler/{name}" for name in FILES)),
    quarantined=[("refused-import", "job_state")],
)
TestCelerybeat = source_tests("celerybeat", files("schedules", "celerybeat-mongo/schedules", "celerybeat-mongo/ticked"))
TestCeleryResults = source_tests(
    "celery-results", read_documents(DATA / "celery-results"), quarantined=[("missing-field", "date_done")]
)
TestMongodbQueue = source_tests("mongodb-queue", files("queue", "mongodb-queue/queue", "mongodb-queue/dead"))
TestMongodbCron = source_tests("mongodb-cron", read_documents(DATA / "mongodb-cron"))
TestShedlock = source_tests("shedlock", encoded(MODELLED["shedlock"]))
TestQuartz = source_tests(
    "quartz", encoded(MODELLED["quartz"]), quarantined=[("unknown-value", "cronExpression"), ("unknown-value", "")]
)
TestHangfire = source_tests("hangfire", encoded(MODELLED["hangfire"]))
TestHangfireJobs = source_tests(
    "hangfire-jobs", encoded(MODELLED["hangfire-jobs"]), quarantined=[("unknown-value", "StateName")]
)
TestJobrunr = source_tests("jobrunr", encoded(MODELLED["jobrunr"]), quarantined=[("unknown-value", "state")])
