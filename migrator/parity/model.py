"""What a parity check found: plain values that ``parity.compare`` fills in, in the types of a result.

One ``CollectionComparison`` is the sum over its chunks; a worker returns one per chunk and ``merge`` adds them up. All
lists are bounded, and all counts are complete. No order depends on which worker was first: ``merge`` sorts, then cuts.
Ids of excluded and of rejected documents are kept all or not at all, because some of them are of no use.

The sum every reader wants to see holds for each collection::

    documents == matched + differing + missing + quarantined + sum(skipped.values())
"""

from collections import Counter
from collections.abc import Iterable
from datetime import datetime
from typing import Any, Final, Literal, TypeAlias, TypeVar

import msgspec

from migrator.parity.causes import CAUSES, CauseCode
from migrator.parity.uniformity import FieldCounts
from migrator.result import CollectionCounts, Finding, Loss, Quarantined, Tally

Side: TypeAlias = Literal["row", "document", "missing", "extra", "rejected", "ledger"]
"""Which link broke: ``Finding.side`` of a parity check.

``row``: a stored row is not the row its document decodes to
``document``: the rows do not encode back to the document
``missing``: a document that should be there has no row
``extra``: a row of this source has no document
``rejected``: a document cannot become rows, and is not in quarantine
``ledger``: what the tool's own tables say about a document is not what the document says
"""


def tally_of(collection: str, cause: CauseCode, count: int, *, table: str = "", path: str = "") -> Tally:
    """Return how many findings have one cause at one place, with the cause in words."""
    sentence = CAUSES[cause]
    return Tally(
        severity="difference",
        cause=cause,
        collection=collection,
        table=table,
        path=path,
        title=sentence.title,
        fix=sentence.fix,
        count=count,
    )


