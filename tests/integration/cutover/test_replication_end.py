"""What the tail does after a cutover: it carries back, and ends well when the cutover is finished."""

from typing import Any

import psycopg

from migrator.connections.postgres import open_target
from migrator.cutover import completion, outbox
from migrator.cutover.reverse_sync import FENCE_COLLECTION
from migrator.pipeline.sessions import close_cached
from migrator.schema.decisions import Approval
from tests.copying import kill, run, start
from tests.cutting_over import Scene
from tests.scheduler_processes import until

ENDED = "the cutover is finished: the tail and the reverse sync have ended, and this process is not needed\n"


def test_it_ends_with_0_when_the_cutover_is_finished(ready: Scene) -> None:
    ready.switch()
    close_cached()
    tail = start("tail", "--config", str(ready.config))
    try:
        with psycopg.connect(ready.dsn) as connection:
            connection.execute("UPDATE scheduler.schedules SET name = 'since'")
        with open_target(ready.settings, autocommit=True) as target:
            assert outbox.wait_until_empty(target, 60)  # it carries
        assert ready.database.schedules.find_one({})["name"] == "since"  # type: ignore[index] # there is one
        completion.finish(ready.settings, early=Approval("op", "test"))
        out, said = tail.communicate(timeout=240)
    finally:
        kill(tail)
    assert (tail.returncode, out) == (0, ENDED), said
    assert run("tail", "--config", str(ready.config))[:2] == (0, ENDED)  # started again by a supervisor
    assert run("tail", "--until-caught-up", "--config", str(ready.config))[:2] == (0, ENDED)


def test_it_ends_with_0_when_the_cutover_is_finished_while_it_writes(ready: Scene) -> None:
    """The end of the cutover ends the transaction of the reverse sync, whose statement MongoDB then interrupts."""
    ready.switch()
    close_cached()
    admin = ready.database.client.admin
    name = f"{ready.database.name}.{FENCE_COLLECTION}"
    data: dict[str, Any] = {
        "failCommands": ["update"],
        "namespace": name,
        "blockConnection": True,
        "blockTimeMS": 60_000,
    }
    admin.command("configureFailPoint", "failCommand", mode={"times": 1}, data=data)
    tail = start("tail", "--config", str(ready.config))
    try:
        with psycopg.connect(ready.dsn) as connection:
            connection.execute("UPDATE scheduler.schedules SET name = 'since'")
        held: list[dict[str, Any]] = [{"$currentOp": {}}, {"$match": {"command.update": FENCE_COLLECTION}}]
        until(lambda: list(admin.aggregate(held)))
        completion.finish(ready.settings, early=Approval("op", "test"))
        out, said = tail.communicate(timeout=50)
    finally:
        admin.command("configureFailPoint", "failCommand", mode="off")
        kill(tail)
    assert (tail.returncode, out) == (0, ENDED), said
