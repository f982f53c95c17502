"""Documents of APScheduler: those that the library wrote, and new ones around any pickle."""

import pickle
import random
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import bson
import msgspec
from apscheduler.triggers.combining import OrTrigger
from apscheduler.triggers.cron import CronTrigger
from apscheduler.triggers.date import DateTrigger
from apscheduler.triggers.interval import IntervalTrigger
from bson import json_util
from bson.binary import Binary

from migrator.pipeline.transform import decode_document, rebuild
from migrator.records import EMPTY, Schedule, Trigger
from migrator.sources.apscheduler import PROFILE
from migrator.sources.profile import Context, Document, Note
from migrator.values import document as documents
from migrator.values.canonical import same
from tests.agenda_documents import CONTEXT, FOLDER

FILES = (
    "3.6.3",
    "3.10.4-pytz-protocol-0",
    "3.10.4-pytz-protocol-2",
    "3.11.3",
    "3.11.3-protocol-1",
    "3.11.3-protocol-3",
    "given",
)
COLLECTION = PROFILE.by_name()["jobs"]


def real(name: str) -> dict[str, Document]:
    """Return the documents of a file, as decoding BSON gives them, by ``_id``."""
    options = json_util.JSONOptions(json_mode=json_util.JSONMode.CANONICAL, tz_aware=False)
    lines = (FOLDER / "apscheduler" / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    found = [documents.decode(bson.encode(json_util.loads(line, json_options=options))) for line in lines]
    return {one["_id"]: one for one in found}


def document(pickled: bytes, key: str = "one", next_run_time: float | None = 1795397400.0) -> Document:
    """Return the document of a pickle."""
    return {"_id": key, "next_run_time": next_run_time, "job_state": Binary(pickled, 0)}


class Trip(msgspec.Struct):
    """A document there and back."""

    schedule: Schedule
    trigger: Trigger | None
    notes: tuple[Note, ...]
    is_clean: bool

    @property
    def kinds(self) -> list[str]:
        return [note.kind for note in self.notes]


def travel(found: Document, context: Context = CONTEXT) -> Trip:
    """Decode and encode a document as the copy does; what comes back is what was read, byte for byte if it is clean."""
    raw = bson.encode(found)
    prepared = decode_document(COLLECTION, context, raw)
    prepared.serialize()
    rows, left = tuple(row.record for row in prepared.serialized), prepared.remainder
    rebuilt = rebuild(COLLECTION, rows)
    assert same(rebuilt, prepared.content)
    assert left != EMPTY or bson.encode(rebuilt) == raw
    schedule, trigger = rows[0], rows[1] if len(rows) > 1 else None
    assert isinstance(schedule, Schedule)
    assert trigger is None or isinstance(trigger, Trigger)
    return Trip(schedule, trigger, prepared.notes, left == EMPTY)


def state(**members: Any) -> dict[str, Any]:  # noqa: ANN401 - members of any type
    """Return the state of a job, as the library pickles it."""
    return {
        "version": 1,
        "id": "one",
        "func": "acme_jobs:report",
        "trigger": CronTrigger(hour=5, timezone=UTC),
        "executor": "default",
        "args": (),
        "kwargs": {},
        "name": "report",
        "misfire_grace_time": 1,
        "coalesce": True,
        "max_instances": 1,
        "next_run_time": datetime.fromtimestamp(1795397400, UTC),
    } | members


class Jobs:
    """Jobs from a seed: some share all but a few values."""

    def __init__(self, stream: random.Random) -> None:
        self._stream = stream

    def alike(self, count: int) -> list[bytes]:
        """Return documents of jobs that have everything in common but their ids, names, arguments and next runs."""
        seed = self._stream.random()
        return [self._one(random.Random(seed), number) for number in range(count)]

    def _one(self, common: random.Random, number: int) -> bytes:
        self._common = common
        zone = common.choice(
            (UTC, *map(ZoneInfo, ("Europe/Vienna", "Australia/Lord_Howe", "America/New_York", "Asia/Kolkata")))
        )
        zone = common.choice((zone, zone, zone, timezone(timedelta(hours=5, minutes=30))))
        trigger = common.choice(
            (
                CronTrigger(hour=common.randrange(24), timezone=common.choice(("UTC", "Europe/Vienna"))),
                IntervalTrigger(
                    minutes=common.randrange(1, 50), start_date=datetime(2026, 1, 1, tzinfo=UTC), timezone="UTC"
                ),
                OrTrigger([CronTrigger(minute=5, timezone="UTC"), CronTrigger(day="last", timezone="UTC")]),
                CronTrigger(minute="*/7", timezone="UTC", jitter=common.choice((None, 5))),
                DateTrigger(self._moment(), timezone=zone),
                IntervalTrigger(minutes=5, start_date=self._moment(), timezone=zone),
                CronTrigger(hour=5, end_date=self._moment(), timezone=zone),
            )
        )
        due = None if common.random() < 0.1 else self._moment().astimezone(zone)
        if isinstance(trigger, DateTrigger) and common.random() < 0.8:
            due = trigger.run_date
        key = f"job-{number}-{self._stream.randrange(10**6)}"
        members = state(
            id=key if self._stream.random() < 0.95 else "other",
            trigger=trigger,
            func=common.choice(("acme_jobs:report", "acme_jobs:clean")),
            args=tuple(self._value(2) for _ in range(common.randrange(4))),
            kwargs={common.choice(NAMES): self._value(2) for _ in range(common.randrange(4))},
            name=common.choice((self._text(), "report", key)),
            next_run_time=due,
            misfire_grace_time=common.choice((None, 1, 30)),
        )
        if common.random() < 0.1:
            members["args"] = (members["id"], members["name"], members["kwargs"])
        protocol = common.choice((5, 5, 5, 5, 4, 4, 4, 4, 3))
        seconds = None if due is None else due.timestamp()
        if seconds is not None and self._stream.random() < 0.03:
            seconds += self._stream.choice((1, -3600, 0.000001))
        return documents.encode(document(pickle.dumps(members, protocol), key, seconds))

    def _moment(self) -> datetime:
        """Return an instant; often one near the end of summer time."""
        base = self._stream.choice((datetime(2026, 10, 25, 1, tzinfo=UTC), datetime(2027, 3, 28, 1, tzinfo=UTC)))
        if self._stream.random() < 0.5:
            base = datetime(2026, self._stream.randrange(1, 13), 5, tzinfo=UTC)
        return base + timedelta(
            seconds=self._stream.randrange(-9_000, 9_000), microseconds=self._stream.choice((0, 1, 250_000, 999_999))
        )

    def _text(self) -> str:
        text = "user-" if self._stream.random() < 0.7 else self._stream.choice(TEXTS)
        return text + str(self._stream.randrange(1_000))

    def _value(self, depth: int) -> Any:  # noqa: ANN401, PLR0911 - any value of a pickle; one line for each kind
        """Return a value whose kind is common to the jobs."""
        match self._common.randrange(13 if depth else 9):
            case 0 | 1 | 2:
                return self._text()
            case 3 | 4:
                return self._stream.choice(NUMBERS)
            case 5:
                return self._common.choice((None, True, False))
            case 6:
                return self._stream.choice((1.5, -0.0, 1e22, 0.1)) if self._common.random() < 0.5 else 2.5
            case 7:
                return self._common.choice((b"bytes", date(2026, 1, 1), Decimal("1.5"), timedelta(1), {1}, "x" * 300))
            case 8:
                return self._common.choice((datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 1)))  # noqa: DTZ001 - as given
            case 9 | 10:
                return [self._value(depth - 1) for _ in range(self._common.randrange(3))]
            case 11:
                return {
                    self._common.choice((*NAMES, 3)): self._value(depth - 1) for _ in range(self._common.randrange(4))
                }
            case _:
                same = [self._value(depth - 1)]
                return (same, same)


NAMES = ("attempt", "to", "name", "id", "$python", "trigger")
TEXTS = (
    "",
    "user-",
    'a"b\\',
    "\u00fc\u20ac",
    "\U0001f600",
    "line\n\t\x7f\x01",
    "\ue0000\ue001",
    "T10:00:00Z",
    "\0",
    "\ud800",
    "x" * 700,
)
NUMBERS = (
    0,
    1,
    255,
    256,
    65_535,
    65_536,
    -1,
    2**31 - 1,
    -(2**31),
    2**31,
    2**63,
    -(2**63),
    10**30,
    4_611_000_000_000_000_001,
)


def alike(seed: int = 1, groups: int = 12) -> tuple[bytes, ...]:
    """Return documents of jobs in groups that have much in common, and those that the library wrote."""
    jobs = Jobs(random.Random(seed))
    made = [raw for _ in range(groups) for raw in jobs.alike(3)]
    return (*(documents.encode(one) for name in ("3.11.3", "3.6.3", "given") for one in real(name).values()), *made)
