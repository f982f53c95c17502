"""What the profiles of ``PROFILES`` make of a few ten thousand documents, as recorded digests.

``fixtures_data/ports`` has what the profiles made when each was written by hand, before the mapping language described
them: one line for each field of each base document, with one digest for each value that the field is given. A digest
covers the rows, the findings, the remainder and the document that the rows encode to; or why there are no rows. Of rows
of tables (``TABLES``) that is reason and path, without the words that say what was expected.

``python -m tests.ports show CASE...`` prints what a digest stands for, ``python -m tests.ports compare FOLDER CASE...``
compares that with what the working tree of another commit makes, and ``python -m tests.ports record PROFILE...`` writes
the digests anew: for documents that are new, never to silence a difference.
"""

import difflib
import hashlib
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple
from uuid import UUID

import bson
from bson import json_util
from bson.binary import Binary
from bson.code import Code
from bson.datetime_ms import DatetimeMS
from bson.decimal128 import Decimal128
from bson.int64 import Int64
from bson.max_key import MaxKey
from bson.objectid import ObjectId
from bson.regex import Regex
from bson.timestamp import Timestamp

from migrator.records import Record
from migrator.sources import load_profile
from migrator.sources.profile import INHERITED, Collection, Context, Rejected, Skipped
from migrator.testing.demo import COLLECTIONS, Plan, faulty_documents
from migrator.testing.demo.plan import Counts
from migrator.values import document as documents
from migrator.values import jsonb, remainder, table_row
from migrator.values.copy_format import column_types

Document = dict[str, Any]

DATA: Final = Path(__file__).parent / "fixtures_data"
RECORDED: Final = DATA / "ports"
TABLES: Final = ("orchestrator", "crawler", "support-center")
"""Profiles that read tables of PostgreSQL: their documents hold what such a column can hold."""
PROFILES: Final = ("stellaops", "agenda", *TABLES)
_FOLDERS: Final = ("agenda-4", "agenda-5", "agenda-6", "hokify-6", "pulse-1")
_SEED: Final = 5
_PLAN: Final = Counts(40, 900, 40, 60, 60, 60, 60, 30, 12, 6, 40, 20)
_DIGITS: Final = 4
_BLOCK: Final = 40
"""Documents of a line, of those that no field of a base document counts."""
_JSON: Final = json_util.JSONOptions(json_mode=json_util.JSONMode.CANONICAL, tz_aware=False)

_AS_OF: Final = datetime(2026, 11, 20, 12, tzinfo=UTC)
CONTEXTS: Final = {
    "tenant": Context(as_of=_AS_OF, default_tenant="fallback"),
    "no-tenant": Context(as_of=_AS_OF),
    "store": Context(as_of=_AS_OF, default_tenant="fallback", of_store=True),
    "expired": Context(as_of=_AS_OF, default_tenant="fallback", carry_expired_locks=True),
    "zone": Context(as_of=_AS_OF, default_tenant="fallback", zone="Africa/Cairo"),
}
_FURTHER: Final[dict[str, Callable[[str, str], bool]]] = {
    "no-tenant": lambda _, path: path.endswith("tenantId"),
    "store": lambda collection, _: collection in ("schedules", "triggers"),
    "expired": lambda collection, _: collection == "locks",
}
"""Context to the collections and fields that it may matter for, besides every base document."""

