"""Commands around a cutover: ``doctor``, ``cutover``, ``rollback``."""

import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, NoReturn, TypeVar, cast

import click
import msgspec

from migrator import result as results
from migrator.cli.confirmation import (
    Command,
    approval,
    approval_options,
    confirm,
    named_approval,
    named_approval_options,
    yes_option,
)
from migrator.cli.options import (
    AllowanceType,
    DurationType,
    allow_quarantined_option,
    common_options,
    dry_run_option,
    finish,
    load,
    load_scheduler,
    print_json,
    print_lines,
    show,
)
from migrator.config import DEFAULT_PATH, Settings
from migrator.connections.postgres import target_connection
from migrator.cutover import (
    completion,
    copied_database,
    cutover,
    first_fires,
    library_cutover,
    library_rollback,
    metrics,
    parallel,
    procedure,
    processes,
    rehearsal,
    rollback,
    status,
)
from migrator.cutover.cutover import CutoverResult
from migrator.cutover.doctor import examine
from migrator.cutover.gates import GateOptions, PlannedCutover
from migrator.cutover.journal import REVERSE_STOPPED, ROLLBACK_STEPS, latest
from migrator.cutover.parallel import Waiver
from migrator.cutover.plan import CutoverPlan, cutover_plan
from migrator.cutover.rollback import Level, RollbackResult
from migrator.cutover.rollback_gaps import gap_lines
from migrator.cutover.server_gates import Gate, gate_lines, in_the_way, unmet
from migrator.cutover.status import CutoverStatus, cutover_status
from migrator.durations import NONE, format_duration
from migrator.errors import MigratorError, UsageError
from migrator.exit_status import Allowance, mask
from migrator.report import cutover as moved
from migrator.schema.decisions import Approval
from migrator.sources import profile_of
from migrator.store.postgres import epoch
from migrator.telemetry import say
from migrator.verify.cutover_report import EndReport, report_into

Done = TypeVar(
    "Done",
    CutoverResult,
    RollbackResult,
    completion.FinishResult,
    library_cutover.LibraryCutoverResult,
    library_rollback.LibraryRollbackResult,
)

report_option = click.option(
    "--report/--no-report",
    default=True,
    show_default=True,
    help="Write the report of the cutover into report.directory at the end, also when the command fails; a cutover to"
    " a library's tables has none.",
)


def group_options(command: Command) -> Command:
    """Add the options of a cutover of some collections or tenants, which is refused in words."""
    only = click.option("--only", multiple=True, metavar="COLLECTION", help="Refused: a cutover moves all collections.")
    tenant = click.option("--tenant", multiple=True, metavar="TENANT", help="Refused: a cutover moves all tenants.")
    return only(tenant(command))


@click.command()
@common_options
def doctor_command(config: str | None, *, as_json: bool) -> None:
    """Connect to both servers and report what prevents a migration: versions, rights, oplog, schema, clocks.

    Exit status: 1 something prevents a migration, 4 something could not be determined, 16 a server was not reached.
    """
    probes = examine(load(config))
    show(probes, gate_lines(probes.findings), as_json=as_json)
    finish(
        mask(
            different=any(one.passed is False for one in probes.findings),
            unverified=any(one.passed is None for one in probes.findings),
            tool_failed=probes.unreachable,
        )
    )


@click.group("cutover")
def cutover_group() -> None:
    """Move the scheduler to PostgreSQL under a fence that stops every writer of MongoDB."""


@cutover_group.command(short_help="Show every step, the gates, the expected pause; changes nothing.")
@allow_quarantined_option
@group_options
@common_options
def plan_command(
    config: str | None,
    allow_quarantined: Allowance,
    only: tuple[str, ...],
    tenant: tuple[str, ...],
    *,
    as_json: bool,
) -> None:
    """Show every step, the state of the gates, the expected write pause, and the effect on overdue triggers."""
    settings = load(config)
    procedure.require_whole(only, tenant)
    _plan(settings, _file(config), allow_quarantined, as_json=as_json)


def _plan(settings: Settings, file: Path, allowed: Allowance, *, as_json: bool) -> NoReturn:
    if settings.target.is_native:
        planned = library_cutover.plan(settings, GateOptions(config=file, quarantined=allowed))
        show(planned, _library_plan_lines(planned), as_json=as_json)
        finish(mask(unverified=not planned.ready))
    found = cutover_plan(settings, file, quarantined=allowed)
    show(found, _plan_lines(found), as_json=as_json)
    finish(mask(unverified=not found.ready))


