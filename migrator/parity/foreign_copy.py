"""The parity check of a copy that another tool or a script made: by the mapping, and read only.

There is no plan, no ledger, no quarantine and no remainder to ask. What remains is what the mapping says of each
document: the rows that it makes, compared with the stored ones value by value, and the fields that no column holds.
What was not looked at is named, and does not count as equal.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from typing import Literal, TypeVar
from uuid import UUID

import msgspec

from migrator.config import Settings
from migrator.connections.mongo import translate_errors as translate_source_errors
from migrator.connections.postgres import Connection
from migrator.errors import RefusedError, UsageError
from migrator.parity.causes import classify, describe_difference
from migrator.parity.check import LEFT_OUT
from migrator.parity.compare import DESCRIBED, ChunkTotals, compared_value, count_notes
from migrator.parity.foreign_tables import (
    ForeignTable,
    Key,
    Origins,
    SeenRows,
    StoredRow,
    existing_origins,
    foreign_tables,
    opened_copy,
    rows_by_columns,
    rows_by_match,
    rows_by_origin,
    unseen_rows,
)
from migrator.parity.model import CollectionComparison, ParityOutcome, Side, in_order, tally_of
from migrator.pipeline import plan as plans
from migrator.pipeline.extract import SourceCollection, batch_documents, no_collection_message
from migrator.pipeline.plan import Scope
from migrator.pipeline.references import UncheckedResolver
from migrator.pipeline.sessions import SourceSessions
from migrator.pipeline.transform import SerializedRow, SourceDocument, transform_documents
from migrator.records import Record
from migrator.result import Finding
from migrator.sources import context_of
from migrator.sources.profile import Collection, Reference
from migrator.store import validation
from migrator.values import remainder
from migrator.values.copy_format import codec
from migrator.values.identity import source_id_of

Item = TypeVar("Item")
Group = TypeVar("Group", bound=Hashable)

LinkState = Literal["holds", "broken", "partly", "not-applicable"]
SPELLINGS = frozenset({"absent", "null", "spelling"})
"""Kinds of a remainder's entries with which nothing is lost that the document says."""

NO_MATCH = (
    "its rows of {} cannot be told apart: the mapping fills neither the key of the table nor columns that are unique"
    " and not null; name such columns in key of [target.tables]"
)
OF_ANOTHER_DOCUMENT = "it refers to a row of another document, whose key the copy has made"
REMEDIES: Mapping[Side, str] = {
    "row": "find out how {} fills the column, or correct the mapping",
    "missing": "let {} copy the document, or find out why it was left out",
    "extra": "find out of which document {} made the row, or who else wrote it",
}
"""What to do about a difference: the remedies of the tool's own copies, such as a backfill, do not apply."""
NOT_OURS = "the copy was not made by this tool"


class FieldNotHeld(msgspec.Struct, frozen=True, order=True, kw_only=True):
    """A field that no column holds as the document says it, and in how many documents."""

    collection: str
    path: str
    kind: str
    """As ``values.remainder.Kind``: ``added`` is a field without a column."""
    documents: int
    reason: str = ""
    """Why the mapping declares it as a loss; empty: it does not."""


class ColumnNotCompared(msgspec.Struct, frozen=True, order=True, kw_only=True):
    """A column of which values were not compared, and in how many rows."""

    table: str
    column: str
    rows: int
    reason: str


class ProofLink(msgspec.Struct, frozen=True, kw_only=True):
    """A link of the proof that a copy is whole, and what is known of it."""

    link: str
    state: LinkState
    reason: str = ""


class ForeignOutcome(ParityOutcome, frozen=True, kw_only=True):
    """What the parity check of a copy found that another tool made."""

    copied_by: str
    """Who made the copy, by the words of the command line."""
    links: tuple[ProofLink, ...]
    not_held: tuple[FieldNotHeld, ...] = ()
    not_compared: tuple[ColumnNotCompared, ...] = ()

    @property
    def unverified(self) -> bool:
        """Whether something of a document, or a link of the proof, could not be compared."""
        lost = any(one.kind not in SPELLINGS and not one.reason for one in self.not_held)
        partly = any(one.state == "partly" for one in self.links)
        return lost or partly or bool(self.not_compared) or any(one.unverified for one in self.collections)


