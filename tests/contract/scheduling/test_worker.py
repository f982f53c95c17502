"""From a due trigger to a run that ended: on every backend, with outcomes that come late, twice, or never."""

from datetime import timedelta
from typing import Any, NoReturn, cast
from uuid import uuid4

import pytest

from migrator.errors import BackendMovedError, NotFoundError
from migrator.records import Run
from migrator.scheduler.client import Scheduler
from migrator.scheduler.completion import Outcome, OutcomeState
from migrator.scheduler.executor import InProcessExecutor
from migrator.scheduler.handlers import ExternalSystem, Registry, Request
from migrator.store.protocols import Store
from migrator.values import jsonb
from migrator.verify.behaviour.harness import ScriptedExecutor
from tests.contract.rows import NOW, SECOND, changed, run, schedule, trigger
from tests.contract.scheduling.process import LEASE, Process, moment
from tests.contract.working import MINUTE, put, run_of, schedule_of

RETRYING: dict[str, Any] = {"max_retries": 2, "retry_delay_ms": 60_000, "retry_strategy": "exponential"}


@pytest.fixture
def executor() -> ScriptedExecutor:
    return ScriptedExecutor(lambda _claim: None)


@pytest.fixture
def process(at_work: Store, tenant: str, executor: ScriptedExecutor) -> Process:
    return Process(at_work, tenant, executor)


@pytest.mark.proves("0-T2.11.5", "2-X3", "2-X10", "2-X12", "4-C3")
def test_a_due_trigger_ends_as_a_run_with_log_summary_and_events(
    process: Process, executor: ScriptedExecutor, at_work: Store, tenant: str
) -> None:
    of = schedule(tenant, handler_name="mail")
    put(at_work, of, trigger(of))
    process.turn()
    (row,) = process.all_runs()
    assert (row.state, row.started_at, row.worker_id) == ("running", NOW, str(process.worker_id))
    process.clock.advance(3 * SECOND)
    executor.listener(executor.taken[0]).said(executor.taken[0], "info", "half way")
    executor.end(Outcome(state="completed", result=b'{"sent":3}'))
    process.turn()
    (row,) = process.all_runs()
    assert (row.state, row.finished_at, row.duration_ms) == ("completed", moment(3), 3000)
    assert jsonb.decode(row.result or b"null") == {"sent": 3}
    lines = process.logs(row.id)
    assert [line.message for line in lines] == ["attempt 1 began", "half way", "completed"]
    assert [line.logged_at for line in lines] == [NOW, moment(3), moment(3)]
    assert all(jsonb.decode(line.context or b"{}")["traceId"] == row.trace_id for line in lines)
    with at_work.session(tenant, now=process.clock.now) as session:
        summary = session.run_summaries.get(of.id)
    assert summary is not None
    assert jsonb.decode(summary.counters or b"{}")["completed"] == 1
    assert process.names() == ["dispatch", "execution.success"]
    assert [entry.action.removeprefix("scheduler:job.") for entry in process.trail()] == process.names()
    assert {entry.correlation_id for entry in process.trail()} == {row.trace_id}


