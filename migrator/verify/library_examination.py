"""What a library says of a scratch copy of its tables, held against what it says of the documents.

The scratch copy is a database of its own, in which the library has made its tables anew and into which the rows are
copied: whatever the library writes, notifies or locks there, nobody sees. The source is read alone.

Both sides are listed twice where they differ, since either may have changed between: a difference is what stands in
both readings.
"""

import hashlib
import json
import time as time_module
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, time, timedelta
from graphlib import TopologicalSorter
from typing import Any, Final

import msgspec
from bson.raw_bson import RawBSONDocument
from psycopg import sql

from migrator.config import Settings, mongo_uri, postgres_dsn
from migrator.connections.mongo import open_source
from migrator.connections.mongo import translate_errors as translate_source_errors
from migrator.connections.postgres import Connection, fetch_value, open_login, translate_errors
from migrator.cron import timeline
from migrator.cron.expression import CronError
from migrator.errors import MigratorError, RefusedError
from migrator.pipeline import ledger
from migrator.pipeline.target import target_tables
from migrator.progress import EVERY_S
from migrator.schema import native_target
from migrator.sources import profile_of
from migrator.targets import catalogue, load_target
from migrator.targets.library import (
    LIMIT,
    Interpreter,
    LibraryError,
    LibraryRequest,
    Line,
    MongoStore,
    PostgresStore,
    ask,
    interpreter_of,
    make_tables,
)
from migrator.targets.library_rules import RULES, DueEntry, LibraryRules, Part
from migrator.targets.model import Target
from migrator.targets.quartz_documents import Window
from migrator.values.document import OPTIONS, Undecodable, decode
from migrator.values.identity import source_id_of
from migrator.verify import document_fires
from migrator.verify.check import CheckContext
from migrator.verify.scratch_databases import scratch_target

HORIZON: Final = timedelta(days=366)
"""Fires are computed so far ahead of the day of the copy."""
AROUND_A_CHANGE: Final = timedelta(hours=36)
MOST_WINDOWS: Final = 24
FIRES: Final = 2_000_000
"""Fires that are computed in all; an entry has at least ``LEAST_FIRES`` in each window."""
LEAST_FIRES, MOST_FIRES = 5, 200
MOST_LINES: Final = 20_000
"""Lines of what was executed, after which no other instant is begun."""
HELD: Final = LIMIT
"""For so long another process holds entries: longer than the library is given time."""
KEPT: Final = 200
"""Differences of which the fields are named; the others are counted."""
ENTRY_SECONDS: Final = 2.0
"""Processor time that the fires of an entry may take."""

MOVED: Final = (
    "the application works on the library's tables since the cutover: what it changed is no difference from MongoDB"
)
"""Why both sides are not compared after a cutover."""

_AS_BYTES: Final[Any] = OPTIONS.with_options(document_class=RawBSONDocument)
"""Of documents that the driver does not decode: one that it cannot would end the list."""

Digests = dict[str, bytes]


class LibraryFault(msgspec.Struct, frozen=True, order=True):
    """One thing that is not as it should be."""

    key: str
    cause: str
    words: str


class PartResult(msgspec.Struct, kw_only=True):
    """What one of the checks found."""

    counts: dict[str, int] = {}
    faults: list[LibraryFault] = []
    """Some of them: ``differences`` of ``counts`` is complete."""
    causes: dict[str, int] = {}
    """Every fault by cause."""
    unsure: list[str] = []
    explained: dict[str, list[str]] = {}
    """What was not held against the rule of an entry, by cause; the entries."""
    nothing: str = ""
    """Why there was nothing to check."""


class Listing(msgspec.Struct, kw_only=True):
    """What a library listed on one side."""

    digests: Digests
    kept: dict[str, Mapping[str, Any]]
    """The fields of the entries that the caller named."""
    entries: list[DueEntry]
    zones: set[str]
    failed: set[str]
    """Entries with which the library could do nothing."""


