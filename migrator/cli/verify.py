"""``migrator verify``: every check, one result, its report."""

from pathlib import Path
from typing import Literal

import click

from migrator.cli.options import common, finish, print_lines, settings_of


@click.command("verify")
@click.option("--only", multiple=True, metavar="AREA", help="Only this area; repeatable. The rest is unverified.")
@click.option("--skip", multiple=True, metavar="AREA", help="Leave this area out; repeatable. It is unverified.")
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
    help="Where the scheduler is driven, in scratch tenants that are removed; mongo and both write into the source, and"
    " need --scratch-on-source.",
)
@click.option(
    "--no-behaviour",
    is_flag=True,
    help="Do not drive the scheduler: write only the record of the verification. Its areas are unverified.",
)
@click.option(
    "--behaviour",
    type=click.IntRange(0),
    default=0,
    metavar="N",
    help="N random calls on both backends in lockstep; needs --scratch-on-source.",
)
@click.option("--seed", type=click.IntRange(0), metavar="N", help="What the random calls follow from, to repeat them.")
@click.option(
    "--sensitivity",
    is_flag=True,
    help="Also plant corruptions in a scratch copy, and see them caught; needs --scratch-on-source.",
)
@click.option(
    "--scratch-on-source",
    is_flag=True,
    help="Allow scratch databases and tenants on the source's server; they are removed. Without it nothing is written"
    " there, and the rehearsal of the rollback is not made.",
)
@click.option("--fresh-start", is_flag=True, help="There is no MongoDB: what needs one is not applicable, by decision.")
@click.option("--approved-by", metavar="WHO", help="Who decided the fresh start; kept, and in the report.")
@click.option("--reason", metavar="WHY", help="Why it was decided; kept, and in the report.")
@click.option("--upgrade", is_flag=True, help="Fresh start: bring an empty schema to its head first.")
@click.option("--allow-nonempty", is_flag=True, help="Fresh start: also where the target holds rows already.")
@click.option("--report-dir", type=click.Path(file_okay=False), help="Where reports go (default: report.directory).")
@click.option(
    "--sign-key", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Sign with this Ed25519 key."
)
@click.option(
    "--workers", type=click.IntRange(1, 256), metavar="N", help="Worker processes (default: one per processor)."
)
@common
def command(
    only: tuple[str, ...],
    skip: tuple[str, ...],
    fail_on: tuple[str, ...],
    report_dir: str | None,
    sign_key: Path | None,
    workers: int | None,
    backend: Literal["postgres", "mongo", "both"],
    behaviour: int,
    seed: int | None,
    config: str | None,
    approved_by: str | None,
    reason: str | None,
    *,
    fresh_start: bool,
    upgrade: bool,
    allow_nonempty: bool,
    no_behaviour: bool,
    sensitivity: bool,
    scratch_on_source: bool,
    as_json: bool,
) -> None:
    """Run every check, and write the result and its renderings into reports/<run>/.

    Exit status, a bit mask: 1 a difference or a failed check, 2 usage or configuration, 4 something was left
    unverified, 8 documents are in quarantine, 16 a server could not be reached or the tool failed.
    """
    from migrator import result as results  # noqa: PLC0415 - imported when called, so that --help stays quick
    from migrator.config import DEFAULT_PATH  # noqa: PLC0415 - as above
    from migrator.errors import UsageError  # noqa: PLC0415 - as above
    from migrator.report import wording  # noqa: PLC0415 - as above
    from migrator.verify.fresh_start import FreshStart  # noqa: PLC0415 - as above
    from migrator.verify.runner import Request, verify_into  # noqa: PLC0415 - as above

    request = Request(
        only=only,
        skip=skip,
        fail_on=fail_on,
        backend=backend,
        no_behaviour=no_behaviour,
        behaviour=behaviour,
        seed=seed,
        sensitivity=sensitivity,
        scratch_on_source=scratch_on_source,
        config=file if (file := Path(config or DEFAULT_PATH)).is_file() else None,
    )
    start = None
    if fresh_start:
        start = FreshStart(who=approved_by or "", why=reason or "", upgrade=upgrade, allow_nonempty=allow_nonempty)
    elif approved_by or reason or upgrade or allow_nonempty:
        raise UsageError("--approved-by, --reason, --upgrade and --allow-nonempty belong to --fresh-start")
    result, folder = verify_into(
        settings_of(config, workers=workers),
        request,
        directory=report_dir,
        say=lambda line: click.echo(line, err=True),
        sign_key=sign_key,
        start=start,
    )
    if as_json:
        click.echo(results.encode(result).decode(), nl=False)
    else:
        print_lines(wording.terminal_lines(result, str(folder)))
    finish(result.exit_status())