@pytest.mark.proves("2-X1", "4-C5", "2-X10", "2-X12", "3-C3")
def test_a_run_that_fails_is_repeated_when_its_delay_is_over_and_no_more_often_than_allowed(
    process: Process, executor: ScriptedExecutor, at_work: Store, tenant: str
) -> None:
    of = schedule(tenant, handler_name="mail", **RETRYING)
    once = trigger(of, kind="one_time", run_at=NOW)
    put(at_work, of, once)
    process.turn()
    executor.end(Outcome(state="error", error="no route", error_detail="Traceback …"))
    process.after(SECOND)
    assert process.states() == ["error", "queued"]
    first, retry = process.all_runs()
    assert (first.error, first.error_detail) == ("no route", "Traceback …")
    assert (retry.retry_of, retry.attempt, retry.cause) == (first.id, 2, "retry")
    assert (retry.scheduled_at, retry.available_at) == (first.scheduled_at, moment(61))
    assert (retry.trace_id, retry.parent_span_id) == (first.trace_id, first.span_id)
    assert retry.span_id != first.span_id
    process.after(59 * SECOND)
    assert len(executor.taken) == 1
    process.after(SECOND)
    assert len(executor.taken) == 2
    executor.end(Outcome(state="error", error="no route"))
    process.after(SECOND)
    assert process.all_runs()[-1].available_at == process.clock.now + 2 * MINUTE
    process.after(2 * MINUTE)
    executor.end(Outcome(state="error", error="no route"))
    process.after(MINUTE)
    process.after(timedelta(days=1))
    assert process.states() == ["error", "error", "error"]
    assert [run.attempt for run in process.all_runs()] == [1, 2, 3]
    assert schedule_of(at_work, of).status == "failed"
    again = ["dispatch", "execution.failed", "execution.retry_scheduled"]
    assert process.names() == [*again, *again, "dispatch", "execution.failed"]


@pytest.mark.proves("2-X1")
def test_when_the_last_retry_failed_a_recurring_schedule_goes_on_where_its_source_says_nothing_of_it(
    process: Process, executor: ScriptedExecutor, at_work: Store, tenant: str
) -> None:
    of = schedule(tenant, on_exhausted=None)
    put(at_work, of, trigger(of))
    for _ in range(3):
        process.turn()
        if executor.taken and process.worker.active:
            executor.end(Outcome(state="error", error="broken"))
        process.after(SECOND)
        process.clock.advance(MINUTE - SECOND)
    assert schedule_of(at_work, of).status == "scheduled"
    assert process.states() == ["error"] * 3


@pytest.mark.proves("2-X2", "4-C4")
def test_a_run_that_takes_too_long_is_timed_out_told_to_stop_and_its_late_result_ignored(
    process: Process, executor: ScriptedExecutor, at_work: Store, tenant: str
) -> None:
    of = schedule(tenant, timeout_ms=30_000)
    (row,) = put(at_work, of, run(tenant, schedule_id=of.id, available_at=NOW))[1:]
    process.turn()
    process.after(29 * SECOND)
    assert process.states() == ["running"]
    process.after(SECOND)
    found = run_of(at_work, tenant, row.id)
    assert (found.state, found.error) == ("timeout", "timeout: ran for longer than 30000 ms")
    assert [line.message for line in process.logs(row.id)][-1] == found.error, "the state is said once"
    assert executor.cancelled == [row.id]
    executor.end(Outcome(state="completed", result=b'"late"'))
    process.after(SECOND)
    assert run_of(at_work, tenant, row.id) == found
    assert process.worker.counters.snapshot().ignored == 1
    assert process.names() == ["dispatch", "execution.failed"]


@pytest.mark.proves("2-F12", "3-B7", "3-C6")
def test_a_run_that_was_cancelled_is_told_so_and_no_outcome_revives_it(
    process: Process, executor: ScriptedExecutor, at_work: Store, tenant: str
) -> None:
    of = schedule(tenant, **RETRYING)
    (row,) = put(at_work, of, run(tenant, schedule_id=of.id, available_at=NOW))[1:]
    process.turn()
    with at_work.session(tenant, now=process.clock.now) as session:
        assert session.runs.cancel(row.id, "no longer wanted") is not None
    executor.end(Outcome(state="error", error="late failure"))
    process.worker.collect()
    process.after(SECOND)
    found = run_of(at_work, tenant, row.id)
    assert (found.state, found.error) == ("cancelled", "no longer wanted")
    assert executor.cancelled == [row.id]
    assert process.states() == ["cancelled"]
    assert process.worker.active == ()


