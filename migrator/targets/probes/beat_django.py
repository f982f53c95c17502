"""django-celery-beat: its tables in PostgreSQL, and celerybeat-mongo's documents in MongoDB."""

from __future__ import annotations

import importlib
from functools import partial
from typing import Any, Iterator

from . import beats, stores
from .dialogue import Lines

DISTRIBUTIONS = ("django-celery-beat", "django", "celery")
CLOCKS = (
    ("celery.app.base", "datetime"),
    ("django.utils.timezone", "datetime"),
    ("django_celery_beat.schedulers", "datetime"),
    ("django_celery_beat.tzcrontab", "datetime"),
)
APP = "django_celery_beat"
TABLES = ("intervalschedule", "crontabschedule", "solarschedule", "clockedschedule", "periodictask", "periodictasks")


def _set_up(request: dict[str, Any], *, read_only: bool) -> None:
    """Configure Django for the database of a store, and nothing else."""
    place = request["store"]
    settings: dict[str, Any] = {
        "INSTALLED_APPS": [APP],
        "USE_TZ": True,
        "TIME_ZONE": request.get("options", {}).get("timezone", "UTC"),
        "CELERY_TIMEZONE": request.get("options", {}).get("timezone", "UTC"),
    }
    if place["kind"] == "postgresql":
        given = importlib.import_module("psycopg.conninfo").conninfo_to_dict(place["dsn"])
        path = '"' + (place.get("schema") or "public").replace('"', '""') + '"'
        options = f"-c search_path={path}" + " -c default_transaction_read_only=on" * read_only
        named = {"dbname": "NAME", "user": "USER", "password": "PASSWORD", "host": "HOST", "port": "PORT"}
        database = {named[name]: str(given.pop(name)) for name in named if name in given}
        settings["DATABASES"] = {
            "default": {
                "ENGINE": "django.db.backends.postgresql",
                **database,
                "OPTIONS": {**given, "options": options},
            }
        }
    importlib.import_module("django.conf").settings.configure(**settings)
    importlib.import_module("django").setup()


def _tasks(request: dict[str, Any], *, read_only: bool = True) -> Iterator[beats.Found]:
    stores.expect(request["store"], "postgresql", "mongodb")
    if request["store"]["kind"] == "mongodb":
        yield from beats.mongo_tasks(request)
        return
    _set_up(request, read_only=read_only)
    app = beats.application(request)
    library = importlib.import_module("django_celery_beat.schedulers")

    def make(model: Any) -> Any:
        return library.ModelEntry(model, app=app)

    for model in library.PeriodicTask.objects.order_by("name"):
        yield beats.Found(model.name, partial(beats.of_row, model, make, waits=False))


def entries(request: dict[str, Any], lines: Lines) -> None:
    """Print each task."""
    beats.entries(_tasks(request), lines)


def fires(request: dict[str, Any], lines: Lines) -> None:
    """Print the next fires of each task."""
    beats.fires(_tasks(request), request, lines)


def work(request: dict[str, Any], lines: Lines) -> None:
    """Let beat send what is due."""
    stores.expect(request["store"], "postgresql")
    tasks = len(list(_tasks(request, read_only=False)))
    library = importlib.import_module("django_celery_beat.schedulers")
    now = stores.instant(request["now"])
    beats.shift(now, *CLOCKS)
    beats.work(library.DatabaseScheduler, lambda class_: class_(app=beats.application(request)), lines, tasks, now)


def prepare(request: dict[str, Any], lines: Lines) -> None:
    """Let Django's migrations of the library make its tables."""
    stores.expect(request["store"], "postgresql")
    _set_up(request, read_only=False)
    importlib.import_module("django.core.management").call_command("migrate", APP, verbosity=0)
    loader = importlib.import_module("django.db.migrations.loader").MigrationLoader(None)
    last = max(name for app, name in loader.disk_migrations if app == APP)
    row = {"table": "django_migrations", "column": "name", "value": last, "where": {"app": APP}, "last": True}
    lines.put("prepared", tables=[f"{APP}_{name}" for name in TABLES], version_row=row)
