"""Whether rows of PostgreSQL can become documents of a source again: what forbids a cutover, and what would be lost.

Both are found by trying: a row as the scheduler writes it is encoded, the document is decoded, and the result is
compared. So a statement about a source holds for its decode and encode as they are, whoever wrote them.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import UUID

import bson
import msgspec
from bson.objectid import ObjectId

from migrator import constraints, cron, states
from migrator.cron.dialects import fires_alike
from migrator.errors import ConfigurationError
from migrator.records import (
    ALL,
    Lock,
    Record,
    Run,
    RunSummary,
    Schedule,
    SourcedRecord,
    Trigger,
    WorkerRecord,
)
from migrator.sources.profile import (
    MONGODB,
    Collection,
    Context,
    Decoded,
    Document,
    Profile,
    Rejected,
    Rows,
    RunHistory,
    Skipped,
)
from migrator.sources.store_documents import write_back as own_documents
from migrator.values import copy_format, identity
from migrator.values import document as documents

NOT_CARRIED: Final = (Lock, WorkerRecord, RunSummary)
"""Records whose rows are not missed: they belong to processes, which begin again, or follow from the runs."""

_NOW: Final = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
_LATER: Final = _NOW + timedelta(hours=1)
_TENANT: Final = "probe"
_CONTEXT: Final = Context(as_of=_NOW, default_tenant=_TENANT, zone="UTC")
_ID: Final = UUID("00000000-0000-4000-8000-000000000001")
_UNSAID: Final = frozenset(
    {"id", "tenant_id", "source", "source_id", "extra", "duration_ms", "derived", "kind", "updated_at"}
)
"""Columns that follow from others, or name the origin of a row."""
_NUMBERS: Final = (3, 1, 2, 60, 0, 3_600_000, 86_400_000)
_VALUES: Final[Mapping[str, Sequence[Any]]] = {
    "bool": (True, False),
    "int2": _NUMBERS,
    "int4": _NUMBERS,
    "int8": _NUMBERS,
    "timestamptz": (_LATER, _NOW + timedelta(days=1)),
    "jsonb": (b'{"probe":1}', b'"probe"', b"1"),
    "text[]": (("probe",),),
    "uuid": (_ID,),
}
"""Type of a column to values that it may hold."""
_CAUSES: Final[Mapping[str, Mapping[str, Any]]] = {
    "cron": {"cron_expression": "30 2 * * *", "timezone": "UTC", "next_fire_at": _LATER},
    "interval": {"interval_ms": 3_600_000, "anchor": "fixed_rate", "next_fire_at": _LATER},
    "one_time": {"run_at": _LATER, "next_fire_at": _LATER},
    "event": {"event_name": "probe"},
}
_AROUND: Final[Mapping[type[Record], Sequence[Mapping[str, Any]]]] = {
    Run: ({"state": "completed"}, {"state": "error"}, {"state": "running"})
}
"""Record to the columns beside which a column is tried."""
_MINIMAL: Final[Mapping[type[Record], Mapping[str, Any]]] = {
    Schedule: {"name": "probe", "status": "scheduled", "handler_name": "probe", "created_at": _NOW},
    Run: {"state": "completed", "created_at": _NOW, "schedule_id": _ID},
}
"""Record to the columns that the scheduler always writes; of the others those that must be filled."""
RULE: Final = ("kind", "cron_expression", "cron_dialect", "timezone", "interval_ms", "run_at", "event_name")
"""Columns that say when a trigger fires."""
_BOUNDS: Final = ("anchor", "start_at", "end_at", "max_fires")
"""Columns that say from when, until when, how often, and counted from what."""
MAX_DOCUMENT_BYTES: Final = 16 * 1024 * 1024
"""MongoDB's limit of a document."""
_NOT_BEGUN: Final = (*states.RUN_WAITING, "skipped")
"""States of runs that have not begun: an application that records what it did has no documents of them."""
_DIALECTS: Final = ("debian", "agenda", "robfig", "cronos", "celery", "apscheduler", "croniter", "cronsim")


