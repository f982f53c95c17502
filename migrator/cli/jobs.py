"""Commands on jobs by hand: list, show, history, and the operations that change them."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, TypeVar, cast

import click
import msgspec

from migrator import cron, states
from migrator.cli.confirmation import approval, approval_options, confirm, yes_option
from migrator.cli.job_views import (
    created_line,
    created_view,
    details_lines,
    details_view,
    history_view,
    list_lines,
    list_view,
    run_lines,
    time_text,
)
from migrator.cli.options import (
    DurationType,
    common_options,
    dry_run_option,
    finish,
    load_scheduler,
    print_lines,
    show,
)
from migrator.cli.text import count_words
from migrator.config import LARGEST, Settings
from migrator.errors import UsageError
from migrator.pipeline.status import copied_until
from migrator.scheduler.models import ScheduleRequest
from migrator.scheduler.operations import (
    DATABASES,
    Action,
    JobFilter,
    Jobs,
    JobTarget,
    OperationReport,
    OperationResult,
    Side,
    listed_words,
    open_jobs,
    operation_report,
)
from migrator.telemetry import say

Command = TypeVar("Command", bound=Callable[..., Any])

ASKING: Final = ("cancel", "delete")
"""Operations that cannot be undone: they always ask."""
VERBS: Final = {
    "pause": "paused",
    "resume": "resumed",
    "trigger": "triggered",
    "cancel": "cancelled",
    "retry": "retried",
    "delete": "deleted",
}
LARGEST_PAGE: Final = 1_000
FIRST_YEAR: Final = 1900
"""Of a time from which runs are listed: earlier than any run, and far from what neither server can hold."""


class _Instant(click.ParamType[datetime]):
    """A time of ISO 8601; one without a zone is UTC."""

    name = "time"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        """Return the time."""
        try:
            instant = datetime.fromisoformat(str(value))
            instant = instant.replace(tzinfo=UTC) if instant.tzinfo is None else instant.astimezone(UTC)
        except (ValueError, OverflowError):
            self.fail(f"{value} is no time; expected for example 2026-03-01 or 2026-03-01T14:30:00+01:00", param, ctx)
        if instant.year < FIRST_YEAR:
            self.fail(f"{value} is before every run; expected a time of the year {FIRST_YEAR} or later", param, ctx)
        return instant


_backend_option = click.option(
    "--backend",
    type=click.Choice([*DATABASES]),
    help="Database that holds the jobs (default: [persistence] scheduler).",
)
_tenant_option = click.option(
    "--tenant", multiple=True, metavar="TENANT", help="Only this tenant; repeatable (default: all)."
)
_jobs_argument = click.argument("jobs", nargs=-1, metavar="[JOB]...")
_job_argument = click.argument("job", metavar="JOB")


def _filters(command: Command) -> Command:
    """Add the options that choose jobs."""
    command = click.option(
        "--state",
        multiple=True,
        type=click.Choice([*states.SCHEDULE, states.SCHEDULE_QUEUED]),
        help="Only jobs in this state; repeatable.",
    )(command)
    command = click.option(
        "--handler", multiple=True, metavar="NAME", help="Only jobs with this handler; repeatable: with one of them."
    )(command)
    command = click.option(
        "--tag", multiple=True, metavar="TAG", help="Only jobs with this tag; repeatable: with all of them."
    )(command)
    command = click.option(
        "--name",
        metavar="PATTERN",
        help="Only jobs whose name matches: * is any text, ? any character, [ab] one of them.",
    )(command)
    return _tenant_option(command)


def _operation_options(command: Command) -> Command:
    """Add the options of an operation."""
    for option in (common_options, _backend_option, dry_run_option, yes_option, approval_options, _filters):
        command = option(command)
    return command


@click.group("jobs")
def jobs_group() -> None:
    """List, show and change jobs by hand, on the backend that holds the data.

    A job is named by its id, the id that it has in the source, or its exact name.
    """


@jobs_group.command("list")
@_filters
@click.option(
    "--limit",
    type=click.IntRange(1, LARGEST_PAGE),
    default=50,
    show_default=True,
    metavar="N",
    help="List at most N jobs.",
)
@click.option("--offset", type=click.IntRange(0, LARGEST), default=0, metavar="N", help="Skip the first N.")
@_backend_option
@common_options
def list_command(
    config: str | None,
    name: str | None,
    tenant: tuple[str, ...],
    tag: tuple[str, ...],
    handler: tuple[str, ...],
    state: tuple[str, ...],
    limit: int,
    offset: int,
    backend: Side | None,
    *,
    as_json: bool,
) -> None:
    """List jobs by tenant and name: state, next fire, and the last run that has ended."""
    settings = load_scheduler(config)
    with open_jobs(settings, backend, writing=False) as jobs:
        _say_standing(settings, jobs)
        chosen = JobFilter(tenants=tenant, name=name, tags=tag, states=state, handlers=handler)
        page = jobs.page(chosen, limit=limit, offset=offset)
        if not page.total and jobs.foreign_words is not None:
            say(jobs.foreign_words, level="warning")
    show(list_view(page), list_lines(page), as_json=as_json)


@jobs_group.command("show")
@_job_argument
@_tenant_option
@click.option("--show-payload", is_flag=True, help="Print the job's payload, which is a value of its document.")
@_backend_option
@common_options
def show_command(
    config: str | None,
    job: str,
    tenant: tuple[str, ...],
    backend: Side | None,
    *,
    show_payload: bool,
    as_json: bool,
) -> None:
    """Show a job with its triggers, counts, last runs and next fires."""
    settings = load_scheduler(config)
    with open_jobs(settings, backend, writing=False) as jobs:
        _say_standing(settings, jobs)
        found = jobs.show(jobs.find(job, tenant))
    view, lines = details_view(found, payload=show_payload), details_lines(found, payload=show_payload)
    show(view, lines, as_json=as_json)


@jobs_group.command("history")
@_job_argument
@_tenant_option
@click.option(
    "--since", type=_Instant(), metavar="TIME", help="Only runs created at this time or later (ISO 8601; UTC)."
)
@click.option("--state", multiple=True, type=click.Choice([*states.RUN]), help="Only runs in this state; repeatable.")
@click.option(
    "--limit",
    type=click.IntRange(1, LARGEST_PAGE),
    default=20,
    show_default=True,
    metavar="N",
    help="List at most N runs.",
)
@_backend_option
@common_options
def history_command(
    config: str | None,
    job: str,
    tenant: tuple[str, ...],
    since: datetime | None,
    state: tuple[str, ...],
    limit: int,
    backend: Side | None,
    *,
    as_json: bool,
) -> None:
    """Show the runs of a job, newest first. A deleted job is named by its id."""
    settings = load_scheduler(config)
    with open_jobs(settings, backend, writing=False) as jobs:
        _say_standing(settings, jobs)
        found = jobs.history(job, tenant, limit=limit, since=since, run_states=state)
    lines = run_lines(found.runs) if found.runs else iter(["no run"])
    show(history_view(found), [*lines, *(["older runs follow: --limit"] if found.more else [])], as_json=as_json)


class _JsonText(click.ParamType[Any]):
    """A JSON value as text."""

    name = "json"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: ANN401 - any JSON value
        """Return the value."""
        try:
            return json.loads(str(value))
        except ValueError as error:  # its text holds no value
            self.fail(f"is no JSON: {error}", param, ctx)


_TIMINGS: Final = ("cron", "interval", "once", "at")
"""Options of which a new job has exactly one."""
_CREATION: Final = (
    click.option("--tenant", required=True, metavar="TENANT", help="Tenant of the job."),
    click.option("--handler", "handler_name", required=True, metavar="NAME", help="Handler that executes its runs."),
    click.option("--name", metavar="NAME", help="Name of the job; a job that fires once may do without."),
    click.option("--cron", metavar="LINE", help="Fire by this cron line."),
    click.option("--dialect", type=click.Choice([*cron.DIALECTS]), help="Dialect of the line (default: debian)."),
    click.option("--timezone", metavar="ZONE", help="Time zone of the line (default: UTC)."),
    click.option("--interval", type=DurationType(), metavar="DURATION", help="Fire each 90s, 15m, 2h, 1d …"),
    click.option("--anchor", type=click.Choice([*states.TRIGGER_ANCHORS]), help="Count an interval from there."),
    click.option("--once", is_flag=True, help="Fire once, now."),
    click.option("--at", type=_Instant(), metavar="TIME", help="Fire once, at this time (ISO 8601; UTC)."),
    click.option("--start", "start_at", type=_Instant(), metavar="TIME", help="Do not fire before this time."),
    click.option("--end", "end_at", type=_Instant(), metavar="TIME", help="Do not fire after this time."),
    click.option("--max-fires", type=int, metavar="N", help="Fire at most N times."),
    click.option(
        "--misfire-policy", type=click.Choice([*states.MISFIRE_POLICIES]), help="What becomes of slots that are late."
    ),
    click.option(
        "--payload",
        type=_JsonText(),
        metavar="JSON",
        help="JSON value; members of an object are the handler's arguments.",
    ),
    click.option("--queue", metavar="NAME", help="Queue of its runs."),
    click.option("--priority", metavar="N", help="0 to 100, higher first, or a word such as high (default: 50)."),
    click.option("--max-retries", type=int, metavar="N", help="Retries of a run that failed (default: 3)."),
    click.option("--retry-delay", type=DurationType(), metavar="DURATION", help="Time before a retry (default: 1m)."),
    click.option("--timeout", type=DurationType(), metavar="DURATION", help="Longest time of a run (default: 5m)."),
    click.option("--max-concurrency", type=int, metavar="N", help="Runs at the same time (default: 1)."),
    click.option("--tag", "tags", multiple=True, metavar="TAG", help="Tag of the job; repeatable."),
    click.option("--description", metavar="TEXT", help="Description of the job."),
    click.option("--paused", is_flag=True, help="Create it paused and disabled."),
)


def _creation_options(command: Command) -> Command:
    for option in (common_options, _backend_option, dry_run_option, approval_options, *reversed(_CREATION)):
        command = option(command)
    return command


@jobs_group.command("create")
@_creation_options
def create_command(
    config: str | None,
    tenant: str,
    at: datetime | None,
    who: str | None,
    reason: str | None,
    backend: Side | None,
    *,
    once: bool,
    paused: bool,
    dry_run: bool,
    as_json: bool,
    **fields: object,
) -> None:
    """Create a job: with --cron, --interval, --once or --at.

    What is left out is as the client has it. A name that another job of the tenant has is refused.
    """
    settings = load_scheduler(config)
    by = approval(who, reason)
    _check_timing({**fields, "once": once, "at": at})
    given = {name: value for name, value in fields.items() if value not in (None, ())}
    priority = given.get("priority")
    if isinstance(priority, str) and priority.lstrip("-").isdecimal():
        given["priority"] = int(priority)
    request = ScheduleRequest(**cast("dict[str, Any]", given), enabled=not paused, created_by=by.who)
    with open_jobs(settings, backend, writing=True) as jobs:
        job = jobs.create(tenant, request, once=once or at is not None, run_at=at, reason=by.reason, dry_run=dry_run)
        used = jobs.store.backend
    view = created_view(job, used, dry_run=dry_run)
    show(view, [created_line(job, used, dry_run=dry_run), *["nothing was written"] * dry_run], as_json=as_json)


def _check_timing(given: Mapping[str, object]) -> None:
    chosen = [f"--{name}" for name in _TIMINGS if given[name]]
    if len(chosen) != 1:
        those = f", not {' and '.join(chosen)}" if chosen else ""
        raise UsageError(f"a job has one of {', '.join(f'--{name}' for name in _TIMINGS)}{those}")


class _Call(msgspec.Struct, frozen=True, kw_only=True):
    """What an operation is called with."""

    config: str | None
    jobs: tuple[str, ...]
    tenant: tuple[str, ...]
    name: str | None
    tag: tuple[str, ...]
    handler: tuple[str, ...]
    state: tuple[str, ...]
    who: str | None
    reason: str | None
    backend: Side | None
    yes: bool
    dry_run: bool
    as_json: bool


@jobs_group.command()
@_jobs_argument
@_operation_options
def pause_command(**given: object) -> None:
    """Pause jobs: they do not fire until they are resumed, and their queued runs wait."""
    _operate("pause", msgspec.convert(given, _Call))


@jobs_group.command()
@_jobs_argument
@_operation_options
def resume_command(**given: object) -> None:
    """Resume paused jobs: they fire again, in their phase. Enable disabled ones."""
    _operate("resume", msgspec.convert(given, _Call))


@jobs_group.command()
@_jobs_argument
@_operation_options
def trigger_command(**given: object) -> None:
    """Queue a run of jobs now, in addition to the planned ones."""
    _operate("trigger", msgspec.convert(given, _Call))


@jobs_group.command()
@_jobs_argument
@_operation_options
def cancel_command(**given: object) -> None:
    """Cancel jobs for good, with all their live runs. Always asks for confirmation."""
    _operate("cancel", msgspec.convert(given, _Call))


@jobs_group.command()
@click.argument("jobs", nargs=-1, metavar="[JOB|RUN]...")
@_operation_options
def retry_command(**given: object) -> None:
    """Repeat runs that failed, at once: a run by its id, or the last run of a job."""
    _operate("retry", msgspec.convert(given, _Call))


@jobs_group.command()
@_jobs_argument
@_operation_options
def delete_command(**given: object) -> None:
    """Delete jobs: they do not fire again, waiting runs are cancelled, and the history stays.

    Always asks for confirmation.
    """
    _operate("delete", msgspec.convert(given, _Call))


def _operate(action: Action, call: _Call) -> None:
    settings = load_scheduler(call.config)
    by = approval(call.who, call.reason)
    chosen = JobFilter(tenants=call.tenant, name=call.name, tags=call.tag, states=call.state, handlers=call.handler)
    with open_jobs(settings, call.backend, writing=True) as jobs:
        targets = jobs.select(call.jobs, chosen, runs=action == "retry")
        jobs.require_own(targets)
        if call.dry_run:
            results = _followed(action, jobs.try_out(action, targets), len(targets), as_json=call.as_json)
        else:
            if action in ASKING or len(targets) > 1 or not call.jobs:
                confirm(
                    settings,
                    f"{action} {count_words(len(targets), 'job')}",
                    lambda: _summary(action, targets),
                    yes=call.yes,
                    backend=cast("Side", jobs.store.backend),
                )
            carried = jobs.carry_out(action, targets, who=by.who, reason=by.reason)
            results = _followed(action, carried, len(targets), as_json=call.as_json)
        done = operation_report(action, jobs.store.backend, results, dry_run=call.dry_run, who=by.who, reason=by.reason)
    show(done, [_operation_line(done), *["nothing was written"] * call.dry_run], as_json=call.as_json)
    for one in results:
        if one.outcome == "failed":
            say(f"{action} ended at {one.tenant}/{one.name}: {one.message}", level="warning")
    finish(done.exit_status)


def _followed(
    action: Action, results: Iterator[OperationResult], count: int, *, as_json: bool
) -> list[OperationResult]:
    """Return the results; for people, print each at once, so that an interruption leaves nobody in doubt."""
    followed: list[OperationResult] = []
    try:
        for result in results:
            followed.append(result)
            if not as_json:
                print_lines([_result_line(action, result)])
    except KeyboardInterrupt:
        say(f"interrupted after {len(followed):,} of {count_words(count, 'job')}: call it again", level="warning")
        raise
    return followed


def _say_standing(settings: Settings, jobs: Jobs) -> None:
    """Say on standard error that what is read is a copy, and as of when."""
    if jobs.inactive is None:
        return
    at = copied_until(settings) if jobs.store.backend == "postgres" else None
    say(f"{jobs.inactive}{'' if at is None else f'; it is as of {time_text(at)}'}", level="warning")


def _summary(action: Action, targets: Sequence[JobTarget]) -> Iterator[str]:
    yield f"{action}: {listed_words(targets)}"


def _operation_line(done: OperationReport) -> str:
    counts = dict(done.counts)
    verb = f"would {done.action}" if done.dry_run else VERBS[done.action]
    carried = count_words(counts.pop("allowed" if done.dry_run else "done", 0), "job")
    return ", ".join([f"{verb} {carried}", *(f"{outcome} {count:,}" for outcome, count in counts.items())])


def _result_line(action: Action, result: OperationResult) -> str:
    word = {"done": VERBS[action], "allowed": f"would {action}"}.get(result.outcome, result.outcome)
    run = f", run {result.run}" if result.run is not None else ""
    why = f": {result.message}" if result.message is not None else ""
    return f"{word}: {result.tenant}/{result.name} ({result.id}){run}{why}"
