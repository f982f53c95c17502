"""Scenarios of area execution: from due to done, and every way in which a run can end otherwise."""

from collections.abc import Callable
from datetime import timedelta
from threading import Event, Thread

import msgspec

from migrator.records import Run, Trigger
from migrator.result import table_panel
from migrator.scheduler import retention
from migrator.scheduler.executor import InProcessExecutor
from migrator.scheduler.handlers import Context, Registry
from migrator.scheduler.leadership import Leadership
from migrator.scheduler.models import Job
from migrator.values import jsonb
from migrator.verify.behaviour.harness import DAY, DONE, FAILED, HOUR, MINUTE, SECOND, START, Harness, ScriptedExecutor
from migrator.verify.behaviour.scenarios import Observations

_PATIENCE_S = 30.0
SKIPPED_FOR_OTHERS = {"skipped": "concurrency"}


def due_to_done(harness: Harness, observed: Observations) -> None:
    """Let a cron line become due, and a real handler work in a thread of its own: run, log, summary, audit."""
    registry, ended = Registry(), Event()

    def work(*, rows: int, context: Context) -> dict[str, int]:
        context.log("said by the handler", "warn")
        return {"doubled": rows * 2, "attempt": context.attempt}

    def breaks(*, context: Context) -> None:
        del context
        raise ValueError("it cannot be done")

    registry.register("work", work)
    registry.register("breaks", breaks)
    worker = harness.worker_for(InProcessExecutor(registry), wake=ended.set)
    job = harness.cron("*/5 * * * *", payload={"rows": 3})
    bad = harness.cron("*/5 * * * *", handler_name="breaks", max_retries=0)
    nobody = harness.cron("*/5 * * * *", handler_name="nobody knows it", max_retries=3)
    observed.expect("nothing is due before", (0, 0), (worker.fire(), worker.claim()))
    harness.now = START + 5 * MINUTE
    observed.expect("due: fired and claimed", (3, 3), (worker.fire(), worker.claim()))
    done = 0
    while done < 3 and ended.wait(_PATIENCE_S):  # noqa: PLR2004 - three schedules
        ended.clear()
        done += worker.collect()
    observed.expect("all three end", 3, done)
    run = harness.runs(job)[0]
    result = jsonb.decode(run.result or b"null")
    observed.expect("completed, with its result", ("completed", {"doubled": 6, "attempt": 1}), (run.state, result))
    observed.expect(
        "for its slot, number 1, attempt 1", (START + 5 * MINUTE, 1, 1), (run.scheduled_at, run.run_number, run.attempt)
    )
    execution = harness.facade.get_execution(run.id, now=harness.now)
    lines = [] if execution is None else [(line.level, line.message) for line in execution.logs]
    observed.expect(
        "its log, in order",
        [("info", "attempt 1 began"), ("warn", "said by the handler"), ("info", "completed")],
        lines,
    )
    broken = harness.runs(bad)[0]
    observed.expect(
        "what it raises is the run's error", ("error", "ValueError: it cannot be done"), (broken.state, broken.error)
    )
    observed.expect_true("with its traceback", "Traceback" in (broken.error_detail or ""))
    observed.expect("an unknown handler is an error that is not repeated", ["error"], harness.run_states(nobody))
    with harness.session() as session:
        summary = session.run_summaries.get(job.id)
        counters = {} if summary is None else jsonb.decode(summary.counters or b"{}")
        actions = {entry.action for entry in session.audit.list(100, schedule_id=job.id)}
    counted = (counters.get("total"), counters.get("completed"), counters.get("lastRunNumber"))
    observed.expect("its summary counts it", (1, 1, 1), counted)
    observed.expect_true("the audit trail records it", len(actions) >= 3)  # noqa: PLR2004 - made, begun, ended
    observed.record("the actions of the audit trail", sorted(actions))
    observed.expect("the next fire is planned", START + 10 * MINUTE, harness.job(job).next_fire_at)


