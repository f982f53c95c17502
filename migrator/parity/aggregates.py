"""Aggregates computed by MongoDB's pipeline and by SQL, compared: a second opinion without code of the transform.

A codec fault that is symmetric passes every round trip; it does not pass this. One pass per collection and side:
grouped by tenant and by all the words that are counted, with every sum and every first and last time. Documents that
are in no table on purpose (quarantined, left out by a rule) are left out by ``_id``.

The cost is MongoDB's, for each expression and document. So documents are grouped by the words as they stand, and older
spellings are replaced in the groups. What holds for all documents is used (``uniformity``): fields without a value in
any document, or with one in every document, are not counted one by one, and of times that are texts of one form only
the first and the last text are read as times. The documents are grouped while they are compared, as if it held; if the
comparison says that it does not, they are grouped again. A number is not converted to a decimal. If a sum is too large
for a double to be exact, or is no number, everything is computed again, with decimals.

Per column the number of values is counted, and of characters or members. Which field a column comes from is declared
here a second time, apart from the profiles: a column that was mixed up with another passes the round trip where reading
and writing mix them up alike. Columns that a profile derives (ids, references, durations, words with older spellings)
are compared by the round trip and the other aggregates alone.
"""

import math
import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from decimal import Decimal
from typing import Any, Final, Literal, TypeAlias

import msgspec
import psycopg
from bson import Decimal128
from bson.errors import InvalidBSON
from bson.raw_bson import RawBSONDocument
from psycopg import sql
from psycopg.rows import dict_row
from pymongo.database import Database
from pymongo.errors import OperationFailure

from migrator.config import Settings
from migrator.connections import mongo, postgres
from migrator.errors import DeniedError, RefusedError, UnreachableError
from migrator.parity.model import AggregateDifference, AggregateResult
from migrator.parity.uniformity import NOTHING, FieldCounter, FieldCounts, Uniformity, confirmed
from migrator.pipeline.extract import BATCH_BYTES
from migrator.pipeline.sessions import JobSessions, Sessions, open_sessions, retry_transient, run_with_sessions
from migrator.pipeline.tables import TableCollection, TableReader
from migrator.records import Record
from migrator.sources import history
from migrator.sources.profile import Collection, Measure, Profile
from migrator.store.postgres.rows import table_name
from migrator.targets.model import SEPARATOR
from migrator.values.identity import id_filter

LARGEST_EXCLUSION: Final = 8 * 1024 * 1024
"""Bytes of ``_id`` values that may be left out one by one; MongoDB takes no command over 16 MB."""
DIFFERENCES_LISTED: Final = 20
SIMPLE: Final = {"locale": "simple"}
"""Compare texts byte by byte, whatever the collection's own collation."""
NONE: Final = "(none)"
"""Label of documents in which a word is absent or null."""

_Number = int | Decimal
_Values = dict[tuple[str, str], _Number | None]
"""(tenant, label) → value, of one measure."""

_Pipeline = Sequence[Mapping[str, Any]]

_Row = Mapping[str, Any]
"""``tenant``, ``documents``, and by the position of a measure: ``g0`` a word, ``s1`` a sum, ``a2`` and ``z2`` times."""

_DOCUMENTS: Final = Measure(name="documents", kind="group", expression=None, sql="NULL")
_NUMBER_OF_MEMBER: Final = re.compile(r"(\(\w+(?: *-> *'\w+')* *->> *'\w+'\))::numeric")
"""A member of a jsonb column is a text before it is a number. As a number of 64 bits, PostgreSQL reads it in half the
time, and refuses any other: it rounds no text.
"""
_PRESENCE: Final = re.compile(r"\(CASE WHEN (\w+) IS NULL THEN 0 ELSE 1 END\)")
"""PostgreSQL counts values in less time than it adds up ones and zeros."""
_TOLERANCE: Final = Decimal("1e-9")
"""Share of a sum by which two sums of fractions may differ: doubles are added in no fixed order."""
_FIRST: Final = 500
"""Number of documents that say, before the others are read, what is supposed of all of them."""
_FIRST_AT_A_TIME: Final = 50
"""Of these, the number that MongoDB is asked for at a time: they may be large."""
_EXACT: Final = 2.0**53
"""Up to here a double holds every whole number."""
_TIME: Final = "_migrator_time_"
"""Prefix of the fields that MongoDB adds to a document for its times."""
_READABLE: Final = "readable"
"""Whether the first and the last texts of a group are times."""