class WriteBack(msgspec.Struct, frozen=True, kw_only=True):
    """What the reverse sync can do for a source."""

    faults: tuple[str, ...] = ()
    """Why a cutover is refused, in words; empty: it can be rolled back."""
    losses: tuple[str, ...] = ()
    """What is written in PostgreSQL and has no place in a document, in words."""


def write_back(profile: Profile) -> WriteBack:
    """Return the ability of the reverse sync for a source: its faults and its losses."""
    if profile.kept_by_store:
        return WriteBack()
    probes = _Probes(profile)
    return WriteBack(faults=tuple(dict.fromkeys(probes.faults())), losses=tuple(dict.fromkeys(probes.losses())))


def carried_columns(profile: Profile, record: type[Record]) -> tuple[str, ...]:
    """Return the columns of a table that documents of a source hold."""
    return _Probes(profile).carried(record)


def stated_kinds(profile: Profile) -> tuple[str, ...]:
    """Return the kinds of triggers that documents of a source state, a cron line in one dialect at least."""
    if profile.kept_by_store:
        return ("cron",)
    probes = _Probes(profile)
    return tuple(kind for kind in _CAUSES if probes.holds_kind(kind))


def homes(profile: Profile, record: type[Record]) -> tuple[Collection, ...]:
    """Return the collections that have a document for each row of a table, and in which new ones may be made."""
    return tuple(one for one in profile.collections if one.tables[0] is record and one.new_documents)


def holder(profile: Profile, record: type[Record]) -> Collection | None:
    """Return the collection whose documents hold a table's rows: of its own, else that of schedules; None if none."""
    own = homes(profile, record)
    if own:
        return own[0]
    if record not in (Trigger, Run):
        return None
    return next((one for one in homes(profile, Schedule) if record in one.tables), None)


def key_of(collection: Collection, row: SourcedRecord) -> Any:  # noqa: ANN401 - any BSON
    """Return the ``_id`` of the document of a row: the one that it came from, else a new one."""
    if row.source_id is not None:
        return identity.parse_source_id(row.source_id)
    return identity.object_id(row.id, getattr(row, "created_at", None)) if collection.object_ids else str(row.id)


def of_document(profile: Profile, collection: Collection, rows: Rows) -> Rows:
    """Return rows with those that were created in PostgreSQL as rows of the document of the first."""
    owner = rows[0]
    assert isinstance(owner, SourcedRecord)  # noqa: S101 - told to the type checker
    key = identity.source_id(key_of(collection, owner))
    source = profile.source_of(collection.name)
    return tuple(
        msgspec.structs.replace(row, source=source, source_id=key)
        if isinstance(row, SourcedRecord) and row.source is None
        else row
        for row in rows
    )


def fitted(
    collection: Collection, context: Context, rows: Rows, before: Rows = (), history: RunHistory | None = None
) -> Rows:
    """Return stored rows as ``encode`` of their collection expects them.

    A schedule that does not fire must not fire by its document: where the document cannot hold why, the schedule is
    written as one that is not enabled.
    """
    if collection.adapt is not None:
        rows = collection.adapt(rows, before, history or RunHistory())
    if not isinstance(rows[0], Schedule) or fires(rows):
        return rows
    read = decoded(collection, context, collection.encode(rows))
    if not (read and fires(read)):
        return rows
    return tuple(
        msgspec.structs.replace(row, enabled=False) if isinstance(row, Schedule | Trigger) else row for row in rows
    )


def fires(rows: Rows) -> bool:
    """Whether the schedule of a document fires, if a time is due."""
    schedule = next((row for row in rows if isinstance(row, Schedule)), None)
    if schedule is None or schedule.deleted_at is not None:
        return False
    if not schedule.enabled or schedule.status not in states.SCHEDULE_FIRING:
        return False
    return all(row.enabled for row in rows if isinstance(row, Trigger))