def retries(harness: Harness, observed: Observations) -> None:
    """Fail repeatedly: each retry is a run of its own, which is really executed, after a longer delay each time."""
    job = harness.every(30 * DAY, max_retries=2, retry_delay=MINUTE)
    harness.executor.outcome = lambda _claim: FAILED
    first = harness.facade.trigger_now(job.id, now=harness.now)
    harness.run_once()
    taken = [1]
    for delay in (MINUTE, 2 * MINUTE):
        harness.advance(delay - SECOND)
        harness.run_once()
        taken.append(len(harness.executor.taken))
        harness.advance(SECOND)
        harness.run_once()
        taken.append(len(harness.executor.taken))
    harness.advance(HOUR)
    harness.run_once()
    observed.expect("handed over when its delay is over, and not before", [1, 1, 2, 2, 3], taken)
    runs = harness.runs(job)
    observed.expect("as often as it may", [1, 2, 3], [run.attempt for run in runs])
    observed.expect(
        "each repeats the one before",
        [None, first.id, runs[1].id if len(runs) > 1 else None],
        [run.retry_of for run in runs],
    )
    observed.expect("all have failed", ["error"] * 3, [run.state for run in runs])
    observed.expect("numbered", [1, 2, 3], [run.run_number for run in runs])
    fixed = harness.every(30 * DAY, max_retries=1, retry_strategy="fixed", retry_delay=5 * SECOND, name="fixed")
    harness.facade.trigger_now(fixed.id, now=harness.now)
    harness.run_once()
    harness.executor.outcome = lambda _claim: DONE
    harness.advance(5 * SECOND)
    harness.run_once()
    observed.expect("the repetition may succeed", ["error", "completed"], harness.run_states(fixed))
    one_time_retry(harness, observed)
    exhausted_retries(harness, observed)


def one_time_retry(harness: Harness, observed: Observations) -> None:
    """Fail at a single fire: it is retried, and the schedule is completed when the retry is."""
    job = harness.once(harness.now + MINUTE, max_retries=2, retry_delay=MINUTE, name="one-off")
    harness.executor.outcome = lambda claim: None if claim.run.attempt == 1 else DONE
    harness.advance(MINUTE)
    harness.run_once()
    harness.advance(SECOND)
    harness.executor.end(FAILED)
    harness.run_once()
    observed.expect(
        "a one-off that failed waits for its repetition",
        ("running", ["error", "queued"]),
        (harness.status(job), harness.run_states(job)),
    )
    harness.advance(MINUTE)
    harness.run_once()
    observed.expect(
        "it is repeated, and completed then",
        ("completed", ["error", "completed"]),
        (harness.status(job), harness.run_states(job)),
    )


def exhausted_retries(harness: Harness, observed: Observations) -> None:
    """Fail at each fire without a retry: the schedule goes on, unless it is to stop."""
    jobs = {
        policy: harness.every(MINUTE, name=policy, max_retries=0, on_exhausted=policy) for policy in ("keep", "stop")
    }
    harness.executor.outcome = lambda _claim: FAILED
    harness.run_until(harness.now + 3 * MINUTE)
    for policy, wanted in {"keep": ("scheduled", ["error"] * 3), "stop": ("failed", ["error"])}.items():
        states = harness.run_states(jobs[policy])
        observed.expect(f"{policy}, when no retry is left", wanted, (harness.status(jobs[policy]), states))


def one_time_failure(harness: Harness, observed: Observations) -> None:
    """Fail at a single fire and at each retry: the schedule has failed when no retry is left."""
    job = harness.once(None, max_retries=2, retry_delay=MINUTE)
    harness.executor.outcome = lambda _claim: FAILED
    harness.run_until(START + 10 * MINUTE)
    runs = harness.runs(job)
    observed.expect(
        "repeated as often as it may",
        [("error", 1, "one_time"), ("error", 2, "retry"), ("error", 3, "retry")],
        [(run.state, run.attempt, run.cause) for run in runs],
    )
    observed.expect("each repeats the one before", [run.id for run in runs[:-1]], [run.retry_of for run in runs[1:]])
    observed.expect("failed when no retry is left", "failed", harness.status(job))


def timeouts(harness: Harness, observed: Observations) -> None:
    """Exceed the timeout: the run ends as timeout, its handler is told, and a later result is ignored."""
    job = harness.every(30 * DAY, timeout=MINUTE, max_retries=1, retry_delay=SECOND)
    harness.executor.outcome = lambda _claim: None
    harness.facade.trigger_now(job.id, now=harness.now)
    harness.run_once()
    harness.advance(59 * SECOND)
    observed.expect("not before its time", (0, 0), harness.sweeper().reclaim())
    harness.advance(SECOND)
    observed.expect("over, and repeated", (1, 1), harness.sweeper().reclaim())
    harness.executor.end(DONE, harness.executor.taken[0])
    observed.expect("its late end counts no more", 0, harness.worker.collect())
    observed.expect("timeout, and a repetition", ["timeout", "queued"], harness.run_states(job))
    run = harness.runs(job)[0]
    observed.expect(
        "its times and duration", (START, START + MINUTE, 60_000), (run.started_at, run.finished_at, run.duration_ms)
    )