NOON: Final = datetime(2026, 11, 20, 12)  # noqa: DTZ001 - as decoding BSON gives it
VALUES: Final[tuple[Any, ...]] = (
    *(None, "", " \t\r\n ", " text ", "a\0b", "\u202e\u2003x", "x" * 2_001),
    *(0, 3, -1, 101, 2**31, Int64(7), Int64(2**62), 1.5, 2.0, -0.0, 1e300, float("nan"), Decimal128("1.10")),
    *(True, False, [], ["", " a ", "a\0b"], [None, 1], {}, {"": "", "a": {"b": 1}}, {"type": "fixed", "delay": 5}),
    *(ObjectId("65a000000000000000000001"), Binary(b"\0", 0x80), Binary(bytes(16), 4), Regex("a", "i")),
    *(Code("1"), Code("1", {"a": 1}), Timestamp(1, 1), MaxKey()),
    *(DatetimeMS(-(2**62)), DatetimeMS(0), NOON, NOON.replace(minute=1, microsecond=123_000)),
    *("2026-11-20T12:00:00+01:00", "2026-11-20T12:00:00.1234567Z", "2026-11-20T12:00:00", "noon"),
    *("65a000000000000000000001", "0e5d7c1a-9b3f-4e6d-8c2b-1a0f9e8d7c6b", "sch_0e5d7c1a9b3f4e6d8c2b1a0f9e8d7c6b"),
    *("* * * * *", "0 0 30 2 *", "*/7 5 * * 1-5", "@daily", "5 minutes", "90000", "3:30pm"),
    *("UTC", "Europe/Vienna", "W. Europe Standard Time", "Mars/Olympus", "SCHEDULER.run@1"),
)
"""What each field is given, one after the other; a line's first digest is that of the document without the field."""
_SPELLED: Final = (
    "active agent all-images analysis-only analysisonly api async_function backfill build by-digest by-labels"
    " by-namespace by-repo by-repository canceled cancelled celery_task completed completion concelier conselier"
    " content-refresh contentrefresh critical cron cronos dead debug draining emergency error event excititor"
    " excitor exponential failed fatal feedser fire_all fire_once fixed fixed_rate full function high incremental"
    " info interval job_creator keep low manual medium none normal once one_time overlay paused pending planning"
    " policy queued replay_pending run running sbom-version scheduled scheduler simulate single skip skipped stop"
    " stopped submitted succeeded timeout trace unknown vex vexer warn worker workflow robfig agenda"
)
_WORDS: Final = frozenset(_SPELLED.split())
"""What each field that holds a word is given besides."""

_TIMES: Final = (NOON, NOON.replace(microsecond=7), NOON.replace(tzinfo=UTC), NOON.replace(minute=1, tzinfo=UTC))
TABLE_VALUES: Final[tuple[Any, ...]] = (
    *(None, "", " ", " text ", "x" * 2_001, True, False, 0, 1, 3, -1, 29, 31, 101, 3_601, 32_767, 2**31 - 1, 2**31),
    *(
        Int64(7),
        Int64(-(2**31)),
        Int64(2**62),
        1.5,
        2.0,
        1e300,
        [],
        ["", " a "],
        [None, 1],
        {},
        {"a": {"b": [1, None]}},
    ),
    *({"hours": 1}, {"hours": 0}, {"minutes": 5, "x": 1}, {"hours": "1"}, {"seconds": -1}, {"seconds": 10**13}),
    *({"hour": "*/2"}, {"day_of_week": "0", "hour": 3}, {"week": 1}, {"hour": True}, {"month": None}, {"minute": "x"}),
    *({"skip_if_overdue": True}, {"original_execution_id": "00000000-0000-4000-8000-000000000004"}, b"\1"),
    *(Binary(UUID(int=5).bytes, 4), Binary(b"1.10", table_row.NUMERIC), Binary(b"2026-01-01", table_row.DATE)),
    *({"big": Binary(b"1180591620717411303424", table_row.INTEGER), "exact": Binary(b"1.10", table_row.NUMERIC)},),
    *map(table_row.time, _TIMES),
    *("UTC", "Europe/Vienna", "W. Europe Standard Time", "Mars/Olympus", "00000000-0000-4000-8000-000000000001"),
    *("* * * * *", "0 0 30 2 *", "*/7 5 * * 1-5", "0 */6 * * *", "TZ=UTC 0 0 * * *", "@daily", "30 2 * * 1-5"),
)
"""``VALUES``, of columns of tables."""
_FURTHER_TIMES: Final = tuple(map(table_row.time_from_text, ("infinity", "10000-01-01 00:59:59.9", "0044-01-01 BC")))
_SPELLED_IN_TABLES: Final = (
    "pending active paused completed failed cancelled running success timeout skipped processing scheduled done cron"
    " recurring one_time event interval function agent workflow job_creator celery_task async_function low medium high"
    " critical emergency urgent minutes hours days weeks debug info warn error fatal trace create_job trigger_workflow"
    " dispatch_agent scheduler manual api queued"
)
_TABLE_WORDS: Final = frozenset(_SPELLED_IN_TABLES.split())
_INHERITED_VALUES: Final = (None, "", "*", *sorted(_TABLE_WORDS))
_CHANGES: Final = 4


