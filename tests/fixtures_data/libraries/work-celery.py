"""Lets a worker of Celery execute tasks, and store their results: python work-celery.py < JSON.

The JSON, a line, has ``settings`` of the application, ``end``: ids of tasks that an earlier call has left in progress,
which end in this one, and ``forget``: ids of tasks whose results the application forgets. Prints the names of the tasks
→ their ids as JSON. The worker, which ends with standard input, and the application are threads of this process; their
broker is its memory.
"""

import json
import sys

from celery import Celery, Task, group
from celery.contrib.testing.worker import start_worker
from celery.exceptions import Ignore
from celery.result import AsyncResult

SECONDS = 120
"""The longest wait for a task; none takes one second."""
request = json.loads(sys.stdin.readline())
app = Celery("shop", broker="memory://", set_as_current=True)
app.conf.update(request["settings"], result_extended=True, broker_transport_options={"polling_interval": 0.01})


@app.task(name="shop.add")  # type: ignore[untyped-decorator] # Celery has no types
def add(left: int, right: int) -> int:
    return left + right


@app.task(name="shop.fail")  # type: ignore[untyped-decorator] # as above
def fail() -> None:
    raise ValueError("no route", {"to": "K\u00f6ln"})


@app.task(name="shop.parent")  # type: ignore[untyped-decorator] # as above
def parent() -> list[str]:
    return [add.delay(number, 1).id for number in range(2)]


@app.task(name="shop.begin", bind=True)  # type: ignore[untyped-decorator] # as above
def begin(task: Task) -> None:
    task.update_state(state="PROGRESS", meta={"percent": 50})
    raise Ignore  # the state stays, as of a task whose worker was stopped


def ended(result: AsyncResult) -> AsyncResult:
    """Return a result that has come to an end."""
    result.get(timeout=SECONDS, interval=0.01, propagate=False)
    return result


with start_worker(app, pool="solo", perform_ping_check=False):
    begun = begin.delay()
    started = {"add": add.delay(1, 2), "fail": fail.delay(), "parent": parent.delay()}
    started |= {f"end {key}": add.apply_async((5, 6), task_id=key) for key in request["end"]}
    found = {name: ended(result).id for name, result in started.items()}
    children = started["parent"].get()
    for number, key in enumerate(children):
        found[f"child {number}"] = ended(app.AsyncResult(key)).id
    pair = group(add.s(3, 4), add.s("a", "b")).apply_async()
    pair.save()
    for number, result in enumerate(pair):
        found[f"member {number}"] = ended(result).id
    for key in request["forget"]:
        app.AsyncResult(key).forget()
    # one worker executes in the order of the queue: the first task has ended too
    sys.stdout.write(json.dumps({"tasks": found | {"begun": begun.id}, "group": pair.id}) + "\n")
    sys.stdout.flush()
    sys.stdin.read()
