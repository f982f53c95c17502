"""Rows of two tenants with equal ids in every table: what is done to one tenant's rows leaves the other's as they are.

The rows are planted as the owner of the tables, so also where the service role may not write (``workers``, ``locks``).
"""

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from migrator.connections.postgres import open_target
from migrator.cutover import overdue
from migrator.records import ALL, PolicyJob, WorkerRecord
from migrator.scheduler import firing
from migrator.store.postgres.store import PostgresStore
from migrator.store.protocols import ScheduleQuery
from migrator.store.queue import Finish
from tests.equal_ids import OTHER, plant
from tests.schema_rows import connect, insert
from tests.store_postgres import NOW, opened, policy_job, run, schedule, settings, trigger

SECOND = timedelta(seconds=1)
LATER = NOW + timedelta(minutes=1)
OWN = "a"
Rows = dict[str, list[tuple[Any, ...]]]


class Scene:
    """A tenant's rows in every table, some of ``*``, and those of another tenant with the same ids."""

    def __init__(self, dsn: str, store: PostgresStore) -> None:
        self.dsn, self.store = dsn, store
        with store.session(OWN, now=NOW) as session:
            self.schedule = session.schedules.upsert(schedule(OWN, name="nightly", handler_name="mail"))
            self.trigger = session.triggers.upsert(trigger(self.schedule))
            self.held = session.runs.create(run(OWN, schedule_id=self.schedule.id))
            self.ended = session.runs.create(run(OWN, schedule_id=self.schedule.id, state="queued"))
            session.policy_jobs.insert(policy_job(OWN))
        self.worker = uuid4()
        store.workers.register(WorkerRecord(id=self.worker, tenant_id="*", kind="worker", status="active"), LATER)
        self.leader = store.locks.acquire("*", "leader", ttl=timedelta(hours=1), holder="the leader", now=NOW)
        assert self.leader is not None
        with connect(dsn) as connection:
            least: dict[str, dict[str, Any]] = {
                "handlers": {"name": "mail"},
                "execution_logs": {"run_id": self.held.id},
                "impact_snapshots": {"run_id": self.held.id},
                "audit": {},
                "graph_job_events": {},
                "locks": {},
            }
            for table, values in least.items():
                insert(connection, table, OWN, **values)
            connection.execute("UPDATE scheduler.runs SET state = 'completed' WHERE id = %s", (self.ended.id,))
        self.claims = store.queue.claim(str(self.worker), 10, timedelta(minutes=5), NOW)
        assert [claim.run.id for claim in self.claims] == [self.held.id]
        with connect(dsn) as connection:
            self.planted = plant(connection)
            connection.execute(  # with the id of a process, and long silent
                "INSERT INTO scheduler.workers (id, tenant_id, kind, status, last_heartbeat_at)"
                " VALUES (%s, %s, 'worker', 'active', '2020-01-01Z')",
                (self.worker, OTHER),
            )
            self.planted[WorkerRecord.table] += 1
            connection.execute(
                "INSERT INTO scheduler.locks (id, tenant_id, key, lock_id)"
                " SELECT id, %s, %s, lock_id FROM scheduler.locks WHERE key = '*/leader'",
                (OTHER, f"{OTHER}/leader"),
            )

    def rows(self, tenant: str) -> Rows:
        with connect(self.dsn) as connection:
            return {
                record.table: connection.execute(
                    f"SELECT * FROM scheduler.{record.table} WHERE tenant_id = %s ORDER BY id", (tenant,)
                ).fetchall()
                for record in ALL
            }


@pytest.fixture
def scene(scheduler_dsn: str) -> Iterator[Scene]:
    with opened(scheduler_dsn) as store:
        yield Scene(scheduler_dsn, store)


def test_every_table_has_rows_with_equal_ids(scene: Scene) -> None:
    assert scene.planted.keys() == {record.table for record in ALL}
    assert [table for table, count in scene.planted.items() if count == 0] == []


def _lease(scene: Scene) -> object:
    with scene.store.session(OWN, now=NOW) as session:
        leased: list[PolicyJob] = list(session.policy_jobs.lease("me", 10, SECOND))
    assert [job.tenant_id for job in leased] == [OWN]
    return leased


def _in_session(act: Callable[[Any], object]) -> Callable[[Scene], object]:
    def perform(scene: Scene) -> object:
        with scene.store.session(OWN, now=NOW) as session:
            return act((session, scene))

    return perform


def _handlers(scene: Scene) -> object:
    with scene.store.session(OWN, now=NOW) as session:
        return session.handlers.delete("mail")


def _retention(scene: Scene) -> object:
    with scene.store.session(OWN, now=NOW) as session:
        return session.runs.remove([scene.ended.id])


def _finish(scene: Scene) -> object:
    (claim,) = scene.claims
    end = Finish(
        run_id=claim.run.id,
        tenant_id=OWN,
        worker_id=claim.run.worker_id or "",
        fence=claim.run.fence or 0,
        state="completed",
    )
    return scene.store.queue.finish([end], LATER)