class BothSides(msgspec.Struct, frozen=True, kw_only=True):
    """What both databases computed of a collection, as partial aggregates."""

    collection: str
    left_out: tuple[str, ...]
    """Source ids of the documents that were not counted."""
    source: list[dict[str, Any]] = []
    target: list[dict[str, Any]] = []
    supposed: Uniformity = NOTHING
    """What MongoDB took for granted of each document."""
    uncomputable: str = ""
    """Why one of them could not compute it; empty: both could."""


class AggregatesJob(msgspec.Struct, frozen=True, kw_only=True):
    """The aggregates of one collection of MongoDB, as they are sent to a worker."""

    settings: Settings
    collection: str
    left_out: tuple[str, ...]
    default_tenant: str | None
    history_before: datetime | None = None
    """As ``Context.history_before``."""


def compute_aggregates(job: AggregatesJob) -> BothSides:
    """Let both databases compute the aggregates of a collection; reads only."""
    return run_with_sessions(job.settings, lambda sessions: _of_job(job, sessions), JobSessions)


def compute_aggregates_apart(job: AggregatesJob) -> BothSides:
    """Do the same with connections of its own, in a process that has others."""

    def compute() -> BothSides:
        with open_sessions(job.settings) as sessions:
            return _of_job(job, sessions)

    return retry_transient(job.settings, compute)


def _of_job(job: AggregatesJob, sessions: Sessions) -> BothSides:
    profile = with_column_measures(sessions.profile)
    collection, name = profile.by_name()[job.collection], sessions.name_of(job.collection)
    among = history.in_scope(collection, job.history_before)
    return _both_sides(
        sessions.source, name, sessions.target, profile, collection, job.left_out, job.default_tenant, among
    )


def compare_aggregates(
    source: Database[dict[str, Any]] | TableReader,
    connection: psycopg.Connection[Any],
    profile: Profile,
    excluded: Mapping[str, Sequence[str]],
    *,
    default_tenant: str | None = None,
    names: Mapping[str, str] | None = None,
    only: Iterable[str] | None = None,
    computed: Iterable[BothSides] = (),
    fields: Mapping[str, FieldCounts] = {},
    uncounted: Mapping[str, int] = {},
    history_before: datetime | None = None,
) -> list[AggregateResult]:
    """Compare every measure of every collection; an aggregate that cannot be computed is unverified, and no error.

    ``excluded`` holds source ids by collection; ``default_tenant`` is that of documents without one; ``names`` maps a
    profile's collection to its name in this database. ``computed``: what workers computed before it was known which
    documents are excluded, and what the fields hold; it counts where they left out just these, and where what they
    supposed holds. ``fields``: what the fields hold of the documents that are not excluded; of another collection
    nothing is known. ``uncounted``: collections with more excluded documents than are held. ``history_before``: what is
    left out as history is not counted.

    Raises ``UnreachableError`` when a server goes away.
    """
    chosen = profile.collections if only is None else [one for one in profile.collections if one.name in set(only)]
    before = {one.collection: one for one in computed}
    results: list[AggregateResult] = []
    for collection in chosen:
        left_out = tuple(sorted(excluded.get(collection.name, ())))
        sides, known = before.get(collection.name), fields.get(collection.name, FieldCounts())
        if collection.name in uncounted:
            reason = _too_many(uncounted[collection.name])
            sides = BothSides(collection=collection.name, left_out=(), uncomputable=reason)
        elif sides is None or not _counts(sides, left_out, known):
            name = (names or {}).get(collection.name, collection.name)
            among = history.in_scope(collection, history_before)
            sides = _both_sides(source, name, connection, profile, collection, left_out, default_tenant, among, known)
        results += _compared(collection, _measures(collection, in_tables=isinstance(source, TableReader)), sides)
    return results


def _counts(sides: BothSides, left_out: tuple[str, ...], known: FieldCounts) -> bool:
    """Whether what was computed is of the right documents, and what was supposed of them holds."""
    return sides.left_out == left_out and confirmed(sides.supposed, known) == sides.supposed


