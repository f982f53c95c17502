"""Scenarios of area triggers: when schedules fire, judged by rules that share no code with the scheduler's."""

from datetime import UTC, datetime
from typing import Final

from migrator.scheduler.models import Changes
from migrator.store.protocols import ScheduleQuery
from migrator.verify.behaviour.cron_oracle import expected_fires, next_clock_change
from migrator.verify.behaviour.harness import DAY, HOUR, MINUTE, SECOND, START, Harness
from migrator.verify.behaviour.scenarios import Observations

LINES: Final = ("30 2 * * *", "*/40 1-3 * * *", "15 */7 * * *", "0 9 * * 1-5", "45 1 28-31 * 0", "0 3 */2 * 0")
"""Inside gaps and folds, next to them, weekdays, month ends, both day fields joined either way."""

ZONES: Final = ("Europe/Berlin", "America/New_York", "Australia/Lord_Howe")
"""The last one's clock moves by half an hour."""


def clock_changes(harness: Harness, observed: Observations) -> None:
    """Let cron lines fire across the coming changes of the clock, in both directions."""
    today = harness.store.now().astimezone(UTC).replace(minute=0, second=0, microsecond=0)
    for zone in ZONES:
        for forward in (True, False):
            change = next_clock_change(zone, today, forward=forward)
            begin = harness.now = change - 18 * HOUR
            end = change + 18 * HOUR
            jobs = [(line, harness.cron(line, timezone=zone, max_concurrency=None)) for line in LINES]
            while (due := _next(harness)) is not None and due < end:
                harness.now = due
                harness.worker.fire()
            way = "forward" if forward else "back"
            for line, job in jobs:
                wanted = expected_fires(line, zone, begin + MINUTE, end)
                observed.expect(f"{line} in {zone}, the clock going {way}", wanted, harness.fired(job))
                harness.facade.unschedule(job.id, now=harness.now)


def far_fires(harness: Harness, observed: Observations) -> None:
    """Find fires that lie far ahead: leap days, ends of months, Friday the 13th or the 1st."""
    harness.now = datetime(2061, 1, 31, 12, tzinfo=UTC)
    for line, wanted in {
        "0 0 29 2 *": datetime(2064, 2, 29, tzinfo=UTC),
        "0 0 31 * *": datetime(2061, 3, 31, tzinfo=UTC),
        "59 23 * 2 *": datetime(2061, 2, 1, 23, 59, tzinfo=UTC),
        "0 0 1 1 *": datetime(2062, 1, 1, tzinfo=UTC),
        "0 12 * * 1": datetime(2061, 1, 31, 12, tzinfo=UTC) + 7 * DAY,
    }.items():
        observed.expect(f"{line}: its next fire", wanted, harness.cron(line).next_fire_at)


def intervals(harness: Harness, observed: Observations) -> None:
    """Let intervals fire: from the planned fire on, or from the end of the last run."""
    fixed = harness.every(5 * MINUTE, name="fixed")
    harness.run_until(START + 31 * MINUTE)
    observed.expect("a fixed rate", [START + 5 * MINUTE * n for n in range(1, 7)], harness.fired(fixed))
    harness.facade.unschedule(fixed.id, now=harness.now)
    begun = harness.now
    counted = harness.every(10 * MINUTE, anchor="completion", name="counted")
    harness.executor.outcome = lambda _claim: None
    harness.run_until(begun + 10 * MINUTE)
    harness.advance(4 * MINUTE)
    harness.executor.end()
    harness.run_once()
    observed.expect("from the end of the run", begun + 24 * MINUTE, harness.job(counted).next_fire_at)


