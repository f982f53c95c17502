"""``migrator schema upgrade|downgrade|current|check``."""

from collections.abc import Iterator, Sequence

import click

from migrator.cli.confirmation import approval, approval_options, confirm, yes_option
from migrator.cli.options import common_options, dry_run_option, finish, load, print_json, print_lines, show
from migrator.cli.text import count_words
from migrator.config import Settings, postgres_dsn
from migrator.connections.postgres import target_connection
from migrator.errors import UsageError
from migrator.exit_status import mask
from migrator.schema import catalogue, revisions, upgrade_script
from migrator.schema.security import Roles

NOTHING_COMPARED = "nothing compared: run migrator schema check"


@click.group("schema")
def schema_group() -> None:
    """Upgrade, downgrade, show or check the target's schema."""


@schema_group.command(short_help="Upgrade both schemas to their newest revision.")
@click.option("--sql", "as_sql", is_flag=True, help="Print the SQL of the upgrade for an administrator; write nothing.")
@click.option(
    "--from",
    "start",
    multiple=True,
    metavar="REVISION",
    help="With --sql: begin at this revision (an id, base, scheduler@base or migration@base) and ask no server;"
    " repeatable.",
)
@dry_run_option
@common_options
def upgrade(config: str | None, start: tuple[str, ...], *, as_sql: bool, dry_run: bool, as_json: bool) -> None:
    """Upgrade both schemas to their newest revision, and create roles and schemas that are missing.

    The upgrade is one transaction, so an interrupted one changes nothing. Of two upgrades at the same time the second
    waits, and has nothing to do.
    """
    settings = load(config)
    if as_sql:
        _print_sql(settings, start, as_json=as_json)
        finish(0)
    if start:
        raise UsageError("--from belongs to --sql")
    if dry_run:
        places = revisions.current(postgres_dsn(settings), _roles(settings))
        pending = [f"would apply {one} ({place.branch})" for place in places for one in place.pending]
        lines = [*(pending or ["nothing to apply"]), "nothing was written", NOTHING_COMPARED]
        show({"would_apply": [one for place in places for one in place.pending]}, lines, as_json=as_json)
        finish(0)
    done = revisions.upgrade(
        postgres_dsn(settings), names=_roles(settings), patience_s=settings.copy.patience.total_seconds()
    )
    lines = [f"applied {one.revision} ({one.branch}): {one.title}" for one in done]
    total = f"{_counted(done, 'revision')} applied" if done else "nothing to apply"
    show({"applied": done}, [*lines, total, NOTHING_COMPARED], as_json=as_json)


@schema_group.command(short_help="Undo every revision after REVISION.")
@click.argument("revision", default="base")
@click.option("--discard-rows", is_flag=True, help="Downgrade although rows are lost.")
@approval_options
@yes_option
@dry_run_option
@common_options
def downgrade(
    config: str | None,
    revision: str,
    who: str | None,
    reason: str | None,
    *,
    discard_rows: bool,
    yes: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Undo every revision after REVISION: an id, base (everything), scheduler@base or migration@base.

    Refused while rows would be lost, unless --discard-rows; the refusal says how many, and where. On a terminal it
    shows what will happen, and asks for the environment's name.
    """
    settings = load(config)
    if dry_run:
        lost = revisions.downgrade_losses(postgres_dsn(settings), revision)
        show({"rows_lost": lost}, [*_losses(settings, revision), "nothing was written"], as_json=as_json)
        finish(0)
    confirm(settings, f"schema downgrade {revision}", lambda: _losses(settings, revision), yes=yes)
    done = revisions.downgrade(
        postgres_dsn(settings),
        revision,
        names=_roles(settings),
        discard_rows=discard_rows,
        patience_s=settings.copy.patience.total_seconds(),
        by=approval(who, reason),
    )
    lines = [f"undone {one.revision} ({one.branch}): {one.title}" for one in done]
    total = f"{_counted(done, 'revision')} undone" if done else "nothing to undo"
    show({"undone": done}, [*lines, total, NOTHING_COMPARED], as_json=as_json)


@schema_group.command()
@common_options
def current(config: str | None, *, as_json: bool) -> None:
    """Show at which revision each schema is, and what an upgrade would apply."""
    settings = load(config)
    places = revisions.current(postgres_dsn(settings), _roles(settings))
    lines = [
        f"{one.branch}: {one.revision or 'nothing applied'}"
        + (f", to apply: {', '.join(one.pending)}" if one.pending else " (newest)")
        for one in places
    ]
    show({"schemas": places}, [*lines, NOTHING_COMPARED], as_json=as_json)


@schema_group.command()
@common_options
def check(config: str | None, *, as_json: bool) -> None:
    """Compare the live catalogue with the declared one; exit status 1 if they differ."""
    from migrator.cutover.fenced_rights import split_revoked  # noqa: PLC0415 - it imports MongoDB's driver

    settings = load(config)
    dsn = postgres_dsn(settings)
    revisions.require_group_roles(dsn, _roles(settings))
    places = revisions.current(dsn, _roles(settings))
    differences = catalogue.differences(dsn, names=_roles(settings)) if any(place.revision for place in places) else []
    revoked = 0
    if differences:
        with target_connection(settings) as target:
            differences, revoked = split_revoked(target, settings.postgres, differences)
    differences, additions = catalogue.split_harmless(differences)
    behind = [place for place in places if place.pending]
    if as_json:
        told = {"schemas": places, "differences": differences, "additions": additions, "revoked_by_the_fence": revoked}
        print_json(told)
    else:
        for place in behind:
            click.echo(f"{place.branch}: to apply: {', '.join(place.pending)}; call migrator schema upgrade")
        for difference in differences:
            print_lines([f"{difference.object}: {difference.kind}"])
            click.echo(f"  expected: {difference.expected or 'nothing'}")  # a definition may have several lines
            click.echo(f"  found:    {difference.found or 'nothing'}")
        print_lines([f"{one.object}: added, and harms nothing ({one.found})" for one in additions])
        if revoked:
            click.echo(
                f"{count_words(revoked, 'grant')} without the rights to write: the fence of PostgreSQL is closed"
            )
            click.echo("since the last rollback; the next cutover grants them, do not grant them by hand")
        same = "the live catalogue is equal to the declared one"
        click.echo(
            _counted(differences, "difference") if differences else same if not behind else "not at the newest revision"
        )
    finish(mask(different=differences or behind))


def _print_sql(settings: Settings, given: Sequence[str], *, as_json: bool) -> None:
    names, user = _roles(settings), None
    if given:
        start = upgrade_script.named_start(given)
    else:
        start, user = upgrade_script.present_start(postgres_dsn(settings), names)
    script = upgrade_script.upgrade_script(start, names, user=user)
    if as_json:
        print_json({"would_apply": script.revisions, "sql": script.text})
    else:
        click.echo(script.text, nl=False)  # as it is: a string of it may have several lines


def _losses(settings: Settings, revision: str) -> Iterator[str]:
    lost = revisions.downgrade_losses(postgres_dsn(settings), revision)
    yield from (f"{table}: {count:,} rows are lost" for table, count in lost.items())
    if not lost:
        yield "no rows are lost"


def _counted(things: Sequence[object], word: str) -> str:
    return f"{len(things)} {word}" + ("" if len(things) == 1 else "s")


def _roles(settings: Settings) -> Roles:
    return Roles.of(settings.postgres)
