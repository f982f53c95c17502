"""A first mapping of collections that nobody has described: what their fields look like, as a file to be edited.

A sample is read. A field is placed by its name and by the types of its values; what is not placed is listed, and goes
to the remainder. Words of states are written into the draft, since a mapping needs them; no other value is.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import msgspec

from migrator import cron, states
from migrator.config import Settings
from migrator.connections.mongo import committed, open_source, translate_errors
from migrator.errors import RefusedError, UsageError
from migrator.pipeline.source_check import draw
from migrator.sources import COLLECTION_NAME, is_collection_name
from migrator.sources.mapping import tables
from migrator.sources.mapping.file import OPEN
from migrator.values import document as documents
from migrator.values import times
from migrator.values.document import Undecodable, type_name

DEPTH: Final = 3
"""Levels of documents inside documents that are looked at."""
MAX_FIELDS: Final = 300
MAX_WORDS: Final = 20
LONGEST_WORD: Final = 40
CRON_SHARE: Final = 0.5
"""Share of a field's texts that must be cron lines."""
TIME_SHARE: Final = 0.8
"""Share of a field's texts or numbers that must be times."""
DIALECT: Final = "debian"
_LINE: Final = re.compile(r"\S+(?:\s+\S+){4,5}")
_PLAIN_KEY: Final = re.compile(r"[A-Za-z0-9_-]+")


class _Field:
    """What a sample holds at one path."""

    def __init__(self) -> None:
        self.documents = 0
        self.types: Counter[str] = Counter()
        self.texts: Counter[str] = Counter()
        self.lines = self.iso = 0
        self.numbers: list[float] = []

    def add(self, value: Any) -> None:  # noqa: ANN401 - any BSON value
        self.documents += 1
        self.types[type_name(value)] += 1
        if isinstance(value, str):
            if len(value) <= LONGEST_WORD and len(self.texts) <= MAX_WORDS:
                self.texts[value] += 1
            self.lines += _is_cron(value)
            self.iso += _is_iso(value)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            self.numbers.append(float(value))

    @property
    def kind(self) -> str:
        """The commonest type, null apart."""
        known = [(count, name) for name, count in self.types.items() if name != "null"]
        return max(known)[1] if known else "null"

    @property
    def is_cron(self) -> bool:
        return self.kind == "string" and self.lines > CRON_SHARE * self.types["string"]

    @property
    def is_time(self) -> bool:
        return self.encoding is not None

    @property
    def encoding(self) -> str | None:
        """The encoding of a time; None for what is none."""
        if self.kind == "date":
            return "date"
        if self.kind == "string" and self.iso > TIME_SHARE * self.types["string"]:
            return "iso"
        if self.kind in ("int", "long", "double") and self.numbers:
            for name, least, most in _SINCE_1970:
                if sum(least <= number <= most for number in self.numbers) > TIME_SHARE * len(self.numbers):
                    return name
        return None

    @property
    def described(self) -> str:
        """The types and how many documents have each."""
        return ", ".join(f"{name} {count:,}" for name, count in self.types.most_common())


_SINCE_1970: Final = (("seconds", 5e8, 5e9), ("milliseconds", 5e11, 5e12), ("microseconds", 5e14, 5e15))
"""Encoding of a number, and the numbers that are times of the years 1985 to 2128 by it."""


class _Place(msgspec.Struct, frozen=True):
    """A column, the names by which fields for it are known, and what must hold of the field."""

    column: str
    names: tuple[str, ...]
    kinds: tuple[str, ...]


_TEXT: Final = ("string",)
_NUMBER: Final = ("int", "long", "double")
_ANY: Final = ("object", "array", "string", "int", "long", "double", "bool")

