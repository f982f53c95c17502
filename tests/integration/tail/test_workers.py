"""Several processes apply changes: the rows are those of a fresh copy, whoever dies; nothing undoes a newer change."""

import os
import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest
from msgspec.structs import replace
from pymongo import DeleteOne, InsertOne, ReplaceOne, UpdateOne
from pymongo.database import Database

from migrator import fault_points as points
from migrator.config import Settings, TailSettings
from migrator.connections.mongo import committed_time
from migrator.pipeline import ledger
from migrator.pipeline.sessions import Sessions
from migrator.pipeline.tail import workers as module
from migrator.pipeline.tail.backlog import WRITING
from migrator.pipeline.tail.loop import Tail
from migrator.pipeline.tail.plain import PlainResult
from migrator.pipeline.tail.workers import PlainTask, Workers
from tests.copying import run_of
from tests.stellaops_documents import fresh
from tests.tailing import assert_as_a_fresh_copy, caught_up, compared, copied

Source = Database[Any]
NewDsn = Callable[[], str]
FAULTS = Path(__file__).parents[2] / "faults"
SEED = int(os.environ.get("TAIL_SEED", "20261123"))
ROUNDS = int(os.environ.get("TAIL_ROUNDS", "3"))
SCHEDULES = 8
RUNS = 120


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> list[PlainResult]:
    """What workers answered; they are asked however few the documents are, and from the first batch on."""
    found: list[PlainResult] = []
    apply, is_ready = Workers.apply, module._Worker.is_ready

    def noted(self: Workers, task: PlainTask) -> PlainResult:
        found.append(apply(self, task))
        return found[-1]

    def patient(self: module._Worker) -> bool:
        if not self._ready:
            self.pipe.poll(240)
        return is_ready(self)

    monkeypatch.setattr(module, "LEAST_DOCUMENTS", 0)
    monkeypatch.setattr(Workers, "apply", noted)
    monkeypatch.setattr(module._Worker, "is_ready", patient)
    return found


@pytest.fixture
def source(mongo_database: Source) -> Source:
    mongo_database["schedules"].insert_many([{**fresh("schedules"), "_id": f"s{one}"} for one in range(SCHEDULES)])
    mongo_database["runs"].insert_many([run_of(_id=f"r{one}", scheduleId=f"s{one % SCHEDULES}") for one in range(RUNS)])
    mongo_database["impact_snapshots"].insert_one({**fresh("impact_snapshots"), "_id": "i0", "runId": "r0"})
    return mongo_database


@pytest.fixture
def settings(source: Source, scheduler_dsn: str) -> Settings:
    return replace(copied(source, scheduler_dsn), tail=TailSettings(workers=2))


