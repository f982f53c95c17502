"""Scripts of area execution: from due to done, and every way in which a run can end otherwise."""

from collections.abc import Callable
from datetime import timedelta
from threading import Event, Thread

import msgspec

from migrator.records import Trigger
from migrator.result import Exhibit
from migrator.scheduler import retention
from migrator.scheduler.answers import Job
from migrator.scheduler.handing import InProcessDispatcher
from migrator.scheduler.handlers import Context, Registry
from migrator.scheduler.leader import Leadership
from migrator.values import jsonb
from migrator.verify.behaviour.harness import DAY, DONE, FAILED, HOUR, MINUTE, SECOND, START, Harness, ScriptedExecutor
from migrator.verify.behaviour.scenarios import Observations

_PATIENCE_S = 30.0
SKIPPED_FOR_OTHERS = {"skipped": "concurrency"}


def due_to_done(ground: Harness, notes: Observations) -> None:
    """Let a cron line fall due, and a real handler work in a thread of its own: run, log, summary, audit."""
    registry, ended = Registry(), Event()

    def work(*, rows: int, context: Context) -> dict[str, int]:
        context.log("said by the handler", "warn")
        return {"doubled": rows * 2, "attempt": context.attempt}

    def breaks(*, context: Context) -> None:
        del context
        raise ValueError("it cannot be done")

    registry.register("work", work)
    registry.register("breaks", breaks)
    desk = ground.desk_of(InProcessDispatcher(registry), wake=ended.set)
    job = ground.cron("*/5 * * * *", payload={"rows": 3})
    bad = ground.cron("*/5 * * * *", handler_name="breaks", max_retries=0)
    nobody = ground.cron("*/5 * * * *", handler_name="nobody knows it", max_retries=3)
    notes.expect("nothing is due before", (0, 0), (desk.fire(), desk.claim()))
    ground.now = START + 5 * MINUTE
    notes.expect("due: fired and claimed", (3, 3), (desk.fire(), desk.claim()))
    done = 0
    while done < 3 and ended.wait(_PATIENCE_S):  # noqa: PLR2004 - three schedules
        ended.clear()
        done += desk.collect()
    notes.expect("all three end", 3, done)
    run = ground.runs(job)[0]
    result = jsonb.decode(run.result or b"null")
    notes.expect("completed, with its result", ("completed", {"doubled": 6, "attempt": 1}), (run.state, result))
    notes.expect(
        "for its slot, number 1, attempt 1", (START + 5 * MINUTE, 1, 1), (run.scheduled_at, run.run_number, run.attempt)
    )
    execution = ground.facade.get_execution(run.id, now=ground.now)
    lines = [] if execution is None else [(line.level, line.message) for line in execution.logs]
    notes.expect(
        "its log, in order",
        [("info", "attempt 1 began"), ("warn", "said by the handler"), ("info", "completed")],
        lines,
    )
    broken = ground.runs(bad)[0]
    notes.expect(
        "what it raises is the run's error", ("error", "ValueError: it cannot be done"), (broken.state, broken.error)
    )
    notes.holds("with its traceback", "Traceback" in (broken.error_detail or ""))
    notes.expect(
        "an unknown handler is an error that is not repeated", ["error"], [one.state for one in ground.runs(nobody)]
    )
    with ground.session() as session:
        summary = session.run_summaries.get(job.id)
        counters = {} if summary is None else jsonb.decode(summary.counters or b"{}")
        actions = {entry.action for entry in session.audit.list(100, schedule_id=job.id)}
    counted = (counters.get("total"), counters.get("completed"), counters.get("lastRunNumber"))
    notes.expect("its summary counts it", (1, 1, 1), counted)
    notes.holds("the audit trail tells of it", len(actions) >= 3)  # noqa: PLR2004 - made, begun, ended
    notes.same("the actions of the audit trail", sorted(actions))
    notes.expect("the next fire is planned", START + 10 * MINUTE, ground.job(job).next_fire_at)