def bounds(harness: Harness, observed: Observations) -> None:
    """Begin where a schedule says so; stop at its end, or after so many fires, also when turns of workers overlap."""
    times = {
        count: harness.every(MINUTE, name=f"fires {count}", max_fires=count, max_concurrency=None)
        for count in (1, 2, 3, 5)
    }
    window = harness.every(MINUTE, name="window", start_at=START + 3 * MINUTE, end_at=START + 5 * MINUTE)
    observed.expect("planned for its start", START + 3 * MINUTE, window.next_fire_at)
    one, other = harness.worker, harness.worker_for(harness.executor)
    while harness.advance(MINUTE) <= START + 10 * MINUTE:
        for step in (one.fire, other.fire, other.claim, one.claim, other.collect, one.collect):
            step()
    for count, job in times.items():
        observed.expect(f"{count}: exactly as often as it may", ["completed"] * count, harness.run_states(job))
        observed.expect(f"{count}: counted as often as it fired", count, harness.job(job).triggers[0].fire_count)
        observed.expect(f"{count}: completed after its last run", "completed", harness.status(job))
    fires = harness.fired(window)
    inside = all(START + 3 * MINUTE <= one <= START + 5 * MINUTE for one in fires)
    observed.expect(
        "no fire outside of its window, the last instant included",
        (True, START + 5 * MINUTE),
        (inside, fires[-1] if fires else None),
    )
    observed.expect("every fire inside its window", [START + MINUTE * n for n in (3, 4, 5)], fires)
    observed.expect("completed at its end", "completed", harness.status(window))
    ended = harness.job(window)
    observed.expect("at its end without a next fire", None, ended.next_fire_at)
    observed.expect_true("its end is noted", ended.schedule.completed_at is not None)


def misfires(harness: Harness, observed: Observations) -> None:
    """Continue after a standstill of an hour: the misfire policy decides about missed slots."""
    wanted = {"fire_once": 1, "skip": 0, "fire_all": 12}
    jobs = {
        policy: harness.every(5 * MINUTE, name=policy, misfire_policy=policy, max_concurrency=None) for policy in wanted
    }
    for name, skips in (("overdue", True), ("late", False)):
        jobs[name] = harness.every(5 * MINUTE, name=name, skip_if_overdue=skips, max_concurrency=None)
    wanted["late"] = 1
    harness.advance(HOUR + 3 * MINUTE)
    harness.run_once()
    for policy, job in jobs.items():
        runs = harness.runs(job)
        count = sum(run.state != "skipped" for run in runs)
        observed.expect(f"{policy}: what was missed", wanted.get(policy, 0), count)
        observed.expect(f"{policy}: in phase afterwards", START + HOUR + 5 * MINUTE, harness.job(job).next_fire_at)
    for policy in ("skip", "overdue"):
        observed.expect(f"{policy}: it says so", ["skipped"], harness.run_states(jobs[policy]))
    harness.advance(2 * MINUTE)
    harness.run_once()
    for policy, job in jobs.items():
        last = harness.runs(job)[-1]
        observed.expect(
            f"{policy}: it fires on", (START + HOUR + 5 * MINUTE, "completed"), (last.scheduled_at, last.state)
        )


def pause_and_resume(harness: Harness, observed: Observations) -> None:
    """Pause across several fires, and resume: nothing fires at once, and the phase stays."""
    begin = START + 7 * MINUTE
    jobs = {
        policy or "no policy": harness.every(10 * MINUTE, name=f"{policy}", start_at=begin, misfire_policy=policy)
        for policy in (None, "skip")
    }
    harness.run_until(START + 12 * MINUTE)
    for policy, job in jobs.items():
        planned = harness.job(job).next_fire_at
        paused = harness.facade.pause(job.id, by="other", now=harness.now)
        observed.expect(
            f"{policy}, paused: since when, and by whom",
            ("paused", harness.now, "other"),
            (paused.schedule.status, paused.schedule.paused_at, paused.schedule.updated_by),
        )
        observed.expect(f"{policy}, paused: its next fire stays", planned, paused.next_fire_at)
    harness.run_until(START + 45 * MINUTE)
    for policy, job in jobs.items():
        observed.expect(f"{policy}, paused: nothing fires", [begin], harness.fired(job))
        resumed = harness.facade.resume(job.id, now=harness.now)
        observed.expect(
            f"{policy}, resumed: in its old phase",
            ("scheduled", None, begin + 40 * MINUTE),
            (resumed.schedule.status, resumed.schedule.paused_at, resumed.next_fire_at),
        )
        observed.expect(
            f"{policy}, resumed: its next fire is stored", resumed.next_fire_at, harness.job(job).next_fire_at
        )
    observed.expect("resumed: no surprise", 0, harness.run_once())
    harness.run_until(begin + 41 * MINUTE)
    for policy, job in jobs.items():
        observed.expect(f"{policy}, resumed: it fires again", [begin, begin + 40 * MINUTE], harness.fired(job))


