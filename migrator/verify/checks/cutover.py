"""Area cutover: cutover and rollback rehearsed without touching real data, and the gates as they are now."""

from pathlib import Path
from typing import Final

from migrator.connections.mongo import translate_errors as translate_source_errors
from migrator.connections.postgres import translate_errors
from migrator.cutover import gates, metrics, overdue, smoke
from migrator.pipeline.sessions import Sessions, close_cached
from migrator.result import Exhibit, Finding, Measurement, Tally, not_applicable, not_asked_for, unverified
from migrator.scheduler.metrics import KEY_METRICS
from migrator.sources import load_profile
from migrator.store.postgres import epoch
from migrator.verify import rehearsal
from migrator.verify.check import CheckResult, CheckSpec, Context, outcome_of

READINESS: Final = "Cutover readiness"
MOMENTS: Final = "Key figures before the switch, at it, and now"
NO_REVERSE_SYNC: Final = (
    "the profile {} has no reverse sync: what is written in PostgreSQL after a cutover cannot be written back into its"
    " documents"
)
NOT_ASKED_FOR: Final = "made only with --scratch-on-source: it needs a scratch database on the source's server"
_Rows = tuple[tuple[str | int | None, ...], ...]
GATE_STATES: Final = {True: "met", False: "not met", None: "cannot be told"}


def cutover_rehearsed(context: Context) -> CheckResult:
    """Set the backend in a copy of the configuration, open the store that it names, run once, set it back."""
    with context.target() as target:
        said = epoch.read(target)
    if said is not None and said.backend != "postgres":
        return CheckResult(
            outcome=unverified("the last switch was taken back: PostgreSQL refuses everybody until the next")
        )
    try:
        done = rehearsal.rehearse_cutover(context.settings, context.config, smoke.smoke)
    except smoke.SmokeError as error:
        return _result([str(error)], "the store that the flipped configuration names does not work", {})
    steps = {name: int(count) for name, count in done.opened.items() if name != "backend"}
    wrong = [] if done.identical else ["the configuration is not what it was when it is flipped back"]
    table: _Rows = (
        ("configuration flipped on a copy", "postgres"),
        ("store opened by it", str(done.opened["backend"])),
        ("MongoDB's driver loaded", "no" if not done.opened["other_driver"] else "yes"),
        *((f"schedule {name} in a scratch tenant", steps[name]) for name in ("read", "fired", "claimed", "finished")),
        ("flipped back", "byte for byte" if done.identical else "changed"),
    )
    return _result(wrong, "the configuration cannot be flipped back", steps, (_table("Switch", table),))


def overdue_counted(context: Context) -> CheckResult:
    """Count the triggers that would be overdue if the cutover were now, and what the policy does with them."""
    policy = context.settings.cutover.overdue
    with context.target() as target:
        count = overdue.count_late(target)
    told = (("overdue triggers", count), ("policy", policy), ("what becomes of them", overdue.describe(count, policy)))
    return CheckResult(
        outcome=outcome_of(wrong=False),
        measurements=(Measurement(check="cutover.overdue", name="overdue triggers", unit="", value=count),),
        varying=(_table("Overdue triggers, were the switch now", told),),
    )


def gates_listed(context: Context) -> CheckResult:
    """List the gates of the cutover as they are now; a gate that is not met is no fault of the data."""
    sessions = Sessions(context.settings)
    try:
        with translate_errors("the target"), translate_source_errors("the source"):
            config = Path("config.toml") if context.config is None else context.config
            found = gates.evaluate(sessions, gates.GateOptions(config=config))
    finally:
        sessions.close()
        close_cached()
    told = tuple((one.name, GATE_STATES[one.passed], one.words) for one in found)
    unmet = len(gates.unmet(found))
    return CheckResult(
        outcome=outcome_of(wrong=False, unsure=() if found else ("no gate was looked at",)),
        counts={"gates": len(found)},
        measurements=(Measurement(check="cutover.gates", name="gates not met now", unit="", value=unmet),),
        varying=(
            Exhibit(kind="table", title=READINESS, columns=("gate", "now", "why"), rows=told, rows_total=len(told)),
        ),
    )