OF_ONE_TENANT: dict[str, Callable[[Scene], object]] = {
    "heartbeat of runs": lambda scene: scene.store.queue.heartbeat(scene.claims, timedelta(hours=1), LATER),
    "finish": _finish,
    "release": lambda scene: scene.store.queue.release(scene.claims, LATER),
    "lease of policy jobs": _lease,
    "handler deleted": _handlers,
    "runs removed": _retention,
    "soft delete": _in_session(lambda at: at[0].schedules.soft_delete(at[1].schedule.id, "me")),
    "cancel": _in_session(lambda at: at[0].runs.cancel(at[1].held.id, "no more")),
    "summary": _in_session(lambda at: at[0].run_summaries.recompute(at[1].schedule.id)),
    "triggers deleted": _in_session(lambda at: at[0].triggers.delete_of_schedule(at[1].schedule.id)),
    "trigger moved": _in_session(lambda at: at[0].triggers.move(at[1].trigger.id, at[1].trigger.next_fire_at, LATER)),
    "fire of one tenant": lambda scene: scene.store.queue.fire_due(firing.plan, 10, NOW, [OWN]),
    "heartbeat of a worker": lambda scene: scene.store.workers.heartbeat(scene.worker, LATER + SECOND),
    "worker stopped": lambda scene: scene.store.workers.stop(scene.worker, LATER),
    "lock renewed": lambda scene: scene.leader and scene.leader.renew(timedelta(hours=2), now=LATER),
    "lock released": lambda scene: scene.leader and scene.leader.release(now=LATER),
    "purge": lambda scene: scene.store.purge(OWN),
}
"""What is done to rows of a tenant, or to a process: each must do something."""


@pytest.mark.proves("6-N5")
@pytest.mark.parametrize("name", OF_ONE_TENANT)
def test_what_is_done_to_a_tenants_rows_leaves_those_of_another(name: str, scene: Scene) -> None:
    before, own = scene.rows(OTHER), (scene.rows(OWN), scene.rows("*"))
    assert OF_ONE_TENANT[name](scene)
    assert scene.rows(OTHER) == before
    assert (scene.rows(OWN), scene.rows("*")) != own


def test_a_silent_row_of_another_tenant_declares_no_worker_dead(scene: Scene) -> None:
    before = (scene.rows(OWN), scene.rows("*"), scene.rows(OTHER))
    assert scene.store.workers.declare_dead(timedelta(seconds=30), LATER + SECOND) == []
    assert (scene.rows(OWN), scene.rows("*"), scene.rows(OTHER)) == before
    assert [row.tenant_id for row in scene.store.workers.list()] == ["*"]


def test_a_tenants_lock_with_the_id_of_the_leaders_leaves_that(scene: Scene) -> None:
    before = scene.rows("*")
    handle = scene.store.locks.acquire(OTHER, "leader", ttl=SECOND, now=NOW)
    assert handle is not None
    assert scene.rows("*") == before
    assert handle.release(now=NOW)
    assert scene.rows("*") == before


def test_triggers_with_equal_ids_fire_each_for_its_tenant(scene: Scene) -> None:
    fired = scene.store.queue.fire_due(firing.plan, 10, NOW)
    assert sorted(one.tenant_id for one in fired) == [OWN, OTHER]
    assert len({one.id for one in fired}) == 1


def test_a_schedule_of_another_tenant_makes_no_trigger_late_twice(scene: Scene) -> None:
    with connect(scene.dsn) as connection:
        connection.execute("UPDATE scheduler.schedules SET enabled = false WHERE tenant_id = %s", (OTHER,))
    with open_target(settings(scene.dsn), autocommit=True) as target:
        assert overdue.count_late(target) == 1


def test_a_global_schedule_with_the_same_id_is_listed_as_itself(scene: Scene) -> None:
    with connect(scene.dsn) as connection:
        connection.execute(
            "INSERT INTO scheduler.schedules (id, tenant_id, name, status, created_at)"
            " VALUES (%s, '*', 'nightly for all', 'scheduled', '2020-01-01Z')",
            (scene.schedule.id,),
        )
    with scene.store.session(OWN, now=NOW) as session:
        listed = session.schedules.list(ScheduleQuery(name_contains="nightly", include_global=True))
    assert sorted((row.tenant_id, row.name) for row in listed) == [("*", "nightly for all"), (OWN, "nightly")]


def test_of_two_expired_runs_with_one_id_only_the_one_that_ended_counts(scene: Scene) -> None:
    over = NOW + timedelta(hours=1)
    found = scene.store.queue.expired(10, over)
    assert sorted(claim.run.tenant_id for claim in found) == [OWN, OTHER]
    (own,) = [claim for claim in found if claim.run.tenant_id == OWN]
    end = Finish(
        run_id=own.run.id, tenant_id=OWN, worker_id=own.run.worker_id or "", fence=own.run.fence or 0, state="error"
    )
    before = scene.rows(OTHER)
    assert scene.store.queue.expire([end], over) == [own.run.id]
    assert scene.rows(OTHER) == before


def test_a_row_that_is_found_by_its_id_is_the_tenants_own(scene: Scene) -> None:
    identity: UUID = scene.schedule.id
    with scene.store.session(OTHER, now=NOW) as session:
        stored = session.schedules.get(identity)
        assert stored is not None
        assert stored.tenant_id == OTHER
        assert [row.tenant_id for row in session.triggers.of_schedule(identity)] == [OTHER]
        assert {row.tenant_id for row in session.runs.of_schedule(identity, 10)} == {OTHER}