def counted_rows(profile: Profile, computed: Iterable[BothSides]) -> dict[tuple[str, str], int]:
    """Return how many rows PostgreSQL counted, by collection and table: of the table whose rows it added up."""
    by_name = profile.by_name()
    return {
        (one.collection, _owner(by_name[one.collection]).table): sum(row["documents"] for row in one.target)
        for one in computed
        if not one.uncomputable
    }


def field_counter(profile: Profile, collection: Collection) -> FieldCounter:
    """Return a counter of the fields of a collection's documents of which the aggregates may suppose something."""
    return FieldCounter(_fields_of(_with_column_measures(profile, collection).measures))


def _measures(collection: Collection, *, in_tables: bool) -> tuple[Measure, ...]:
    return (_DOCUMENTS, *(one for one in collection.measures if not in_tables or one.source_sql))


def _both_sides(
    source: Database[dict[str, Any]] | TableReader,
    name: str,
    connection: psycopg.Connection[Any],
    profile: Profile,
    collection: Collection,
    left_out: tuple[str, ...],
    default_tenant: str | None,
    among: Mapping[str, Any],
    counts: FieldCounts | None = None,
) -> BothSides:
    """Compute both. ``counts``: what the fields hold; None: the first documents say what is supposed."""
    measures = _measures(collection, in_tables=isinstance(source, TableReader))
    supposed = NOTHING
    try:
        stored = _from_postgres(connection, profile, collection, measures)
        if isinstance(source, TableReader):
            partial = _from_tables(source.of(collection), measures, left_out, default_tenant)
        else:
            counted = _Counted(source[name], among, left_out)
            supposed = confirmed(_expected(measures, stored), counted.first(measures) if counts is None else counts)
            partial = _from_mongo(counted, collection, measures, default_tenant, supposed)
    except _NotComparable as error:
        return BothSides(collection=collection.name, left_out=left_out, supposed=supposed, uncomputable=str(error))
    return BothSides(collection=collection.name, left_out=left_out, supposed=supposed, source=partial, target=stored)


def _compared(collection: Collection, measures: Sequence[Measure], sides: BothSides) -> list[AggregateResult]:
    if sides.uncomputable:
        return [_result(collection, measure, unverified=sides.uncomputable) for measure in measures]
    expected, actual = _fold(measures, sides.source), _fold(measures, sides.target)
    return [_compare(collection, measure, expected[measure.name], actual[measure.name]) for measure in measures]


class _Counted:
    """The documents of a collection of MongoDB that are counted."""

    def __init__(
        self,
        source: Any,  # noqa: ANN401 - a pymongo collection of whatever document class
        among: Mapping[str, Any],
        left_out: Sequence[str],
    ) -> None:
        left = _left_out(left_out)
        conditions = [*([among] if among else []), *([] if left is None else [{"_id": left}])]
        self._source, self._conditions = source, [{"$match": condition} for condition in conditions]

    def aggregated(self, pipeline: _Pipeline) -> list[dict[str, Any]]:
        """Return the results of the pipeline; raise ``_NotComparable`` if MongoDB cannot compute them."""
        with _not_comparable():
            return list(self._source.aggregate([*self._conditions, *pipeline], allowDiskUse=True, collation=SIMPLE))

    def first(self, measures: Iterable[Measure]) -> FieldCounts:
        """Return the counts of the fields of the first ones: of fewer if they are large."""
        counter, pipeline, size = FieldCounter(_fields_of(measures)), [*self._conditions, {"$limit": _FIRST}], 0
        with (
            _not_comparable(),
            self._source.aggregate_raw_batches(pipeline, collation=SIMPLE, batchSize=_FIRST_AT_A_TIME) as batches,
        ):
            for batch in batches:
                counter.add(batch)
                size += len(batch)
                if size >= BATCH_BYTES:
                    break
        return counter.counts()


@contextmanager
def _not_comparable() -> Iterator[None]:
    """Raise ``_NotComparable`` for what MongoDB cannot compute, and the tool's errors for all others."""
    with mongo.translate_errors("the source"):
        try:
            yield
        except OperationFailure as error:
            raise _NotComparable(
                f"MongoDB could not compute it: {(error.details or {}).get('codeName', error.code)}"
            ) from error
        except InvalidBSON as error:  # written since the documents were compared, else it was left out
            raise _NotComparable("a document holds a text that is not UTF-8") from error


