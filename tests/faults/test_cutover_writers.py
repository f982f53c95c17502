"""Other programs write into MongoDB throughout a switch: what was acknowledged is there afterwards, exactly once."""

import itertools
import random
import threading
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from pymongo.database import Database
from pymongo.errors import OperationFailure

from migrator.cutover.cutover import CutoverResult
from tests.copying import run_of
from tests.cutting_over import Scene, with_cutover

ENOUGH = 300
"""Changes made before the switch begins."""


class Foreign:
    """A plain client that inserts, updates and deletes until it is refused, and keeps what was acknowledged."""

    def __init__(self, database: Database[Any], seed: int) -> None:
        self.database, self.dice = database, random.Random(seed)
        self.holds: dict[str, str] = {}
        """What must be there: id → error text."""
        self.gone: set[str] = set()
        self.doubtful: set[str] = set()
        self.refused = threading.Event()
        self.busy = threading.Event()
        self.done = 0
        self._seed = seed

    def work(self) -> None:
        for number in itertools.count():
            try:
                self._once(number)
            except OperationFailure:
                self.refused.set()
                return
            self.done += 1
            if self.done >= ENOUGH:
                self.busy.set()

    def _once(self, number: int) -> None:
        kind = self.dice.choice("iiuud")
        key = f"run_foreign_{self._seed}_{number}"
        known = sorted(self.holds)
        if kind == "i" or not known:
            self.database.runs.insert_one(run_of(_id=key, error="new"))
            self.holds[key] = "new"
            return
        chosen = self.dice.choice(known[-50:])
        if kind == "u":
            self.database.runs.update_one({"_id": chosen}, {"$set": {"error": f"text {number}"}})
            self.holds[chosen] = f"text {number}"
        else:
            self.database.runs.delete_one({"_id": chosen})
            del self.holds[chosen]
            self.gone.add(chosen)


def switched_while_writing(ready: Scene, *connections: Database[Any]) -> tuple[CutoverResult, list[Foreign]]:
    """Cut over while a program writes through each connection; return what was done, and the programs, refused."""
    writers = [Foreign(database, number) for number, database in enumerate(connections, 1)]
    threads = [threading.Thread(target=writer.work) for writer in writers]
    for thread in threads:
        thread.start()
    for writer in writers:
        writer.busy.wait()
    # the expected pause is computed from a check of 14 documents, which a busy machine makes slow
    ready.settings = with_cutover(ready.settings, max_pause=timedelta(minutes=10))
    done = ready.switch()
    for thread in threads:
        thread.join()
    return done, writers


@pytest.mark.slow
@pytest.mark.proves("4-X5", "0-T2.12.1")
def test_everything_acknowledged_is_there_once(ready: Scene) -> None:
    with ready.foreign() as one, ready.foreign() as other:
        done, writers = switched_while_writing(ready, one, other)
    assert all(writer.refused.is_set() for writer in writers)
    assert done.compared >= sum(len(writer.holds) for writer in writers)
    expected = {key: text for writer in writers for key, text in writer.holds.items()}
    gone = {key for writer in writers for key in writer.gone}
    with psycopg.connect(ready.dsn) as connection:
        rows = connection.execute("SELECT source_id, error FROM scheduler.runs WHERE source_id LIKE 'run_foreign_%'")
        found = rows.fetchall()
    assert len(found) == len({key for key, _ in found})
    assert dict(found) == expected
    assert not gone & {key for key, _ in found}
    with ready.database.client.start_session():
        assert {one["_id"] for one in ready.database.runs.find({"_id": {"$regex": "^run_foreign"}})} == set(expected)