_SCHEDULE: Final = (
    _Place("schedules.name", ("name", "title", "jobname", "taskname", "id", "key"), _TEXT),
    _Place("schedules.description", ("description", "desc", "comment", "notes"), _TEXT),
    _Place("schedules.handler_name", ("handler", "task", "func", "function", "command", "job", "class", "type"), _TEXT),
    _Place("schedules.queue", ("queue", "channel"), _TEXT),
    _Place("schedules.enabled", ("enabled", "active", "isactive", "isenabled"), ("bool",)),
    _Place("schedules.status", ("status", "state"), _TEXT),
    _Place("schedules.priority", ("priority", "prio"), _NUMBER),
    _Place("schedules.max_retries", ("maxretries", "retries"), _NUMBER),
    _Place("schedules.timeout_ms", ("timeout", "timeoutms", "timeoutseconds"), _NUMBER),
    _Place("schedules.tags", ("tags", "labels"), ("array",)),
    _Place("schedules.payload", ("payload", "data", "args", "params", "parameters", "kwargs", "input"), _ANY),
    _Place("schedules.created_at", ("createdat", "created", "createtime", "insertedat"), ("time",)),
    _Place("schedules.created_by", ("createdby", "owner", "author", "user"), _TEXT),
    _Place("schedules.updated_at", ("updatedat", "updated", "modifiedat", "modified", "changed"), ("time",)),
    _Place("schedules.updated_by", ("updatedby", "modifiedby", "lastmodifiedby"), _TEXT),
    _Place("triggers.cron_expression", ("cron", "cronexpression", "schedule", "crontab", "expression"), ("cron",)),
    _Place("triggers.timezone", ("timezone", "tz", "zone", "timezoneid", "cronzone"), _TEXT),
    _Place("triggers.interval_ms", ("interval", "every", "repeatinterval", "period", "intervalms"), _NUMBER),
    _Place(
        "triggers.next_fire_at", ("nextrunat", "next", "nextrun", "nextfire", "nextfiretime", "nextruntime"), ("time",)
    ),
    _Place(
        "triggers.last_fire_at", ("lastrunat", "last", "lastrun", "lastfire", "lastfiretime", "previousrun"), ("time",)
    ),
    _Place("triggers.start_at", ("startat", "startdate", "startson", "notbefore"), ("time",)),
    _Place("triggers.end_at", ("endat", "enddate", "endson", "notafter"), ("time",)),
)
_RUN: Final = (
    _Place("runs.state", ("status", "state", "outcome"), _TEXT),
    _Place("runs.created_at", ("createdat", "created", "queuedat", "queued", "enqueuedat", "timestamp"), ("time",)),
    _Place("runs.scheduled_at", ("scheduledat", "scheduled", "dueat", "due", "runat"), ("time",)),
    _Place("runs.started_at", ("startedat", "started", "begun", "begin", "start", "starttime"), ("time",)),
    _Place(
        "runs.finished_at", ("finishedat", "finished", "ended", "endedat", "end", "endtime", "completedat"), ("time",)
    ),
    _Place("runs.error", ("error", "message", "exception", "failreason", "errormessage"), _TEXT),
    _Place("runs.result", ("result", "output", "return", "returnvalue"), _ANY),
    _Place("runs.worker_id", ("worker", "workerid", "host", "hostname", "node", "instance"), _TEXT),
    _Place("runs.attempt", ("attempt", "try", "tries"), _NUMBER),
    _Place("runs.cause", ("cause", "trigger", "triggeredby", "reason"), _TEXT),
    _Place("runs.metadata", ("metadata", "meta", "context"), ("object",)),
)
_LOCK: Final = (
    _Place("locks.expires_at", ("lockuntil", "expiresat", "expires", "expireat", "until"), ("time",)),
    _Place("locks.acquired_at", ("lockedat", "acquiredat", "acquired", "since"), ("time",)),
    _Place("locks.holder", ("lockedby", "holder", "owner"), _TEXT),
    _Place("locks.key", ("name", "key", "resource", "lockname"), _TEXT),
)
_TENANT: Final = ("tenantid", "tenant", "org", "orgid", "organisation", "organization", "accountid", "customerid")
_REFERENCE: Final = ("scheduleid", "jobid", "taskid", "schedule", "job", "task", "parentid")

_WORDS: Final[Mapping[str, tuple[str, ...]]] = {
    "completed": ("ok", "success", "successful", "succeeded", "done", "complete", "finished"),
    "error": ("fail", "failed", "failure", "errored", "crashed"),
    "failed": ("fail", "failure", "error", "errored", "crashed"),
    "running": ("active", "started", "processing", "inprogress", "executing", "locked"),
    "queued": ("pending", "waiting", "new", "created", "ready"),
    "pending": ("new", "waiting", "created"),
    "scheduled": ("on", "active", "enabled", "waiting", "ready"),
    "paused": ("off", "inactive", "disabled", "suspended", "stopped"),
    "cancelled": ("canceled", "aborted", "killed", "revoked"),
    "timeout": ("timedout", "expired"),
    "skipped": ("ignored", "missed"),
}
"""Word of a column to the words that probably mean it."""

CREATED: Final = "runs.created_at"


