"""Commands about sources: list, show, draft, check."""

from collections.abc import Iterator, Mapping, Sequence

import click
import msgspec

from migrator.cli.options import allow_quarantined_option, common_options, config_option, finish, load, show
from migrator.cli.text import sample_lines
from migrator.config import SourceSettings
from migrator.cutover import library_documents
from migrator.exit_status import Allowance, beyond, mask
from migrator.pipeline.source_sample import check_source, draft_mapping
from migrator.sources import described_profile, installed_sources, native_profile, shipped_mapping
from migrator.sources.profile import MONGODB, Profile
from migrator.sources.write_back import WriteBack, write_back
from migrator.targets import native_targets


@click.group()
def source_group() -> None:
    """List the known sources, draft a mapping for a source of your own, and try it on a sample."""


@source_group.command("list")
@common_options
def list_command(config: str | None, *, as_json: bool) -> None:
    """List the sources that [source] profile can name; connects to no server.

    Says of each whether its changes can be followed (tail), whether its writers can be moved and come back (cutover,
    rollback), and in which versions its documents were seen. "native": not to the tool's own schema, but to the tables
    of a library, which migrator target list names.
    """
    load(config)
    sources = list(installed_sources())
    native_cutovers = {name: _native_cutovers(name) for name, _ in sources}
    fields = [
        {
            "name": name,
            "documents": profile.documents,
            "servers": profile.servers,
            "tail": MONGODB in profile.servers,
            "cutover": not write_back(profile).faults,
            "rollback": not write_back(profile).faults,
            "native_cutover": native_cutovers[name],
            "parallel_run": bool(profile.slots),
            "collections": [one.name for one in profile.collections],
        }
        for name, profile in sources
    ]
    show(fields, _list_lines(sources, native_cutovers), as_json=as_json)


def _native_faults(source: str) -> dict[str, list[str]]:
    """Return the native targets that take documents of a shipped source, each with why a cutover to it is refused."""
    targets = [target.name for target in native_targets() if source in target.mappings]
    return {target: library_documents.faults(native_profile(source, target)) for target in targets}


def _native_cutovers(source: str) -> list[str]:
    """Return the native targets to which a cutover of a source can be made, and rolled back."""
    return [target for target, faults in _native_faults(source).items() if not faults]


