"""A cutover as evidence: its journal, its gates, the write pause, what was waived, and each success criterion.

The journal is in the target. The report is made from it at any time after the cutover began, and again later: then it
says what has happened since.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Literal, TypeAlias

import msgspec

from migrator.config import Settings
from migrator.connections.postgres import Connection, target_connection
from migrator.cutover import (
    backup,
    config_file,
    late_writes,
    library_cutover,
    library_rollback,
    losses,
    metrics,
    outbox,
    overdue,
    processes,
)
from migrator.cutover.gates import GATE_NAMES
from migrator.cutover.journal import (
    CONFIRM_STEP,
    EXPORT_KEY,
    FIRES_STEP,
    POINT_OF_NO_RETURN,
    REVERSE_STOPPED,
    UNLIKE_KEY,
    Cutover,
    Step,
    latest,
    steps,
    window_end,
)
from migrator.cutover.journal import FAILED as STEP_FAILED
from migrator.cutover.metrics import CutoverMetrics
from migrator.cutover.parallel import standing_waivers
from migrator.cutover.procedure import backup_folder
from migrator.cutover.rollback_gaps import gap_lines
from migrator.errors import MigratorError, RefusedError, UnreachableError
from migrator.pipeline.sessions import Sessions, open_sessions
from migrator.pipeline.tail.metrics import lag_history, thinned
from migrator.records import Run
from migrator.result import (
    FAILED,
    PASSED,
    Area,
    Check,
    CutoverRecord,
    Decision,
    Evidence,
    Finding,
    GateState,
    JournalStep,
    Measurement,
    Outcome,
    Panel,
    Requirement,
    Result,
    build,
    not_applicable,
    table_panel,
    unverified,
)
from migrator.result import Run as ReportRun
from migrator.scheduler.metrics import KEY_METRICS
from migrator.schema.decisions import recorded
from migrator.store.postgres import epoch

AREA: Final = "success"
METRICS: Final = f"{AREA}.metrics"
LAG: Final = f"{AREA}.lag"
LAG_BEFORE: Final = timedelta(hours=24)
"""How far before the cutover the lag of the tail is shown."""
LAG_POINTS: Final = 240
NO_CUTOVER: Final = "there was no cutover of this target, so there is nothing to report: call migrator cutover plan"
_NAMED: Final = 5
"""Documents that a criterion names, at most."""
NOT_MEASURED: Final = "the tool does not measure the scheduler of a library"
_BACK: Final = ("rolled-back", "aborted")
"""States in which MongoDB has the data again."""
_OPEN: Final = "open-target"
_RUNS_SINCE: Final = (
    "SELECT count(*), count(*) FILTER (WHERE source IS NOT NULL) FROM scheduler.runs WHERE created_at >= %s"
)
_TASKS: Final = (
    "SELECT (SELECT count(*) FROM scheduler.schedules WHERE handler_type = 'celery_task'), count(*),"
    " count(*) FILTER (WHERE r.external_task_id IS NULL) FROM scheduler.runs AS r JOIN scheduler.schedules AS s"
    " ON s.id = r.schedule_id AND s.tenant_id = r.schedule_tenant_id"
    " WHERE s.handler_type = 'celery_task' AND r.state = 'completed' AND r.created_at >= %s"
)
"""The schedules of Celery tasks, their completed runs, and those of them that Celery gave no id."""
_SLOTS: Final = (
    "SELECT count(*), count(*) FILTER (WHERE runs > 1) FROM (SELECT count(*) AS runs FROM scheduler.runs"
    " WHERE created_at >= %s AND trigger_id IS NOT NULL AND scheduled_at IS NOT NULL"
    " GROUP BY tenant_id, trigger_id, scheduled_at, attempt) AS slots"
)
"""The slots and attempts that have runs, and those that have more than one."""


class Judgement(msgspec.Struct, frozen=True, kw_only=True):
    """How a success criterion ended, and the figures that it rests on."""

    outcome: Outcome
    counts: dict[str, int] = {}
    words: tuple[str, ...] = ()
    """What is wrong, each a finding."""


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What the criteria are judged by."""

    settings: Settings
    target: Connection
    cutover: Cutover
    steps: tuple[Step, ...]

    def done(self, name: str) -> Step | None:
        """Return a step that is done; None if it is not."""
        return next((one for one in self.steps if one.step == name and one.state == "done"), None)

    @property
    def opened_at(self) -> datetime | None:
        """Return when PostgreSQL was opened; None if it was not."""
        step = self.done(_OPEN)
        return None if step is None else step.ended_at

    @property
    def is_open(self) -> bool:
        """Whether PostgreSQL was opened, and the cutover was not undone or rolled back since."""
        return self.opened_at is not None and self.cutover.state not in _BACK


