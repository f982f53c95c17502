"""Documents of ShedLock, Quartz, Hangfire and JobRunr, modelled on public documents and source code.

No library wrote them. Field names, types and spellings are those of the sources that are named at each.
"""

from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

from bson.binary import Binary
from bson.int64 import Int64
from bson.objectid import ObjectId

Document = dict[str, Any]

NOON: Final = datetime(2026, 11, 22, 12)  # noqa: DTZ001 - as BSON dates are read
NEXT_YEAR: Final = NOON.replace(year=2027)
_JOB: Final = ObjectId("6b005affa4375445fe12232e")
_RECURRING: Final = '{"t":"Demo.Reports, Demo","m":"Send","p":["System.String"],"a":["\\u0022nightly\\u0022"]}'


def object_id(number: int) -> ObjectId:
    """Return the id of a modelled document."""
    return ObjectId(f"6b005aff{number:016x}")


def uuid(number: int) -> Binary:
    """Return a UUID as the Java and Python drivers store it (subtype 4)."""
    return Binary.from_uuid(UUID(int=number << 64 | 1 << 63 | 4 << 76 | number))


def _lock(name: str, until: datetime, **more: Any) -> Document:  # noqa: ANN401 - members of a document
    return {"_id": name, "lockUntil": until, "lockedAt": NOON, "lockedBy": "host-1"} | more


SHEDLOCK: Final[dict[str, list[Document]]] = {
    "shedLock": [_lock("nightly-report", NEXT_YEAR), _lock("expired", NOON - timedelta(days=400))],
}
"""net.javacrumbs.shedlock, ``MongoLockProvider.java``."""


def _trigger(number: int, **more: Any) -> Document:  # noqa: ANN401 - members of a document
    return {
        "_id": object_id(number),
        "state": "waiting",
        "calendarName": None,
        "class": "org.quartz.impl.triggers.CronTriggerImpl",
        "description": None,
        "endTime": None,
        "finalFireTime": None,
        "fireInstanceId": None,
        "jobId": _JOB,
        "keyGroup": "DEFAULT",
        "keyName": f"trigger-{number}",
        "misfireInstruction": 0,
        "nextFireTime": NEXT_YEAR,
        "previousFireTime": None,
        "priority": 5,
        "startTime": NOON,
    } | more


QUARTZ: Final[dict[str, list[Document]]] = {
    "quartz_jobs": [
        {"_id": _JOB, "keyName": "report", "keyGroup": "DEFAULT", "jobDescription": "nightly", "durability": True}
        | {
            "jobClass": "com.example.Report",
            "requestsRecovery": False,
            "jobDataPlain": {"to": "a@example.com", "n": 1},
        },
        {"_id": object_id(1), "keyName": "legacy", "keyGroup": "old", "jobClass": "com.example.Legacy"}
        | {"durability": "true", "jobData": "rO0ABXNyABVvcmcucXVhcnR6LkpvYkRhdGFNYXA="},
    ],
    "quartz_triggers": [
        _trigger(10, cronExpression="0 30 2 ? * 2-6", timezone="Europe/Vienna"),
        _trigger(11, cronExpression="0 0 12 L * ?", timezone="America/New_York", state="paused"),
        _trigger(12, cronExpression="not a line", timezone="UTC"),
        _trigger(13, repeatCount=-1, repeatInterval=Int64(90_000), timesTriggered=7),
        _trigger(14, repeatCount=4, repeatInterval=Int64(60_000), timesTriggered=1, state="blocked"),
        _trigger(15, repeatCount=0, repeatInterval=Int64(0), timesTriggered=0),
        _trigger(16, repeatInterval=3, repeatIntervalUnit="MONTH", timesTriggered=2),
        _trigger(17, cronExpression="0 0 9 ? * MON-FRI", timezone="UTC", jobId=object_id(99)),
    ],
    "quartz_schedulers": [
        {"_id": object_id(20), "schedulerName": "main", "instanceId": "host-1", "checkinInterval": Int64(7_500)}
        | {"lastCheckinTime": Int64(1_795_348_800_000)},
    ],
}
"""com.novemberain.quartz.mongodb, ``TriggerConverter.java``, ``JobConverter.java``."""


def _hash(number: int, name: str, **fields: str) -> Document:
    return {"_id": object_id(number), "_t": ["BaseJobDto", "ExpiringJobDto", "KeyJobDto", "HashDto"]} | {
        "ExpireAt": None,
        "Key": f"recurring-job:{name}",
        "Fields": {"Queue": "default", "Cron": "30 2 * * 1-5", "TimeZoneId": "Europe/Vienna", "Job": _RECURRING}
        | {"CreatedAt": "1774834200000", "NextExecution": "1795397400000", "V": "2"}
        | fields,
    }