def decoded(collection: Collection, context: Context, document: Document) -> Rows:
    """Return the rows of a document that was made here; empty if it has none."""
    read = read_back(collection, context, document)
    return () if read is None else read.rows


def read_back(collection: Collection, context: Context, document: Document) -> Decoded | None:
    """Return a document that was made here, decoded.

    None if it is not loaded, or if MongoDB would not store it: it is too large, or holds a number of more than 64 bits.
    """
    try:
        raw = documents.encode(document)
    except (ValueError, TypeError, OverflowError, bson.errors.BSONError):
        return None
    if len(raw) > MAX_DOCUMENT_BYTES:
        return None
    try:
        return collection.decode(documents.decode(raw), context)
    except (Rejected, Skipped):
        return None


def encoded(collection: Collection, rows: Rows) -> Document | None:
    """Return the document of rows; None if a value of theirs leads to none, such as a member of a free JSON object.

    Raises ``ConfigurationError`` if a library is missing that reads them.
    """
    try:
        return collection.encode(rows)
    except ConfigurationError:
        raise
    except Exception:  # noqa: BLE001 - a function of any profile; a row that it cannot take costs that row alone
        return None


def may_fire(trigger: Trigger) -> bool:
    """Whether a trigger may fire again, if it is enabled: any but one for a single fire, which is over."""
    return trigger.kind != "one_time" or trigger.next_fire_at is not None


def stated_trigger(
    profile: Profile,
    context: Context,
    collection: Collection,
    schedule: Schedule,
    triggers: Iterable[Trigger],
    before: Rows = (),
) -> Trigger | None:
    """Return the trigger of a schedule that its document in ``collection`` states; None if it can state none.

    The trigger that the document states now (``before``: the rows that it makes) comes first. Not for a source whose
    documents are those of our own store.
    """
    was = next((row for row in before if isinstance(row, Trigger)), None)
    for trigger in sorted(triggers, key=lambda one: (one.source is None, not one.enabled, one.id)):
        if was is not None and was.id == trigger.id and has_rule_of(trigger, was):
            return trigger
        read = _read_with(profile, context, collection, schedule, trigger)
        if is_of_tenant(read, schedule) and says_trigger(read, trigger):
            return trigger
    return None


def is_of_tenant(read: Rows, row: Record) -> bool:
    """Whether rows of a document belong to the tenant of a stored row."""
    return bool(read) and read[0].tenant_id == row.tenant_id  # type: ignore[attr-defined] # every table has one


def has_rule_of(trigger: Trigger, other: Trigger) -> bool:
    """Whether two triggers have the same columns that say when they fire."""
    return all(getattr(trigger, name) == getattr(other, name) for name in RULE)


def unstated(
    profile: Profile, context: Context, schedule: Schedule, triggers: Sequence[Trigger], before: Rows = ()
) -> tuple[str, ...]:
    """Return the part of a schedule and its triggers that documents of a source cannot state; empty if there is none.

    Asked is only when the schedule fires. Each reason is a predicate of the schedule, such as ``would not fire for a
    trigger of kind interval: its document states another, or none``; reasons name no values. The answer follows from
    the arguments alone and holds for every state of the schedule: it is asked before a schedule is made (``before`` is
    empty) and before a rollback.

    ``triggers``: all of the schedule; those that are over do not count. ``context``: as the source is configured
    (``sources.context_of``), since a document may name no tenant and no zone. ``before``: the rows that the document
    makes as it is now. A rule that nobody changed is stated, however it is spelled. Without them, the bounds of a
    schedule that came from a document count as stated.

    >>> unstated(load_profile("celerybeat"), context, schedule, [one_time])
    ('would not fire for a trigger of kind one_time: its document states another, or none',)
    """
    if profile.kept_by_store:
        return own_documents.unstated(schedule, triggers)
    home = home_of(profile, schedule)
    if home is None:
        return ("would not fire: no collection holds schedules that were made on PostgreSQL",)
    if Trigger not in home.tables:
        return ()  # triggers have documents of their own
    waiting = [trigger for trigger in triggers if may_fire(trigger)]
    stated = stated_trigger(profile, context, home, schedule, waiting, before)
    reasons = [_why_not(profile, context, home, schedule, one) for one in waiting if one is not stated]
    if stated is not None and (before or schedule.source is None):
        reasons += _without_bounds(_read_with(profile, context, home, schedule, stated, before), stated, before)
    elif not waiting:
        read = _read_with(profile, context, home, schedule, None)
        reasons += [NO_DOCUMENT] if not read else [] if is_of_tenant(read, schedule) else [NO_TENANT]
    return tuple(dict.fromkeys(reasons))


