"""procrastinate: its jobs in PostgreSQL.

``entries`` lists every job, in a read-only session. ``work`` lets ``options.workers`` workers (2 if omitted) of one
process execute what is due, by the clock of the server, and end when nothing is. With ``options.due_until``, seconds
since 1970, what is due then is due now, and the rest tomorrow. No code of the application is loaded:
a task does nothing but say that it was called.
"""

from __future__ import annotations

import asyncio
import importlib
from typing import Any

from . import stand_ins, stores
from .dialogue import Lines, Refused

DISTRIBUTIONS = ("procrastinate",)
TABLES = ("procrastinate_jobs", "procrastinate_workers", "procrastinate_periodic_defers", "procrastinate_events")


def _app(place: dict[str, Any], *, read_only: bool) -> Any:
    """Return an application of the library that knows no task."""
    stores.expect(place, "postgresql")
    if any(stores.named(place, table) != table for table in TABLES):
        raise Refused("procrastinate has no other names for its tables")
    schema = (place.get("schema") or "public").replace("\\", "\\\\").replace(" ", "\\ ").replace('"', '""')
    options = f'-c search_path="{schema}"' + " -c default_transaction_read_only=on" * read_only
    library = importlib.import_module("procrastinate")
    return library.App(connector=library.PsycopgConnector(conninfo=place["dsn"], kwargs={"options": options}))


async def _jobs(app: Any) -> list[Any]:
    async with app.open_async():
        return sorted(await app.job_manager.list_jobs_async(), key=lambda job: job.id)


def entries(request: dict[str, Any], lines: Lines) -> None:
    """Print each job."""
    for job in asyncio.run(_jobs(_app(request["store"], read_only=True))):
        fields = {"task": job.task_name, "queue": job.queue, "status": job.status, "attempts": job.attempts}
        fields["args"] = job.task_kwargs
        lines.put("entry", id=job.id, due=stores.in_utc(job.scheduled_at), fields=fields)


def fires(_request: dict[str, Any], _lines: Lines) -> None:
    """Print nothing: jobs do not fire, and periodic tasks stand in the application's code."""


def work(request: dict[str, Any], lines: Lines) -> None:
    """Let workers execute what is due, and print each job that was executed."""
    place, options = request["store"], request.get("options", {})
    number = int(options.get("workers", 2))
    if "due_until" in options:
        schema = (place.get("schema") or "public").replace('"', '""')
        moved = stores.MOVED.format(column="scheduled_at")
        statement = f'UPDATE "{schema}".procrastinate_jobs SET scheduled_at = {moved}'  # noqa: S608 - quoted
        stores.execute(place, statement, options["due_until"], read_only=False)
    names = {job.task_name for job in asyncio.run(_jobs(_app(place, read_only=True)))}
    asyncio.run(_work(_app(place, read_only=False), names, number, lines))


async def _work(app: Any, names: set[str], number: int, lines: Lines) -> None:
    for name in names:
        app.task(name=name, pass_context=True)(_stand_in(lines))
    async with app.open_async():
        await asyncio.gather(
            *(app.run_worker_async(wait=False, install_signal_handlers=False, name=str(one)) for one in range(number))
        )


def _stand_in(lines: Lines) -> Any:
    async def execute(context: Any, **given: Any) -> None:
        await asyncio.sleep(0)
        lines.put(
            "execution",
            id=context.job.id,
            worker=context.worker_name,
            attempts=context.job.attempts,
            args=stand_ins.plain(given),
        )

    return execute


def prepare(request: dict[str, Any], lines: Lines) -> None:
    """Let the library make its tables."""
    asyncio.run(_prepare(_app(request["store"], read_only=False)))
    lines.put("prepared", tables=list(TABLES))


async def _prepare(app: Any) -> None:
    async with app.open_async():
        await app.schema_manager.apply_schema_async()
