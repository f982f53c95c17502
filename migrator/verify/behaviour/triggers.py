"""Scenarios of area triggers: when schedules fire, judged by rules that share no code with the scheduler's."""

from datetime import UTC, datetime
from typing import Final

from migrator.scheduler.requests import EventRequest, Patch, Timing
from migrator.store.protocols import ScheduleQuery
from migrator.verify.behaviour.cron_oracle import expected_fires, next_clock_change
from migrator.verify.behaviour.harness import DAY, DONE, HOUR, MINUTE, START, Harness
from migrator.verify.behaviour.scenarios import Observations

LINES: Final = ("30 2 * * *", "*/40 1-3 * * *", "15 */7 * * *", "0 9 * * 1-5", "45 1 28-31 * 0", "0 3 */2 * 0")
"""Inside gaps and folds, beside them, weekdays, month ends, both day fields joined either way."""

ZONES: Final = ("Europe/Berlin", "America/New_York", "Australia/Lord_Howe")
"""The last one's clock moves by half an hour."""


def clock_changes(ground: Harness, notes: Observations) -> None:
    """Let cron lines fire across the coming changes of the clock, in both directions."""
    today = ground.store.now().astimezone(UTC).replace(minute=0, second=0, microsecond=0)
    for zone in ZONES:
        for forward in (True, False):
            change = next_clock_change(zone, today, forward=forward)
            begin = ground.now = change - 18 * HOUR
            end = change + 18 * HOUR
            jobs = [(line, ground.cron(line, timezone=zone, max_concurrency=None)) for line in LINES]
            while (due := _next(ground)) is not None and due < end:
                ground.now = due
                ground.desk.fire()
            way = "forward" if forward else "back"
            for line, job in jobs:
                wanted = [*expected_fires(line, zone, begin + MINUTE, end)]
                notes.expect(f"{line} in {zone}, the clock going {way}", wanted, ground.fired(job))
                ground.facade.unschedule(job.id, now=ground.now)


def far_fires(ground: Harness, notes: Observations) -> None:
    """Find fires that lie far ahead: leap days, ends of months, Friday the 13th or the 1st."""
    ground.now = datetime(2061, 1, 31, 12, tzinfo=UTC)
    for line, wanted in {
        "0 0 29 2 *": datetime(2064, 2, 29, tzinfo=UTC),
        "0 0 31 * *": datetime(2061, 3, 31, tzinfo=UTC),
        "59 23 * 2 *": datetime(2061, 2, 1, 23, 59, tzinfo=UTC),
        "0 0 1 1 *": datetime(2062, 1, 1, tzinfo=UTC),
        "0 12 * * 1": datetime(2061, 1, 31, 12, tzinfo=UTC) + 7 * DAY,
    }.items():
        notes.expect(f"{line}: its next fire", wanted, ground.cron(line).next_fire_at)


def intervals(ground: Harness, notes: Observations) -> None:
    """Let intervals fire: from the planned fire on, or from the end of the last run."""
    fixed = ground.every(5 * MINUTE, name="fixed")
    ground.run_until(START + 31 * MINUTE)
    notes.expect("a fixed rate", [START + 5 * MINUTE * n for n in range(1, 7)], ground.fired(fixed))
    ground.facade.unschedule(fixed.id, now=ground.now)
    begun = ground.now
    counted = ground.every(10 * MINUTE, anchor="completion", name="counted")
    ground.hand.outcome = lambda _claim: None
    ground.run_until(begun + 10 * MINUTE)
    ground.later(4 * MINUTE)
    ground.hand.end(ground.hand.taken[-1], DONE)
    ground.turn()
    notes.expect("from the end of the run", begun + 24 * MINUTE, ground.job(counted).next_fire_at)