def _list_lines(found: Sequence[tuple[str, Profile]], native_cutovers: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Yield a line for each source: what it can do, and in what its documents were seen.

    ``native_cutovers``: source to the native targets to which a cutover of it can be made.
    """
    width = max(len(name) for name, _ in found)
    yield f"{'source':<{width}}  tail  cutover  rollback  documents"
    for name, profile in found:
        tail = ("no", "yes")[MONGODB in profile.servers]
        back = "native" if native_cutovers[name] else "no"
        back = back if write_back(profile).faults else "yes"
        yield f"{name:<{width}}  {tail:<4}  {back:<7}  {back:<8}  {profile.documents or '-'}"


@source_group.command("show")
@click.argument("source")
@common_options
def show_command(config: str | None, source: str, *, as_json: bool) -> None:
    """Show the collections, tables and known fields of a SOURCE.

    A source that is shipped as a mapping file is shown as that file, which can be copied and changed. The last lines
    say whether a cutover can be rolled back, and what would have no place in MongoDB. SOURCE is a name,
    package.module:NAME, or the path of a mapping file (.toml). Asks no server.
    """
    load(config)
    profile = described_profile(source)
    collections = [
        {"collection": one.name, "tables": [record.table for record in one.tables], "known": sorted(one.known)}
        for one in profile.collections
    ]
    ability = write_back(profile)
    fields = {
        "collections": collections,
        "cutover": not ability.faults,
        "faults": ability.faults,
        "losses": ability.losses,
        "native": _native_faults(source),
    }
    cutover = [*_cutover_lines(ability), *_native_lines(_native_faults(source))]
    mapping = shipped_mapping(source)
    if mapping.is_file():
        lines = [*mapping.read_text(encoding="utf-8").splitlines(), *(f"# {one}" for one in cutover)]
    else:
        lines = [*_profile_lines(profile), *cutover]
    show(fields, lines, as_json=as_json)


@source_group.command("draft")
@click.option("--collection", multiple=True, metavar="NAME", help="Collection to describe; repeatable.")
@click.option(
    "--table",
    multiple=True,
    metavar="NAME=TABLE",
    help="Collection to describe, and the table that its documents feed, in place of a guess; repeatable.",
)
@click.option("--name", default="own", show_default=True, metavar="NAME", help="Name of the source.")
@click.option(
    "--sample",
    type=click.IntRange(1, 1_000_000),
    default=10_000,
    show_default=True,
    metavar="N",
    help="Number of documents to read.",
)
@config_option
def draft_command(
    config: str | None, collection: tuple[str, ...], table: tuple[str, ...], name: str, sample: int
) -> None:
    """Print a draft of a mapping file for collections.

    Reads a sample of the documents, and writes nothing. The draft holds words that were found in documents (states),
    and no other value.
    """
    if not collection and not table:
        raise click.UsageError("name a collection: --collection NAME, or --table NAME=TABLE")
    chosen = dict(_pair(one) for one in table)
    click.echo(draft_mapping(load(config), tuple(dict.fromkeys(collection)), sample, name, chosen), nl=False)


@source_group.command("check")
@click.argument("source", required=False)
@click.option(
    "--sample",
    type=click.IntRange(1, 1_000_000),
    default=1_000,
    show_default=True,
    metavar="N",
    help="Number of documents to read of each collection.",
)
@click.option("--show-values", is_flag=True, help="Show values of documents, not only their types.")
@allow_quarantined_option
@common_options
def check_command(
    config: str | None,
    source: str | None,
    sample: int,
    allow_quarantined: Allowance,
    *,
    show_values: bool,
    as_json: bool,
) -> None:
    """Check a SOURCE on a sample of the documents.

    Prints which are clean, which would be quarantined and why, and three of them as rows. SOURCE is a name,
    package.module:NAME, or the path of a mapping file (.toml); if omitted, that of the configuration. Reads the source
    alone, and writes nothing.
    """
    settings = load(config)
    if source is not None:
        settings = msgspec.structs.replace(settings, source=_chosen(settings.source, source))
    found = check_source(settings, sample, values=show_values)
    show(found, sample_lines(found), as_json=as_json)
    count = sum(reason.documents for one in found.collections for reason in one.quarantine)
    finish(mask(quarantine=beyond(count, allow_quarantined)))


def _pair(text: str) -> tuple[str, str]:
    name, equals, table = text.rpartition("=")
    if not equals:
        raise click.UsageError(f"--table {text}: expected NAME=TABLE")
    return name, table


def _chosen(settings: SourceSettings, source: str) -> SourceSettings:
    """Return the settings with the source that the command line names; a path ends with ``.toml``."""
    if source.endswith(".toml"):
        return msgspec.structs.replace(settings, mapping=source)
    return msgspec.structs.replace(settings, profile=source, mapping=None)


def _native_lines(faults: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Yield whether a cutover to each native target that takes the documents can be rolled back."""
    for target, reasons in faults.items():
        if reasons:
            yield f"to the tables of {target}: a cutover is refused, because it could not be rolled back:"
            yield from (f"  {one}" for one in reasons)
        else:
            yield f"to the tables of {target}: a cutover can be rolled back"


def _profile_lines(profile: Profile) -> Iterator[str]:
    yield f"{profile.name}, version {profile.version}"
    for collection in profile.collections:
        tables = ", ".join(record.table for record in collection.tables)
        yield f"{collection.name} -> {tables}"
        yield from (f"  {path}" for path in sorted(collection.known))
    yield from (f"{name} is left out: {reason}" for name, reason in profile.left_out.items())


def _cutover_lines(ability: WriteBack) -> Iterator[str]:
    if ability.faults:
        yield "a cutover is refused, because it could not be rolled back:"
        yield from (f"  {one}" for one in ability.faults)
        return
    yield "a cutover can be rolled back"
    if ability.losses:
        yield "these have no place in MongoDB, and are exported by a rollback:"
        yield from (f"  {one}" for one in ability.losses)
