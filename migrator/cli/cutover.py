"""Commands around a cutover: ``doctor``, ``cutover``, ``rollback``."""

from collections.abc import Iterator
from pathlib import Path
from typing import cast

import click

from migrator.cli.options import common_options, finish, load, print_json, print_lines
from migrator.cli.text import parity_lines, parity_status
from migrator.config import DEFAULT_PATH
from migrator.connections.postgres import open_target, translate_errors
from migrator.cutover import completion, cutover, metrics, parallel, processes, rollback, status
from migrator.cutover.doctor import examine
from migrator.cutover.gates import GateOptions, gate_lines, unmet
from migrator.cutover.plan import CutoverPlan, cutover_plan
from migrator.cutover.rollback import Level
from migrator.cutover.rollback_gaps import gap_lines
from migrator.cutover.status import CutoverStatus, cutover_status
from migrator.exit_status import mask
from migrator.parity.recorded_check import check_and_record
from migrator.sources import profile_of


@click.command()
@common_options
def doctor_command(config: str | None, *, as_json: bool) -> None:
    """Reach both servers and say what stands in the way of a move: versions, rights, history, schema, clocks.

    Exit status: 1 something stands in the way, 4 something cannot be told, 16 a server could not be reached.
    """
    found = examine(load(config))
    if as_json:
        print_json(found)
    else:
        print_lines(gate_lines(found.findings))
    finish(
        mask(
            different=any(one.passed is False for one in found.findings),
            unverified=any(one.passed is None for one in found.findings),
            tool_failed=found.unreachable,
        )
    )


@click.group("cutover")
def cutover_group() -> None:
    """Move the scheduler to PostgreSQL under a fence that stops every writer of MongoDB."""


_quarantined = click.option(
    "--quarantined", type=int, default=0, metavar="N", help="At most N documents in quarantine may stay behind."
)


@cutover_group.command(short_help="Show every step, the gates, the expected pause; changes nothing.")
@_quarantined
@common_options
def plan_command(config: str | None, quarantined: int, *, as_json: bool) -> None:
    """Show every step, the gates as they stand now, the expected write pause, and what becomes of late triggers."""
    found = cutover_plan(load(config), _file(config), quarantined=quarantined)
    if as_json:
        print_json(found)
    else:
        print_lines(_plan_lines(found))
    finish(mask(unverified=not found.ready))


@cutover_group.command(short_help="Compare everything, and put the outcome on record.")
@common_options
def compare_command(config: str | None, *, as_json: bool) -> None:
    """Compare everything, and put the outcome on record: the cutover asks for a young and clean one.

    It is migrator parity without options. While the source is written to, let migrator tail run: documents are compared
    all the same, and figures (counts, sums, times) are not, which sets the bit 4. The cutover asks for the documents.
    """
    outcome = check_and_record(load(config))
    if as_json:
        print_json(outcome)
    else:
        print_lines(parity_lines(outcome))
    finish(parity_status(outcome))


@cutover_group.command(short_help="Put on record that both schedulers run beside each other from now on.")
@click.option("--who", required=True, help="Who decided it.")
@click.option("--reason", required=True, help="Why.")
@click.option("--end", "ended", is_flag=True, help="They do not any more: every handler runs here.")
@common_options
def parallel_command(config: str | None, who: str, reason: str, *, ended: bool, as_json: bool) -> None:
    """Record that both schedulers run: five more gates, computed from the runs, must hold before the cutover.

    Refused (2), before anything is written, for a source whose runs do not name the slot they were fired for: their
    slots cannot be compared. In this version that is every source.

    Processes on PostgreSQL see it before their next claim: from then on they call only handlers that are marked
    idempotent, and record the runs of the others without doing anything. The cutover ends it too.
    """
    settings = load(config)
    profile = profile_of(settings.source)
    with open_target(settings, autocommit=True) as target, translate_errors("the target"):
        if ended:
            parallel.end(target, who, reason)
        else:
            parallel.begin(target, profile, who, reason)
    hours = settings.cutover.stability_hours
    if as_json:
        print_json({"who": who, "reason": reason, "hours": 0 if ended else hours})
    elif ended:
        click.echo("on record: every handler runs on PostgreSQL")
    else:
        click.echo("on record: on PostgreSQL only handlers marked idempotent run; the others are recorded in shadow")
        click.echo(f"{hours} h without an error are asked for before the switch")