class ListedFires(msgspec.Struct, kw_only=True):
    """The next fires of entries, as one side computes them."""

    digests: Digests = {}
    """Of the fires of an entry in all windows."""
    numbers: Counter[str] = msgspec.field(default_factory=Counter)
    """How many fires an entry has in them."""
    failed: set[str] = set()
    endless: set[str] = set()
    """Entries for which the library searches without end; they are among ``failed``."""


class Examination:
    """The library of the configured target, asked about both sides; its scratch copy exists while it does."""

    def __init__(
        self,
        settings: Settings,
        source: Sequence[MongoStore],
        copy: "ScratchCopy",
        *,
        since: datetime,
        say: Callable[[str], None],
    ) -> None:
        """``since``: from when on fires are computed and entries executed, so that two examinations say the same.

        ``say``: gets a line whenever the library is asked, and every ten seconds while it answers.
        """
        self.settings, self.source, self.copy, self.since, self._say = settings, source, copy, since, say
        self.target, self.rules = copy.target, copy.rules
        self._listed: tuple[Listing, Listing] | None = None

    # what both parts of a comparison need

    def _ask(self, store: MongoStore | PostgresStore, **members: Any) -> Iterator[Line]:  # noqa: ANN401 - see LibraryRequest
        options = self.rules.options(self.settings.target) | members.pop("options", {})
        request = LibraryRequest(store=store, options=options, entry_seconds=ENTRY_SECONDS, **members)
        asked = f"verify: library: {_ASKED[request.do]} in {_place(store)}"
        self._say(asked)
        reported_at, count = time_module.monotonic(), 0
        with ask(self.target.name, request, interpreter=self.copy.interpreter) as lines:
            for line in lines:
                yield line
                count += line["kind"] != "done"
                if (now := time_module.monotonic()) - reported_at >= EVERY_S:
                    reported_at = now
                    self._say(f"{asked}: {count:,} so far")

    def _ask_copy(self, **members: Any) -> Iterator[Line]:  # noqa: ANN401 - as above
        """Return the lines of the scratch copy, each under the name of its entry."""
        for line in self._ask(self.copy.store, **members):
            name = self.copy.names.get(str(line.get("id")))
            yield line if name is None else {**line, "id": name}

    def _ask_source(self, **members: Any) -> Iterator[Line]:  # noqa: ANN401 - as above
        if self.rules.has_source:
            left = {name for name, _ in self._quarantined_documents()} if self.rules.names_documents else ()
            for store in self.source:
                for line in self._ask(store, **members):
                    if line.get("document") not in left:
                        yield line
        else:
            yield from self.rules.source_entries(self._documents)

    def _documents(self, collection: str) -> Iterator[dict[str, Any]]:
        """Yield the documents of a collection that are not in quarantine; none if the source has no such one.

        One that cannot be decoded is left out.
        """
        profile = profile_of(self.settings.source, self.settings.target)
        if collection not in {known.name for known in profile.collections}:
            return
        with self.copy.live() as connection:
            left = ledger.quarantined_ids(connection, profile.name, collection)
        source = open_source(self.settings)
        try:
            with translate_source_errors("the source"):
                name = self.settings.source.collections.get(collection, collection)
                stored_documents: Any = source.get_collection(name, codec_options=_AS_BYTES).find()
                for stored in stored_documents:
                    if source_id_of(stored.raw) not in left:
                        with suppress(Undecodable):
                            yield decode(stored.raw)
        finally:
            source.client.close()

    def _list(self, keep: frozenset[str] = frozenset(), *, in_source: bool) -> Listing:
        listing = Listing(digests={}, kept={}, entries=[], zones=set(), failed=set())
        lines = self._ask_source(do="entries") if in_source else self._ask_copy(do="entries")
        for line in lines:
            if line["kind"] not in ("entry", "failed"):
                continue
            key = self.rules.key(line["id"]) if in_source else str(line["id"])
            if line["kind"] == "failed":
                listing.failed.add(key)
                fields: Mapping[str, Any] = self.rules.failure(line["error"])
            else:
                fields = self.rules.fields(line, in_source=in_source)
                listing.zones |= _zones([line.get("fields"), line.get("schedule")])
                if not in_source:
                    listing.entries.append(self.rules.entry(line))
            same_key = listing.digests.get(key, b"")  # a task and a group, say
            listing.digests[key] = _digest([same_key.hex(), fields])
            if key in keep:
                listing.kept[key] = fields
        return listing

    def listed(self) -> tuple[Listing, Listing]:
        """Return the listing of MongoDB, and that of the scratch copy."""
        if self._listed is None:
            copied = self._list(in_source=False)
            self._listed = self._list(in_source=True), copied
        return self._listed

    def _quarantined_documents(self) -> set[tuple[str, str]]:
        """Return source id and collection of the documents that have no row because they are in quarantine."""
        profile = profile_of(self.settings.source, self.settings.target)
        with self.copy.live() as connection:
            return {
                (name, collection.name)
                for collection in profile.collections
                for name in ledger.quarantined_ids(connection, profile.name, collection.name)
            }

    def _quarantined(self) -> set[str]:
        """Return the keys of these documents in PostgreSQL; none where their lines are left out of the listing."""
        if self.rules.names_documents:
            return set()
        return {self.rules.key_of_document(*document) for document in self._quarantined_documents()}

    # the parts

    def entries(self) -> PartResult:
        """Hold what the library lists in the scratch copy against what it lists in MongoDB."""
        wanted, copied = self.listed()
        quarantined = self._quarantined()
        different = _different(wanted.digests, copied.digests, quarantined)
        faults: list[LibraryFault] = []
        unsure: list[str] = []
        if different:
            self.copy.refresh()
            keep = frozenset(sorted(different)[:KEPT])
            again = self._list(keep, in_source=False), self._list(keep, in_source=True)
            copied_again, wanted_again = again
            second = _different(wanted_again.digests, copied_again.digests, self._quarantined())
            for key in different & second:
                unchanged = wanted.digests.get(key) == wanted_again.digests.get(key) and copied.digests.get(
                    key
                ) == copied_again.digests.get(key)
                if unchanged:
                    faults.append(_entry_fault(key, wanted_again, copied_again))
                else:
                    unsure.append(
                        "entries changed while both sides were listed: stop the writers, or the tail is behind"
                    )
        return PartResult(
            counts={
                "listed in the source": len(wanted.digests),
                "listed in the copy": len(copied.digests),
                "in quarantine": len(self._quarantined_documents()),
                "that the library cannot restore": len(copied.failed),
                "changed while they were compared": len(unsure),
            },
            unsure=unsure,
            nothing="" if wanted.digests or copied.digests else "the library lists no entry on either side",
            **_sorted_faults(faults),
        )

    def fires(self) -> PartResult:
        """Hold the next fires of each entry in the scratch copy against those in MongoDB and those of its rule."""
        wanted, copied = self.listed()
        windows = self._windows(copied.zones | wanted.zones)
        most = FIRES // max(len(windows) * len(copied.digests), 1)
        limit = min(max(most, LEAST_FIRES), MOST_FIRES)
        asked = {"do": "fires", "windows": windows, "limit": limit}
        computed = self._listed_fires(self._computed_fires(windows, limit), str)
        source = self._listed_fires(self._ask_source(**asked), self.rules.key) if self.rules.has_source else computed
        copy = self._listed_fires(self._ask_copy(**asked), str)
        unknown, failed = source.endless | copy.endless, source.failed | copy.failed
        # an entry that one side lacks, or that differs, is told by the part `entries`
        same = {key for key in copy.digests if wanted.digests.get(key) == copied.digests.get(key)} - unknown
        compared = same & source.digests.keys()
        own, alone = compared & computed.digests.keys() - failed, same - failed - computed.digests.keys()
        failing = {key for key in compared & failed if source.digests[key] == copy.digests[key]}
        faults = [
            LibraryFault(key, "library-fires", "its next fires in PostgreSQL are not those in MongoDB")
            for key in sorted(compared)
            if source.digests[key] != copy.digests[key]
        ]
        # where the two sides differ that is told already, and the document may have changed in between
        faults += [
            LibraryFault(key, "library-rule", "its next fires are not those of its rule, as this tool computes them")
            for key in sorted(own)
            if source.digests[key] == copy.digests[key] != computed.digests[key]
        ]
        total = sum(count for key, count in copy.numbers.items() if key in wanted.digests)
        return PartResult(
            counts={
                "entries": len(compared),
                "windows": len(windows),
                "fires at most in a window": limit,
                "fires compared": total,
                "entries whose fires the tool computes too": len(own),
                "entries whose fires the library alone computes": len(alone),
                "entries whose fires the library fails to compute": len(failing),
                "computed without end": len(unknown),
            },
            unsure=_without_end(unknown),
            explained={"library-alone": sorted(alone), "library-fails": sorted(failing)},
            nothing="" if (total and compared) or unknown else "no entry has a next fire that is compared",
            **_sorted_faults(faults),
        )

    def _computed_fires(self, windows: Sequence[Window], limit: int) -> Iterator[Line]:
        """Return the lines of the fires that the tool computes of the documents."""
        source = profile_of(self.settings.source, self.settings.target).name
        zone = document_fires.zone_of(self.settings.target.options)
        return document_fires.document_fires(source, zone, self._documents, windows, limit)

    def _listed_fires(self, lines: Iterable[Line], key_of: Callable[[str], str]) -> "ListedFires":
        listed = ListedFires()
        for line in lines:
            if line["kind"] not in ("fires", "failed"):
                continue
            key = key_of(line["id"])
            if line["kind"] == "failed":
                listed.failed.add(key)
                if line["error"] in self.rules.unbounded:
                    listed.endless.add(key)
            fires = line.get("fires", ())
            listed.numbers[key] += len(fires)
            listed.digests[key] = _digest([listed.digests.get(key, b"").hex(), fires, line.get("error")])
        return listed

    def _windows(self, zones: Iterable[str]) -> list[tuple[datetime, datetime]]:
        """Return the year, and the days around each change of the clock in it."""
        begin = datetime.combine(self.since.date(), time(), UTC)
        end = begin + HORIZON
        changes: set[int] = set()
        for zone in sorted(zones):
            try:
                stretches = [*timeline.forward(zone, int(begin.timestamp()), end.year)]
            except (CronError, ValueError, OSError):
                continue  # an offset, or a zone that only the library knows: the year is compared all the same
            changes |= {one.start for one in stretches if one.before != one.offset}
        days = [datetime.fromtimestamp(at, UTC) for at in sorted(changes) if begin.timestamp() < at < end.timestamp()]
        around = [(at - AROUND_A_CHANGE, at + AROUND_A_CHANGE) for at in days]
        return [(begin, end), *around[:MOST_WINDOWS]]

    def work(self) -> PartResult:
        """Let the library execute what is due in the scratch copy, with two workers; it executes each entry once."""
        _, copied = self.listed()
        entries = copied.entries
        sittings = self.rules.sittings(entries, self.since.timestamp())
        if not sittings:
            return PartResult(nothing="no entry is ever due")
        self.copy.refresh()
        faults: list[LibraryFault] = []
        events: Counter[str] = Counter()
        due: set[str] = set()
        endless: set[str] = set()
        last = sittings[-1][-1]
        for number, instants in enumerate(sittings):
            if number and not self.rules.has_clock:
                self.copy.refresh()
            elif number:  # what was executed is due at another time now
                entries = self._list(in_source=False).entries
            lines, passed = self._execute(instants)
            last = max((line["at"] for line in lines if line["kind"] == "tick"), default=instants[-1])
            endless |= self._endless(lines)
            bounded = [entry for entry in entries if entry.key not in endless]
            told = [line for line in lines if line.get("id") not in endless]
            faults += _work_faults(bounded, told, last, last + passed)
            due |= _were_due(bounded, told, last, last + passed)
            events.update(line["kind"] for line in told)
        again = self._execute([last])[0] if self.rules.has_clock else []
        endless |= self._endless(again)
        faults += [
            LibraryFault(str(line["id"]), "library-twice", "it was executed again when nothing was due")
            for line in again
            if line["kind"] == "execution" and not self._is_of_later(line, last)
        ]
        known = {entry.key for entry in copied.entries} - endless
        return PartResult(
            counts={
                "entries that were due": len(due - endless),
                "entries that were not": len(known - due),
                "executions": events["execution"],
                "given up as too late": events["missed"],
                "computed without end": len(endless),
            },
            unsure=_without_end(endless),
            **_sorted_faults([fault for fault in faults if fault.key not in endless]),
        )

    def locks(self) -> PartResult:
        """Let another process hold entries that are due, in the scratch copy: the library leaves them alone."""
        _, copied = self.listed()
        sittings = self.rules.sittings(copied.entries, self.since.timestamp())
        instants = sittings[0] if sittings else []
        independent = [entry for entry in copied.entries if not entry.waits]
        due = sorted(entry.key for entry in independent if instants and entry.is_due(instants[-1]))
        if not due:
            return PartResult(nothing="no entry is ever due")
        held = set(due[::2])
        self.copy.refresh()
        until = (datetime.fromtimestamp(instants[-1], UTC) + HELD).timestamp()
        row_ids = {name: row_id for row_id, name in self.copy.names.items()}
        with self.copy.writable() as connection:
            for key in sorted(held):
                self.rules.hold(
                    connection, self.copy.store.schema, self.copy.store.tables, row_ids.get(key, key), until
                )
        lines, _ = self._execute(instants)
        endless = self._endless(lines)
        executed = {str(line["id"]) for line in lines if line["kind"] in ("execution", "missed")}
        faults = [
            LibraryFault(key, "library-lock", "it was executed while another process held it")
            for key in sorted(held & executed)
        ]
        faults += [
            LibraryFault(key, "library-lock", "it was not executed though nobody held it")
            for key in sorted(set(due) - held - executed - endless)
        ]
        return PartResult(
            counts={"held by another process": len(held), "executed beside them": len(executed - held)},
            unsure=_without_end(endless),
            **_sorted_faults(faults),
        )

    def _endless(self, lines: Sequence[Line]) -> set[str]:
        return {str(line["id"]) for line in lines if line["kind"] == "failed" and line["error"] in self.rules.unbounded}

    def _is_of_later(self, line: Line, last: float) -> bool:
        """Whether an entry was executed because it has become due while the clock ran on."""
        slot = self.rules.slot(line)
        return self.rules.clock_moves and slot is not None and slot > last

    def _execute(self, instants: Sequence[float]) -> tuple[list[Line], float]:
        """Return the lines of what the library did, and by how many seconds its clock may have run on."""
        options = {"most": MOST_LINES, **self.rules.work_options(instants)}
        now = datetime.fromtimestamp(instants[0], UTC)
        began = time_module.monotonic()
        lines = [*self._ask_copy(do="work", now=now, options=options, scratch=True)]
        return lines, time_module.monotonic() - began if self.rules.clock_moves else 0.0


