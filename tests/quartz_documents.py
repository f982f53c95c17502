"""Documents of quartz-mongodb 2, modelled on its source code: each kind of trigger, data of jobs, calendars.

The serialized objects are what Java 17 and Quartz 2.3.2 wrote.
"""

import base64
from copy import deepcopy
from typing import Any, Final

from bson.int64 import Int64
from bson.objectid import ObjectId

from tests.modelled_documents import NEXT_YEAR, NOON, object_id

Documents = dict[str, list[dict[str, Any]]]

JOB: Final = ObjectId("6b005affa4375445fe12232e")
OTHER: Final = object_id(1)
CLASSES: Final[dict[str, list[str]]] = {
    "com.example.Report": [],
    "com.example.Alone": ["DisallowConcurrentExecution", "PersistJobDataAfterExecution"],
}
OPTIONS: Final[dict[str, Any]] = {"scheduler_name": "main", "job_classes": CLASSES}
MAP: Final = (
    "rO0ABXNyABFqYXZhLnV0aWwuSGFzaE1hcAUH2sHDFmDRAwACRgAKbG9hZEZhY3RvckkACXRocmVzaG9sZHhwP0AAAAAAAAx3CAAAABAAAAACdAACdG90"
    "AA1hQGV4YW1wbGUuY29tdAABbnNyABFqYXZhLmxhbmcuSW50ZWdlchLioKT3gYc4AgABSQAFdmFsdWV4cgAQamF2YS5sYW5nLk51bWJlcoaslR0L"
    "lOCLAgAAeHAAAAABeA=="
)
"""A HashMap: ``to`` is ``a@example.com``, ``n`` is 1."""
NO_MONDAYS: Final = base64.b64decode(
    "rO0ABXNyACdvcmcucXVhcnR6LmltcGwuY2FsZW5kYXIuV2Vla2x5Q2FsZW5kYXKhgILMnyitHgIAAloACmV4Y2x1ZGVBbGxbAAtleGNsdWRlRGF5"
    "c3QAAltaeHIAJW9yZy5xdWFydHouaW1wbC5jYWxlbmRhci5CYXNlQ2FsZW5kYXIrHPGG498Y7wIAA0wADGJhc2VDYWxlbmRhcnQAFUxvcmcvcXVh"
    "cnR6L0NhbGVuZGFyO0wAC2Rlc2NyaXB0aW9udAASTGphdmEvbGFuZy9TdHJpbmc7TAAIdGltZVpvbmV0ABRMamF2YS91dGlsL1RpbWVab25lO3hw"
    "cHBwAHVyAAJbWlePIDkUuF3iAgAAeHAAAAAIAAEBAAAAAAE="
)
"""A WeeklyCalendar that excludes Mondays beside its weekends."""
IMPL: Final = "org.quartz.impl.triggers."


def job(key: ObjectId, name: str, job_class: str = "com.example.Report", **more: Any) -> dict[str, Any]:  # noqa: ANN401 - members of a document
    """Return a job as quartz-mongodb writes it."""
    return {
        "_id": key,
        "keyName": name,
        "keyGroup": "DEFAULT",
        "jobDescription": None,
        "jobClass": job_class,
        "durability": True,
        "requestsRecovery": False,
    } | more


def trigger(number: int, kind: str, **more: Any) -> dict[str, Any]:  # noqa: ANN401 - as above
    """Return a trigger as quartz-mongodb writes it; ``kind``: the class without ``TriggerImpl``."""
    return {
        "_id": object_id(number),
        "state": "waiting",
        "calendarName": None,
        "class": f"{IMPL}{kind}TriggerImpl",
        "description": None,
        "endTime": None,
        "finalFireTime": None,
        "fireInstanceId": None,
        "jobId": JOB,
        "keyName": f"trigger-{number}",
        "keyGroup": "DEFAULT",
        "misfireInstruction": 0,
        "nextFireTime": NEXT_YEAR,
        "previousFireTime": None,
        "priority": 5,
        "startTime": NOON,
    } | more


def clock(hour: int, minute: int = 0) -> dict[str, int]:
    """Return a time of day."""
    return {"hour": hour, "minute": minute, "second": 0}


def quartz() -> Documents:
    """Return documents of every kind."""
    daily = {"repeatIntervalUnit": "MINUTE", "repeatInterval": 90, "timesTriggered": 0} | {
        "startTimeOfDay": clock(8),
        "endTimeOfDay": clock(17, 30),
        "daysOfWeek": [2, 3, 4, 5, 6],
    }
    return deepcopy(
        {
            "quartz_jobs": [
                job(JOB, "report", jobDescription="nightly", jobData=MAP),
                job(
                    OTHER, "alone", "com.example.Alone", durability=False, requestsRecovery=True, keyGroup="odd, group"
                ),
            ],
            "quartz_triggers": [
                trigger(10, "Cron", cronExpression="0 30 2 ? * 2-6", timezone="Europe/Vienna"),
                trigger(11, "Cron", cronExpression="0 0 12 L * ?", timezone="America/New_York", state="paused"),
                trigger(12, "Simple", repeatCount=-1, repeatInterval=Int64(90_000), timesTriggered=7, priority=9),
                trigger(13, "Simple", repeatCount=4, repeatInterval=Int64(60_000), timesTriggered=1, state="blocked"),
                trigger(14, "Simple", repeatCount=0, repeatInterval=Int64(0), timesTriggered=0, jobId=OTHER),
                trigger(15, "CalendarInterval", repeatIntervalUnit="MONTH", repeatInterval=3, timesTriggered=2),
                trigger(16, "DailyTimeInterval", **daily),
                trigger(17, "Cron", cronExpression="0 0 9 ? * MON-FRI", timezone="UTC", calendarName="no mondays")
                | {
                    "endTime": NEXT_YEAR.replace(year=2029),
                    "previousFireTime": NOON,
                    "jobData": MAP,
                    "keyGroup": "paused",
                },
                trigger(18, "Simple", repeatCount=0, repeatInterval=Int64(0), timesTriggered=1, state="complete")
                | {"nextFireTime": None, "previousFireTime": NOON, "misfireInstruction": -1, "state": "error"},
            ],
            "quartz_calendars": [{"_id": object_id(30), "name": "no mondays", "serializedObject": NO_MONDAYS}],
            "quartz_paused_trigger_groups": [{"_id": object_id(31), "keyGroup": "paused"}],
            "quartz_paused_job_groups": [{"_id": object_id(32), "keyGroup": "odd, group"}],
            "quartz_locks": [
                {
                    "_id": object_id(33),
                    "type": "t",
                    "keyGroup": "DEFAULT",
                    "keyName": "trigger-13",
                    "instanceId": "host-1",
                }
                | {"time": NOON}
            ],
            "quartz_schedulers": [
                {"_id": object_id(20), "schedulerName": "main", "instanceId": "host-1"}
                | {"checkinInterval": Int64(7_500), "lastCheckinTime": Int64(1_795_348_800_000)}
            ],
        }
    )
