"""Triggers that are late at the switch, on real rows: told before anything happens, and no stampede."""

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import psycopg
import pytest
from bson.datetime_ms import DatetimeMS
from bson.objectid import ObjectId

from migrator.config import Settings, load_settings
from migrator.cutover import overdue
from migrator.cutover.plan import cutover_plan
from migrator.records import Schedule, Trigger
from migrator.scheduler import firing
from migrator.scheduler.firing import MAX_SLOTS
from migrator.store import open_scheduler_store
from migrator.store.postgres.store import PostgresStore
from migrator.store.queue import Fire
from migrator.testing.servers.mongo import MongoServer
from tests.conftest import fresh_name
from tests.copying import run
from tests.cutting_over import Scene, gate, red, scene
from tests.store_postgres import schedule, settings, trigger

MINUTE = 60_000
LATE = 1_000
"""Slots that were missed."""


@pytest.fixture
def store(scheduler_dsn: str) -> Iterator[PostgresStore]:
    opened = PostgresStore(settings(scheduler_dsn))
    yield opened
    opened.close()


def planted(store: PostgresStore, **values: Any) -> None:  # noqa: ANN401 - columns have all types
    """Make a schedule whose trigger has missed a thousand slots, and by itself would catch up with all of them."""
    one = schedule(enabled=True)
    due = store.now() - timedelta(minutes=LATE, seconds=30)  # so that none of them is on time, after a second of grace
    least: dict[str, Any] = {"next_fire_at": due, "misfire_policy": "fire_all", "misfire_grace_ms": 1_000}
    least["enabled"] = True
    with store.session("a") as session:
        session.schedules.upsert(one)
        session.triggers.upsert(trigger(one, **least | values))


def settled(store: PostgresStore, policy: str) -> int:
    with psycopg.connect(store.settings.postgres.dsn or "", autocommit=True) as target:
        return overdue.fire_late(store.settings, target, policy)


def rows(store: PostgresStore, query: str) -> list[Any]:
    with psycopg.connect(store.settings.postgres.dsn or "") as target:
        return target.execute(query).fetchall()


def states(store: PostgresStore) -> Counter[str]:
    return Counter(state for (state,) in rows(store, "SELECT state FROM scheduler.runs"))


@pytest.mark.parametrize(("policy", "state"), [("fire_once", "queued"), ("skip", "skipped")])
def test_a_thousand_missed_slots_make_one_run_whatever_the_trigger_says(
    policy: str, state: str, store: PostgresStore
) -> None:
    planted(store)
    planted(store, misfire_policy=None)
    planted(store, next_fire_at=store.now() + timedelta(hours=1))
    planted(store, enabled=False)
    before = store.now()
    assert settled(store, policy) == 2
    assert states(store) == {state: 2}
    assert settled(store, policy) == 0
    nexts = rows(store, "SELECT next_fire_at, misfire_policy, skip_if_overdue FROM scheduler.triggers WHERE enabled")
    assert all(at > before for at, _, _ in nexts)
    assert sorted(str(kept) for _, kept, _ in nexts) == ["None", "fire_all", "fire_all"]  # its own policy stays
    assert not any(skips for _, _, skips in nexts)
    store.queue.fire_due(firing.plan, 100)
    assert states(store) == {state: 2}  # and nothing is left for the first tick


def test_kept_they_go_by_their_own_policy(store: PostgresStore) -> None:
    planted(store)
    planted(store, misfire_policy="fire_once")
    planted(store, misfire_policy="skip")
    assert settled(store, "keep") == 3
    assert states(store) == {}
    store.queue.fire_due(firing.plan, 100)
    assert states(store) == {
        "queued": MAX_SLOTS + 1,
        "skipped": 2,
    }  # the second says what the first passed over


def test_more_than_are_taken_at_a_time(store: PostgresStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overdue, "BATCH", 2)
    for _ in range(5):
        planted(store)
    assert settled(store, "fire_once") == 5
    assert states(store) == {"queued": 5}


def test_what_cannot_be_moved_does_not_hold_up_the_switch(store: PostgresStore) -> None:
    """A line that cannot be evaluated any more makes one run, and the trigger is disabled: it says so."""
    planted(store)
    planted(store)
    with psycopg.connect(store.settings.postgres.dsn or "") as target:
        target.execute(
            "UPDATE scheduler.triggers SET kind = 'cron', cron_expression = 'no cron', cron_dialect = 'unix',"
            " interval_ms = NULL, anchor = NULL, timezone = 'UTC' WHERE id = (SELECT min(id::text)::uuid FROM"
            " scheduler.triggers)"
        )
    assert settled(store, "fire_once") == 2
    assert states(store)["queued"] == 2
    assert rows(store, "SELECT count(*) FROM scheduler.triggers WHERE enabled") == [(1,)]


@pytest.mark.parametrize("policy", ["fire_once", "skip"])
def test_a_next_fire_at_the_first_instant_and_a_grace_that_is_longer_than_time(
    policy: str, store: PostgresStore
) -> None:
    planted(store, next_fire_at=datetime.min.replace(tzinfo=UTC))
    planted(store, next_fire_at=datetime.min.replace(tzinfo=UTC), start_at=datetime.min.replace(tzinfo=UTC))
    planted(store, misfire_grace_ms=2**63 - 1)
    planted(store)
    assert settled(store, policy) == 3
    assert sum(states(store).values()) == 3


