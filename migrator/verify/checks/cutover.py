"""Area cutover: cutover and rollback rehearsed without touching real data, and the gates as they are now."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from migrator.connections.postgres import fetch_value
from migrator.cutover import gates, metrics, overdue, server_gates, smoke
from migrator.cutover.journal import latest
from migrator.pipeline.sessions import close_cached, open_sessions
from migrator.pipeline.tail.metrics import LagSample, lag_history, thinned
from migrator.report.charts import LISTED_ROWS
from migrator.report.wording import BEGUN
from migrator.result import Measurement, Panel, not_applicable, not_asked_for, table_panel, unverified
from migrator.scheduler.metrics import KEY_METRICS
from migrator.sources import profile_of
from migrator.sources.write_back import write_back
from migrator.store.postgres import epoch
from migrator.verify import rehearsal
from migrator.verify.check import CheckContext, CheckResult, CheckSpec, outcome_of, result_of_faults

READINESS: Final = "Cutover readiness"
MOMENTS: Final = "Key metrics before the cutover, at the cutover, and now"
NO_REVERSE_SYNC: Final = (
    "a cutover of the source {} is refused: what is written in PostgreSQL after it could not be written back into its"
    " documents"
)
NOT_ASKED_FOR: Final = "made only with --scratch-on-source: it needs a scratch database on the source's server"
_Rows = tuple[tuple[str | int | None, ...], ...]
GATES_PASSED: Final = "the cutover has begun: its own report has the gates as they were before the fence"
GATE_STATES: Final = {True: "met", False: "not met", None: "cannot be told"}


def cutover_rehearsed(context: CheckContext) -> CheckResult:
    """Change the backend in a copy of the configuration, open the store that it names, run once, and change it back."""
    with context.target() as target:
        said = epoch.read(target)
    if said is not None and said.backend != "postgres":
        return CheckResult(
            outcome=unverified("the last cutover was rolled back: PostgreSQL refuses all writers until the next one")
        )
    try:
        done = rehearsal.rehearse_cutover(context.settings, context.request.config, smoke.smoke_on_copy)
    except smoke.SmokeError as error:
        return _result([str(error)], "the store that the changed configuration names does not work", {})
    steps = {name: int(count) for name, count in done.opened.items() if name != "backend"}
    wrong = [] if done.identical else ["the configuration is not byte for byte the original after it was changed back"]
    table: _Rows = (
        ("backend in a copy of the configuration", "postgres"),
        ("store opened with the copy", str(done.opened["backend"])),
        ("MongoDB's driver loaded", "no" if not done.opened["other_driver"] else "yes"),
        *((f"schedule {name} in a scratch tenant", steps[name]) for name in ("read", "fired", "claimed", "finished")),
        ("changed back", "byte for byte" if done.identical else "not identical"),
    )
    return _result(
        wrong, "the configuration cannot be changed back", steps, _table("Change of the configuration", table)
    )


def overdue_counted(context: CheckContext) -> CheckResult:
    """Count the triggers that would be overdue if the cutover were now, and what the policy does with them."""
    policy = context.settings.cutover.overdue
    with context.target() as target:
        count = overdue.count_late(target)
    told = (("overdue triggers", count), ("policy", policy), ("effect of the policy", overdue.describe(count, policy)))
    return CheckResult(
        outcome=outcome_of(wrong=False),
        measurements=(Measurement(check="cutover.overdue", name="overdue triggers", unit="", value=count),),
        varying=(_table("Overdue triggers, if the cutover were now", told),),
    )


def gates_listed(context: CheckContext) -> CheckResult:
    """List the gates of the cutover with their present state. A gate that is not met is no fault of the data."""
    with context.target() as target:
        cutover = latest(target)
    if cutover is not None and cutover.state in BEGUN:
        return CheckResult(outcome=not_applicable(GATES_PASSED))
    config = Path("config.toml") if context.request.config is None else context.request.config
    try:
        with open_sessions(context.settings) as sessions:
            conditions = gates.GateOptions(config=config, quarantined=context.request.allow_quarantined)
            evaluated = gates.evaluate(sessions, conditions)
    finally:
        close_cached()
    told = tuple((one.name, GATE_STATES[one.passed], one.words) for one in evaluated)
    unmet = len(server_gates.unmet(evaluated))
    return CheckResult(
        outcome=outcome_of(wrong=False, unsure=() if evaluated else ("no gate was evaluated",)),
        counts={"gates": len(evaluated)},
        measurements=(Measurement(check="cutover.gates", name="gates not met now", unit="", value=unmet),),
        varying=(table_panel(READINESS, ("gate", "now", "why"), told),),
    )


def statistics_listed(context: CheckContext) -> CheckResult:
    """List the key metrics before the cutover, at the cutover and now. A person judges how they changed."""
    statistics = metrics.collect(context.settings, fresh_start=context.request.fresh_start is not None)
    samples = [] if context.request.fresh_start is not None else _last_hour(context)
    doubts = () if statistics.now else ("the scheduler's store cannot be read now",)
    return CheckResult(
        outcome=outcome_of(wrong=False, unsure=doubts),
        counts={"key metrics": len(KEY_METRICS)},
        measurements=tuple(
            Measurement(
                check="cutover.statistics",
                name="lag of the tail, over the last hour",
                unit="s",
                value=float(samples[-1].lag_s),
                points=tuple((one.at.isoformat(timespec="seconds"), float(one.lag_s)) for one in samples),
            )
            for _ in samples[:1]
        ),
        varying=(table_panel(MOMENTS, metrics.COLUMNS, metrics.rows(statistics)),),
    )


def _last_hour(context: CheckContext) -> list[LagSample]:
    """Return the lag of the tail over the last hour, at most 200 samples."""
    with context.target() as target:
        now: datetime = fetch_value(target, "SELECT clock_timestamp()")
        return thinned(lag_history(target, now - timedelta(hours=1)), LISTED_ROWS)


def downgrade_rehearsed(context: CheckContext) -> CheckResult:
    """Downgrade every revision in a scratch database with rows, and upgrade again."""
    done = rehearsal.rehearse_downgrade(context.settings)
    counts = {"rows, exported before": done.rows, "revisions undone and applied again": done.revisions}
    title = "the schema cannot be downgraded and upgraded again"
    return _result(done.wrong, title, counts, _table("Rollback, level 2", tuple(counts.items())))


def reverse_sync_rehearsed(context: CheckContext) -> CheckResult:
    """Write into a scratch copy with an open outbox, run the reverse sync, and compare every document."""
    profile = profile_of(context.settings.source, context.settings.target)
    if write_back(profile).faults:
        return CheckResult(outcome=not_applicable(NO_REVERSE_SYNC.format(profile.name)))
    if not context.request.scratch_on_source:
        return CheckResult(outcome=not_asked_for(NOT_ASKED_FOR))
    done = rehearsal.rehearse_reverse_sync(context.settings)
    counts = {
        "documents in the sample": done.sample,
        "rows written": done.written,
        "documents written by the reverse sync": done.carried,
    }
    title = "reverse sync does not write to MongoDB what was written after the cutover"
    return _result(done.wrong, title, counts, _table("Rollback, level 1", tuple(counts.items())))


def _result(wrong: Sequence[str], title: str, counts: dict[str, int], *panels: Panel) -> CheckResult:
    return result_of_faults(
        wrong,
        cause="rehearsal",
        title=title,
        fix="do not run the cutover before this check passes",
        counts=counts,
        panels=panels,
    )


def _table(title: str, rows: _Rows) -> Panel:
    return table_panel(title, ("what", "found"), rows)


CHECKS = (
    CheckSpec(
        id="cutover.configuration",
        title="The backend can be changed in a copy of the configuration, works, and can be changed back",
        fails_if=(
            "a copy of the configuration, changed to the other backend, names a store that does not work, or is not "
            "restored byte for byte"
        ),
        requirements=("0-T2.12.3",),
        limits=("Other programs that read the same file, or have a copy of it, are not checked.",),
        of_scheduler=True,
        run=cutover_rehearsed,
    ),
    CheckSpec(
        id="cutover.overdue",
        title="The number of overdue triggers, and what the policy does with them, is recorded",
        fails_if="never: it counts overdue triggers, and says what will become of them",
        can_fail=False,
        limits=("Copied triggers have no next fire before the cutover computes it.",),
        of_scheduler=True,
        run=overdue_counted,
    ),
    CheckSpec(
        id="cutover.gates",
        title="The state of each gate of the cutover is recorded",
        fails_if="never: it lists the gates with their present state",
        can_fail=False,
        limits=("The cutover evaluates the gates again. For this check none of them has to be met.",),
        source=True,
        run=gates_listed,
    ),
    CheckSpec(
        id="cutover.statistics",
        title="The key metrics before the cutover, at the cutover, and now are recorded",
        fails_if="never: it shows five statistics before the cutover, at it, and now",
        can_fail=False,
        limits=(
            "They cover one hour each and are not judged. A schedule that fires seldom may appear in none of them.",
        ),
        of_scheduler=True,
        run=statistics_listed,
    ),
    CheckSpec(
        id="cutover.downgrade",
        title="The schema can be downgraded with rows in it, and upgraded again",
        fails_if="in a scratch database, the schema with rows cannot be downgraded and upgraded again",
        requirements=("4-B2",),
        limits=("The scratch database has few rows. The time that the real database needs is not measured.",),
        of_scheduler=True,
        run=downgrade_rehearsed,
    ),
    CheckSpec(
        id="cutover.rollback",
        title="Reverse sync writes to MongoDB what is written in PostgreSQL after the cutover",
        fails_if=(
            "only with `--scratch-on-source`: in scratch databases, what is written after a cutover is not carried to "
            "MongoDB, or another document changes; not applicable for a source whose cutover is refused because it "
            "could not be rolled back (reverse sync)"
        ),
        requirements=("4-B1",),
        limits=("A sample of the documents and two columns are tried. The tests of the tool try every column.",),
        source=True,
        of_scheduler=True,
        run=reverse_sync_rehearsed,
    ),
)