def cancellation(harness: Harness, observed: Observations) -> None:
    """Cancel a running run: a later end of it changes nothing and is not retried; its handler is told to stop."""
    harness.executor.outcome = lambda _claim: None
    for outcome, what in ((FAILED, "failure"), (DONE, "success")):
        job, run = _cancelled(harness, name=what)
        observed.expect(
            "schedule and run are cancelled",
            ("cancelled", ["cancelled"]),
            (harness.status(job), harness.run_states(job)),
        )
        harness.executor.end(outcome)
        observed.expect(f"a late {what} is not written", 0, harness.worker.collect())
        harness.advance(HOUR)
        harness.run_once()
        execution = harness.facade.get_execution(run.id, now=harness.now)
        observed.expect(
            "cancelled it stays, for the same reason",
            ("cancelled", "enough"),
            None if execution is None else (execution.run.state, execution.run.error),
        )
        observed.expect("nothing is repeated", ("cancelled", 1), (harness.status(job), len(harness.runs(job))))
        observed.expect("its handler was told to stop", [run.id], harness.executor.cancelled)
        harness.executor.cancelled.clear()
    _, run = _cancelled(harness, name="renewed")
    harness.worker.renew()
    observed.expect("its handler is told to stop before it ends", [run.id], harness.executor.cancelled)


def _cancelled(harness: Harness, name: str) -> tuple[Job, Run]:
    """Return a schedule that was cancelled while its run was running, and the run."""
    job = harness.every(30 * DAY, name=name, max_retries=3)
    run = harness.facade.trigger_now(job.id, now=harness.now)
    harness.run_once()
    harness.advance(SECOND)
    harness.facade.cancel(job.id, reason="enough", now=harness.now)
    return job, run


def concurrency_limit(harness: Harness, observed: Observations) -> None:
    """Reach the limit of concurrent runs: the slot is skipped, with its reason; runs triggered by hand wait."""
    job = harness.every(MINUTE, max_retries=0)
    harness.executor.outcome = lambda _claim: None
    harness.run_until(START + 3 * MINUTE)
    runs = harness.runs(job)
    observed.expect("one works, the others are skipped", ["running", "skipped", "skipped"], [run.state for run in runs])
    reasons = [jsonb.decode(run.reason or b"null") for run in runs[1:]]
    observed.expect("they say why", [SKIPPED_FOR_OTHERS] * 2, reasons)
    observed.expect("it goes on to the next slot", START + 4 * MINUTE, harness.job(job).next_fire_at)
    harness.facade.trigger_now(job.id, now=harness.now)
    other = harness.worker_for(ScriptedExecutor())
    observed.expect("nobody else begins a second one", (0, 0), (harness.worker.claim(), other.claim()))
    harness.executor.end(DONE, harness.executor.taken[0])
    harness.worker.collect()
    observed.expect("when it has ended the next one begins", 1, other.claim())
    other.collect()
    harness.advance(MINUTE)
    harness.run_once()
    observed.expect(
        "and the next slot has its run",
        ["completed", "completed", "running", "skipped", "skipped"],
        sorted(run.state for run in harness.runs(job)),
    )


def single_execution(harness: Harness, observed: Observations) -> None:
    """Fire and claim from two workers at once, and fire a slot again: one run per slot, one worker per run."""
    jobs = [harness.every(MINUTE, name=f"job {number}", max_concurrency=None) for number in range(10)]
    harness.advance(MINUTE)
    executors = [ScriptedExecutor(), ScriptedExecutor()]
    workers = [harness.worker_for(executor) for executor in executors]
    _together(*(worker.fire for worker in workers))
    observed.expect("two who fire at once: a run for each slot", [1] * 10, [len(harness.runs(job)) for job in jobs])
    for executor in executors:
        executor.outcome = lambda _claim: None
    _together(*(worker.claim for worker in workers))
    taken = sorted(claim.run.id for executor in executors for claim in executor.taken)
    observed.expect("two who claim at once: each run is one's", sorted(harness.runs(job)[0].id for job in jobs), taken)
    for job in jobs[:3]:
        trigger = harness.job(job).triggers[0]
        with harness.session() as session:
            session.triggers.move(trigger.id, trigger.next_fire_at, START + MINUTE)
    observed.expect("a slot that is fired again makes no second run", 0, harness.worker.fire())
    slots = [[run.scheduled_at for run in harness.runs(job)] for job in jobs]
    observed.expect("every slot has one run", [[START + MINUTE]] * 10, slots)
    for executor in executors:
        for claim in executor.taken:
            executor.end(DONE, claim)
            executor.end(FAILED, claim)
    observed.expect("an outcome that comes twice counts once", 10, sum(worker.collect() for worker in workers))
    observed.expect("the first one", {"completed"}, {run.state for job in jobs for run in harness.runs(job)})