CRITERIA: Final[dict[str, Callable[[Facts], Check]]] = {}
"""Name → the check, in the order in which the cutover comes to them."""
Of: TypeAlias = Literal["any target", "the scheduler", "a library"]
_OF: Final[dict[str, Of]] = {}
"""Name of a criterion → the cutovers that are judged by it: to which target."""


def criteria(*, native: bool) -> Sequence[Callable[[Facts], Check]]:
    """Return the checks of a cutover to the schema ``scheduler``, or to the tables of a library."""
    wanted: tuple[Of, ...] = ("any target", "a library" if native else "the scheduler")
    return [check for name, check in CRITERIA.items() if _OF[name] in wanted]


def criterion(
    name: str,
    title: str,
    *,
    requirements: tuple[str, ...] = (),
    limits: tuple[str, ...] = (),
    when_open: bool = True,
    of: Of = "the scheduler",
) -> Callable[[Callable[[Facts], Judgement]], Callable[[Facts], Check]]:
    """Make a judgement a success criterion, which is a check of the report.

    ``title`` says what holds if it is met, as a sentence without its full stop. ``when_open``: it is judged only while
    PostgreSQL holds the data.
    """

    def register(judge: Callable[[Facts], Judgement]) -> Callable[[Facts], Check]:
        def check(facts: Facts) -> Check:
            judgement = Judgement(outcome=_not_open(facts)) if when_open and not facts.is_open else judge(facts)
            return Check(
                id=f"{AREA}.{name}",
                area=AREA,
                title=title,
                requirements=requirements,
                limits=limits,
                outcome=judgement.outcome,
                counts=judgement.counts,
                findings=tuple(
                    Finding(severity="difference", cause="cutover", details=(words,)) for words in judgement.words
                ),
                findings_total=len(judgement.words),
            )

        CRITERIA[name], _OF[name] = check, of
        return check

    return register


def cutover_result(
    settings: Settings, run: ReportRun, basis: Mapping[str, str], texts: Mapping[str, str] = MappingProxyType({})
) -> Result:
    """Return the evidence of the last cutover; raises ``RefusedError`` if there was none.

    ``run`` is completed by the measurements, ``basis`` is what the evidence rests on (tool, profile, revision).
    ``texts``: the requirements, by id. Those that the criteria name are listed.
    """
    with target_connection(settings) as target:
        current = latest(target)
        if current is None:
            raise RefusedError(NO_CUTOVER)
        facts = Facts(settings=settings, target=target, cutover=current, steps=tuple(steps(target, current.id)))
        checks = tuple(check(facts) for check in criteria(native=settings.target.is_native))
        decisions = _decisions(target)
        record = _record(facts, decisions)
        lag = _lag(facts)
    measured, recorded_metrics = CutoverMetrics(), _METRICS_CHECK
    tables: tuple[Panel, ...] = ()
    if settings.target.is_native:
        recorded_metrics = msgspec.structs.replace(_METRICS_CHECK, outcome=not_applicable(NOT_MEASURED))
    else:
        measured = metrics.collect(settings)
        tables = (table_panel("Key metrics", metrics.COLUMNS, metrics.rows(measured)),)
    evidence = Evidence(
        basis=dict(basis) | {"report": "cutover"},
        decisions=decisions,
        areas=(Area(name=AREA, title="Success criteria", status="checked"),),
        requirements=_requirements(checks, texts),
        checks=(*checks, recorded_metrics, _LAG_CHECK),
        cutover=record,
    )
    return build(
        evidence,
        msgspec.structs.replace(
            run,
            measurements=(*_measurements(measured), *lag),
            panels={METRICS: (*tables, *_timeline(facts))},
        ),
    )


