"""The libraries' own tables, made by the libraries in a test's database."""

from pathlib import Path
from typing import Any, Final

import msgspec
import psycopg
import pytest
from psycopg import sql

from migrator.targets.library import LIBRARIES, Interpreter, LibraryRequest, Line, MongoStore, PostgresStore, answer
from tests.conftest import fresh_name
from tests.real_libraries import interpreter, packages


class Made(msgspec.Struct, frozen=True):
    """A shape of a target's tables, and how the library is called for it."""

    target: str
    shape: str
    environment: str
    """The lock file of its packages."""
    schema: str = "public"
    options: dict[str, Any] = {}
    sequences: tuple[str, ...] = ()
    """Those that belong to no column."""

    @property
    def name(self) -> str:
        return f"{self.target}-{self.shape}"


_SEQUENCES = ("task_id_sequence", "taskset_id_sequence")
MADE = (
    Made("apscheduler", "3.11", "apscheduler-3"),
    Made("celery-results", "5.7", "celery-5.7", sequences=_SEQUENCES),
    Made("celery-results-5-6", "5.6", "celery-5.6", sequences=_SEQUENCES),
    Made("agenda", "3.0", "agenda-6"),
    Made("sqlalchemy-celery-beat", "0.9", "sqlalchemy-celery-beat"),
    Made("django-celery-beat", "2.9", "django-celery-beat"),
    Made("apscheduler4", "4.0.0a6", "apscheduler-4", schema="apscheduler"),
    Made("pgmq", "1.13", "pgmq", schema="pgmq"),
    Made("procrastinate", "3.10", "procrastinate"),
)
BY_NAME = {made.name: made for made in MADE}
every_shape = pytest.mark.parametrize("made", [pytest.param(made, id=made.name) for made in MADE])


_OTHERS: Final = """SELECT nspname FROM pg_namespace
    WHERE nspname NOT LIKE 'pg\\_%' AND nspname NOT IN ('information_schema', 'public')
    UNION ALL SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace"""
"""Of a database: what an empty one does not have."""
_templates: dict[tuple[str, str], str] = {}
"""Server and shape → the database in which the library has made its tables; it ends with the server."""


def make_by_library(made: Made, dsn: str) -> list[Line]:
    """Let the library make its tables; return the lines of its answer."""
    return ask(made, PostgresStore(dsn, made.schema), "prepare", scratch=True)


def prepare(made: Made, dsn: str) -> None:
    """Put a database with the tables that the library has made in the place of an empty one.

    The library makes them once on each server: its start takes longer than most tests.
    """
    server, _, name = dsn.rpartition("/")
    with psycopg.connect(dsn) as connection:
        assert connection.execute(_OTHERS).fetchall() == [], "only an empty database can be replaced"
    with psycopg.connect(f"{server}/postgres", autocommit=True) as connection:
        template = _templates.get((server, made.name), "")
        if connection.execute("SELECT FROM pg_database WHERE datname = %s", (template,)).fetchone() is None:
            template = fresh_name()
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(template)))
            make_by_library(made, f"{server}/{template}")
            _templates[server, made.name] = template
        names = (sql.Identifier(name), sql.Identifier(template))
        connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(names[0]))
        connection.execute(sql.SQL("CREATE DATABASE {} TEMPLATE {} STRATEGY file_copy").format(*names))


def ask(made: Made, store: PostgresStore | MongoStore, do: Any, **members: Any) -> list[Line]:  # noqa: ANN401 - see LibraryRequest
    """Return the lines of the library's answer."""
    options = made.options | members.pop("options", {})
    request = LibraryRequest(do=do, store=store, options=options, **members)
    return answer(made.target, request, interpreter=program(made))


def program(made: Made) -> Interpreter:
    """Return the interpreter that has the library."""
    if LIBRARIES[made.target].program == "node":
        return Interpreter(None, packages(made.environment))
    return Interpreter(interpreter(made.environment))


def python(made: Made) -> Path:
    """Return the Python that has a library."""
    return interpreter(made.environment)
