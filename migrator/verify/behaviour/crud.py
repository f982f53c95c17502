"""Scenarios of area crud: what is written through the facade is what is read through it."""

from datetime import timedelta
from typing import Any

from migrator.errors import ConflictError, NotFoundError, UsageError
from migrator.scheduler.models import Changes, Job
from migrator.store.protocols import ScheduleQuery
from migrator.values import jsonb
from migrator.verify.behaviour.harness import DONE, FAILED, HOUR, MINUTE, SECOND, Harness
from migrator.verify.behaviour.scenarios import Observations

_WORDS = {"low": 25, "medium": 50, "high": 75, "critical": 100}


def schedule_lifecycle(harness: Harness, observed: Observations) -> None:
    """Create, read, change, disable and remove a schedule of every kind."""
    facade = harness.facade
    cron = harness.cron("15 9 * * 1-5", name="report", priority="high", tags=("a", "b"), payload={"to": [1, 2.5, None]})
    every = harness.every(HOUR, name="sweep", max_retries=0, description="all of it")
    once = harness.once(harness.now + HOUR, name="once", priority=7)
    event = facade.on_event("build.done", "notify", name="heard", now=harness.now)
    for job, kind in ((cron, "cron"), (every, "interval"), (once, "one_time"), (event, "event")):
        observed.expect(f"{kind}: what was made is read", job, facade.get(job.id, now=harness.now))
        observed.expect(f"{kind}: one trigger of its kind", [kind], [one.kind for one in job.triggers])
    schedule = cron.schedule
    stated: dict[str, Any] = {
        "name": "report", "priority": _WORDS["high"], "tags": ["a", "b"], "handler_name": "work", "enabled": True,
        "status": "scheduled", "created_by": "verify", "max_retries": 3, "created_at": harness.now,
    }  # fmt: skip
    observed.expect("the requested values are stored", stated, {name: getattr(schedule, name) for name in stated})
    observed.expect("the payload is stored", {"to": [1, 2.5, None]}, jsonb.decode(schedule.payload or b"null"))
    harness.advance(MINUTE)
    changes: Changes = {
        "name": "report 2", "priority": 10, "tags": ("c",), "payload": {"n": 1}, "description": None,
    }  # fmt: skip
    changed = facade.update(cron.id, by="other", now=harness.now, **changes)
    after = harness.job(cron).schedule
    observed.expect("a change is answered as it is stored", changed.schedule, after)
    wanted = ("report 2", 10, ("c",), "other", harness.now)
    observed.expect(
        "a change is stored", wanted, (after.name, after.priority, after.tags, after.updated_by, after.updated_at)
    )
    observed.expect("a change leaves what it does not name", ("work", 3), (after.handler_name, after.max_retries))
    facade.toggle(every.id, enabled=False, now=harness.now)
    observed.expect_false("disabled", harness.job(every).schedule.enabled)
    facade.unschedule(once.id, by="other", now=harness.now)
    observed.expect("a removed schedule is not read", None, facade.get(once.id, now=harness.now))
    observed.expect("three are left", 3, facade.list(now=harness.now).total)
    refused_requests(harness, observed, cron)
    one_life(harness, observed)


def one_life(harness: Harness, observed: Observations) -> None:
    """Make a schedule with every column that a request has, run it, remove it, and use its name again."""
    facade = harness.facade
    asked: dict[str, Any] = {
        "name": "life", "description": "all of it", "max_retries": 7, "max_concurrency": None, "tags": ("x", "y"),
        "queue": "slow", "created_by": "me",
    }  # fmt: skip
    durations: dict[str, Any] = {"retry_delay": SECOND / 100, "timeout": 99 * SECOND}
    job = harness.cron(priority="high", payload={"a": [1, None]}, metadata={"team": "blue"}, **asked, **durations)
    row = harness.job(job).schedule
    stored = asked | {"priority": _WORDS["high"], "retry_strategy": "exponential", "retry_count": 0}
    stored |= {"retry_delay_ms": 10, "timeout_ms": 99_000, "retry_cap_ms": 3_600_000}
    observed.expect("all that was asked for is stored", stored, {name: getattr(row, name) for name in stored})
    observed.expect(
        "as are payload and metadata",
        ({"a": [1, None]}, {"team": "blue"}),
        (jsonb.decode(row.payload or b"null"), jsonb.decode(row.metadata or b"null")),
    )
    named = ScheduleQuery(name_contains="lif")
    observed.expect("it is found by its name", 1, facade.list(named, now=harness.now).total)
    harness.run_until(harness.now + 5 * MINUTE)
    observed.expect("its run is counted", 1, facade.stats(job.id, now=harness.now).successful)
    facade.unschedule(job.id, now=harness.now)
    observed.expect(
        "removed: neither read nor listed",
        (None, 0),
        (facade.get(job.id, now=harness.now), facade.list(named, now=harness.now).total),
    )
    kept = facade.history(job.id, now=harness.now).executions
    observed.expect("removed: its history stays", ["completed"], [one.run.state for one in kept])
    observed.expect_true("removed: its name is free", harness.cron(name="life").id != job.id)