def draft_mapping(settings: Settings, collections: Sequence[str], size: int, name: str) -> str:
    """Return the text of a mapping file for these collections, drawn from up to ``size`` documents of each.

    Raises ``UsageError`` for a name that no collection can have, ``RefusedError`` for a collection without documents,
    ``UnreachableError`` if the server fails.
    """
    for one in collections:
        if not is_collection_name(one):
            raise UsageError(f"collection {one!r}: expected {COLLECTION_NAME}")
    source = committed(open_source(settings))
    try:
        with translate_errors("the source"):
            drawn = {one: draw(source, one, size) for one in collections}
    finally:
        source.client.close()
    for one, raws in drawn.items():
        if not raws:
            raise RefusedError(f"collection {one} of database {source.name} has no documents")
    looked_at = {one: _look(raws) for one, raws in drawn.items()}
    lines = list(_head(name))
    schedules = [one for one, fields in looked_at.items() if _kind(fields) == "schedules"]
    for one, fields in looked_at.items():
        lines += ["", *_collection(one, fields, len(drawn[one]), schedules)]
    return "\n".join(lines) + "\n"


def _head(name: str) -> Iterator[str]:
    yield "# A draft: read every line of it. migrator source check says what it makes of the documents."
    yield "# It holds words that were found in documents (states); no other value of a document is in it."
    yield f'# A word that was not understood is written as "{OPEN}": put a word of the column in its place.'
    yield "# docs/mapping.md describes the file."
    yield ""
    yield "[source]"
    yield f'name = "{name}"'


def _look(raws: Iterable[bytes]) -> dict[str, _Field]:
    fields: dict[str, _Field] = {}
    for raw in raws:
        with suppress(Undecodable):
            _walk(documents.decode(raw), "", 1, fields)
    return fields


def _walk(document: Mapping[str, Any], prefix: str, depth: int, fields: dict[str, _Field]) -> None:
    for key, value in document.items():
        path = f"{prefix}{key}"
        if "." in key or not key or (path not in fields and len(fields) >= MAX_FIELDS):
            continue
        fields.setdefault(path, _Field()).add(value)
        if isinstance(value, dict) and depth < DEPTH:
            _walk(value, f"{path}.", depth + 1, fields)


def _kind(fields: Mapping[str, _Field]) -> str:
    """Guess what a collection holds: locks, schedules or runs."""
    names = {_plain(path) for path in fields}
    if names & {"lockuntil", "lockedby"} and names & {"lockuntil", "expiresat", "expires", "until"} and len(names) < 8:  # noqa: PLR2004 - a lock has few fields
        return "locks"
    fires = any(field.is_cron for field in fields.values()) or names & {"interval", "every", "repeatinterval"}
    return "schedules" if fires else "runs"


def _collection(name: str, fields: Mapping[str, _Field], sampled: int, schedules: Sequence[str]) -> Iterator[str]:
    kind = _kind(fields)
    wanted = {"locks": _LOCK, "schedules": _SCHEDULE, "runs": _RUN}[kind]
    placed = _placed(wanted, fields)
    fed = list(dict.fromkeys(place.column.partition(".")[0] for place in placed.values()))
    fed.sort(key=lambda table: (table != kind, table))
    if kind not in fed:
        fed.insert(0, kind)
    if "triggers" in fed and not {tables.split(place.column)[1] for place in placed.values()} & tables.CAUSES.keys():
        placed = {path: place for path, place in placed.items() if not place.column.startswith("triggers.")}
        fed.remove("triggers")
    section = _key(name)
    yield f"[collections.{section}]  # {sampled:,} documents were looked at"
    yield f"tables = [{', '.join(chr(34) + table + chr(34) for table in fed)}]"
    yield ""
    yield f"[collections.{section}.fields]"
    covered: set[str] = set()
    first_time = _first_time(placed)
    tenant = next((path for path in fields if _plain(path) in _TENANT and fields[path].kind == "string"), None)
    for path, field in fields.items():
        if path == "_id" or any(path.startswith(f"{outer}.") for outer in covered):
            continue
        also = [CREATED] if path == first_time else []
        line = _line(path, field, placed.get(path), path == tenant, kind, schedules, name, also)
        if line is not None:
            covered.add(path)
            yield f"{line}  # {field.described}"
        elif not any(other.startswith(f"{path}.") and other in placed for other in fields):
            covered.add(path)
            yield f"# {_key(path)} is kept in the remainder ({field.described})"
    missing = _missing(fed, {place.column for place in placed.values()} | ({CREATED} if first_time else set()))
    if missing:
        yield ""
        yield f"[collections.{section}.constants]"
        yield from missing


