"""What a verdict rests on, and the surroundings it was reached in: versions, time zone data, engines."""

import platform
import socket
from contextlib import suppress
from datetime import UTC
from importlib import metadata
from typing import Literal

from migrator import __version__, native
from migrator.config import Settings
from migrator.connections import identity, mongo, postgres
from migrator.cutover import journal
from migrator.errors import ConfigurationError, MigratorError
from migrator.pipeline import ledger
from migrator.result import CutoverState, Side
from migrator.schema import native_target
from migrator.sources import profile_of
from migrator.targets import load_target, native_table
from migrator.verify.check import CheckContext

LIBRARIES = ("psycopg", "pymongo", "cronsim")
NOT_CONFIGURED = "not configured"
UNREACHABLE = "unreachable"
NOT_ASKED = "not asked: fresh start"


def basis(context: CheckContext) -> dict[str, str]:
    """Return the facts that belong to the evidence: the same for every run over the same data with the same tool."""
    profile = profile_of(context.settings.source, context.settings.target)
    named = context.settings.cutover.environment
    facts = {
        **({"environment": named} if named else {}),
        "profile": f"{profile.name}/{profile.version}",
        "tool": f"migrator {__version__}",
    }
    with suppress(MigratorError):
        facts["schema revision"] = ", ".join(
            f"{one.branch} {one.revision or 'none'}"
            for one in context.positions
            if one.revision or not context.settings.target.is_native  # which needs no schema scheduler
        )
    return facts


def installation(context: CheckContext) -> dict[str, str]:
    """Return which installation was verified: its name, the plan of the copy, the digest of the configuration.

    Of a native target, also which collection was moved into which tables.
    """
    facts = {
        "environment": identity.environment_name(context.settings),
        "configuration": f"sha256:{identity.settings_digest(context.settings)}",
    }
    with suppress(MigratorError), postgres.translate_errors("the target"), context.target() as target:
        plan = ledger.latest_plan(target)
        if plan is not None:
            facts["plan"] = f"{plan.id}, as of {plan.as_of.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC, {plan.state}"
            facts |= _moved(context.settings, ledger.copied_collections(target))
    return facts


def _moved(settings: Settings, copied: set[str]) -> dict[str, str]:
    """Return which copied collection was moved into which tables of a library, by the names that the servers have."""
    if not settings.target.is_native:
        return {}
    profile = profile_of(settings.source, settings.target)
    target = load_target(profile.target)
    moves = []
    for collection in (one for one in profile.collections if one.name in copied):
        tables = [table for record in collection.tables if (table := native_table(record.table)) is not None]
        places = [".".join(native_target.place(table, target, settings.target)) for table in tables]
        moves.append(f"{settings.source.collections.get(collection.name, collection.name)} to {', '.join(places)}")
    return {"moved": "; ".join(moves)} if moves else {}


def cutover_state(context: CheckContext) -> CutoverState | None:
    """Return how the last cutover stands; None if there was none, or if it cannot be read."""
    with suppress(MigratorError), context.target() as target, postgres.translate_errors("the target"):
        cutover = journal.latest(target)
        if cutover is None:
            return None
        times = (cutover.began_at, journal.opened_at(target, cutover.id), cutover.ended_at)
        began, opened, ended = ("" if at is None else at.astimezone(UTC).isoformat(timespec="seconds") for at in times)
        return CutoverState(state=cutover.state, began_at=began, opened_at=opened, ended_at=ended)
    return None


def surroundings(source: Side, target: Side) -> dict[str, str]:
    """Return the facts that may differ from run to run; of a server, its version or why it is not known."""
    return {
        "codec": native.description(),
        "host": socket.gethostname(),
        "mongodb": NOT_CONFIGURED if source.server.startswith("PostgreSQL") else source.server.removeprefix("MongoDB "),
        "postgresql": target.server.removeprefix("PostgreSQL "),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "time zone data": metadata.version("tzdata"),
        **{name: metadata.version(name) for name in LIBRARIES},
    }


def sides(context: CheckContext) -> tuple[Side, Side]:
    """Return both databases by name and address; of one that does not answer, what the configuration says."""
    return _source(context), _target(context)


def _source(context: CheckContext) -> Side:
    if context.request.fresh_start is not None:
        return Side(name="source", server=NOT_ASKED)
    if context.settings.source.in_postgres:
        return _tables(context)
    try:
        source = mongo.open_source(context.settings)
        with source.client, mongo.translate_errors("the source"):
            hello = source.client.admin.command("hello")
            hosts = hello.get("hosts") or [f"{host}:{port}" for host, port in sorted(source.client.nodes)]
            return Side(
                name="source",
                server=f"MongoDB {mongo.version(source)}",
                address=", ".join(hosts),
                database=source.name,
                replica_set=hello.get("setName", ""),
                replica_set_id=identity.replica_set_id(source),
            )
    except ConfigurationError:
        return Side(name="source", server=NOT_CONFIGURED)
    except MigratorError:
        return Side(name="source", server=UNREACHABLE, database=context.settings.mongo.database or "")


def _tables(context: CheckContext) -> Side:
    try:
        with postgres.open_source(context.settings) as connection, postgres.translate_source_errors():
            return _of_postgres("source", connection)
    except MigratorError:
        return Side(name="source", server=UNREACHABLE)


def _of_postgres(name: Literal["source", "target"], connection: postgres.Connection) -> Side:
    info = connection.info
    return Side(
        name=name,
        server=f"PostgreSQL {postgres.version(connection)}",
        address=info.host if info.host.startswith("/") else f"{info.host}:{info.port}",
        database=info.dbname,
        system_identifier=identity.system_identifier(connection),
    )


def _target(context: CheckContext) -> Side:
    try:
        with postgres.open_login(context.settings) as connection, postgres.translate_errors("the target"):
            return _of_postgres("target", connection)
    except ConfigurationError:
        return Side(name="target", server=NOT_CONFIGURED)
    except MigratorError:
        return Side(name="target", server=UNREACHABLE)
