"""The commands of ``report``: render, sign and check a stored result."""

from pathlib import Path

import click

from migrator.cli.options import finish, json_option, print_json, print_lines, show
from migrator.exit_status import mask
from migrator.report import integrity, renderer

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
@json_option
def render_command(result_json: Path, report_dir: Path | None, *, as_json: bool) -> None:
    """Write report.html, report.md, junit.xml and sarif.json from a result; the same result gives the same bytes.

    Exit status: 1 the evidence does not match its digest, or the signature is not valid; nothing is written then.
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
@json_option
def sign_command(result_json: Path, key: Path, *, as_json: bool) -> None:
    """Write a signature into a result, and render its reports again next to it. Needs the extra sign."""
    private = integrity.read_private_key(key)
    signed = integrity.sign(integrity.read_result(result_json), private)
    renderer.write_result(signed, result_json)
    written = [result_json, *renderer.write_renderings(signed, result_json.parent)]
    paths = [str(path) for path in written]
    line = f"signed with the key {signed.signature.key if signed.signature else ''}"
    show({"signature": signed.signature, "written": paths}, [line, *paths], as_json=as_json)


@report_group.command(
    "check", short_help="Prove that a report belongs to its result, and that the evidence is unchanged."
)
@_RESULT
@click.argument("reports", nargs=-1, type=click.Path(path_type=Path), metavar="[REPORT]...")
@click.option("--public-key", type=_FILE, metavar="FILE", help="Require a signature with the private half of this key.")
@json_option
def check_command(result_json: Path, reports: tuple[Path, ...], public_key: Path | None, *, as_json: bool) -> None:
    """Prove that the evidence has its digest, that the signature is valid, and that the reports belong to the result.

    REPORT defaults to the renderings next to the result. Exit status: 0 all belong, 1 one does not, or the signature
    does not fit, 4 there was no report to compare, or it was rendered by another version of the tool.
    """
    answer = integrity.check_report(result_json, reports, public_key)
    show(answer, answer.lines(), as_json=as_json)
    finish(answer.exit_status())