@cutover_group.command(short_help="Make the switch, or finish an interrupted one.")
@_quarantined
@common_options
def run_command(config: str | None, quarantined: int, *, as_json: bool) -> None:
    """Make the cutover; one that was interrupted after the point of no return is finished, else it is undone first."""
    settings = load(config)
    done = cutover.run(settings, GateOptions(config=_file(config), quarantined=quarantined))
    stopped = done.cutover.detail.get(cutover.REVERSE_STOPPED)
    if as_json:
        print_json(done)
        finish(mask(unverified=stopped))
    again = " (an interrupted switch was finished)" if done.resumed else ""
    click.echo(f"switched to postgres as number {done.cutover.detail.get('epoch')}{again}")
    click.echo(f"write pause: {done.pause_s:.2f} s; {done.compared:,} documents compared behind the fence")
    click.echo(f"overdue triggers: {done.overdue:,}")
    click.echo(f"the old configuration is kept in {done.cutover.backup_path}")
    found = processes.arrivals(settings)
    if found is not None:
        print_lines(processes.lines(found))
        if not found.complete:
            click.echo("migrator cutover status --wait 300 waits for them")
    click.echo("keep migrator tail running: it carries what is written to MongoDB, until migrator cutover finish")
    if stopped:
        click.echo(f"the reverse sync stopped: {stopped}; migrator cutover status says what leads on")
    finish(mask(unverified=stopped))


@cutover_group.command(short_help="Undo a switch that was interrupted before the point of no return.")
@common_options
def abort_command(config: str | None, *, as_json: bool) -> None:
    """Lift the fence of a cutover that was killed before the point of no return."""
    done = cutover.abort(load(config))
    if as_json:
        print_json(done)
    else:
        click.echo("undone: the fence is lifted, everything is as it was before")


@cutover_group.command(short_help="Show where the last switch stands.")
@click.option(
    "--wait",
    "wait_s",
    type=click.IntRange(min=0),
    default=None,
    metavar="SECONDS",
    help="Wait until every process of the old side has come over; exit 4 where one has not.",
)
@common_options
def status_command(config: str | None, wait_s: int | None, *, as_json: bool) -> None:
    """Show where the last cutover stands, how far the reverse sync is, who has come over, and the key figures.

    Exit status 4 where it waits for a person: an interrupted cutover, rollback or finish, or a reverse sync that stands
    still. The last lines then name the command that leads on.
    """
    found = cutover_status(load(config), wait_s=wait_s or 0, config=config)
    if as_json:
        print_json(found)
    else:
        print_lines(_status_lines(found))
    missing = wait_s is not None and not (found.arrivals and found.arrivals.complete)
    finish(mask(unverified=missing or found.attention))


@cutover_group.command("finish", short_help="Close the window of the way back for good.")
@click.option("--now", "early", is_flag=True, help="Before the window's hours are over; needs --who and --reason.")
@click.option("--who", default="", help="Who decided it.")
@click.option("--reason", default="", help="Why.")
@common_options
def finish_command(config: str | None, who: str, reason: str, *, early: bool, as_json: bool) -> None:
    """Close the window: no reverse sync, no fence, no outbox any more. Rollback level 1 is refused afterwards.

    Refused until the window's hours (window_hours) are over, unless --now. Prints what is left to be cleaned up.
    """
    done = completion.finish(load(config), early=completion.EarlyFinish(who=who, reason=reason) if early else None)
    if as_json:
        print_json(done)
        return
    click.echo("finished: MongoDB is no longer kept current, and its fence is lifted")
    click.echo("to be cleaned up by people:")
    for one in done.cleanup:
        click.echo(f"  [ ] {one}")


def _file(config: str | None) -> Path:
    return Path(config or DEFAULT_PATH)