_ASKED: Final[Mapping[str, str]] = {
    "entries": "listing entries",
    "fires": "computing next fires",
    "work": "executing what is due",
}
"""What the library is asked for, in the words of a line of progress."""


def _place(store: MongoStore | PostgresStore) -> str:
    if isinstance(store, PostgresStore):
        return "the scratch copy"
    return " ".join(["MongoDB", *sorted(store.collections.values())])


def _without_end(keys: set[str]) -> list[str]:
    return [f"the library computes without end for {', '.join(sorted(keys)[:5])}"] if keys else []


def _were_due(entries: Sequence[DueEntry], lines: Sequence[Line], last: float, end: float) -> set[str]:
    """Return the keys of the entries that were due at ``last``, or became due up to ``end`` and were executed. Pure."""
    executed = {str(line["id"]) for line in lines if line["kind"] == "execution"}
    return {one.key for one in entries if one.is_due(last) or (one.key in executed and one.is_due(end))}


def _work_faults(
    entries: Sequence[DueEntry], lines: Sequence[Line], last: float, end: float | None = None
) -> list[LibraryFault]:
    """Return the faults: what the library did not do, did twice, or should not have done. Pure.

    What becomes due from ``last`` to ``end``, while the clock runs on, may be executed and may be left.
    """
    told: dict[str, list[Line]] = {}
    for line in lines:
        if line["kind"] in ("execution", "missed", "raised", "too many"):
            told.setdefault(str(line["id"]), []).append(line)
    faults = []
    for entry in entries:
        events = told.pop(entry.key, [])
        if events and not entry.is_due(last if end is None else end):
            faults.append(LibraryFault(entry.key, "library-unasked", "it was executed, and it is not due"))
            continue
        instants = Counter((line["kind"], line.get("at")) for line in events)
        if not events:
            if entry.is_due(last):
                faults.append(LibraryFault(entry.key, "library-idle", "it was due, and the library did not execute it"))
        elif any(line["kind"] in ("raised", "too many") for line in events):
            faults.append(LibraryFault(entry.key, "library-raised", "the library could not execute it"))
        elif max(instants.values()) > 1 or any(line.get("again") for line in events):
            faults.append(LibraryFault(entry.key, "library-twice", "one of its fires was executed twice"))
    faults += [
        LibraryFault(key, "library-unasked", "it was executed, and the library does not list it") for key in told
    ]
    return faults


