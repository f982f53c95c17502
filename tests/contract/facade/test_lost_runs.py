"""Runs that an application claimed itself, and on which nobody works any more: listed, ended, and retried."""

from datetime import timedelta
from typing import cast

import pytest

from migrator.errors import UsageError
from migrator.scheduler.client import Scheduler
from migrator.scheduler.leadership import Leadership
from migrator.scheduler.sweeper import Sweeper
from migrator.scheduler.worker import EVERYTHING
from migrator.store.queue import Claim
from migrator.verify.behaviour.harness import Harness
from tests.contract.rows import NOW, fresh

LEASE = timedelta(minutes=5)
LATER = NOW + LEASE + timedelta(seconds=1)


def claimed(harness: Harness, worker: str, lease: timedelta = LEASE, **request: object) -> Claim:
    job = harness.recurring(**{"max_retries": 1, "retry_delay": timedelta(0), "timeout": timedelta(hours=9)} | request)
    harness.facade.trigger_now(job.id, now=NOW)
    [claim] = harness.facade.claim(worker, lease=lease, now=NOW)
    return claim


def ids(claims: object) -> list[object]:
    return [claim.run.id for claim in cast("list[Claim]", claims)]


@pytest.mark.proves("6-U12")
def test_the_lost_runs_of_some_executors_are_listed_and_ended_and_those_of_others_stay(harness: Harness) -> None:
    facade, stranger = harness.facade, harness.facade_of(harness.other)
    first, other, living = claimed(harness, "one"), claimed(harness, "two"), claimed(harness, "one", LEASE * 3)
    assert facade.lost(now=NOW) == facade.lost(["one"], now=NOW) == []
    assert ids(facade.lost(now=LATER)) == sorted([first.run.id, other.run.id])
    assert ids(facade.lost(["one"], now=LATER)) == [first.run.id]
    assert ids(facade.lost(limit=1, now=LATER)) == [min(first.run.id, other.run.id)]
    assert stranger.lost(now=LATER) == stranger.rescue(["one", "two"], now=LATER) == []
    [rescued] = facade.rescue(["one"], now=LATER)
    assert (rescued.run.id, rescued.run.worker_id) == (first.run.id, "one")
    ended = facade.get_execution(first.run.id, now=LATER)
    assert ended is not None
    assert (ended.run.state, ended.run.error) == ("error", "lost: its worker did not renew the lease")
    assert "the lease" in (ended.logs[-1].message or "")
    assert facade.rescue(["one"], now=LATER) == []
    assert not facade.finish(first, now=LATER)
    assert ids(facade.lost(now=LATER)) == [other.run.id]
    assert facade.heartbeat(living.run.id, now=LATER)
    [again] = facade.claim("one", now=LATER)
    assert (again.run.retry_of, again.run.attempt) == (first.run.id, 2)


@pytest.mark.proves("6-U12")
def test_a_run_whose_lease_is_renewed_in_between_goes_on(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    claim = claimed(harness, "one")
    lost = harness.facade.lost(["one"], now=LATER)
    assert ids(lost) == [claim.run.id]
    assert harness.facade.heartbeat(claim.run.id, now=LATER)
    monkeypatch.setattr(Scheduler, "lost", lambda *_, **__: lost)
    assert harness.facade.rescue(["one"], now=LATER) == []
    assert harness.facade.finish(claim, now=LATER)


@pytest.mark.proves("6-U12")
def test_the_leader_ends_the_lost_runs_of_executors_that_it_was_told_of(harness: Harness) -> None:
    told, untold = claimed(harness, "one"), claimed(harness, "two")
    leadership = Leadership(harness.store, ttl=timedelta(hours=2), holder="me", tenant=fresh(), clock=lambda: LATER)
    assert leadership.acquire() is not None
    sweeper = Sweeper(
        harness.store,
        leadership,
        dead_after=timedelta(days=9000),
        scope=EVERYTHING,
        tenants=[harness.tenant],
        executors=["one"],
        clock=lambda: LATER,
    )
    assert sweeper.reclaim() == (1, 1)
    assert ids(harness.facade.lost(now=LATER)) == [untold.run.id]
    assert not harness.facade.finish(told, now=LATER)
    leadership.release()


def test_one_text_is_not_several_executors(harness: Harness) -> None:
    for call in (harness.facade.lost, harness.facade.rescue):
        with pytest.raises(UsageError, match="workers must be a sequence"):
            call("one")
