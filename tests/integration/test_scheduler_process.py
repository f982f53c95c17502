"""`migrator scheduler run`: real processes on real servers, told to stop, killed, frozen, and several at once."""

import signal
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from migrator.scheduler.client import Scheduler
from migrator.testing.servers.mongo import MongoServer
from tests.conftest import fresh_name
from tests.cron_lines import DEEP
from tests.scheduled_work import lines
from tests.scheduler_processes import PATIENCE, SECOND, Site, stop, until

BACKENDS = ["postgres", "mongo"]
FIRES = 25 if DEEP else 10
"""Slots of each of the four triggers that four processes fire at once."""


@pytest.fixture(params=BACKENDS)
def site(request: pytest.FixtureRequest, tmp_path: Path, mongo_server: MongoServer) -> Iterator[Site]:
    if request.param == "postgres":
        make: Callable[[], str] = request.getfixturevalue("new_scheduler_dsn")
        made = Site(tmp_path, "postgres", f'[postgres]\ndsn = "{make()}"')
    else:
        made = Site(tmp_path, "mongo", f'[mongo]\nuri = "{mongo_server.uri}"\ndatabase = "{fresh_name()}"')
    yield made
    made.close()


@pytest.mark.proves("0-T2.11.5", "3-E2", "3-T6", "2-X4")
def test_what_is_due_is_fired_claimed_run_and_written_down(site: Site) -> None:
    once = site.put("note", {"kind": "one_time", "run_at": site.store.now()})
    failing = site.put("fail-once", max_retries=1, retry_delay_ms=1)
    unknown = site.put("no such handler")
    process = site.start("--until-idle")
    assert process.wait(PATIENCE) == 0, site.log(process)
    (run,) = site.runs(once)
    assert (run.state, run.result) == ("completed", b'{"attempt":1}')
    assert len(lines(site.folder, "done")) == 2
    assert site.states(failing) == ["error", "completed"]
    (waiting,) = site.runs(unknown)
    assert (waiting.state, waiting.fence) == ("queued", None)  # another process may have that handler
    with site.store.session(site.tenant) as session:
        assert [line.message for line in session.execution_logs.of_run(run.id)] == ["attempt 1 began", "completed"]
        summary = session.run_summaries.get(once.id)
        found = session.schedules.get(once.id)
    assert summary is not None
    assert found is not None
    assert found.status == "completed"
    assert site.worker_of(process) == "stopped"
    assert site.leader() is None


@pytest.mark.proves("3-T6")
def test_what_is_paused_waits_for_its_resumption(site: Site) -> None:
    facade = Scheduler(site.store, site.tenant)
    soon = site.store.now() + timedelta(milliseconds=100)
    paused = site.put("note", {"kind": "one_time", "run_at": soon, "next_fire_at": soon, "misfire_policy": "fire_once"})
    facade.pause(paused.id)
    other = site.put("note", {"kind": "one_time", "run_at": soon, "next_fire_at": soon})
    process = site.start()
    until(lambda: site.states(other) == ["completed"])
    assert site.states(paused) == []
    facade.resume(paused.id)
    until(lambda: site.states(paused) == ["completed"])
    assert stop(process) == 0, site.log(process)


@pytest.mark.proves("3-C7", "3-C9", "3-T6")
def test_told_to_stop_it_claims_nothing_more_lets_its_run_end_and_exits_with_0(site: Site) -> None:
    held = site.put("hold")
    process = site.start(concurrency=1, stop_within="1m")
    until(lambda: lines(site.folder, "begun"))
    process.send_signal(signal.SIGTERM)
    waiting = site.put("note")
    (site.folder / "go").touch()
    assert process.wait(PATIENCE) == 0, site.log(process)
    assert (site.states(held), site.states(waiting)) == (["completed"], ["queued"])
    assert site.worker_of(process) == "stopped"
    assert site.leader() is None
    again = site.start("--until-idle")  # and another one begins where it left
    assert again.wait(PATIENCE) == 0
    assert site.states(waiting) == ["completed"]


@pytest.mark.proves("3-C7")
def test_what_does_not_end_in_time_is_given_back_and_told_to_stop(site: Site) -> None:
    held = site.put("hold")
    process = site.start(stop_within="100ms")
    until(lambda: lines(site.folder, "begun"))
    assert stop(process) == 0, site.log(process)
    (run,) = site.runs(held)
    assert (run.state, run.worker_id, run.lease_expires_at) == ("queued", None, None)