def _requirements(checks: Iterable[Check], texts: Mapping[str, str]) -> tuple[Requirement, ...]:
    named: dict[str, list[str]] = {}
    for check in checks:
        for identity in check.requirements:
            named.setdefault(identity, []).append(check.id)
    return tuple(
        Requirement(id=identity, text=texts[identity], checks=tuple(named[identity]))
        for identity in sorted(named.keys() & texts.keys())
    )


_METRICS_CHECK: Final = Check(
    id=METRICS,
    area=AREA,
    title="The key metrics before the cutover, at it and now are recorded",
    can_fail=False,
    outcome=PASSED,
    limits=("They cover one hour each, and a person judges how they changed.",),
)


_LAG_CHECK: Final = Check(
    id=LAG,
    area=AREA,
    title="The lag of the tail before the cutover is recorded",
    can_fail=False,
    outcome=PASSED,
    limits=("A tail records its lag every ten seconds, so a shorter peak may be missing.",),
)


def _not_open(facts: Facts) -> Outcome:
    if facts.cutover.state in _BACK:
        return not_applicable(f"the cutover is {facts.cutover.state}: the data is in MongoDB")
    return unverified("the cutover is not finished: PostgreSQL was not opened yet")


@criterion(
    "gates",
    "Every gate was evaluated before the fence, and none stood in the way",
    limits=("A gate that could not be told does not stop the cutover. It is listed.",),
    when_open=False,
    of="any target",
)
def _gates_met(facts: Facts) -> Judgement:
    preflight, fence = facts.done("preflight"), facts.done("fence")
    if preflight is None:
        return Judgement(outcome=FAILED if fence else unverified("the step preflight is not done"))
    is_late = fence is not None and preflight.ended_at is not None and fence.began_at < preflight.ended_at
    problems = ("the fence began before the gates were evaluated",) if is_late else ()
    counts = {"gates": len(preflight.detail.get("gates", {}))}
    return Judgement(outcome=FAILED if is_late else PASSED, counts=counts, words=problems)


@criterion(
    "pause",
    "Writers were stopped no longer than the configuration allows",
    limits=("The pause ends when PostgreSQL is open. How long an application needs to come back is not measured.",),
    of="any target",
)
def _pause_short(facts: Facts) -> Judgement:
    took, limit = facts.cutover.detail.get("pause_s"), _pause_limit(facts)
    if took is None:
        return Judgement(outcome=unverified("the write pause is not in the journal"))
    over = took > limit
    words = (f"writers were stopped for {took:g} s, and {limit:g} s were allowed",) if over else ()
    counts = {"ms": round(took * 1000), "ms allowed": round(limit * 1000)}
    return Judgement(outcome=FAILED if over else PASSED, counts=counts, words=words)


@criterion(
    "parity",
    "Under the fence, every document that had changed was equal to its rows",
    requirements=("4-Z1", "4-Z3"),
    limits=("Documents that had not changed were compared by the parity check before, which the gates name.",),
    when_open=False,
    of="any target",
)
def _parity_clean(facts: Facts) -> Judgement:
    step = facts.done("parity")
    if step is not None:
        return Judgement(outcome=PASSED, counts={"documents": int(step.detail.get("documents") or 0)})
    if facts.done(POINT_OF_NO_RETURN):
        return Judgement(outcome=FAILED, words=("the point of no return was passed without a parity check",))
    return Judgement(outcome=unverified("the step parity is not done"))


