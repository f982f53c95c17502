"""The command ``verify``."""

import inspect
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from migrator import result as results
from migrator.cli.confirmation import named_approval, named_approval_options
from migrator.cli.options import (
    allow_quarantined_option,
    common_options,
    dry_run_option,
    finish,
    load,
    print_lines,
    print_progress,
    show,
    workers_option,
)
from migrator.config import DEFAULT_PATH, Settings, names_source
from migrator.errors import ConfigurationError, UsageError
from migrator.report import wording
from migrator.report.areas import AREAS
from migrator.verify.fresh_start import FreshStart
from migrator.verify.request import LOAD, LoadSize, Request
from migrator.verify.runner import planned_checks, verify_into


@click.command("verify")
@click.option(
    "--only",
    multiple=True,
    metavar="AREA|CHECK",
    help="Only this area, or this check (area.name); repeatable. The rest is unverified. --dry-run lists all.",
)
@click.option("--skip", multiple=True, metavar="AREA", help="Skip this area; repeatable. It is unverified.")
@click.option(
    "--fail-on",
    multiple=True,
    metavar="AREA|no-AREA",
    help="Warnings of AREA fail too; no-AREA: its failures are accepted, named in the verdict. Repeatable.",
)
@click.option(
    "--backend",
    type=click.Choice(["postgres", "mongo", "both"]),
    default="postgres",
    show_default=True,
    help="Backend on which the scheduler is tested, in scratch tenants that are removed. mongo and both write to the"
    " source's server and need --scratch-on-source.",
)
@click.option(
    "--no-behaviour",
    is_flag=True,
    help="Do not drive the scheduler. Its areas are unverified; only the record of the verification is written.",
)
@click.option(
    "--behaviour",
    type=click.IntRange(0),
    default=0,
    metavar="N",
    help="Make N random calls on both backends in lockstep; needs --scratch-on-source.",
)
@click.option("--seed", type=click.IntRange(0), metavar="N", help="Seed of the random calls, to repeat them.")
@click.option(
    "--load",
    is_flag=True,
    help="Also make the load test: processes work on jobs that are due at once, and a value above its ceiling fails.",
)
@click.option(
    "--load-jobs",
    type=click.IntRange(1, 1_000_000),
    default=LoadSize().jobs,
    show_default=True,
    metavar="N",
    help="Jobs of the load test; with fewer it is unverified.",
)
@click.option(
    "--load-processes",
    type=click.IntRange(1, 256),
    default=LoadSize().processes,
    show_default=True,
    metavar="N",
    help="Processes of the load test; with fewer it is unverified.",
)
@click.option(
    "--load-ceiling",
    multiple=True,
    metavar="NAME=NUMBER",
    help="Replace a ceiling of the load test; repeatable. An unknown name lists the known ones.",
)
@click.option(
    "--sensitivity",
    is_flag=True,
    help="Also plant corruptions in a scratch copy and count those that a check detects; needs --scratch-on-source.",
)
@click.option(
    "--scratch-on-source",
    is_flag=True,
    help="Allow scratch databases and tenants on the source's server; they are removed. Without it nothing is written"
    " there, and the rehearsal of the rollback is not made.",
)
@click.option(
    "--show-values",
    is_flag=True,
    help="Write the values of the first differences, side by side, into values.html next to the report. It is for this"
    " machine: the report and result.json hold no values.",
)
@click.option(
    "--lock-source",
    is_flag=True,
    help="A source in PostgreSQL: hold SHARE locks on its tables during the parity check, so that nobody writes.",
)
@click.option(
    "--fresh-start",
    is_flag=True,
    help="Record the decision that there is no MongoDB: checks that need it are not applicable.",
)
@named_approval_options
@click.option("--upgrade", is_flag=True, help="Fresh start: create the schema, or upgrade an empty one, first.")
@click.option("--allow-nonempty", is_flag=True, help="Fresh start: allow a target that has rows.")
@click.option("--report-dir", type=click.Path(file_okay=False), help="Folder for reports (default: report.directory).")
@click.option(
    "--sign-key", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Sign with this Ed25519 key."
)
@workers_option
@allow_quarantined_option
@dry_run_option
@common_options
def verify_command(
    report_dir: str | None,
    sign_key: Path | None,
    workers: int | None,
    config: str | None,
    who: str | None,
    reason: str | None,
    *,
    fresh_start: bool,
    upgrade: bool,
    allow_nonempty: bool,
    dry_run: bool,
    as_json: bool,
    **asked: Any,  # noqa: ANN401 - the other options: fields of a request
) -> None:
    """Run every check, and write the result and its renderings into reports/<run>/.

    The areas: AREAS.

    Exit status, a bit mask: 1 a difference or a failed check, 2 usage or configuration, 4 something was left
    unverified, 8 documents are in quarantine, 16 a server could not be reached or the tool failed.
    """
    start = None
    if fresh_start:
        start = FreshStart(
            by=named_approval(who, reason, "--fresh-start"), upgrade=upgrade, allow_nonempty=allow_nonempty
        )
    elif who or reason or upgrade or allow_nonempty:
        raise UsageError("--who, --reason, --upgrade and --allow-nonempty belong to --fresh-start")
    settings = load(config, workers=workers)
    file = Path(config or DEFAULT_PATH)
    request = Request(**asked, config=file if file.is_file() else None, fresh_start=start)
    if start is None:
        _require_source(settings, request)
    if dry_run:
        _show_plan(request, Path(report_dir or settings.report.directory), as_json=as_json)
        finish(0)
    result, folder = verify_into(
        settings,
        request,
        directory=report_dir,
        say=print_progress,
        sign_key=sign_key,
    )
    if as_json:
        click.echo(results.encode(result).decode(), nl=False)
    else:
        print_lines(wording.terminal_lines(result, str(folder)))
    finish(result.exit_status())