def unrelated_changes(harness: Harness, observed: Observations) -> None:
    """Change everything but the timing: no fire moves; another timing does move it, from now on."""
    job = harness.every(30 * MINUTE)
    planned = harness.job(job).next_fire_at
    changes: dict[str, Changes] = {
        "name": {"name": "another"},
        "priority": {"priority": 99},
        "payload": {"payload": {"a": 1}},
        "retries": {"max_retries": 0},
        "tags": {"tags": ("t",)},
    }
    for what, change in changes.items():
        harness.advance(MINUTE)
        harness.facade.update(job.id, now=harness.now, **change)
        observed.expect(f"a change of {what} moves no fire", planned, harness.job(job).next_fire_at)
    harness.facade.reschedule(job.id, interval=HOUR, now=harness.now)
    observed.expect("another timing counts from now", harness.now + HOUR, harness.job(job).next_fire_at)


def restarts(harness: Harness, observed: Observations) -> None:
    """Start a process every minute, which adopts what it finds: an interval of five minutes fires all the same."""
    job = harness.every(5 * MINUTE)
    while harness.now < START + 21 * MINUTE:
        harness.advance(MINUTE)
        harness.worker = harness.worker_for(harness.executor)
        harness.sweeper().give_missing_fires()
        harness.facade.update(job.id, description=f"at {harness.now:%H:%M}", now=harness.now)
        harness.run_once()
    observed.expect("a start does not delay it", [START + 5 * MINUTE * n for n in range(1, 5)], harness.fired(job))


def disabled(harness: Harness, observed: Observations) -> None:
    """Disable, pause, cancel and remove: from the next tick on nothing fires, and nothing that waits is begun."""
    off, paused, ended, gone = (harness.every(MINUTE, name=name) for name in ("off", "paused", "ended", "gone"))
    harness.run_until(START + 2 * MINUTE)
    counts = [len(harness.fired(job)) for job in (off, paused, ended, gone)]
    observed.expect("all have fired twice", [2] * 4, counts)
    waits = harness.facade.trigger_now(off.id, now=harness.now)
    toggled = harness.facade.toggle(off.id, enabled=False, now=harness.now).schedule
    observed.expect("disabled, and not paused", (False, "scheduled"), (toggled.enabled, toggled.status))
    harness.facade.pause(paused.id, now=harness.now)
    harness.facade.cancel(ended.id, now=harness.now)
    harness.facade.unschedule(gone.id, now=harness.now)
    harness.run_until(START + 8 * MINUTE)
    for job, what in ((off, "disabled"), (paused, "paused"), (ended, "cancelled")):
        observed.expect(f"{what}: nothing fires any more", 2, len(harness.fired(job)))
    with harness.session() as session:
        observed.expect("removed: nothing fires any more", 2, len(session.runs.of_schedule(gone.id, 50)))
    found = harness.facade.get_execution(waits.id, now=harness.now)
    observed.expect("disabled: waiting runs are not started", "queued", None if found is None else found.run.state)
    harness.advance(SECOND)
    enabled = harness.facade.toggle(off.id, enabled=True, now=harness.now)
    observed.expect("enabled again: in its phase", START + 9 * MINUTE, enabled.next_fire_at)
    harness.run_once()
    observed.expect("enabled again: no missed slot is fired", 2, len(harness.fired(off)))
    harness.now = START + 9 * MINUTE
    harness.run_once()
    observed.expect("enabled again: it fires", START + 9 * MINUTE, max(harness.fired(off)))


