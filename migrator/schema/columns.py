"""Functions that declare columns and constraints, so that a table reads as a list.

Every column has a comment, every constraint and index a name: ``pk_<table>``, ``fk_<table>_<column>``,
``uq_<table>_<what>``, ``ck_<table>_<what>``, ``ix_<table>_<what>`` (the two tables of the graph plan keep its names).
"""

from collections.abc import Iterable
from typing import Any, TypeAlias

from sqlalchemy import (
    ARRAY,
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Computed,
    Double,
    ForeignKey,
    ForeignKeyConstraint,
    Integer,
    SmallInteger,
    Text,
)
from sqlalchemy import text as sql
from sqlalchemy.dialects.postgresql import BYTEA, JSONB, TIMESTAMP, UUID

AnyColumn: TypeAlias = Column[Any]

LARGE = "large"
"""Key of ``Column.info``: the jsonb may be large, and is compressed with lz4 if the server offers it."""


def uuid(name: str, comment: str, *, null: bool = True, refers: tuple[str, str, str | None] | None = None) -> AnyColumn:
    """Declare a uuid; ``refers`` is (name of the foreign key, ``schema.table.column``, ON DELETE or None)."""
    keys = [] if refers is None else [ForeignKey(refers[1], name=refers[0], ondelete=refers[2])]
    return Column(name, UUID(), *keys, nullable=null, comment=comment)


def text(name: str, comment: str, *, null: bool = True) -> AnyColumn:
    """Declare a text."""
    return Column(name, Text(), nullable=null, comment=comment)


def texts(name: str, comment: str) -> AnyColumn:
    """Declare a list of texts; null: absent, empty: empty."""
    return Column(name, ARRAY(Text()), nullable=True, comment=comment)


def jsonb(name: str, comment: str, *, null: bool = True, large: bool = False, default: str | None = None) -> AnyColumn:
    """Declare a jsonb; ``large`` asks for lz4."""
    default_clause = None if default is None else sql(default)
    return Column(
        name,
        JSONB(),
        nullable=null,
        comment=comment,
        server_default=default_clause,
        info={LARGE: True} if large else {},
    )


def time(name: str, comment: str, *, null: bool = True, default: str | None = None) -> AnyColumn:
    """Declare an instant."""
    default_clause = None if default is None else sql(default)
    return Column(name, TIMESTAMP(timezone=True), nullable=null, comment=comment, server_default=default_clause)


def flag(name: str, comment: str, *, default: bool | None = None) -> AnyColumn:
    """Declare a boolean; with a default it is not null."""
    clause = None if default is None else sql(str(default).lower())
    return Column(name, Boolean(), nullable=default is None, comment=comment, server_default=clause)


def small(name: str, comment: str, *, null: bool = True) -> AnyColumn:
    """Declare a smallint."""
    return Column(name, SmallInteger(), nullable=null, comment=comment)


def integer(name: str, comment: str, *, null: bool = True) -> AnyColumn:
    """Declare an integer."""
    return Column(name, Integer(), nullable=null, comment=comment)


def big(name: str, comment: str, *, null: bool = True, default: str | None = None) -> AnyColumn:
    """Declare a bigint."""
    default_clause = None if default is None else sql(default)
    return Column(name, BigInteger(), nullable=null, comment=comment, server_default=default_clause)


def real(name: str, comment: str, *, null: bool = True, default: str | None = None) -> AnyColumn:
    """Declare a double precision."""
    default_clause = None if default is None else sql(default)
    return Column(name, Double(), nullable=null, comment=comment, server_default=default_clause)


def octets(name: str, comment: str, *, null: bool = True) -> AnyColumn:
    """Declare a bytea."""
    return Column(name, BYTEA(), nullable=null, comment=comment)


def tenant_of_schedule() -> tuple[AnyColumn, AnyColumn]:
    """Declare the flag for a run with a schedule of the tenant ``*``, and the column computed from it."""
    return (
        flag(
            "global_schedule",
            "true: schedule_id and trigger_id refer to rows of the tenant *; false: to rows of the run's tenant. A run"
            " refers to no other global row",
            default=False,
        ),
        Column(
            "schedule_tenant_id",
            Text(),
            Computed("CASE WHEN global_schedule THEN '*'::text ELSE tenant_id END", persisted=True),
            comment="computed: the tenant of the schedule and of the trigger, a part of both foreign keys",
        ),
    )


def priority(comment: str) -> AnyColumn:
    """Declare the schedule's priority in a row of the queue; the database maintains it (``schema.priority``)."""
    return Column("priority", SmallInteger(), nullable=False, server_default=sql("50"), comment=comment)


def refers(
    table: str, column: str, target: str, ondelete: str | None = None, *, tenant: str = "tenant_id"
) -> ForeignKeyConstraint:
    """Declare that a column refers to the row of ``target`` with this id and the tenant in the column ``tenant``.

    Row-level security does not apply to foreign keys: the tenant in the key keeps a reference inside its tenant.
    """
    return ForeignKeyConstraint(
        (tenant, column),
        (f"scheduler.{target}.tenant_id", f"scheduler.{target}.id"),
        name=f"fk_{table}_{column}",
        ondelete=ondelete,
    )


def key() -> AnyColumn:
    """Declare the first half of every sourced table's primary key; the other is the tenant."""
    return uuid(
        "id",
        "a new UUID; of a migrated row: computed from tenant, collection and source_id",
        null=False,
    )


def tenant() -> AnyColumn:
    """Declare the tenant."""
    return text(
        "tenant_id",
        "owner of the row; *: a global row, which every tenant may read and only some roles may write",
        null=False,
    )


def sourced() -> tuple[AnyColumn, ...]:
    """Declare the columns every sourced table begins with."""
    return (
        key(),
        tenant(),
        text(
            "source", "profile and collection of the document (stellaops/runs); null: the row was created on PostgreSQL"
        ),
        text(
            "source_id",
            "_id of the document: a string as it is, any other value as canonical Extended JSON. Not indexed: a row is"
            " found by its computed id. To search by it, build a hash index after the load",
        ),
    )


def extra() -> AnyColumn:
    """Declare the column of the remainder, with which every sourced table ends."""
    return jsonb(
        "extra",
        "remainder: the fields of the document that no column holds, by path, with their types; {}: there are none",
        null=False,
        default="'{}'::jsonb",
    )


def one_of(table: str, column: str, words: Iterable[str | int], name: str | None = None) -> CheckConstraint:
    """Declare that a column holds one of ``words`` (or null), spelled as PostgreSQL returns it."""
    members = ", ".join(f"'{word}'::text" if isinstance(word, str) else str(word) for word in words)
    return CheckConstraint(f"{column} = ANY (ARRAY[{members}])", name=name or f"ck_{table}_{column}")


def check(name: str, expression: str) -> CheckConstraint:
    """Declare a named CHECK."""
    return CheckConstraint(expression, name=name)
