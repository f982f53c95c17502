"""The assessment of a database by one address: which sources it holds, what would move, and what comes next.

It needs no configuration and no target, and writes nothing. Documents are transformed as the copy does it, a sample of
each large collection, and counted by what they would become. References are not looked up.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec
from bson.raw_bson import DEFAULT_RAW_BSON_OPTIONS, RawBSONDocument
from pymongo.errors import ExecutionTimeout, OperationFailure, PyMongoError
from pymongo.read_preferences import SecondaryPreferred

from migrator import __version__, states
from migrator.config import CopySettings, MongoSettings, Settings
from migrator.connections import mongo
from migrator.connections.mongo import UNAUTHORIZED, MongoDatabase, first_line, translate_errors
from migrator.connections.server_product import SourceServer, source_server
from migrator.cutover import fence, server_gates
from migrator.cutover.server_gates import Gate, evaluate
from migrator.cutover.write_pause import FENCE_S, STEPS_S
from migrator.errors import ConfigurationError, RefusedError
from migrator.pipeline import history as history_scope
from migrator.pipeline.census import ChunkCensus, CollectionCensus, count_documents, merged
from migrator.pipeline.extract import (
    ORDINARY_COLLECTION,
    OWN_COLLECTION,
    SYSTEM_PREFIX,
    SourceCollection,
    batch_documents,
    draw,
    sized,
)
from migrator.pipeline.plan import DOCUMENTS_PER_SECOND, copy_seconds
from migrator.pipeline.tail.positions import oplog_history
from migrator.pipeline.transform import SourceDocument
from migrator.records import AuditEntry, ExecutionLog, Lock, Run, Schedule, Trigger
from migrator.redaction import redact
from migrator.scheduler import firing
from migrator.sources import history as history_rule
from migrator.sources import installed_sources
from migrator.sources.profile import Collection, Context, Profile, Rows
from migrator.sources.recognition import RecognisedSource, recognise
from migrator.sources.write_back import write_back
from migrator.states import SCHEDULE_FIRING, is_terminal
from migrator.targets import native_targets
from migrator.targets.model import SCHEDULER
from migrator.telemetry import say

LOOKED_AT: Final = 20
"""Documents of each collection by which a source is recognised."""
MOST_BYTES: Final = 64_000_000
"""Bytes of a sample, which is held in memory."""
TENANT: Final = "default"
"""The tenant of documents that name none, as ``[source] default_tenant`` is proposed."""
NO_TENANT, NO_ZONE = "no-tenant", "no-zone"
"""Reasons of documents that a setting would let in."""
EXPIRED: Final = "expired lock"
AGES: Final = {
    "up to 7 days": timedelta(days=7),
    "7 to 30 days": timedelta(days=30),
    "30 to 90 days": timedelta(days=90),
    "90 days to a year": timedelta(days=365),
    "over a year": timedelta.max,
}
"""Words for the age of finished work to the age that is beyond it."""
NO_DATE: Final = "without a date"
HISTORY: Final = "30d"
"""The value of ``copy.history`` of which is said what it would leave out."""
ENDED_SCHEDULES: Final = ("completed", "failed", "cancelled")
COPY_BASIS: Final = (
    f"an estimate, from a measured rate of {DOCUMENTS_PER_SECOND:,} documents of 1 KB a second and worker, on another"
    " machine than yours"
)
PAUSE_BASIS: Final = (
    "an estimate, measured on the small demo; to it comes the comparison of what changed since the last parity check:"
    " migrator cutover plan computes it from the rate of your parity check"
)
NO_SOURCE: Final = "none known: describe it with migrator source draft"


class AssessmentLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What an assessment may cost the server."""

    sample: int = 10_000
    """Documents that are read of one collection; a larger one is sampled."""
    seconds: float = 60.0
    """Seconds after which no collection is begun, and the one that is read is left."""