def _entry_fault(key: str, wanted: Listing, copied: Listing) -> LibraryFault:
    if key not in copied.digests:
        return LibraryFault(key, "library-missing", "the library does not list it in PostgreSQL")
    if key not in wanted.digests:
        return LibraryFault(key, "library-extra", "the library lists it in PostgreSQL alone")
    left, right = wanted.kept.get(key), copied.kept.get(key)
    if left is None or right is None:
        return LibraryFault(key, "library-differs", "the library says something else of it in PostgreSQL")
    names = [name for name in sorted({*left, *right}) if left.get(name, _ABSENT) != right.get(name, _ABSENT)]
    return LibraryFault(key, "library-differs", f"the library says something else of {', '.join(names)} in PostgreSQL")


_ABSENT: Final = object()


def _different(wanted: Digests, copied: Digests, quarantined: set[str]) -> set[str]:
    """Return the keys of which the two sides do not say the same; those in quarantine have no row."""
    keys = {key for key in wanted.keys() | copied.keys() if wanted.get(key) != copied.get(key)}
    return {key for key in keys if not (key in quarantined and key not in copied)}


def _digest(value: object) -> bytes:
    return hashlib.blake2b(json.dumps(value, sort_keys=True).encode(), digest_size=16).digest()


def _sorted_faults(faults: list[LibraryFault]) -> dict[str, Any]:
    return {"faults": sorted(faults), "causes": dict(sorted(Counter(fault.cause for fault in faults).items()))}


