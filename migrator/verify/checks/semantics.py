"""Area semantics: the rows mean what the documents mean. Reads only, so that it can run in production.

Every check reads in batches. A check that finds an anomaly looks it up at the source: if the source's own document says
the same, the copy is right, and the finding is explained; if not, it is a difference.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial

from migrator.connections.postgres import Connection
from migrator.errors import MigratorError
from migrator.parity import firing_rules
from migrator.result import FAILED, PASSED, Cell, not_applicable
from migrator.verify.check import CheckContext, CheckResult, CheckSpec, outcome_of
from migrator.verify.semantics.anomalies import Anomalies, SourceRows, source_rows
from migrator.verify.semantics.invariants import COUNTERS, HISTORY, PRIORITIES, Invariant, check_invariant, judged_rows
from migrator.verify.semantics.next_fires import check_schedules, compare_rules
from migrator.verify.semantics.summaries import recount

_HOURS = int(firing_rules.BEFORE_A_CHANGE.total_seconds()) // 3600
NOTHING_TO_CHECK = "the target has no row that this check is about"
_COMPARED = (
    f"The next {firing_rules.FIRES_COMPARED} fires are compared, from the day of the copy on and from {_HOURS} hours"
    f" before each change of the clock in the {firing_rules.HORIZON.days} days after it; later ones are not."
)


def next_fires(context: CheckContext) -> CheckResult:
    """Compare the next fires of every trigger with those of the rule in its document, across changes of the clock."""
    anomalies = Anomalies(context.listed, "fires")
    with context.target() as target, source_rows(context, target) as source:
        counts = compare_rules(source, target, anomalies)
        copied = target.execute("SELECT EXISTS (SELECT FROM scheduler.triggers WHERE source IS NOT NULL)").fetchone()
    if not counts["rules"] and copied == (True,):  # no rule in the source is a doubt only if there are copied triggers
        anomalies.add_doubt("the source holds no document with a rule that can be evaluated")
    return _result(anomalies, counts, {"triggers": counts["rules"]})


def schedules_fire(context: CheckContext) -> CheckResult:
    """Every enabled schedule has a trigger that will fire, and every stored next fire is one of its rule."""
    anomalies = Anomalies(context.listed, "schedule")
    with _target_and_source(context) as (target, source):
        counts = check_schedules(target, source, anomalies)
    tables = {"schedules": counts["enabled schedules"], "triggers": counts["enabled triggers"]}
    return _result(anomalies, counts, tables)


def summaries_recomputed(context: CheckContext) -> CheckResult:
    """Every run summary is the sum of its runs."""
    anomalies = Anomalies(context.listed, "summary")
    with _target_and_source(context) as (target, source):
        done = recount(target, source, anomalies)
    return _result(anomalies, {"summaries": done}, {"run_summaries": done})


def invariants_hold(context: CheckContext, *, rules: tuple[Invariant, ...]) -> CheckResult:
    """Look for rows that violate an invariant."""
    anomalies = Anomalies(context.listed, "history")
    with _target_and_source(context) as (target, source):
        breaches = sum(check_invariant(rule, target, source, anomalies) for rule in rules)
        rows = judged_rows(rules, target)
    return _result(anomalies, {"rules": len(rules), "rows that break one": breaches}, rows)


@contextmanager
def _target_and_source(context: CheckContext) -> Iterator[tuple[Connection, SourceRows | None]]:
    """Open both for a check that reads the source for anomalies only; without it, an anomaly of a copy is a doubt."""
    with ExitStack() as opened:
        target = opened.enter_context(context.target())
        source = None
        with suppress(MigratorError):
            source = opened.enter_context(source_rows(context, target))
        yield target, source


def _result(anomalies: Anomalies, counts: dict[str, int], tables: dict[str, int]) -> CheckResult:
    differences = anomalies.count("difference")
    wrong = anomalies.tables("difference")
    sound = outcome_of(wrong=False, unsure=anomalies.doubts)
    if sound == PASSED and not any(tables.values()):
        sound = not_applicable(NOTHING_TO_CHECK)
    return CheckResult(
        outcome=FAILED if differences else sound,
        counts={
            **counts,
            "differences": differences,
            "warnings": anomalies.count("warning"),
            "odd in the source too": anomalies.count("explained"),
        },
        cells=tuple(
            Cell(table=table, outcome=FAILED if table in wrong else sound, count=count, unit="rows")
            for table, count in sorted(tables.items())
        ),
        tallies=anomalies.tallies(),
        findings=tuple(sorted(anomalies.findings)),
        findings_total=differences,
    )


CHECKS = (
    CheckSpec(
        id="semantics.fires",
        title="Every trigger has the next fires of the rule in its document",
        fails_if=(
            "the next fires of a stored trigger are not those of the rule in its document, across changes of the clock"
        ),
        requirements=("0-T2.11.3",),
        limits=(
            _COMPARED,
            "An interval is counted from the same instant on both sides. parity.rows detects a shifted phase.",
            "For other profiles than stellaops the profile's decode reads the rules. A fault of it is not detected.",
        ),
        source=True,
        run=next_fires,
    ),
    CheckSpec(
        id="semantics.scheduled",
        title="Every enabled schedule has a trigger that will fire",
        fails_if="an enabled schedule will never fire, or a stored next fire is not one that its rule gives",
        requirements=("0-T2.11.3",),
        limits=(
            "Copied triggers have no next fire before the cutover computes it. They are counted, not judged.",
            "The next fire of an interval is not computed again, because only the trigger has its phase.",
        ),
        run=schedules_fire,
    ),
    CheckSpec(
        id="semantics.summaries",
        title="Every run summary is the sum of its runs",
        fails_if="a run summary is not what its runs add up to",
        requirements=("2-X11",),
        limits=("A member that a summary does not have is not compared.",),
        run=summaries_recomputed,
    ),
    CheckSpec(
        id="semantics.history",
        title="Every history of a row is possible",
        fails_if="a history is impossible: states, times, numbers, attempts, paths",
        limits=(
            "A row stores its last state. Earlier states are checked only for rows with events.",
            "A run older than its schedule is judged by the run. parity.rows detects a changed creation time.",
        ),
        run=partial(invariants_hold, rules=HISTORY),
    ),
    CheckSpec(
        id="semantics.counters",
        title="Every counter is the count of its rows",
        fails_if="a counter is not what the rows add up to",
        requirements=("2-X11",),
        limits=(
            "Retention removes runs and keeps counters. If a row was created here, a too high counter is a warning.",
        ),
        run=partial(invariants_hold, rules=COUNTERS),
    ),
    CheckSpec(
        id="semantics.priorities",
        title="Every trigger and every open run has the priority of its schedule",
        fails_if="a trigger, or a planning or queued run, has another priority than its schedule",
        limits=("The priority of a run that is running or has ended is not compared, because nothing reads it.",),
        run=partial(invariants_hold, rules=PRIORITIES),
    ),
)