class CollectionAssessment(msgspec.Struct, frozen=True, kw_only=True):
    """One collection of a source, as far as it was read."""

    collection: str
    name: str
    """Of the database."""
    documents: int
    """As the server counts them."""
    bytes: int
    read: int = 0
    whole: bool = False
    """Every document was read."""
    unread: str = ""
    """Why it was not read, or not to the end of the sample; empty if it was."""
    moves: int = 0
    clean: int = 0
    """Of those that move: the columns hold all of it."""
    quarantined: int = 0
    skipped: dict[str, int] = msgspec.field(default_factory=dict)
    counted: CollectionCensus
    history: dict[str, int] = msgspec.field(default_factory=dict)
    """Age to documents that say of work that has ended; all ages together are at most ``moves``."""
    history_left_out: int | None = 0
    """Documents that ``copy.history`` of ``HISTORY`` would leave out, as the server counts them by the rule of the
    copy; of a sample, as many as the collection has. None: not counted."""
    has_history: bool = False
    """The rule of ``copy.history`` is for this collection."""

    @property
    def share(self) -> str:
        """Say how much of it was read."""
        if self.whole:
            return "all"
        return f"{self.read:,} of {self.documents:,}"

    @property
    def factor(self) -> float:
        """Return how many documents of the collection each one that was read stands for."""
        return 1.0 if self.whole or not self.read else self.documents / self.read

    @property
    def left_out(self) -> int:
        """Documents that a rule leaves out."""
        return sum(self.skipped.values())

    @property
    def ended(self) -> int:
        """Documents that say of work that has ended."""
        return sum(self.history.values())


class TargetOffer(msgspec.Struct, frozen=True, kw_only=True):
    """A target that can be had for a source."""

    name: str
    title: str
    cutover: str
    """Whether the tool moves the writers, in words."""


class SourceAssessment(msgspec.Struct, frozen=True, kw_only=True):
    """A recognised source."""

    recognised: RecognisedSource
    title: str
    collections: tuple[CollectionAssessment, ...]
    missing: tuple[str, ...]
    """Collections of the source that the database does not have."""
    default_tenant: str | None
    """What was assumed for documents that name no tenant; None: nothing had to be."""
    zones: dict[str, int]
    """Zones that triggers name."""
    needs_zone: int
    """Documents whose meaning depends on a zone that nobody stated."""
    overdue: int
    """Triggers that should have fired already."""
    locks_live: int
    locks_stale: int
    running: int
    """Runs that are being executed, by their documents."""
    running_over: int
    """Of these, runs whose lease is over."""
    targets: tuple[TargetOffer, ...]
    copy_seconds: int

    @property
    def totals(self) -> dict[str, int]:
        """Return the documents of all collections: read, and what would become of them."""
        return {
            "read": sum(one.read for one in self.collections),
            "moves": sum(one.moves for one in self.collections),
            "quarantined": sum(one.quarantined for one in self.collections),
            "left out": sum(one.left_out for one in self.collections),
        }

    @property
    def history(self) -> dict[str, int]:
        """Return the documents that say of work that has ended, by age; of a sample, as many as the collection has."""
        ages = Counter[str]()
        for one in self.collections:
            ages.update({age: round(count * one.factor) for age, count in one.history.items()})
        return {age: ages[age] for age in (*AGES, NO_DATE) if ages[age]}

    @property
    def history_left_out(self) -> dict[str, int | None]:
        """Return the documents that ``copy.history`` would leave out, by collection that it is for."""
        return {one.name: one.history_left_out for one in self.collections if one.has_history}

    @property
    def expected_moves(self) -> int:
        """Return the documents that would move; of a sample, as many as the collection has."""
        return sum(round(one.moves * one.factor) for one in self.collections)

    @property
    def is_whole(self) -> bool:
        """Whether every document was read."""
        return all(one.whole for one in self.collections)


class OtherCollection(msgspec.Struct, frozen=True, kw_only=True):
    """A collection that no recognised source reads."""

    name: str
    kind: str
    documents: int | None
    """None: the user may not count them."""


class Assessment(msgspec.Struct, frozen=True, kw_only=True):
    """What a database holds, and what follows."""

    tool_version: str
    database: str
    as_of: datetime
    server: SourceServer
    features: dict[str, str]
    """Words for a feature of the server to yes, no or unknown, with the reason."""
    gates: tuple[Gate, ...]
    sources: tuple[SourceAssessment, ...]
    others: tuple[OtherCollection, ...]
    limits: AssessmentLimits
    over: bool
    """The time limit was reached."""
    write_pause_seconds: float = FENCE_S + STEPS_S
    history_setting: str = HISTORY
    copy_basis: str = COPY_BASIS
    pause_basis: str = PAUSE_BASIS
    commands: tuple[str, ...] = ()
    config: str = ""
    """The text of a configuration file."""

    @property
    def unread(self) -> list[CollectionAssessment]:
        """Return the collections that were not read as they should have been."""
        return [one for source in self.sources for one in source.collections if one.unread]

    @property
    def quarantined(self) -> int:
        """Return the documents that were read and would be quarantined."""
        return sum(one.totals["quarantined"] for one in self.sources)

    @property
    def is_unverified(self) -> bool:
        """Whether something was left open; a sample leaves nothing open, because it is what was asked for."""
        return not self.sources or self.over or bool(self.unread)