def _background(number: int, state: str, **more: Any) -> Document:  # noqa: ANN401 - members of a document
    return {
        "_id": object_id(number),
        "_t": ["BaseJobDto", "ExpiringJobDto", "JobDto"],
        "StateName": state,
        "InvocationData": '{"t":"Demo.Mail, Demo","m":"Send","p":["System.Int32"],"a":["7"]}',
        "Arguments": '["7"]',
        "Parameters": {"CurrentCulture": '"en-US"'},
        "StateHistory": [{"Name": state, "Reason": None, "CreatedAt": NOON, "Data": {"EnqueuedAt": "1795348800000"}}],
        "CreatedAt": NOON,
        "Queue": "default",
        "FetchedAt": None,
        "ExpireAt": None,
    } | more


HANGFIRE: Final[dict[str, list[Document]]] = {
    "hangfire.jobGraph": [
        _hash(30, "nightly", LastExecution="1795311000000", LastJobId="6b005afe0000000000000028"),
        _hash(31, "windows", TimeZoneId="Central Europe Standard Time", Cron="*/10 * * * * *"),
        _hash(32, "old", CreatedAt="2026-11-02T08:00:00.1234567Z", NextExecution="2026-11-23T01:30:00.0000000Z"),
        _hash(33, "stopped", Cron="never"),
        _hash(34, "never again", NextExecution=""),
        _background(40, "Succeeded"),
        _background(41, "Scheduled"),
        _background(42, "Lost"),
        {"_id": object_id(50), "_t": ["BaseJobDto", "ExpiringJobDto", "KeyJobDto", "SetDto"], "Key": "set<nightly>"}
        | {"SetType": "recurring-jobs", "Value": "nightly", "Score": 1795397400.0, "ExpireAt": None},
        {"_id": object_id(51), "_t": ["BaseJobDto", "ExpiringJobDto", "KeyJobDto", "CounterDto"]}
        | {"Key": "stats:succeeded", "Value": Int64(12), "ExpireAt": None},
    ],
    "hangfire.server": [
        {
            "_id": "host-1:4711",
            "WorkerCount": 20,
            "Queues": ["default", "mail"],
            "StartedAt": NOON,
            "LastHeartbeat": NOON,
        },
    ],
    "hangfire.locks": [
        {"_id": object_id(60), "Resource": "Hangfire:recurring-jobs:lock", "ExpireAt": NEXT_YEAR},
        {"_id": object_id(61), "Resource": "Hangfire:expired", "ExpireAt": NOON - timedelta(days=400)},
    ],
}
"""Hangfire.Mongo, ``Dto``, schema 25; Hangfire, ``RecurringJobEntity.cs``."""


def _job(number: int, state: str, **more: Any) -> Document:  # noqa: ANN401 - members of a document
    return {
        "_id": uuid(number),
        "version": 3,
        "jobAsJson": f'{{"version":3,"jobSignature":"com.example.Mail.send(int)","id":"{number}","jobHistory":[]}}',
        "jobSignature": "com.example.Mail.send(int)",
        "state": state,
        "createdAt": Int64(1_795_348_800_123_456),
        "updatedAt": Int64(1_795_348_801_000_000),
    } | more


JOBRUNR: Final[dict[str, list[Document]]] = {
    "recurring_jobs": [
        {"_id": "nightly", "version": 1, "jobAsJson": '{"id":"nightly","scheduleExpression":"30 2 * * *"}'}
        | {"createdAt": Int64(1_795_348_800_000)},
    ],
    "jobs": [
        _job(1, "SUCCEEDED", recurringJobId="nightly"),
        _job(2, "SCHEDULED", scheduledAt=Int64(1_795_397_400_000_000)),
        _job(3, "PROCESSING", jobAsJson='{ "spaced": true }'),
        _job(4, "FAILED", jobAsJson='{"load":NaN}', recurringJobId="deleted"),
        _job(5, "AWAITING"),
        _job(6, "ENQUEUED", _id=Binary(UUID(int=6).bytes, 3)),
        _job(7, "LOST"),
    ],
    "background_job_servers": [
        {"_id": uuid(9), "name": "host-1", "workerPoolSize": 16, "pollIntervalInSeconds": 15}
        | {"deleteSucceededJobsAfter": "PT36H", "permanentlyDeleteDeletedJobsAfter": "PT72H"}
        | {"firstHeartbeat": NOON, "lastHeartbeat": NOON, "running": True, "systemTotalMemory": Int64(2**34)}
        | {"processCpuLoad": 0.25},
    ],
}
"""org.jobrunr, ``JobDocumentMapper.java``, ``BackgroundJobServerStatusDocumentMapper.java``."""

MODELLED: Final = {
    "shedlock": SHEDLOCK,
    "quartz": QUARTZ,
    "hangfire": HANGFIRE,
    "hangfire-jobs": {"hangfire.jobGraph": HANGFIRE["hangfire.jobGraph"]},
    "jobrunr": JOBRUNR,
}
"""Source to its documents by collection."""
