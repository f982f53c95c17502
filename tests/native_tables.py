"""The libraries' own tables, made by the libraries in a test's database."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from migrator.targets.library import LIBRARIES, Interpreter, LibraryRequest, Line, MongoStore, PostgresStore, answer
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
)
BY_NAME = {made.name: made for made in MADE}
every_shape = pytest.mark.parametrize("made", [pytest.param(made, id=made.name) for made in MADE])


def prepare(made: Made, dsn: str) -> list[Line]:
    """Let the library make its tables."""
    return ask(made, PostgresStore(dsn, made.schema), "prepare", scratch=True)


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