def assess(uri: str, database: str | None, limits: AssessmentLimits, config_path: str = "config.toml") -> Assessment:
    """Assess the database at an address; writes nothing.

    Raises ``ConfigurationError`` for what is no address or names no database, ``RefusedError`` for an empty database,
    and ``UnreachableError``.
    """
    began = time.monotonic()
    source = _opened(uri, database)
    try:
        with translate_errors("the source"):
            # a source of several members is not loaded where its writers are, if another one answers
            reading = source.with_options(read_preference=SecondaryPreferred())
            reader = _DatabaseReader(reading, limits, began)
            return _complete(source, reader, reader.sources(), uri, config_path)
    finally:
        source.client.close()


def _opened(uri: str, database: str | None) -> MongoDatabase:
    try:
        return mongo.open_source(Settings(mongo=MongoSettings(uri=uri, database=database)))
    except ConfigurationError as error:
        words = str(error).replace("mongo.database is not set and mongo.uri", "--database is not given and the address")
        raise ConfigurationError(
            words.replace("mongo.uri", "the address").replace("mongo.database", "--database")
        ) from None


class _Seen:
    """Counts what rows say of the state of a scheduler."""

    def __init__(self, as_of: datetime) -> None:
        self._as_of = as_of
        self.zones = Counter[str]()
        self.overdue = self.locks_live = self.running = self.running_over = 0

    def add(self, rows: Rows) -> None:
        """Add the rows of one document."""
        schedule = next((row for row in rows if isinstance(row, Schedule)), None)
        for row in rows:
            if isinstance(row, Trigger):
                self.zones.update([row.timezone] if row.timezone else [])
                self.overdue += self._is_overdue(row, schedule)
            elif isinstance(row, Lock):
                self.locks_live += row.expires_at is None or row.expires_at > self._as_of
            elif isinstance(row, Run) and row.state == "running":
                self.running += 1
                self.running_over += row.lease_expires_at is not None and row.lease_expires_at < self._as_of

    def _is_overdue(self, trigger: Trigger, schedule: Schedule | None) -> bool:
        fires = schedule is None or (
            schedule.enabled and schedule.deleted_at is None and schedule.status in SCHEDULE_FIRING
        )
        due = trigger.next_fire_at
        return fires and trigger.enabled and due is not None and due + firing.GRACE < self._as_of


def ended_at(rows: Rows) -> tuple[bool, datetime | None]:
    """Whether a document says of work that has ended, and when that was. Pure."""
    first = rows[0]
    if isinstance(first, ExecutionLog):
        return True, first.logged_at
    if isinstance(first, AuditEntry):
        return True, first.occurred_at
    if isinstance(first, Run):
        return is_terminal(states.RUN, first.state), first.finished_at or first.updated_at or first.created_at
    if isinstance(first, Schedule) and first.status in ENDED_SCHEDULES:
        runs = [row.finished_at for row in rows if isinstance(row, Run) and row.finished_at is not None]
        waits = any(isinstance(row, Trigger) and row.enabled and row.next_fire_at is not None for row in rows)
        return not waits, max(runs, default=first.updated_at or first.created_at)
    return False, None


def age_of(at: datetime | None, as_of: datetime) -> str:
    """Return the words for the age of something that ended at a time. Pure."""
    if at is None:
        return NO_DATE
    return next(words for words, beyond_it in AGES.items() if as_of - at <= beyond_it)