def _from_mongo(
    counted: _Counted,
    collection: Collection,
    measures: Sequence[Measure],
    default_tenant: str | None,
    uniform: Uniformity,
) -> list[dict[str, Any]]:
    def aggregated(uniform: Uniformity, *, decimals: bool = False) -> list[dict[str, Any]]:
        pipeline = _pipeline(collection, measures, default_tenant, uniform, decimals=decimals)
        return [{**row, **row["_id"]} for row in counted.aggregated(pipeline)]

    groups = aggregated(uniform)
    if not all(row[_READABLE] for row in groups):
        uniform = msgspec.structs.replace(uniform, times=frozenset())
        groups = aggregated(uniform)
    if any(_is_inexact(value) for row in groups for name, value in row.items() if name.startswith("s")):
        groups = aggregated(uniform, decimals=True)
    nothing = dict.fromkeys(_sums_of(measures, uniform.empty), 0) | dict.fromkeys(_times_of(measures, uniform.empty))
    filled = _presences_of(measures, uniform.filled)
    return [{**nothing, **dict.fromkeys(filled, row["documents"]), **row} for row in groups]


def _is_inexact(value: object) -> bool:
    """Whether a sum may be another one in decimals: a large double, or no finite number."""
    if isinstance(value, Decimal128):
        return not value.to_decimal().is_finite()
    return isinstance(value, float) and not abs(value) < _EXACT


def _expected(measures: Sequence[Measure], stored: Sequence[_Row]) -> Uniformity:
    """Return the properties that all rows have, so that all documents should have them."""
    fields = _fields_of(measures)
    times = {name for name, is_time in fields.items() if is_time}
    counted = {name for name in fields if _presences_of(measures, {name})}
    empty = {
        field
        for field in counted | (times if stored else set())
        if not any(row[name] for name in _sums_of(measures, {field}) for row in stored)
        and all(row[name] is None for name in _times_of(measures, {field}) for row in stored)
    }
    filled = {
        field
        for field in counted
        if stored and all(row[name] == row["documents"] for name in _presences_of(measures, {field}) for row in stored)
    }
    return Uniformity(empty=frozenset(empty), filled=frozenset(filled), times=frozenset(times - empty))


def _fields_of(measures: Iterable[Measure]) -> dict[str, bool]:
    """Return the fields at the top of a document of which something may be supposed: name → whether it is a time."""
    measured = [one for one in measures if one.field and "." not in one.field]
    times = {one.field for one in measured if one.kind == "time"}
    presences = {one.field for one in measured if _presences_of([one], {one.field})}
    return {name: name in times for name in sorted(times | presences)}


def _sums_of(measures: Sequence[Measure], fields: Container[str]) -> list[str]:
    return [f"s{index}" for index, one in enumerate(measures) if one.kind == "sum" and one.field in fields]


def _times_of(measures: Sequence[Measure], fields: Container[str]) -> list[str]:
    """Return the names of the first and the last time of the measures of these fields."""
    return [
        f"{letter}{index}"
        for index, measure in enumerate(measures)
        if measure.kind == "time" and measure.field in fields
        for letter in "az"
    ]


def _presences_of(measures: Sequence[Measure], fields: Container[str]) -> list[str]:
    """Return the sums of 1 for each document that has a value in one of the fields."""
    return [
        f"s{index}"
        for index, one in enumerate(measures)
        if one.kind == "sum" and one.field in fields and one.expression == _is_filled(f"${one.field}")
    ]


def _from_tables(
    source: TableCollection, measures: Sequence[Measure], left_out: Sequence[str], default_tenant: str | None
) -> list[dict[str, Any]]:
    try:
        return source.aggregate(measures, left_out, default_tenant)
    except (RefusedError, UnreachableError) as error:
        uncomputable = isinstance(error.__cause__, psycopg.DataError | psycopg.ProgrammingError)
        if uncomputable and not isinstance(error, DeniedError):
            raise _NotComparable(f"the source could not compute it: {error}") from error
        raise


class _NotComparable(Exception):  # noqa: N818 - an answer about one collection, not a failure of the tool
    """An aggregate cannot be computed in the same way on both sides."""


def _left_out(source_ids: Sequence[str]) -> RawBSONDocument | None:
    """Return the filter on ``_id`` of the documents that are counted, or None if all are."""
    if not source_ids:
        return None
    filtered = id_filter(source_ids, "$nin")
    if len(filtered.raw) > LARGEST_EXCLUSION:
        raise _NotComparable(_too_many(len(source_ids)))
    return filtered


