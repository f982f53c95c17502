"""Commands about targets: list, show, prepare."""

import json
from collections.abc import Iterator

import click
import msgspec

from migrator.cli.options import common_options, dry_run_option, finish, load, print_lines, show
from migrator.config import Settings, postgres_dsn
from migrator.connections.postgres import Connection, open_login, translate_errors
from migrator.errors import UsageError
from migrator.schema import native_target, revisions, security
from migrator.schema.security import NeededRights, Roles
from migrator.sources import native_profile, profile_of
from migrator.targets import library, load_target, native_targets
from migrator.targets.model import SCHEDULER, Target


@click.group("target")
def target_group() -> None:
    """List the known targets, show one, or prepare the tables of a library."""


@target_group.command("list")
@common_options
def list_command(config: str | None, *, as_json: bool) -> None:
    """List the targets that [target] name can name; connects to no server."""
    load(config)
    fields = [{"name": SCHEDULER, "title": "the tool's own schema", "versions": "", "sources": ["every source"]}]
    fields += [
        {"name": target.name, "title": target.title, "versions": target.versions, "sources": list(target.mappings)}
        for target in native_targets()
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
    sources = {source: native_profile(source, name) for source in target.mappings}
    fields = {
        "name": target.name,
        "title": target.title,
        "versions": target.versions,
        "schema": target.schema,
        "options": {name: option.meaning for name, option in target.options.items()},
        "tables": {table.name: {column.name: column.type for column in table.columns} for table in target.tables},
        "sources": {source: [one.name for one in profile.collections] for source, profile in sources.items()},
    }
    show(fields, list(_lines(target)), as_json=as_json)


def _lines(target: Target) -> Iterator[str]:
    yield f"target {target.name}: {target.title}, versions {target.versions}, schema {target.schema}"
    for name, option in target.options.items():
        held = "must be said" if option.default is None else f"if omitted: {json.dumps(option.default)}"
        yield f"option {name} ({held}): {option.meaning}; such as {name} = {_as_toml(option.example)}"
    for table in target.tables:
        made = {"": "", "row": ", made by the tool", "sequence": ", of the table's sequence"}[table.made]
        yield f"table {table.name}: key {', '.join(table.key)}{made}"
        yield from (f"  {column.name} {column.type}{' not null' * column.needed}" for column in table.columns)
    for source, path in target.mappings.items():
        yield f"mapping from {source}:"
        yield from (f"  {line}" for line in path.read_text(encoding="utf-8").splitlines())


def _as_toml(value: object) -> str:
    """Return a value of an option as a settings file has it."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{json.dumps(name)} = {json.dumps(inner)}" for name, inner in value.items()) + " }"
    return json.dumps(value)


@target_group.command(short_help="Prepare the tables of a library for a copy.")
@click.option(
    native_target.MAKE_TABLES,
    "make_tables",
    is_flag=True,
    help="First let the library make those of its tables that do not exist.",
)
@dry_run_option
@common_options
def prepare(config: str | None, *, make_tables: bool, dry_run: bool, as_json: bool) -> None:
    """Prepare the configured target for a copy: the tool's schemas beside the tables that the library has made.

    The library's own tables are read and not changed. With --make-tables the library is started first and makes those
    that do not exist: in this Python, or in the one that target.interpreter names. Nothing is lost when it is called
    again.
    """
    settings = load(config)
    target = _native(settings)
    roles = Roles.of(settings.postgres)
    made: list[str] = []
    with translate_errors("the target"), open_login(settings) as connection:
        missing = native_target.missing_tables(connection, target, settings.target) if make_tables else []
        schema = settings.target.schema or target.schema
        if missing:
            native_target.require_schema(connection, schema)
            native_target.require_makeable(connection, target, settings.target)
            needed = NeededRights(filled=(schema,))
        else:
            native_target.require_tables(connection, target, settings.target)
            needed = native_target.needed_rights(connection, target, settings.target)
        own = revisions.TOOL, target.tool_schema
        security.require_rights(connection, roles, msgspec.structs.replace(needed, schemas=own))
        if missing and not dry_run:
            made = _make_tables(settings, target, connection)
            native_target.require_tables(connection, target, settings.target)
        if dry_run:
            print_lines(
                [
                    *(f"would let the library make {name}" for name in missing),
                    f"would make the schema {target.tool_schema}",
                    "nothing was written",
                ]
            )
            finish(0)
    done = revisions.upgrade(
        postgres_dsn(settings),
        names=roles,
        branches=(revisions.TOOL,),
        patience_s=settings.copy.patience.total_seconds(),
    )
    with translate_errors("the target"), open_login(settings) as connection:
        native_target.prepare(connection, target, settings.target)
    lines = [f"the library made {name}" for name in made]
    lines += [f"applied {one.revision} ({one.branch}): {one.title}" for one in done]
    prepared = [f"{target.tool_schema}.{table.name}" for table in target.tables]
    show(
        {"made": made, "applied": done, "prepared": prepared},
        [*lines, *(f"prepared {name}" for name in prepared)],
        as_json=as_json,
    )


def _make_tables(settings: Settings, target: Target, connection: Connection) -> list[str]:
    """Let the library make its tables; return those that did not exist before, with their schema."""
    if target.name not in library.LIBRARIES:
        raise UsageError(f"{native_target.MAKE_TABLES}: no library is known that makes the tables of {target.name}")
    before = native_target.missing_tables(connection, target, settings.target)
    schema = settings.target.schema or target.schema
    store = library.PostgresStore(postgres_dsn(settings), schema, settings.target.tables)
    try:
        library.make_tables(target.name, store, library.interpreter_of(settings.target))
    except library.LibraryMissingError as error:
        raise UsageError(str(error)) from None
    after = native_target.missing_tables(connection, target, settings.target)
    return [name for name in before if name not in after]


def _native(settings: Settings) -> Target:
    """Return the configured native target; raises ``UsageError`` for the schema ``scheduler``."""
    profile = profile_of(settings.source, settings.target)
    if profile.target == SCHEDULER:
        raise UsageError(
            "the target is the schema scheduler: call migrator schema upgrade, or let [target] name the target of a"
            " library (migrator target list)"
        )
    return load_target(profile.target)