class _DatabaseReader:
    """Reads a database within limits."""

    def __init__(self, source: MongoDatabase, limits: AssessmentLimits, began: float) -> None:
        self.source, self.limits = source, limits
        self._until = began + limits.seconds
        self.over = False
        self.as_of = mongo.server_time(source)
        self.kinds = self._listed()

    def _listed(self) -> dict[str, str]:
        """Return the collections of the database with their kinds."""
        listed: Any
        try:
            listed = list(self.source.list_collections(nameOnly=True, authorizedCollections=True))
        except OperationFailure:  # a product may not know the option
            listed = list(self.source.list_collections(nameOnly=True))
        names = {one["name"]: str(one.get("type", ORDINARY_COLLECTION)) for one in listed}
        kinds = {name: kind for name, kind in sorted(names.items()) if not _is_servers_own(name)}
        if not kinds:
            raise RefusedError(
                f"database {self.source.name} has no collection that this user may see: it is empty, or does not"
                f" exist{self._others()}"
            )
        return kinds

    def _others(self) -> str:
        """Name the other databases of the server, as far as the user may see them."""
        try:
            names = self.source.client.list_database_names()
        except PyMongoError:
            return ""
        others = [name for name in names if name not in {"admin", "config", "local", self.source.name}]
        return f"; the server has: {', '.join(others[:10])}" if others else ""

    def left_ms(self) -> int:
        """Return the milliseconds that are left of the time limit; 0: it is over."""
        left = max(0, int((self._until - time.monotonic()) * 1000))
        self.over = self.over or not left
        return left

    def sources(self) -> list[SourceAssessment]:
        """Return the sources that are recognised, each with its collections."""
        installed = tuple(installed_sources())
        samples: dict[str, list[bytes]] = {}
        for name, kind in self.kinds.items():
            if kind == ORDINARY_COLLECTION and self.left_ms():
                samples[name] = self._first_documents(name)
        names = {name: list(map(_fields, raws)) for name, raws in samples.items()}
        profiles = dict(installed)
        return [self._source(profiles[one.profile], one, samples) for one in recognise(installed, names)]

    def _first_documents(self, name: str) -> list[bytes]:
        raw = self.source.get_collection(name, codec_options=DEFAULT_RAW_BSON_OPTIONS)
        try:
            return [one.raw for one in raw.find({}, limit=LOOKED_AT, max_time_ms=self.left_ms() or 1)]  # type: ignore[attr-defined] # a RawBSONDocument
        except OperationFailure:
            return []  # that it cannot be read is said where it is read

    def _source(
        self, profile: Profile, recognised: RecognisedSource, samples: Mapping[str, list[bytes]]
    ) -> SourceAssessment:
        names = {one.name: recognised.collections.get(one.name, one.name) for one in profile.collections}
        present = [one for one in profile.collections if self.kinds.get(names[one.name]) == ORDINARY_COLLECTION]
        tenant = self._tenant(present, names, samples)
        before = history_scope.cutoff(Settings(copy=CopySettings(history=HISTORY)), profile, self.as_of, ())
        context = Context(as_of=self.as_of, default_tenant=tenant, history_before=before)
        seen = _Seen(self.as_of)
        sizes: list[SourceCollection] = []
        collections = tuple(self._collection(one, names[one.name], context, seen, sizes) for one in present)
        reasons = Counter[str]()
        for one in collections:
            for reason in one.counted.quarantine:
                reasons[reason.kind] += reason.documents
        return SourceAssessment(
            recognised=recognised,
            title=profile.documents or profile.name,
            collections=collections,
            missing=tuple(one.name for one in profile.collections if one not in present),
            default_tenant=tenant,
            zones=dict(sorted(seen.zones.items())),
            needs_zone=reasons[NO_ZONE],
            overdue=seen.overdue,
            locks_live=seen.locks_live,
            locks_stale=sum(one.skipped.get(EXPIRED, 0) for one in collections),
            running=seen.running,
            running_over=seen.running_over,
            targets=tuple(_offers(profile)),
            copy_seconds=copy_seconds(sizes, CopySettings()),
        )

    def _tenant(
        self, present: Sequence[Collection], names: Mapping[str, str], samples: Mapping[str, list[bytes]]
    ) -> str | None:
        """Return the tenant that has to be assumed, because documents name none."""
        context = Context(as_of=self.as_of)
        for one in present:
            part = ChunkCensus(collection=one.name)
            for _ in count_documents(one, context, b"".join(samples.get(names[one.name], ())), part):
                pass
            without = sum(count for (reason, _), count in part.quarantine.items() if reason == NO_TENANT)
            if without and without * 2 >= part.documents:  # a few are documents that are broken
                return TENANT
        return None

    def _collection(
        self, collection: Collection, name: str, context: Context, seen: _Seen, sizes: list[SourceCollection]
    ) -> CollectionAssessment:
        part, history = ChunkCensus(collection=collection.name), Counter[str]()
        size = SourceCollection(collection=collection, name=name, documents=0, average_bytes=0)
        unread, left_out = "", None
        say(f"assess: {name}", level="debug")
        try:
            size = sized(self.source, collection, name)
            for document in self._documents(size, context, part):
                if document.rows and document.rejected is None:
                    seen.add(document.rows)
                    ended, at = ended_at(document.rows)
                    history.update([age_of(at, self.as_of)] if ended else [])
            left_out = self._left_out(size, context)
            unread = "" if self.left_ms() else "the time limit was reached"
        except ExecutionTimeout:
            self.over, unread = True, "the time limit was reached"
        except OperationFailure as error:
            denied = error.code == UNAUTHORIZED
            unread = "the user may not read it" if denied else f"the server refused: {first_line(error)}"
        sizes.append(size)
        whole = not unread and size.documents <= self.limits.sample
        quarantined, skipped = part.quarantine.total(), part.skipped.total()
        return CollectionAssessment(
            collection=collection.name,
            name=name,
            documents=part.documents if whole else size.documents,
            bytes=part.bytes if whole else round(size.documents * size.average_bytes),
            read=part.documents,
            whole=whole,
            unread=unread,
            moves=part.documents - quarantined - skipped,
            clean=part.clean,
            quarantined=quarantined,
            skipped=dict(sorted(part.skipped.items())),
            counted=merged(size, [part]),
            history={age: history[age] for age in (*AGES, NO_DATE) if history[age]},
            history_left_out=left_out,
            has_history=collection.history is not None,
        )

    def _left_out(self, size: SourceCollection, context: Context) -> int | None:
        """Return how many documents of a collection the rule of the copy leaves out; None if there is no time left."""
        condition = history_rule.left_out(size.collection, context.history_before)
        if not condition:
            return 0
        if not self.left_ms():
            return None
        drawn = size.documents > self.limits.sample
        stages: list[dict[str, Any]] = [{"$sample": {"size": self.limits.sample}}] if drawn else []
        stages += [{"$match": condition}, {"$group": {"_id": None, "documents": {"$sum": 1}}}]
        groups = list(self.source[size.name].aggregate(stages, allowDiskUse=True, maxTimeMS=self.left_ms() or 1))
        counted: int = groups[0]["documents"] if groups else 0
        return round(counted * size.documents / self.limits.sample) if drawn else counted

    def _documents(self, size: SourceCollection, context: Context, part: ChunkCensus) -> Iterator[SourceDocument]:
        """Yield the documents of a collection as they are transformed: all, or a sample of a large one."""
        if not self.left_ms():
            return
        if size.documents <= self.limits.sample:
            raws = self.source[size.name].find_raw_batches(
                {}, batch_size=batch_documents(size.average_bytes), max_time_ms=self.left_ms() or 1
            )
            batches: Any = raws
        else:
            most = max(1, min(self.limits.sample, int(MOST_BYTES / max(size.average_bytes, 1.0))))
            batches = [b"".join(draw(self.source, size.name, most, self.left_ms() or 1))]
        for batch in batches:
            yield from count_documents(size.collection, context, bytes(batch), part)
            if not self.left_ms():
                return