def retries(ground: Harness, notes: Observations) -> None:
    """Fail again and again: each repetition is a run of its own, really handed over, each after a longer delay."""
    job = ground.every(30 * DAY, max_retries=2, retry_delay_ms=60_000)
    ground.hand.outcome = lambda _claim: FAILED
    first = ground.facade.trigger_now(job.id, now=ground.now)
    ground.turn()
    taken = [1]
    for delay in (MINUTE, 2 * MINUTE):
        ground.later(delay - SECOND)
        ground.turn()
        taken.append(len(ground.hand.taken))
        ground.later(SECOND)
        ground.turn()
        taken.append(len(ground.hand.taken))
    ground.later(HOUR)
    ground.turn()
    notes.expect("handed over when its delay is over, and not before", [1, 1, 2, 2, 3], taken)
    runs = ground.runs(job)
    notes.expect("as often as it may", [1, 2, 3], [run.attempt for run in runs])
    notes.expect(
        "each repeats the one before",
        [None, first.id, runs[1].id if len(runs) > 1 else None],
        [run.retry_of for run in runs],
    )
    notes.expect("all have failed", ["error"] * 3, [run.state for run in runs])
    notes.expect("numbered", [1, 2, 3], [run.run_number for run in runs])
    fixed = ground.every(30 * DAY, max_retries=1, retry_strategy="fixed", retry_delay_ms=5000, name="fixed")
    ground.facade.trigger_now(fixed.id, now=ground.now)
    ground.turn()
    ground.hand.outcome = lambda _claim: DONE
    ground.later(5 * SECOND)
    ground.turn()
    notes.expect("the repetition may succeed", ["error", "completed"], [run.state for run in ground.runs(fixed)])
    one_time_retry(ground, notes)


def one_time_retry(ground: Harness, notes: Observations) -> None:
    """Fail at a single fire: it is repeated, and the schedule is completed when the repetition is."""
    job = ground.once(ground.now + MINUTE, max_retries=2, retry_delay_ms=60_000, name="one-off")
    ground.hand.outcome = lambda claim: None if claim.run.attempt == 1 else DONE
    ground.later(MINUTE)
    ground.turn()
    ground.later(SECOND)
    ground.hand.end(ground.hand.taken[-1], FAILED)
    ground.turn()
    notes.expect(
        "a one-off that failed waits for its repetition",
        ("running", ["error", "queued"]),
        (ground.status(job), [run.state for run in ground.runs(job)]),
    )
    ground.later(MINUTE)
    ground.turn()
    notes.expect(
        "it is repeated, and completed then",
        ("completed", ["error", "completed"]),
        (ground.status(job), [run.state for run in ground.runs(job)]),
    )


def timeouts(ground: Harness, notes: Observations) -> None:
    """Take too long: the run ends as timeout, its handler is told, what it says later counts no more."""
    job = ground.every(30 * DAY, timeout_ms=60_000, max_retries=1, retry_delay_ms=1000)
    ground.hand.outcome = lambda _claim: None
    ground.facade.trigger_now(job.id, now=ground.now)
    ground.turn()
    ground.later(59 * SECOND)
    notes.expect("not before its time", (0, 0), ground.broom().reclaim())
    ground.later(SECOND)
    notes.expect("over, and repeated", (1, 1), ground.broom().reclaim())
    ground.hand.end(ground.hand.taken[0], DONE)
    notes.expect("its late end counts no more", 0, ground.desk.collect())
    notes.expect("timeout, and a repetition", ["timeout", "queued"], [run.state for run in ground.runs(job)])
    run = ground.runs(job)[0]
    notes.expect(
        "its times and duration", (START, START + MINUTE, 60_000), (run.started_at, run.finished_at, run.duration_ms)
    )


