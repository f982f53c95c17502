"""Binary values of APScheduler 4's serializers as plain data, and what follows from them.

A value is JSON, or a pickle, which the inert reader of ``sources.apscheduler`` reads. Both become the same records, so
that a trigger means the same in both. Every binary value, and every field without a column, is kept as it is in the
``metadata`` of the row, from where ``respell`` writes it back.
"""

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec
from bson.binary import Binary

from migrator import cron
from migrator.cron import CronError, ZoneError
from migrator.records import Run, Schedule
from migrator.sources import pickles
from migrator.sources.apscheduler.triggers import DIALECT
from migrator.sources.mapping.language import Reading
from migrator.sources.pickled_values import Zone, instant_of, plain, text_of, zone_of
from migrator.sources.pickles import ImportRefusedError, Made, PickledDict, PickleRefusedError
from migrator.sources.profile import Context, Document, Note, Rejected, Rows
from migrator.values import jsonb, times

OF_SCHEDULES: Final = (
    *("trigger", "args", "kwargs", "paused", "coalesce", "misfire_grace_time", "max_jitter"),
    *("job_result_expiration_time", "metadata", "next_fire_time_utcoffset", "last_fire_time_utcoffset"),
    *("acquired_by", "acquired_until", "acquired_until_utcoffset"),
)
OF_JOBS: Final = (
    *("task_id", "args", "kwargs", "executor", "jitter", "start_deadline", "start_deadline_utcoffset"),
    *("result_expiration_time", "metadata", "scheduled_fire_time_utcoffset", "created_at_utcoffset"),
    "acquired_until_utcoffset",
)
OF_RESULTS: Final = (
    *("outcome", "expires_at", "return_value", "exception"),
    *("started_at_utcoffset", "finished_at_utcoffset", "expires_at_utcoffset"),
)

_PACKAGE: Final = "apscheduler.triggers."
_FIELDS: Final = ("year", "month", "day", "week", "day_of_week", "hour", "minute", "second")
_STATES: Final[Mapping[str, str]] = {
    "success": "completed",
    "error": "error",
    "missed_start_deadline": "skipped",
    "deserialization_failed": "error",
    "cancelled": "cancelled",
    "abandoned": "error",
}
_MILLISECOND: Final = timedelta(milliseconds=1)
_SECOND: Final = 1_000
_LARGEST: Final = 2**63 - 1


def read_value(value: object, path: str) -> Any:  # noqa: ANN401 - any plain data
    """Return the plain data of a binary value; raises ``Rejected`` for what is neither JSON nor a pickle."""
    if not isinstance(value, bytes) or (isinstance(value, Binary) and value.subtype != 0):
        raise Rejected("wrong-type", path, "binary")
    data = bytes(value)
    try:
        if data[:1] == b"\x80":
            return pickles.read(data)
        if len(data) > pickles.LONGEST:
            raise Rejected("bad-pickle", path, f"at most {pickles.LONGEST} bytes")
        content = json.loads(data, object_pairs_hook=_table)
        pickles.hold_limits(content)
    except ImportRefusedError as refused:
        raise Rejected("refused-import", path, refused.expected) from None
    except PickleRefusedError as refused:
        raise Rejected("bad-pickle", path, refused.expected) from None
    except (ValueError, RecursionError):
        raise Rejected("bad-pickle", path, "JSON, or a pickle of the protocols 2 to 5") from None
    return content


def _table(pairs: list[tuple[str, Any]]) -> Any:  # noqa: ANN401 - any plain data
    """Return an object of JSON, or the record that the serializer wrote as one."""
    match pairs:
        case [("_apscheduler_json", [str() as name, state])]:
            made = Made(name.replace(":", "."), ())
            made.state = state
            return made
    table = PickledDict()
    table.pairs.extend(pairs)
    return table


def _kept(document: Document, names: tuple[str, ...]) -> dict[str, Any]:
    """Return fields as they are, binary values as base64."""
    kept = {name: document[name] for name in names if name in document}
    return {
        name: {"base64": b64encode(value).decode()} if isinstance(value, bytes) else value
        for name, value in kept.items()
    }


def _write_back(metadata: bytes | None, document: Document) -> None:
    facts = {} if metadata is None else jsonb.decode(metadata)
    for name, value in facts.get("document", {}).items():
        is_binary = isinstance(value, dict) and value.keys() == {"base64"} and isinstance(value["base64"], str)
        document[name] = _bytes(value["base64"]) if is_binary else value


def _bytes(text: str) -> Any:  # noqa: ANN401 - bytes, or an object of the document's own that looks like them
    try:
        return b64decode(text, validate=True)
    except ValueError:
        return {"base64": text}


