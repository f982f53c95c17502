"""Load the schedules of a database with celerybeat-mongo, and send what is due: MONGO_URI DATABASE < instants.json.

Prints for each document what the library makes of it. It changes the documents: every last run is moved years back.
"""

import json
import sys
from datetime import UTC, datetime, timedelta
from typing import Any

from celery import Celery
from celery.schedules import crontab
from mongoengine.errors import ValidationError
from pymongo import MongoClient

uri, name = sys.argv[1:]
instants = [datetime.fromisoformat(one) for one in json.load(sys.stdin)]
app = Celery("demo", broker="memory://")
app.conf.update(timezone="Europe/Vienna", mongodb_scheduler_db=name, mongodb_scheduler_url=uri)
app.set_current()

from celerybeatmongo.schedulers import MongoScheduler  # noqa: E402 - it asks the application for its collection

MANY = 2_000
"""Ticks, each of which sends one task: more than documents."""


class Noting(MongoScheduler):  # type: ignore[misc] # it has no types
    """Beat, which notes what it has sent."""

    def __init__(self, *given: Any, **named: Any) -> None:  # noqa: ANN401 - as the library takes them
        self.sent: set[str] = set()
        super().__init__(*given, **named)

    def apply_async(self, entry: Any, *given: Any, **named: Any) -> Any:  # noqa: ANN401 - as above
        result = super().apply_async(entry, *given, **named)
        self.sent.add(str(entry._task.id))
        return result


def fired(entry: Any, first: datetime) -> list[str]:  # noqa: ANN401 - as above
    """Return the next fires after an instant, as if the entry had run at each."""
    fires = []
    for _ in range(5):
        entry.schedule.nowfun = lambda at=first: at
        fires.append(first + entry.schedule.remaining_estimate(first))
        first = fires[-1] + timedelta(milliseconds=5 if isinstance(entry.schedule, crontab) else 0)
    entry.schedule.nowfun = None
    return [one.isoformat() for one in fires]


def refusal(task: Any) -> str:  # noqa: ANN401 - as above
    """Return why the library would not save a document; it logs that, and forgets that the task has run."""
    try:
        task.validate()
    except ValidationError as error:
        return str(error)
    return ""


with MongoClient[dict[str, Any]](uri, tz_aware=True) as client:
    client[name]["schedules"].update_many({}, {"$set": {"last_run_at": datetime(1990, 1, 1, tzinfo=UTC)}})
scheduler = Noting(app=app)
entries = scheduler.get_from_database()
report: dict[str, dict[str, Any]] = {
    str(entry._task.id): {"fires": [fired(entry, first) for first in instants], "next": None}
    for entry in entries.values()
}
for _ in range(MANY):
    if scheduler.tick() > 0:
        break
scheduler.sync()
for entry in entries.values():
    key = str(entry._task.id)
    report[key]["ran"] = key in scheduler.sent
    report[key]["refused"] = refusal(entry._task)
print(json.dumps(report))  # noqa: T201 - its result