class Line(NamedTuple):
    """One line of a record: the documents that it stands for, and the context in which they are decoded.

    ``what`` is ``base`` (each base document), ``demo``, ``fixture/FOLDER``, ``changes/BLOCK`` (of several fields at
    once) or ``field/NUMBER/PATH`` (of the base document of this number).
    """

    collection: str
    context: str
    what: str

    @property
    def key(self) -> str:
        return " ".join(self)

    def documents(self, profile: str) -> Iterator[Document]:
        """Yield the documents."""
        kind, _, rest = self.what.partition("/")
        if kind == "base":
            yield from bases(profile)[self.collection]
        elif kind == "demo":
            plan = Plan(seed=_SEED, counts=_PLAN, triggers=True)
            yield from (documents.decode(raw) for raw in COLLECTIONS[self.collection](plan))
            for one in faulty_documents(_SEED):
                if one.collection == self.collection:
                    read = documents.decode_all([one.raw])[0]
                    if isinstance(read, dict):
                        yield read
        elif kind == "fixture":
            yield from _lines_of(DATA / rest / f"{self.collection}.jsonl")
        elif kind == "changes":
            for change in range(int(rest) * _BLOCK, (int(rest) + 1) * _BLOCK):
                yield _with_changes(profile, self.collection, change)
        else:
            number, _, path = rest.partition("/")
            yield from _with_each_value(bases(profile)[self.collection][int(number)], path, tables=profile in TABLES)


def _lines_of(path: Path) -> Iterator[Document]:
    for line in path.read_text(encoding="utf-8").splitlines():
        yield documents.decode(bson.encode(json_util.loads(line, json_options=_JSON)))


@cache
def bases(profile: str) -> dict[str, list[Document]]:
    """Return collection to its base documents."""
    found: dict[str, list[Document]] = {}
    for line in _lines_of(RECORDED / f"{profile}-documents.jsonl"):
        found.setdefault(line["collection"], []).append(line["document"])
    return found


@cache
def _changed(profile: str) -> dict[str, int]:
    """Return collection to the number of its first base documents that have lines of their own for each field."""
    every = list(_lines_of(RECORDED / f"{profile}-documents.jsonl"))
    return Counter(line["collection"] for line in every if line.get("changed", True))


def _values_for(path: str, held: object, *, tables: bool) -> tuple[Any, ...]:
    """Return the values to put into a field, by the value that it holds."""
    if not tables:
        return VALUES if type(held) is not str or held not in _WORDS else (*VALUES, *sorted(_WORDS))
    if path.startswith(INHERITED):
        return (None,) if isinstance(held, dict) else _INHERITED_VALUES
    further: tuple[Any, ...] = ()
    if isinstance(held, Binary) and held.subtype == table_row.TIME:
        further = _FURTHER_TIMES
    elif type(held) is str and held in _TABLE_WORDS:
        further = tuple(sorted(_TABLE_WORDS))
    return (*TABLE_VALUES, *further)


