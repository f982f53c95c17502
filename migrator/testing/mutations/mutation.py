"""A mutation, as data: how it is applied, which checks must fail, and which may.

A mutation of ``kind="behaviour"`` brings the faulty components that are driven, and may change the scratch database as
well; only the checks that it names are run.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, LiteralString, TypeAlias

import msgspec
import psycopg

from migrator.config import Settings
from migrator.connections.mongo import MongoDatabase
from migrator.report.areas import AREAS, MutationKind, area_of
from migrator.scratch import Components


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
    components: Components = Components()
    """What is driven; of a mutation of behaviour some are faulty, and ``apply`` may change the database as well."""

    def sometimes_when(self, check: str) -> str | None:
        """Return when a check fails, if it sometimes does."""
        usual = LOSSES if self.kind == "data" and {"parity.rows", "parity.documents"} & {*self.caught_by} else None
        return self.sometimes_by.get(check, usual if check == "parity.losses" else None)

    @property
    def touched_tables(self) -> tuple[str, ...]:
        """Return the tables that are changed; empty if they are not known, and everything is compared."""
        return self.apply.tables if isinstance(self.apply, Sql) else ()

    def runs_check(self, check: str) -> bool:
        """Whether a check is run: of behaviour, which takes long, only those that may fail."""
        if self.kind == "behaviour":
            return check in self.caught_by or check in self.sometimes_by
        return AREAS[area_of(check)].mutations == self.kind


class Sql:
    """A change of the target by statements; the last of them must touch a row."""

    def __init__(self, *statements: LiteralString) -> None:
        self.statements = statements

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


def update_first(table: LiteralString, changes: LiteralString, condition: LiteralString = "true") -> Sql:
    """Return a change of the first row ``t`` of a table, by id, that fulfils the condition."""
    return Sql(f"UPDATE {table} SET {changes} WHERE {_is_first(table, condition)}")  # noqa: S608 - texts of mutations


def delete_first(table: LiteralString, condition: LiteralString = "true") -> Sql:
    """Return the deletion of the first row ``t`` of a table, by id, that fulfils the condition."""
    return Sql(f"DELETE FROM {table} WHERE {_is_first(table, condition)}")  # noqa: S608 - as above


def _is_first(table: LiteralString, condition: LiteralString) -> LiteralString:
    return f"id = (SELECT t.id FROM {table} AS t WHERE {condition} ORDER BY t.id LIMIT 1)"  # noqa: S608 - as above


def exchange(table: LiteralString, column: LiteralString, condition: LiteralString = "true") -> Sql:
    """Return an exchange of a column's values between two rows, ``one`` and ``other``, of a tenant."""
    return Sql(
        f"WITH pair AS (SELECT one.id AS a, other.id AS b, one.{column} AS of_a, other.{column} AS of_b"  # noqa: S608 - as above
        f" FROM {table} AS one JOIN {table} AS other ON one.tenant_id = other.tenant_id"
        f" AND one.{column} < other.{column} WHERE {condition} ORDER BY 1, 2 LIMIT 1)"
        f" UPDATE {table} SET {column} = CASE id WHEN a THEN of_b ELSE of_a END FROM pair WHERE id IN (a, b)"
    )


def ddl(*statements: str) -> Apply:
    """Return a change of the scratch database that touches no row."""

    def apply(copy: ScratchCopy) -> None:
        for statement in statements:
            copy.target.execute(statement.encode())

    return apply


def data(name: str, apply: Apply, caught_by: str = "", **more: Any) -> Mutation:  # noqa: ANN401 - fields of Mutation
    """Return a mutation of rows, documents or the ledger; ``caught_by`` names checks, separated by spaces."""
    return Mutation(name=name, kind="data", apply=apply, caught_by=tuple(caught_by.split()), **more)