@criterion(
    "backend",
    "PostgreSQL holds the data, and the configuration names it",
    limits=("Programs that have a copy of the configuration are not looked at.",),
)
def _target_holds_data(facts: Facts) -> Judgement:
    said = epoch.read(facts.target)
    problems = [] if said is not None and said.backend == "postgres" else ["the epoch of PostgreSQL does not name it"]
    try:
        named = config_file.named_backend(Path(facts.cutover.config_path))
    except (OSError, ValueError):
        return Judgement(outcome=unverified(f"{facts.cutover.config_path} cannot be read"))
    if named != "postgres":
        problems.append(f"{facts.cutover.config_path} names the backend {named}")
    return Judgement(outcome=FAILED if problems else PASSED, words=tuple(problems))


@criterion(
    "smoke",
    "With the changed configuration a schedule was read, fired, claimed and finished in PostgreSQL",
    requirements=("0-T2.12.3",),
)
def _smoke_passed(facts: Facts) -> Judgement:
    step = facts.done("smoke")
    if step is None:
        return Judgement(outcome=FAILED, words=("the step smoke is not done",))
    counts = {name: count for name, count in step.detail.items() if type(count) is int}
    return Judgement(outcome=PASSED, counts=counts)


@criterion(
    "backup",
    "The backup of MongoDB is there, and byte for byte what was exported",
    of="any target",
)
def _backup_whole(facts: Facts) -> Judgement:
    step = facts.done("backup")
    if step is None:
        return Judgement(outcome=FAILED, words=("the step backup is not done",))
    if skipped := step.detail.get("skipped"):
        why = "cutover.backup is off" if skipped is True else skipped
        return Judgement(outcome=not_applicable(f"no backup was made: {why}"))
    try:
        manifest = backup.verified_manifest(backup_folder(facts.settings, facts.cutover))
    except RefusedError as error:
        return Judgement(outcome=FAILED, words=(str(error),))
    if manifest.digest != facts.cutover.detail.get("backup_digest", manifest.digest):
        return Judgement(outcome=FAILED, words=("the digest of the backup is not the one in the journal",))
    return Judgement(outcome=PASSED, counts={"documents": sum(one.documents for one in manifest.parts)})


@criterion(
    "rollback",
    "After a rollback every schedule would fire as now, by the documents of MongoDB",
    limits=(
        "Entries that wait are written by migrator tail, which has to run until cutover finish.",
        "Rows and values for which documents have no field are counted. A rollback exports them to files.",
    ),
)
def _way_back_open(facts: Facts) -> Judgement:
    def compare(sessions: Sessions, _waiting: int) -> tuple[list[str], dict[str, int]]:
        survey = losses.survey(sessions, facts.cutover.began_at)
        problems = [losses.unequal(survey)] if survey.unwritten else []
        return [*problems, *gap_lines(survey.gaps)], {
            "documents": survey.documents,
            "schedules that would not fire as now": len({one.schedule_id for one in survey.named if one.fires}),
            "rows and values for files only": sum(survey.rows.values()),
        }

    return _judge_reverse_sync(facts, compare)