def _fields(raw: bytes) -> dict[str, Any]:
    """Return the names of a document's own fields; none of one that cannot be read."""
    try:
        return dict.fromkeys(RawBSONDocument(raw))
    except Exception:  # noqa: BLE001 - whatever BSON cannot be read says nothing of the source
        return {}


def _is_servers_own(name: str) -> bool:
    return name.startswith(SYSTEM_PREFIX) or name == OWN_COLLECTION


def _offers(profile: Profile) -> Iterator[TargetOffer]:
    """Yield the targets that can be had for a source."""
    faults = write_back(profile).faults
    moves = "cutover and rollback" if not faults else "no cutover by the tool: it could not be rolled back"
    yield TargetOffer(name=SCHEDULER, title="the tool's own schema", cutover=moves)
    for target in native_targets():
        if profile.name in target.mappings:
            yield TargetOffer(
                name=target.name, title=target.title or target.name, cutover="docs/targets.md says how writers move"
            )


def _complete(
    source: MongoDatabase, reader: _DatabaseReader, sources: Sequence[SourceAssessment], uri: str, config_path: str
) -> Assessment:
    """Return the assessment with what is known of the server, and what comes next."""
    server = source_server(source)
    survey: list[Callable[[], Gate]] = [
        lambda: evaluate("server product", lambda: server_gates.server_product(source)),
        lambda: evaluate("replica set", lambda: server_gates.replica_set(source)),
        lambda: evaluate("history", lambda: server_gates.oplog(oplog_history(source))),
        lambda: evaluate("fence", lambda: _fence(source)),
    ]
    return Assessment(
        tool_version=__version__,
        database=source.name,
        as_of=reader.as_of,
        server=server,
        features={words: f"{one.able}: {one.why}" for words, one in server.product.features().items()},
        gates=tuple(ask() for ask in survey),
        sources=tuple(sources),
        others=tuple(_others(reader, sources)),
        limits=reader.limits,
        over=reader.over,
        commands=next_commands(sources, reader.kinds, server, config_path),
        config=config_text(uri, source.name, sources),
    )