def check_foreign_copy(settings: Settings, scope: Scope, copied_by: str) -> ForeignOutcome:
    """Compare a copy that another tool made with the source; writes to neither.

    Raises ``RefusedError`` for a copy that this tool made, for a source without a collection of the profile, and for
    tables of which the user does not see every row; ``UsageError`` for a source in PostgreSQL.
    """
    if settings.source.in_postgres:
        raise UsageError("--target-of compares copies of MongoDB, and this source is tables of PostgreSQL")
    with (
        closing(SourceSessions(settings)) as source,
        translate_source_errors("the source"),
        opened_copy(settings) as copy,
    ):
        plans.check_scope(source.profile, scope)
        surveyed, unknown = source.survey()
        if not surveyed:
            raise RefusedError(no_collection_message(source.reader.database, source.profile, unknown))
        plans.require_tenants(source.reader, surveyed, scope, settings.source.default_tenant)
        check = _ForeignCheck(source, copy, scope)
        collections = check.collections(surveyed)
        return ForeignOutcome(
            profile=f"{source.profile.name}/{source.profile.version}",
            collections=tuple(_with_remedies(collection, copied_by) for collection in collections),
            unknown_collections=unknown,
            left_out=dict(source.profile.left_out),
            copied_by=copied_by,
            links=tuple(check.links(collections)),
            not_held=tuple(sorted(check.not_held())),
            not_compared=tuple(sorted(check.not_compared())),
        )


class _ExpectedRow(msgspec.Struct, eq=False):
    """A row that a document makes, and the row of the copy that is the same."""

    document: "_ExpectedDocument"
    row: SerializedRow
    table: ForeignTable
    stored: StoredRow | None = None

    @property
    def record(self) -> Record:
        """Return the record."""
        return self.row.record

    @property
    def cells(self) -> Mapping[str, bytes | None]:
        """Return the values of its columns."""
        return codec(type(self.record)).cells(self.row.head + self.row.tail)

    @property
    def id(self) -> UUID | int:
        """Return the id that the tool computes."""
        return self.record.id  # type: ignore[attr-defined,no-any-return] # every loaded record has an id

    def equals(self, stored: StoredRow) -> bool:
        """Whether all values are equal, but those of relations."""
        kind, cells = codec(type(self.record)), self.cells
        return all(kind.same(name, cells[name], value) for name, value in stored.cells.items())


class _ExpectedDocument(msgspec.Struct, eq=False):
    """A document, and the rows that it makes."""

    source: SourceDocument
    rows: list[_ExpectedRow] = msgspec.field(default_factory=list)
    partly: bool = False
    """A value of one of its rows was not compared."""

    @property
    def key(self) -> str:
        """Return its source id."""
        return source_id_of(self.source.raw)

    def row_of(self, record_id: object, table: str) -> _ExpectedRow | None:
        """Return its row with an id of the tool; ``table``: the name of its record, empty: any."""
        return next((row for row in self.rows if row.id == record_id and table in ("", row.record.table)), None)


