"""When the tail may write, where it begins, what it refuses, and what makes its position useless."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from bson.timestamp import Timestamp
from msgspec.structs import replace
from pymongo import MongoClient, UpdateOne
from pymongo.database import Database

from migrator import fault_points as points
from migrator.config import Settings
from migrator.connections.mongo import replica_set_in
from migrator.connections.postgres import target_connection
from migrator.errors import RefusedError
from migrator.pipeline import backfill as flow
from migrator.pipeline import plan
from migrator.pipeline.plan import Scope
from migrator.pipeline.tail import positions
from migrator.pipeline.tail.applier import Applier
from migrator.pipeline.tail.loop import Tail
from migrator.pipeline.tail.positions import (
    LagMonitor,
    Position,
    PositionBackwardsError,
    PositionFrozenError,
    PositionLostError,
    position_at_time,
)
from migrator.pipeline.tail.stream import ChangeStream
from migrator.store.mongo.indexes import create_missing_triggers
from migrator.testing.servers.mongo import MongoServer
from tests.copying import number, run, run_of, settings_for, write_config
from tests.gates import held
from tests.stellaops_documents import fresh
from tests.tailing import assert_as_a_fresh_copy, caught_up, compared, copied

Source = Database[Any]
UNVERIFIED = 4
USAGE = 2
RUNS = "SELECT count(*) FROM scheduler.runs"


@pytest.fixture
def source(mongo_database: Source) -> Source:
    mongo_database["runs"].insert_many([run_of(_id=f"r{one}") for one in range(6)])
    return mongo_database


@pytest.fixture
def settings(source: Source, scheduler_dsn: str) -> Settings:
    return copied(source, scheduler_dsn)


def state_of_tail(settings: Settings) -> positions.TailState | None:
    with target_connection(settings) as target:
        return positions.tail_state(target, "stellaops")


def test_the_first_alarm_stays_until_it_is_settled(settings: Settings) -> None:
    caught_up(settings)
    with target_connection(settings) as target:
        positions.raise_alarm(target, "stellaops", "the first")
        first = state_of_tail(settings)
        positions.raise_alarm(target, "stellaops", "the second")
        second = state_of_tail(settings)
        assert first is not None
        assert second is not None
        assert (second.alarm, second.alarm_at) == ("the first", first.alarm_at)
        positions.settle_alarm(target, "stellaops")
        positions.raise_alarm(target, "stellaops", "the third")
    third = state_of_tail(settings)
    assert third is not None
    assert third.alarm == "the third"


def test_a_late_chunk_undoes_nothing_and_nothing_deleted_comes_back(
    source: Source, scheduler_dsn: str, tmp_path: Path
) -> None:
    settings = settings_for(source, scheduler_dsn, workers=1)
    config = write_config(tmp_path, settings)
    with held(config, points.AFTER_LOAD_BEFORE_COMMIT, tmp_path) as copy:  # it has read, and has not committed
        source["runs"].update_one({"_id": "r1"}, {"$set": {"note": 1}})
        source["runs"].delete_one({"_id": "r2"})
        done = caught_up(settings)
        assert (done.reached, done.applied, done.documents) == (True, False, 0)
        assert done.owed >= 2
        assert done.reason == "the copy is unfinished; changes are recorded until it is complete"
        copy.go()
        assert copy.end()[0] == 0
    assert number(scheduler_dsn, RUNS) == 6  # the chunk was late
    assert caught_up(settings).owed == 0
    assert number(scheduler_dsn, RUNS) == 5
    assert number(
        scheduler_dsn, "SELECT extra ->> 'note' IS NOT NULL OR extra <> '{}' FROM scheduler.runs WHERE source_id = 'r1'"
    )
    assert compared(settings) == []


def test_a_collection_dropped_under_a_late_chunk(source: Source, scheduler_dsn: str, tmp_path: Path) -> None:
    settings = settings_for(source, scheduler_dsn, workers=1)
    config = write_config(tmp_path, settings)
    with held(config, points.AFTER_LOAD_BEFORE_COMMIT, tmp_path) as copy:
        source["runs"].drop()
        caught_up(settings)
        copy.go()
        assert copy.end()[0] == 0
    assert number(scheduler_dsn, RUNS) == 6
    caught_up(settings)
    assert number(scheduler_dsn, RUNS) == 0


def test_a_second_copy_waits_for_the_tail_and_the_tail_for_it(
    source: Source, settings: Settings, scheduler_dsn: str, tmp_path: Path
) -> None:
    config = write_config(tmp_path, settings)
    caught_up(settings)
    with held(config, points.AFTER_LOAD_BEFORE_COMMIT, tmp_path) as copy:
        source["runs"].delete_one({"_id": "r3"})
        assert not caught_up(settings).applied
        copy.go()
        assert copy.end()[0] == 0
    caught_up(settings)
    assert number(scheduler_dsn, RUNS) == 5
    assert compared(settings) == []


def test_it_begins_where_the_first_copy_began(source: Source, settings: Settings, scheduler_dsn: str) -> None:
    source["runs"].delete_one({"_id": "r0"})
    flow.backfill(settings, Scope())  # reads what is there, and keeps the row of what is not
    assert number(scheduler_dsn, RUNS) == 6
    caught_up(settings)
    assert number(scheduler_dsn, RUNS) == 5


def test_an_idle_source_moves_the_position(source: Source, settings: Settings) -> None:
    caught_up(settings)
    before = state_of_tail(settings)
    source["not in the profile"].insert_one({})
    done = caught_up(settings)
    after = state_of_tail(settings)
    assert before is not None
    assert after is not None
    assert done.events == 0
    assert before.position.is_before(after.position)
    assert before.position.time < after.position.time


def test_until_a_recorded_time_and_until_told_to_stop(source: Source, settings: Settings) -> None:
    with Tail(settings) as tail:
        tail.run("caught-up")
        source["runs"].insert_one(run_of(_id="new"))
        goal = source.client.admin.command("hello")["lastWrite"]["majorityOpTime"]["ts"]
        assert tail.run(goal).position >= goal
        saved = state_of_tail(settings)
        assert saved is not None
        assert saved.position.time >= goal
        stop = threading.Event()
        stop.set()
        assert not tail.run(None, stop).reached


def test_events_that_come_while_a_batch_is_applied_are_one_batch(
    source: Source, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    caught_up(settings)
    take, apply, taken, goals = ChangeStream.take, Applier.apply, threading.Event(), list[Timestamp]()

    def taking(self: ChangeStream, limit: int, seconds: float) -> Any:  # noqa: ANN401 - a batch
        batch = take(self, limit, seconds)
        if goals and batch.position.time >= goals[0]:
            taken.set()
        return batch

    def slow(self: Applier, named: Any) -> Any:  # noqa: ANN401 - its parts
        if not goals:
            changes = [UpdateOne({"_id": f"r{one % 6}"}, {"$inc": {"n": 1}}) for one in range(3_000)]
            source["runs"].bulk_write(changes, ordered=False)
            goals.append(source.client.admin.command("hello")["lastWrite"]["majorityOpTime"]["ts"])
            assert taken.wait(240)
        return apply(self, named)

    monkeypatch.setattr(ChangeStream, "take", taking)
    monkeypatch.setattr(Applier, "apply", slow)
    source["runs"].update_one({"_id": "r1"}, {"$inc": {"n": 1}})
    with Tail(settings) as tail:
        assert tail.run("caught-up").documents == 1
        done = tail.run("caught-up")
        assert (done.events, done.documents) == (3_000, 6)
    assert compared(settings) == []


def test_one_tail_at_a_time(settings: Settings) -> None:
    with Tail(settings) as first, Tail(settings) as second:
        first.run("caught-up")
        with pytest.raises(RefusedError, match="another tail follows the source into this target; end it first"):
            second.run("caught-up")
    caught_up(settings)


def test_what_is_refused(source: Source, settings: Settings, scheduler_dsn: str, tmp_path: Path) -> None:
    other = replace(settings, source=replace(settings.source, default_tenant="another"))
    with pytest.raises(RefusedError, match="the copy was made with other settings"):
        caught_up(other)
    elsewhere = replace(settings, mongo=replace(settings.mongo, database="elsewhere"))
    with pytest.raises(RefusedError, match="this target was copied from rs0/test_"):
        caught_up(elsewhere)
    with psycopg.connect(scheduler_dsn) as connection:
        connection.execute("DELETE FROM migration.plans")
        connection.execute("DELETE FROM migration.tail")
    status, _, said = run("tail", "--until-caught-up", "--config", str(write_config(tmp_path, settings)))
    assert (status, said) == (
        USAGE,
        "migrator: nothing was copied into this target yet: call migrator backfill; tail may run during it\n",
    )
    del source


def test_a_copy_of_some_tenants_is_refused(source: Source, scheduler_dsn: str) -> None:
    settings = settings_for(source, scheduler_dsn)
    source["runs"].insert_one(run_of(_id="of one", tenantId="one"))
    flow.backfill(settings, Scope(tenants=("one",)))
    with pytest.raises(RefusedError, match="only some tenants were copied, and the tail needs all"):
        caught_up(settings)


def test_a_schedule_keeps_its_trigger_whatever_collections_there_are(
    source: Source, scheduler_dsn: str, new_scheduler_dsn: Callable[[], str]
) -> None:
    """A collection of triggers that appears takes no schedule's own one away, and the tail goes on."""
    source["schedules"].insert_many([fresh("schedules", _id=f"s{one}", name=f"s{one}") for one in range(3)])
    settings = copied(source, scheduler_dsn)
    triggers = "SELECT count(*) FROM scheduler.triggers WHERE source = 'stellaops/{}'"
    with Tail(settings) as tail:
        tail.run("caught-up")
        source["triggers"].insert_one(fresh("triggers", _id="another", scheduleId="s1"))
        source["schedules"].insert_one(fresh("schedules", _id="s3", name="s3"))
        tail.run("caught-up")
    assert number(scheduler_dsn, triggers.format("schedules")) == 4
    assert number(scheduler_dsn, triggers.format("triggers")) == 1
    assert compared(settings) == []
    assert_as_a_fresh_copy(settings, source, new_scheduler_dsn)