class Changes:
    """Random changes of schedules, runs and impact snapshots that refer to each other, parents after children too."""

    def __init__(self, source: Source, seed: int) -> None:
        self.source = source
        self.dice = random.Random(seed)

    def make(self, count: int) -> None:
        """Make changes, each batch in a random order."""
        changes = [self._run() for _ in range(count)]
        snapshots = [self._snapshot() for _ in range(count // 20)]
        schedules = [self._schedule() for _ in range(count // 20)]
        half = len(changes) // 2
        self.source["runs"].bulk_write(changes[:half])
        self.source["impact_snapshots"].bulk_write(snapshots)
        self.source["schedules"].bulk_write(schedules)
        self.source["runs"].bulk_write(changes[half:])

    def _id(self, letter: str, count: int) -> str:
        return f"{letter}{self.dice.randrange(count + count // 4)}"

    def _run(self) -> Any:  # noqa: ANN401 - a change
        key = self._id("r", RUNS)
        updates: list[tuple[int, dict[str, Any]]] = [
            (6, {"$inc": {"stats.completed": 1}}),
            (2, {"$set": {"scheduleId": self._id("s", SCHEDULES)}}),
            (2, {"$set": {"retryOf": self._id("r", RUNS)}}),
            (1, {"$set": {"state": "unheard of"}}),
            (1, {"$set": {"note": self.dice.random()}}),
            (1, {"$set": {"tenantId": self.dice.choice(["a", "b"])}}),
        ]
        choice = self.dice.random()
        if choice < 0.1:
            return DeleteOne({"_id": key})
        if choice < 0.35:
            return ReplaceOne({"_id": key}, run_of(_id=key, scheduleId=self._id("s", SCHEDULES)), upsert=True)
        weights, made = zip(*updates, strict=True)
        return UpdateOne({"_id": key}, self.dice.choices(made, weights)[0])

    def _snapshot(self) -> Any:  # noqa: ANN401 - a change
        key = self._id("i", 10)
        document = {**fresh("impact_snapshots"), "_id": key, "runId": self._id("r", RUNS)}
        return ReplaceOne({"_id": key}, document, upsert=True)

    def _schedule(self) -> Any:  # noqa: ANN401 - a change
        key = self._id("s", SCHEDULES)
        if self.dice.random() < 0.4:
            return DeleteOne({"_id": key})
        return ReplaceOne({"_id": key}, {**fresh("schedules"), "_id": key}, upsert=True)


@pytest.mark.parametrize("workers", [int(os.environ.get("TAIL_WORKERS", "2"))])
def test_random_changes_end_as_a_fresh_copy_does(
    workers: int, source: Source, settings: Settings, new_scheduler_dsn: NewDsn, answers: list[PlainResult]
) -> None:
    changes = Changes(source, SEED + workers)
    with Tail(replace(settings, tail=TailSettings(workers=workers))) as tail:
        tail.run("caught-up")
        for _ in range(ROUNDS):
            changes.make(150)
            assert tail.run("caught-up").applied
    assert sum(one.applied for one in answers) > 0 < sum(len(one.left) for one in answers)
    assert_as_a_fresh_copy(settings, source, new_scheduler_dsn)


def test_changes_that_concern_other_documents_are_left(
    source: Source, settings: Settings, new_scheduler_dsn: NewDsn, answers: list[PlainResult]
) -> None:
    with Tail(settings) as tail:
        source["runs"].insert_one(run_of(_id="child", retryOf="parent"))
        source["impact_snapshots"].insert_one({**fresh("impact_snapshots"), "_id": "i1", "runId": "other parent"})
        source["runs"].update_one({"_id": "r1"}, {"$set": {"state": "unheard of"}})
        tail.run("caught-up")
        del answers[:]
        source["runs"].bulk_write(
            [
                InsertOne(run_of(_id="parent")),
                InsertOne(run_of(_id="other parent")),
                InsertOne(run_of(_id="alone")),
                UpdateOne({"_id": "r1"}, {"$set": {"state": "queued"}}),
                UpdateOne({"_id": "r2"}, {"$set": {"state": "unheard of"}}),
                UpdateOne({"_id": "r3"}, {"$set": {"tenantId": "another"}, "$unset": {"scheduleId": ""}}),
                UpdateOne({"_id": "r4"}, {"$set": {"scheduleId": "nowhere"}}),
                UpdateOne({"_id": "r5"}, {"$set": {"note": 1}}),
                DeleteOne({"_id": "r6"}),
            ]
        )
        tail.run("caught-up")
    assert {one for answer in answers for one in answer.left} == {
        "parent",
        "other parent",
        "r1",
        "r2",
        "r3",
        "r4",
        "r6",
    }
    assert sum(one.applied for one in answers) == len(["alone", "r5"])
    assert_as_a_fresh_copy(settings, source, new_scheduler_dsn)


def test_documents_under_one_key_and_one_id(
    source: Source, settings: Settings, new_scheduler_dsn: NewDsn, answers: list[PlainResult]
) -> None:
    slot = {"scheduleId": "s0", "trigger": "cron"}
    alike = [run_of(_id=f"{head}_{number:032x}", **slot) for number in range(30) for head in ("run", "job")]
    with Tail(settings) as tail:
        tail.run("caught-up")
        source["runs"].bulk_write([InsertOne(one) for one in alike])
        tail.run("caught-up")
        source["runs"].bulk_write([DeleteOne({"_id": one["_id"]}) for one in alike[::3]])
        tail.run("caught-up")
    assert sum(one.applied for one in answers) > 0
    assert_as_a_fresh_copy(settings, source, new_scheduler_dsn)


def test_a_parent_and_its_child_in_one_batch(
    source: Source, settings: Settings, scheduler_dsn: str, answers: list[PlainResult]
) -> None:
    """In halves by their ids: the children of one worker are the parents of the other."""
    pairs = [(f"p{one:02}", f"q{one:02}") for one in range(20)]
    with Tail(settings) as tail:
        tail.run("caught-up")
        made = [run_of(_id=child, retryOf=parent) for parent, child in pairs]
        source["runs"].insert_many([*made, *(run_of(_id=parent) for parent, _ in pairs)])
        tail.run("caught-up")
    with psycopg.connect(scheduler_dsn) as target:
        found = target.execute(
            "SELECT child.source_id, parent.source_id FROM scheduler.runs AS child JOIN scheduler.runs AS parent"
            " ON parent.id = child.retry_of ORDER BY 1"
        ).fetchall()
    assert found == [(child, parent) for parent, child in pairs]
    assert answers


@pytest.mark.parametrize("point", [points.WORKER_BEFORE_COMMIT, points.WORKER_AFTER_COMMIT])
def test_a_worker_that_dies_is_replaced(
    point: str,
    source: Source,
    settings: Settings,
    new_scheduler_dsn: NewDsn,
    answers: list[PlainResult],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("MIGRATOR_FAULT_POINTS", "worker_listener:passed")
    monkeypatch.syspath_prepend(FAULTS)
    monkeypatch.setenv("KILL_AT", point)
    monkeypatch.setenv("KILL_TALLY", str(tmp_path / "tally"))
    changes = Changes(source, SEED)
    with Tail(settings) as tail:
        for _ in range(3):
            changes.make(100)
            tail.run("caught-up")
    assert (tmp_path / "tally").exists()
    assert sum(one.applied for one in answers[-1:]) > 0
    assert "tail: a worker applied nothing: its process ended" in capsys.readouterr().err
    assert_as_a_fresh_copy(settings, source, new_scheduler_dsn)


@pytest.mark.parametrize("point", [points.WORKERS_ANSWERED, points.TAIL_BEFORE_COMMIT])
def test_rows_that_are_ahead_of_the_position(
    point: str,
    source: Source,
    settings: Settings,
    new_scheduler_dsn: NewDsn,
    answers: list[PlainResult],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Workers have committed, and the tail ends before it saves the position: the events are read again."""

    def passed(reached: str) -> None:
        if reached == point and answers:
            raise KeyboardInterrupt

    changes = Changes(source, SEED)
    with Tail(settings) as tail:
        tail.run("caught-up")
        changes.make(100)
        monkeypatch.setattr(points, "_listen", passed)
        with pytest.raises(KeyboardInterrupt):
            tail.run("caught-up")
    monkeypatch.undo()
    assert answers[0].applied
    changes.make(20)
    caught_up(settings)
    assert_as_a_fresh_copy(settings, source, new_scheduler_dsn)


def task(sessions: Sessions, source_ids: list[str], holder: int) -> PlainTask:
    plan = ledger.latest_plan(sessions.target)
    assert plan is not None
    return PlainTask(
        plan=plan,
        profile_version=sessions.profile.version,
        collection="runs",
        source_ids=source_ids,
        not_before=committed_time(sessions.source),
        holder=holder,
    )


def test_why_a_worker_leaves_everything_is_said_once_a_while(
    source: Source,
    settings: Settings,
    answers: list[PlainResult],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Each transaction of a worker fails; the tail applies everything by itself, and says so."""
    failing = (
        f"def passed(point):\n    if point == {points.WORKER_BEFORE_COMMIT!r}:\n        raise ValueError('a value')\n"
    )
    (tmp_path / "failing_listener.py").write_text(failing)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("MIGRATOR_FAULT_POINTS", "failing_listener:passed")
    with Tail(settings) as tail:
        tail.run("caught-up")
        for number in range(3):
            source["runs"].update_many({}, {"$set": {"note": number}})
            tail.run("caught-up")
    assert answers
    assert not any(one.applied for one in answers)
    said = [line for line in capsys.readouterr().err.splitlines() if "a worker applied nothing" in line]
    assert len(said) == 1, "a failure may stay for hours"
    assert said[0].endswith("unforeseen: ValueError; the tail applies its share by itself")
    assert compared(settings) == []


def test_a_failure_of_a_worker_holds_no_value() -> None:
    assert module._failure(ValueError("a value of a document")) == "unforeseen: ValueError"


def test_a_worker_of_a_tail_that_is_gone_writes_nothing(source: Source, settings: Settings) -> None:
    source["runs"].update_one({"_id": "r0"}, {"$set": {"note": 1}})
    sessions = Sessions(settings)
    service = module._Service(settings)
    try:
        with Tail(settings) as heir:
            heir.run("caught-up")
            assert service.apply(task(sessions, ["r0"], sessions.target.info.backend_pid)).left == ["r0"]
            assert heir._session is not None
            assert service.apply(task(sessions, ["r0"], heir._session._target.info.backend_pid)).left == []
    finally:
        service.close()
        sessions.close()
    caught_up(settings)
    assert compared(settings) == []


def test_a_tail_that_takes_over_writes_nothing_while_a_lost_worker_does(
    source: Source, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker has read a document that changes again; its rows are stored before the newer ones, or not at all."""
    source["runs"].update_one({"_id": "r0"}, {"$inc": {"stats.completed": 1}})
    stands, go_on = threading.Event(), threading.Event()

    def passed(point: str) -> None:
        if point == points.WORKER_BEFORE_COMMIT:
            stands.set()
            go_on.wait()

    sessions = Sessions(settings)
    service = module._Service(settings)
    found: list[PlainResult] = []
    alone = replace(settings, tail=TailSettings(workers=1))
    try:
        with Tail(alone) as lost:
            lost.run("caught-up")
            assert lost._session is not None
            given = task(sessions, ["r0"], lost._session._target.info.backend_pid)
            monkeypatch.setattr(points, "_listen", passed)
            worker = threading.Thread(target=lambda: found.append(service.apply(given)))
            worker.start()
            stands.wait()
        source["runs"].update_one({"_id": "r0"}, {"$inc": {"stats.completed": 1}})
        with Tail(alone) as heir:
            waits = heir.run("caught-up")
            assert (waits.applied, waits.reason, waits.owed) == (False, WRITING, 1)
            go_on.set()
            worker.join()
            assert heir.run("caught-up").applied
    finally:
        go_on.set()
        service.close()
        sessions.close()
    assert found[0].applied == 1
    assert compared(settings) == []
