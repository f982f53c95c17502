"""The load test of area performance: many jobs that are due at once, and several processes that work on them.

It is made only when asked for (``--load``). A measured value above its ceiling fails the check: who asks for the load
test asks for its ceilings. What must hold under any load has no ceiling: every run is executed once.
"""

from collections import Counter
from datetime import datetime
from typing import Final
from uuid import UUID

import msgspec

from migrator.records import Run
from migrator.result import Finding, Measurement, Panel, Tally, not_asked_for, table_panel
from migrator.scratch import inner_store, new_scratch_tenant, scratch_tenants
from migrator.store.protocols import RunQuery, Store
from migrator.verify.behaviour.scratch_processes import ScratchProcessError, scratch_processes
from migrator.verify.check import CheckContext, CheckResult, CheckSpec, outcome_of
from migrator.verify.load_processes import READY_S, LoadReport, LoadTask, run_load
from migrator.verify.request import CEILINGS, LOAD, LoadSize
from migrator.verify.timing import percentile

NOT_ASKED_FOR: Final = "made only with --load"
BATCH: Final = 100
SMALL: Final = "the load was smaller than what the requirement states: 10,000 jobs and 10 processes"
_PAGE: Final = 1_000


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """What happened under the load."""

    begun: datetime
    reports: list[LoadReport]
    runs: list[Run]

    def values(self) -> dict[str, float]:
        """Return the measured values by the name of their ceiling; one that was not measured is left out."""
        polls = [one for report in self.reports for one in report.polls]
        claims = [one for report in self.reports for one in report.claims]
        ends = [self._since(one.finished_at) for one in self.runs if one.finished_at is not None]
        fired = [self._since(one.created_at) for one in self.runs]
        values = {}
        if ends:
            values["end-s"] = max(ends)
        if fired:
            values["firing-p95-s"] = percentile(fired, 0.95)
        if polls:
            values["poll-p95-ms"] = percentile(polls, 0.95)
        if claims:
            values |= {"claim-p95-ms": percentile(claims, 0.95), "claim-p99-ms": percentile(claims, 0.99)}
        return values

    def claim_median_ms(self) -> float:
        """Return the median of the claims that found runs; 0 if there is none."""
        claims = [one for report in self.reports for one in report.claims]
        return percentile(claims, 0.5) if claims else 0.0

    def ended_each_second(self) -> tuple[tuple[str, float], ...]:
        """Return how many runs ended in each second since the beginning."""
        ended = Counter(int(self._since(one.finished_at)) for one in self.runs if one.finished_at is not None)
        return tuple((f"{second} s", float(ended[second])) for second in range(max(ended, default=-1) + 1))

    def _since(self, moment: datetime) -> float:
        return max((moment - self.begun).total_seconds(), 0.001)


def _faults(load: Load, jobs: int) -> list[str]:
    """Return the faults that are faults under any load, each in words."""
    executed = Counter(identity for report in load.reports for identity in report.executed)
    of_schedule = Counter(run.schedule_id for run in load.runs)
    counted = {
        "runs were executed more than once": sum(count > 1 for count in executed.values()),
        "runs were never executed": sum(run.id not in executed for run in load.runs),
        "executions have no run": len(executed.keys() - {run.id for run in load.runs}),
        "jobs have no run": jobs - len(of_schedule),
        "jobs have more than one run": sum(count > 1 for count in of_schedule.values()),
        "runs did not complete": sum(run.state != "completed" for run in load.runs),
        "outcomes were refused, because the process had lost its run": sum(one.refused for one in load.reports),
    }
    return [f"{count:,} {words}" for words, count in counted.items() if count]


def _runs(store: Store, tenant: str) -> list[Run]:
    """Return all runs of a tenant."""
    runs: list[Run] = []
    cursor: tuple[datetime, UUID] | None = None
    while True:
        with store.session(tenant) as session:
            page = session.runs.list(RunQuery(limit=_PAGE, cursor=cursor, descending=False))
        runs += page.runs
        cursor = page.cursor
        if cursor is None:
            return runs


def _load_of(context: CheckContext, size: LoadSize, backend: str) -> Load:
    """Let the processes work on one backend, in a scratch tenant."""
    with scratch_tenants(context.settings, backend, context.components, new_scratch_tenant()) as place:
        store = inner_store(place.store)
        each, rest = divmod(size.jobs, size.processes)
        tasks = [
            LoadTask(
                settings=context.settings,
                backend=backend,
                base=place.base,
                components=context.components,
                jobs=each + (number < rest),
                number=number,
                due_at=store.now(),
                batch=BATCH,
            )
            for number in range(size.processes)
        ]
        with scratch_processes(tasks, ready_within_s=READY_S) as processes:
            begun = store.now()
            reports = run_load(processes, size.jobs)
        return Load(begun=begun, reports=reports, runs=_runs(store, place.tenants[0]))