def _zones(value: Any) -> set[str]:  # noqa: ANN401 - JSON
    """Return the names of zones in what a probe printed: ``{"zone": …}``, or a field that is called so."""
    if isinstance(value, dict):
        own = {inner for name, inner in value.items() if name in _ZONES and isinstance(inner, str)}
        return own.union(*map(_zones, value.values()))
    return set().union(*map(_zones, value)) if isinstance(value, list) else set()


_ZONES: Final = frozenset({"zone", "repeatTimezone", "timezone"})


class ScratchCopy:
    """The tables of a library in a database of their own, with the rows of the target."""

    def __init__(self, settings: Settings, scratch: Settings) -> None:
        """Let the library make its tables; raises ``RefusedError`` if it makes others than the target has."""
        self.settings, self._scratch = settings, scratch
        self.target: Target = load_target(profile_of(settings.source, settings.target).target)
        self.rules: LibraryRules = RULES[self.target.name]
        self.interpreter: Interpreter = interpreter_of(settings.target)
        schema = settings.target.schema or self.target.schema
        self.names: dict[str, str] = {}
        """Id by which the library lists a row → the name of the entry, by its document; only of keys that were made."""
        self.store = PostgresStore(postgres_dsn(scratch), schema, settings.target.tables)
        with self.writable() as connection:
            connection.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(sql.Identifier(schema)))
        make_tables(self.target.name, self.store, self.interpreter)
        with self.live() as live, self.writable() as connection:
            self._require_same_tables(live, connection)
        self.refresh()

    def live(self) -> Any:  # noqa: ANN401 - a context with a connection
        """Lend a connection to the target, which is only read here."""
        return _opened(self.settings, read_only=True)

    def writable(self) -> Any:  # noqa: ANN401 - as above
        """Lend a connection to the scratch copy."""
        return _opened(self._scratch, read_only=False)

    def _catalogue(self, connection: Connection) -> catalogue.Catalogue:
        return catalogue.read_known(connection, self.target.name, self.store.schema, self.settings.target.tables)

    def _require_same_tables(self, live: Connection, scratch: Connection) -> None:
        expected, made = self._catalogue(live), self._catalogue(scratch)
        differences = catalogue.differences(expected, made)
        if differences:
            raise RefusedError(
                f"the library of {self.interpreter.command(self.target.name)[0]} makes other tables than the target has"
                f" ({differences[0]}): name the interpreter of the application, as target.interpreter"
            )
        self._columns = {
            name: [column.name for column in table.columns if not column.generated]
            for name, table in expected.tables.items()
        }
        self._sequences = dict(expected.sequences)

    def refresh(self) -> None:
        """Put the rows of the target as they are now in the place of those of the scratch copy."""
        with self.live() as live, self.writable() as scratch, live.transaction(), scratch.transaction():
            live.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            self.names = self._names_of_rows(live) if self.rules.keys_are_made else {}
            names = self._in_order(scratch)
            tables = [sql.Identifier(self.store.schema, self.settings.target.tables.get(name, name)) for name in names]
            scratch.execute(sql.SQL("TRUNCATE {} CASCADE").format(sql.SQL(", ").join(tables)))
            for table in tables:
                scratch.execute(sql.SQL("ALTER TABLE {} DISABLE TRIGGER USER").format(table))
            for name, table in zip(names, tables, strict=True):
                columns = sql.SQL(", ").join(map(sql.Identifier, self._columns[name]))
                _copy_rows(live, scratch, table, columns)
            scratch.execute("SET CONSTRAINTS ALL IMMEDIATE")  # no table may be altered while one is to be checked
            for table in tables:
                scratch.execute(sql.SQL("ALTER TABLE {} ENABLE TRIGGER USER").format(table))
            for sequence, owner in self._sequences.items():
                place = self._sequence(live, sequence, owner)
                row = live.execute(sql.SQL("SELECT last_value, is_called FROM {}").format(sql.SQL(place))).fetchone()
                named = sql.Literal(self._sequence(scratch, sequence, owner))
                scratch.execute(sql.SQL("SELECT setval({}::regclass, %s, %s)").format(named), row)

    def _sequence(self, connection: Connection, sequence: str, owner: str) -> str:
        """Return the quoted name of a sequence; one of a column has a name of its own where its table has another."""
        name, _, column = owner.partition(".")
        if not column:
            return sql.Identifier(self.store.schema, sequence).as_string(connection)
        table = sql.Identifier(self.store.schema, self.settings.target.tables.get(name, name)).as_string(connection)
        return str(fetch_value(connection, "SELECT pg_get_serial_sequence(%s, %s)", (table, column)))

    def _names_of_rows(self, live: Connection) -> dict[str, str]:
        names = {}
        for table in self.target.tables:
            key = native_target.key_text("origin", [column for _, column in native_target.key_columns(table)])
            rows = live.execute(
                sql.SQL("SELECT {}, source, source_id FROM {} AS origin").format(
                    key, native_target.origins(table, self.target)
                )
            )
            for row_key, source, document in rows:
                collection = str(source).partition("/")[2]
                names[self.rules.made_key(table.name, row_key)] = self.rules.key_of_document(document, collection)
        return names

    def _in_order(self, scratch: Connection) -> list[str]:
        """Return the tables, parents before children."""
        own = {name: self.settings.target.tables.get(name, name) for name in self._columns}
        parents: dict[str, set[str]] = {name: set() for name in own}
        of_name = {name: table for table, name in own.items()}
        rows = scratch.execute(
            "SELECT child.relname, parent.relname FROM pg_constraint JOIN pg_class AS child ON child.oid = conrelid"
            " JOIN pg_class AS parent ON parent.oid = confrelid"
            " WHERE contype = 'f' AND conrelid <> confrelid AND connamespace = to_regnamespace(quote_ident(%s))",
            (self.store.schema,),
        )
        for child, parent in rows:
            if child in of_name and parent in of_name:
                parents[of_name[child]].add(of_name[parent])
        return [*TopologicalSorter(parents).static_order()]