@pytest.mark.proves("2-X8")
def test_outcomes_that_come_twice_late_and_out_of_order_make_one_effective_run(
    process: Process, executor: ScriptedExecutor, at_work: Store, tenant: str
) -> None:
    of = schedule(tenant, timeout_ms=20_000, max_retries=1, retry_delay_ms=1_000)
    put(at_work, of, run(tenant, schedule_id=of.id, available_at=NOW))
    process.turn()  # attempt 1 is dropped: nobody ever runs it
    process.after(20 * SECOND)
    process.after(SECOND)
    assert process.states() == ["timeout", "running"]
    executor.end(Outcome(state="completed", result=b"2"), executor.taken[1])
    executor.end(Outcome(state="completed", result=b"3"), executor.taken[1])  # delivered twice
    executor.end(Outcome(state="completed", result=b"1"), executor.taken[0])  # and attempt 1 comes back after attempt 2
    process.after(SECOND)
    executor.end(Outcome(state="error", error="again"), executor.taken[1])
    process.after(SECOND)
    first, second = process.all_runs()
    assert (first.state, second.state, second.result) == ("timeout", "completed", b"2")
    assert process.names().count("execution.success") == 1
    assert process.worker.counters.snapshot().ignored == 3


@pytest.mark.proves("2-X8", "3-B12")
def test_what_was_taken_over_by_another_process_does_not_count_from_the_first(
    process: Process, executor: ScriptedExecutor, at_work: Store, tenant: str
) -> None:
    of = schedule(tenant)
    (row,) = put(at_work, of, run(tenant, schedule_id=of.id, available_at=NOW))[1:]
    process.turn()
    first = executor.taken[0]
    assert at_work.queue.release([first], NOW) == [row.id]
    other, taker = (
        ScriptedExecutor(lambda _claim: None),
        Process(at_work, tenant, ScriptedExecutor(lambda _claim: None), clock=process.clock),
    )
    taker = Process(at_work, tenant, other, clock=process.clock)
    taker.turn()
    assert len(other.taken) == 1
    executor.end(Outcome(state="completed", result=b'"the first one"'), executor.taken[0])
    process.worker.collect()
    assert run_of(at_work, tenant, row.id).state == "running"
    process.turn()
    assert process.worker.active == ()
    other.end(Outcome(state="completed", result=b'"the second one"'), other.taken[0])
    taker.turn()
    assert run_of(at_work, tenant, row.id).result == b'"the second one"'


class Elsewhere(ExternalSystem):
    """Another system: it notes what it is asked, and says how runs ended."""

    def __init__(self) -> None:
        self.asked: list[Request] = []
        self.revoked: list[str] = []
        self.outcomes: dict[str, Outcome] = {}

    def send(self, request: Request) -> str:
        self.asked.append(request)
        return f"task-{len(self.asked)}"

    def revoke(self, task_id: str) -> None:
        self.revoked.append(task_id)

    def outcome(self, task_id: str) -> Outcome | None:
        return self.outcomes.get(task_id)


@pytest.fixture
def elsewhere() -> Elsewhere:
    return Elsewhere()


@pytest.fixture
def sending(at_work: Store, tenant: str, elsewhere: Elsewhere) -> Process:
    """A process that hands Celery's tasks to another system, and has room for one run of its own."""
    registry = Registry()
    registry.send_with("celery_task", elsewhere)
    return Process(at_work, tenant, InProcessExecutor(registry), capacity=1)


def put_task(store: Store, tenant: str, **more: Any) -> Run:  # noqa: ANN401 - columns have all types
    of = schedule(
        tenant,
        handler_name="sync",
        handler_type="celery_task",
        queue="ad_queue",
        payload=b'{"retention_days":7}',
        **more,
    )
    (row,) = put(store, of, run(tenant, schedule_id=of.id, available_at=NOW, trace_id="t", span_id="s"))[1:]
    return cast("Run", row)


