"""A Celery application in a process of its own: broker and results are files of the folder in ``CELERY_FOLDER``."""

import os
from pathlib import Path
from typing import Any

from celery import Celery

from migrator.scheduler.celery import HEADER


def application(folder: Path) -> Celery:
    """Return the application that uses a folder."""
    for name in ("queue", "control", "results"):
        (folder / name).mkdir(exist_ok=True)
    transport = {
        "data_folder_in": str(folder / "queue"),
        "data_folder_out": str(folder / "queue"),
        "control_folder": str(folder / "control"),
    }
    made = Celery("tests", broker="filesystem://", backend=f"file://{folder / 'results'}")
    made.conf.update(
        broker_transport_options=transport,
        broker_connection_retry_on_startup=True,
        result_extended=True,
        worker_hijack_root_logger=False,
        task_ignore_result="CELERY_IGNORES" in os.environ,
    )
    return made


app = application(Path(os.environ["CELERY_FOLDER"])) if "CELERY_FOLDER" in os.environ else Celery("tests")


@app.task(name="demo.add", bind=True)  # type: ignore[untyped-decorator] # Celery has no types
def add(task: Any, *, left: int, right: int) -> dict[str, Any]:  # noqa: ANN401 - Celery's task has no type
    queue = task.request.delivery_info["routing_key"]
    return {"sum": left + right, "run": getattr(task.request, HEADER)["runId"], "queue": queue, "task": task.request.id}


@app.task(name="demo.fail")  # type: ignore[untyped-decorator] # as above
def fail() -> None:
    raise RuntimeError("no route")


@app.task(name="demo.silent", ignore_result=True)  # type: ignore[untyped-decorator] # as above
def silent(*, folder: str) -> str:
    with (Path(folder) / "called").open("a") as file:
        file.write("called\n")
    return "reported"


@app.task(name="demo.silent-failure", ignore_result=True)  # type: ignore[untyped-decorator] # as above
def fail_silently() -> None:
    raise RuntimeError("no route")
