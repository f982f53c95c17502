"""The commands of ``report``: render, sign and check a stored result."""

from collections.abc import Iterable, Iterator
from pathlib import Path

import click

from migrator.cli.options import dry_run_option, finish, json_option, print_json, print_lines, show
from migrator.exit_status import mask
from migrator.report import integrity, renderer

_WOULD = "would_write"
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
@dry_run_option
@json_option
def render_command(result_json: Path, report_dir: Path | None, *, dry_run: bool, as_json: bool) -> None:
    """Write report.html, report.md, junit.xml and sarif.json from a result; the same result gives the same bytes.

    Exit status: 1 the evidence does not match its digest, or the signature is not valid; nothing is written then.
    """
    result = integrity.read_result(result_json)
    changed = integrity.tampering(result)
    directory, written = report_dir or result_json.parent, []
    if not changed:
        written = renderer.paths(directory) if dry_run else renderer.write_renderings(result, directory)
    if as_json:
        print_json({"changed": changed, _WOULD if dry_run else "written": [str(path) for path in written]})
    elif changed:
        click.echo(f"migrator: {result_json}: {changed}; nothing is rendered", err=True)
    else:
        print_lines(_path_lines(written, dry_run=dry_run))
    finish(mask(different=changed))


@report_group.command("sign", short_help="Sign a result with an Ed25519 key.")
@_RESULT
@click.option("--key", required=True, type=_FILE, metavar="FILE", help="Private key, PEM or OpenSSH, no passphrase.")
@dry_run_option
@json_option
def sign_command(result_json: Path, key: Path, *, dry_run: bool, as_json: bool) -> None:
    """Write a signature into a result, and render its reports again next to it. Needs the extra sign."""
    private = integrity.read_private_key(key)
    signed = integrity.sign(integrity.read_result(result_json), private)
    written = [result_json, *renderer.paths(result_json.parent)]
    renderer.refuse_links(written[1:])  # the result itself is replaced, in one step
    if not dry_run:
        renderer.write_result(signed, result_json)
        renderer.write_renderings(signed, result_json.parent)
    paths = [str(path) for path in written]
    line = f"{'would sign' if dry_run else 'signed'} with the key {signed.signature.key if signed.signature else ''}"
    fields = {"signature": signed.signature, _WOULD if dry_run else "written": paths}
    show(fields, [line, *_path_lines(written, dry_run=dry_run)], as_json=as_json)


def _path_lines(paths: Iterable[Path], *, dry_run: bool) -> Iterator[str]:
    """Yield the files that were, or would be, written."""
    yield from (f"would write {path}" if dry_run else str(path) for path in paths)
    if dry_run:
        yield "nothing was written"


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
