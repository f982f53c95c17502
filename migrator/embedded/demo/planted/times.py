"""Times in every spelling that is found, and in some that cannot be."""

from collections.abc import Iterator
from datetime import UTC, datetime

from bson.datetime_ms import DatetimeMS

from migrator.embedded.demo.planted.item import Nursery, Planted, loaded, quarantined

_FAR = DatetimeMS(8_640_000_000_000_000)
"""The last instant of a JavaScript date, in the year 275760."""


def times(nursery: Nursery) -> Iterator[Planted]:
    """Yield the documents with odd times."""
    yield from _readable(nursery)
    yield from _unreadable(nursery)


def _readable(nursery: Nursery) -> Iterator[Planted]:
    for collection, field in (
        ("runs", "createdAt"),
        ("runs", "finishedAt"),
        ("schedules", "updatedAt"),
        ("audit", "occurredAt"),
    ):
        document = nursery.fresh(collection)
        document[field] = datetime.fromisoformat(document[field]).astimezone(UTC).replace(tzinfo=None, microsecond=0)
        yield loaded("date-type", collection, document)
    for collection, field in (("runs", "createdAt"), ("graph_jobs", "createdAt"), ("policy_runs", "queuedAt")):
        document = nursery.fresh(collection)
        document[field] = document[field].replace("+00:00", "Z")
        # The payload of a graph job keeps the document as it is.
        yield loaded("date-zulu", collection, document, residue=collection != "graph_jobs")
    run = nursery.fresh("runs")
    run["createdAt"] = "2025-05-01T02:00:00.25+02:00"
    yield loaded("date-offset", "runs", run)
    for collection, field in (("runs", "createdAt"), ("policy_jobs", "updatedAt"), ("audit", "occurredAt")):
        document = nursery.fresh(collection)
        document[field] = document[field][:19] + ".9999999+00:00"
        yield loaded("seven-digits", collection, document)
    run = nursery.fresh("runs")
    run["archivedAt"] = _FAR
    yield loaded("far-date-elsewhere", "runs", run)


def _unreadable(nursery: Nursery) -> Iterator[Planted]:
    run = nursery.fresh("runs")
    run["createdAt"] = "2025-05-01T02:00:00"
    yield quarantined("date-naive", "runs", run, "bad-date")
    run = nursery.fresh("runs")
    run["finishedAt"] = _FAR
    yield quarantined("date-undecodable", "runs", run, "bad-date")
    run = nursery.fresh("runs")
    run["createdAt"] = "2025-02-30T02:00:00+00:00"
    yield quarantined("date-impossible", "runs", run, "bad-date")
    schedule = nursery.fresh("schedules")
    schedule["updatedAt"] = "yesterday"
    yield quarantined("date-words", "schedules", schedule, "bad-date")