def respell_schedule(rows: Rows, document: Document) -> None:
    """Write back what the metadata of a schedule keeps."""
    schedule = rows[0]
    assert isinstance(schedule, Schedule)  # noqa: S101 - the first table
    _write_back(schedule.metadata, document)


def respell_run(rows: Rows, document: Document) -> None:
    """Write back what the metadata of a run keeps."""
    run = rows[0]
    assert isinstance(run, Run)  # noqa: S101 - the first table
    _write_back(run.metadata, document)


def derive_schedule(document: Document, reading: Reading, context: Context) -> None:
    """Fill the columns that follow from the trigger, the arguments and what is paused."""
    del context  # nothing depends on it
    paused = document.get("paused") is True
    spec, columns = _timing(read_value(document.get("trigger"), "trigger"), reading.notes)
    facts: dict[str, Any] = {"document": _kept(document, OF_SCHEDULES)}
    if document.get("max_jitter"):
        reading.notes.append(Note("jitter-dropped", "max_jitter"))
    if columns is None:
        facts["trigger"] = spec
        for name in ("next_fire_time", "last_fire_time"):
            if name in document:
                facts["document"][name] = document[name]
        status = "paused" if paused else "pending"
    else:
        policy = {"enabled": not paused, "source_spec": jsonb.encode(spec)}
        reading.fill("triggers", **columns, **policy, **_misfires(document))
        status = "paused" if paused else "completed" if document.get("next_fire_time") is None else "scheduled"
    arguments = {name: plain(read_value(document.get(name), name)) for name in ("args", "kwargs")}
    reading.fill(
        "schedules",
        enabled=not paused,
        status=status,
        payload=jsonb.encode(arguments),
        metadata=jsonb.encode(facts),
    )


def _misfires(document: Document) -> dict[str, Any]:
    """Return policy and grace: what is later than the grace is dropped; without one nothing is."""
    grace = document.get("misfire_grace_time")
    if isinstance(grace, int | float) and not isinstance(grace, bool) and 0 <= grace < _LARGEST / _SECOND:
        return {"misfire_policy": "skip", "misfire_grace_ms": round(grace * _SECOND)}
    if grace is not None:
        raise Rejected("wrong-type", "misfire_grace_time", "seconds or null")
    return {"misfire_policy": "fire_all" if document.get("coalesce") == "all" else "fire_once", "misfire_grace_ms": 0}


def derive_job(document: Document, reading: Reading, context: Context) -> None:
    """Fill the columns that follow from the arguments and from the lease of a job."""
    del context  # nothing depends on it
    arguments = {name: plain(read_value(document.get(name), name)) for name in ("args", "kwargs")}
    facts = {"document": _kept(document, OF_JOBS), "arguments": arguments}
    state = "queued" if document.get("acquired_by") is None else "running"
    reading.fill("runs", state=state, metadata=jsonb.encode(facts))


def derive_result(document: Document, reading: Reading, context: Context) -> None:
    """Fill the columns that follow from the outcome of a job."""
    del context  # nothing depends on it
    outcome = document.get("outcome")
    if type(outcome) is not str or outcome not in _STATES:  # JavaScript code is a text that has no hash
        raise Rejected("unknown-value", "outcome", "one of " + ", ".join(sorted(_STATES)))
    columns = reading.columns["runs"]
    columns["created_at"] = columns.get("started_at") or columns.get("finished_at")
    if "return_value" in document:
        try:
            columns["result"] = jsonb.encode(plain(read_value(document["return_value"], "return_value")))
        except Rejected:
            # the run is over: nothing of the result is needed, and its bytes are kept
            reading.notes.append(Note("unreadable-result", "return_value"))
    reading.fill("runs", state=_STATES[outcome], metadata=jsonb.encode({"document": _kept(document, OF_RESULTS)}))