def test_the_store_s_own_copies_of_rules_are_left_out(
    source: Source, scheduler_dsn: str, new_scheduler_dsn: Callable[[], str]
) -> None:
    """A scheduler process on MongoDB keeps triggers for the rules of schedules: they are no rivals of those."""
    alive = {"deletedAt": ..., "deletedBy": ...}
    source["schedules"].insert_many([fresh("schedules", _id=f"s{one}", name=f"s{one}", **alive) for one in range(3)])
    settings = copied(source, scheduler_dsn)
    caught_up(settings)
    assert create_missing_triggers(source) == 3
    assert create_missing_triggers(source) == 0
    caught_up(settings)
    assert number(scheduler_dsn, "SELECT count(*) FROM migration.quarantine") == 0
    assert number(scheduler_dsn, "SELECT count(*) FROM scheduler.triggers WHERE enabled") == 3
    assert compared(settings) == []
    source["schedules"].update_one({"_id": "s0"}, {"$set": {"cronExpression": "7 7 * * *"}})
    source["schedules"].update_one({"_id": "s1"}, {"$unset": {"cronExpression": 1}})
    source["schedules"].insert_one(fresh("schedules", _id="s3", name="s3", **alive))
    caught_up(settings)
    found = "SELECT count(*) FROM scheduler.triggers WHERE cron_expression = '{}'"
    assert [number(scheduler_dsn, found.format(line)) for line in ("7 7 * * *", "0 2 * * *")] == [1, 2]
    assert create_missing_triggers(source) == 3
    lines = {one["scheduleId"]: one["cronExpression"] for one in source["triggers"].find()}
    assert lines == {"s0": "7 7 * * *", "s2": "0 2 * * *", "s3": "0 2 * * *"}
    caught_up(settings)
    assert compared(settings) == []
    assert_as_a_fresh_copy(settings, source, new_scheduler_dsn)