def _too_many(documents: int) -> str:
    return f"{documents} documents are quarantined, too many to leave out one by one"


def _pipeline(
    collection: Collection,
    measures: Sequence[Measure],
    default_tenant: str | None,
    uniform: Uniformity,
    *,
    decimals: bool,
) -> _Pipeline:
    """Return the pipeline, without what is known of all documents.

    ``decimals``: all sums are decimals, which are exact where a double is not.
    """
    keys = {"tenant": {"$ifNull": [collection.tenant_expression, {"$literal": default_tenant}]}}
    keys |= {f"g{index}": one.expression for index, one in enumerate(measures) if _is_of_words(one)}
    of_words = {"tenant", *(f"g{index}" for index, one in enumerate(measures) if one.field)}
    paths = {name: _paths(one) for name, one in keys.items() if name in of_words}
    paths = {name: those for name, those in paths.items() if not any(path.startswith("$$") for path in those)}
    raw_keys = {path: f"k{index}" for index, path in enumerate(sorted(set().union(*paths.values())))}
    in_group = {path: f"$_id.{name}" for path, name in raw_keys.items()}
    computed = {name: expression for name, expression in keys.items() if name not in paths}
    labels = {name: _with_paths(keys[name], in_group) if name in paths else f"$_id.{name}" for name in keys}
    known = {*_sums_of(measures, uniform.empty), *_presences_of(measures, uniform.filled)}
    presences_of_times = _presences_of(measures, uniform.times)
    times: dict[str, Any] = {}
    figures: dict[str, Any] = {"documents": {"$sum": 1}}
    reading: dict[str, Any] = {}
    readable: list[Any] = []
    for index, measure in enumerate(measures):
        if measure.kind == "sum" and f"s{index}" not in known:
            is_of_time = f"s{index}" in presences_of_times
            summand = {"$cond": [f"${measure.field}", 1, 0]} if is_of_time else _summand(measure, decimals=decimals)
            figures[f"s{index}"] = {"$sum": summand}
        elif measure.kind == "time" and measure.field not in uniform.empty:
            path = f"${_TIME}{index}"
            if measure.field in uniform.times:
                path = f"${measure.field}"
                for name in (f"a{index}", f"z{index}"):
                    reading[name] = _with_paths(measure.expression, {path: f"${name}"})
                    readable.append({"$eq": [_is_given(f"${name}"), _is_given(reading[name])]})
            else:
                times[path.removeprefix("$")] = measure.expression
            figures |= {f"a{index}": {"$min": path}, f"z{index}": {"$max": path}}
    return [
        *([{"$addFields": times}] if times else []),
        {"$group": {"_id": {name: path for path, name in raw_keys.items()} | computed, **figures}},
        {"$project": {**dict.fromkeys(figures, 1), **reading, _READABLE: {"$and": readable}, "_id": labels}},
    ]


def _is_of_words(measure: Measure) -> bool:
    """Whether documents are grouped by it."""
    return measure.kind == "group" and measure is not _DOCUMENTS


def _is_given(expression: Any) -> Any:  # noqa: ANN401 - MongoDB expressions
    return {"$ne": [{"$ifNull": [expression, None]}, None]}


def _paths(expression: Any) -> set[str]:  # noqa: ANN401 - a MongoDB expression
    """Return the paths and the variables of which an expression is made."""
    if isinstance(expression, Mapping):
        return set().union(*(_paths(value) for name, value in expression.items() if name != "$literal"))
    if isinstance(expression, list | tuple):
        return set().union(*map(_paths, expression))
    return {expression} if isinstance(expression, str) and expression.startswith("$") else set()


def _with_paths(expression: Any, paths: Mapping[str, str]) -> Any:  # noqa: ANN401 - MongoDB expressions
    """Return the expression with other paths."""
    if isinstance(expression, Mapping):
        return {name: value if name == "$literal" else _with_paths(value, paths) for name, value in expression.items()}
    if isinstance(expression, list | tuple):
        return [_with_paths(value, paths) for value in expression]
    return paths.get(expression, expression) if isinstance(expression, str) else expression


