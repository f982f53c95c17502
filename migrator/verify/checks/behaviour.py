"""The areas of behaviour: scenarios on a scratch tenant, area by area, and random calls on both backends."""

from migrator.result import FAILED, PASSED, Finding, Tally, not_asked_for, table_panel
from migrator.verify.behaviour import crud, execution, isolation, locking, lockstep, transitions, triggers, workers
from migrator.verify.behaviour.scenarios import Scenario, scenario_check
from migrator.verify.check import CheckContext, CheckResult, CheckSpec

LOCKSTEP_NOT_ASKED_FOR = "made only with --behaviour N --scratch-on-source"


def backends_agree(context: CheckContext) -> CheckResult:
    """Make the calls, and report the first difference of the backends with as few operations as possible."""
    if not context.request.operations:
        return CheckResult(outcome=not_asked_for(LOCKSTEP_NOT_ASKED_FOR))
    done, refused, difference = lockstep.run_lockstep(context)
    rows = (("seed", context.seed), ("operations", done), ("refused, on both", refused))
    varying = (table_panel("Random calls", ("what", "which"), rows),)
    counts = {"operations": done, "differences": int(difference is not None)}
    if difference is None:
        return CheckResult(outcome=PASSED, counts=counts, varying=varying)
    steps = tuple(f"{word} {number}" for _, word, number in difference.operations)
    return CheckResult(
        outcome=FAILED,
        counts=counts,
        varying=varying,
        tallies=(
            Tally(
                severity="difference",
                cause="behaviour",
                path="lockstep",
                title="the backends answer the same calls differently",
                fix=f"call again with --behaviour {context.request.operations} --seed {context.seed}",
                count=1,
                keys=(f"seed {context.seed}",),
            ),
        ),
        findings=(
            Finding(
                severity="difference",
                cause="behaviour",
                key=f"seed {context.seed}",
                side="postgres against mongo",
                details=(*difference.words, "after: " + "; ".join(steps)),
            ),
        ),
        findings_total=1,
    )


_TRIED_ONCE = ("Every pair is tried once, on a row of its own, by one writer. The area locking tests contention.",)
_TRIGGER_TABLES = ("schedules", "triggers", "runs")
_EXECUTION_TABLES = ("schedules", "runs")