def test_a_plain_server_is_refused(scheduler_dsn: str, tmp_path: Path) -> None:
    with MongoServer(fast=True, replica_set=None) as server:
        with MongoClient[Any](server.uri) as client:
            client["source"]["runs"].insert_one(run_of(_id="r"))
        settings = Settings(
            source=replace(Settings().source, default_tenant="t"),
            mongo=replace(Settings().mongo, uri=server.uri, database="source"),
            postgres=replace(Settings().postgres, dsn=scheduler_dsn),
        )
        config = write_config(tmp_path, settings)
        assert run("backfill", "--no-position", "--config", str(config))[0] == 0
        status, _, said = run("tail", "--until-caught-up", "--config", str(config))
        assert status == USAGE
        assert said.startswith(
            "migrator: the source is not a replica set, so it has no change stream for changes made during the copy"
        )


def test_a_sharded_cluster_is_refused_in_words() -> None:
    """There is no router to test with: this is what one says of itself (MongoDB manual, hello)."""
    with pytest.raises(RefusedError, match="the source is a mongos, and a sharded cluster cannot be followed"):
        replica_set_in({"isWritablePrimary": True, "msg": "isdbgrid", "topologyVersion": {}, "ok": 1.0})
    assert replica_set_in({"isWritablePrimary": True, "setName": "rs0", "ok": 1.0}) == "rs0"


