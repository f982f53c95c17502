"""``migrator demo``, and ``migrator demo seed`` for servers of one's own."""

import click

from migrator.cli.options import common_options, finish, load, print_json, print_lines

SIZES = click.Choice(["small", "medium", "large"])


@click.group("demo", invoke_without_command=True)
@click.option("--size", type=SIZES, default="small", help="About 20 000, 300 000 or 2 000 000 documents.")
@click.option(
    "--seed", "number", type=int, metavar="N", help="Another seed gives other data; the same one the same bytes."
)
@click.option("--keep", is_flag=True, help="Leave the servers running afterwards, until Ctrl-C.")
@click.option("--report-dir", type=click.Path(file_okay=False), help="Where reports go (default: report.directory).")
@common_options
@click.pass_context
def demo_group(
    context: click.Context,
    /,
    size: str,
    number: int | None,
    config: str | None,
    report_dir: str | None,
    **flags: bool,
) -> None:
    """Move a whole scheduler between two real servers of its own, and leave a report.

    Real-shaped data with known trouble in it: census, plan, backfill, verification. Exit status 8 is the expected one:
    the trouble that cannot be moved is in quarantine. 1 is anything that was not planned.
    """
    if context.invoked_subcommand:
        return
    from migrator.cli.demo_flow import DemoOptions, run_demo  # noqa: PLC0415 - imported when called, so that --help stays quick

    wish = DemoOptions(size=size, seed=number, keep=flags["keep"], report_dir=report_dir, as_json=flags["as_json"])
    finish(run_demo(load(config), wish))


@demo_group.command("seed")
@click.option(
    "--database",
    metavar="NAME",
    help="Write into this database (default: mongo.database, else the one in mongo.uri, else stellaops_scheduler).",
)
@click.option("--size", type=SIZES, default="small", help="About 20 000, 300 000 or 2 000 000 documents.")
@click.option(
    "--seed", "number", type=int, metavar="N", help="Another seed gives other data; the same one the same bytes."
)
@click.option(
    "--drop",
    is_flag=True,
    help="Drop the database that --database names first; without it one that holds anything is refused.",
)
@click.option("--clean", is_flag=True, help="Plant no trouble.")
@click.option("--huge", is_flag=True, help="Plant a document of almost 16 MB as well.")
@click.option("--triggers", is_flag=True, help="Write a collection of triggers too.")
@common_options
def seed_command(config: str | None, database: str | None, size: str, number: int | None, **flags: bool) -> None:
    """Write the demo's data into a MongoDB of your own (mongo.uri), and say what is wrong in it."""
    from migrator.cli.demo_flow import seed_into, seeded_json, seeded_lines  # noqa: PLC0415 - imported when called, so that --help stays quick

    seeded = seed_into(
        load(config),
        database,
        size=size,
        seed=number,
        drop=flags["drop"],
        trouble=not flags["clean"],
        huge=flags["huge"],
        triggers=flags["triggers"],
    )
    if flags["as_json"]:
        print_json(seeded_json(seeded))
    else:
        print_lines(seeded_lines(seeded))