def run_numbers(harness: Harness, observed: Observations) -> None:
    """Remove old runs: the numbers of new ones go on, and live ones stay."""
    job = harness.every(30 * DAY, max_concurrency=None)
    for _ in range(5):
        harness.advance(MINUTE)
        harness.facade.trigger_now(job.id, now=harness.now)
        harness.run_once()
    harness.executor.outcome = lambda _claim: None
    harness.advance(MINUTE)
    harness.facade.trigger_now(job.id, now=harness.now)
    harness.run_once()
    harness.advance(DAY)
    rule = retention.RetentionRule(keep=2, young=timedelta(hours=1))
    planned = retention.apply(harness.store, harness.tenant, rule, dry_run=True, now=harness.now)
    removed = retention.apply(harness.store, harness.tenant, rule, now=harness.now)
    observed.expect("what a trial says is what is removed", (4, 4), (planned.total, removed.total))
    observed.expect("the newest, and what is live, stay", [5, 6], [run.run_number for run in harness.runs(job)])
    harness.executor.end()
    harness.worker.collect()
    harness.advance(DAY)
    everything = retention.RetentionRule(keep=0, young=timedelta(hours=1))
    retention.apply(harness.store, harness.tenant, everything, now=harness.now)
    new = harness.facade.trigger_now(job.id, now=harness.now)
    observed.expect("no number comes twice, though no run is left", 7, new.run_number)


def post_cutover_checks(harness: Harness, observed: Observations) -> None:
    """Make the seven checks that follow a cutover, and record the result of each."""
    rows: list[tuple[str | int | None, ...]] = []

    def look(what: str, wanted: object, found: object) -> None:
        rows.append((what, "as it must" if observed.expect(what, wanted, found) else "not as it must"))

    job = harness.every(10 * MINUTE, name="seen")
    look("1. it is in the list", ["seen"], [one.schedule.name for one in harness.facade.list(now=harness.now).jobs])
    harness.run_until(START + 10 * MINUTE)
    look("2. it runs on schedule", [START + 10 * MINUTE], harness.fired(job))
    harness.advance(SECOND)
    harness.facade.trigger_now(job.id, now=harness.now)
    harness.run_once()
    look("3. it runs when asked for", "completed", harness.runs(job)[-1].state)
    look(
        "4. its history has both",
        [("interval", "completed"), ("manual", "completed")],
        [(run.cause, run.state) for run in harness.runs(job)],
    )
    leader = Leadership(harness.store, ttl=MINUTE, holder="seven", resource="leader", tenant=harness.tenant)
    look("5. there is a leader", wanted=True, found=leader.acquire() is not None)
    leader.release()
    harness.facade.toggle(job.id, enabled=False, now=harness.now)
    harness.run_until(START + 40 * MINUTE)
    off = len(harness.runs(job))
    harness.facade.toggle(job.id, enabled=True, now=harness.now)
    harness.run_until(START + 60 * MINUTE)
    look("6. disabled it does not run, enabled it runs", (2, True), (off, len(harness.runs(job)) > off))
    old = _copied_schedule(harness)
    harness.sweeper().give_missing_fires()
    harness.run_once()
    following = harness.job(old).next_fire_at
    look(
        "7. no overdue run is made",
        (0, True),
        (len(harness.runs(old)), following is not None and following > harness.now),
    )
    title = f"The seven observations after a cutover, on {harness.backend}"
    observed.panels.append(table_panel(title, ("after the cutover", "result"), rows))


def _copied_schedule(harness: Harness) -> Job:
    """Return a schedule as a copy leaves it: it fired last a month ago, and has no next fire."""
    row = harness.row("moved", handler_name="work")
    trigger = Trigger(
        id=harness.new_id(), tenant_id=harness.tenant, schedule_id=row.id, kind="interval", interval_ms=3_600_000,
        anchor="fixed_rate", last_fire_at=harness.now - 30 * DAY,
    )  # fmt: skip
    with harness.session() as session:
        session.schedules.upsert(row)
        session.triggers.upsert(trigger)
    return Job(schedule=row, triggers=(msgspec.structs.replace(trigger),))


def _together(*calls: Callable[[], int]) -> None:
    threads = [Thread(target=call) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
