"""``migrator status``."""

import click
import msgspec

from migrator.cli.options import common, finish, print_json, print_lines, settings_of
from migrator.exit_status import mask


@click.command()
@click.option("--scheduler", is_flag=True, help="Show the scheduler: leader, processes, counts, next fires.")
@common
def command(config: str | None, *, scheduler: bool, as_json: bool) -> None:
    """Show where the copy stands: chunks, documents, what was set aside, what is still owed."""
    if scheduler:
        _scheduler(config, as_json=as_json)
    from migrator.cli.render import status_lines  # noqa: PLC0415 - imported when called, so that --help stays quick
    from migrator.cutover import attention  # noqa: PLC0415 - as above
    from migrator.pipeline.progress import standing  # noqa: PLC0415 - as above

    settings = settings_of(config)
    found, waits = standing(settings), attention.attention(settings, config)
    if as_json:
        print_json(msgspec.to_builtins(found) | {"attention": waits})
    else:
        print_lines([*status_lines(found), *(attention.lines(waits) if waits else ())])
    unfinished = found.plan is not None and (found.plan.state == "open" or found.owed)
    alarmed = found.tail is not None and found.tail.alarm is not None
    finish(mask(unverified=unfinished or alarmed or waits, quarantine=found.quarantined))


def _scheduler(config: str | None, *, as_json: bool) -> None:
    from datetime import timedelta  # noqa: PLC0415 - as above

    from migrator.scheduler.overview import lines, overview  # noqa: PLC0415 - as above
    from migrator.store import open_scheduler_store  # noqa: PLC0415 - as above

    settings = settings_of(config)
    store = open_scheduler_store(settings)
    try:
        found = overview(store, silent_for=timedelta(milliseconds=settings.scheduler.dead_after_ms))
    finally:
        store.close()
    if as_json:
        print_json(found)
    else:
        print_lines(lines(found))
    finish(0)