def refused_requests(harness: Harness, observed: Observations, job: Job) -> None:
    """Make requests that must be refused; they change nothing."""
    facade, before = harness.facade, harness.job(job)
    unknown = harness.new_id()
    observed.expect_refused("a name that is taken", ConflictError, lambda: harness.cron(name=job.schedule.name + " 2"))
    for what, call in {
        "history": lambda: facade.history(unknown, now=harness.now),
        "pause": lambda: facade.pause(unknown, now=harness.now),
        "trigger_now": lambda: facade.trigger_now(unknown, now=harness.now),
        "update": lambda: facade.update(unknown, name="x", now=harness.now),
    }.items():
        observed.expect_refused(f"{what} of nothing", NotFoundError, call)
    observed.expect_refused("a cron line that is not valid", UsageError, lambda: harness.cron("61 * * * *"))
    observed.expect_refused("a time zone that does not exist", UsageError, lambda: harness.cron(timezone="Mars/Base"))
    observed.expect_refused("no interval", UsageError, lambda: harness.every(timedelta(0)))
    observed.expect_refused("a time in the past", UsageError, lambda: harness.once(harness.now - MINUTE))
    observed.expect_refused("a blank name", UsageError, lambda: harness.cron(name=" "))
    observed.expect_refused("neither line nor interval", UsageError, lambda: facade.reschedule(job.id, now=harness.now))
    observed.expect("a refused call changed nothing", before, harness.job(job))


def listings(harness: Harness, observed: Observations) -> None:
    """Ask for pages, filters and orders; compare them with a walk over all schedules."""
    jobs: list[Job] = []
    for number in range(18):
        harness.advance(MINUTE)
        common: dict[str, Any] = {
            "name": f"{'even' if number % 2 == 0 else 'Odd'} {number:02}",
            "priority": (number * 37) % 101 if number % 5 else None,
            "tags": (("x",), ("x", "y"), ("y", "z"), ())[number % 4],
            "created_by": "one" if number % 3 else "two",
            "handler_name": f"handler {number % 4}",
        }
        jobs.append(
            harness.cron(f"{number} * * * *", **common) if number % 3 else harness.every(HOUR * (number + 1), **common)
        )
    for job in jobs[::4]:
        harness.facade.pause(job.id, now=harness.now)
    for job in jobs[::5]:
        harness.facade.toggle(job.id, enabled=False, now=harness.now)
    rows = [harness.job(job) for job in jobs]
    cut = jobs[9].schedule.created_at
    cases: dict[str, tuple[ScheduleQuery, Any]] = {
        "all": (ScheduleQuery(), lambda _job: True),
        "by status": (ScheduleQuery(statuses=("paused",)), lambda job: job.schedule.status == "paused"),
        "by handler": (
            ScheduleQuery(handlers=("handler 1", "handler 2")),
            lambda job: job.schedule.handler_name in {"handler 1", "handler 2"},
        ),
        "by one handler": (
            ScheduleQuery(handlers=("handler 3",)),
            lambda job: job.schedule.handler_name == "handler 3",
        ),
        "enabled": (ScheduleQuery(enabled=True), lambda job: job.schedule.enabled),
        "by kind": (ScheduleQuery(kinds=("interval",)), lambda job: job.triggers[0].kind == "interval"),
        "any tag": (ScheduleQuery(tags_any=("x", "z")), lambda job: {"x", "z"} & {*(job.schedule.tags or ())}),
        "all tags": (ScheduleQuery(tags_all=("x", "y")), lambda job: {"x", "y"} <= {*(job.schedule.tags or ())}),
        "by name": (ScheduleQuery(name_contains="oDD"), lambda job: "odd" in job.schedule.name.lower()),
        "by maker": (ScheduleQuery(created_by="two"), lambda job: job.schedule.created_by == "two"),
        "made after": (ScheduleQuery(created_after=cut), lambda job: job in rows[10:]),
    }
    for what, (query, keeps) in cases.items():
        page = harness.facade.list(query, now=harness.now)
        wanted = [job.id for job in reversed(rows) if keeps(job)]
        observed.expect(f"{what}: the schedules", wanted, [job.id for job in page.jobs])
        observed.expect(f"{what}: how many", len(wanted), page.total)
    orders: dict[str, Any] = {
        "name": lambda job: job.schedule.name,
        "priority": lambda job: 50 if job.schedule.priority is None else job.schedule.priority,
        "next_fire_at": lambda job: job.triggers[0].next_fire_at,
    }
    for key, value in orders.items():
        for descending in (False, True):
            # equal ones stay in the order of their ids, also where the order is reversed
            ordered = sorted(sorted(rows, key=lambda job: job.id), key=value, reverse=descending)
            pages: list[Any] = []
            for offset in range(0, 20, 7):
                query = ScheduleQuery(sort_by=key, descending=descending, limit=7, offset=offset)  # type: ignore[arg-type] # one of its words
                pages += [job.id for job in harness.facade.list(query, now=harness.now).jobs]
            observed.expect(f"in pages by {key}, {'down' if descending else 'up'}", [job.id for job in ordered], pages)