def statistics_listed(context: Context) -> CheckResult:
    """List the statistics before the cutover, at it and now side by side; people judge how they changed."""
    found = metrics.collect(context.settings, fresh=context.fresh is not None)
    doubts = () if found.now else ("the scheduler's store cannot be asked for them now",)
    rows = metrics.rows(found)
    return CheckResult(
        outcome=outcome_of(wrong=False, unsure=doubts),
        counts={"key figures": len(KEY_METRICS)},
        varying=(Exhibit(kind="table", title=MOMENTS, columns=metrics.COLUMNS, rows=rows, rows_total=len(rows)),),
    )


def downgrade_rehearsed(context: Context) -> CheckResult:
    """Undo every revision with rows inside, in a scratch database, and apply them again."""
    done = rehearsal.rehearse_downgrade(context.settings)
    counts = {"rows inside, exported before": done.rows, "revisions undone and applied again": done.revisions}
    title = "the schema cannot be taken down and up again"
    return _result(done.wrong, title, counts, (_table("Way back, level 2", tuple(counts.items())),))


def reverse_sync_rehearsed(context: Context) -> CheckResult:
    """Write into a scratch copy with an open outbox, run the reverse sync, and look at every document."""
    profile = load_profile(context.settings.source.profile)
    if not profile.reverse_sync:
        return CheckResult(outcome=not_applicable(NO_REVERSE_SYNC.format(profile.name)))
    if not context.scratch_on_source:
        return CheckResult(outcome=not_asked_for(NOT_ASKED_FOR))
    done = rehearsal.rehearse_reverse_sync(context.settings)
    counts = {"documents in the sample": done.sample, "rows written": done.written, "documents carried": done.carried}
    title = "what was written after a switch does not come back as it was written"
    return _result(done.wrong, title, counts, (_table("Way back, level 1", tuple(counts.items())),))


def _result(
    wrong: list[str] | tuple[str, ...], title: str, counts: dict[str, int], exhibits: tuple[Exhibit, ...] = ()
) -> CheckResult:
    tally = Tally(severity="difference", cause="rehearsal", title=title, fix="do not switch before it holds", count=1)
    return CheckResult(
        outcome=outcome_of(wrong=bool(wrong)),
        counts={**counts, "differences": len(wrong)},
        tallies=(tally,) * bool(wrong),
        findings=tuple(Finding(severity="difference", cause="rehearsal", words=(one,)) for one in wrong),
        findings_total=len(wrong),
        exhibits=exhibits,
    )


def _table(title: str, rows: _Rows) -> Exhibit:
    return Exhibit(kind="table", title=title, columns=("what", "found"), rows=rows, rows_total=len(rows))


CHECKS = (
    CheckSpec(
        id="cutover.switch",
        title="The switch works on a copy of the configuration, and can be flipped back",
        requirements=("0-T2.12.3",),
        limits=("Other programs that read the same file, or hold a copy of it, are not looked at.",),
        run=cutover_rehearsed,
    ),
    CheckSpec(
        id="cutover.overdue",
        title="It is known what becomes of overdue triggers",
        judges=False,
        limits=("Triggers that were copied have no next fire before the switch arms them.",),
        run=overdue_counted,
    ),
    CheckSpec(
        id="cutover.gates",
        title="The gates of the switch were looked at",
        judges=False,
        limits=("They are looked at again when the switch is made; here none of them has to be met.",),
        run=gates_listed,
    ),
    CheckSpec(
        id="cutover.figures",
        title="The key figures before the switch, at it, and now stand side by side",
        judges=False,
        limits=(
            "They are taken at three moments, and not judged: a schedule that fires seldom shows in none of them.",
        ),
        run=statistics_listed,
    ),
    CheckSpec(
        id="cutover.down-and-up",
        title="The schema can be taken down with rows inside, and up again",
        requirements=("4-B2",),
        limits=("In a scratch database with few rows: how long it takes on the real one is not told.",),
        run=downgrade_rehearsed,
    ),
    CheckSpec(
        id="cutover.way-back",
        title="What is written after the switch can be carried back",
        requirements=("4-B1",),
        limits=("A sample of the documents, and two columns; the tests of the tool try every column.",),
        run=reverse_sync_rehearsed,
    ),
)