def _summand(measure: Measure, *, decimals: bool) -> Any:  # noqa: ANN401 - a MongoDB expression
    """Return the number to add, without NaN and the infinities: JSON has no such numbers, so neither has the target.

    What is not known to be a number is converted, which fails for some texts.
    """
    if measure.name.startswith(PREFIX):
        return measure.expression
    match measure.expression:
        case {"$cond": [{"$isNumber": str(field)}, str(value), None]} if field == value:
            if not decimals:  # what is no number is not added; of NaN and the infinities, the sum is none either
                return field
            found = {"$cond": [{"$and": [{"$gt": [field, -math.inf]}, {"$lt": [field, math.inf]}]}, field, None]}
            return {"$toDecimal": found}
        case {"$cond": [_, int(), {"$cond": [{"$isNumber": str(field)}, str(value), None]}]} if field == value:
            if not decimals:  # with a default, of which the same holds
                return {"$cond": [*measure.expression["$cond"][:2], field]}
            return {"$toDecimal": _finite(measure.expression)}
        case expression:
            return {"$toDecimal": _finite(expression)}


def _finite(expression: Any) -> Any:  # noqa: ANN401 - a MongoDB expression
    not_finite = [math.nan, math.inf, -math.inf]
    return {"$let": {"vars": {"n": expression}, "in": {"$cond": [{"$in": ["$$n", not_finite]}, None, "$$n"]}}}


def _from_postgres(
    connection: psycopg.Connection[Any], profile: Profile, collection: Collection, measures: Sequence[Measure]
) -> list[dict[str, Any]]:
    members = {one.name: _NUMBER_OF_MEMBER.fullmatch(one.sql) for one in measures if one.kind == "sum"}
    if any(members.values()):
        whole = [
            msgspec.structs.replace(one, sql=f"{member[1]}::bigint") if (member := members.get(one.name)) else one
            for one in measures
        ]
        with suppress(_NotComparable):  # one of them is another number
            return _grouped(connection, profile, collection, whole)
    return _grouped(connection, profile, collection, measures)


def _grouped(
    connection: psycopg.Connection[Any], profile: Profile, collection: Collection, measures: Sequence[Measure]
) -> list[dict[str, Any]]:
    owner = _owner(collection)
    group_columns, sums = ["tenant_id AS tenant"], ["count(*) AS documents"]
    for index, measure in enumerate(measures):
        if _is_of_words(measure):
            group_columns.append(f"({measure.sql}) AS g{index}")
        elif measure.kind == "sum":
            presence = _PRESENCE.fullmatch(measure.sql)
            sums.append(f"{f'count({presence[1]})' if presence else f'sum({measure.sql})'} AS s{index}")
        elif measure.kind == "time":
            first, last = (measure.reading.format(f"{outermost}({measure.sql})") for outermost in ("min", "max"))
            sums += [f"{first} AS a{index}", f"{last} AS z{index}"]
    text = "SELECT {columns} FROM {table} AS {alias}{where} GROUP BY {keys}"
    has_source = "source" in owner.__struct_fields__
    query = sql.SQL(text).format(  # the expressions are the profile's own code, no input
        columns=sql.SQL(", ").join(sql.SQL(one) for one in (*group_columns, *sums)),
        table=table_name(owner.table),
        alias=sql.Identifier(owner.table.rpartition(SEPARATOR)[2]),
        where=sql.SQL(" WHERE source = %s" if has_source else ""),
        keys=sql.SQL(", ").join(sql.SQL(str(position)) for position in range(1, len(group_columns) + 1)),
    )
    try:
        with (
            postgres.translate_errors("the target"),
            connection.transaction(),
            connection.cursor(row_factory=dict_row) as cursor,
        ):
            return cursor.execute(query, [profile.source_of(collection.name)] if has_source else []).fetchall()
    except UnreachableError as error:
        if isinstance(error.__cause__, psycopg.DataError):
            raise _NotComparable(f"PostgreSQL could not compute it: {type(error.__cause__).__name__}") from error
        raise


def _owner(collection: Collection) -> type[Record]:
    """Return the table that has a row for each document."""
    return collection.tables[0]


