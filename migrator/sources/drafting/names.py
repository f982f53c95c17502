"""Columns, and the names by which the fields of unknown schedulers are known; words of states likewise.

A draft compares names without case and separators, and without what only repeats the table (``jobName``), the type
(``startTime``, ``createdAt``) or the unit (``every_s``).
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal, TypeAlias

import msgspec

Want: TypeAlias = Literal["text", "word", "number", "duration", "time", "cron", "flag", "texts", "object", "any"]
"""What must hold of a field that a column is proposed for."""

Unit: TypeAlias = Literal["microseconds", "milliseconds", "seconds", "minutes", "hours", "days"]


class DraftColumn(msgspec.Struct, frozen=True):
    """A column, what must hold of a field for it, and its names, the best first."""

    column: str
    want: Want
    names: tuple[str, ...]


def _places(table: str, *rows: tuple[str, Want, str]) -> tuple[DraftColumn, ...]:
    return tuple(DraftColumn(f"{table}.{column}", want, tuple(names.split())) for column, want, names in rows)


_TRIGGER: Final = _places(
    "triggers",
    ("cron_expression", "cron", "cron cronexpression schedule crontab expression cronline"),
    ("timezone", "text", "timezone tz zone timezoneid timezonename crontimezone crontz cronzone zoneid tzid tzname"),
    ("interval_ms", "duration", "interval every repeatinterval period repeatevery"),
    ("run_at", "time", "runonce once"),
    ("next_fire_at", "time", "nextrun next nextfire nextexecution nextdue"),
    ("last_fire_at", "time", "lastrun last lastfire previousrun previousfire lastexecution prev"),
    ("start_at", "time", "start starts notbefore validfrom begin"),
    ("end_at", "time", "end ends notafter validuntil until"),
)

PLACES: Final[Mapping[str, tuple[DraftColumn, ...]]] = {
    "schedules": (
        *_places(
            "schedules",
            ("payload", "object", "payload data args params parameters kwargs kw input body arguments"),
            ("metadata", "object", "metadata meta"),
            ("status", "word", "status state st phase"),
            ("name", "text", "name title label id key slug"),
            ("description", "text", "description desc comment notes"),
            ("handler_name", "text", "handler handlername func function command task target class callable job type"),
            ("queue", "text", "queue channel topic"),
            ("enabled", "flag", "enabled active on"),
            ("priority", "number", "priority prio"),
            ("max_retries", "number", "maxretries retries maxattempts maxtries"),
            ("retry_delay_ms", "duration", "retrydelay backoff retrybackoff retryafter"),
            ("timeout_ms", "duration", "timeout maxduration timelimit"),
            ("max_concurrency", "number", "maxconcurrency concurrency maxinstances"),
            ("tags", "texts", "tags labels"),
            ("created_at", "time", "created create made inserted added"),
            ("created_by", "text", "createdby owner author user creator"),
            ("updated_at", "time", "updated update modified changed touched lastmodified"),
            ("updated_by", "text", "updatedby modifiedby lastmodifiedby changedby"),
            ("deleted_at", "time", "deleted removed discarded trashed"),
            ("payload", "any", "payload data args params parameters kwargs kw input body arguments"),
        ),
        *_TRIGGER,
    ),
    "triggers": _TRIGGER,
    "runs": _places(
        "runs",
        ("metadata", "object", "metadata meta payload body data args params arguments input context"),
        ("stats", "object", "stats statistics counters metrics"),
        ("state", "word", "status state st outcome result phase"),
        ("created_at", "time", "created create queued enqueued submitted inserted added requested timestamp ts"),
        ("scheduled_at", "time", "scheduled due run slot planned"),
        ("available_at", "time", "notbefore available visible delayuntil delayed runafter retry nexttry"),
        ("started_at", "time", "started start begun begin picked"),
        ("finished_at", "time", "finished finish ended end completed done succeeded"),
        ("lease_expires_at", "time", "leaseexpires leaseuntil lockuntil lockeduntil lockexpires invisibleuntil"),
        ("updated_at", "time", "updated update modified changed touched lastmodified"),
        ("error", "text", "error lasterror exception failreason errormessage failure"),
        ("error_detail", "text", "stacktrace traceback stack errordetail trace"),
        ("result", "any", "result output return returnvalue ret response"),
        ("worker_id", "text", "worker workerid leaseowner lockedby claimedby host hostname node instance server"),
        ("run_number", "number", "runnumber number seq sequence"),
        ("attempt", "number", "attempt try tries attemptno attemptnumber retrycount retries retry"),
        ("cause", "text", "cause trigger reason origin"),
        ("triggered_by", "text", "triggeredby startedby requestedby user"),
        ("trace_id", "text", "traceid correlationid"),
        ("dedupe_key", "text", "dedupekey dedupe idempotencykey uniquekey"),
    ),
    "locks": _places(
        "locks",
        ("expires_at", "time", "lockuntil expires expire until leaseuntil validuntil"),
        ("acquired_at", "time", "locked acquired since taken created"),
        ("holder", "text", "lockedby holder owner worker host instance"),
        ("key", "text", "name key resource lockname lockkey lock mutex"),
        ("metadata", "object", "metadata meta"),
    ),
    "execution_logs": _places(
        "execution_logs",
        ("level", "word", "level severity loglevel lvl"),
        ("logged_at", "time", "logged timestamp ts created date at when"),
        ("message", "text", "message msg text line"),
        ("context", "object", "context meta metadata data fields details"),
    ),
    "workers": _places(
        "workers",
        ("status", "word", "status state"),
        ("hostname", "text", "hostname host name node"),
        ("pid", "number", "pid processid"),
        ("version", "text", "version"),
        ("queues", "texts", "queues queue"),
        ("capacity", "number", "capacity concurrency slots threads poolsize"),
        ("registered_at", "time", "registered started start created firstheartbeat"),
        ("last_heartbeat_at", "time", "lastheartbeat heartbeat lastseen seen lastcheckin updated"),
        ("metadata", "object", "metadata meta info"),
    ),
}
"""Table to the columns that a draft proposes for fields of its documents; documents as a whole come first, so that
their members are not taken apart."""

HEARTBEAT: Final = DraftColumn(
    "workers.last_heartbeat_at", "time", ("lastheartbeat", "heartbeat", "lastseen", "seen", "lastcheckin")
)
"""What documents of workers alone have: when a document was changed, any may say."""
MESSAGE: Final = frozenset(("message", "msg", "statusmessage", "note"))
"""Names of texts that may say why a run failed, and may just as well say that it did well."""

TENANT: Final = frozenset(
    f"{name}{end}"
    for name in ("tenant", "org", "organisation", "organization", "account", "customer", "workspace", "company")
    for end in ("", "id")
)
REFERENCE: Final = frozenset(
    f"{name}{end}" for name in ("schedule", "job", "task", "run", "parent") for end in ("", "id", "name")
)
"""Names of fields that probably hold the ``_id`` of another document."""

HALTED: Final = frozenset(f"{be}{name}" for be in ("", "is") for name in ("paused", "suspended", "disabled", "stopped"))
"""Names of fields that say whether a schedule rests."""
COUNTED_FROM_ZERO: Final = frozenset(("retrycount", "retries", "retry"))
"""Names of fields that count attempts after the first one."""
WITH_THE_FIRST: Final = frozenset(("maxattempts", "maxtries"))
"""Names of fields that count attempts, and the first one too."""
ENDED: Final = ("completed", "error", "cancelled", "timeout")
"""States of runs after whose words the times of their ends are named."""
PERIOD: Final = frozenset(("periodicity", "frequency", "recurrence", "period", "interval", "repeat", "every"))
"""Names of fields that may say with a word how often a schedule fires."""
SIZE: Final = re.compile(r"(?:bytes?|size|memory|disk|storage)$")
"""How the normalised names of fields end that hold an amount, which is no time however large it is."""
COLLECTIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "schedules": ("schedule", "recurring", "cron", "plan"),
    "locks": ("lock", "lease"),
    "workers": ("worker", "server", "agent"),
}
"""Table to what the names of collections for it contain."""

_TIME_END: Final = re.compile(r"(?<=..)(?:at|on|time|date|datetime|utc|ts|timestamp|ms|millis)$")
_UNIT_END: Final[tuple[tuple[re.Pattern[str], Unit], ...]] = (
    (re.compile(r"(?:_?ms|_?millis|_?msecs?|milliseconds|inmillis)$", re.IGNORECASE), "milliseconds"),
    (re.compile(r"(?:_s|_?secs?|_?seconds|inseconds)$", re.IGNORECASE), "seconds"),
    (re.compile(r"(?:_m|_?mins?|_?minutes|inminutes)$", re.IGNORECASE), "minutes"),
    (re.compile(r"(?:_h|_?hours|inhours)$", re.IGNORECASE), "hours"),
    (re.compile(r"(?:_d|_?days|indays)$", re.IGNORECASE), "days"),
)
_OWNER_BEGIN: Final = re.compile(r"^(?:job|task|schedule|run|execution|is|has)(?=..)")

WORDS: Final[Mapping[str, tuple[str, ...]]] = {
    "completed": ("ok", "success", "successful", "succeeded", "done", "complete", "finished", "processed", "passed"),
    "error": ("fail", "failed", "failure", "errored", "crashed", "dead", "deadletter", "rejected", "broken"),
    "failed": ("fail", "failure", "error", "errored", "crashed", "dead"),
    "running": ("active", "started", "processing", "inprogress", "executing", "locked", "leased", "claimed", "working"),
    "queued": (
        "pending",
        "waiting",
        "new",
        "created",
        "ready",
        "retry",
        "retrying",
        "enqueued",
        "scheduled",
        "requested",
    ),
    "pending": ("new", "waiting", "created"),
    "scheduled": ("on", "active", "enabled", "waiting", "ready"),
    "paused": ("off", "inactive", "disabled", "suspended", "stopped", "onhold"),
    "cancelled": ("canceled", "aborted", "killed", "revoked", "deleted"),
    "timeout": ("timedout", "expired"),
    "skipped": ("ignored", "missed", "misfired"),
    "active": ("up", "online", "alive", "running", "idle", "busy"),
    "dead": ("lost", "offline", "down", "gone"),
    "stopped": ("shutdown", "terminated"),
    "warn": ("warning",),
    "fatal": ("critical",),
    "info": ("information", "notice"),
    "trace": ("verbose",),
}
"""Word of a column to the words that probably mean it."""


def normalised(name: str) -> str:
    """Return a name, or the last name of a path, in lower case and without separators."""
    return re.sub(r"[^a-z0-9]", "", name.rpartition(".")[2].lower())


def spellings(path: str, want: Want) -> Iterator[str]:
    """Yield the names by which a field may be known, the closest to its own first."""
    outer, _, last = path.rpartition(".")
    names = [normalised(last)]
    if outer:
        names.insert(0, normalised(outer) + normalised(last))
    for name in list(names):
        if want == "time":
            names.append(_TIME_END.sub("", _TIME_END.sub("", name)))
        elif want == "duration":
            names.append(normalised(_without_unit(last)))
    names += [_OWNER_BEGIN.sub("", name) for name in list(names)]
    yield from dict.fromkeys(names)


def unit_of(path: str) -> Unit | None:
    """Return the unit that the name of a field ends with."""
    last = path.rpartition(".")[2]
    return next((unit for end, unit in _UNIT_END if end.search(last) and end.sub("", last)), None)


def _without_unit(name: str) -> str:
    return next((end.sub("", name) for end, _ in _UNIT_END if end.search(name) and end.sub("", name)), name)


def word_for(word: str, known: Any) -> str | None:  # noqa: ANN401 - an iterable of words
    """Return the word of a column that a word of documents probably means."""
    spelled = re.sub(r"[^a-z]", "", word.lower())
    exact = next((one for one in known if re.sub(r"[^a-z]", "", one) == spelled), None)
    return exact or next((one for one in known if spelled in WORDS.get(one, ())), None)
