"""A server that forks probes of ``migrator/targets/probes``, started by path in a library's interpreter (``-I``).

It has loaded the libraries that its interpreter has, and nothing of the probes.
"""

import importlib
import runpy
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

ROOT: Final = str(Path(__file__).resolve().parents[1])
MODULES: Final = (
    "apscheduler._schedulers.async_",
    "apscheduler.datastores.sqlalchemy",
    "apscheduler.eventbrokers.local",
    "apscheduler.executors.pool",
    "apscheduler.jobstores.mongodb",
    "apscheduler.jobstores.sqlalchemy",
    "apscheduler.schedulers.base",
    "celery.app.amqp",
    "celery.app.control",
    "celery.app.events",
    "celery.app.log",
    "celery.backends.database",
    "celery.beat",
    "celerybeatmongo.schedulers",
    "django.core.management",
    "django.db.backends.postgresql.base",
    "django.db.models",
    "pgmq",
    "procrastinate",
    "psycopg",
    "pymongo",
    "sqlalchemy.dialects.postgresql.psycopg",
    "sqlalchemy.orm",
    "sqlalchemy_celery_beat.schedulers",
)
"""What probes import; none of them is in every interpreter."""


def _run(arguments: list[str]) -> None:
    sys.argv = arguments
    runpy.run_path(arguments[0], run_name="__main__")


def main() -> None:
    """Load the modules, and serve."""
    path = sys.path[:]
    sys.path.insert(0, ROOT)
    fork_server = importlib.import_module("tests.fork_server")
    sys.path[:] = path
    for name in MODULES:
        with suppress(ImportError):
            importlib.import_module(name)
    fork_server.serve(int(sys.argv[1]), _run)


if __name__ == "__main__":
    main()