def bounds(ground: Harness, notes: Observations) -> None:
    """Stop where a schedule says so: after so many fires, at its end; begin where it says so."""
    three = ground.every(MINUTE, name="three", max_fires=3)
    window = ground.every(MINUTE, name="window", start_at=START + 3 * MINUTE, end_at=START + 5 * MINUTE)
    ground.run_until(START + 10 * MINUTE)
    notes.expect("exactly as often as it may", 3, len(ground.fired(three)))
    notes.expect("counted as often as it fired", 3, ground.job(three).triggers[0].fire_count)
    notes.expect("completed after its last run", "completed", ground.status(three))
    fires = ground.fired(window)
    inside = all(one is not None and START + 3 * MINUTE <= one <= START + 5 * MINUTE for one in fires)
    notes.expect(
        "no fire outside its window, the last instant included",
        (True, START + 5 * MINUTE),
        (inside, fires[-1] if fires else None),
    )
    notes.expect("completed at its end", "completed", ground.status(window))


def misfires(ground: Harness, notes: Observations) -> None:
    """Come back after a standstill of an hour: what was missed goes by its policy."""
    wanted = {"fire_once": 1, "skip": 0, "fire_all": 12}
    jobs = {
        policy: ground.every(5 * MINUTE, name=policy, misfire_policy=policy, max_concurrency=None) for policy in wanted
    }
    jobs["overdue"] = ground.every(5 * MINUTE, name="overdue", skip_if_overdue=True, max_concurrency=None)
    ground.later(HOUR + 3 * MINUTE)
    ground.turn()
    for policy, job in jobs.items():
        runs = ground.runs(job)
        count = sum(run.state != "skipped" for run in runs)
        notes.expect(f"{policy}: what was missed", wanted.get(policy, 0), count)
        notes.expect(f"{policy}: in phase afterwards", START + HOUR + 5 * MINUTE, ground.job(job).next_fire_at)
    for policy in ("skip", "overdue"):
        notes.expect(f"{policy}: it says so", ["skipped"], [run.state for run in ground.runs(jobs[policy])])


def pause_and_resume(ground: Harness, notes: Observations) -> None:
    """Pause across several fires, and resume: nothing fires at once, and the phase stays."""
    job = ground.every(10 * MINUTE)
    ground.run_until(START + 12 * MINUTE)
    ground.facade.pause(job.id, now=ground.now)
    ground.run_until(START + 47 * MINUTE)
    notes.expect("paused: nothing fires", 1, len(ground.fired(job)))
    ground.facade.resume(job.id, now=ground.now)
    ground.turn()
    notes.expect("resumed: no surprise", 1, len(ground.fired(job)))
    notes.expect("resumed: in its old phase", START + 50 * MINUTE, ground.job(job).next_fire_at)
    ground.run_until(START + 51 * MINUTE)
    notes.expect("resumed: it fires again", [START + 10 * MINUTE, START + 50 * MINUTE], ground.fired(job))


def unrelated_changes(ground: Harness, notes: Observations) -> None:
    """Change everything but the timing: no fire moves; another timing does move it, from now on."""
    job = ground.every(30 * MINUTE)
    planned = ground.job(job).next_fire_at
    for what, patch in {
        "name": Patch(name="another"),
        "priority": Patch(priority=99),
        "payload": Patch(payload={"a": 1}),
        "retries": Patch(max_retries=0),
        "tags": Patch(tags=("t",)),
    }.items():
        ground.later(MINUTE)
        ground.facade.update(job.id, patch, now=ground.now)
        notes.expect(f"a change of {what} moves no fire", planned, ground.job(job).next_fire_at)
    ground.facade.reschedule(job.id, Timing(interval=HOUR), now=ground.now)
    notes.expect("another timing counts from now", ground.now + HOUR, ground.job(job).next_fire_at)


def restarts(ground: Harness, notes: Observations) -> None:
    """Begin a process, and adopt what it finds, every minute: an interval of five minutes fires all the same."""
    job = ground.every(5 * MINUTE)
    while ground.now < START + 21 * MINUTE:
        ground.later(MINUTE)
        ground.desk = ground.desk_of(ground.hand)
        ground.broom().adopt()
        ground.facade.update(job.id, Patch(description=f"at {ground.now:%H:%M}"), now=ground.now)
        ground.turn()
    notes.expect("it is not put off by each start", [START + 5 * MINUTE * n for n in range(1, 5)], ground.fired(job))


