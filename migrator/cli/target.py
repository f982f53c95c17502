"""Commands about targets: list, show, prepare."""

from collections.abc import Iterator

import click

from migrator.cli.options import common_options, dry_run_option, finish, load, print_lines, show
from migrator.config import Settings, postgres_dsn
from migrator.connections.postgres import open_login, translate_errors
from migrator.errors import UsageError
from migrator.schema import native_target, revisions
from migrator.schema.security import Roles
from migrator.sources import native_profile, profile_of
from migrator.targets import SHIPPED, load_target, mapping_path, sources_of
from migrator.targets.model import SCHEDULER, Target


@click.group("target")
def target_group() -> None:
    """List the known targets, show one, or prepare the tables of a library."""


@target_group.command("list")
@common_options
def list_command(config: str | None, *, as_json: bool) -> None:
    """List the targets that [target] name can name; connects to no server."""
    load(config)
    targets = [load_target(name) for name in SHIPPED]
    fields = [{"name": SCHEDULER, "title": "the tool's own schema", "versions": "", "sources": ["every source"]}]
    fields += [
        {"name": one.name, "title": one.title, "versions": one.versions, "sources": list(sources_of(one.name))}
        for one in targets
    ]
    width = max(len(str(one["name"])) for one in fields)
    lines = [f"{one['name']:<{width}}  {one['title']} {one['versions']}: {', '.join(one['sources'])}" for one in fields]
    show(fields, lines, as_json=as_json)


@target_group.command("show", short_help="Show the tables of a target, and its mappings.")
@click.argument("name")
@common_options
def show_command(config: str | None, name: str, *, as_json: bool) -> None:
    """Show the tables of the target NAME, and the mapping of each source that can be moved there. Asks no server."""
    load(config)
    if name == SCHEDULER:
        raise UsageError("the target scheduler is the tool's own schema: docs/tables.md describes it")
    target = load_target(name)
    sources = {source: native_profile(source, name) for source in sources_of(target.name)}
    fields = {
        "name": target.name,
        "title": target.title,
        "versions": target.versions,
        "schema": target.schema,
        "tables": {table.name: {column.name: column.type for column in table.columns} for table in target.tables},
        "sources": {source: [one.name for one in profile.collections] for source, profile in sources.items()},
    }
    show(fields, list(_lines(target)), as_json=as_json)


def _lines(target: Target) -> Iterator[str]:
    yield f"target {target.name}: {target.title}, versions {target.versions}, schema {target.schema}"
    for table in target.tables:
        made = {"": "", "row": ", made by the tool", "sequence": ", of the table's sequence"}[table.made]
        yield f"table {table.name}: key {', '.join(table.key)}{made}"
        yield from (f"  {column.name} {column.type}{' not null' * column.needed}" for column in table.columns)
    for source in sources_of(target.name):
        yield f"mapping from {source}:"
        yield from (f"  {line}" for line in mapping_path(target.name, source).read_text().splitlines())


@target_group.command(short_help="Prepare the tables of a library for a copy.")
@dry_run_option
@common_options
def prepare(config: str | None, *, dry_run: bool, as_json: bool) -> None:
    """Prepare the configured target for a copy: the tool's schemas beside the tables that the library has made.

    The library's own tables are read and not changed. Nothing is lost when it is called again.
    """
    settings = load(config)
    target = _native(settings)
    with translate_errors("the target"), open_login(settings) as connection:
        for table in target.tables:
            native_target.library_table(connection, table, target, settings.target)
        if dry_run:
            print_lines([f"would make the schema {target.tool_schema}", "nothing was written"])
            finish(0)
    done = revisions.upgrade(
        postgres_dsn(settings),
        names=Roles.of(settings.postgres),
        branches=(revisions.TOOL,),
        patience_s=settings.copy.patience.total_seconds(),
    )
    with translate_errors("the target"), open_login(settings) as connection:
        native_target.prepare(connection, target, settings.target)
    lines = [f"applied {one.revision} ({one.branch}): {one.title}" for one in done]
    prepared = [f"{target.tool_schema}.{table.name}" for table in target.tables]
    show(
        {"applied": done, "prepared": prepared},
        [*lines, *(f"prepared {name}" for name in prepared)],
        as_json=as_json,
    )


def _native(settings: Settings) -> Target:
    """Return the configured native target; raises ``UsageError`` for the schema ``scheduler``."""
    profile = profile_of(settings.source, settings.target)
    if profile.target == SCHEDULER:
        raise UsageError("the target is the schema scheduler: call migrator schema upgrade")
    return load_target(profile.target)