def test_a_run_that_another_system_runs_keeps_its_name_there_and_comes_back_by_it(
    sending: Process, elsewhere: Elsewhere, at_work: Store, tenant: str
) -> None:
    row = put_task(at_work, tenant)
    sending.turn()
    (request,) = elsewhere.asked
    assert (request.handler_name, request.queue, request.arguments) == ("sync", "ad_queue", {"retention_days": 7})
    assert (request.run_id, request.fence, request.trace_id, request.span_id) == (row.id, 1, "t", "s")
    found = run_of(at_work, tenant, row.id)
    assert (found.state, found.external_task_id) == ("running", "task-1")
    sending.after(LEASE * 0.9)
    assert run_of(at_work, tenant, row.id).lease_expires_at == sending.clock.now + LEASE
    elsewhere.outcomes["task-1"] = Outcome(state="completed", result=b"7")
    sending.turn()
    found = run_of(at_work, tenant, row.id)
    assert (found.state, found.external_task_id, found.result) == ("completed", "task-1", b"7")
    assert (sending.worker.active, elsewhere.revoked) == ((), [])


def test_runs_of_another_system_take_no_room_of_a_process(
    sending: Process, elsewhere: Elsewhere, at_work: Store, tenant: str
) -> None:
    for _ in range(3):
        put_task(at_work, tenant)
        sending.turn()
    assert (len(elsewhere.asked), len(sending.worker.active)) == (3, 3)


@pytest.mark.parametrize("state", ["completed", "error"])
def test_a_process_of_another_system_ends_a_run_as_a_worker_does(
    sending: Process, elsewhere: Elsewhere, at_work: Store, tenant: str, state: OutcomeState
) -> None:
    row = put_task(at_work, tenant)
    sending.turn()
    client, later = Scheduler(at_work, tenant), NOW + SECOND
    assert not client.complete(row.id, fence=elsewhere.asked[0].fence + 1, now=later)
    assert client.complete(row.id, state, fence=elsewhere.asked[0].fence, result={"n": 1}, error="no", now=later)
    assert not client.complete(row.id, now=later)
    assert not client.heartbeat(row.id, now=later)
    found = run_of(at_work, tenant, row.id)
    assert (found.state, jsonb.decode(found.result or b""), found.duration_ms) == (state, {"n": 1}, 1000)
    said = "completed: no" if state == "completed" else "error: no"
    assert [line.message for line in sending.logs(row.id)] == [said]
    told = "execution.success" if state == "completed" else "execution.failed"
    assert told in [entry.action.removeprefix("scheduler:job.") for entry in sending.trail()]
    sending.after(2 * SECOND)
    counted = sending.worker.counters.snapshot()
    assert (counted.delivered, counted.lost, sending.worker.active, elsewhere.revoked) == (1, 0, (), [])


def test_a_failure_that_another_system_tells_is_repeated_as_the_schedule_says(
    sending: Process, at_work: Store, tenant: str
) -> None:
    row = put_task(at_work, tenant, max_retries=1)
    sending.turn()
    assert Scheduler(at_work, tenant).complete(row.id, "error", error="no", now=sending.clock.now)
    assert sorted(sending.states()) == ["error", "queued"]


def test_a_run_goes_on_after_its_worker_while_the_other_system_renews_its_lease(
    sending: Process, elsewhere: Elsewhere, at_work: Store, tenant: str
) -> None:
    row = put_task(at_work, tenant)
    sending.turn()
    assert sending.worker.release() == 0
    assert (elsewhere.revoked, run_of(at_work, tenant, row.id).state) == ([], "running")
    client, now = Scheduler(at_work, tenant), NOW + LEASE / 2
    assert client.heartbeat(row.id, LEASE, fence=1, now=now)
    assert run_of(at_work, tenant, row.id).lease_expires_at == now + LEASE
    assert not client.heartbeat(row.id, LEASE, fence=2, now=now)
    assert client.complete(row.id, fence=1, now=now)
    assert run_of(at_work, tenant, row.id).state == "completed"
    with pytest.raises(NotFoundError, match="no run"):
        client.complete(uuid4(), now=now)