def _fence(source: MongoDatabase) -> server_gates.Answer:
    survey = fence.survey_source(source)
    return (True, f"{survey.kind} would stop the writers") if survey.kind else (False, survey.why_not)


def _others(reader: _DatabaseReader, sources: Sequence[SourceAssessment]) -> Iterator[OtherCollection]:
    """Yield the collections that no recognised source reads."""
    read = {one.name for source in sources for one in source.collections}
    for name, kind in reader.kinds.items():
        if name in read:
            continue
        count = None
        if kind == ORDINARY_COLLECTION:
            try:
                count = reader.source[name].estimated_document_count(maxTimeMS=reader.left_ms() or 1)
            except OperationFailure:
                count = None
        yield OtherCollection(name=name, kind=kind, documents=count)


def next_commands(
    sources: Sequence[SourceAssessment], kinds: Mapping[str, str], server: SourceServer, config_path: str
) -> tuple[str, ...]:
    """Return the three commands that come next. Pure."""
    config = f" --config {config_path}"
    if not sources:
        ordinary = [name for name, kind in kinds.items() if kind == ORDINARY_COLLECTION][:3]
        chosen = " ".join(f"--collection {quoted(name)}" for name in ordinary)
        return (
            f"migrator source draft {chosen}{config} > own.toml",
            f"migrator source check own.toml{config}",
            f"migrator doctor{config}",
        )
    option = " --no-position" if server.why_no_tail else ""
    return (f"migrator doctor{config}", f"migrator schema upgrade{config}", f"migrator backfill{option}{config}")


def quoted(word: str) -> str:
    """Return a word as a shell takes it, if it needs quotes."""
    plain = word.replace("_", "").replace("-", "").replace(".", "").isalnum()
    return word if plain else "'" + word.replace("'", "'\\''") + "'"


def config_text(uri: str, database: str, sources: Sequence[SourceAssessment]) -> str:
    """Return a configuration file for the first source; an address with a login goes in as a reference. Pure."""
    return "\n".join([*_config_lines(uri, database, sources), ""])


URI_VARIABLE: Final = "MONGO_URI"
DSN_VARIABLE: Final = "POSTGRES_DSN"


def _config_lines(uri: str, database: str, sources: Sequence[SourceAssessment]) -> Iterator[str]:
    yield "# Written by migrator assess. All keys: config.example.toml."
    if sources:
        first = sources[0]
        yield "[source]"
        yield f"profile = {_toml(first.recognised.profile)}"
        for other in sources[1:]:
            yield f"# also found, to be copied with a configuration of its own: {other.recognised.profile}"
        if first.default_tenant is not None:
            yield f"default_tenant = {_toml(first.default_tenant)}  # documents name no tenant"
        if first.needs_zone:
            yield f'# zone = "Europe/Berlin"  # the meaning of {first.needs_zone:,} documents depends on it'
        if first.recognised.renamed:
            yield ""
            yield "[source.collections]"
            yield from (f"{_toml(own)} = {_toml(name)}" for own, name in first.recognised.renamed.items())
        yield ""
    else:
        yield "# No known source was found: migrator source draft describes one, and [source] mapping names the file."
    if sources and (left_out := sum(one or 0 for one in sources[0].history_left_out.values())):
        about = "" if sources[0].is_whole else "about "
        yield "[copy]"
        yield f'# history = "{HISTORY}"  # would leave out {about}{left_out:,} documents that finished earlier'
        yield ""
    yield "[mongo]"
    if holds_login(uri):
        yield f'uri_env = "{URI_VARIABLE}"  # the environment variable that holds the address'
    else:
        yield f"uri = {_toml(uri)}"
    yield f"database = {_toml(database)}"
    yield ""
    yield "[postgres]"
    yield f'dsn_env = "{DSN_VARIABLE}"  # the environment variable that holds where the rows go'


def holds_login(uri: str) -> bool:
    """Whether an address holds a user, a password, or an option that is a secret."""
    return "@" in uri or redact(uri) != uri


def _toml(text: str) -> str:
    return msgspec.json.encode(text).decode().replace("\x7f", "\\u007f")
