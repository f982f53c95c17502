"""What ``COPY … TO STDOUT`` sends, as the tool reads it, against the driver's own reading."""

from collections.abc import Iterator

import psycopg
import pytest
from psycopg import sql
from psycopg.pq import TransactionStatus

from migrator.connections.postgres import Connection, copied_out

WIDE = sql.SQL("COPY (SELECT g, repeat('x', g) FROM generate_series(1, 3000) AS g) TO STDOUT (FORMAT BINARY)").format()
FAILS = sql.SQL("COPY (SELECT repeat('x', 99), 1 / (2500 - g) FROM generate_series(1, 3000) AS g) TO STDOUT").format()


@pytest.fixture
def connection(postgres_dsn: str) -> Iterator[Connection]:
    with psycopg.connect(postgres_dsn) as connected:
        yield connected


def test_the_messages_are_those_of_the_driver(connection: Connection) -> None:
    with connection.cursor().copy(WIDE) as copy:
        expected = [bytes(data) for data in iter(copy.read, b"")]
    assert [bytes(data) for data in copied_out(connection, WIDE)] == expected
    assert len(expected) == 3001
    assert connection.info.transaction_status == TransactionStatus.INTRANS
    empty = sql.SQL("COPY (SELECT 1 WHERE false) TO STDOUT").format()
    assert list(copied_out(connection, empty)) == []
    assert connection.execute("SELECT 1").fetchone() == (1,)


def test_an_error_after_some_rows_is_the_servers(connection: Connection) -> None:
    rows = copied_out(connection, FAILS)
    received: list[object] = []
    with pytest.raises(psycopg.errors.DivisionByZero, match="division by zero"):
        received.extend(rows)
    assert len(received) == 2499
    assert connection.info.transaction_status == TransactionStatus.INERROR
    connection.rollback()
    assert connection.execute("SELECT 1").fetchone() == (1,)


def test_a_caller_that_ends_early_leaves_a_connection_that_works(connection: Connection) -> None:
    rows = copied_out(connection, sql.SQL("COPY (SELECT g FROM generate_series(1, 9000000) AS g) TO STDOUT").format())
    assert bytes(next(rows)) == b"1\n"
    rows.close()
    connection.rollback()
    assert connection.execute("SELECT 1").fetchone() == (1,)


def test_a_connection_that_is_lost_meanwhile_is_told_as_such(connection: Connection, postgres_dsn: str) -> None:
    rows = copied_out(connection, sql.SQL("COPY (SELECT g FROM generate_series(1, 9000000) AS g) TO STDOUT").format())
    next(rows)
    with psycopg.connect(postgres_dsn, autocommit=True) as other:
        other.execute("SELECT pg_terminate_backend(%s)", (connection.info.backend_pid,))
    with pytest.raises(psycopg.OperationalError):
        list(rows)
    assert connection.broken


def test_a_statement_that_is_refused_at_once(connection: Connection) -> None:
    with pytest.raises(psycopg.errors.UndefinedTable):
        list(copied_out(connection, sql.SQL("COPY missing TO STDOUT").format()))