def in_order(findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings of a collection by document; which are listed does not depend on their cause."""
    return sorted(findings, key=lambda one: (one.key, one.side, one.table, one.path, one.cause, one.details))


class ColumnCount(msgspec.Struct, frozen=True, order=True, kw_only=True):
    """How many rows were compared in one column, and in how many it differed (per-column statistics)."""

    table: str
    column: str
    compared: int
    differing: int


class CollectionComparison(msgspec.Struct, kw_only=True):
    """One collection, or one chunk of it, which fills it."""

    collection: str
    tables: tuple[str, ...]
    """Tables its documents feed, the owner first."""
    documents: int = 0
    """Read from MongoDB, all of them; and those that are left out as history."""
    matched: int = 0
    """Both links hold: every row equal, and the document rebuilt byte for byte (canonical)."""
    differing: int = 0
    """A row of theirs is not equal, or they would be quarantined and are not; a document counts once."""
    missing: int = 0
    """Documents without their owner row."""
    quarantined: int = 0
    """In quarantine; rejected and not there is ``differing``."""
    skipped: dict[str, int] = msgspec.field(default_factory=dict)
    """Left out by a stated rule, by reason."""
    history: int = 0
    """Of these, the documents that are left out as history; the server counts them, and nobody reads them."""
    excluded: tuple[str, ...] = ()
    """Source ids that are in no table on purpose (quarantined and skipped), sorted: the aggregates leave them out.
    Nothing if they have more than ``KEPT_CHARACTERS`` together; ``excluded_total`` counts all."""
    rejected: tuple[str, ...] = ()
    """Source ids of documents that cannot become rows and are not in quarantine, sorted; kept and counted as those."""
    ledger: int = 0
    """Documents about which the tool's own tables say something else than they do (side ``ledger``)."""
    changed: int = 0
    """Documents whose rows PostgreSQL changed, or created, since it is active: not compared."""
    rows: int = 0
    """Rows of this source found in its tables and compared."""
    extra: int = 0
    """Rows of this source without a document (side ``extra``), over all its tables."""
    without_remainder: int = 0
    """Matched documents whose remainder is empty."""
    with_remainder: int = 0
    """Matched documents that needed their remainder."""
    tallies: dict[Side, tuple[Tally, ...]] = {}
    """By side; complete, also where the list of findings was cut. Their keys are not filled."""
    findings: tuple[Finding, ...] = ()
    """Names and keys only, never a value; with DeepDiff's wording (``parity.causes``) for the first few."""
    notes: tuple[Tally, ...] = ()
    """What a declared policy settles in loaded documents: an orphan kept as null, a duplicate name (``Decoded.notes``,
    ``parity.policies``)."""
    losses: tuple[Loss, ...] = ()
    """A loss is kept where its document is equal on both links: the stored remainder is the expected one."""
    quarantine: tuple[Quarantined, ...] = ()
    columns: tuple[ColumnCount, ...] = ()
    fields: FieldCounts = FieldCounts()
    """What the fields of the documents hold that are not excluded; of no document if the aggregates do not ask."""
    unverified: str = ""
    """Why this collection, or a part of it, could not be compared (an unfinished copy, ...); empty when it was."""

    @property
    def balanced(self) -> bool:
        """Whether the sum in the head of this module holds."""
        parts = self.matched + self.differing + self.missing + self.changed + self.quarantined
        return self.documents == parts + sum(self.skipped.values())

    @property
    def excluded_total(self) -> int:
        """The number of documents that were read and are in no table on purpose, with those whose ids are not kept."""
        return self.quarantined + sum(self.skipped.values()) - self.history

    @property
    def rejected_total(self) -> int:
        """The number of documents that cannot become rows and are not in quarantine."""
        return sum(one.count for one in self.tallies.get("rejected", ()))

    @property
    def counts(self) -> CollectionCounts:
        """What a result says of the collection."""
        counts = {name: getattr(self, name) for name in CollectionCounts.__struct_fields__}
        return CollectionCounts(**counts | {"changed": self.changed or msgspec.UNSET})

    def tallied(self, *sides: Side) -> list[tuple[Side, Tally]]:
        """Return the tallies of some sides, or of all, by place; extra rows last."""
        found = [(side, one) for side in sides or tuple(self.tallies) for one in self.tallies.get(side, ())]
        return sorted(found, key=lambda pair: (pair[0] == "extra", pair[1].table, pair[1].path, pair[0], pair[1].cause))


class AggregateResult(msgspec.Struct, frozen=True, kw_only=True):
    """One measure of one collection, from MongoDB's pipeline and from SQL; counts and labels, per tenant."""

    collection: str
    table: str
    measure: str
    kind: Literal["group", "sum", "time"]
    tenants: int = 0
    compared: int = 0
    """Aggregates that both sides computed (tenant and label)."""
    differing: tuple["AggregateDifference", ...] = ()
    """The first few, sorted; ``differing_total`` counts all."""
    differing_total: int = 0
    source_total: str = ""
    """The sum over all tenants, of a measure of kind ``sum``."""
    target_total: str = ""
    unverified: str = ""
    """Why the measure could not be computed the same way on both sides; empty when it was."""


class AggregateDifference(msgspec.Struct, frozen=True, order=True, kw_only=True):
    """One aggregate that differs; text, because sums may be decimals and times are milliseconds."""

    tenant: str
    label: str
    source: str
    target: str


class NeverFiringSchedule(msgspec.Struct, frozen=True, order=True, kw_only=True):
    """A schedule that is enabled, has a rule in its document, and has no enabled trigger: it never fires."""

    collection: str
    source_id: str
    tenant: str


class ParityOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """Everything ``parity.check.check_parity`` returns."""

    profile: str
    """``stellaops/1``: name and version."""
    collections: tuple[CollectionComparison, ...]
    """In load order; a collection that was left out by ``--only`` is there, with ``unverified`` set."""
    aggregates: tuple[AggregateResult, ...] = ()
    columns: tuple[AggregateResult, ...] = ()
    """How many values, characters and members each column holds (``parity.aggregates``)."""
    unknown_collections: tuple[str, ...] = ()
    """In the source database, in no profile: not copied, so not compared."""
    left_out: dict[str, str] = {}
    """As ``Profile.left_out``."""
    never_firing: tuple[NeverFiringSchedule, ...] = ()
    """The first few schedules that never fire though their documents have a rule; ``never_firing_total`` counts all."""
    never_firing_total: int = 0
    unverified_because: str = ""
    """Why a source in PostgreSQL may have changed since; empty if its writers were shown to be stopped, and for a
    source that a tail follows."""
    active_since: datetime | None = None
    """Since when PostgreSQL is written to, and MongoDB is not; None: before a cutover, and after a rollback."""
    created: dict[str, int] = msgspec.field(default_factory=dict)
    """Table → rows that were created on PostgreSQL, while it is active: they are not compared."""

    @property
    def both_aggregates(self) -> tuple[AggregateResult, ...]:
        """Return every aggregate that both databases computed: those of the profile, and those of the columns."""
        return (*self.aggregates, *self.columns)

    @property
    def differs(self) -> bool:
        """Whether a difference was found, in a document, a row or an aggregate, or a schedule that never fires."""
        return (
            any(one.differing or one.missing or one.extra or one.ledger for one in self.collections)
            or any(one.differing_total for one in self.both_aggregates)
            or self.never_firing_total > 0
        )

    @property
    def unverified(self) -> bool:
        """Whether a collection or an aggregate could not be compared, or the source may have changed since."""
        reasons = [one.unverified for one in self.collections] + [one.unverified for one in self.both_aggregates]
        return bool(self.unverified_because) or any(reasons)


DROPPED: Final = "dropped"
"""The rule of a document in quarantine that a person gave up: it is left out on purpose."""

KEPT_CHARACTERS: Final = 4 * 1024 * 1024
"""Characters of the source ids that one process keeps of a collection: 150,000 ids of 28 characters."""

KEYS_LISTED = 5
"""Source ids named as examples of a count."""

_SUMS = (
    *("documents", "matched", "differing", "missing", "quarantined", "rows", "extra", "ledger", "changed"),
    *("without_remainder", "with_remainder"),
)

_COUNTS = frozenset({"count", "compared", "differing"})
"""Fields that are added up; the others, but the examples (``keys``), say of what."""

_KEPT_APART: Final = 16
"""Chunks of a collection that are added up together: each time, all ids are sorted."""

_Count = TypeVar("_Count", bound=msgspec.Struct)


def merge(parts: Iterable[CollectionComparison], *, listed: int) -> CollectionComparison:
    """Add up the chunks of one collection; keep the ``listed`` first findings.

    Raises ``ValueError`` when there is no part.
    """
    parts = list(parts)
    if not parts:
        raise ValueError("nothing to merge")
    first = parts[0]
    sides = {side for part in parts for side in part.tallies}
    return CollectionComparison(
        collection=first.collection,
        tables=first.tables,
        **{name: sum(getattr(part, name) for part in parts) for name in _SUMS},
        skipped=dict(sorted(sum((Counter(part.skipped) for part in parts), Counter[str]()).items())),
        excluded=_all_or_none([part.excluded for part in parts], sum(part.excluded_total for part in parts)),
        rejected=_all_or_none([part.rejected for part in parts], sum(part.rejected_total for part in parts)),
        tallies={side: _add_up(one for part in parts for one in part.tallies.get(side, ())) for side in sorted(sides)},
        findings=tuple(in_order(one for part in parts for one in part.findings)[:listed]),
        notes=_add_up(one for part in parts for one in part.notes),
        losses=_add_up(one for part in parts for one in part.losses),
        quarantine=_add_up(one for part in parts for one in part.quarantine),
        columns=_add_up(one for part in parts for one in part.columns),
        fields=sum((part.fields for part in parts), FieldCounts()),
        unverified=_joined(part.unverified for part in parts),
    )


class Merged:
    """The comparison of one collection while its chunks come in: few of them are kept apart."""

    def __init__(self, listed: int) -> None:
        self._listed, self._parts, self._reasons = listed, list[CollectionComparison](), set[str]()

    def add(self, part: CollectionComparison) -> None:
        """Add a chunk."""
        self._parts.append(part)
        self._reasons.add(part.unverified)
        if len(self._parts) == _KEPT_APART:
            self._parts = [self.whole()]

    def whole(self) -> CollectionComparison:
        """Return the sum of all chunks so far; raise ``ValueError`` when there is none."""
        return msgspec.structs.replace(merge(self._parts, listed=self._listed), unverified=_joined(self._reasons))


def _joined(reasons: Iterable[str]) -> str:
    return "; ".join(sorted({*reasons} - {""}))


def _all_or_none(some: Iterable[tuple[str, ...]], total: int) -> tuple[str, ...]:
    """Return all ids, sorted; nothing if a part has not kept its own, or if they are too long together."""
    ids = [key for keys in some for key in keys]
    return tuple(sorted(ids)) if len(ids) == total and sum(map(len, ids)) <= KEPT_CHARACTERS else ()


def _add_up(counts: Iterable[_Count]) -> tuple[_Count, ...]:
    """Add up the counts of the same thing, and keep its first few examples; sorted: no order depends on the workers."""
    sums: dict[tuple[Any, ...], _Count] = {}
    for counted in counts:
        names = counted.__struct_fields__
        key = tuple(getattr(counted, name) for name in names if name not in _COUNTS and name != "keys")
        before = sums.setdefault(key, counted)
        if before is counted:
            continue
        added: dict[str, Any] = {}
        for name in names:
            old, new = getattr(before, name), getattr(counted, name)
            if name in _COUNTS:
                added[name] = old + new
            elif name == "keys":
                added[name] = tuple(sorted({*old, *new})[:KEYS_LISTED])
        sums[key] = msgspec.structs.replace(counted, **added)
    return tuple(sums[key] for key in sorted(sums))