def one_time(harness: Harness, observed: Observations) -> None:
    """Fire once: the schedule is completed when its run has ended, not when it was claimed."""
    job = harness.once(START + 5 * MINUTE)
    observed.expect("its time is its next fire", START + 5 * MINUTE, job.next_fire_at)
    harness.executor.outcome = lambda _claim: None
    harness.run_until(START + 4 * MINUTE)
    observed.expect("not before its time", (0, "scheduled"), (len(harness.fired(job)), harness.status(job)))
    harness.advance(MINUTE)
    harness.worker.fire()
    observed.expect("queued, and not completed", "running", harness.status(job))
    harness.run_once()
    observed.expect(
        "handed over, and not completed",
        ("running", None),
        (harness.status(job), harness.job(job).schedule.completed_at),
    )
    observed.expect("handed over, its run is running", ["running"], harness.run_states(job))
    harness.advance(MINUTE)
    harness.executor.end()
    harness.run_once()
    observed.expect(
        "completed after its run",
        ("completed", harness.now),
        (harness.status(job), harness.job(job).schedule.completed_at),
    )
    harness.run_until(START + 20 * MINUTE)
    harness.run_until(START + 3 * HOUR, HOUR)
    observed.expect("once", [START + 5 * MINUTE], harness.fired(job))
    observed.expect("its run is completed", ["completed"], harness.run_states(job))


def events(harness: Harness, observed: Observations) -> None:
    """Fire handlers of an event, highest priority first, each once per delivery; a disabled handler is not called."""
    priorities: dict[str, int | str] = {"low": 10, "high": "critical", "middle": 50}
    jobs = {
        name: harness.facade.on_event("push", name, priority=priority, now=harness.now)
        for name, priority in priorities.items()
    }
    harness.facade.on_event("push", "off", enabled=False, now=harness.now)
    silenced = harness.facade.on_event("push", "silenced", now=harness.now)
    harness.facade.pause(silenced.id, now=harness.now)
    first = harness.facade.trigger_event("push", {"n": 1}, event_id="e-1", now=harness.now)
    again = harness.facade.trigger_event("push", {"n": 1}, event_id="e-1", now=harness.now)
    names = []
    for run in first.runs:
        assert run.schedule_id is not None  # noqa: S101 - runs of an event have one
        job = harness.facade.get(run.schedule_id, now=harness.now)
        names.append(None if job is None else job.schedule.handler_name)
    observed.expect("every handler, by priority", ["high", "middle", "low"], names)
    observed.expect("a second delivery makes no second run", (0, 3), (len(again.runs), again.repeated))
    harness.run_once()
    observed.expect(
        "handed over by priority",
        [jobs[name].id for name in ("high", "middle", "low")],
        [claim.run.schedule_id for claim in harness.executor.taken],
    )
    harness.advance(MINUTE)
    repeated = harness.facade.trigger_event("push", {"n": 1}, event_id="e-1", now=harness.now)
    observed.expect("nor does one that comes when they have ended", (0, 3), (len(repeated.runs), repeated.repeated))
    observed.expect("one run of each", [1] * 3, [len(harness.runs(job)) for job in jobs.values()])
    for event_id in ("e-2", None, None):
        other = harness.facade.trigger_event("push", {"n": 1}, event_id=event_id, now=harness.now)
        observed.expect(f"delivered as {event_id}: another event", 3, len(other.runs))
    unheard = harness.facade.trigger_event("pull", now=harness.now)
    observed.expect("an event of another name wakes nobody", (0, 0), (len(unheard.runs), unheard.repeated))


def _next(harness: Harness) -> datetime | None:
    """Return the earliest next fire of the tenant."""
    query = ScheduleQuery(statuses=("scheduled",), sort_by="next_fire_at", descending=False, limit=1)
    page = harness.facade.list(query, now=harness.now)
    return page.jobs[0].next_fire_at if page.jobs else None