def _with_each_value(base: Document, path: str, *, tables: bool) -> Iterator[Document]:
    """Yield the base document without the field, then with each value in its place, then under another name."""
    *steps, last = path.split(".")
    raw = documents.encode(base)
    held: Any = base
    for step in path.split("."):
        held = _member(held, step)
    values = _values_for(path, held, tables=tables)
    for value in (..., *values):
        document = documents.decode(raw)
        place: Any = document
        for step in steps:
            place = place[int(step)] if isinstance(place, list) else place.setdefault(step, {})
        if value is ... and isinstance(place, list):
            place.pop(int(last))
        elif value is ...:
            place.pop(last, None)
            place[f"{last}X"] = held
        elif isinstance(place, list):
            place[int(last)] = value
        else:
            place[last] = value
        yield document


def _member(value: Any, step: str) -> Any:  # noqa: ANN401 - any BSON value
    if isinstance(value, list):
        return value[int(step)] if int(step) < len(value) else None
    return value.get(step) if isinstance(value, dict) else None


def _pick(choices: Sequence[Any], *why: object) -> Any:  # noqa: ANN401 - one of them
    """Return the choice that follows from ``why``: the same on every version of Python."""
    digest = hashlib.blake2s(repr(why).encode(), digest_size=8).digest()
    return choices[int.from_bytes(digest, "big") % len(choices)]


_LIKELY: Final[tuple[Any, ...]] = (
    *(NOON, NOON.replace(second=1), NOON.replace(second=2), NOON.replace(hour=11), "2026-11-20T12:00:01Z"),
    *(None, ..., True, False, 0, 1, 3, 2.5, Int64(2**40)),
)


def _with_changes(profile: str, collection: str, number: int) -> Document:
    """Return a base document after up to four changes of its fields, and at times in another order."""
    every = bases(profile)[collection]
    fields = sorted({name for base in every for name in base if name not in ("_id", INHERITED)})
    why = (profile, collection, number)
    document = dict(_pick(every, *why))
    for change in range(1 + number % _CHANGES):
        name = _pick(fields, *why, change, "name")
        held = [base[name] for base in every if name in base]
        other = (_LIKELY, VALUES) if profile not in TABLES else (TABLE_VALUES, (None, ..., 0, True, False))
        likely = _pick((held, held, held, held, *other), *why, change, "kind")
        value = _pick(likely, *why, change, "value")
        if value is ...:
            document.pop(name, None)
        else:
            document[name] = value
    if number % 7 == 0:
        document = {name: document[name] for name in sorted(document, key=lambda name: (name != "_id", name))}
    return document


def outcome(kind: Collection, context: Context, made: Document) -> list[str]:
    """Return the facts that the profile makes of a document, a line each."""
    document = documents.decode(documents.encode(made))
    try:
        decoded = kind.decode(document, context)
    except Rejected as rejected:
        return [f"rejected: {rejected.reason} at {rejected.path!r}, expected {rejected.expected}"]
    except Skipped as skipped:
        return [f"skipped: {skipped.reason}"]
    encoded = kind.encode(decoded.rows)
    left = remainder.difference(kind.without_derived(document), encoded)
    rows = kind.attach(decoded.rows, left)
    return [
        *sorted(f"finding: {note.kind} at {note.path}" for note in decoded.notes),
        f"remainder: {jsonb.canonicalise(left).decode()}",
        f"remainder in the rows: {kind.remainder(rows) == left}",
        *(fact for row in decoded.rows for fact in _columns(row)),
        f"encoded: {documents.encode(encoded).hex()}",
    ]


_types = cache(column_types)


def _columns(row: Record) -> Iterator[str]:
    for column, kind in _types(type(row)).items():
        value = getattr(row, column)
        if value is None:
            continue
        if kind == "jsonb":
            value = jsonb.canonicalise(value)
        elif isinstance(value, int) and not isinstance(value, bool):
            value = int(value)
        yield f"{row.table}.{column}: {value!r}"