@cutover_group.command(short_help="Record that both schedulers run in parallel from now on.")
@named_approval_options
@click.option(
    "--end", "ended", is_flag=True, help="End the parallel run. A copy then claims nothing until the cutover."
)
@click.option(
    "--waive",
    "waived",
    multiple=True,
    metavar="SCHEDULE",
    help="Waive the completed run of this schedule, by id or name; repeatable.",
)
@click.option(
    "--withdraw-waiver",
    "withdrawn",
    multiple=True,
    metavar="SCHEDULE",
    help="Withdraw the waiver of this schedule, by id or name; repeatable.",
)
@dry_run_option
@common_options
def parallel_command(
    config: str | None,
    who: str | None,
    reason: str | None,
    waived: tuple[str, ...],
    withdrawn: tuple[str, ...],
    *,
    ended: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Record that both schedulers run in parallel. Then five more gates, computed from the runs, must hold.

    Refused (2), before anything is written, for a source of which nothing says for which slot a schedule fired.
    migrator source list --json names those that can be compared (parallel_run).

    Processes on PostgreSQL read the record before their next claim. From then on they call only handlers marked
    idempotent, and record the runs of the others without calling a handler. The cutover ends the parallel run too.

    --waive is for schedules that do not fire while both run: the gate "all jobs succeeded" does not wait for them.
    """
    if sum((ended, bool(waived), bool(withdrawn))) > 1:
        raise UsageError("--end, --waive and --withdraw-waiver are three decisions: call the command for each")
    by = named_approval(who, reason, "a parallel run")
    settings = load_scheduler(config)
    profile = profile_of(settings.source, settings.target)
    waivers: tuple[Waiver, ...] = ()
    verb = "would be recorded" if dry_run else "recorded"
    lines = [f"{verb}: the parallel run is over"]
    with target_connection(settings) as target:
        if dry_run and ended:
            parallel.require_begun(target)
        elif waived or withdrawn:
            decide = parallel.waive if waived else parallel.withdraw_waivers
            waivers = decide(target, waived or withdrawn, by, dry_run=dry_run)
        elif dry_run:
            parallel.require_possible(target, profile)
        elif ended:
            done = parallel.end(target, profile, settings.cutover, by)
            lines.append(
                f"waiting runs skipped, whose slots the old side took: {done.skipped:,};"
                f" slots that it did not take, which fire again: {done.freed:,}"
            )
        else:
            parallel.begin(target, profile, by.who, by.reason)
            waivers = parallel.waivers(target)
        lines.append(
            "PostgreSQL is a copy: no process claims anything there until the cutover"
            if epoch.is_closed_copy(target)
            else "every handler runs on PostgreSQL"
        )
    stability = format_duration(settings.cutover.stability)
    if waived or withdrawn:
        lines = [
            f"{verb}: {len(waivers):,} schedules need no completed run",
            *(f"  {one.words}" for one in waivers),
        ]
    elif not ended:
        lines = [
            f"{verb}: on PostgreSQL only handlers marked idempotent are called; runs of the others are recorded only",
            f"the cutover requires {stability} without an error",
        ]
    lines += ["nothing was written"] * dry_run
    recorded = {"who": by.who, "reason": by.reason, "stability": "0s" if ended else stability}
    show(recorded | {"waived": waivers}, lines, as_json=as_json)


@cutover_group.command(short_help="Run the cutover, or finish an interrupted one.")
@allow_quarantined_option
@group_options
@approval_options
@yes_option
@dry_run_option
@report_option
@common_options
def run_command(
    config: str | None,
    allow_quarantined: Allowance,
    only: tuple[str, ...],
    tenant: tuple[str, ...],
    who: str | None,
    reason: str | None,
    *,
    yes: bool,
    dry_run: bool,
    report: bool,
    as_json: bool,
) -> None:
    """Run the cutover; finish one that was interrupted after the point of no return, and undo any other first.

    On a terminal it shows what will happen, and asks for the environment's name.

    For a library's own tables it ends with exit status 4: the application is still to be configured, started and
    confirmed (migrator cutover confirm).
    """
    settings, file = load(config), _file(config)
    procedure.require_whole(only, tenant)
    if dry_run:
        _plan(settings, file, allow_quarantined, as_json=as_json)
    if settings.target.is_native:
        options = GateOptions(config=file, quarantined=allow_quarantined)
        end = EndReport(settings, config, wanted=report)
        _run_to_library(settings, options, approval(who, reason), end, yes=yes, as_json=as_json)
    confirm(settings, "cutover", lambda: _cutover_summary(settings, file, allow_quarantined), yes=yes)
    conditions, by = GateOptions(config=file, quarantined=allow_quarantined), approval(who, reason)
    end = EndReport(settings, config, wanted=report)
    done = _reported(end, lambda: cutover.run(settings, conditions, by))
    _show_reported(done, _run_lines(done, settings), end, as_json=as_json)
    finish(mask(unverified=done.cutover.detail.get(REVERSE_STOPPED)))


@cutover_group.command(short_help="Undo a cutover that was interrupted before the point of no return.")
@dry_run_option
@common_options
def abort_command(config: str | None, *, dry_run: bool, as_json: bool) -> None:
    """Lift the fence of a cutover that was killed before the point of no return."""
    settings = load(config)
    target = library_cutover.LibraryCutover if settings.target.is_native else cutover.SchedulerCutover
    if dry_run:
        steps = [step.step for step in procedure.steps_to_undo(target, settings)]
        lines = ["would lift the fence, and undo the steps:", *(f"  {one}" for one in steps), "nothing was written"]
        show({"would_undo": steps}, lines, as_json=as_json)
        finish(mask())
    done = procedure.abort(target, settings)
    show(done, ["undone: the fence is lifted, everything is as it was before"], as_json=as_json)


@cutover_group.command(short_help="Confirm that the application works on a library's tables.")
@approval_options
@dry_run_option
@common_options
def confirm_command(config: str | None, who: str | None, reason: str | None, *, dry_run: bool, as_json: bool) -> None:
    """Record that the application was configured for a library's tables in PostgreSQL, was started, and works there.

    The library reads its tables before, and three lines say what was seen: what it reads, how many rows were written
    since the cutover, and who is connected to the database. The cutover can be finished afterwards; until then a
    rollback leads back.
    Exit status: 4 the library was not asked, because it is not installed.
    """
    settings = load(config)
    if not settings.target.is_native:
        raise UsageError("the target is the schema scheduler, whose cutover needs no confirmation")
    done = library_cutover.confirm(settings, approval(who, reason), dry_run=dry_run)
    lines = [
        "nothing was written"
        if dry_run
        else "recorded: you say that the application works on PostgreSQL; what was seen:",
        *done.seen,
        f"next: {status.FINISH} when the window is over, or {status.ROLLBACK}",
    ]
    show(done, lines, as_json=as_json)
    finish(mask(unverified=done.library.unverified))


@cutover_group.command(short_help="Show the state of the last cutover.")
@click.option(
    "--wait",
    type=DurationType(least=NONE),
    metavar="DURATION",
    help="Wait for at most this time (5m) until every process of the old side has a heartbeat on PostgreSQL;"
    " exit 4 if one has not.",
)
@common_options
def status_command(config: str | None, wait: timedelta | None, *, as_json: bool) -> None:
    """Show the state of the last cutover: steps, reverse sync, processes on PostgreSQL, and the key metrics.

    Exit status 4 if a person must act: a cutover, rollback or finish was interrupted, or the reverse sync has
    stopped. The last lines then name the command to call. Exit status 1 if others than the reverse sync wrote in
    MongoDB since the cutover.
    """
    settings = load(config)
    if wait is not None and settings.target.is_native:
        raise UsageError("--wait is about processes of the schema scheduler: a library's are not known")
    state = cutover_status(settings, wait_s=0 if wait is None else wait.total_seconds(), config=config)
    show(state, _status_lines(state), as_json=as_json)
    missing = wait is not None and not (state.arrivals and state.arrivals.complete)
    finish(mask(different=unmet(list(state.source)), unverified=missing or state.attention))


@cutover_group.command("report", short_help="Write the report of the last cutover, to be signed.")
@click.option("--report-dir", type=click.Path(file_okay=False), help="Folder for reports (default: report.directory).")
@click.option(
    "--sign-key", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Sign with this Ed25519 key."
)
@dry_run_option
@common_options
def report_command(
    config: str | None, report_dir: str | None, sign_key: Path | None, *, dry_run: bool, as_json: bool
) -> None:
    """Write the journal, the gates, the write pause and each success criterion of the last cutover as a report.

    It is read from the journal and from both databases as they are now, and can be made again later. Nothing is
    written but the files. Exit status: 1 a criterion is not met, 4 one could not be told.
    """
    result, folder = report_into(load(config), directory=report_dir, sign_key=sign_key, dry_run=dry_run)
    if as_json:
        click.echo(results.encode(result).decode(), nl=False)
    else:
        assert result.cutover is not None  # noqa: S101 - the report of a cutover
        print_lines(moved.terminal_lines(result, result.cutover, str(folder)))
        print_lines(["nothing was written"] * dry_run)
    finish(result.exit_status())


@cutover_group.command("rehearse", short_help="Copy, cut over and roll back on other servers; recorded.")
@allow_quarantined_option
@approval_options
@yes_option
@dry_run_option
@common_options
def rehearse_command(
    config: str | None,
    allow_quarantined: Allowance,
    who: str | None,
    reason: str | None,
    *,
    yes: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Make a complete rehearsal on the servers of cutover.rehearsal_config, and record its result and its times.

    The file names another MongoDB and another database of PostgreSQL, with data like that of this configuration, and
    has the same [source] and [target]. The copy, the cutover and the rollback are made there. Here a decision is
    recorded, which the gate of cutover.rehearsals counts. Refused (2) if the file leads to a server of this
    configuration. On a terminal it asks for the name of the rehearsal's environment.
    """
    settings, by = load(config), approval(who, reason)
    place = rehearsal.place_of(settings, _file(config))
    steps = [f"{number}. {step}" for number, step in enumerate(rehearsal.STEPS, 1)]
    if dry_run:
        show({"config": str(place.config), "steps": rehearsal.STEPS}, [*steps, "nothing was written"], as_json=as_json)
        finish(mask())
    confirm(place.settings, "rehearsal", lambda: steps, yes=yes)
    done = rehearsal.rehearse(settings, place, by, quarantined=allow_quarantined)
    lines = [
        f"rehearsed in {done.environment}: {done.documents:,} documents, copied in {done.copy_s:.2f} s",
        f"write pause {done.pause_s:.2f} s",
        f"rollback {done.rollback_s:.2f} s; writers of PostgreSQL stopped for {done.rollback_pause_s:.2f} s",
        "recorded; next: migrator cutover plan",
    ]
    show(done, lines, as_json=as_json)
    finish(mask())


@cutover_group.command("clean-copy", short_help="Export and remove what a rehearsal made in a copy.")
@named_approval_options
@yes_option
@dry_run_option
@common_options
def clean_copy_command(
    config: str | None, who: str | None, reason: str | None, *, yes: bool, dry_run: bool, as_json: bool
) -> None:
    """Remove the rows of a copy that came neither from the source nor from a parallel run; they are exported first.

    The copy may then not be changed any more. Copied rows that a rehearsal changed stay as they are: call migrator
    parity --repair apply afterwards, which the cutover requires. --dry-run counts the rows.
    """
    by = named_approval(who, reason, "removing rows")
    settings = load_scheduler(config)
    now = datetime.now(UTC)
    folder = _file(config).absolute().parent / settings.cutover.backup_directory / f"copy-{now:%Y%m%d-%H%M%S}"
    with target_connection(settings) as target:
        confirm(
            settings,
            "removal of the rows that did not come from the source",
            lambda: _made_lines(copied_database.made_rows(target)),
            yes=yes or dry_run,
        )
        done = copied_database.clean(settings, target, folder, by, dry_run=dry_run)
    lines = [*_made_lines(done.rows)]
    if dry_run:
        lines.append("nothing was written")
    else:
        lines += [f"exported to {done.folder} and removed"] if done.folder else []
        lines.append("the copy may not be changed any more; next: migrator parity --repair apply")
    show(done, lines, as_json=as_json)
    finish(mask())


def _made_lines(rows: Mapping[str, int]) -> Iterator[str]:
    yield from (
        f"{table}: {count:,} rows came neither from the source nor from a parallel run" for table, count in rows.items()
    )
    if not rows:
        yield "every row came from the source or from a parallel run"


@cutover_group.command("finish", short_help="Close the rollback window.")
@click.option(
    "--now", "early", is_flag=True, help="Finish before the rollback window is over; needs --who and --reason."
)
@named_approval_options
@click.option(
    "--allow-writes",
    type=AllowanceType(),
    default=0,
    metavar="N|all",
    help="Allow at most N documents that others wrote in MongoDB since the cutover, and that PostgreSQL does not have.",
)
@report_option
@dry_run_option
@common_options
def finish_command(
    config: str | None,
    who: str | None,
    reason: str | None,
    allow_writes: Allowance,
    *,
    early: bool,
    report: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Close the rollback window: end the reverse sync, remove the outbox. A rollback is refused afterwards.

    Refused until the window (cutover.window) is over, unless --now, and if others than the reverse sync wrote in
    MongoDB since the cutover. MongoDB stays fenced: cutover release-source opens it. Prints what has to be removed by
    hand.
    """
    by = named_approval(who, reason, "closing the window early") if early else None
    settings = load(config)
    if dry_run:
        planned = completion.finish(settings, early=by, allowed_writes=allow_writes, dry_run=True)
        would = "would end the reverse sync, and remove the outbox and the tail's indexes; MongoDB stays fenced"
        lines = [would, *gate_lines(planned.gates), "nothing was written"]
        show({"would_finish": planned.cutover.id, "gates": planned.gates}, lines, as_json=as_json)
        finish(mask())
    end = EndReport(settings, config, wanted=report)
    done = _reported(end, lambda: completion.finish(settings, early=by, allowed_writes=allow_writes))
    lines = [
        *gate_lines(done.gates),
        "finished: the reverse sync has ended; MongoDB stays fenced",
        "to be removed by hand:",
    ]
    _show_reported(done, [*lines, *(f"  [ ] {one}" for one in done.cleanup)], end, as_json=as_json)


@cutover_group.command("release-source", short_help="Open MongoDB for writes, after the cutover is finished.")
@approval_options
@yes_option
@dry_run_option
@common_options
def release_source_command(
    config: str | None, who: str | None, reason: str | None, *, yes: bool, dry_run: bool, as_json: bool
) -> None:
    """Lift the fence of MongoDB when the rollback window is closed. Later writes in MongoDB are not copied.

    No command needs it: call it if MongoDB, or its server, serves others. It says who can write then. On a terminal it
    shows that, and asks for the environment's name.
    """
    settings = load(config)
    if dry_run:
        planned = completion.release_source(settings, approval(who, reason), dry_run=True)
        show(
            planned,
            ["would lift the fence of MongoDB", *_release_lines(planned), "nothing was written"],
            as_json=as_json,
        )
        finish(mask())

    def summary() -> Iterator[str]:
        yield "the fence of MongoDB is lifted"
        yield from _release_lines(completion.release_source(settings, approval(who, reason), dry_run=True))

    confirm(settings, "release of MongoDB", summary, yes=yes, backend="mongo")
    done = completion.release_source(settings, approval(who, reason))
    said = "released: MongoDB accepts writes again" if done.fenced else "MongoDB accepted writes already"
    show(done, [said, *_release_lines(done)], as_json=as_json)


def _release_lines(released: completion.ReleaseResult) -> Iterator[str]:
    """Yield who can write in MongoDB without the fence, and what becomes of it."""
    yield f"who can write there then: {', '.join(released.writers) or 'nobody but the tool'}"
    if released.connected is None:
        yield "who of them is connected now: not known: the tool's user may not see connections (inprog)"
    else:
        yield f"who of them is connected now: {', '.join(released.connected) or 'nobody'}"
    yield "what they write goes nowhere: nothing carries it to PostgreSQL, and no rollback reads it"


def _file(config: str | None) -> Path:
    return Path(config or DEFAULT_PATH)


def _reported(end: EndReport, act: Callable[[], Done]) -> Done:
    """Act; if that fails after the journal began, write the report and say where, then raise the error."""
    try:
        return act()
    except MigratorError:
        if path := end.write():
            say(f"report: {path}", level="warning")
        raise


def _show_reported(done: Done, lines: Iterable[str], end: EndReport, *, as_json: bool) -> None:
    """Print what a command returns, then the path of its report; as JSON it is the member ``report``."""
    if as_json:
        print_json({**msgspec.structs.asdict(done), "report": None if (path := end.write()) is None else str(path)})
        return
    print_lines(lines)
    if path := end.write():
        print_lines([f"report: {path}"])


def _cutover_summary(settings: Settings, file: Path, quarantined: Allowance) -> Iterator[str]:
    """Yield the steps of the cutover, from its plan; of an interrupted one, how it goes on."""
    with target_connection(settings) as target:
        found = latest(target)
    if found is not None and found.state == "running":
        yield f"the cutover of {found.began_at:%Y-%m-%d %H:%M:%S} UTC was interrupted: it is finished, or undone first"
        return
    planned = cutover_plan(settings, file, quarantined=quarantined)
    yield from gate_lines(one for one in planned.gates if one.passed is not True)
    yield "writers of MongoDB are stopped, PostgreSQL is opened to them, and the configuration file is changed"
    yield f"configuration file: {planned.config}"
    pause = "not known" if planned.pause_s is None else f"{planned.pause_s:.1f} s"
    yield f"expected write pause: {pause}, at most {planned.pause_limit_s:g} s"
    yield planned.overdue_words
    yield from first_fires.lines(planned.first_fires)


def _run_lines(done: CutoverResult, settings: Settings) -> Iterator[str]:
    again = " (an interrupted cutover was finished)" if done.resumed else ""
    yield f"cut over to PostgreSQL, epoch {done.cutover.detail.get('epoch')}{again}"
    documents = "document" if done.compared == 1 else "documents"
    yield f"write pause: {done.pause_s:.2f} s; {done.compared:,} {documents} compared under the fence"
    yield f"overdue triggers: {done.overdue:,}"
    yield from first_fires.lines(done.first_fires)
    yield f"the old configuration is kept in {done.cutover.backup_path}"
    arrived = processes.arrivals(settings)
    if arrived is not None:
        yield from processes.lines(arrived)
        if not arrived.complete:
            yield "migrator cutover status --wait 5m waits for these processes"
    yield "keep migrator tail running until migrator cutover finish: it writes changes in PostgreSQL to MongoDB"
    if stopped := done.cutover.detail.get(REVERSE_STOPPED):
        yield f"the reverse sync stopped: {stopped}; migrator cutover status names the command to call"


def _plan_lines(plan: CutoverPlan) -> Iterator[str]:
    yield f"environment {plan.environment}, configuration {plan.config}"
    for number, (step, words) in enumerate(plan.steps.items(), 1):
        yield f"{number:>2}. {step}: {words}"
    yield "gates:"
    yield from gate_lines(list(plan.gates))
    changed = "everything" if plan.changed is None else f"documents that changed: {plan.changed:,}"
    pause = "not known yet" if plan.pause_s is None else f"about {plan.pause_s:.1f} s (to compare: {changed})"
    if plan.rehearsals.words:
        yield f"{plan.rehearsals.words}; limit of the write pause {plan.pause_limit_s:g} s"
    else:
        yield f"expected write pause: {pause}; limit {plan.pause_limit_s:g} s"
    yield plan.overdue_words
    yield from first_fires.lines(plan.first_fires)
    yield from _loss_lines(plan.rollback_words)
    yield _readiness(plan)


WIDTH: Final = 120


def _loss_lines(words: str) -> Iterator[str]:
    """Yield the gaps of a rollback: one line for each thing that has no place in the old application."""
    first, *losses = words.split("; ")
    yield from textwrap.wrap(f"{first}:" if losses else first, WIDTH, subsequent_indent="  ", break_on_hyphens=False)
    for loss in losses:
        yield from textwrap.wrap(
            loss, WIDTH, initial_indent="  - ", subsequent_indent="    ", break_on_hyphens=False, break_long_words=False
        )


def _status_lines(shown: CutoverStatus) -> Iterator[str]:
    current = shown.cutover
    if shown.parallel_since is not None:
        yield f"parallel run since {shown.parallel_since:%Y-%m-%d %H:%M:%S} UTC: only idempotent handlers run here"
    if current is None:
        yield "there was no cutover"
        return
    yield f"cutover {current.id} of {current.environment}, {current.began_at:%Y-%m-%d %H:%M:%S} UTC: {current.state}"
    for step in shown.steps:
        took = "" if step.ended_at is None else f", {(step.ended_at - step.began_at).total_seconds():.2f} s"
        why = f" (failed: {step.detail['failed']})" if "failed" in step.detail else ""
        yield f"  {step.step}: {step.state}{took}{why}"
    if "pause_s" in current.detail:
        yield f"write pause: {current.detail['pause_s']:.2f} s"
    if current.state == "cut-over":
        yield f"to be written to MongoDB: {shown.waiting:,} outbox entries, the oldest {shown.oldest_s:,.0f} s old"
        for place, count in current.detail.get("lost", {}).items():
            yield f"not in any document: {place}, {count:,} values"
    if shown.open_until is not None:
        yield f"a rollback is possible until {shown.open_until:%Y-%m-%d %H:%M:%S} UTC, then until cutover finish"
    if shown.arrivals is not None:
        yield from processes.lines(shown.arrivals)
    yield from _source_lines(shown)
    yield from () if shown.metrics is None else metrics.lines(shown.metrics)
    if shown.attention is not None:
        yield from status.attention_lines(shown.attention)


def _source_lines(found: CutoverStatus) -> Iterator[str]:
    """Yield who wrote in MongoDB since the cutover, and what opens it when the cutover is finished."""
    yield from gate_lines(found.source)
    if found.source and found.cutover is not None and found.cutover.state == "finished":
        yield f"MongoDB stays fenced until {status.RELEASE}"


@click.group("rollback")
def rollback_group() -> None:
    """Roll back to MongoDB: with all changes (1), and without the schema (2), or from the backup (3)."""


_level = click.option(
    "--level",
    type=click.IntRange(1, 3),
    default=1,
    show_default=True,
    help="1 with all changes, 2 also downgrade the schema, 3 restore the backup.",
)


@rollback_group.command("plan", short_help="Show every step and the gates; changes nothing.")
@_level
@common_options
def rollback_plan_command(config: str | None, level: int, *, as_json: bool) -> None:
    """Show every step of the rollback and the present state of its gates."""
    _rollback_plan(load(config), _file(config), level, as_json=as_json)


def _rollback_plan(settings: Settings, file: Path, level: int, *, as_json: bool) -> NoReturn:
    gates: list[Gate]
    steps: tuple[str, ...]
    if settings.target.is_native:
        _require_level_1(level)
        gates, steps = library_rollback.plan_gates(settings), library_rollback.STEPS
    else:
        gates, steps = rollback.gates(settings, file, cast("Level", level)), ROLLBACK_STEPS[level]
    numbered = [f"{number}. {step}" for number, step in enumerate(steps, 1)]
    show({"steps": steps, "gates": gates}, [*numbered, *gate_lines(gates)], as_json=as_json)
    finish(mask(unverified=unmet(gates)))


@rollback_group.command("run", short_help="Roll back, or finish an interrupted rollback.")
@_level
@approval_options
@yes_option
@dry_run_option
@report_option
@common_options
def rollback_run_command(
    config: str | None,
    level: int,
    who: str | None,
    reason: str | None,
    *,
    yes: bool,
    dry_run: bool,
    report: bool,
    as_json: bool,
) -> None:
    """Roll back to MongoDB. If an earlier call was interrupted, finish it.

    On a terminal it shows what will happen, and asks for the environment's name.
    """
    settings, file, chosen = load(config), _file(config), cast("Level", level)
    if dry_run:
        _rollback_plan(settings, file, level, as_json=as_json)
    if settings.target.is_native:
        _require_level_1(level)
        end = EndReport(settings, config, wanted=report)
        _roll_back_from_library(settings, approval(who, reason), end, yes=yes, as_json=as_json)
    what = f"rollback, level {level}"
    confirm(settings, what, lambda: gate_lines(rollback.gates(settings, file, chosen)), yes=yes)
    by = approval(who, reason)
    end = EndReport(settings, config, wanted=report)
    done = _reported(end, lambda: rollback.run(settings, file, chosen, by))
    _show_reported(done, _rollback_lines(done), end, as_json=as_json)
    finish(mask(different=done.unlike))


def _rollback_lines(done: RollbackResult) -> Iterator[str]:
    yield f"rolled back, level {done.level}: {done.documents:,} documents written to MongoDB by this call"
    word = "not in MongoDB" if done.level == 1 else "exported"
    yield from (f"{word}: {place}: {count:,}" for place, count in done.lost.items())
    yield from gap_lines(done.gaps)
    if done.folder:
        yield f"exported to {done.folder}, SHA-256 of its manifest.json {done.digest}"
    if done.tables:
        yield f"every row of the removed schema: {done.tables}"
    if done.unlike:
        yield "not as it was said before, so look at these schedules now:"
        yield from gap_lines(done.unlike)
    yield "not removed:"
    yield from (f"  {one}" for one in done.left)


def _require_level_1(level: int) -> None:
    if level != 1:
        raise UsageError(library_rollback.ONE_LEVEL)


def _run_to_library(
    settings: Settings, options: GateOptions, by: Approval, end: EndReport, *, yes: bool, as_json: bool
) -> NoReturn:
    """Make the cutover to a library's tables; end with the state of what is left to do."""

    def summary() -> Iterator[str]:
        planned = library_cutover.plan(settings, options)
        yield from gate_lines(one for one in planned.gates if one.passed is not True)
        yield "writers of MongoDB are stopped, and the library's tables are opened to the application"

    confirm(settings, "cutover", summary, yes=yes)
    done = _reported(end, lambda: library_cutover.run(settings, options, by))
    again = " (an interrupted cutover was finished)" if done.resumed else ""
    documents = "document" if done.compared == 1 else "documents"
    lines = [
        f"cut over to the tables of {settings.target.name}{again}",
        f"write pause: {done.pause_s:.2f} s; {done.compared:,} {documents} compared under the fence",
        done.library.words,
        "now: change the application's configuration to PostgreSQL, start it, and call migrator cutover confirm",
        f"or go back: {status.ROLLBACK}",
        "keep migrator tail running until migrator cutover finish: it writes changes in PostgreSQL to MongoDB",
    ]
    if stopped := done.cutover.detail.get(REVERSE_STOPPED):
        lines.append(f"the reverse sync stopped: {stopped}; migrator cutover status names the command to call")
    _show_reported(done, lines, end, as_json=as_json)
    finish(mask(unverified=True))


def _library_plan_lines(planned: PlannedCutover) -> Iterator[str]:
    yield f"environment {planned.environment}"
    yield from (f"{number:>2}. {step}: {words}" for number, (step, words) in enumerate(planned.steps.items(), 1))
    yield "gates:"
    yield from gate_lines(planned.gates)
    changed = "everything" if planned.changed is None else f"documents that changed: {planned.changed:,}"
    pause = "not known yet" if planned.pause_s is None else f"about {planned.pause_s:.1f} s (to compare: {changed})"
    yield f"expected write pause: {pause}; limit {planned.pause_limit_s:g} s"
    yield _readiness(planned)


def _readiness(plan: PlannedCutover) -> str:
    named = ", ".join(gate.name for gate in in_the_way(plan.gates))
    return "ready: migrator cutover run" if plan.ready else f"not ready, because of {named}; nothing was changed"


def _roll_back_from_library(settings: Settings, by: Approval, end: EndReport, *, yes: bool, as_json: bool) -> NoReturn:
    confirm(settings, "rollback", lambda: gate_lines(library_rollback.plan_gates(settings)), yes=yes)
    done = _reported(end, lambda: library_rollback.run(settings, by))
    removed = "documents were removed, because the library had deleted their rows"
    lines = [
        f"rolled back: {done.documents:,} documents written to MongoDB by this call",
        *([f"{done.removed:,} {removed}"] if done.removed else []),
        *(f"not in MongoDB: {place}: {count:,}" for place, count in done.lost.items()),
        *([f"exported to {done.folder}, SHA-256 of its manifest.json {done.digest}"] if done.folder else []),
        "the library's tables refuse writes until the next cutover; migrator tail follows MongoDB again",
        "now: change the application's configuration to MongoDB, and start it",
    ]
    _show_reported(done, lines, end, as_json=as_json)
    finish(mask())