@pytest.mark.proves("0-T2.9.3", "3-B12", "4-L4", "4-L5", "3-T4", "3-T6")
def test_runs_of_a_process_that_was_killed_are_reclaimed_once_and_another_one_leads(site: Site) -> None:
    work = site.put("hold-once", max_retries=1, retry_delay_ms=1)
    first = site.start()
    until(lambda: lines(site.folder, "begun"))
    until(lambda: site.led_by(first))
    term = site.leader()
    others = [site.start(), site.start()]
    first.kill()
    until(lambda: site.states(work) == ["error", "completed"])
    until(lambda: any(site.led_by(other) for other in others))
    led = site.leader()
    assert term is not None
    assert led is not None
    assert led[1] > term[1]
    assert [stop(other) for other in others] == [0, 0]
    assert site.states(work) == ["error", "completed"]
    assert len(lines(site.folder, "done")) == 1
    assert site.worker_of(first) == "dead"
    assert (site.runs(work)[0].error or "").startswith("lost:")


@pytest.mark.proves("4-L3", "4-L6", "4-L5", "3-B12")
def test_a_leader_that_is_frozen_past_its_lease_is_replaced_and_writes_nothing_when_it_wakes(site: Site) -> None:
    work = site.put("hold-once", max_retries=1, retry_delay_ms=1)
    first = site.start()
    until(lambda: lines(site.folder, "begun") and site.led_by(first))
    first.send_signal(signal.SIGSTOP)
    second = site.start()
    until(lambda: site.led_by(second))
    until(lambda: site.states(work) == ["error", "completed"])
    before = site.runs(work)
    (site.folder / "go").touch()
    first.send_signal(signal.SIGCONT)
    assert first.wait(PATIENCE) == 16, site.log(first)
    assert "declared dead" in site.log(first)
    assert site.runs(work) == before
    assert site.led_by(second)
    assert stop(second) == 0


@pytest.mark.proves("4-J4", "3-P5", "2-X6", "3-T6")
def test_several_processes_fire_each_slot_once(site: Site) -> None:
    patient = {"lease": "1m", "dead_after": "1m"}  # this machine may be slow, and nobody dies here
    processes = [site.start(concurrency=4, **patient) for _ in range(4)]
    until(lambda: all(site.worker_of(process) for process in processes))
    first = site.store.now()
    every = {"kind": "interval", "interval_ms": 100, "anchor": "fixed_rate", "max_fires": FIRES, "next_fire_at": first}
    many = [site.put("note", every) for _ in range(4)]
    until(lambda: Counter(site.states()) == {"completed": 4 * FIRES})
    assert [stop(process) for process in processes] == [0, 0, 0, 0]
    done = [line.split()[0] for line in lines(site.folder, "done")]
    assert len(done) == len(set(done)) == 4 * FIRES
    for of in many:
        slots = [run.scheduled_at for run in site.runs(of)]
        assert sorted(slots, key=str) == [first + place * timedelta(milliseconds=100) for place in range(FIRES)]
    assert len({run.worker_id for run in site.runs()}) > 1


@pytest.mark.proves("4-S8")
def test_a_scheduler_that_is_not_enabled_refuses_and_claims_nothing(site: Site) -> None:
    work = site.put("note")
    process = site.start("--until-idle", enabled=False)
    assert process.wait(PATIENCE) == 2
    assert "not enabled" in site.log(process)
    assert site.states(work) == ["queued"]
    assert site.store.workers.list() == []


@pytest.mark.proves("4-S5")
def test_the_status_names_the_leader_the_living_and_what_comes_next(site: Site, capsys: Any) -> None:  # noqa: ANN401 - pytest's
    from migrator.scheduler.health import status_lines as said  # noqa: PLC0415 - here only
    from migrator.scheduler.health import status_of  # noqa: PLC0415 - as above

    del capsys
    later = site.store.now() + timedelta(hours=1)
    of = site.put("note", {"kind": "one_time", "run_at": later, "next_fire_at": later})
    gone, alive = site.start(), site.start()
    until(lambda: site.led_by(gone) or site.led_by(alive))
    until(lambda: site.worker_of(gone) and site.worker_of(alive))
    gone.kill()
    until(lambda: site.led_by(alive))
    until(lambda: site.worker_of(gone) == "dead")
    found = status_of(site.store, None, silent_for=30 * SECOND)
    assert found.leader is not None
    assert f":{alive.pid}:" in found.leader.holder
    assert {one.pid: one.alive for one in found.instances} == {gone.pid: False, alive.pid: True}
    assert [(one.tenant, one.fire.schedule_id, one.fire.at) for one in found.next_fires] == [
        (site.tenant, of.id, later)
    ]
    assert found.schedules["scheduled"] == 1
    assert any("1 alive of 2" in line for line in said(found))