def digest(line: Line, facts: Sequence[str]) -> str:
    """Return the digest of an outcome; which of several faults is named first is left open."""
    if line.what.startswith("changes") and facts[0].startswith("rejected"):
        facts = ["rejected"]
    return hashlib.blake2s("\n".join(facts).encode(errors="surrogatepass")).hexdigest()[:_DIGITS]


def outcomes(profile: str, line: Line) -> Iterator[list[str]]:
    """Yield what the profile makes of each document of a line."""
    kind, context = load_profile(profile).by_name()[line.collection], CONTEXTS[line.context]
    for document in line.documents(profile):
        facts = outcome(kind, context, document)
        yield [facts[0].partition(", expected ")[0]] if profile in TABLES and facts[0].startswith("rejected") else facts


def recorded(profile: str) -> dict[Line, list[str]]:
    """Return each line of a profile's record, with its digests."""
    found: dict[Line, list[str]] = {}
    for text in (RECORDED / f"{profile}.txt").read_text(encoding="utf-8").splitlines():
        key, _, digests = text.partition(": ")
        collection, context, what = key.split(" ", 2)
        found[Line(collection, context, what)] = digests.split()
    return found


def _all_lines(profile: str) -> Iterator[Line]:
    """Yield the lines that a record should have, by what the profile knows now."""
    for collection in load_profile(profile).collections:
        name = collection.name
        if profile == "stellaops" and name in COLLECTIONS:
            yield Line(name, "tenant", "demo")
        for folder in _FOLDERS if profile == "agenda" else ():
            if (DATA / folder / f"{name}.jsonl").exists():
                yield Line(name, "tenant", f"fixture/{folder}")
        if profile in TABLES:
            yield from _lines_of_table(profile, name)
            continue
        yield from (Line(name, context, "base") for context in CONTEXTS if context != "zone")
        yield from (Line(name, "tenant", f"changes/{block}") for block in range(20 if profile == "agenda" else 4))
        for number, base in enumerate(bases(profile)[name][: _changed(profile)[name]]):
            # What the profile knows and the documents do not say is given to the first one alone.
            known = {path.replace("[]", ".0") for path in collection.known if "*" not in path} if not number else set()
            for path in sorted({*_places(base), *(path for path in known if _fits(base, path))}):
                yield Line(name, "tenant", f"field/{number}/{path}")
                for context, matters in _FURTHER.items():
                    if matters(name, path):
                        yield Line(name, context, f"field/{number}/{path}")


def _lines_of_table(profile: str, name: str) -> Iterator[Line]:
    yield from (Line(name, context, "base") for context in ("zone", "tenant", "no-tenant"))
    yield from (Line(name, "zone", f"changes/{block}") for block in range(10))
    for number, base in enumerate(bases(profile)[name][: _changed(profile)[name]]):
        inherited = (f"{INHERITED}.{member}" for member in base.get(INHERITED, ()))
        for path in sorted({*base, *inherited} - {"_id", INHERITED}):
            yield Line(name, "zone", f"field/{number}/{path}")


def _places(value: Any, prefix: str = "", depth: int = 3) -> Iterator[str]:  # noqa: ANN401 - any BSON value
    members = value.items() if isinstance(value, dict) else enumerate(value[:1]) if isinstance(value, list) else ()
    for name, held in members:
        yield f"{prefix}{name}"
        if depth > 1:
            yield from _places(held, f"{prefix}{name}.", depth - 1)


def _fits(base: Document, path: str) -> bool:
    """Whether a field can be set in a document: what leads to it is a document or absent, or a list's item."""
    place: Any = base
    for step in path.split("."):
        if isinstance(place, list) and (not step.isdigit() or int(step) >= len(place)):
            return False
        if not isinstance(place, dict | list) or (isinstance(place, dict) and step.isdigit()):
            return False
        place = _member(place, step) if _member(place, step) is not None else {}
    return True