def _judge_reverse_sync(
    facts: Facts, compare: Callable[[Sessions, int], tuple[list[str], dict[str, int]]]
) -> Judgement:
    """Judge what of PostgreSQL goes back to MongoDB; ``compare`` is given how many entries wait.

    It returns what is wrong, and counts.
    """
    if facts.cutover.state == "finished":
        return Judgement(outcome=not_applicable("the rollback window is closed"))
    stopped = facts.cutover.detail.get(REVERSE_STOPPED)
    waiting, _ = outbox.backlog(facts.target)
    counts = {"outbox entries that wait": waiting}
    problems = [f"the reverse sync stopped: {stopped}"] if stopped else []
    try:
        with open_sessions(facts.settings) as sessions:
            further, counted = compare(sessions, waiting)
    except UnreachableError:
        outcome = FAILED if problems else unverified("MongoDB cannot be reached, so what it holds is not known")
        return Judgement(outcome=outcome, counts=counts, words=tuple(problems))
    except MigratorError as error:
        return Judgement(outcome=FAILED, counts=counts, words=(*problems, str(error)))
    problems += further
    return Judgement(outcome=FAILED if problems else PASSED, counts=counts | counted, words=tuple(problems))


@criterion(
    "fires",
    "After the rollback no schedule fires otherwise without having been named before",
    limits=("Times are compared as the documents state them. The old application itself is not started.",),
    when_open=False,
)
def _fired_as_named(facts: Facts) -> Judgement:
    step = facts.done(FIRES_STEP)
    if step is None:
        return Judgement(outcome=not_applicable("there was no rollback that wrote to MongoDB"))
    unlike = _gap_texts(facts.cutover.detail.get(UNLIKE_KEY, ()))
    counts = {name: int(step.detail.get(name, 0)) for name in ("schedules", "documents")}
    return Judgement(outcome=FAILED if unlike else PASSED, counts=counts, words=unlike)


@criterion(
    "processes",
    "Every scheduler process of the old side has a heartbeat on PostgreSQL",
    limits=("A program of the old side that is no scheduler process has no heartbeat.",),
)
def _processes_came(facts: Facts) -> Judgement:
    arrived = processes.arrivals(facts.settings)
    if arrived is None or not arrived.here:
        return Judgement(outcome=unverified("no scheduler process has a heartbeat on PostgreSQL"))
    counts = {"processes here": len(arrived.here)}
    if arrived.missing is None:
        return Judgement(outcome=unverified("the processes of the old side are not known"), counts=counts)
    words = tuple(f"no heartbeat of {one}" for one in arrived.missing)
    return Judgement(outcome=FAILED if words else PASSED, counts=counts | {"missing": len(words)}, words=words)


@criterion(
    "runs",
    "Every run since then was made on PostgreSQL, and none in MongoDB",
    requirements=("4-V7",),
    limits=(
        "MongoDB is looked at until cutover finish, which is refused for what others wrote there.",
        "The collections whose documents are runs are looked at. A run that leaves no document there is not seen.",
    ),
)
def _runs_are_new(facts: Facts) -> Judgement:
    row = facts.target.execute(_RUNS_SINCE, (facts.opened_at,)).fetchone()
    made, copied = (0, 0) if row is None else (int(row[0]), int(row[1]))
    written, doubt = _old_runs(facts)
    counts = {"runs since": made, "of the old side": copied}
    problems = (f"{copied:,} runs that were made after PostgreSQL was opened come from the old side",) * bool(copied)
    if written is not None:
        counts["documents of runs written in MongoDB by others"] = written
        problems += (f"{written:,} documents of runs were written in MongoDB by others than the reverse sync",) * bool(
            written
        )
    if problems:
        return Judgement(outcome=FAILED, counts=counts, words=problems)
    doubt = doubt or ("" if made else "no run was made since PostgreSQL was opened")
    return Judgement(outcome=unverified(doubt) if doubt else PASSED, counts=counts)


def _old_runs(facts: Facts) -> tuple[int | None, str]:
    """Return how many documents of runs others wrote in MongoDB since the fence, and why that is not known.

    None: nobody looked.
    """
    if facts.cutover.state == "finished":
        return None, ""
    try:
        with open_sessions(facts.settings) as sessions:
            looked = late_writes.find(sessions, facts.cutover)
            names = [sessions.name_of(one.name) for one in sessions.profile.collections if Run in one.tables]
    except MigratorError as error:
        return None, f"MongoDB cannot be asked: {error}"
    return sum(len(looked.touched.get(name, ())) for name in names), looked.unknown


