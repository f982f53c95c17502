"""Connecting to PostgreSQL: pinned session settings, the role, and the driver's errors as errors of the tool.

``ALTER DATABASE … SET`` and ``ALTER ROLE … SET`` change how values are written as text, which names are found, and how
long a statement may take. Nothing that the tool reads or writes may depend on them, so each session sets its own.
"""

import json
import math
import re
import select
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Final, LiteralString, TypeAlias, TypeVar

import psycopg
from psycopg import errors, sql
from psycopg.adapt import Buffer
from psycopg.pq import ExecStatus, TransactionStatus
from psycopg.rows import class_row

from migrator.config import Settings, postgres_dsn, source_uri
from migrator.connections.table_locks import holders_named
from migrator.errors import (
    ConfigurationError,
    DeniedError,
    LockedError,
    MigratorError,
    RefusedError,
    UnreachableError,
    UsageError,
)
from migrator.redaction import redact

ENCODING: Final = "UTF8"

OLDEST: Final = 15
"""The oldest major version of the target: the tests run on it, and the schema uses what is new in it."""

PINNED: Final = {
    "array_nulls": "on",
    "DateStyle": "ISO, MDY",
    "IntervalStyle": "postgres",
    "TimeZone": "UTC",
    "bytea_output": "hex",
    "default_transaction_deferrable": "off",
    "default_transaction_isolation": "read committed",
    "extra_float_digits": "1",
    "quote_all_identifiers": "off",
    "row_security": "on",
    "search_path": "pg_catalog",
    "standard_conforming_strings": "on",
    "transform_null_equals": "off",
    "xmlbinary": "base64",
}
"""Set when the session is open: a pooler takes none of them as it begins."""

LOCK_TIMEOUT: Final = "15s"
"""How long a statement waits for a lock before who holds it is told, and the work is tried again or given up."""

TIMEOUTS: Final = {
    "idle_in_transaction_session_timeout": "0",
    "idle_session_timeout": "0",
    "lock_timeout": LOCK_TIMEOUT,
    "statement_timeout": "0",
    "transaction_timeout": "0",
}
"""Of a tool's sessions; those that the DSN itself names (``options``) stay as it says. Some servers lack some."""

_PIN_SETTINGS = (
    "SELECT count(pg_catalog.set_config(name, setting, false))"
    " FROM pg_catalog.jsonb_each_text(%s::jsonb) AS wanted (name, setting)"
    " WHERE pg_catalog.current_setting(name, true) <> setting"  # null: this server lacks it
)
_OF_THE_DSN = "SELECT name FROM pg_catalog.pg_settings WHERE source = 'client' AND name = ANY(%s)"


def connect_arguments(timeout: timedelta, application: str = "migrator") -> dict[str, Any]:
    """Return the parameters of a connection besides the DSN; ``timeout``: how long a connection may take."""
    return {
        "connect_timeout": math.ceil(timeout.total_seconds()),
        "application_name": application,
        "client_encoding": ENCODING,
    }


def pin_settings(connection: psycopg.Connection[Any]) -> None:
    """Pin everything for the rest of a session that is in autocommit.

    Raises ``ConfigurationError`` for a server that is too old, ``RefusedError`` for a database of another encoding.
    """
    require_version(connection)
    require_encoding(connection)
    wanted = {**PINNED, **TIMEOUTS}
    if connection.info.options:  # reading all settings takes as long as the rest
        for (name,) in connection.execute(_OF_THE_DSN, ([*TIMEOUTS],)):
            del wanted[name]
    connection.execute(_PIN_SETTINGS, (json.dumps(wanted),))


def require_version(connection: psycopg.Connection[Any]) -> None:
    """Close the connection and raise ``ConfigurationError`` where the target is older than ``OLDEST``."""
    number = connection.info.server_version
    if number < OLDEST * 10_000:
        connection.close()
        raise ConfigurationError(
            f"postgres.dsn names a server with PostgreSQL {number // 10_000}.{number % 10_000}, and the tool needs"
            f" PostgreSQL {OLDEST} or later: upgrade the server, or name another one"
        )