# A docstring cannot be computed, and the areas are told in one place.
verify_command.help = inspect.cleandoc(verify_command.help or "").replace("AREAS", ", ".join(AREAS))


def _require_source(settings: Settings, request: Request) -> None:
    """Raise ``ConfigurationError`` for checks that compare with a source if the settings name none."""
    if not names_source(settings) and any(one.needs_source for one in planned_checks(request)):
        raise ConfigurationError(
            "there is no source to compare with ([mongo] is not set); if there is none, say so: migrator verify"
            " --fresh-start --who NAME --reason WHY"
        )


def _show_plan(request: Request, directory: Path, *, as_json: bool) -> None:
    """Print which checks would be made, and what would be written; no server is asked."""
    planned = (one for one in planned_checks(request) if request.fresh_start is None or not one.needs_source)
    checks = [one for one in planned if request.load or one.id != LOAD]
    writes = [*_written(request, {one.area for one in checks}, directory)]
    grouped = itertools.groupby(checks, key=lambda one: one.area)
    lines = [f"would check {area}: {', '.join(one.id for one in group)}" for area, group in grouped]
    lines += [*(f"would write {one}" for one in writes), "nothing was written"]
    show({"would_check": [one.id for one in checks], "would_write": writes}, lines, as_json=as_json)


def _written(request: Request, areas: set[str], directory: Path) -> Iterator[str]:
    yield f"files: a folder in {directory}, with report, result and log{', and values' * request.show_values}"
    yield "target: migration.tool_runs" + ", migration.parity_checks" * ("parity" in areas)
    if request.fresh_start is not None:
        yield "target: the decision in migration.decisions" + ", schemas and tables" * request.fresh_start.upgrade
    if any(AREAS[name].writes or AREAS[name].on_request for name in areas):
        yield "target's server: scratch tenants and scratch databases, which are removed"
    if request.scratch_on_source:
        yield "source's server: scratch databases and scratch tenants, which are removed"