class _ForeignCheck:
    """One parity check of a copy that another tool made."""

    def __init__(self, source: SourceSessions, copy: Connection, scope: Scope) -> None:
        self._source, self._copy, self._scope = source, copy, scope
        self._listed = source.settings.report.max_differences
        self._context = context_of(source.settings.source, source.reader.now())
        self._tables = foreign_tables(copy, source.settings, source.profile)
        self._seen = {name: SeenRows() for name in self._tables}
        self._lost: Counter[tuple[str, str, str]] = Counter()
        self._uncompared: Counter[tuple[str, str, str]] = Counter()
        self._unsearched: dict[str, str] = {}
        """Table to why it was not searched for extra rows."""

    def collections(self, surveyed: Sequence[SourceCollection]) -> list[CollectionComparison]:
        """Return the comparison of each collection in the order of the profile."""
        by_name = {one.collection.name: one for one in surveyed}
        compared: dict[str, CollectionComparison] = {}
        for collection in self._source.profile.collections:
            reason = self._reason(collection)
            existing = by_name.get(collection.name)
            if reason or existing is None:
                names = tuple(record.table for record in collection.tables)
                compared[collection.name] = CollectionComparison(
                    collection=collection.name, tables=names, unverified=reason if existing is not None else ""
                )
            else:
                compared[collection.name] = self._compared(existing)
        for table in self._tables.values():
            self._add_extra(table, compared)
        return list(compared.values())

    def _reason(self, collection: Collection) -> str:
        """Return why a collection is not compared; empty: it is."""
        if self._scope.only and collection.name not in self._scope.only:
            return LEFT_OUT
        reachable = {record.table for record in collection.tables if self._tables[record.table].match}
        tables = [self._tables[record.table] for record in collection.tables]
        for _ in tables:
            for table in tables:
                for relation in table.relations.values():
                    if relation.places == (0,) and len(relation.columns) == 1:
                        pair = {table.record.table, relation.table}
                        reachable |= pair & {one.record.table for one in tables} if pair & reachable else set()
        apart = [table.name.as_string(None) for table in tables if table.record.table not in reachable]
        return NO_MATCH.format(", ".join(apart)) if apart else ""

    def _compared(self, existing: SourceCollection) -> CollectionComparison:
        collection, settings = existing.collection, self._source.settings
        comparison = CollectionComparison(
            collection=collection.name, tables=tuple(record.table for record in collection.tables)
        )
        totals = ChunkTotals(comparison, self._listed, lost=collection.lost)
        batches = self._source.reader.of(collection).batches(
            tenants=self._scope.tenants,
            default_tenant=settings.source.default_tenant,
            batch_size=batch_documents(existing.average_bytes),
        )
        for batch in batches:
            read = transform_documents(collection, self._context, UncheckedResolver(), batch)
            documents = list(self._with_rows(read, totals))
            self._find_rows(documents)
            self._compare(documents, totals)
        result = totals.comparison(collection.tables)
        result.columns = tuple(
            column for column in result.columns if column.column in self._compared_columns(column.table)
        )
        result.findings = result.findings[: self._listed]
        return result

    def _compared_columns(self, table: str) -> set[str]:
        of = self._tables[table]
        return {*of.columns, *of.relations} - {column for name, column, _ in self._uncompared if name == table}

    def _with_rows(self, documents: Iterable[SourceDocument], totals: ChunkTotals) -> Iterator[_ExpectedDocument]:
        """Count each document, and yield those that make rows."""
        for document in documents:
            totals.found.documents += 1
            if document.skipped:
                totals.skip(document.skipped, document)
            elif document.rejected is not None:
                why = document.rejected
                place = (why.reason, why.path, why.expected)
                totals.found.quarantined += 1
                totals.quarantine[place] += 1
                totals.add_example(place, source_id_of(document.raw))
            else:
                expected = _ExpectedDocument(document)
                expected.rows = [
                    _ExpectedRow(expected, row, self._tables[row.record.table]) for row in document.serialized
                ]
                self._count_lost(document)
                yield expected

    def _count_lost(self, document: SourceDocument) -> None:
        name, paths = document.collection.name, document.collection.reference_paths
        entries = {(entry.field, entry.kind) for entry in remainder.entries(document.remainder)}
        for field, kind in entries:
            if field not in paths:
                self._lost[name, field, kind] += 1

    # which row is whose

    def _find_rows(self, documents: Sequence[_ExpectedDocument]) -> None:
        """Give each expected row the stored one that is the same, if there is one."""
        missing = [row for document in documents for row in document.rows]
        for name, rows in _by_table(missing).items():
            table = self._tables[name]
            if table.match:
                stored = rows_by_match(self._copy, table, (row.record for row in rows))
                self._pair(rows, stored, _expected_match, partial(_stored_match, table))
        for name, rows in _by_table(missing).items():
            if self._tables[name].has_origin:
                self._pair_by_origin(self._tables[name], rows)
        while self._pair_by_relations(_by_table(missing)):
            """Each round may find rows to which others lead."""

    def _pair(
        self,
        rows: Sequence[_ExpectedRow],
        stored: Sequence[StoredRow],
        expected_key: Callable[[_ExpectedRow], object],
        stored_key: Callable[[StoredRow], object],
    ) -> int:
        """Pair rows of the same key, equal ones first; return how many were paired."""
        candidates: dict[object, list[StoredRow]] = defaultdict(list)
        for one in stored:
            candidates[stored_key(one)].append(one)
        paired = 0
        for exact in (True, False):
            for row in rows:
                if row.stored is not None:
                    continue
                seen = self._seen[row.record.table]
                free = [one for one in candidates.get(expected_key(row), ()) if one.place not in seen]
                chosen = next((one for one in free if not exact or row.equals(one)), None)
                if chosen is not None:
                    row.stored = chosen
                    seen.add(chosen.place)
                    paired += 1
        return paired

    def _pair_by_origin(self, table: ForeignTable, rows: Sequence[_ExpectedRow]) -> None:
        """Pair the one row of a document with the one row that says that it comes from it: its id is the copy's own."""
        single = {name: some for name, some in _grouped(rows, _origin).items() if len(some) == 1}
        stored = rows_by_origin(self._copy, table, (str(key) for _, key in single))
        for origin, some in _grouped(stored, lambda row: (row.tenant, row.source_id)).items():
            if origin in single and len(some) == 1:
                self._pair(single[origin], some, _origin, lambda row: (row.tenant, row.source_id))

    def _pair_by_relations(self, missing: Mapping[str, Sequence[_ExpectedRow]]) -> int:
        """Pair rows by those of their document that refer to them, or to which they refer; return how many."""
        paired = 0
        for name, rows in missing.items():
            table = self._tables[name]
            for other in self._tables.values():
                for member, relation in other.relations.items():
                    if relation.table == name and len(relation.columns) == len(table.key) == 1:
                        referring = {id(row): _referring(row, other, member) for row in rows}
                        paired += self._pair_by_column(table, table.key[0], rows, referring)
            for member, relation in table.relations.items():
                if relation.table and len(relation.columns) == 1:
                    keys = {id(row): _referred(row, member, relation.table) for row in rows}
                    paired += self._pair_by_column(table, relation.columns[0], rows, keys, member)
        return paired

    def _pair_by_column(
        self,
        table: ForeignTable,
        column: str,
        rows: Sequence[_ExpectedRow],
        values: Mapping[int, str | None],
        member: str = "",
    ) -> int:
        """Pair rows by the value of a column: of the key, or of a relation (``member``)."""
        known = [row for row in rows if row.stored is None and values[id(row)] is not None]
        if not known:
            return 0
        stored = rows_by_columns(self._copy, table, column, (str(values[id(row)]) for row in known))
        return self._pair(
            known, stored, lambda row: values[id(row)], lambda row: (row.related[member] if member else row.key)[0]
        )

    # what is the same

    def _compare(self, documents: Sequence[_ExpectedDocument], totals: ChunkTotals) -> None:
        references = self._resolved_references(documents)
        for document in documents:
            source, key, equal = document.source, document.key, True
            missing = False
            for row in document.rows:
                if row.stored is None:
                    missing = missing or row is document.rows[0]
                    equal = False
                    totals.differ("missing", key, "missing-row", table=row.record.table)
                    continue
                totals.rows[row.record.table] += 1
                equal &= self._compare_values(row, row.stored, totals)
                equal &= self._compare_relations(row, row.stored, references, totals)
            count_notes(source, totals, equal=False)
            whole = source.clean and not document.partly
            totals.found.missing += missing
            totals.found.differing += not missing and not equal
            totals.found.matched += equal
            totals.found.without_remainder += equal and whole
            totals.found.with_remainder += equal and not whole

    def _compare_values(self, row: _ExpectedRow, stored: StoredRow, totals: ChunkTotals) -> bool:
        kind, wanted, equal = codec(type(row.record)), row.cells, True
        for name, value in stored.cells.items():
            if kind.same(name, wanted[name], value) or name in row.table.made:
                continue
            equal = False
            before, after = (compared_value(kind.types[name], kind.value(name, cell)) for cell in (wanted[name], value))
            worded = len(totals.findings) < DESCRIBED
            totals.differ(
                "row",
                row.document.key,
                classify(before, after),
                table=row.record.table,
                path=name,
                details=describe_difference(before, after) if worded else (),
            )
        return equal

    def _compare_relations(self, row: _ExpectedRow, stored: StoredRow, origins: Origins, totals: ChunkTotals) -> bool:
        equal = True
        for member in row.table.relations:
            wanted, held = getattr(row.record, member), stored.related[member]
            answer = self._leads_there(row, member, wanted, held, origins)
            if answer is None:
                row.document.partly = True
                self._uncompared[row.record.table, member, OF_ANOTHER_DOCUMENT] += 1
            elif not answer:
                equal = False
                totals.differ("row", row.document.key, "reference", table=row.record.table, path=member)
        return equal

    def _leads_there(
        self, row: _ExpectedRow, member: str, wanted: UUID | None, held: Key, origins: Origins
    ) -> bool | None:
        """Whether a reference leads to the row that the document names; None: nothing shows it."""
        relation = row.table.relations[member]
        if wanted is None:
            return all(value is None for value in held)
        own = row.document.row_of(wanted, relation.table)
        if own is not None:
            # of a row that is missing nothing can be said but that: it is counted as missing
            return own.stored is None or tuple(own.stored.key[place] for place in relation.places) == held
        if relation.table:
            return None
        return held == (str(wanted),) or _names_document(row, member, held[0], origins)

    def _resolved_references(self, documents: Sequence[_ExpectedDocument]) -> Origins:
        """Return the origins of the rows to which references lead that are not as the tool computes them."""
        ids: dict[str, set[str]] = defaultdict(set)
        names: dict[str, set[str]] = defaultdict(set)
        for document in documents:
            for row in document.rows:
                for member, held in row.stored.related.items() if row.stored is not None else ():
                    wanted, reference = getattr(row.record, member), _reference(row, member)
                    if wanted is None or reference is None or held == (str(wanted),):
                        continue
                    table = reference.target.table
                    ids[table] |= {str(wanted), *filter(None, held)}
                    named = reference.named(document.source.content) if reference.named is not None else None
                    if held == (None,) and named is not None:
                        names[table].add(named)
        origins: Origins = {}
        for table, asked in ids.items():
            if table in self._tables:
                origins |= existing_origins(self._copy, self._tables[table], asked, names[table])
        return origins

    # what nothing explains

    def _add_extra(self, table: ForeignTable, compared: dict[str, CollectionComparison]) -> None:
        name = table.record.table
        feeding = [one.name for one in self._source.profile.collections if table.record in one.tables]
        derived = [one.record.table for one in self._source.profile.closing]
        if self._scope.tenants or any(compared[one].unverified for one in feeding):
            self._unsearched[name] = "not everything that fills it was compared"
            return
        if name in derived:
            self._unsearched[name] = "many documents together make rows of it"
            return
        count, findings = 0, list[Finding]()
        for key in unseen_rows(self._copy, table, self._seen[name]):
            count += 1
            if len(findings) < self._listed:
                findings.append(
                    Finding(
                        severity="difference",
                        collection=feeding[0],
                        key=key,
                        side="extra",
                        table=name,
                        cause="extra-row",
                    )
                )
        if count:
            before = compared[feeding[0]]
            tally = tally_of(feeding[0], "extra-row", count, table=name)
            compared[feeding[0]] = msgspec.structs.replace(
                before,
                extra=before.extra + count,
                findings=tuple(in_order([*before.findings, *findings])[: self._listed]),
                tallies=before.tallies | {"extra": (*before.tallies.get("extra", ()), tally)},
            )

    def not_held(self) -> Iterator[FieldNotHeld]:
        """Yield the fields that no column holds as the documents say them."""
        collections = self._source.profile.by_name()
        for (name, path, kind), count in self._lost.items():
            declared = [
                loss.reason for place, loss in collections[name].lost.items() if f"{path}.".startswith(f"{place}.")
            ]
            yield FieldNotHeld(
                collection=name, path=path, kind=kind, documents=count, reason=declared[0] if declared else ""
            )

    def not_compared(self) -> Iterator[ColumnNotCompared]:
        """Yield the columns of which values were not compared."""
        for (table, column, reason), count in self._uncompared.items():
            yield ColumnNotCompared(table=table, column=column, rows=count, reason=reason)

    def links(self, collections: Sequence[CollectionComparison]) -> Iterator[ProofLink]:
        """Yield the links of the proof."""
        left_out = [one.collection for one in collections if one.unverified]
        reason = f"not compared: {', '.join(left_out)}" if left_out else ""
        if self._scope.tenants:
            reason = f"compared: the tenants {', '.join(self._scope.tenants)} alone"
        missing = any(one.missing or one.tallies.get("missing") for one in collections)
        yield _link("each document has its rows", broken=missing, partly=reason)
        different = any(one.tallies.get("row") for one in collections)
        uncompared = sorted({f"{table}.{column}" for table, column, _ in self._uncompared})
        partly = "; ".join(filter(None, [reason, f"not compared: {', '.join(uncompared)}" if uncompared else ""]))
        yield _link("each column holds what the document says", broken=different, partly=partly)
        unsearched = "; ".join(f"{table}: {why}" for table, why in sorted(self._unsearched.items()))
        extra = any(one.extra for one in collections)
        yield _link("each row has a document", broken=extra, partly=unsearched)
        lost = [field for field in self.not_held() if field.kind not in SPELLINGS]
        undeclared = {(field.collection, field.path) for field in lost if not field.reason}
        fields = f"fields that no column holds, and that no loss declares: {len(undeclared):,}" if undeclared else ""
        yield _link(
            "the rows give each document back",
            broken=missing or different,
            partly=fields or partly,
            holds="but for the losses that the mapping declares" if lost else "",
        )
        for link in ("plan and ledger", "quarantine", "remainder", "origin of each row", "aggregates of both servers"):
            yield ProofLink(link=link, state="not-applicable", reason=NOT_OURS)