def _fold(measures: Sequence[Measure], rows: Iterable[_Row]) -> dict[str, _Values]:
    """Add up the partial aggregates: per measure, by tenant and label."""
    folded: dict[str, _Values] = {one.name: {} for one in measures}
    for row in rows:
        tenant = _label(row.get("tenant"))
        for index, measure in enumerate(measures):
            into = folded[measure.name]
            if measure.kind == "group":
                label = "" if measure is _DOCUMENTS else _label(row.get(f"g{index}"))
                _add(into, (tenant, label), _number(row["documents"]))
            elif measure.kind == "sum":
                _add(into, (tenant, "sum"), _number(row[f"s{index}"]))
            else:
                _outermost(into, (tenant, "first"), _number(row[f"a{index}"]), first=True)
                _outermost(into, (tenant, "last"), _number(row[f"z{index}"]), first=False)
    return folded


def _add(into: _Values, at: tuple[str, str], value: _Number | None) -> None:
    into[at] = (into.get(at) or 0) + (value or 0)


def _outermost(into: _Values, at: tuple[str, str], value: _Number | None, *, first: bool) -> None:
    held = into.get(at)
    if held is None or value is None:
        into[at] = value if held is None else held
    else:
        into[at] = held if (held <= value) == first else value


def _compare(collection: Collection, measure: Measure, expected: _Values, actual: _Values) -> AggregateResult:
    places = sorted({*expected, *actual})
    differing = [
        AggregateDifference(tenant=at[0], label=at[1], source=_text(expected.get(at)), target=_text(actual.get(at)))
        for at in places
        if not _same(expected.get(at), actual.get(at))
    ]
    summed = measure.kind == "sum"
    return _result(
        collection,
        measure,
        source_total=_text(_total(expected)) if summed else "",
        target_total=_text(_total(actual)) if summed else "",
        tenants=len({tenant for tenant, _ in places}),
        compared=len(places),
        differing=tuple(differing[:DIFFERENCES_LISTED]),
        differing_total=len(differing),
    )


def _total(sums: _Values) -> _Number:
    return sum(value for value in sums.values() if value is not None)


def _result(collection: Collection, measure: Measure, **rest: Any) -> AggregateResult:  # noqa: ANN401 - its fields
    return AggregateResult(
        collection=collection.name,
        table=collection.tables[0].table,
        measure=measure.name,
        kind=measure.kind,
        **rest,
    )


def _same(expected: _Number | None, actual: _Number | None) -> bool:
    if expected is None or actual is None or expected == actual:
        return expected == actual
    if _is_whole(expected) and _is_whole(actual):
        return False
    before, after = Decimal(expected), Decimal(actual)
    return abs(before - after) <= _TOLERANCE * max(abs(before), abs(after))


def _is_whole(value: _Number) -> bool:
    return isinstance(value, int) or value == value.to_integral_value()


def _label(value: object) -> str:
    if value is None:
        return NONE
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def _number(value: object) -> _Number | None:
    if value is None or isinstance(value, int | Decimal):
        return value
    return value.to_decimal() if isinstance(value, Decimal128) else Decimal(str(value))


def _text(value: _Number | None) -> str:
    if value is None:
        return NONE
    return str(int(value)) if _is_whole(value) else str(value)


ColumnMeasure: TypeAlias = Literal["filled", "characters", "members"]
"""Not null; besides the length of a text; besides the length of a list."""

PREFIX: Final = "column "
"""The names of these measures begin with it."""

WHITE_SPACE: Final = "".join(chr(code) for code in range(0x3001) if chr(code).isspace())
"""What trimming takes from the ends of a text; what MongoDB's ``$trim`` takes by itself is another set."""