def history(harness: Harness, observed: Observations) -> None:
    """Trigger runs by hand, and read them back: pages, states, times, logs."""
    job = harness.every(30 * HOUR * 24, max_retries=0, max_concurrency=None)
    made = []
    for number in range(11):
        harness.advance(MINUTE)
        run = harness.facade.trigger_now(job.id, arguments={"n": number}, by="someone", now=harness.now)
        harness.executor.outcome = lambda _claim, number=number: FAILED if number % 3 == 2 else DONE  # type: ignore[misc]  # noqa: PLR2004 - every third
        harness.run_once()
        made.append((run.id, "error" if number % 3 == 2 else "completed", harness.now))  # noqa: PLR2004 - every third
    newest = made[::-1]
    pages: tuple[tuple[str, dict[str, Any], Any], ...] = (
        ("newest first", {"limit": 4}, newest[:4]),
        ("the second page", {"limit": 4, "offset": 4}, newest[4:8]),
        ("oldest first", {"limit": 50, "descending": False}, made),
        ("by state", {"limit": 50, "states": ("error",)}, [one for one in newest if one[1] == "error"]),
        ("since", {"limit": 50, "since": made[5][2]}, newest[:6]),
        ("until", {"limit": 50, "until": made[5][2]}, newest[6:]),
    )
    for what, query, wanted in pages:
        page = harness.facade.history(job.id, now=harness.now, **query)
        observed.expect(
            f"{what}: the runs", [one[:2] for one in wanted], [(one.run.id, one.run.state) for one in page.executions]
        )
    observed.expect_true(
        "a page says that others follow",
        harness.facade.history(job.id, limit=4, now=harness.now).more,
    )
    observed.expect_false(
        "the last page says that none does",
        harness.facade.history(job.id, limit=11, now=harness.now).more,
    )
    execution = harness.facade.get_execution(made[0][0], now=harness.now)
    observed.expect_true("a run is read with its log", execution is not None and len(execution.logs) > 1)
    observed.expect("numbers count up", list(range(1, 12)), [run.run_number for run in harness.runs(job)])
    statistics(harness, observed, job, [state for _, state, _ in made])


def statistics(harness: Harness, observed: Observations, job: Job, ended: list[str]) -> None:
    """Count the runs again and compare statistics and metrics; both have one definition of success."""
    ok, failed = ended.count("completed"), ended.count("error")
    rate = round(100 * ok / (ok + failed), 2)
    stats, metrics = harness.facade.stats(job.id, now=harness.now), harness.facade.metrics(now=harness.now)
    observed.expect(
        "statistics count the runs", (ok + failed, ok, failed), (stats.total, stats.successful, stats.failed)
    )
    observed.expect("the success rate of the statistics", rate, stats.success_rate)
    observed.expect("the success rate of the metrics is the same", rate, metrics.performance.success_rate)
    totals = metrics.executions
    observed.expect(
        "metrics count the runs", (ok + failed, ok, failed), (totals.total, totals.successful, totals.failed)
    )
    cancelled = harness.facade.trigger_now(job.id, now=harness.now)
    with harness.session() as session:
        session.runs.cancel(cancelled.id, "for the statistics")
    stats, metrics = harness.facade.stats(job.id, now=harness.now), harness.facade.metrics(now=harness.now)
    observed.expect(
        "cancelled runs do not count in the success rate",
        (rate, rate),
        (stats.success_rate, metrics.performance.success_rate),
    )
