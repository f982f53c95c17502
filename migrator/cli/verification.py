"""Commands that prove: ``parity``, ``verify``, ``report``."""

from pathlib import Path
from typing import Literal

import click

from migrator import result as results
from migrator.cli.options import common_options, finish, load, print_json, print_lines
from migrator.cli.text import parity_lines, parity_status, repair_lines
from migrator.config import DEFAULT_PATH
from migrator.errors import UsageError
from migrator.exit_status import mask
from migrator.parity.check import check_parity
from migrator.parity.recorded_check import check_and_record
from migrator.parity.repair import apply_repair, plan_repair
from migrator.pipeline.plan import Scope
from migrator.report import integrity, renderer, wording
from migrator.verify.fresh_start import FreshStart
from migrator.verify.runner import Request, verify_into


@click.command()
@click.option("--only", multiple=True, metavar="COLLECTION", help="Compare this collection alone; repeatable.")
@click.option("--tenant", multiple=True, metavar="TENANT", help="Compare this tenant alone; repeatable.")
@click.option(
    "--workers", type=click.IntRange(1, 256), metavar="N", help="Worker processes (default: one per processor)."
)
@click.option(
    "--repair",
    type=click.Choice(["plan", "apply"]),
    help="plan lists the documents to be read again; apply reads them again.",
)
@common_options
def parity_command(
    config: str | None,
    only: tuple[str, ...],
    tenant: tuple[str, ...],
    workers: int | None,
    repair: str | None,
    *,
    as_json: bool,
) -> None:
    """Compare every document with its rows, and the rows with the document. Only --repair apply changes rows.

    The outcome of a parity check of everything is recorded in migration.parity_checks. The cutover requires a recent
    one.
    """
    settings = load(config, workers=workers)
    scope = Scope(only=tuple(sorted(set(only))), tenants=tuple(sorted(set(tenant))))
    repaired = None
    if repair is None:
        outcome = check_parity(settings, scope) if scope != Scope() else check_and_record(settings)
    else:
        repaired = (apply_repair if repair == "apply" else plan_repair)(settings, scope)
        outcome = repaired.after or repaired.found
    if as_json:
        print_json(outcome if repaired is None else repaired)
    else:
        if repaired is not None:
            print_lines(repair_lines(repaired))
        print_lines(parity_lines(outcome))
    finish(parity_status(outcome, partly=bool(tenant)))


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
    "--fresh-start",
    is_flag=True,
    help="Record the decision that there is no MongoDB: checks that need it are not applicable.",
)
@click.option("--approved-by", metavar="WHO", help="Who decided the fresh start; recorded and reported.")
@click.option("--reason", metavar="WHY", help="Why it was decided; recorded and reported.")
@click.option("--upgrade", is_flag=True, help="Fresh start: create the schema, or upgrade an empty one, first.")
@click.option("--allow-nonempty", is_flag=True, help="Fresh start: allow a target that has rows.")
@click.option("--report-dir", type=click.Path(file_okay=False), help="Folder for reports (default: report.directory).")
@click.option(
    "--sign-key", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Sign with this Ed25519 key."
)
@click.option(
    "--workers", type=click.IntRange(1, 256), metavar="N", help="Worker processes (default: one per processor)."
)
@common_options
def verify_command(
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
        load(config, workers=workers),
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


_FILE = click.Path(path_type=Path, dir_okay=False)
_RESULT = click.argument("result_json", type=click.Path(path_type=Path), metavar="RESULT.json")


@click.group("report")
def report_group() -> None:
    """Render a stored result again, sign it, or check that a report belongs to it."""


@report_group.command("render", short_help="Write every rendering from a result.")
@_RESULT
@click.option(
    "--report-dir",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder of the reports (default: the folder of the result).",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON document on standard output.")
def render_command(result_json: Path, report_dir: Path | None, *, as_json: bool) -> None:
    """Write report.html, report.md, junit.xml and sarif.json from a result; the same result gives the same bytes.

    Exit status: 1 the evidence does not match its digest, or the signature does not fit; nothing is written then.
    """
    result = integrity.read_result(result_json)
    changed = integrity.tampering(result)
    written = [] if changed else renderer.write_renderings(result, report_dir or result_json.parent)
    if as_json:
        print_json({"changed": changed, "written": [str(path) for path in written]})
    elif changed:
        click.echo(f"migrator: {result_json}: {changed}; nothing is rendered", err=True)
    else:
        print_lines(map(str, written))
    finish(mask(different=changed))


@report_group.command("sign", short_help="Sign a result with an Ed25519 key.")
@_RESULT
@click.option("--key", required=True, type=_FILE, metavar="FILE", help="Private key, PEM or OpenSSH, no passphrase.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on standard output.")
def sign_command(result_json: Path, key: Path, *, as_json: bool) -> None:
    """Write a signature into a result, and render its reports again next to it. Needs the extra sign."""
    private = integrity.read_private_key(key)
    signed = integrity.sign(integrity.read_result(result_json), private)
    renderer.write_result(signed, result_json)
    written = [result_json, *renderer.write_renderings(signed, result_json.parent)]
    if as_json:
        print_json({"signature": signed.signature, "written": [str(path) for path in written]})
    else:
        click.echo(f"signed with the key {signed.signature.key if signed.signature else ''}")
        print_lines(map(str, written))


@report_group.command(
    "check", short_help="Prove that a report belongs to its result, and that the evidence is unchanged."
)
@_RESULT
@click.argument("reports", nargs=-1, type=click.Path(path_type=Path), metavar="[REPORT]...")
@click.option("--public-key", type=_FILE, metavar="FILE", help="Require a signature with the private half of this key.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on standard output.")
def check_command(result_json: Path, reports: tuple[Path, ...], public_key: Path | None, *, as_json: bool) -> None:
    """Prove that the evidence has its digest, that the signature is valid, and that the reports belong to the result.

    REPORT defaults to the renderings beside the result. Exit status: 0 all belong, 1 one does not, or the signature
    does not fit, 4 there was no report to compare, or it was rendered by another version of the tool.
    """
    answer = integrity.check_report(result_json, reports, public_key)
    if as_json:
        print_json(answer)
    else:
        print_lines(answer.lines())
    finish(answer.exit_status())