NO_DOCUMENT: Final = "would not be there: its columns make no document that can be read again"
NO_TENANT: Final = "would not fire: no document can name its tenant"


def sample_trigger(profile: Profile, context: Context, schedule: Schedule) -> Trigger | None:
    """Return a trigger of a schedule that its document can state, for a trial; None if there is none."""
    for kind, columns in _CAUSES.items():
        for dialect in _DIALECTS if kind == "cron" else (None,):
            zone = {"timezone": context.zone or "UTC"} if kind == "cron" else {}
            trigger = Trigger(
                id=schedule.id,
                tenant_id=schedule.tenant_id,
                schedule_id=schedule.id,
                kind=kind,
                cron_dialect=dialect,
                **{**columns, **zone},
            )
            if not unstated(profile, context, schedule, [trigger]):
                return trigger
    return None


def home_of(profile: Profile, schedule: Schedule) -> Collection | None:
    """Return the collection that has, or would have, the document of a schedule; None if there is none."""
    if schedule.source is None:
        return holder(profile, Schedule)
    return profile.by_name().get(schedule.source.rpartition("/")[2])


def _read_with(
    profile: Profile,
    context: Context,
    collection: Collection,
    schedule: Schedule,
    trigger: Trigger | None,
    before: Rows = (),
) -> Rows:
    """Return the rows to which the document of a schedule with one trigger is decoded."""
    rows = of_document(profile, collection, (schedule,) if trigger is None else (schedule, trigger))
    try:
        document = encoded(collection, fitted(collection, context, rows, before))
    except Exception:  # noqa: BLE001 - ``adapt`` is a function of any profile, as ``encode`` is
        return ()
    return () if document is None else decoded(collection, context, document)


def _why_not(profile: Profile, context: Context, collection: Collection, schedule: Schedule, trigger: Trigger) -> str:
    """Return why the document of a schedule does not state a trigger."""
    read = _read_with(profile, context, collection, schedule, trigger)
    if read and not is_of_tenant(read, schedule):
        return NO_TENANT
    if not read and not _read_with(profile, context, collection, schedule, None):
        return NO_DOCUMENT
    if trigger.kind != "cron":
        return f"would not fire for a trigger of kind {trigger.kind}: its document states another, or none"
    return (
        f"would not fire for a cron line of the dialect {trigger.cron_dialect}: its document cannot say when that line"
        f" fires in its zone{_remedy(profile, context, collection, schedule, trigger, read)}"
    )


def _remedy(
    profile: Profile, context: Context, collection: Collection, schedule: Schedule, trigger: Trigger, read: Rows
) -> str:
    """Return in which dialect the document could state the line of a trigger: in that in which it is read again."""
    again = next((row for row in read if isinstance(row, Trigger)), None)
    if again is None or again.cron_dialect is None or not _takes(trigger, again.cron_dialect):
        return ""
    other = msgspec.structs.replace(trigger, cron_dialect=again.cron_dialect)
    able = says_trigger(_read_with(profile, context, collection, schedule, other), other)
    return f"; it can in the dialect {again.cron_dialect}" if able else ""


def _takes(trigger: Trigger, dialect: str) -> bool:
    try:
        cron.validate(dialect, trigger.cron_expression or "", trigger.timezone)
    except cron.CronError:
        return False
    return True