@criterion(
    "tasks",
    "Every run of a Celery task that completed since then has the id that Celery knows it by",
    requirements=("4-Z2",),
    limits=("It holds for schedules whose handler is a Celery task. Others are executed by workers of the tool.",),
)
def _tasks_through_celery(facts: Facts) -> Judgement:
    row = facts.target.execute(_TASKS, (facts.opened_at,)).fetchone()
    schedules, completed, without = (0, 0, 0) if row is None else map(int, row)
    if not schedules:
        return Judgement(outcome=not_applicable("no handler is a Celery task"))
    counts = {"completed runs": completed, "without an id": without}
    if without:
        problems = (f"{without:,} runs of Celery tasks completed without an id of Celery",)
        return Judgement(outcome=FAILED, counts=counts, words=problems)
    outcome = PASSED if completed else unverified("no run of a Celery task has completed since PostgreSQL was opened")
    return Judgement(outcome=outcome, counts=counts)


@criterion(
    "single",
    "No slot has two runs of one attempt",
    requirements=("4-Z6",),
)
def _slots_once(facts: Facts) -> Judgement:
    slots, twice = (int(count) for count in facts.target.execute(_SLOTS, (facts.opened_at,)).fetchone() or (0, 0))
    counts = {"slots": slots, "slots with two runs": twice}
    if twice:
        words = (f"{twice:,} slots have two runs of one attempt",)
        return Judgement(outcome=FAILED, counts=counts, words=words)
    outcome = PASSED if slots else unverified("no slot has fired since PostgreSQL was opened")
    return Judgement(outcome=outcome, counts=counts)


@criterion(
    "on-time",
    "No trigger is overdue",
    limits=("It holds for the moment of this report.",),
)
def _nothing_late(facts: Facts) -> Judgement:
    count = overdue.count_late(facts.target)
    counts = {"overdue triggers": count}
    arrived = processes.arrivals(facts.settings)
    if arrived is None or not arrived.here:
        return Judgement(outcome=unverified("no scheduler process works on PostgreSQL yet"), counts=counts)
    problems = (f"{count:,} triggers are overdue beyond their grace",) if count else ()
    return Judgement(outcome=FAILED if count else PASSED, counts=counts, words=problems)


@criterion(
    "library",
    "The library reads its tables in PostgreSQL",
    limits=("It is asked before the fence, in a session that may only read.",),
    when_open=False,
    of="a library",
)
def _library_reads(facts: Facts) -> Judgement:
    if facts.done("library") is None:
        return Judgement(outcome=unverified("the step library is not done"))
    read = msgspec.convert(facts.cutover.detail.get("library", {}), library_cutover.LibraryReading)
    counts = {"entries": read.entries, "entries that it restores in neither database": len(read.failed)}
    return Judgement(outcome=unverified(read.unverified) if read.unverified else PASSED, counts=counts)


@criterion(
    "confirmed",
    "A person has confirmed that the application works on the library's tables",
    limits=("What the confirmation rests on is in the journal; the tool does not watch the application.",),
    of="a library",
)
def _is_confirmed(facts: Facts) -> Judgement:
    step = facts.done(CONFIRM_STEP)
    if step is None:
        return Judgement(outcome=unverified("migrator cutover confirm was not called yet"))
    return Judgement(outcome=PASSED, counts={"rows written before it": int(step.detail.get("written") or 0)})


@criterion(
    "rows",
    "What the library wrote since then is in MongoDB, or waits for the reverse sync",
    limits=(
        "Entries that wait are written by migrator tail, which has to run until cutover finish.",
        "Rows that were written past the triggers are not looked at: migrator parity finds them.",
    ),
    of="a library",
)
def _rows_go_back(facts: Facts) -> Judgement:
    def compare(sessions: Sessions, waiting: int) -> tuple[list[str], dict[str, int]]:
        unequal = library_rollback.unequal_documents(sessions)
        words = f"documents unlike their rows: {len(unequal):,} ({', '.join(unequal[:_NAMED])})"
        return [words] if unequal and not waiting else [], {"documents that differ": len(unequal)}

    return _judge_reverse_sync(facts, compare)


