"""``migrator parity``."""

import click

from migrator.cli.options import common, finish, print_json, print_lines, settings_of


@click.command()
@click.option("--only", multiple=True, metavar="COLLECTION", help="Compare this collection alone; repeatable.")
@click.option("--tenant", multiple=True, metavar="TENANT", help="Compare this tenant alone; repeatable.")
@click.option(
    "--workers", type=click.IntRange(1, 256), metavar="N", help="Worker processes (default: one per processor)."
)
@click.option(
    "--repair", type=click.Choice(["plan", "apply"]), help="Name the documents to be read again, or read them again."
)
@common
def command(
    config: str | None,
    only: tuple[str, ...],
    tenant: tuple[str, ...],
    workers: int | None,
    repair: str | None,
    *,
    as_json: bool,
) -> None:
    """Compare every document with its rows, and the rows with the document; changes no row but with --repair apply.

    The outcome of a parity check of everything is put on record (migration.comparisons): the cutover asks for the last
    one.
    """
    from migrator.cli.render import parity_lines, parity_status, repair_lines  # noqa: PLC0415 - imported when called, so that --help stays quick
    from migrator.parity.flow import compare  # noqa: PLC0415 - as above
    from migrator.parity.recorded import compared  # noqa: PLC0415 - as above
    from migrator.pipeline.plan import Scope  # noqa: PLC0415 - as above

    settings = settings_of(config, workers=workers)
    scope = Scope(only=tuple(sorted(set(only))), tenants=tuple(sorted(set(tenant))))
    repaired = None
    if repair is None:
        outcome = compare(settings, scope) if scope != Scope() else compared(settings)
    else:
        from migrator.parity.repair import apply_repair, plan_repair  # noqa: PLC0415 - as above

        repaired = (apply_repair if repair == "apply" else plan_repair)(settings, scope)
        outcome = repaired.after or repaired.found
    if as_json:
        print_json(outcome if repaired is None else repaired)
    else:
        if repaired is not None:
            print_lines(repair_lines(repaired))
        print_lines(parity_lines(outcome))
    finish(parity_status(outcome, partly=bool(tenant)))