def _without_bounds(read: Rows, trigger: Trigger, before: Rows) -> Iterator[str]:
    """Yield which bounds of a trigger its document does not state."""
    again = next((row for row in read if isinstance(row, Trigger)), None)
    was = next((row for row in before if isinstance(row, Trigger)), None)
    for name in _BOUNDS:
        bound = getattr(trigger, name)
        if bound is None or (was is not None and getattr(was, name) == bound):
            continue
        if name == "start_at" and trigger.last_fire_at is not None and trigger.last_fire_at >= bound:
            continue  # it has begun
        if again is None or getattr(again, name) != bound:
            yield f"would fire without its {name}: its document has no field for it"


def place(document: Document, path: str, value: object) -> None:
    """Write a value at a field path of a document."""
    *parents, name = path.split(".")
    for parent in parents:
        document = document.setdefault(parent, {})
    document[name] = value


def says_trigger(read: Rows, trigger: Trigger) -> bool:
    """Whether rows of a document hold a trigger that fires when this one fires."""
    read_trigger = next((row for row in read if isinstance(row, Trigger)), None)
    if read_trigger is None or read_trigger.kind != trigger.kind or read_trigger.event_name != trigger.event_name:
        return False
    if trigger.kind == "one_time":
        return read_trigger.run_at in (trigger.run_at, trigger.next_fire_at)
    if trigger.kind != "cron":
        return read_trigger.interval_ms == trigger.interval_ms
    if (read_trigger.timezone or "UTC") != (trigger.timezone or "UTC"):
        return False  # the document cannot say in which zone, or says another
    return read_trigger.cron_expression == trigger.cron_expression and fires_alike(
        read_trigger.cron_dialect or "", trigger.cron_dialect or "", trigger.cron_expression or "", trigger.timezone
    )