def cancellation(ground: Harness, notes: Observations) -> None:
    """Cancel what runs: a failure that comes later does not bring it back, and is not repeated."""
    job = ground.every(30 * DAY, max_retries=3)
    ground.hand.outcome = lambda _claim: None
    run = ground.facade.trigger_now(job.id, now=ground.now)
    ground.turn()
    ground.later(SECOND)
    ground.facade.cancel(job.id, reason="enough", now=ground.now)
    notes.expect(
        "schedule and run are cancelled",
        ("cancelled", ["cancelled"]),
        (ground.status(job), [one.state for one in ground.runs(job)]),
    )
    ground.hand.end(ground.hand.taken[0], FAILED)
    notes.expect("a late failure is not written", 0, ground.desk.collect())
    ground.later(HOUR)
    ground.turn()
    found = ground.facade.get_execution(run.id, now=ground.now)
    notes.expect(
        "cancelled it stays, for the same reason",
        ("cancelled", "enough"),
        None if found is None else (found.run.state, found.run.error),
    )
    notes.expect("nothing is repeated", 1, len(ground.runs(job)))
    notes.expect("its handler was told to stop", [run.id], ground.hand.cancelled)


def concurrency_limit(ground: Harness, notes: Observations) -> None:
    """Meet the limit of runs at the same time: the slot is skipped, and says so; by hand asked-for runs wait."""
    job = ground.every(MINUTE, max_retries=0)
    ground.hand.outcome = lambda _claim: None
    ground.run_until(START + 3 * MINUTE)
    runs = ground.runs(job)
    notes.expect("one works, the others are skipped", ["running", "skipped", "skipped"], [run.state for run in runs])
    reasons = [jsonb.decode(run.reason or b"null") for run in runs[1:]]
    notes.expect("they say why", [SKIPPED_FOR_OTHERS] * 2, reasons)
    ground.facade.trigger_now(job.id, now=ground.now)
    other = ground.desk_of(ScriptedExecutor())
    notes.expect("nobody else begins a second one", (0, 0), (ground.desk.claim(), other.claim()))
    ground.hand.end(ground.hand.taken[0], DONE)
    ground.desk.collect()
    notes.expect("when it has ended the next one begins", 1, other.claim())


def single_execution(ground: Harness, notes: Observations) -> None:
    """Fire and claim twice at once, and fire a slot again: one run for each slot, one worker for each run."""
    jobs = [ground.every(MINUTE, name=f"job {number}", max_concurrency=None) for number in range(10)]
    ground.later(MINUTE)
    hands = [ScriptedExecutor(), ScriptedExecutor()]
    desks = [ground.desk_of(hand) for hand in hands]
    _together(*(desk.fire for desk in desks))
    notes.expect("two who fire at once: a run for each slot", [1] * 10, [len(ground.runs(job)) for job in jobs])
    for hand in hands:
        hand.outcome = lambda _claim: None
    _together(*(desk.claim for desk in desks))
    taken = sorted(claim.run.id for hand in hands for claim in hand.taken)
    notes.expect("two who claim at once: each run is one's", sorted(ground.runs(job)[0].id for job in jobs), taken)
    for job in jobs[:3]:
        trigger = ground.job(job).triggers[0]
        with ground.session() as session:
            session.triggers.move(trigger.id, trigger.next_fire_at, START + MINUTE)
    notes.expect("a slot that is fired again makes no second run", 0, ground.desk.fire())
    slots = [[run.scheduled_at for run in ground.runs(job)] for job in jobs]
    notes.expect("every slot has one run", [[START + MINUTE]] * 10, slots)
    for hand in hands:
        for claim in hand.taken:
            hand.end(claim, DONE)
            hand.end(claim, FAILED)
    notes.expect("an outcome that comes twice counts once", 10, sum(desk.collect() for desk in desks))
    notes.expect("the first one", {"completed"}, {run.state for job in jobs for run in ground.runs(job)})


