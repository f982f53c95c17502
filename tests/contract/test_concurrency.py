"""Sessions that want the same key at the same moment: one has it, the others are told so, nothing of theirs is kept."""

from collections.abc import Callable
from datetime import timedelta
from threading import Barrier, Thread
from typing import Any
from uuid import uuid4

import pytest

from migrator.errors import ConflictError
from migrator.records import Trigger
from migrator.store.protocols import RunQuery, ScheduleQuery, Session, SessionStore
from tests.contract.rows import NOW, SECOND, changed, entry, graph_job, handler, policy_job, run, schedule, trigger
from tests.marks import proving

SESSIONS = 5


class Race:
    """What all write, and how many rows there are afterwards."""

    def __init__(self, write: Callable[[Session, Trigger], Any], count: Callable[[Session], int]) -> None:
        self.write, self.count = write, count


def runs(session: Session) -> int:
    return len(session.runs.list(RunQuery()).runs)


def together(act: Callable[[int], None]) -> None:
    """Call it in several threads that start at the same moment."""
    barrier = Barrier(SESSIONS)

    def begin(place: int) -> None:
        barrier.wait()
        act(place)

    threads = [Thread(target=begin, args=(place,)) for place in range(SESSIONS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


RACES: dict[str, Race] = {
    "0-T2.3.1 the name of a schedule": Race(
        lambda s, _: s.schedules.upsert(schedule(s.tenant, name="same")),
        lambda s: s.schedules.count(ScheduleQuery(name_contains="same")),
    ),
    "0-T2.4.1 the slot of a trigger": Race(
        lambda s, of: s.runs.create(run(s.tenant, trigger_id=of.id, scheduled_at=NOW)),
        runs,
    ),
    "0-T2.4.1 the slot of a trigger, with its schedule": Race(
        lambda s, of: s.runs.create(
            run(s.tenant, schedule_id=of.schedule_id, trigger_id=of.id, scheduled_at=NOW, attempt=1)
        ),
        runs,
    ),
    "0-T2.4.1 a dedupe key": Race(
        lambda s, of: s.runs.create(run(s.tenant, trigger_id=of.id, dedupe_key="same")),
        runs,
    ),
    "0-T2.6.1 the run id of a policy job": Race(
        lambda s, _: s.policy_jobs.insert(policy_job(s.tenant, run_id="same")),
        lambda s: len(s.policy_jobs.list(None, 9)),
    ),
    "the name of a handler": Race(
        lambda s, _: s.handlers.upsert(handler(s.tenant, name="same", is_system=True, queue=uuid4().hex)),
        lambda s: len([row for row in s.handlers.list() if row.name == "same"]),
    ),
}


@pytest.mark.parametrize("key", proving(RACES))
def test_of_several_sessions_one_has_the_key(key: str, store: SessionStore, tenant: str) -> None:
    of = schedule(tenant)
    cause, race = trigger(of), RACES[key]
    with store.session(tenant, now=NOW) as session:
        session.schedules.upsert(of)
        session.triggers.upsert(cause)
    told: list[bool] = []

    def act(_: int) -> None:
        try:
            with store.session(tenant, now=NOW) as session:
                session.audit.append(entry(tenant))
                race.write(session, cause)
        except ConflictError:
            told.append(False)
        else:
            told.append(True)

    together(act)
    assert sorted(told) == [False] * (SESSIONS - 1) + [True]
    with store.session(tenant, now=NOW) as session:
        assert race.count(session) == 1
        assert len(session.audit.list(9)) == 1  # nothing else of the others is kept


def test_of_several_sessions_one_has_the_id_of_a_graph_job(store: SessionStore, tenant: str) -> None:
    job, told = graph_job(tenant), list[bool]()

    def act(place: int) -> None:
        try:
            with store.session(tenant, now=NOW) as session:
                session.graph_jobs.insert(changed(job, updated_at=NOW + SECOND * place))
        except ConflictError:
            told.append(False)
        else:
            told.append(True)

    together(act)
    assert sum(told) == 1
    with store.session(tenant, now=NOW) as session:
        assert len(session.graph_jobs.list("build", None, 9)) == 1


@pytest.mark.proves("0-T2.3.1", "1-G3")
def test_of_several_changes_of_a_status_one_is_made(store: SessionStore, tenant: str) -> None:
    one, told = schedule(tenant), list[int]()
    with store.session(tenant, now=NOW) as session:
        session.schedules.upsert(one)

    def act(place: int) -> None:
        try:
            with store.session(tenant, now=NOW) as session:
                made = session.schedules.change_status(one.id, "scheduled", "paused", updated_by=f"{place}")
        except ConflictError:
            return
        if made is not None:
            told.append(place)

    together(act)
    with store.session(tenant, now=NOW) as session:
        found = session.schedules.get(one.id)
    assert found is not None
    assert [found.updated_by] == [f"{place}" for place in told]


@pytest.mark.proves("0-T2.3.2")
def test_of_several_deletions_one_is_told_true(store: SessionStore, tenant: str) -> None:
    one, told = schedule(tenant), list[bool]()
    with store.session(tenant, now=NOW) as session:
        session.schedules.upsert(one)

    def act(_: int) -> None:
        try:
            with store.session(tenant, now=NOW) as session:
                deleted = session.schedules.soft_delete(one.id, "me")
        except ConflictError:
            return
        told.append(deleted)

    together(act)
    assert sum(told) == 1


@pytest.mark.proves("0-T2.4.2")
def test_of_several_cancellations_one_is_made(store: SessionStore, tenant: str) -> None:
    one, told = run(tenant), list[str | None]()
    with store.session(tenant, now=NOW) as session:
        session.runs.create(one)

    def act(place: int) -> None:
        try:
            with store.session(tenant, now=NOW + timedelta(seconds=1)) as session:
                made = session.runs.cancel(one.id, f"{place}")
        except ConflictError:
            return
        if made is not None:
            told.append(made.error)

    together(act)
    with store.session(tenant, now=NOW) as session:
        found = session.runs.get(one.id)
    assert found is not None
    assert told == [found.error]