CHECKS = (
    CheckSpec(
        id="crud.schedules",
        title="Creating, changing, listing and removing a schedule work",
        fails_if="a schedule is not read, listed, changed or removed as the call says",
        requirements=("0-T2.11.1", "4-V1"),
        limits=("Filters and orders are tried one at a time, on 18 schedules.",),
        run=scenario_check(
            Scenario("lifecycle of each kind", crud.schedule_lifecycle),
            Scenario("lists", crud.listings),
            tables=("schedules", "triggers"),
        ),
    ),
    CheckSpec(
        id="crud.history",
        title="A history has every run once, and statistics and metrics count runs by one definition",
        fails_if=(
            "a history lacks a run or has it twice; statistics and metrics count differently, or use two definitions "
            "of success"
        ),
        requirements=("0-T2.11.1", "4-V4"),
        run=scenario_check(Scenario("history and statistics", crud.history), tables=("runs", "execution_logs")),
    ),
    CheckSpec(
        id="crud.lockstep",
        title="Both backends answer the same to random calls",
        fails_if="only with `--behaviour N`: PostgreSQL and MongoDB answer the same random calls differently",
        requirements=("0-T2.10.2",),
        limits=("Calls are made one after the other. The area locking tests contention.",),
        run=backends_agree,
    ),
    CheckSpec(
        id="transitions.schedule",
        title="A schedule makes the transitions that its state machine allows, and no other",
        fails_if="a schedule makes a transition that its state machine forbids, or is refused one that it allows",
        requirements=("0-R3",),
        limits=_TRIED_ONCE,
        run=scenario_check(Scenario("schedules, pair by pair", transitions.schedules), tables=("schedules",)),
    ),
    CheckSpec(
        id="transitions.run",
        title="A run makes the transitions that its state machine allows, and no other",
        fails_if="a run does the same; or its times and duration are not kept to the millisecond",
        requirements=("0-T2.4.2", "0-T2.11.2", "0-R3"),
        limits=_TRIED_ONCE,
        run=scenario_check(Scenario("runs, pair by pair", transitions.runs), tables=("runs",)),
    ),
    CheckSpec(
        id="transitions.jobs",
        title="Graph and policy jobs make the transitions that their state machines allow, and no other",
        fails_if="a graph or policy job does the same, or a transition leaves no event",
        requirements=("1-G3", "0-R3"),
        limits=_TRIED_ONCE,
        run=scenario_check(
            Scenario("graph jobs, pair by pair", transitions.graph_jobs),
            Scenario("policy jobs, pair by pair", transitions.policy_jobs),
            tables=("graph_jobs", "graph_job_events", "policy_jobs"),
        ),
    ),
    CheckSpec(
        id="triggers.cron",
        title="Cron lines fire when an independent test of every minute says, across the coming clock changes",
        fails_if=(
            "a cron line fires at other times than an independent test of every minute, across the coming clock changes"
        ),
        requirements=("0-T2.11.3", "0-R2", "4-V2"),
        limits=("Only Debian's dialect, which new schedules use, is tried. semantics.fires compares the others.",),
        run=scenario_check(
            Scenario("cron across clock changes", triggers.clock_changes),
            Scenario("far fires", triggers.far_fires),
            tables=_TRIGGER_TABLES,
        ),
    ),
    CheckSpec(
        id="triggers.others",
        title="Intervals, single fires and events fire when they must, and no more often than they may",
        fails_if="an interval, a single fire or an event fires early, late, too often, or is completed before it ran",
        requirements=("0-T2.11.3", "0-R2"),
        run=scenario_check(
            Scenario("intervals", triggers.intervals),
            Scenario("bounds", triggers.bounds),
            Scenario("one time", triggers.one_time),
            Scenario("events", triggers.events),
            tables=_TRIGGER_TABLES,
        ),
    ),
    CheckSpec(
        id="triggers.steady",
        title="Only a change of its timing changes a next fire, and a disabled schedule does not fire",
        fails_if="an overdue, resumed, changed or restarted schedule fires at once or is delayed; a disabled one fires",
        requirements=("0-T2.11.3", "0-R2", "4-V6"),
        run=scenario_check(
            Scenario("overdue", triggers.misfires),
            Scenario("pause and resume", triggers.pause_and_resume),
            Scenario("other changes", triggers.unrelated_changes),
            Scenario("restarts", triggers.restarts),
            Scenario("disabled schedules", triggers.disabled),
            tables=_TRIGGER_TABLES,
        ),
    ),
    CheckSpec(
        id=locking.CHECK,
        title=f"{locking.PROCESSES} processes that want one lock hold it one after the other, and one of them leads",
        fails_if=(
            "two processes hold one lock, no process or two lead, or the lock of a killed holder cannot be acquired"
        ),
        requirements=("0-T2.11.4", "0-R1", "4-V5"),
        limits=(
            "On MongoDB the lock of a killed process is acquired with a later clock: nothing reports its end earlier.",
            "The processes run on one machine. Clocks that differ are not tried.",
        ),
        run=scenario_check(Scenario("processes in contention", locking.contention), tables=("locks",)),
    ),
    CheckSpec(
        id="locking.fences",
        title="A process that lost a lock or the leadership cannot renew, release or write with it",
        fails_if="a process that lost a lock or the leadership still renews, releases or writes",
        requirements=("0-T2.11.4",),
        run=scenario_check(
            Scenario("fencing tokens", locking.fences),
            Scenario("leadership", locking.leadership),
            tables=("locks",),
        ),
    ),
    CheckSpec(
        id="workers.heartbeats",
        title="The runs of a worker without heartbeat go to another worker once, and those of a live one stay",
        fails_if=(
            "the run of a worker without heartbeat is not taken from it, or is taken twice; the run of a live worker "
            "is taken"
        ),
        requirements=("0-T2.9.3",),
        limits=("The missing heartbeat is simulated by a given clock. The area locking kills processes.",),
        run=scenario_check(
            Scenario("heartbeats", workers.heartbeats),
            Scenario("leases", workers.leases),
            tables=("workers", "runs"),
        ),
    ),
    CheckSpec(
        id="execution.whole",
        title="The handler runs a due schedule, and run, log, summary and audit trail record it",
        fails_if="a due schedule is not run by its handler, or run, log, summary or audit trail lack it",
        requirements=("0-T2.11.2", "0-T2.11.5"),
        run=scenario_check(
            Scenario("from due to done", execution.due_to_done),
            tables=("schedules", "runs", "execution_logs", "run_summaries", "audit"),
        ),
    ),
    CheckSpec(
        id="execution.endings",
        title="Failure, timeout and cancellation end a run as they must, and a failed run is retried",
        fails_if="failure, timeout or cancellation end differently; a retry is lost, early, late, or never begins",
        requirements=("0-T2.11.2", "0-T2.11.5"),
        run=scenario_check(
            Scenario("failure and retry", execution.retries),
            Scenario("failure of a single fire", execution.one_time_failure),
            Scenario("timeout", execution.timeouts),
            Scenario("cancellation", execution.cancellation),
            tables=_EXECUTION_TABLES,
        ),
    ),
    CheckSpec(
        id="execution.single",
        title="Every slot has one run, one worker, one effective end and its own number",
        fails_if=(
            "a slot has two runs, a run has two workers or two ends, a run number occurs twice, or a limit is exceeded"
        ),
        requirements=("0-T2.11.5",),
        run=scenario_check(
            Scenario("limits", execution.concurrency_limit),
            Scenario("at the same time", execution.single_execution),
            Scenario("numbers", execution.run_numbers),
            tables=_EXECUTION_TABLES,
        ),
    ),
    CheckSpec(
        id="execution.after-cutover",
        title="The seven observations to make after a cutover are right",
        fails_if="one of the seven observations to make after a cutover is wrong",
        requirements=("4-V1", "4-V2", "4-V3", "4-V4", "4-V5", "4-V6"),
        limits=("They are made on schedules of a scratch tenant. semantics.* checks the real ones.",),
        run=scenario_check(Scenario("after a cutover", execution.post_cutover_checks), tables=_EXECUTION_TABLES),
    ),
    CheckSpec(
        id="isolation.calls",
        title="No call of the client or of a repository shows or changes a row of another tenant",
        fails_if="a call of the client or of a repository shows or changes a row of another tenant",
        requirements=("0-X2", "1-G4"),
        run=scenario_check(
            Scenario("through the client", isolation.facade),
            Scenario("through the repositories", isolation.repositories),
            tables=(
                "schedules",
                "triggers",
                "runs",
                "graph_jobs",
                "policy_jobs",
                "impact_snapshots",
                "execution_logs",
                "run_summaries",
                "audit",
                "handlers",
            ),
        ),
    ),
    CheckSpec(
        id="isolation.rows",
        title="PostgreSQL itself shows the service's role no row of another tenant, and accepts none from it",
        fails_if="PostgreSQL itself shows the service's role a row of another tenant, or accepts one from it",
        requirements=("0-X2",),
        limits=("Only PostgreSQL has row-level security. On MongoDB only the repositories keep tenants apart.",),
        run=scenario_check(
            Scenario("in the service's role", isolation.rows, backends=("postgres",)),
            tables=("schedules", "triggers", "runs"),
        ),
    ),
)
