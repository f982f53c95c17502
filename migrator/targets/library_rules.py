"""How a library is held against the documents of its source: what differs between libraries, one class for each.

The checks of the area ``library`` (``migrator/verify/checks/library.py``) ask the library what it finds in MongoDB and
in a scratch copy of its tables, and let it execute what is due there. ``LibraryRules`` is what they take from a library
that says the same of both stores; a class of a library says where it does not.
"""

import math
import re
import struct
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, ClassVar, Final, Literal, TypeAlias
from zoneinfo import ZoneInfo

import msgspec
from bson.binary import UUID_SUBTYPE, Binary
from psycopg import sql

from migrator.config import TargetSettings
from migrator.connections.postgres import Connection
from migrator.targets import quartz_documents, queue_documents
from migrator.targets.library import Line
from migrator.targets.quartz_documents import Documents
from migrator.values.identity import parse_source_id

Part: TypeAlias = Literal["entries", "fires", "work", "locks"]
"""The checks: what the library lists, when it fires, what it executes, what it leaves to another process."""

LAST: Final = 253_402_300_799
"""Seconds since 1970: the end of the year 9999, after which Python has no instants."""
TICKS: Final = 200
"""Instants at which the library is told to work."""


class DueEntry(msgspec.Struct, frozen=True):
    """What the checks must know of an entry to say whether the library has to execute it."""

    key: str
    due: float | None
    """Seconds since 1970; None: never, because it is paused, disabled or ended."""
    once: bool = True
    """Whether it is executed once at an instant, however many of its fires have passed."""
    until: float | None = None
    """From when on the library no longer executes it."""
    hours: frozenset[int] | None = None
    """Hours of the day in UTC at which alone the library looks at it; None: at all."""
    waits: bool = False
    """Whether it waits for another entry, so that it cannot be executed while that one is held."""

    def is_due(self, at: float) -> bool:
        """Whether the library executes it at an instant."""
        if self.due is None or self.due > at or (self.until is not None and at >= self.until):
            return False
        return self.hours is None or int(at // 3600) % 24 in self.hours


class LibraryRules:
    """What the checks take from a library; a class of a library has what differs."""

    inapplicable: ClassVar[Mapping[Part, str]] = {}
    """Part → why the library cannot show it."""
    unbounded: ClassVar[frozenset[str]] = frozenset({"TooLongError", "EndlessError"})
    """Errors of an entry that the library computes or executes for ever: they are no difference of the two sides."""
    has_source: ClassVar[bool] = True
    """Whether the library itself reads the documents.

    Else ``source_entries`` does, and the fires of the copy are held against those that the tool computes.
    """
    has_clock: ClassVar[bool] = True
    """Whether the library works at any instant. Else its clock is the real one: each time begins with a fresh copy."""
    names_documents: ClassVar[bool] = False
    """Whether the library's lines of MongoDB name their documents, because an entry has another key than its document.

    Lines of documents in quarantine are then left out.
    """
    keys_are_made: ClassVar[bool] = False
    """Whether the copy has made the keys of the rows: an entry of the scratch copy is then named by its document."""
    clock_moves: ClassVar[bool] = False
    """Whether the clock runs on while the library works, so that more becomes due meanwhile."""

    def options(self, settings: TargetSettings) -> dict[str, Any]:  # noqa: ARG002 - of libraries that have some
        """Return the options of the library."""
        return {}

    def collections(self, names: Mapping[str, str], existing: Collection[str]) -> list[dict[str, str]]:  # noqa: ARG002 - of libraries with several
        """Return the library's own name of each collection → its name in the source, of ``source.collections``.

        Several, where the library is asked more than once to read all collections. ``existing``: those of the source.
        """
        return [dict(names)]

    def key(self, entry: str) -> str:
        """Return the id by which the library lists an entry in PostgreSQL, of the id that it has in MongoDB."""
        return entry

    def key_of_document(self, source_id: str, collection: str) -> str:  # noqa: ARG002 - of libraries with several
        """Return the id by which the library lists the entry of a document in PostgreSQL."""
        return self.key(str(parse_source_id(source_id)))

    def made_key(self, table: str, key: str) -> str:
        """Return the id by which the library lists the row of a table; only called if ``keys_are_made``."""
        raise NotImplementedError

    def source_entries(self, documents: Documents) -> Iterator[Line]:
        """Return the lines of the entries of the documents, as the library's probe prints those of its tables."""
        raise NotImplementedError

    def fields(self, line: Line, *, in_source: bool) -> Mapping[str, Any]:  # noqa: ARG002 - of libraries that differ
        """Return the fields of an entry that are compared, by names that are the same on both sides, as JSON."""
        return {"due": line["due"], **line["fields"]}

    def failure(self, error: str) -> Mapping[str, Any]:
        """Return the fields that are compared of an entry that the library cannot restore."""
        return {"the error of the library": error}

    def entry(self, line: Line) -> DueEntry:
        """Return an entry of PostgreSQL by its line."""
        return DueEntry(line["id"], seconds(line["due"]))

    def slot(self, line: Line) -> float | None:
        """Return the time for which an entry was executed, by the line of that; None: not of a library that says it."""
        return seconds(line.get("at"))

    def sittings(self, entries: Sequence[DueEntry], since: float) -> list[list[float]]:  # noqa: ARG002 - of libraries that give up what is late
        """Return the instants at which the library works, ascending, of each process that is started for that.

        When half of the first entries are due, and when all of these are: so those that are not due are there too.
        """
        due = sorted(entry.due for entry in entries if entry.due is not None)[:TICKS]
        return [[at] for at in sorted({due[(len(due) - 1) // 2], due[-1]})] if due else []

    def work_options(self, instants: Sequence[float]) -> dict[str, Any]:  # noqa: ARG002 - of libraries with several
        """Return the options of ``work``; the first of the instants is its ``now``."""
        return {"workers": 2}

    def hold(self, connection: Connection, schema: str, names: Mapping[str, str], key: str, until: float) -> None:
        """Let another process hold an entry of the scratch copy up to an instant, as the library itself notes it.

        ``names``: as ``target.tables``. Only called if the part ``locks`` is applicable.
        """
        raise NotImplementedError


def seconds(due: Any) -> float | None:  # noqa: ANN401 - as the probe printed it
    """Return a due time as seconds since 1970; None for one that never comes. It is a number, or ISO text."""
    if due is None:
        return None
    try:
        value = float(due)
    except ValueError:
        value = datetime.fromisoformat(due).timestamp() if due[0] not in "+-" else math.inf  # a year of six digits
    return None if math.isnan(value) or value > LAST else value


class ApschedulerRules(LibraryRules):
    """APScheduler 3: one scheduler may serve a store, and ``next_run_time`` is all that makes a job due."""

    inapplicable: ClassVar[Mapping[Part, str]] = {
        "locks": "APScheduler 3 has no lock between schedulers: one scheduler may serve a store"
    }

    def entry(self, line: Line) -> DueEntry:
        """Return a job by its line; one without ``coalesce`` makes up for each fire that it missed."""
        return DueEntry(line["id"], seconds(line["due"]), once=line["fields"]["coalesce"] is True)

    def slot(self, line: Line) -> None:
        """Return None: the time of a tick is not that of the entry."""

    def sittings(self, entries: Sequence[DueEntry], since: float) -> list[list[float]]:
        """Return ``since``, and then when each entry is due: most jobs are given up a second after they were due."""
        due = {entry.due for entry in entries if entry.due is not None}
        later = sorted(at for at in due if at > since)
        ticks = ([since] if len(later) < len(due) else []) + later[:TICKS]
        return [ticks] if ticks else []

    def work_options(self, instants: Sequence[float]) -> dict[str, Any]:
        """Return the threads of the executor, and the instants."""
        return {"workers": 2, "ticks": list(instants)}


class Apscheduler4Rules(LibraryRules):
    """APScheduler 4: tasks, schedules, jobs and results, each under its kind and its id."""

    KINDS: ClassVar[Mapping[str, str]] = {
        "tasks": "task",
        "schedules": "schedule",
        "jobs": "job",
        "job_results": "result",
    }
    STEP: ClassVar[float] = 1e-3
    """Seconds after the end of a lease at which it has certainly ended."""
    NEAR: ClassVar[float] = 172_800.0
    """Seconds from the first instant to the last one."""

    def key_of_document(self, source_id: str, collection: str) -> str:
        """Return kind and id of an entry."""
        key = parse_source_id(source_id)
        is_uuid = isinstance(key, Binary) and key.subtype == UUID_SUBTYPE
        return f"{self.KINDS[collection]} {key.as_uuid() if is_uuid else key}"

    def fields(self, line: Line, *, in_source: bool) -> Mapping[str, Any]:  # noqa: ARG002 - of libraries that differ
        """Return the attributes of an entry."""
        attributes: Mapping[str, Any] = line["fields"]
        return attributes

    def entry(self, line: Line) -> DueEntry:
        """Return a schedule, or a job, by its line, when no lease holds it and its task has a free slot."""
        kind, fields = line["id"].partition(" ")[0], line["fields"]
        if kind not in ("schedule", "job") or line["free"] == "never" or fields.get("paused") == "True":
            return DueEntry(line["id"], None)
        due = seconds(fields["next_fire_time"] if kind == "schedule" else fields["created_at"])
        ends = [seconds(time) for time in (fields["acquired_until"], line["free"]) if time is not None]
        latest = max((end + self.STEP for end in ends if end is not None), default=-math.inf)
        due = None if due is None else max(due, latest)
        return DueEntry(line["id"], due, once=fields.get("coalesce") != "all", waits=line["free"] is not None)

    def sittings(self, entries: Sequence[DueEntry], since: float) -> list[list[float]]:
        """Return the instants; the last one is near, for a schedule may make up for each fire that it has missed."""
        sittings = super().sittings(entries, since)
        near = sittings[0][-1] + self.NEAR if sittings else since
        last = max((entry.due for entry in entries if entry.due is not None and entry.due <= near), default=near)
        return [sitting for sitting in sittings if sitting[-1] < last] + [[last]] if sittings else []

    def hold(self, connection: Connection, schema: str, names: Mapping[str, str], key: str, until: float) -> None:
        """Let another scheduler have a lease of a schedule or a job up to an instant."""
        kind, _, key = key.partition(" ")
        table = sql.Identifier(schema, names.get(f"{kind}s", f"{kind}s"))
        statement = sql.SQL(
            "UPDATE {} SET acquired_by = 'another', acquired_until = to_timestamp(%s) WHERE id::text = %s"
        )
        connection.execute(statement.format(table), (until, key))


class AgendaRules(LibraryRules):
    """Agenda 6: the same library on MongoDB, with other ids, and some fields in another form."""

    clock_moves = True
    LIFETIME: ClassVar[float] = 600.0
    """Seconds for which a lock holds, if the application does not say otherwise."""
    TIMES: ClassVar[frozenset[str]] = frozenset(
        [
            "nextRunAt",
            "lockedAt",
            "lastRunAt",
            "lastFinishedAt",
            "failedAt",
            "debounceStartedAt",
            "startDate",
            "endDate",
        ]
    )
    DEFAULTS: ClassVar[Mapping[str, Any]] = {"disabled": False, "fork": False, "priority": 0, "type": "normal"}

    def options(self, settings: TargetSettings) -> dict[str, Any]:  # noqa: ARG002 - as above
        """Return the options of the library: data is listed as the library itself writes it into PostgreSQL."""
        return {"json": True}

    def collections(self, names: Mapping[str, str], existing: Collection[str]) -> list[dict[str, str]]:
        """Return the names of Agenda's collection, and of Pulse's, which the library reads as its own.

        Of one that does not exist no process is started; Agenda's is asked for if there is neither.
        """
        jobs = [names.get(name, name) for name in ("agendaJobs", "pulseJobs")]
        return [{**names, "agendaJobs": name} for name in jobs if name in existing] or [
            {**names, "agendaJobs": jobs[0]}
        ]

    def key(self, entry: str) -> str:
        """Return the UUID that holds an ObjectId."""
        if not _object_id(entry):
            return entry
        digits = "0" * 8 + entry
        return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))

    def fields(self, line: Line, *, in_source: bool) -> Mapping[str, Any]:
        """Return the fields of a job as the columns hold them (docs/targets-agenda.md); null is as absent."""
        fields = {name: value for name, value in line["fields"].items() if value is not None}
        fields |= {name: _in_utc(fields[name]) for name in self.TIMES & fields.keys()}
        if "progress" in fields:
            fields["progress"] = _as_real(fields["progress"])
        if not in_source:
            return fields
        fields = {**self.DEFAULTS, **fields}
        fields |= {"type": "normal"} if fields["type"] == "once" else {}
        if (interval := fields.get("repeatInterval")) is not None:
            fields["repeatInterval"] = str(interval["$Long"] if isinstance(interval, dict) else interval)
        for name in ("failReason", "lastModifiedBy"):
            if isinstance(fields.get(name), str):
                fields[name] = fields[name].replace("\0", "\ufffd")
        return fields

    def entry(self, line: Line) -> DueEntry:
        """Return a job by its line: one that is locked is due when the lifetime of its lock is over."""
        fields = line["fields"]
        due, locked = seconds(line["due"]), seconds(fields.get("lockedAt"))
        if locked is not None:
            due = max(locked + self.LIFETIME, -math.inf if due is None else due)
        return DueEntry(line["id"], None if fields.get("disabled") is not False else due)

    def hold(self, connection: Connection, schema: str, names: Mapping[str, str], key: str, until: float) -> None:
        """Lock a job so that the lifetime of its lock is over at an instant."""
        table = sql.Identifier(schema, names.get("agenda_jobs", "agenda_jobs"))
        locked = datetime.fromtimestamp(until - self.LIFETIME, UTC)
        connection.execute(sql.SQL("UPDATE {} SET locked_at = %s WHERE id = %s").format(table), (locked, key))


_object_id = re.compile("[0-9a-f]{24}").fullmatch


def _in_utc(time: Any) -> Any:  # noqa: ANN401 - as the probe printed it
    """Return a time in one spelling; a text that is no time as it is."""
    try:
        return datetime.fromisoformat(time).astimezone(UTC).isoformat(timespec="milliseconds")
    except (ValueError, TypeError, OverflowError):
        return time


def _as_real(number: Any) -> Any:  # noqa: ANN401 - as above
    """Return a number as the type ``real`` holds it; one beyond that type as it is."""
    try:
        return struct.unpack("f", struct.pack("f", number))[0]
    except (struct.error, OverflowError):
        return number


class CeleryRules(LibraryRules):
    """Celery's results, which are read and nothing else."""

    inapplicable: ClassVar[Mapping[Part, str]] = {
        "fires": "results do not fire",
        "work": "results are not executed",
        "locks": "results are not locked",
    }

    def __init__(self, *, without: frozenset[str] = frozenset()) -> None:
        """``without``: fields for which the tables have no column."""
        self._without = without

    def fields(self, line: Line, *, in_source: bool) -> Mapping[str, Any]:
        """Return the fields of a task, or the tasks of a group."""
        if "group" in line:
            return {"group": line["group"]}
        fields = {name: value for name, value in line["fields"].items() if name not in self._without}
        if in_source and isinstance(fields["traceback"], str):
            fields["traceback"] = fields["traceback"].replace("\0", "\ufffd")
        time, zone = (fields["date_done"] or {}).get("datetime", (None, None))
        if in_source and zone is not None:  # a text with an offset; the column has the digits in UTC
            naive = datetime.fromisoformat(time).astimezone(UTC).replace(tzinfo=None)
            fields["date_done"] = {"datetime": [naive.isoformat(), None]}
        return fields

    def failure(self, error: str) -> Mapping[str, Any]:  # noqa: ARG002 - the backends have errors of their own for it
        """Return that an entry cannot be restored."""
        return {"the error of the library": True}

    def entry(self, line: Line) -> DueEntry:
        """Return an entry that is never due."""
        return DueEntry(line["id"], None)


class BeatRules(LibraryRules):
    """sqlalchemy-celery-beat, held against celerybeat-mongo, which names a task by its name, too."""

    inapplicable: ClassVar[Mapping[Part, str]] = {"locks": "beat has no lock: one beat may serve a table"}
    names_documents = True

    def options(self, settings: TargetSettings) -> dict[str, Any]:
        """Return the options of the target: the zones of the application and of the host."""
        return dict(settings.options)

    def fields(self, line: Line, *, in_source: bool) -> Mapping[str, Any]:  # noqa: ARG002 - of libraries that differ
        """Return the fields of a task with its schedule; when it is due next is the library's conclusion from them."""
        return {**line["fields"], "schedule": line["schedule"]}

    def entry(self, line: Line) -> DueEntry:
        """Return a task by its line; one that is for one time is sent if it has never been."""
        fields = line["fields"]
        is_over = not fields["enabled"] or (fields["once"] and fields["total_run_count"] > 0)
        return DueEntry(line["id"], None if is_over else seconds(line["due"]))


class DjangoBeatRules(BeatRules):
    """django-celery-beat, which looks at crontabs of one hour near that hour alone, and ends what has expired."""

    AROUND: ClassVar[int] = 2
    """Hours before and after that hour."""
    ALWAYS: ClassVar[int] = 4
    """The hour whose crontabs it always looks at, for the sake of Celery's own cleanup."""

    def entry(self, line: Line) -> DueEntry:
        """Return a task by its line."""
        entry, schedule = super().entry(line), line["schedule"]
        hours = None
        if _plain_hour(schedule.get("hour", "")):
            winter = datetime(2023, 1, 1, 12, tzinfo=ZoneInfo(schedule["zone"])).utcoffset() or timedelta()
            hour = (int(schedule["hour"]) - int(winter / timedelta(hours=1))) % 24
            around = frozenset((hour + near) % 24 for near in range(-self.AROUND, self.AROUND + 1))
            hours = None if hour == self.ALWAYS else around
        return msgspec.structs.replace(entry, until=seconds(line["fields"]["expires"]), hours=hours)

    def sittings(self, entries: Sequence[DueEntry], since: float) -> list[list[float]]:
        """Return the instants, and others in the day after the last one, so that every hour is near one of them."""
        sittings = super().sittings(entries, since)
        if sittings and any(entry.hours is not None for entry in entries):
            step = (2 * self.AROUND + 1) * 3600
            sittings += [[sittings[-1][-1] + step * number] for number in range(1, -(-24 * 3600 // step))]
        return sittings


_plain_hour = re.compile("0?[0-9]|1[0-9]|2[0-3]").fullmatch


class ShedlockRules(LibraryRules):
    """ShedLock by its statements, which are held against the documents; what is executed is the taking of a lock."""

    inapplicable: ClassVar[Mapping[Part, str]] = {"fires": "locks do not fire"}
    has_source = False
    LONGEST: ClassVar[float] = 86_400.0
    """Seconds before the last instant in which no lock is taken."""

    def source_entries(self, documents: Documents) -> Iterator[Line]:
        """Return a line for each lock."""
        for document in documents("shedLock"):
            until = _epoch(document["lockUntil"])
            locked_by = document["lockedBy"].replace("\0", "\ufffd")
            fields = {"lock_until": until, "locked_at": _epoch(document["lockedAt"]), "locked_by": locked_by}
            yield {"kind": "entry", "id": document["_id"], "due": until, "fields": fields}

    def fields(self, line: Line, *, in_source: bool) -> Mapping[str, Any]:  # noqa: ARG002 - of libraries that differ
        """Return the columns of a lock."""
        columns: Mapping[str, Any] = line["fields"]
        return columns

    def entry(self, line: Line) -> DueEntry:
        """Return a lock by its line: it can be taken when it has expired."""
        until = seconds(line["due"])
        return DueEntry(line["id"], None if until is None or until > LAST - self.LONGEST else until)

    def hold(self, connection: Connection, schema: str, names: Mapping[str, str], key: str, until: float) -> None:
        """Let another application have a lock up to an instant."""
        table = sql.Identifier(schema, names.get("shedlock", "shedlock"))
        digits = datetime.fromtimestamp(until, UTC).replace(tzinfo=None)
        statement = sql.SQL("UPDATE {} SET lock_until = %s, locked_by = 'another' WHERE name = %s").format(table)
        connection.execute(statement, (digits, key))


def _epoch(time: Any) -> str:  # noqa: ANN401 - a date of BSON, also one that Python has not
    """Return the seconds since 1970 with six decimals, as PostgreSQL extracts them."""
    if isinstance(time, datetime):
        milliseconds = (time.replace(tzinfo=UTC) - _ZERO) // timedelta(milliseconds=1)
    else:
        milliseconds = int(time)
    return f"{Decimal(milliseconds).scaleb(-3):.6f}"


_ZERO: Final = datetime(1970, 1, 1, tzinfo=UTC)


class QuartzRules(LibraryRules):
    """Quartz, which has no store in MongoDB: documents are read without it."""

    inapplicable: ClassVar[Mapping[Part, str]] = {"locks": "no lock of a scheduler of Quartz is copied"}
    has_source = False
    has_clock = False

    def options(self, settings: TargetSettings) -> dict[str, Any]:
        """Return the options of the target: the name of the scheduler, the classes of jobs."""
        return dict(settings.options)

    def source_entries(self, documents: Documents) -> Iterator[Line]:
        """Return the entries of the documents of quartz-mongodb."""
        return quartz_documents.entries_of(documents)

    def fields(self, line: Line, *, in_source: bool) -> Mapping[str, Any]:  # noqa: ARG002 - of libraries that differ
        """Return the fields without what is a serialized object of Java in the document: data, and calendars."""
        if line["id"].startswith("calendar:"):
            return {}
        return {"due": line["due"], **{name: value for name, value in line["fields"].items() if name != "data"}}

    def entry(self, line: Line) -> DueEntry:
        """Return an entry by its line; only triggers that are neither paused nor broken are ever due."""
        is_waiting = line["fields"].get("state") == "NORMAL"
        return DueEntry(line["id"], seconds(line["due"]) if is_waiting else None)


class MessageRules(LibraryRules):
    """pgmq: pending messages, each named by its document, because the number of its row is a new one."""

    inapplicable: ClassVar[Mapping[Part, str]] = {"fires": "pending work does not recur"}
    has_source = False
    has_clock = False
    keys_are_made = True

    def key_of_document(self, source_id: str, collection: str) -> str:
        """Return collection and source id of a document."""
        return queue_documents.key_of(collection, source_id)

    def made_key(self, table: str, key: str) -> str:
        """Return the queue and the number of a message."""
        return f"{table}:{key}"

    def source_entries(self, documents: Documents) -> Iterator[Line]:
        """Return a line for each pending message, and each dead letter."""
        return queue_documents.messages_of(documents)

    def fields(self, line: Line, *, in_source: bool) -> Mapping[str, Any]:  # noqa: ARG002 - of libraries that differ
        """Return the fields of a message; a number is compared as what JavaScript has of it."""
        fields: Mapping[str, Any] = queue_documents.as_doubles({"due": line["due"], **line["fields"]})
        return fields

    def work_options(self, instants: Sequence[float]) -> dict[str, Any]:
        """Return the number of clients, and up to when messages become visible at once, the others tomorrow."""
        return {"workers": 2, "due_until": instants[0]}

    def hold(self, connection: Connection, schema: str, names: Mapping[str, str], key: str, until: float) -> None:
        """Let another client have a message up to an instant."""
        table, _, number = key.partition(":")
        statement = sql.SQL("UPDATE {} SET vt = to_timestamp(%s), read_ct = read_ct + 1 WHERE msg_id = %s")
        connection.execute(statement.format(sql.Identifier(schema, names.get(table, table))), (until, int(number)))


class JobRules(MessageRules):
    """procrastinate: jobs that are to be done once, and those that have failed."""

    def made_key(self, table: str, key: str) -> str:  # noqa: ARG002 - there is one table
        """Return the number of a job."""
        return key

    def source_entries(self, documents: Documents) -> Iterator[Line]:
        """Return a line for each pending message or document, and each dead letter."""
        return queue_documents.jobs_of(documents)

    def fields(self, line: Line, *, in_source: bool) -> Mapping[str, Any]:
        """Return the fields of a job without its task and its queue: they are options, and no document says them."""
        fields = super().fields(line, in_source=in_source)
        return {name: value for name, value in fields.items() if name not in ("task", "queue")}

    def entry(self, line: Line) -> DueEntry:
        """Return a job by its line; only one that is to be done is ever due."""
        return DueEntry(line["id"], seconds(line["due"]) if line["fields"]["status"] == "todo" else None)

    def hold(self, connection: Connection, schema: str, names: Mapping[str, str], key: str, until: float) -> None:  # noqa: ARG002 - a worker of procrastinate has a job until it says otherwise
        """Let another worker do a job."""
        # its triggers name its types and tables without their schema
        connection.execute(sql.SQL("SET search_path = {}").format(sql.Identifier(schema)))
        table = sql.Identifier(schema, names.get("procrastinate_jobs", "procrastinate_jobs"))
        connection.execute(sql.SQL("UPDATE {} SET status = 'doing' WHERE id = %s").format(table), (int(key),))


RULES: Final[Mapping[str, LibraryRules]] = {
    "apscheduler": ApschedulerRules(),
    "apscheduler4": Apscheduler4Rules(),
    "agenda": AgendaRules(),
    "celery-results": CeleryRules(),
    "quartz": QuartzRules(),
    "shedlock": ShedlockRules(),
    "pgmq": MessageRules(),
    "procrastinate": JobRules(),
    "sqlalchemy-celery-beat": BeatRules(),
    "django-celery-beat": DjangoBeatRules(),
    "celery-results-5-6": CeleryRules(without=frozenset({"children"})),
}
"""Target → the rules of its library."""
