"""sqlalchemy-celery-beat: its tables in PostgreSQL, and celerybeat-mongo's documents in MongoDB."""

from __future__ import annotations

import importlib
from functools import partial
from typing import Any, Iterator

from . import beats, stores
from .dialogue import Lines

DISTRIBUTIONS = ("sqlalchemy-celery-beat", "celery")
CLOCKS = (
    ("celery.app.base", "datetime"),
    ("sqlalchemy_celery_beat.schedulers", "dt"),
    ("sqlalchemy_celery_beat.models", "dt"),
    ("sqlalchemy_celery_beat.tzcrontab", "dt"),
)
TABLES = ("intervalschedule", "crontabschedule", "solarschedule", "clockedschedule", "periodictask")
CHANGED = "periodictaskchanged"


def _schema(request: dict[str, Any]) -> str | None:
    return request["store"].get("schema") or None


def _sessions(request: dict[str, Any]) -> Any:
    orm = importlib.import_module("sqlalchemy.orm")
    engine = stores.engine(request["store"], read_only=True)
    return orm.sessionmaker(bind=engine.execution_options(schema_translate_map={"celery_schema": _schema(request)}))


def _tasks(request: dict[str, Any]) -> Iterator[beats.Found]:
    stores.expect(request["store"], "postgresql", "mongodb")
    if request["store"]["kind"] == "mongodb":
        yield from beats.mongo_tasks(request)
        return
    app = beats.application(request)
    library = importlib.import_module("sqlalchemy_celery_beat.schedulers")
    sessions = _sessions(request)
    with sessions() as session:
        models = session.query(library.PeriodicTask).order_by(library.PeriodicTask.name).all()

        def make(model: Any) -> Any:
            return library.ModelEntry(model, sessions, app=app)

        for model in models:
            yield beats.Found(model.name, partial(beats.of_row, model, make, waits=True))


def entries(request: dict[str, Any], lines: Lines) -> None:
    """Print each task."""
    beats.entries(_tasks(request), lines)


def fires(request: dict[str, Any], lines: Lines) -> None:
    """Print the next fires of each task."""
    beats.fires(_tasks(request), request, lines)


def _beat(request: dict[str, Any], class_: Any) -> Any:
    app = beats.application(request)
    options = {"creator": stores.connector(request["store"], read_only=False)}
    return class_(app=app, dburi=stores.engine_url(), schema=_schema(request), engine_options=options)


def work(request: dict[str, Any], lines: Lines) -> None:
    """Let beat send what is due."""
    stores.expect(request["store"], "postgresql")
    library = importlib.import_module("sqlalchemy_celery_beat.schedulers")
    tasks = len(list(_tasks(request)))
    now = stores.instant(request["now"])
    beats.shift(now, *CLOCKS)
    beats.work(library.DatabaseScheduler, lambda class_: _beat(request, class_), lines, tasks, now)


def prepare(request: dict[str, Any], lines: Lines) -> None:
    """Let the library make its tables, as its scheduler does when it is made."""
    stores.expect(request["store"], "postgresql")
    session = importlib.import_module("sqlalchemy_celery_beat.session")
    importlib.import_module("sqlalchemy_celery_beat.models")
    engine = stores.engine(request["store"], read_only=False)
    engine = engine.execution_options(schema_translate_map={"celery_schema": _schema(request)})
    session.SessionManager().prepare_models(engine, schema=_schema(request))
    lines.put("prepared", tables=[f"celery_{name}" for name in (*TABLES, CHANGED)])