def require_encoding(connection: psycopg.Connection[Any]) -> None:
    """Raise ``RefusedError`` where the database's encoding is not UTF-8: it cannot hold every text, or checks none."""
    encoding = connection.info.parameter_status("server_encoding")
    if encoding is None:  # a pooler may keep it to itself
        row = connection.execute("SHOW server_encoding").fetchone()
        encoding = str(row[0]) if row is not None else ""
    if encoding != ENCODING:
        name = connection.info.dbname
        connection.close()
        raise RefusedError(
            f"the target's database {name} has the encoding {encoding}, which cannot hold every text: create one with"
            " ENCODING 'UTF8' TEMPLATE template0, and let postgres.dsn name it"
        )


_MISSING = (
    "SELECT array(SELECT rolname::text FROM pg_roles WHERE rolname = ANY(%(asked)s)"
    " AND NOT pg_has_role(session_user, oid, 'MEMBER') ORDER BY array_position(%(asked)s::text[], rolname::text))"
)


def not_a_member(connection: psycopg.Connection[Any], role: str, also: Iterable[str] = ()) -> RefusedError:
    """Return the refusal for a user that may not act in ``role``.

    ``also``: roles that the caller will need next. Those that the user lacks too stand in the same statement, unless
    the refusal has ended the transaction, so that nothing more can be asked.
    """
    user, missing = connection.info.user, [role]
    if connection.info.transaction_status != TransactionStatus.INERROR:
        cursor = psycopg.ClientCursor(connection)  # the connection's own may take other placeholders
        row = cursor.execute(_MISSING, {"asked": list(dict.fromkeys((role, *also)))}).fetchone()
        missing = (row[0] if row else None) or missing
    statement = sql.SQL("GRANT {} TO {}").format(
        sql.SQL(", ").join(sql.Identifier(one) for one in missing), sql.Identifier(user)
    )
    return RefusedError(
        f"the target's user {user} is not a member of {', '.join(missing)}; as an administrator run",
        grant=statement.as_string(connection),
    )


@contextmanager
def entering_role(connection: psycopg.Connection[Any], role: str, also: Iterable[str] = ()) -> Iterator[None]:
    """Turn the refusal of a role into ``RefusedError``: it does not exist, or the user is not a member of it.

    ``also``: as for ``not_a_member``.
    """
    try:
        yield
    except (errors.InvalidParameterValue, errors.UndefinedObject):
        raise not_migrated(f"it has no role {role}") from None
    except errors.InsufficientPrivilege:
        raise not_a_member(connection, role, also) from None


def is_alive(connection: psycopg.Connection[Any]) -> bool:
    """Whether an idle connection has nothing to read: the server sends unasked only to end it.

    (It also tells of a setting that was reloaded; then a connection is given up that would have stood.) Nobody else may
    use the connection at this moment. A host that vanished without a word is not noticed.
    """
    if connection.closed:
        return False
    watch = select.poll()
    watch.register(connection.fileno(), select.POLLIN)
    return not watch.poll(0)


Connection: TypeAlias = psycopg.Connection[tuple[Any, ...]]
Row = TypeVar("Row")


def fetch_structs(
    connection: Connection, kind: type[Row], query: LiteralString, parameters: Sequence[object] | None = None
) -> list[Row]:
    """Return the rows of a query; its columns have the names of the fields of ``kind``."""
    with connection.cursor(row_factory=class_row(kind)) as cursor:
        return cursor.execute(query, parameters).fetchall()


def fetch_value(
    connection: Connection, query: LiteralString | sql.SQL | sql.Composed, parameters: Sequence[object] | None = None
) -> Any:  # noqa: ANN401 - of whatever type the column is
    """Return the first value of the first row of a query; None if there is no row."""
    row = connection.execute(query, parameters).fetchone()
    return None if row is None else row[0]


def copied_out(connection: Connection, statement: sql.Composed) -> Generator[Buffer, None, None]:
    """Yield the messages that the server sends for ``COPY … TO STDOUT``: in the binary format, one for each row.

    The driver's own reading takes half as long again: it waits in a loop of generators for each eight kilobytes, which
    the server sends at a time. Raises the driver's errors. A caller that ends early cancels the statement.
    """
    with connection.cursor() as cursor, cursor.copy(statement):
        session, watch = connection.pgconn, select.poll()
        watch.register(session.socket, select.POLLIN)
        while (received := session.get_copy_data(1))[0] >= 0:
            if received[0]:
                yield received[1]
            else:
                watch.poll()
                session.consume_input()
        failure: psycopg.Error | None = None
        while True:
            while session.is_busy():
                watch.poll()
                session.consume_input()
            result = session.get_result()
            if result is None:
                break
            if result.status != ExecStatus.COMMAND_OK:
                failure = errors.error_from_result(result, connection.info.encoding)
        if failure is not None:
            raise failure