def _pause_limit(facts: Facts) -> float:
    return float(facts.cutover.detail.get("pause_limit_s", facts.settings.cutover.max_pause.total_seconds()))


def _ms(seconds: float | None) -> int | None:  # a report has no floats in its evidence
    return None if seconds is None else round(seconds * 1000)


def _time(moment: datetime | None) -> str:
    return "" if moment is None else moment.astimezone(UTC).isoformat(timespec="milliseconds")


def _record(facts: Facts, decisions: tuple[Decision, ...]) -> CutoverRecord:
    current, detail = facts.cutover, facts.cutover.detail
    preflight = facts.done("preflight")
    told = {} if preflight is None else preflight.detail
    unknown = told.get("unknown", [])
    gates = tuple(
        GateState(name=name, met=None if name in unknown else True, words=words)
        for name, words in sorted(told.get("gates", {}).items(), key=_gate_order)
    )
    by = next((one for one in reversed(decisions) if one.kind.startswith("cutover")), None)
    point, kept = facts.done(POINT_OF_NO_RETURN), facts.done("backup")
    exported = detail.get(EXPORT_KEY) or {}
    return CutoverRecord(
        id=str(current.id),
        environment=current.environment,
        state=current.state,
        who=detail.get("who") or (by.who if by else ""),
        why=detail.get("reason") or (by.why if by else ""),
        epoch=detail.get("epoch"),
        began_at=_time(current.began_at),
        ended_at=_time(current.ended_at),
        point_passed_at=_time(None if point is None else point.ended_at),
        opened_at=_time(facts.opened_at),
        rollback_until=_time(window_end(facts.target, current, facts.settings)) if current.state == "cut-over" else "",
        config=current.config_path,
        config_backup=current.backup_path,
        fence=_fence_words(current.fence),
        gates=gates,
        steps=tuple(_step(one) for one in facts.steps),
        pause_ms=_ms(detail.get("pause_s")),
        pause_planned_ms=_ms(detail.get("pause_planned_s")),
        pause_limit_ms=round(_pause_limit(facts) * 1000),
        lag_before_s=detail.get("lag_s"),
        compared=detail.get("compared"),
        overdue=detail.get("overdue"),
        waived=tuple(_waived(facts, gates)),
        backup=detail.get("backup", ""),
        backup_digest=detail.get("backup_digest", ""),
        backup_documents=None if kept is None else kept.detail.get("documents"),
        lost=dict(detail.get("lost", {})),
        gaps=_gap_texts(detail.get("gaps", ())),
        unlike=_gap_texts(detail.get(UNLIKE_KEY, ())),
        export=exported.get("folder", ""),
        export_digest=exported.get("digest", ""),
    )