def test_what_is_said_of_them() -> None:
    assert overdue.describe(0, "keep") == "no trigger is overdue"
    assert overdue.describe(1_200, "skip").startswith("1,200 triggers are overdue; each continues with its next slot")


def test_the_number_is_printed_before_anything_happens_and_the_switch_does_as_was_said(
    auth_server: MongoServer, scheduler_dsn: str, tmp_path: Path
) -> None:
    with scene(auth_server, fresh_name(), scheduler_dsn, tmp_path) as ready:
        late_in_mongo(ready)
        ready.ready()
        status, out, said = run("cutover", "plan", "--config", str(ready.config))
        assert status == 0, said
        assert "\n2 triggers are overdue; each makes one run for all missed slots\n" in out
        keeping = with_policy(ready.settings, "keep")
        assert cutover_plan(keeping, ready.config, quarantined=0).overdue_words.endswith("its own misfire policy")
        with psycopg.connect(ready.dsn) as target:
            before = target.execute("SELECT count(*) FROM scheduler.runs").fetchone()
        assert ready.switch().overdue == 2
        with psycopg.connect(ready.dsn) as target:
            after = target.execute("SELECT count(*) FROM scheduler.runs").fetchone()
        assert before is not None
        assert after == (before[0] + 2,)
        store = open_scheduler_store(load_settings(str(ready.config)))
        store.queue.fire_due(firing.plan, 100)
        store.close()
        with psycopg.connect(ready.dsn) as target:
            assert target.execute("SELECT count(*) FROM scheduler.runs").fetchone() == after


def late_in_mongo(ready: Scene) -> None:
    """Let the scheduler on MongoDB have two triggers that were not looked at for a thousand minutes."""
    store = open_scheduler_store(ready.settings)
    due = datetime.now(UTC).replace(microsecond=0) - timedelta(minutes=LATE)
    with store.session("a") as session:
        for _ in range(2):
            one = session.schedules.upsert(schedule(enabled=True))
            session.triggers.upsert(
                trigger(one, enabled=True, next_fire_at=due, misfire_policy="fire_all", interval_ms=MINUTE)
            )
    store.close()


def with_policy(found: Settings, policy: str) -> Settings:
    return msgspec.structs.replace(found, cutover=msgspec.structs.replace(found.cutover, overdue=policy))


def test_a_document_that_states_the_first_instant_does_not_trap_the_cutover(
    auth_server: MongoServer, scheduler_dsn: str, tmp_path: Path
) -> None:
    """What .NET writes for "none" is a date that every part of the cutover computes with."""
    with scene(auth_server, fresh_name(), scheduler_dsn, tmp_path, "dotnet", "agenda") as ready:
        jobs = ready.database["agendaJobs"]
        shape = jobs.find_one({"repeatInterval": {"$type": "string"}, "disabled": {"$ne": True}})
        assert shape is not None
        for number, zone in enumerate(["UTC", "Pacific/Kiritimati", "Pacific/Niue"]):
            named = {"_id": ObjectId(), "name": f"none {number}", "repeatInterval": "0 3 * * *", "repeatTimezone": zone}
            jobs.insert_one({**shape, **named, "nextRunAt": DatetimeMS(-62135596800000)})
        ready.ready()
        done = ready.switch()
        assert (done.cutover.state, done.overdue) == ("cut-over", 3)
        with psycopg.connect(ready.dsn) as target:
            found = target.execute(
                "SELECT count(*), bool_and(t.next_fire_at > now()), bool_and(t.last_fire_at > now() - '2 d'::interval)"
                " FROM scheduler.triggers AS t JOIN scheduler.schedules AS s ON s.id = t.schedule_id"
                " AND s.tenant_id = t.tenant_id WHERE t.enabled AND s.name LIKE 'none %'"
            ).fetchone()
        assert found == (3, True, True)


def test_a_fire_that_cannot_be_computed_is_named_before_the_fence(
    auth_server: MongoServer, scheduler_dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with scene(auth_server, fresh_name(), scheduler_dsn, tmp_path, "traps") as ready:
        late_in_mongo(ready)
        ready.ready()
        passed, words = gate(ready.settings, ready.conditions, "overdue triggers")
        assert (passed, words) == (True, "2 triggers are overdue; each makes one run for all missed slots")
        real = firing.plan

        def fails(of: Schedule, cause: Trigger, live: int, now: datetime) -> Fire:
            if cause.id == min(ids):
                raise OverflowError("date value out of range")
            return real(of, cause, live, now)

        with psycopg.connect(ready.dsn) as target:
            ids = [
                identity for (identity,) in target.execute("SELECT id FROM scheduler.triggers WHERE tenant_id = 'a'")
            ]
        monkeypatch.setattr(firing, "plan", fails)
        words = red(ready.settings, ready.conditions)["overdue triggers"]
        assert words.startswith(
            f"1 overdue triggers have a next fire that cannot be computed ({min(ids)} of tenant a): "
        )