_UNUSABLE = re.compile(r"connection is bad: (invalid |definition of service |service file )")
"""What libpq says of a DSN that it can read and not use; nobody was asked for a connection."""


def open_target(settings: Settings, *, autocommit: bool = False, role: str | None = None) -> Connection:
    """Connect to the target in ``role`` (default: the migration role, which owns the tables), pinned (``session``).

    A native target has no such role: the tables are the library's, and the user of the DSN has rights on them.
    Raises ``ConfigurationError`` (DSN, a server that is too old), ``UnreachableError`` (no server, wrong password),
    ``RefusedError`` (no such role: not migrated).
    """
    connection = open_login(settings)
    if role is None and settings.target.is_native:
        connection.autocommit = autocommit
        return connection
    role = settings.postgres.migration_role if role is None else role
    with translate_errors("the target"):
        names = settings.postgres
        # The owner is not bound by row-level security: a user that needs the other two is not told to become it.
        applications = () if role == names.migration_role else (names.service_role, names.dispatcher_role)
        try:
            with entering_role(connection, role, applications):
                connection.execute(sql.SQL("SET ROLE {}").format(sql.Identifier(role)))
        except RefusedError:
            connection.close()
            raise
    connection.autocommit = autocommit
    return connection


@contextmanager
def target_connection(settings: Settings) -> Iterator[Connection]:
    """Connect to the target in the migration role and in autocommit, and close at the end.

    Raises as `open_target` does; inside, the driver's errors become the tool's, and one for a table that another
    session has locked names that session.
    """
    with (
        open_target(settings, autocommit=True) as connection,
        translate_errors("the target"),
        holders_named(connection),
    ):
        yield connection


def open_login(settings: Settings) -> Connection:
    """Connect as the user of the DSN, pinned and in autocommit; raises as `open_target` does, but for the role."""
    dsn = postgres_dsn(settings)
    with translate_errors("the target"):
        connection = connect_as_login(dsn, settings.postgres.timeout)
        connection.execute("SET plan_cache_mode = force_custom_plan")
    return connection


def connect_as_login(dsn: str, timeout: timedelta) -> Connection:
    """Connect as the user of the DSN, in autocommit, every setting pinned (``session``); raises the driver's errors.

    Raises ``ConfigurationError`` for a DSN that is not valid and for a server that is too old, ``RefusedError`` for a
    database of another encoding.
    """
    connection = _connect(dsn, timeout, "postgres.dsn")
    try:
        pin_settings(connection)
    except BaseException:
        connection.close()
        raise
    return connection


SOURCE_SETTINGS: Final = {
    **PINNED,
    **TIMEOUTS,
    "default_transaction_read_only": "on",
    "row_security": "off",  # a policy that hides rows is an error, not fewer rows
    "statement_timeout": "10min",
}
"""Of a session with a source in PostgreSQL, which is only read."""


def open_source(settings: Settings) -> Connection:
    """Connect to a source in PostgreSQL, in autocommit and read only.

    Raises ``ConfigurationError`` (URI), ``UnreachableError`` (no server, wrong password).
    """
    uri = source_uri(settings)
    with translate_source_errors():
        connection = _connect(uri, settings.postgres.timeout, "source.uri")
        try:
            connection.execute(_PIN_SETTINGS, (json.dumps(SOURCE_SETTINGS),))
        except BaseException:
            connection.close()
            raise
    return connection


def _connect(dsn: str, timeout: timedelta, setting: str) -> Connection:
    try:
        return psycopg.connect(dsn, autocommit=True, **connect_arguments(timeout))
    except psycopg.ProgrammingError as error:
        raise not_a_dsn(error, setting) from None
    except psycopg.OperationalError as error:
        if _UNUSABLE.match(str(error)):
            raise not_a_dsn(error, setting) from None
        raise