def processes_under_load(context: CheckContext) -> CheckResult:
    """Let the processes work on each backend; compare what they executed with the runs, and times with ceilings."""
    size = context.request.load_size
    if size is None:
        return CheckResult(outcome=not_asked_for(NOT_ASKED_FOR))
    faults: list[str] = []
    over: list[str] = []
    measured: list[Measurement] = []
    panels: list[Panel] = []
    executed = 0
    for backend in context.request.backends:
        try:
            load = _load_of(context, size, backend)
        except ScratchProcessError as error:
            faults.append(f"{backend}: {error}")
            continue
        executed += sum(len(one.executed) for one in load.reports)
        faults += [f"{backend}: {words}" for words in _faults(load, size.jobs)]
        own = _measurements(load, size, backend)
        over += [f"{one.name}: above {one.ceiling:g} {one.unit}" for one in own if one.is_over]
        measured += own
        panels += [_table(load, size, backend), _processes(load, backend)]
    stated = LoadSize()
    small = size.jobs < stated.jobs or size.processes < stated.processes
    counts = {"jobs": size.jobs, "processes": size.processes, "batch": BATCH, "executions": executed}
    return CheckResult(
        outcome=outcome_of(wrong=bool(faults or over), unsure=[SMALL] * small),
        counts=counts | {"differences": len(faults), "above their ceiling": len(over)},
        tallies=(
            *_tally(faults, "load", "runs were not executed exactly once", "read the log of the processes: checks.log"),
            *_tally(over, "ceiling", "a measured value is above its ceiling", "see the table of the load test"),
        ),
        findings=tuple(
            Finding(severity="difference", cause=cause, details=(words,))
            for cause, found in (("load", faults), ("ceiling", over))
            for words in found
        ),
        findings_total=len(faults) + len(over),
        measurements=tuple(measured),
        varying=tuple(panels),
    )


def _tally(found: list[str], cause: str, title: str, fix: str) -> tuple[Tally, ...]:
    return (Tally(severity="difference", cause=cause, title=title, fix=fix, count=len(found)),) * bool(found)


def _ceiling(name: str, size: LoadSize, backend: str) -> float | None:
    return size.ceilings.get(name, CEILINGS[name].most) if backend == "postgres" else None


def _measurements(load: Load, size: LoadSize, backend: str) -> list[Measurement]:
    values = load.values()
    measurements = [
        Measurement(
            check=LOAD,
            name=f"load on {backend}, {CEILINGS[name].words}",
            unit=CEILINGS[name].unit,
            value=round(values[name], 3),
            ceiling=_ceiling(name, size, backend),
        )
        for name in CEILINGS
        if name in values
    ]
    rate = len(load.runs) / values["end-s"] if "end-s" in values else 0.0
    title = f"load on {backend}, runs ended a second"
    return [
        *measurements,
        Measurement(check=LOAD, name=title, unit="", value=round(rate, 1), points=load.ended_each_second()),
    ]


def _table(load: Load, size: LoadSize, backend: str) -> Panel:
    """Return every value with its ceiling, and who states that."""
    values = load.values()
    rows: list[tuple[str | int | None, ...]] = []
    for name, ceiling in CEILINGS.items():
        most = _ceiling(name, size, backend)
        by = None if most is None else f"--load-ceiling {name}" if name in size.ceilings else ceiling.stated_by
        value = f"{values[name]:.3f}" if name in values else None
        rows.append((ceiling.words, ceiling.unit, value, None if most is None else f"{most:g}", by))
    lost = sum(one.refused for one in load.reports)
    rows += [
        ("claim, median", "ms", f"{load.claim_median_ms():.3f}", None, None),
        ("outcomes refused", "runs", str(lost), "0", "every run is executed once"),
    ]
    title = f"Load on {backend}: {size.jobs:,} jobs due at once, {size.processes} processes, batches of {BATCH}"
    return table_panel(title, ("value", "unit", "measured", "ceiling", "stated by"), rows)


def _processes(load: Load, backend: str) -> Panel:
    rows = [
        (f"process {number}", len(one.polls), len(one.claims), len(one.executed), one.refused)
        for number, one in enumerate(load.reports, 1)
    ]
    return table_panel(f"Load on {backend}: each process", ("process", "polls", "claims", "runs", "refused"), rows)


CHECKS: Final = (
    CheckSpec(
        id=LOAD,
        title="Under load every run is executed once, and the measured times keep to their ceilings",
        fails_if=(
            "only with `--load`: a run is executed twice or never, an outcome is refused, or a measured value is above "
            "its ceiling"
        ),
        requirements=("3-P1", "3-P5"),
        limits=(
            "All processes are on this machine, and their computing time is part of every measurement.",
            "The handler does nothing, and all jobs are of one tenant.",
        ),
        run=processes_under_load,
    ),
)