def _with_remedies(comparison: CollectionComparison, copied_by: str) -> CollectionComparison:
    """Return a comparison whose differences say what is to be done about another tool's copy."""
    tallies = {
        side: tuple(msgspec.structs.replace(tally, fix=REMEDIES[side].format(copied_by)) for tally in of_side)
        for side, of_side in comparison.tallies.items()
    }
    return msgspec.structs.replace(comparison, tallies=tallies)


def _link(link: str, *, broken: bool, partly: str, holds: str = "") -> ProofLink:
    """Return a link of the proof; ``partly``: why it is shown in part alone, ``holds``: with what it holds."""
    if broken or partly:
        return ProofLink(link=link, state="broken" if broken else "partly", reason=partly)
    return ProofLink(link=link, state="holds", reason=holds)


def _by_table(rows: Iterable[_ExpectedRow]) -> dict[str, list[_ExpectedRow]]:
    """Return the rows that have no stored one yet, by the names of their records."""
    return _grouped((row for row in rows if row.stored is None), lambda row: row.record.table)


def _grouped(items: Iterable[Item], key: Callable[[Item], Group]) -> dict[Group, list[Item]]:
    groups: dict[Group, list[Item]] = defaultdict(list)
    for item in items:
        groups[key(item)].append(item)
    return dict(groups)