def _plan_lines(found: CutoverPlan) -> Iterator[str]:

    yield f"environment {found.environment}, configuration {found.config}"
    for number, (step, words) in enumerate(found.steps.items(), 1):
        yield f"{number:>2}. {step}: {words}"
    yield "gates:"
    yield from gate_lines(list(found.gates))
    changed = "everything" if found.changed is None else f"documents that changed: {found.changed:,}"
    pause = "cannot be told yet" if found.pause_s is None else f"about {found.pause_s:.1f} s (to compare: {changed})"
    yield f"expected write pause: {pause}; limit {found.pause_limit_s} s"
    yield f"{found.overdue_words}"
    if found.rollback_words:
        yield found.rollback_words
    in_the_way = ", ".join(one.name for one in found.gates if one.passed is False)
    yield "ready: migrator cutover run" if found.ready else f"not ready, by {in_the_way}; nothing was changed"


def _status_lines(found: CutoverStatus) -> Iterator[str]:

    one = found.cutover
    if found.beside_since is not None:
        yield f"both schedulers run since {found.beside_since:%Y-%m-%d %H:%M:%S} UTC; here what is marked idempotent"
    if one is None:
        yield "there was no switch"
        return
    yield f"switch {one.id} of {one.environment}, {one.began_at:%Y-%m-%d %H:%M:%S} UTC: {one.state}"
    for step in found.steps:
        took = "" if step.ended_at is None else f", {(step.ended_at - step.began_at).total_seconds():.2f} s"
        why = f" (failed: {step.detail['failed']})" if "failed" in step.detail else ""
        yield f"  {step.step}: {step.state}{took}{why}"
    if "pause_s" in one.detail:
        yield f"write pause: {one.detail['pause_s']:.2f} s"
    if one.state == "switched":
        yield f"to be carried to MongoDB: {found.waiting:,} notes, the oldest {found.oldest_s:,.0f} s old"
        for place, count in one.detail.get("lost", {}).items():
            yield f"no place in a document: {place}, {count:,} times"
    if found.open_until is not None:
        yield f"the way back stays open until {found.open_until:%Y-%m-%d %H:%M:%S} UTC, and then until cutover finish"
    if found.arrivals is not None:
        yield from processes.lines(found.arrivals)
    yield from metrics.lines(found.figures)
    if found.attention is not None:
        yield from status.attention_lines(found.attention)


@click.group("rollback")
def rollback_group() -> None:
    """Switch back to MongoDB: with everything written since (1), without the schema (2), or from the backup (3)."""


_level = click.option(
    "--level", type=click.IntRange(1, 3), default=1, show_default=True, help="1 switch back, 2 schema too, 3 backup."
)


@rollback_group.command("plan", short_help="Show every step and what must hold; changes nothing.")
@_level
@common_options
def rollback_plan_command(config: str | None, level: int, *, as_json: bool) -> None:
    """Show every step, and what must hold."""
    found = rollback.gates(load(config), Path(config or DEFAULT_PATH), cast("Level", level))
    if as_json:
        print_json({"steps": rollback.STEPS[level], "gates": found})
    else:
        print_lines([f"{number}. {step}" for number, step in enumerate(rollback.STEPS[level], 1)])
        print_lines(gate_lines(found))
    finish(mask(unverified=unmet(found)))


@rollback_group.command("run", short_help="Go back, or finish an interrupted way back.")
@_level
@common_options
def rollback_run_command(config: str | None, level: int, *, as_json: bool) -> None:
    """Go back; a call that was interrupted is gone on with."""
    done = rollback.run(load(config), Path(config or DEFAULT_PATH), cast("Level", level))
    if as_json:
        print_json(done)
        return
    click.echo(f"rolled back, level {done.level}: {done.documents:,} documents written to MongoDB by this call")
    word = "left behind" if done.level == 1 else "exported"
    for place, count in done.lost.items():
        click.echo(f"{word}: {place}: {count:,}")
    print_lines(gap_lines(done.unstated))
    if done.folder:
        click.echo(f"exported to {done.folder}")
    click.echo("still there:")
    print_lines(f"  {one}" for one in done.left)