_AUTHORED = "createdBy updatedBy deletedBy"
_SCHEDULE = (
    "selection onlyIf notify limits createdAt updatedAt deletedAt payload priority maxRetries retryDelayMs"
    " retryStrategy retryCapMs retryCount onExhausted timeoutMs maxConcurrency metadata pausedAt cancelledAt"
    " completedAt mode"
)
_RUN = (
    "stats reason deltas createdAt startedAt finishedAt runNumber attempt scheduledAt availableAt fence"
    " leaseExpiresAt result metadata"
)
_FIELDS: Final[Mapping[str, tuple[str, str, str, str]]] = {
    "stellaops/schedules": (_SCHEDULE, "name description handlerName queue", _AUTHORED, "subscribers tags"),
    "stellaops/triggers": (
        "intervalMs anchor runAt startAt endAt maxFires misfirePolicy misfireGraceMs nextFireAt lastFireAt",
        "cronExpression timezone eventName",
        "",
        "",
    ),
    "stellaops/runs": (
        _RUN,
        "workerId externalTaskId errorDetail traceId spanId parentSpanId triggeredBy dedupeKey",
        "error",
        "",
    ),
    "stellaops/execution_logs": ("loggedAt context", "level message", "", ""),
    "stellaops/impact_snapshots": ("selector images usageOnly generatedAt total", "", "snapshotId", ""),
    "stellaops/run_summaries": ("updatedAt lastRun recent counters", "", "", ""),
    "stellaops/workers": ("pid capacity registeredAt lastHeartbeatAt metadata", "hostname version", "", "queues"),
    "stellaops/locks": ("acquiredAt metadata", "", "", ""),
    "stellaops/audit": ("occurredAt actor metadata", "category action", "entityId correlationId message", ""),
    "stellaops/handlers": ("defaultTimeoutMs", "name handlerPath queue", "", ""),
    "stellaops/graph_jobs": ("", "", "correlationId", ""),
}
"""Fields that are a column of the same name in camelCase: filled only, texts, texts that are trimmed, lists.

A text that is trimmed is counted as the source's model keeps it: without white space at its ends, a blank one not at
all. Any other text counts as it is, an empty one too.
"""


def with_column_measures(profile: Profile) -> Profile:
    """Return the profile, its collections measured column by column as well."""
    return msgspec.structs.replace(
        profile, collections=tuple(_with_column_measures(profile, collection) for collection in profile.collections)
    )


def has_column_measures(profile: str) -> bool:
    """Whether fields of this profile are columns as they stand, so that both databases can count them."""
    return any(source.startswith(f"{profile}/") for source in _FIELDS)


def split_columns(results: list[AggregateResult]) -> tuple[list[AggregateResult], list[AggregateResult]]:
    """Return the aggregates of the profile, and those of the columns."""
    own = [one for one in results if not one.measure.startswith(PREFIX)]
    return own, [one for one in results if one.measure.startswith(PREFIX)]


def column_of(measure: str) -> tuple[str, str]:
    """Return column and kind of one of these measures."""
    column, _, kind = measure.removeprefix(PREFIX).partition(" ")
    return column, kind


def _with_column_measures(profile: Profile, collection: Collection) -> Collection:
    filled, texts, trimmed, lists = _FIELDS.get(profile.source_of(collection.name), ("", "", "", ""))
    measures = [
        *(_measure(field, "filled") for field in f"{filled} {texts} {lists}".split()),
        *(_measure(field, "filled", trim=True) for field in trimmed.split()),
        *(_measure(field, "characters") for field in texts.split()),
        *(_measure(field, "characters", trim=True) for field in trimmed.split()),
        *(_measure(field, "members") for field in lists.split()),
    ]
    return msgspec.structs.replace(collection, measures=(*collection.measures, *measures))


def _of_text(path: str, expression: Mapping[str, Any], otherwise: object) -> Any:  # noqa: ANN401 - a MongoDB expression
    """Return the expression for texts; few documents have the field, and looking for one is what costs."""
    return {"$cond": [{"$eq": [{"$type": path}, "string"]}, expression, otherwise]}


def _is_filled(path: str) -> dict[str, Any]:
    """Return the expression for 1 if there is a value, else 0."""
    return {"$cond": [_is_given(path), 1, 0]}


def _measure(field: str, kind: ColumnMeasure, *, trim: bool = False) -> Measure:
    """Return a measure of a column; ``trim``: a text without white space at its ends, and a blank one is none."""
    column = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in field)
    path = f"${field}"
    bare: dict[str, Any] = {"$trim": {"input": path, "chars": WHITE_SPACE}}
    expression: Any
    if kind == "filled":
        expression = _of_text(path, {"$cond": [{"$eq": [bare, ""]}, 0, 1]}, 0) if trim else _is_filled(path)
        sql = f"(CASE WHEN {column} IS NULL THEN 0 ELSE 1 END)"
    elif kind == "characters":
        expression = _of_text(path, {"$strLenCP": bare if trim else path}, 0)
        sql = f"coalesce(length({column}), 0)"
    else:
        expression = {"$cond": [{"$isArray": path}, {"$size": path}, 0]}
        sql = f"coalesce(cardinality({column}), 0)"
    return Measure(name=f"{PREFIX}{column} {kind}", kind="sum", expression=expression, sql=sql, field=field)