def _expected_match(row: _ExpectedRow) -> tuple[bytes | None, ...]:
    cells = row.cells
    return tuple(cells[name] for name in row.table.match)


def _stored_match(table: ForeignTable, row: StoredRow) -> tuple[bytes | None, ...]:
    return tuple(row.cells[name] for name in table.match)


def _origin(row: _ExpectedRow) -> tuple[str | None, str | None]:
    record = row.record
    return record.tenant_id, record.source_id  # type: ignore[attr-defined] # of a table with an origin


def _referring(row: _ExpectedRow, other: ForeignTable, member: str) -> str | None:
    """Return the key of a row by a row of its document, of another table, that refers to it."""
    for one in row.document.rows:
        if one.table is other and one.stored is not None and getattr(one.record, member) == row.id:
            return one.stored.related[member][0]
    return None


def _referred(row: _ExpectedRow, member: str, table: str) -> str | None:
    """Return the key of the row of its document to which a row refers."""
    wanted = getattr(row.record, member)
    own = None if wanted is None else row.document.row_of(wanted, table)
    return None if own is None or own.stored is None or len(own.stored.key) != 1 else own.stored.key[0]


def _names_document(row: _ExpectedRow, member: str, held: str | None, origins: Origins) -> bool:
    """Whether a reference leads to a row of the document that is named, though its id is not the tool's.

    It may be null, as the tool stores it, if the copy has no row of the document that is named.
    """
    reference = _reference(row, member)
    if reference is None or reference.named is None:
        return False
    named = reference.named(row.document.source.content)
    tenants = (row.record.tenant_id, validation.GLOBAL)  # type: ignore[attr-defined] # every record of the schema has one
    wanted = str(getattr(row.record, member))
    if held is None:
        return not any((tenant, wanted) in origins for tenant in tenants) and named not in origins.values()
    return named is not None and any(origins.get((tenant, held)) == named for tenant in tenants)


def _reference(row: _ExpectedRow, member: str) -> Reference | None:
    record = type(row.record)
    references = row.document.source.collection.references
    return next((one for one in references if one.record is record and one.column == member), None)