def test_the_watch_tells_a_frozen_position_from_an_idle_source() -> None:
    clock = [0.0]
    watch = LagMonitor(60.0, lambda: clock[0])
    position = position_at_time(Timestamp(1000, 1))
    watch.observe(position, Timestamp(1000, 1))
    clock[0] = 100.0
    watch.observe(position, Timestamp(1050, 1))  # the source has hardly moved
    watch.observe(position_at_time(Timestamp(1049, 1)), Timestamp(1100, 1))  # the position moves
    clock[0] = 150.0
    watch.observe(position_at_time(Timestamp(1049, 1)), Timestamp(1200, 1))
    assert watch.seconds == 151
    clock[0] = 161.0
    with pytest.raises(PositionFrozenError, match="the position is still at 1970-01-01 00:17:29 UTC for 61 s"):
        watch.observe(position_at_time(Timestamp(1049, 1)), Timestamp(1200, 1))


def test_a_frozen_stream_raises_the_alarm(source: Source, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    caught_up(settings)
    frozen = state_of_tail(settings)
    assert frozen is not None
    take = ChangeStream.take

    def stuck(self: ChangeStream, limit: int, seconds: float) -> Any:  # noqa: ANN401 - a batch
        batch = take(self, limit, seconds)
        source["elsewhere"].insert_one({})
        return replace(batch, position=frozen.position, exhausted=False)

    monkeypatch.setattr(ChangeStream, "take", stuck)
    with Tail(settings, frozen_s=0.5) as tail, pytest.raises(PositionFrozenError):
        tail.run(Timestamp(2**32 - 1, 1))
    found = state_of_tail(settings)
    assert found is not None
    assert found.alarm is not None
    with pytest.raises(PositionLostError, match="the source is at"):
        caught_up(settings)


def test_a_position_that_goes_backwards_raises_the_alarm_and_is_repaired(
    source: Source, settings: Settings, scheduler_dsn: str, tmp_path: Path
) -> None:
    caught_up(settings)
    with psycopg.connect(scheduler_dsn) as connection:
        found = positions.tail_state(connection, "stellaops")
        assert found is not None
        token = str(found.position.value["_data"])
        ahead = Position("resume_after", {"_data": "82FF" + token[4:]})
    source["runs"].delete_one({"_id": "r0"})
    with Tail(settings) as tail:
        session = tail._opened()
        session.position = ahead
        with pytest.raises(PositionBackwardsError, match=r"the source is at .*, before the saved position of"):
            tail.run("caught-up")
    config = str(write_config(tmp_path, settings))
    status, out, _ = run("status", "--config", config)
    assert status == UNVERIFIED
    assert "ALARM of the tail since" in out
    assert "migrator parity --repair apply" in out
    status, out, said = run("parity", "--repair", "apply", "--config", config)
    assert status == 0, said
    assert "cleared the alarm of the tail: the source is at" in out
    assert number(scheduler_dsn, RUNS) == 5
    assert caught_up(settings).applied


@pytest.fixture
def short_memory() -> Iterator[MongoServer]:
    """A MongoDB whose oplog holds a few megabytes."""
    with MongoServer(fast=True, oplog_mb=1, parameters={"minOplogTruncationPoints": "1"}) as server:
        yield server


def oldest_entry(source: Database[Any]) -> Timestamp:
    history = positions.oplog_history(source)
    assert history is not None
    return history.oldest


def test_the_history_is_read_again_if_the_server_drops_an_entry_meanwhile(mongo_database: Database[Any]) -> None:
    admin = mongo_database.client.admin
    for times, is_told in ((3, True), (50, False)):
        data = {"failCommands": ["find"], "errorCode": positions.CAPPED_POSITION_LOST}
        admin.command("configureFailPoint", "failCommand", mode={"times": times}, data=data)
        try:
            assert (positions.oplog_history(mongo_database) is not None) is is_told
        finally:
            admin.command("configureFailPoint", "failCommand", mode="off")


def test_a_lost_position_raises_the_alarm_and_everything_is_compared(
    short_memory: MongoServer, scheduler_dsn: str, tmp_path: Path
) -> None:
    with MongoClient[Any](short_memory.uri) as client:
        source = client["source"]
        source["runs"].insert_many([run_of(_id=f"r{one}") for one in range(6)])
        settings = copied(source, scheduler_dsn)
        caught_up(settings)
        source["runs"].delete_one({"_id": "r0"})
        source["runs"].update_one({"_id": "r1"}, {"$set": {"note": 1}})
        saved = state_of_tail(settings)
        assert saved is not None
        while oldest_entry(source) <= saved.position.time:
            source["filler"].insert_many([{"blob": "x" * 500_000} for _ in range(10)])
        with pytest.raises(PositionLostError, match="the source's history does not reach back to the position"):
            caught_up(settings)
        config = str(write_config(tmp_path, settings))
        status, _, said = run("tail", "--until-caught-up", "--config", config)
        assert status == 0, said
        assert "ALARM: the source's history does not reach back" in said
        assert "tail: repaired 2 documents" in said
        assert number(scheduler_dsn, RUNS) == 5
        assert compared(settings) == []


def test_a_short_oplog_is_a_risk_of_the_plan(
    short_memory: MongoServer, scheduler_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with MongoClient[Any](short_memory.uri) as client:
        source = client["source"]
        source["runs"].insert_many([run_of(_id=f"r{one}") for one in range(6)])
        settings = settings_for(source, scheduler_dsn)
        monkeypatch.setattr(plan, "DOCUMENTS_PER_SECOND", 0.001)
        assert plan.plan_backfill(settings, Scope()).risks == ()
        source["filler"].insert_many([{"blob": "x" * 500_000} for _ in range(10)])
        (risk,) = plan.plan_backfill(settings, Scope()).risks[1:]
        assert risk.startswith("the oplog reaches back ")
        assert risk.endswith(
            " s: changes made meanwhile could be lost to a change stream; enlarge the oplog, or let"
            " migrator tail run during the copy"
        )


def test_statistics_for_people_and_metrics_for_machines(source: Source, settings: Settings, tmp_path: Path) -> None:
    config = str(write_config(tmp_path, settings))
    caught_up(settings)
    source["runs"].insert_one(run_of(_id="new"))
    file = tmp_path / "tail.prom"
    status, out, said = run("tail", "--until-caught-up", "--metrics-file", str(file), "--config", config)
    assert status == 0, said
    assert out.splitlines()[0] == "1 events, 1 documents applied: 1 rows written, 0 removed"
    text = file.read_text()
    assert "# TYPE migrator_tail_events_total counter\n" in text
    assert "\nmigrator_tail_alarm 0.0\n" in text
    assert [path.name for path in tmp_path.iterdir() if "prom" in path.name] == ["tail.prom"]
    status, out, _ = run("status", "--config", config)
    assert status == 0
    assert "tail is not running: at " in out
    status, out, _ = run("status", "--json", "--config", config)
    assert '"follows": false' in out
    status, out, said = run("scheduler", "metrics", "--config", config)
    assert status == 0, said
    assert "\nmigrator_tail_documents_owed 0.0\n" in out
    assert "delay_seconds" not in out  # known to a running tail alone