def run_numbers(ground: Harness, notes: Observations) -> None:
    """Remove old runs: the numbers of new ones go on, and live ones stay."""
    job = ground.every(30 * DAY, max_concurrency=None)
    for _ in range(5):
        ground.later(MINUTE)
        ground.facade.trigger_now(job.id, now=ground.now)
        ground.turn()
    ground.hand.outcome = lambda _claim: None
    ground.later(MINUTE)
    ground.facade.trigger_now(job.id, now=ground.now)
    ground.turn()
    ground.later(DAY)
    rule = retention.Rule(keep=2, young=timedelta(hours=1))
    planned = retention.apply(ground.store, ground.tenant, rule, dry_run=True, now=ground.now)
    removed = retention.apply(ground.store, ground.tenant, rule, now=ground.now)
    notes.expect("what a trial says is what is removed", (4, 4), (planned.total, removed.total))
    notes.expect("the newest, and what is live, stay", [5, 6], [run.run_number for run in ground.runs(job)])
    ground.hand.end(ground.hand.taken[-1], DONE)
    ground.desk.collect()
    ground.later(DAY)
    everything = retention.Rule(keep=0, young=timedelta(hours=1))
    retention.apply(ground.store, ground.tenant, everything, now=ground.now)
    new = ground.facade.trigger_now(job.id, now=ground.now)
    notes.expect("no number comes twice, though no run is left", 7, new.run_number)


def post_cutover_checks(ground: Harness, notes: Observations) -> None:
    """Go through the seven things to look at after a switch, and say for each how it went."""
    rows: list[tuple[str | int | None, ...]] = []

    def look(what: str, wanted: object, found: object) -> None:
        rows.append((what, "as it must" if notes.expect(what, wanted, found) else "not as it must"))

    job = ground.every(10 * MINUTE, name="seen")
    look("1. it is in the list", ["seen"], [one.schedule.name for one in ground.facade.list(now=ground.now).jobs])
    ground.run_until(START + 10 * MINUTE)
    look("2. it runs on schedule", [START + 10 * MINUTE], ground.fired(job))
    ground.later(SECOND)
    ground.facade.trigger_now(job.id, now=ground.now)
    ground.turn()
    look("3. it runs when asked for", "completed", ground.runs(job)[-1].state)
    look(
        "4. its history has both",
        [("interval", "completed"), ("manual", "completed")],
        [(run.cause, run.state) for run in ground.runs(job)],
    )
    leader = Leadership(ground.store, ttl=MINUTE, holder="seven", resource="leader", tenant=ground.tenant)
    look("5. there is a leader", wanted=True, found=leader.stand() is not None)
    leader.resign()
    ground.facade.toggle(job.id, enabled=False, now=ground.now)
    ground.run_until(START + 40 * MINUTE)
    off = len(ground.runs(job))
    ground.facade.toggle(job.id, enabled=True, now=ground.now)
    ground.run_until(START + 60 * MINUTE)
    look("6. switched off it rests, switched on it runs", (2, True), (off, len(ground.runs(job)) > off))
    old = _copied_schedule(ground)
    ground.broom().adopt()
    ground.turn()
    following = ground.job(old).next_fire_at
    look("7. nothing old runs", (0, True), (len(ground.runs(old)), following is not None and following > ground.now))
    columns = ("after the switch", "result")
    title = f"The seven checks after a switch, on {ground.backend}"
    notes.exhibits.append(Exhibit(kind="table", title=title, columns=columns, rows=tuple(rows), rows_total=len(rows)))


def _copied_schedule(ground: Harness) -> Job:
    """Return a schedule as a copy leaves it: it fired last a month ago, and has no next fire."""
    row = ground.row("moved", handler_name="work")
    trigger = Trigger(
        id=ground.new_id(), tenant_id=ground.tenant, schedule_id=row.id, kind="interval", interval_ms=3_600_000,
        anchor="fixed_rate", last_fire_at=ground.now - 30 * DAY,
    )  # fmt: skip
    with ground.session() as session:
        session.schedules.upsert(row)
        session.triggers.upsert(trigger)
    return Job(schedule=row, triggers=(msgspec.structs.replace(trigger),))


def _together(*calls: Callable[[], int]) -> None:
    threads = [Thread(target=call) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
