"""``migrator report``: render a stored result again, and prove that a report belongs to its evidence."""

from pathlib import Path

import click

from migrator.cli.options import finish, print_json

RESULT = click.argument("result_json", type=click.Path(path_type=Path), metavar="RESULT.json")


@click.group("report")
def command() -> None:
    """Render a stored result again, or check that a report belongs to it."""


@command.command("render", short_help="Write report.html and report.md from a result.")
@RESULT
@click.option("--report-dir", type=click.Path(path_type=Path, file_okay=False), help="Default: beside the result.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on standard output.")
def render_command(result_json: Path, report_dir: Path | None, *, as_json: bool) -> None:
    """Write report.html and report.md from a result; the same result always gives the same bytes."""
    from migrator.report import check, render  # noqa: PLC0415 - imported when called, so that --help stays quick

    folder = report_dir or result_json.parent
    written = render.write_renderings(check.read(result_json), folder)
    if as_json:
        print_json({"written": [str(path) for path in written]})
    else:
        for path in written:
            click.echo(path)


@command.command("check", short_help="Prove that a report belongs to its result, and that the evidence is whole.")
@RESULT
@click.argument("reports", nargs=-1, type=click.Path(path_type=Path), metavar="[REPORT]...")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on standard output.")
def check_command(result_json: Path, reports: tuple[Path, ...], *, as_json: bool) -> None:
    """Prove that the evidence is what the digest was taken over, and that the reports were made from it.

    REPORT defaults to the renderings beside the result. Exit status: 0 all belong, 1 one does not, 4 there was no
    report to compare, or it was rendered by another version of the tool.
    """
    from migrator.report import check  # noqa: PLC0415 - imported when called, so that --help stays quick

    answer = check.belongs(result_json, reports)
    if as_json:
        print_json(answer)
    else:
        for line in answer.lines():
            click.echo(line)
    finish(answer.exit_status())