def disabled(ground: Harness, notes: Observations) -> None:
    """Disable, pause, cancel and remove: from the next tick on nothing fires, and nothing that waits is begun."""
    off, paused, ended, gone = (ground.every(MINUTE, name=name) for name in ("off", "paused", "ended", "gone"))
    ground.run_until(START + 2 * MINUTE)
    counts = [len(ground.fired(job)) for job in (off, paused, ended, gone)]
    notes.expect("all have fired twice", [2] * 4, counts)
    waits = ground.facade.trigger_now(off.id, now=ground.now)
    ground.facade.toggle(off.id, enabled=False, now=ground.now)
    ground.facade.pause(paused.id, now=ground.now)
    ground.facade.cancel(ended.id, now=ground.now)
    ground.facade.unschedule(gone.id, now=ground.now)
    ground.run_until(START + 8 * MINUTE)
    for job, what in ((off, "disabled"), (paused, "paused"), (ended, "cancelled")):
        slots = [one for one in ground.fired(job) if one is not None]
        notes.expect(f"{what}: nothing fires any more", 2, len(slots))
    with ground.session() as session:
        notes.expect("removed: nothing fires any more", 2, len(session.runs.of_schedule(gone.id, 50)))
    found = ground.facade.get_execution(waits.id, now=ground.now)
    notes.expect("disabled: what waits is not begun", "queued", None if found is None else found.run.state)
    ground.facade.toggle(off.id, enabled=True, now=ground.now)
    ground.turn()
    notes.expect("enabled again: no fire is made up for", 2, len([one for one in ground.fired(off) if one is not None]))


def one_time(ground: Harness, notes: Observations) -> None:
    """Fire once: completed when its run has ended, not when it was handed over."""
    job = ground.once(START + 5 * MINUTE)
    ground.hand.outcome = lambda _claim: None
    ground.run_until(START + 4 * MINUTE)
    notes.expect("not before its time", (0, "scheduled"), (len(ground.fired(job)), ground.status(job)))
    ground.later(MINUTE)
    ground.desk.fire()
    notes.expect("queued, and not completed", "running", ground.status(job))
    ground.turn()
    notes.expect(
        "handed over, and not completed", ("running", None), (ground.status(job), ground.job(job).schedule.completed_at)
    )
    ground.later(MINUTE)
    ground.hand.end(ground.hand.taken[-1], DONE)
    ground.turn()
    notes.expect(
        "completed after its run",
        ("completed", ground.now),
        (ground.status(job), ground.job(job).schedule.completed_at),
    )
    ground.run_until(START + 20 * MINUTE)
    notes.expect("once", [START + 5 * MINUTE], ground.fired(job))


def events(ground: Harness, notes: Observations) -> None:
    """Fire handlers of an event, highest priority first, each once per delivery."""
    for name, priority in (("low", 10), ("high", 90), ("middle", 50)):
        ground.facade.on_event("push", name, EventRequest(priority=priority), now=ground.now)
    first = ground.facade.trigger_event("push", {"n": 1}, event_id="e-1", now=ground.now)
    again = ground.facade.trigger_event("push", {"n": 1}, event_id="e-1", now=ground.now)
    names = []
    for run in first.runs:
        assert run.schedule_id is not None  # noqa: S101 - runs of an event have one
        job = ground.facade.get(run.schedule_id, now=ground.now)
        names.append(None if job is None else job.schedule.handler_name)
    notes.expect("every handler, by priority", ["high", "middle", "low"], names)
    notes.expect("a second delivery makes no second run", (0, 3), (len(again.runs), again.repeated))
    notes.expect("another event wakes nobody", 0, len(ground.facade.trigger_event("pull", now=ground.now).runs))


def _next(ground: Harness) -> datetime | None:
    """Return the earliest next fire of the tenant."""
    query = ScheduleQuery(statuses=("scheduled",), sort_by="next_fire_at", descending=False, limit=1)
    page = ground.facade.list(query, now=ground.now)
    return page.jobs[0].next_fire_at if page.jobs else None