def _copy_rows(live: Connection, scratch: Connection, table: sql.Identifier, columns: sql.Composed) -> None:
    read = sql.SQL("COPY (SELECT {} FROM {}) TO STDOUT (FORMAT binary)").format(columns, table)
    write = sql.SQL("COPY {} ({}) FROM STDIN (FORMAT binary)").format(table, columns)
    with live.cursor().copy(read) as rows, scratch.cursor().copy(write) as copy:
        for block in rows:
            copy.write(block)


@contextmanager
def _opened(settings: Settings, *, read_only: bool) -> Iterator[Connection]:
    with translate_errors("the target"), open_login(settings) as connection:
        if read_only:
            connection.execute("SET default_transaction_read_only = on")
        yield connection


def _source_stores(settings: Settings, rules: LibraryRules) -> list[MongoStore]:
    if settings.source.in_postgres:
        raise RefusedError("the source is tables of PostgreSQL, where the library is not asked")
    source = open_source(settings)
    try:
        uri = mongo_uri(settings)
        with translate_source_errors("the source"):
            existing = source.list_collection_names()
        asked = rules.collections(settings.source.collections, existing)
        return [MongoStore(uri, source.name, names) for names in asked]
    finally:
        source.client.close()


def examine(context: CheckContext, parts: Sequence[Part]) -> dict[Part, PartResult | MigratorError]:
    """Return the result of each part, or why it could not be told.

    Raises ``RefusedError`` where no scratch database can be made, and ``LibraryError`` where the library is missing or
    cannot make its tables.
    """
    settings = context.settings
    name = load_target(profile_of(settings.source, settings.target).target).name
    source = _source_stores(settings, RULES[name])
    with context.target() as target:
        native_target.require_tables(target, load_target(name), settings.target)
        plan = ledger.latest_plan(target)
        moved = target_tables(settings).active_since(target) is not None
    since = datetime.now(UTC) if plan is None else plan.as_of
    results: dict[Part, PartResult | MigratorError] = {}
    context.say("verify: library: making a scratch copy of the tables")
    with scratch_target(settings) as scratch:
        copy = ScratchCopy(settings, scratch)
        examination = Examination(settings, source, copy, since=since, say=context.say)
        steps: Mapping[Part, Callable[[], PartResult]] = {
            "entries": examination.entries,
            "fires": examination.fires,
            "work": examination.work,
            "locks": examination.locks,
        }
        for part in parts:
            if part in examination.rules.inapplicable:
                continue
            if moved and part in ("entries", "fires"):
                results[part] = LibraryError(MOVED)
                continue
            try:
                with context.timed(f"library: {part}"):
                    results[part] = steps[part]()
            except MigratorError as error:
                results[part] = error
    return results