def _gap_texts(gaps: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    return tuple(f"{_schedules(one['schedules'])} {one['words']}" for one in gaps)


def _gate_order(gate: tuple[str, str]) -> int:
    """Return the place of a gate in the plan: the journal does not keep the order of names."""
    return GATE_NAMES.index(gate[0]) if gate[0] in GATE_NAMES else len(GATE_NAMES)


def _schedules(count: int) -> str:
    return f"{count:,} schedule{'' if count == 1 else 's'}"


def _fence_words(fence: Mapping[str, Any]) -> str:
    if not fence:
        return ""
    revoked = len(fence.get("revoked", ()))
    held = ", ".join(fence.get("collections", ()))
    kinds = {
        "write-block": "the server refuses every write",
        "roles": f"write roles of {revoked} users are revoked",
        "collections": f"rights of {revoked} users to write to {held} are revoked",
    }
    return kinds.get(fence.get("kind", ""), str(fence.get("kind", "")))


def _waived(facts: Facts, gates: tuple[GateState, ...]) -> list[str]:
    """Return the findings that a person let pass, each a sentence."""
    settings = facts.settings.cutover
    waived = [f"quarantine: {one.words}" for one in gates if one.name == "quarantine" and one.words != "empty"]
    waived += [f"gate {one.name} could not be told: {one.words}" for one in gates if one.met is None]
    before = [one for one in recorded(facts.target) if one.at < facts.cutover.began_at]
    waived += [f"a completed run in the parallel run: schedule {one.words}" for one in standing_waivers(before)]
    if settings.tolerated_writers:
        waived.append(
            f"users whom the fence does not stop, known not to write: {', '.join(settings.tolerated_writers)}"
        )
    kept = facts.done("backup")
    if kept is not None and kept.detail.get("skipped"):
        needs_it = "" if facts.settings.target.is_native else ", so that a rollback of level 3 is not possible"
        waived.append(f"no backup of MongoDB was made{needs_it}")
    return waived


def _step(step: Step) -> JournalStep:
    took = None if step.ended_at is None else _ms((step.ended_at - step.began_at).total_seconds())
    told = tuple(
        f"{'failed' if name == STEP_FAILED else name.replace('_', ' ')}: {value}"
        for name, value in step.detail.items()
        if isinstance(value, (str, int, float)) and not isinstance(value, bool)
    )
    return JournalStep(
        step=step.step,
        state=step.state,
        began_at=_time(step.began_at),
        ended_at=_time(step.ended_at),
        took_ms=took,
        told=told,
    )


def _decisions(target: Connection) -> tuple[Decision, ...]:
    return tuple(
        Decision(kind=one.kind, who=one.who, at=_time(one.at), why=one.reason, tool=f"migrator {one.tool_version}")
        for one in recorded(target)
    )


def _measurements(found: CutoverMetrics) -> list[Measurement]:
    """Return each key metric with its value at each of the three moments."""
    moments = {"before": found.before, "at the cutover": found.cutover, "now": found.now}
    measured = []
    for metric in KEY_METRICS:
        points = [
            (when, float(value))
            for when, moment in moments.items()
            if moment is not None and (value := getattr(moment.metrics, metric.field)) is not None
        ]
        if points:
            measured.append(
                Measurement(check=METRICS, name=metric.words, unit="", value=points[-1][1], points=tuple(points))
            )
    return measured


def _lag(facts: Facts) -> tuple[Measurement, ...]:
    """Return the largest lag of the tail before the cutover, with the lag over time; nothing if none is recorded."""
    began = facts.cutover.began_at
    samples = thinned(
        lag_history(facts.target, began - LAG_BEFORE, facts.opened_at or facts.cutover.ended_at), LAG_POINTS
    )
    if not samples:
        return ()
    points = tuple((one.at.isoformat(timespec="seconds"), float(one.lag_s)) for one in samples)
    most = max(value for _, value in points)
    return (Measurement(check=LAG, name="largest lag of the tail", unit="s", value=most, points=points),)


def _timeline(facts: Facts) -> tuple[Panel, ...]:
    """Return the steps on one axis, in milliseconds since the first began."""
    ended = [one for one in facts.steps if one.ended_at is not None and one.state == "done"]
    if not ended:
        return ()
    first = min(one.began_at for one in ended)
    rows = tuple(
        (one.step, _since(first, one.began_at), _since(first, one.ended_at or one.began_at), "") for one in ended
    )
    columns = ("step", "from", "to", "")
    return (Panel(kind="spans", title="The steps, ms", columns=columns, rows=rows, rows_total=len(rows)),)


def _since(first: datetime, moment: datetime) -> int:
    return round((moment - first).total_seconds() * 1000)