def _timing(value: object, notes: list[Note]) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Return a trigger as JSON, and the columns of the trigger that fires at the same times, if there is one."""
    kind, state = trigger_of(value)
    shown = {name: _shown(member) for name, member in state.items() if name != "version"}
    spec = {kind.partition(".")[2]: shown}
    columns: dict[str, Any] | None = None
    match kind:
        case "cron.CronTrigger":
            columns = _cron(state, notes)
        case "interval.IntervalTrigger":
            columns = _interval(state, notes)
        case "date.DateTrigger":
            columns = {"run_at": _instant(state.get("run_time"), "trigger.run_time")}
        case "combining.OrTrigger":
            columns = _either(state, notes)
        case "combining.AndTrigger" | "calendarinterval.CalendarIntervalTrigger":
            notes.append(Note("unevaluable-trigger", "trigger"))
        case _:
            raise Rejected("wrong-type", "trigger", "a trigger of APScheduler")
    return spec, columns


def trigger_of(value: object) -> tuple[str, dict[str, Any]]:
    """Return the class of a trigger, as ``cron.CronTrigger``, and the members of its state; also of one of version 3.

    Raises ``Rejected`` for what is no trigger.
    """
    match value:
        case Made(name=str() as name, state=state) | [str() as name, state]:
            if isinstance(state, tuple):  # version 3.0 wrote it beside a None
                state = state[-1]
            if isinstance(state, PickledDict):
                return name.replace(":", ".").removeprefix(_PACKAGE), state.named()
    raise Rejected("wrong-type", "trigger", "a trigger of APScheduler")


def _shown(member: object) -> Any:  # noqa: ANN401 - JSON
    """Return a member of a state as JSON; a trigger in it by its class and its state."""
    return plain(member)


def _instant(value: object, path: str) -> datetime:
    if isinstance(value, str):
        try:
            return times.parse_iso(value)
        except ValueError:
            raise Rejected("bad-date", path, "an ISO 8601 time that names its offset") from None
    return instant_of(value, path)


def _window(state: Mapping[str, Any]) -> dict[str, Any]:
    found = {"start_at": state.get("start_time"), "end_at": state.get("end_time")}
    return {name: _instant(value, f"trigger.{name}") for name, value in found.items() if value is not None}


def _zone(state: Mapping[str, Any]) -> Zone:
    value = state.get("timezone")
    return Zone(text_of(value, "trigger.timezone")) if isinstance(value, str) else zone_of(value, "trigger.timezone")


def keywords_of(state: Mapping[str, Any]) -> dict[str, str]:
    """Return the fields of a cron trigger as keywords; raises ``Rejected``."""
    fields = state.get("fields")
    if not isinstance(fields, list) or len(fields) != len(_FIELDS) or not all(isinstance(one, str) for one in fields):
        raise Rejected("wrong-type", "trigger.fields", "the eight fields of a cron trigger")
    return {name: text_of(one, "trigger.fields") for name, one in zip(_FIELDS, fields, strict=True)}


def _cron(state: Mapping[str, Any], notes: list[Note]) -> dict[str, Any] | None:
    try:
        key, mapped = _zone(state).key()
    except ZoneError:
        notes.append(Note("unknown-zone", "trigger.timezone"))
        return None
    if mapped:
        notes.append(Note("mapped-zone", "trigger.timezone"))
    line = _line(keywords_of(state), key, notes)
    return None if line is None else {**line, "timezone": key, **_window(state)}


def _line(keywords: Mapping[str, Any], zone: str | None, notes: list[Note]) -> dict[str, Any] | None:
    text = msgspec.json.encode(keywords).decode()
    try:
        cron.validate(DIALECT, text, zone)
    except CronError:
        notes.append(Note("unevaluable-cron", "trigger"))
        return None
    return {"cron_expression": text, "cron_dialect": DIALECT}


def interval_of(parts: object) -> timedelta:
    """Return the length of an interval, of which a state has six parts; raises ``Rejected``."""
    if not isinstance(parts, list) or not all(type(one) in (int, float) for one in parts):
        raise Rejected("wrong-type", "trigger.interval", "six numbers")
    try:
        weeks, days, hours, minutes, seconds, microseconds = parts
        return timedelta(days, seconds, microseconds, 0, minutes, hours, weeks)
    except (ValueError, OverflowError):
        raise Rejected("out-of-range", "trigger.interval", "six numbers of a length of time") from None


def _interval(state: Mapping[str, Any], notes: list[Note]) -> dict[str, Any] | None:
    milliseconds, rest = divmod(interval_of(state.get("interval")), _MILLISECOND)
    if rest or not 0 < milliseconds <= _LARGEST:
        notes.append(Note("unusable-interval", "trigger.interval"))
        return None
    return {"interval_ms": milliseconds, "anchor": "fixed_rate", **_window(state)}


def _either(state: Mapping[str, Any], notes: list[Note]) -> dict[str, Any] | None:
    """Return the columns of a combination of cron triggers; others have fires of their own to remember."""
    members = state.get("triggers")
    if not isinstance(members, list):
        raise Rejected("wrong-type", "trigger.triggers", "a list of triggers")
    lines = []
    for kind, inner in map(trigger_of, members):
        if kind != "cron.CronTrigger":
            notes.append(Note("unevaluable-trigger", "trigger"))
            return None
        bounds = {"start_date": inner.get("start_time"), "end_date": inner.get("end_time")}
        given = {name: _instant(one, "trigger.triggers").isoformat() for name, one in bounds.items() if one is not None}
        lines.append({**keywords_of(inner), "timezone": _zone(inner).text(), **given})
    return _line({"or": lines}, None, notes)
