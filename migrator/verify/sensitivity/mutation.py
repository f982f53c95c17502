"""A mutation, as data: how it is applied, which checks must fail, and which may.

A mutation of ``kind="behaviour"`` brings the faulty components that are driven, and may change the scratch database as
well; only the checks that it names are run. ``matrix.LATER`` lists the faults that no mutation shows yet.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, Literal, LiteralString, TypeAlias

import msgspec
import psycopg

from migrator.config import Settings
from migrator.connections.mongo import MongoDatabase
from migrator.verify.behaviour.scratch_tenants import Components

MutationKind: TypeAlias = Literal["data", "schema", "behaviour"]
"""``data``: rows, documents, the ledger; ``schema``: objects of the schema; ``behaviour``: what the scheduler does."""

AREAS: Mapping[MutationKind, tuple[str, ...]] = {
    "data": ("parity", "semantics"),
    "schema": ("schema",),
    "behaviour": (),
}
"""The areas that are run after a mutation, unless it names its own."""


class ScratchCopy(msgspec.Struct, frozen=True):
    """Where a mutation is applied: a scratch copy of its own, and the scratch source that all share."""

    settings: Settings
    target: psycopg.Connection[tuple[Any, ...]]
    """As the user of the DSN, in autocommit, of a database that is dropped afterwards."""
    source: MongoDatabase


LOSSES = (
    "Where the document has a value that its column cannot hold: while it is not equal, its remainder proves nothing."
)
"""When ``parity.losses`` fails as well."""

Undo: TypeAlias = Callable[[], None]
Apply: TypeAlias = Callable[[ScratchCopy], Undo | None]
"""Applies the mutation; returns what undoes it in the scratch source. Raises ``NoMaterial``."""


class NoMaterial(Exception):  # noqa: N818 - an answer about the sample, not a failure of the tool
    """The sample holds nothing to which this mutation could be applied."""


class Mutation(msgspec.Struct, frozen=True, kw_only=True):
    """One mutation."""

    name: str
    """What was done, as a few words; the row of ``docs/verifiers.md``."""
    kind: MutationKind
    apply: Apply
    caught_by: tuple[str, ...] = ()
    """Checks that must fail. Empty: nothing sees it, and ``note`` says why that is accepted."""
    sometimes_by: Mapping[str, str] = {}
    """Check → when it fails."""
    note: str = ""
    faults: tuple[str, ...] = ()
    """Faults of the list of capabilities that this mutation represents, word for word."""
    components: Components | None = None
    """Of a mutation of behaviour: the faulty components that are driven; ``apply`` may change the database as well."""
    areas: tuple[str, ...] = ()
    tables: tuple[str, ...] = ()
    """Tables that are changed: only collections that feed them are compared. If None, all collections are."""

    def sometimes_when(self, check: str) -> str | None:
        """Return when a check fails, if it sometimes does."""
        usual = LOSSES if self.kind == "data" and {"parity.rows", "parity.documents"} & {*self.caught_by} else None
        return self.sometimes_by.get(check, usual if check == "parity.losses" else None)

    @property
    def touched_tables(self) -> tuple[str, ...]:
        """Return the tables that are changed, or None if they are not known and everything is compared."""
        return self.tables or (self.apply.tables if isinstance(self.apply, Sql) else ())

    def runs_check(self, check: str) -> bool:
        """Tell whether a check is run: of behaviour, which takes long, only those that may fail."""
        if self.kind == "behaviour":
            return check in self.caught_by or check in self.sometimes_by
        return check.partition(".")[0] in self.run_areas

    @property
    def run_areas(self) -> tuple[str, ...]:
        """Return the areas whose checks are run."""
        return self.areas or AREAS[self.kind]


class Sql(msgspec.Struct, frozen=True):
    """Changes the target by statements; the last of them must touch a row."""

    statements: tuple[LiteralString, ...]

    def __call__(self, copy: ScratchCopy) -> None:
        """Apply them; raise ``NoMaterial`` where the last statement touches no row."""
        count = 0
        for statement in self.statements:
            count = copy.target.execute(statement).rowcount
        if count == 0:
            raise NoMaterial

    @property
    def tables(self) -> tuple[str, ...]:
        """Return the tables that the statements write to."""
        return tuple(dict.fromkeys(name for text in self.statements for name in _WRITTEN.findall(text)))


_WRITTEN = re.compile(r"(?:UPDATE|DELETE FROM|INSERT INTO) scheduler\.(\w+)")


def sql(*statements: LiteralString) -> Sql:
    """Return a mutation of the target by statements."""
    return Sql(statements)