class _Probes:
    """Rows as the scheduler writes them, tried on one source."""

    def __init__(self, profile: Profile) -> None:
        self._profile = profile
        self._kinds: dict[str, bool] = {}

    def faults(self) -> Iterator[str]:
        """Yield why a cutover must be refused."""
        if MONGODB not in self._profile.servers:
            yield "the source is not in MongoDB, and nothing is written back into tables of another application"
            return
        if self._profile.read_only:
            yield self._profile.read_only
            return
        schedules = holder(self._profile, Schedule)
        if schedules is None:
            yield "no collection holds schedules, so what is scheduled in PostgreSQL could not be written back"
            return
        if holder(self._profile, Trigger) is None:
            yield "no collection holds triggers, so when a schedule fires could not be written back"
        for status in states.SCHEDULE:
            yield from self._schedule_faults(schedules, status)
        yield from self._faults_of_others()
        if holder(self._profile, Trigger) is not None and not any(self.holds_kind(kind) for kind in _CAUSES):
            yield "a trigger created in PostgreSQL could not be written back: no kind of trigger leads to a document"

    def _faults_of_others(self) -> Iterator[str]:
        runs = holder(self._profile, Run)
        if runs is not None and runs.tables[0] is Run:
            for state in states.RUN:
                yield from self._run_faults(runs, state)
        for record in self._held():
            collection = holder(self._profile, record)
            if record not in (Schedule, Run, Trigger) and collection is not None:
                yield from self._faults_of_row(collection, self._minimal(record), f"a row of {record.table}")

    def _schedule_faults(self, collection: Collection, status: str) -> Iterator[str]:
        row = self._minimal(Schedule, status=status)
        description = f"a schedule in the state {status}"
        yield from self._faults_of_row(collection, row, description)
        if status in states.SCHEDULE_FIRING:
            return
        read = self._tried(collection, self._with_trigger(collection, row))
        if isinstance(read, tuple) and read and fires(read):
            yield (
                f"{collection.name}: {description} would fire again: no field holds schedules.status or"
                " schedules.enabled"
            )

    def _run_faults(self, collection: Collection, state: str) -> Iterator[str]:
        row, description = self._minimal(Run, state=state), f"a run in the state {state}"
        if state not in _NOT_BEGUN:
            yield from self._faults_of_row(collection, row, description)
        read = self._read_row(collection, Run, row)
        again = read.state if isinstance(read, Run) else state
        if states.is_terminal(states.RUN, state) and not states.is_terminal(states.RUN, again):
            yield f"{collection.name}: {description} would come back as {again}, as if it had not ended"

    def _faults_of_row(self, collection: Collection, row: Record, description: str) -> Iterator[str]:
        read = self._tried(collection, (row,))
        if isinstance(read, Rejected):
            at = f" at {read.path}" if read.path else ""
            yield (
                f"{collection.name}: {description} cannot be written back: {read.reason}{at}, expected {read.expected}"
            )

    def losses(self) -> Iterator[str]:
        """Yield the columns that have no place in documents."""
        lost = [
            record.table
            for record in ALL
            if record not in NOT_CARRIED and issubclass(record, SourcedRecord) and holder(self._profile, record) is None
        ]
        if lost:
            yield f"rows of {', '.join(sorted(lost))}: no collection holds them"
        triggers, runs = holder(self._profile, Trigger), holder(self._profile, Run)
        if triggers is not None and triggers.tables[0] is Schedule:
            yield "all but one trigger of a schedule"
        if runs is not None and runs.tables[0] is Schedule:
            yield "all but the last run of a schedule"
        if kinds := [kind for kind in _CAUSES if triggers is not None and not self.holds_kind(kind)]:
            yield f"triggers of the kind {', '.join(kinds)}"
        yield from self._respelled(Schedule, "status", tuple(states.SCHEDULE))
        if runs is not None and runs.tables[0] is Run:
            yield from self._respelled(Run, "state", tuple(states.RUN))
            if waiting := [
                one for one in _NOT_BEGUN if self._read_row(runs, Run, self._minimal(Run, state=one)) is None
            ]:
                yield f"runs in the state {', '.join(waiting)}, which have not begun"
        for record in self._held():
            kept = self.carried(record)
            if gone := [name for name in _columns(record) if name not in kept]:
                yield f"columns of {record.table}: {', '.join(gone)}"

    def _respelled(self, record: type[Record], column: str, words: Sequence[str]) -> Iterator[str]:
        """Yield the words of a state that come back as another."""
        collection = holder(self._profile, record)
        for word in words if collection is not None else ():
            row = self._minimal(record, **{column: word})
            read = self._tried(collection, self._with_trigger(collection, row))  # type: ignore[arg-type] # not None
            again = getattr(read[0], column) if isinstance(read, tuple) and read else word
            if again != word:
                yield f"{record.table}.{column}: {word} comes back as {again}"

    def carried(self, record: type[Record]) -> tuple[str, ...]:
        """Return the columns of a table that come back from a document."""
        collection = holder(self._profile, record)
        if collection is None:
            return ()
        return tuple(name for name in _columns(record) if self._comes_back(collection, record, name))

    def _held(self) -> list[type[Record]]:
        return [record for record in ALL if record not in NOT_CARRIED and holder(self._profile, record) is not None]

    def _comes_back(self, collection: Collection, record: type[Record], name: str) -> bool:
        """Whether a value of a column, other than the one that is there without it, comes back."""
        if record is Trigger and name in _causes():
            return self.holds_kind(_causes()[name])
        if any((one.record, one.column) == (record, name) and one.path for one in collection.references):
            return True
        if name in ("schedule_id", "trigger_id") and collection.tables[0] is Schedule:
            return True  # follows from the document
        for around in _AROUND.get(record, ({},)):
            around = {key: value for key, value in around.items() if key != name}  # noqa: PLW2901 - without the column
            plain = self._read_row(collection, record, self._minimal(record, **around))
            for value in _candidates(record, name):
                if plain is not None and getattr(plain, name) == value:
                    continue
                found = self._read_row(collection, record, self._minimal(record, **around, **{name: value}))
                if found is not None and getattr(found, name) == value:
                    return True
        return False

    def _with_trigger(self, collection: Collection, row: Record) -> Rows:
        """Return a row, and for a schedule the trigger that its document holds."""
        if type(row) is not Schedule or holder(self._profile, Trigger) is not collection:
            return (row,)
        return row, self._minimal(Trigger)

    def _read_row(self, collection: Collection, record: type[Record], row: Record) -> Record | None:
        rows: Rows = (row,) if collection.tables[0] is record else (self._minimal(Schedule), row)
        read = self._tried(collection, rows)
        return None if isinstance(read, Rejected) else next((one for one in read if type(one) is record), None)

    def holds_kind(self, kind: str) -> bool:
        """Whether a trigger of a kind comes back, for a cron line: in any dialect."""
        if kind not in self._kinds:
            self._kinds[kind] = self._is_kind_held(kind)
        return self._kinds[kind]

    def _is_kind_held(self, kind: str) -> bool:
        collection = holder(self._profile, Trigger)
        if collection is None:
            return False
        for dialect in _DIALECTS if kind == "cron" else (None,):
            trigger = Trigger(
                id=_ID,
                tenant_id=_TENANT,
                schedule_id=_ID,
                kind=kind,
                cron_dialect=dialect,
                **_CAUSES[kind],
            )
            rows: Rows = (trigger,) if collection.tables[0] is Trigger else (self._minimal(Schedule), trigger)
            read = self._tried(collection, rows)
            if isinstance(read, tuple) and says_trigger(read, trigger):
                return True
        return False

    def _tried(self, collection: Collection, rows: Rows) -> Rows | Rejected:
        """Return the rows that come back when rows are encoded, and decoded again."""
        last = next((row for row in rows if isinstance(row, Run)), None)
        history = RunHistory(last=last, begun=1) if last is not None else RunHistory()
        rows = of_document(self._profile, collection, rows)
        try:
            document = collection.encode(fitted(collection, _CONTEXT, rows, (), history))
        except Exception as error:  # noqa: BLE001 - a function of any profile, which may expect rows of its own only
            return Rejected("not-round-trip", "", f"an encode that takes such a row ({type(error).__name__})")
        for one in collection.references:
            if one.path and any(type(row) is one.record and getattr(row, one.column) is not None for row in rows):
                place(document, one.path, ObjectId(b"probe-probe-"[:12]))
        try:
            return collection.decode(documents.decode(documents.encode(document)), _CONTEXT).rows
        except Rejected as error:
            return error
        except Skipped:
            return ()

    def _minimal(self, record: type[Record], **columns: Any) -> Any:  # noqa: ANN401 - a record of this type
        """Return a row as the scheduler writes it, as far as it must."""
        values: dict[str, Any] = {"id": _ID, "tenant_id": _TENANT}
        if record is Trigger:
            kind = next((kind for kind in _CAUSES if self.holds_kind(kind)), "cron")
            values |= {"schedule_id": _ID, "kind": kind, "cron_dialect": "debian" if kind == "cron" else None}
            values |= _CAUSES[kind]
        elif record in _MINIMAL:
            values |= _MINIMAL[record]
        else:
            needed = (one.name for one in msgspec.structs.fields(record) if one.required and one.name not in values)
            values |= {name: _candidates(record, name)[0] for name in needed}
        values |= columns
        if record is Run and values["state"] not in _NOT_BEGUN:
            values.setdefault("started_at", _NOW)
            if values["state"] != "running":
                values.setdefault("finished_at", _LATER)
        return record(**values)


def _causes() -> Mapping[str, str]:
    return {**constraints.CAUSES, "cron_dialect": "cron"}


def _columns(record: type[Record]) -> list[str]:
    return [name for name in record.__struct_fields__ if name not in _UNSAID]


def _candidates(record: type[Record], name: str) -> Sequence[Any]:
    """Return values that a column may hold."""
    if name == "timezone":
        return ("Europe/Vienna", "UTC")
    listed = constraints.WORDS.get(f"{record.table}.{name}")
    if listed is not None:
        return listed
    return _VALUES.get(copy_format.column_types(record)[name], ("probe", "other"))
