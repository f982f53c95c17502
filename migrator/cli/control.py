"""The commands of ``control``: pause, limits and the postponed cutover of a migration, while it runs."""

from collections.abc import Iterator, Mapping
from contextlib import closing

import click

from migrator.cli.confirmation import approval, approval_options
from migrator.cli.options import common_options, dry_run_option, finish, load, show
from migrator.config import LONGEST_WAIT, Settings, nearest
from migrator.connections.postgres import target_connection
from migrator.cutover.journal import require_no_cutover
from migrator.durations import NONE, parse_duration
from migrator.errors import UsageError
from migrator.exit_status import mask
from migrator.pipeline import control
from migrator.pipeline.control import LIMITS, PAUSE, POSTPONE, UNITS, Control, LimitName, Limits, limit_words
from migrator.pipeline.sessions import SourceSessions
from migrator.pipeline.throttle import measured, require_measurable
from migrator.schema.decisions import Approval


@click.group()
def control_group() -> None:
    """Pause, slow down or postpone a migration while it runs, from any machine that reaches the target."""


@control_group.command("show", short_help="Show what is set, and who set it.")
@common_options
def show_command(config: str | None, *, as_json: bool) -> None:
    """Show the pause, the limits with their origin, and whether the cutover is postponed; who set it, when and why."""
    _show(load(config), as_json=as_json)


@control_group.command("pause", short_help="Pause copies, parity checks and the tail.")
@approval_options
@dry_run_option
@common_options
def pause_command(config: str | None, who: str | None, reason: str | None, *, dry_run: bool, as_json: bool) -> None:
    """Pause copies, parity checks and the tail: those that run, and those that are started later.

    Chunks that have begun end. Nothing is lost, and Ctrl-C ends a command that waits. The oplog must keep what the tail
    has not applied: the tail says how many hours are left. Refused while a cutover is under way.
    """
    settings = load(config)
    with target_connection(settings) as target:
        require_no_cutover(target)
    _put(settings, {PAUSE: None}, approval(who, reason), dry_run=dry_run, as_json=as_json)


@control_group.command("resume", short_help="End the pause.")
@approval_options
@dry_run_option
@common_options
def resume_command(config: str | None, who: str | None, reason: str | None, *, dry_run: bool, as_json: bool) -> None:
    """End the pause. Commands that wait continue within seconds."""
    _remove(load(config), (PAUSE,), approval(who, reason), dry_run=dry_run, as_json=as_json)


@control_group.command("set", short_help="Set limits that replace those of the configuration.")
@click.argument("limits", nargs=-1, required=True, metavar="NAME=VALUE [NAME=VALUE]...")
@approval_options
@dry_run_option
@common_options
def set_command(
    config: str | None,
    limits: tuple[str, ...],
    who: str | None,
    reason: str | None,
    *,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Set limits of running and later copies and parity checks, such as max_rate=500; 0 is no limit.

    NAME is max_rate, max_replication_lag (a duration, such as 10s) or max_source_load. What is set is in force in place
    of the configuration, until it is cleared. A limit that cannot be measured is refused, with the right that is
    missing.
    """
    values: dict[str, float] = dict(map(_limit, limits))
    settings = load(config)
    limits_of_source = measured(Limits(**values))
    if limits_of_source:  # a rate needs no source, which this machine may not reach
        with closing(SourceSessions(settings)) as sessions:
            require_measurable(sessions, limits_of_source)
    _put(settings, values, approval(who, reason), dry_run=dry_run, as_json=as_json)


@control_group.command("clear", short_help="Remove limits; those of the configuration apply again.")
@click.argument("names", nargs=-1, type=click.Choice(LIMITS), metavar="[NAME]...")
@approval_options
@dry_run_option
@common_options
def clear_command(
    config: str | None,
    names: tuple[LimitName, ...],
    who: str | None,
    reason: str | None,
    *,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Remove limits that were set, all if none is named. Those of the configuration apply again."""
    _remove(load(config), names or LIMITS, approval(who, reason), dry_run=dry_run, as_json=as_json)


@control_group.command("postpone-cutover", short_help="Hold the cutover before its fence.")
@approval_options
@dry_run_option
@common_options
def postpone_command(config: str | None, who: str | None, reason: str | None, *, dry_run: bool, as_json: bool) -> None:
    """Hold the cutover, now or later, before it stops any writer, until migrator control allow-cutover."""
    _put(load(config), {POSTPONE: None}, approval(who, reason), dry_run=dry_run, as_json=as_json)


@control_group.command("allow-cutover", short_help="Release a cutover that was postponed.")
@approval_options
@dry_run_option
@common_options
def allow_command(config: str | None, who: str | None, reason: str | None, *, dry_run: bool, as_json: bool) -> None:
    """Release a cutover that was postponed: it evaluates its gates again, and then stops the writers."""
    _remove(load(config), (POSTPONE,), approval(who, reason), dry_run=dry_run, as_json=as_json)


def _limit(text: str) -> tuple[LimitName, float]:
    """Return a limit and its value; raise ``UsageError``."""
    name, _, value = text.partition("=")
    known = next((one for one in LIMITS if one == name), None)
    if known is None:
        raise UsageError(f"unknown limit {name}{nearest(name, LIMITS)}")
    if known == "max_replication_lag":
        try:
            length = parse_duration(value, least=NONE, most=LONGEST_WAIT)
        except ValueError as error:
            raise UsageError(f"{name}: {error}") from None
        return known, length.total_seconds()
    try:
        number = int(value)
    except ValueError:
        number = -1
    if not 0 <= number <= control.LARGEST_LIMIT:
        raise UsageError(f"{name}: expected a whole number of {UNITS[known]}, 0 for no limit")
    return known, number


def _put(settings: Settings, values: Mapping[str, float | None], by: Approval, *, dry_run: bool, as_json: bool) -> None:
    if dry_run:
        lines = (f"would set {_assignment(name, value)}; nothing was written" for name, value in values.items())
        show({"would_set": values}, lines, as_json=as_json)
        finish(mask())
    with target_connection(settings) as target:
        control.put(target, values, by)
    _show(settings, as_json=as_json)


def _remove(settings: Settings, names: tuple[str, ...], by: Approval, *, dry_run: bool, as_json: bool) -> None:
    if dry_run:
        with target_connection(settings) as target:
            found = [name for name in control.read(target).entries if name in names]
        show({"would_remove": found}, [f"would remove: {', '.join(found) or 'nothing'}"], as_json=as_json)
        finish(mask())
    with target_connection(settings) as target:
        control.remove(target, names, by)
    _show(settings, as_json=as_json)


def _assignment(name: str, value: float | None) -> str:
    return name if value is None else f"{name}={value:g}"


def _show(settings: Settings, *, as_json: bool) -> None:
    with target_connection(settings) as target:
        control_state = control.read(target)
    limits = control_state.limits(settings.copy)
    told = {"pause": control_state.pause, "postpone_cutover": control_state.postponed}
    origins = {name: {"value": getattr(limits, name), "set": control_state.entries.get(name)} for name in LIMITS}
    show(told | {"limits": origins}, _lines(control_state, limits), as_json=as_json)


def _lines(state: Control, limits: Limits) -> Iterator[str]:
    yield f"paused {state.pause.words}" if state.pause else "not paused"
    for name in LIMITS:
        what = limit_words(name, getattr(limits, name))
        entry = state.entries.get(name)
        yield f"{name}: {what}, {f'set {entry.words}' if entry else 'of the configuration'}"
    yield f"cutover postponed {state.postponed.words}" if state.postponed else "cutover not postponed"