@pytest.mark.parametrize("how", ["cancelled", "timed out"])
def test_a_run_that_is_no_longer_wanted_is_revoked_elsewhere(
    sending: Process, elsewhere: Elsewhere, at_work: Store, tenant: str, how: str
) -> None:
    row = put_task(at_work, tenant, timeout_ms=1_000)
    sending.turn()
    if how == "cancelled":
        with at_work.session(tenant, now=sending.clock.now) as session:
            assert session.runs.cancel(row.id, "no longer wanted") is not None
        sending.turn()
    else:
        sending.after(2 * SECOND)
    assert elsewhere.revoked == ["task-1"]
    elsewhere.outcomes["task-1"] = Outcome(state="completed")
    sending.after(SECOND)
    assert run_of(at_work, tenant, row.id).state == ("cancelled" if how == "cancelled" else "timeout")
    assert sending.worker.active == ()


def test_a_system_that_does_not_answer_is_asked_again(
    sending: Process, elsewhere: Elsewhere, at_work: Store, tenant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = put_task(at_work, tenant)
    sending.turn()

    def refuse(_task_id: str) -> NoReturn:
        raise ConnectionError

    with monkeypatch.context() as patched:
        patched.setattr(elsewhere, "outcome", refuse)
        sending.turn()
    assert run_of(at_work, tenant, row.id).state == "running"
    elsewhere.outcomes["task-1"] = Outcome(state="completed")
    sending.turn()
    assert run_of(at_work, tenant, row.id).state == "completed"


def test_a_process_takes_no_more_than_it_has_room_for(at_work: Store, tenant: str) -> None:
    executor = ScriptedExecutor(lambda _claim: None)
    process = Process(at_work, tenant, executor, capacity=2)
    of = schedule(tenant)
    put(at_work, of, *(run(tenant, schedule_id=of.id, available_at=NOW) for _ in range(5)))
    process.turn()
    assert len(executor.taken) == 2
    executor.end(claim=executor.taken[0])
    process.turn()
    assert len(executor.taken) == 3


@pytest.mark.proves("3-C7")
def test_what_is_given_back_is_queued_again_with_the_same_attempt(
    process: Process, executor: ScriptedExecutor, at_work: Store, tenant: str
) -> None:
    of = schedule(tenant)
    (row,) = put(at_work, of, run(tenant, schedule_id=of.id, available_at=NOW))[1:]
    process.turn()
    assert process.worker.release() == 1
    found = run_of(at_work, tenant, row.id)
    assert (found.state, found.worker_id, found.attempt) == ("queued", None, row.attempt)
    assert executor.cancelled == [row.id]
    executor.end(claim=executor.taken[0])
    process.worker.collect()
    assert run_of(at_work, tenant, row.id).state == "queued"


def test_what_cannot_be_handed_over_is_an_error_of_the_run(at_work: Store, tenant: str) -> None:
    class Broken(ScriptedExecutor):
        def submit(self, *_: object) -> str | None:
            raise OSError("no broker")

    process = Process(at_work, tenant, Broken())
    of = schedule(tenant)
    (row,) = put(at_work, of, run(tenant, schedule_id=of.id, available_at=NOW))[1:]
    process.turn()
    process.turn()
    assert run_of(at_work, tenant, row.id).error == "OSError: no broker"


@pytest.mark.proves("4-X5")
def test_outcomes_that_come_while_the_data_is_moved_away_are_written_where_it_went(
    process: Process, executor: ScriptedExecutor, at_work: Store, tenant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    of = schedule(tenant)
    put(at_work, of, *(run(tenant, schedule_id=of.id, available_at=NOW) for _ in range(2)))
    process.turn()
    executor.end(claim=executor.taken[0])
    executor.end(claim=executor.taken[1])

    def left(*_: object) -> NoReturn:
        raise BackendMovedError("the data is elsewhere")

    with monkeypatch.context() as patched:
        patched.setattr(process.worker, "_time", left)  # a store that was left does not even tell the time
        for _ in range(2):
            with pytest.raises(BackendMovedError):
                process.worker.collect()
    process.worker.move(at_work)
    assert process.worker.collect() == 2
    assert process.states() == ["completed", "completed"]
    assert process.worker.active == ()


def test_an_outcome_that_no_column_can_hold_makes_the_run_fail_and_spares_the_others(
    process: Process, executor: ScriptedExecutor, at_work: Store, tenant: str
) -> None:
    of = schedule(tenant)
    put(at_work, of, *(run(tenant, schedule_id=of.id, available_at=NOW) for _ in range(3)))
    process.turn()
    executor.end(claim=executor.taken[0])
    executor.end(Outcome(state="error", error="nul \0"), executor.taken[1])
    executor.end(claim=executor.taken[2])
    process.turn()
    assert sorted(process.states()) == ["completed", "completed", "error"]


def test_a_line_that_no_column_can_hold_is_kept_without_what_cannot_be_stored(
    process: Process, executor: ScriptedExecutor, at_work: Store, tenant: str
) -> None:
    of = schedule(tenant)
    (row,) = put(at_work, of, run(tenant, schedule_id=of.id, available_at=NOW))[1:]
    process.turn()
    [taken] = executor.taken
    for line in ("before", "a\0b", "a lone \ud800 surrogate", "after"):
        executor.listener(taken).said(taken, "info", line)
    executor.end(claim=taken)
    process.turn()
    lines = [line.message for line in process.logs(row.id)]
    assert lines[1:] == ["before", "a\ufffdb", "a lone ? surrogate", "after", "completed"]


@pytest.mark.proves("3-E1")
def test_an_edit_is_seen_at_the_next_tick_without_a_reload(process: Process, at_work: Store, tenant: str) -> None:
    of = schedule(tenant)
    made = trigger(of, next_fire_at=moment(3600))
    put(at_work, of, made)
    process.turn()
    assert process.all_runs() == []
    put(at_work, changed(made, next_fire_at=moment(60)))
    process.after(MINUTE)
    assert [each.scheduled_at for each in process.all_runs()] == [moment(60)]


POISON: dict[str, Any] = {
    "65 bits": {"state": "completed", "result": b"10000000000000000001"},
    "NUL": {"state": "completed", "result": b'"\\u0000"'},
    "too large": {"state": "completed", "result": b'"' + b"x" * 17_000_000 + b'"'},
    "half a pair": {"state": "error", "error": "\ud83d", "error_detail": "\ud83d"},
    "nothing but an error": {"state": "error", "error": "\0"},
}


@pytest.mark.parametrize("what", POISON)
def test_an_outcome_that_cannot_be_stored_ends_its_run_and_no_other(
    what: str, process: Process, executor: ScriptedExecutor, at_work: Store, tenant: str
) -> None:
    for _ in range(5):
        of = schedule(tenant, handler_name="mail", max_retries=0)
        put(at_work, of, trigger(of, kind="one_time", run_at=NOW))
    process.turn()
    claims = list(executor.taken)
    assert len(claims) == 5
    for number, claim in enumerate(claims):
        outcome = Outcome(**POISON[what]) if number == 2 else Outcome(state="completed", result=b"1e19")
        executor.listener(claim).ended(claim, outcome)
    process.after(SECOND)
    assert not process.worker.active
    process.after(MINUTE)
    assert len(executor.taken) == 5, "a run was executed again"
    ended = {run.id: run for run in process.all_runs()}
    assert [ended[claim.run.id].state for claim in claims] == [
        "completed",
        "completed",
        "error",
        "completed",
        "completed",
    ]
    assert "the outcome cannot be stored: " in (ended[claims[2].run.id].error or "")
    assert {jsonb.decode(run.result) for run in ended.values() if run.result is not None} == {10**19}


def test_a_retry_comes_after_an_outcome_that_cannot_be_stored(
    process: Process, executor: ScriptedExecutor, at_work: Store, tenant: str
) -> None:
    of = schedule(tenant, handler_name="mail", **RETRYING)
    put(at_work, of, trigger(of, kind="one_time", run_at=NOW))
    process.turn()
    executor.end(Outcome(state="error", error="\0"))
    process.after(SECOND)
    assert process.states() == ["error", "queued"]