def structure(profile: str) -> dict[str, Any]:
    """Return the description of the profile's collections, without the two functions and the aggregates."""
    if profile in TABLES:
        return {one.name: _structure_of_table(one) for one in load_profile(profile).collections}
    return {
        one.name: {
            "tables": [table.table for table in one.tables],
            "after": sorted(one.after),
            "unique": sorted(",".join(columns) for columns in one.unique),
            "references": sorted(
                f"{each.record.table}.{each.column} to {each.target.table} of {each.collection or 'any collection'}"
                f"{', required' * each.required}{', shared' * each.shared}{', named' * (each.named is not None)}"
                f"{', prefix ' * bool(each.prefix)}{each.prefix}"
                for each in one.references
            ),
            "reference_paths": sorted(one.reference_paths),
            "known": sorted(one.known),
            "derived": {name: kind.__name__ for name, kind in one.derived.items()},
            "tenant": json.dumps(one.tenant_expression),
        }
        for one in load_profile(profile).collections
    }


def _structure_of_table(one: Collection) -> dict[str, Any]:
    return {
        "tables": [table.table for table in one.tables],
        "references": sorted(
            f"{each.record.table}.{each.column} to {each.target.table} of {each.collection}" for each in one.references
        ),
        "known": sorted(path for path in one.known if not path.endswith("[]")),
        "inherited": dict(one.inherited),
        "tenant": one.tenant_sql,
        "measures": sorted(f"{each.kind} {each.name}: {each.sql} and {each.source_sql}" for each in one.measures),
    }


def record(profiles: Sequence[str]) -> None:
    """Write the digests of profiles."""
    for profile in profiles:
        said = json.dumps(structure(profile), indent=1)
        (RECORDED / f"{profile}-collections.json").write_text(f"{said}\n", encoding="utf-8")
        written = [
            f"{line.key}: {' '.join(digest(line, facts) for facts in outcomes(profile, line))}\n"
            for line in _all_lines(profile)
        ]
        (RECORDED / f"{profile}.txt").write_text("".join(written), encoding="utf-8")


def show(case: str) -> str:
    """Return the document of a case (``PROFILE COLLECTION CONTEXT WHAT NUMBER``), and what becomes of it."""
    profile, collection, context, rest = case.split(" ", 3)
    what, _, number = rest.rpartition(" ")
    line = Line(collection, context, what)
    document = list(line.documents(profile))[int(number)]
    facts = outcome(load_profile(profile).by_name()[collection], CONTEXTS[context], document)
    encoded = next((fact for fact in facts if fact.startswith("encoded: ")), None)
    if encoded is not None:
        facts[-1] = f"encoded: {json_util.dumps(bson.decode(bytes.fromhex(encoded[9:])), json_options=_JSON)}"
    return "\n".join((case, f"document: {json_util.dumps(document, json_options=_JSON)}", *facts, ""))


def compare(folder: str, cases: Sequence[str]) -> str:
    """Return how the outcomes of the cases differ from those of the working tree of another commit."""
    command = [sys.executable, "-c", "import sys; from tests.ports import main; main(['show', *sys.argv[1:]])", *cases]
    environment = {**os.environ, "PYTHONPATH": folder, "PYTHONDONTWRITEBYTECODE": "1"}
    before = subprocess.run(command, capture_output=True, text=True, check=True, cwd=folder, env=environment).stdout
    after = "\n".join(map(show, cases)) + "\n"
    return "\n".join(difflib.unified_diff(before.splitlines(), after.splitlines(), folder, "here", lineterm="", n=3))


def main(arguments: Sequence[str]) -> None:
    """Run one of the commands."""
    match arguments:
        case ["record", *profiles]:
            record(profiles)
        case ["show", *cases]:
            print("\n".join(map(show, cases)))  # noqa: T201 - a command
        case ["compare", folder, *cases]:
            print(compare(folder, cases))  # noqa: T201 - a command
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