@contextmanager
def translate_source_errors() -> Iterator[None]:
    """Turn the driver's errors about a source in PostgreSQL into the tool's."""
    try:
        yield
    except errors.InsufficientPrivilege as error:
        why = f"{first_line(error)}; the copy needs SELECT on the table, and USAGE on its schema"
        raise DeniedError(f"the source denies a right: {why}") from error
    except (errors.UndefinedTable, errors.UndefinedColumn, errors.InvalidSchemaName) as error:
        raise RefusedError(f"the source is not what its mapping describes: {first_line(error)}") from error
    except psycopg.Error as error:
        raise translated("the source", error, setting="source.uri") from error


def version(connection: Connection) -> str:
    """Return the server's version, as it says it."""
    row = connection.execute("SHOW server_version").fetchone()
    assert row is not None  # noqa: S101 - a SHOW has one row
    return str(row[0])


@contextmanager
def translate_errors(what: str) -> Iterator[None]:
    """Turn the driver's errors into the tool's: who failed, and what an operator can do."""
    try:
        yield
    except psycopg.Error as error:
        raise translated(what, error) from error


REFUSED: Final = "MG001"
"""The SQLSTATE with which a function of the tool in the target refuses a write; its message says why."""

TOO_LARGE: Final = (errors.ProgramLimitExceeded, errors.StatementTooComplex, errors.TooManyColumns)
"""A value that exceeds a limit of the server (an index entry, levels of JSON): no other attempt may pass."""


def translated(what: str, error: psycopg.Error, *, setting: str = "postgres.dsn") -> MigratorError:
    """Return the tool's error for one of the driver's; ``setting``: what names the server."""
    line = first_line(error)
    if isinstance(error, errors.UndefinedTable | errors.InvalidSchemaName):
        return not_migrated(line)
    if "password authentication failed" in str(error):
        return UnreachableError(f"{what} refuses the user or the password of {setting}")
    if 'database "' in str(error) and "does not exist" in str(error):  # while connecting there is no SQLSTATE
        return UnreachableError(f"{what}: {line}; create the database first")
    if error.sqlstate == REFUSED:
        return RefusedError(error.diag.message_primary)
    kinds: tuple[tuple[type[psycopg.Error] | tuple[type[psycopg.Error], ...], type[MigratorError], str], ...] = (
        (TOO_LARGE, UsageError, f"{what} cannot hold a value: {line}"),
        (errors.InsufficientPrivilege, DeniedError, f"{what} denies a right: {line}"),
        (errors.LockNotAvailable, LockedError, f"{what}: a lock on a table was not granted in time: {line}"),
        (errors.DiskFull, UnreachableError, f"{what} is out of disk space: {line}; free some and call again"),
        (psycopg.OperationalError, UnreachableError, f"{what} cannot be reached or went away: {line}"),
    )
    for kind, becomes, sentence in kinds:
        if isinstance(error, kind):
            return becomes(sentence)
    return UnreachableError(f"{what} failed: {type(error).__name__}: {line}")


TRANSIENT_SQLSTATES: Final = ("08", "40001", "40P01", "53300", "55P03", "57P01", "57P02", "57P03")
"""Connection lost, serialization, deadlock, too many connections, a lock of another session, shut down, starting
up: another attempt may succeed."""


def is_transient(error: psycopg.Error) -> bool:
    """Whether another attempt may pass."""
    if error.sqlstate is None:
        return isinstance(error, psycopg.OperationalError)
    return error.sqlstate.startswith(TRANSIENT_SQLSTATES)


def not_migrated(why: str) -> RefusedError:
    """Return the error for a target without the schema, or with an old one."""
    return RefusedError(f"the target is not migrated ({why}): call migrator schema upgrade first")


def not_a_dsn(error: psycopg.Error, setting: str = "postgres.dsn") -> ConfigurationError:
    """Return the error for a DSN that libpq cannot read, without what it quotes: maybe a piece of the password."""
    said = re.sub('"[^"]*"', '"***"', first_line(error))
    return ConfigurationError(f"{setting} is not a PostgreSQL DSN: {said.removeprefix('connection is bad: ')}")


def first_line(error: psycopg.Error) -> str:
    """Return an error's first line without credentials and without the row it may quote."""
    text = error.diag.message_primary or str(error).strip() or type(error).__name__
    return redact(text.splitlines()[0])[:300]