def _placed(wanted: Sequence[_Place], fields: Mapping[str, _Field]) -> dict[str, _Place]:
    """Return the place of each field that has one; a column is filled by one field, the shallowest."""
    placed: dict[str, _Place] = {}
    for place in wanted:
        for candidate in place.names:
            found = [
                path
                for path, field in fields.items()
                if path not in placed and _plain(path) == candidate and _suits(field, place.kinds)
            ]
            if found:
                placed[min(found, key=lambda path: path.count("."))] = place
                break
        else:
            if place.kinds == ("cron",):
                line = next((path for path, field in fields.items() if field.is_cron and path not in placed), None)
                if line is not None:
                    placed[line] = place
    return placed


def _suits(field: _Field, kinds: Sequence[str]) -> bool:
    if kinds == ("time",):
        return field.is_time
    if kinds == ("cron",):
        return field.is_cron
    return field.kind in kinds and not field.is_cron


def _line(
    path: str,
    field: _Field,
    place: _Place | None,
    is_tenant: bool,  # noqa: FBT001 - private
    kind: str,
    schedules: Sequence[str],
    collection: str,
    also: Sequence[str],
) -> str | None:
    """Return the line of a field; None for one that has no column."""
    key = _key(path)
    if is_tenant:
        return f'{key} = {{ as = "tenant" }}'
    if place is None:
        if (
            kind == "runs"
            and _plain(path) in _REFERENCE
            and field.kind in ("objectId", "string", "binData")
            and schedules
        ):
            parent = next((one for one in schedules if one != collection), None)
            if parent is not None:
                return f'{key} = {{ to = "runs.schedule_id", collection = "{parent}" }}'
        return None
    columns = [place.column, *also]
    options = [f'to = "{place.column}"' if not also else f"to = {msgspec.json.encode(columns).decode()}"]
    if place.column in tables.WORDS:
        options.append(f"words = {{ {_words(place.column, field)} }}")
    if place.kinds == ("time",) and field.encoding != "date":
        options.append(f'encoding = "{field.encoding}"')
    if place.column == "triggers.cron_expression":
        options.append(f'dialect = "{DIALECT}"')
    if place.column.endswith("_ms"):
        unit = "milliseconds" if _plain(path).endswith("ms") else "seconds"
        options.append(f'unit = "{unit}"')
    if place.kinds == _NUMBER and field.kind != "int":
        options.append(f'type = "{field.kind}"')
    return f"{key} = {{ {', '.join(options)} }}"


def _words(column: str, field: _Field) -> str:
    known = tables.WORDS[column]
    return ", ".join(f'{_key(word)} = "{_word(word, known)}"' for word, _ in field.texts.most_common(MAX_WORDS))


def _word(word: str, known: Sequence[str]) -> str:
    plain = re.sub(r"[^a-z]", "", word.lower())
    exact = next((one for one in known if re.sub(r"[^a-z]", "", one) == plain), None)
    return exact or next((one for one in known if plain in _WORDS.get(one, ())), OPEN)


def _first_time(placed: Mapping[str, _Place]) -> str | None:
    """Return the field that also says when a run was created, if no field says that alone."""
    by_column = {place.column: path for path, place in placed.items()}
    if CREATED in by_column:
        return None
    known = ("runs.scheduled_at", "runs.started_at", "runs.finished_at")
    return next((by_column[column] for column in known if column in by_column), None)


def _missing(fed: Sequence[str], filled: Collection[str]) -> list[str]:
    """Return lines for columns that may not be null and that no field was found for."""
    lines = []
    for table in fed:
        for column in sorted(tables.needed_columns(table)):
            name = f"{table}.{column}"
            if name not in filled and tables.TARGETS.get(column) not in fed:
                default = {"schedules.status": "scheduled", "runs.state": states.RUN_OPEN[0]}.get(name, OPEN)
                lines.append(f'{name} = "{default}"  # may not be null, and no field was found for it')
    return lines


def _plain(path: str) -> str:
    """Return the last name of a path in lower case, without separators."""
    return re.sub(r"[^a-z0-9]", "", path.rpartition(".")[2].lower())


def _key(path: str) -> str:
    return path if _PLAIN_KEY.fullmatch(path) else msgspec.json.encode(path).decode()


def _is_cron(text: str) -> bool:
    if _LINE.fullmatch(text.strip()) is None:
        return False
    try:
        cron.validate(DIALECT if text.count(" ") == 4 else "cronos", text.strip(), None)  # noqa: PLR2004 - five fields
    except cron.CronError:
        return False
    return True


def _is_iso(text: str) -> bool:
    try:
        times.parse_iso(text)
    except ValueError:
        return False
    return True
