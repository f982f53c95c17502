"""Checks of the two servers before a migration. Nothing is changed.

These are the gates of the cutover that can be evaluated before anything was copied. The others depend on the data.
"""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from importlib import metadata
from typing import Final
from zoneinfo import available_timezones

import msgspec

from migrator.config import Settings, names_source, postgres_dsn
from migrator.connections import mongo, postgres
from migrator.connections.mongo import MongoDatabase
from migrator.connections.postgres import Connection, open_login, open_target, target_connection
from migrator.cutover import fence, server_gates
from migrator.cutover.server_gates import NOBODY_CONNECTED, Answer, Gate, evaluate, sessions_of_others
from migrator.cutover.status import attention
from migrator.errors import RefusedError, UnreachableError
from migrator.parity.stopped_writers import writers_stopped
from migrator.pipeline.sessions import SourceSessions
from migrator.pipeline.tail.positions import oplog_history
from migrator.pipeline.target import target_tables
from migrator.schema import native_target
from migrator.schema.revisions import current
from migrator.schema.security import Roles, require_group_roles
from migrator.sources import profile_of
from migrator.store.mongo.indexes import replaced_indexes
from migrator.store.postgres.connections import describe_pooling
from migrator.targets import load_target


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True):
    """The results, in the order of the checks."""

    findings: tuple[Gate, ...]
    unreachable: tuple[str, ...]
    """Sides that are configured and cannot be reached; nothing else is known of them."""


def examine(settings: Settings, clock: Callable[[], float] = time.time) -> Diagnosis:
    """Connect to both sides and make every check; raises ``ConfigurationError`` only."""
    findings: list[Gate] = []
    unreachable: list[str] = []
    source: MongoDatabase | None = None
    target: Connection | None = None

    @contextmanager
    def reached(side: str) -> Iterator[None]:
        try:
            yield
        except UnreachableError as error:
            unreachable.append(side)
            findings.append(Gate(name=side, passed=None, words=str(error)))
        except RefusedError as error:  # the target, because of its encoding
            findings.append(Gate(name=side, passed=False, words=str(error)))

    with ExitStack() as stack:
        with reached("source"):
            if settings.source.in_postgres:
                findings += _table_findings(settings)
            elif names_source(settings):
                source = mongo.open_source(settings)
                stack.callback(source.client.close)
                findings += _source_findings(settings, source)
            else:
                words = "not configured ([mongo]): there is no source to copy"
                findings.append(Gate(name="source", passed=True, words=words))
        with reached("target"):
            findings.append(_connection_path(settings))  # first: a pooler may refuse the rest for other reasons
            target = stack.enter_context(open_login(settings))
            findings += _target_findings(settings, target)
        if source is not None or target is not None:
            findings.append(evaluate("clocks", lambda: server_gates.clocks(source, target, settings, clock)))
    return Diagnosis(findings=tuple(findings), unreachable=tuple(unreachable))


def _source_findings(settings: Settings, source: MongoDatabase) -> Iterator[Gate]:
    yield evaluate("source", lambda: (True, f"MongoDB {mongo.version(source)}, database {source.name}"))
    yield evaluate("server product", lambda: server_gates.server_product(source))
    yield evaluate("read", lambda: (True, f"{len(source.list_collection_names()):,} collections may be read"))
    yield evaluate("replica set", lambda: server_gates.replica_set(source))
    yield evaluate("history", lambda: server_gates.oplog(oplog_history(source)))
    if settings.target.is_native:
        return  # the rest is about a cutover by the tool
    profile = profile_of(settings.source, settings.target)
    yield evaluate("writers of the source", lambda: server_gates.writers(source, settings, profile))
    yield evaluate("reverse sync", lambda: server_gates.reverse_sync(profile))
    if profile.kept_by_store:
        gate = evaluate("former indexes", lambda: _former_indexes(source))
        if gate.words:  # they prevent nothing, and neither does a user who may not list them
            yield msgspec.structs.replace(gate, passed=gate.passed or None)


def _former_indexes(source: MongoDatabase) -> Answer:
    """Name the indexes of the store that nothing uses any more; only a person drops them."""
    commands = [
        f"db.{collection}.dropIndex({json.dumps(name)})"
        for collection, indexes in replaced_indexes(source).items()
        for name in indexes
    ]
    if not commands:
        return True, ""
    why = "an earlier version created them, and another index replaces each"
    return True, f"{why}; once no process of that version runs, drop them in mongosh: {'; '.join(commands)}"


def _table_findings(settings: Settings) -> Iterator[Gate]:
    with closing(SourceSessions(settings)) as sessions, postgres.open_source(settings) as connection:
        info = connection.info
        words = f"PostgreSQL {postgres.version(connection)}, database {info.dbname}, as {info.user}"
        yield evaluate("source", lambda: (True, words))
        read = evaluate("read", lambda: (True, f"{len(sessions.survey()[0]):,} tables may be read"))
        yield read
        if read.passed:
            yield evaluate("writers of the source", lambda: _table_writers(sessions))
        yield evaluate("reverse sync", lambda: server_gates.reverse_sync(sessions.profile))


def _table_writers(sessions: SourceSessions) -> Answer:
    """Whether a parity check would be verified now; before the writers are stopped it need not be."""
    with writers_stopped(sessions.settings, [one.name for one in sessions.survey()[0]], lock=False) as reason:
        return (None, reason) if reason else (True, "nobody but the owner may write its tables")


def _native_findings(settings: Settings, target: Connection) -> Iterator[Gate]:
    """Check the tables of a library, and what the tool keeps beside them."""
    profile = profile_of(settings.source, settings.target)
    described = load_target(profile.target)

    def tables() -> Answer:
        shape = native_target.require_tables(target, described, settings.target)
        names = ", ".join(settings.target.tables.get(one.name, one.name) for one in described.tables)
        if shape is None:
            return True, f"{names} have the columns that the mapping fills"
        return True, f"{names} are as {shape.made_by} makes them"

    def prepared() -> Answer:
        target_tables(settings).require_ready(target)
        return True, f"the schema {described.tool_schema} is there"

    def rows() -> Answer:
        tables = target_tables(settings)
        tables.guard_foreign(target, profile)
        tables.guard_changed(target, profile.collections)
        return True, f"the tables hold no rows but those that came from {profile.name}, and nobody has changed one"

    gate = evaluate("tables of the library", tables)
    yield gate
    if gate.passed:
        gate = evaluate("prepared", prepared)
        yield gate
    if gate.passed:
        yield evaluate("rows of others", rows)
    yield evaluate("sessions of others", lambda: _other_sessions(target))


_SHOWN: Final = 5


def _other_sessions(target: Connection) -> Answer:
    """Name those who are connected to the target: an application that is started there works beside the old one."""
    named = sessions_of_others(target)
    if not named:
        return True, NOBODY_CONNECTED
    more = f" and {len(named) - _SHOWN:,} more" if len(named) > _SHOWN else ""
    words = f"{', '.join(named[:_SHOWN])}{more} are connected to the target's database"
    return None, f"{words}: an application that is started there executes jobs while the old one still does"


def _target_findings(settings: Settings, target: Connection) -> Iterator[Gate]:
    yield evaluate("target", lambda: _server(target))
    if settings.target.is_native:
        yield from _native_findings(settings, target)
        return
    schema = evaluate("schema", lambda: _schema(settings))
    yield schema
    if schema.passed:  # otherwise there is nothing to check yet
        yield evaluate("cutover", lambda: _cutover(settings))
        yield evaluate("roles", lambda: _roles(settings))
        yield evaluate("writes", lambda: _writes(settings))
        yield evaluate("writers of the target", lambda: _writers(settings))
    yield evaluate("time zones", lambda: _zones(settings, migrated=schema.passed is True))


def _connection_path(settings: Settings) -> Gate:
    """Describe what is between the tool and the server; raises ``UnreachableError`` if that cannot be found out."""
    try:
        return Gate(name="connection", passed=True, words=describe_pooling(settings))
    except RefusedError as error:
        return Gate(name="connection", passed=False, words=str(error))


def _server(target: Connection) -> Answer:
    info = target.info
    return True, f"PostgreSQL {postgres.version(target)}, database {info.dbname}, as {info.user}"


def _cutover(settings: Settings) -> Answer:
    """Whether the last cutover, or its rollback, needs a person."""
    state = attention(settings)
    if state is None:
        return True, "no cutover or rollback needs a person"
    return None, f"{state.words}: {'; or '.join(state.commands) or 'wait for it'}"


def _roles(settings: Settings) -> Answer:
    roles = Roles.of(settings.postgres)
    with open_login(settings) as target:
        require_group_roles(target, roles)
    for role in roles.names():
        open_target(settings, role=role).close()
    return True, f"the tool's user may act as {', '.join(roles.names())}"


def _schema(settings: Settings) -> Answer:
    found = current(postgres_dsn(settings), Roles.of(settings.postgres))
    revisions = ", ".join(f"{one.branch} at {one.revision or 'nothing'}" for one in found)
    if any(one.pending for one in found):
        return False, f"{revisions}: call migrator schema upgrade"
    return True, revisions


def _writes(settings: Settings) -> Answer:
    with target_connection(settings) as target:
        return server_gates.target_writes(target)


def _writers(settings: Settings) -> Answer:
    """Name the users who could still write after the rollback closes PostgreSQL; they do not stop it."""
    with target_connection(settings) as target:
        through = fence.unstopped_on_target(target, settings.postgres)
    return (
        True,
        f"the fence of a rollback would not stop {', '.join(through)}"
        if through
        else "the fence of a rollback stops every other user",
    )


def _zones(settings: Settings, *, migrated: bool) -> Answer:
    detail = f"tzdata {metadata.version('tzdata')}"
    if not migrated:
        return True, detail
    with target_connection(settings) as target:
        rows = target.execute("SELECT DISTINCT timezone FROM scheduler.triggers WHERE timezone IS NOT NULL").fetchall()
    named = {row[0] for row in rows}
    unknown = sorted(named - available_timezones())
    if unknown:
        return False, f"{detail} does not know these time zones of triggers: {', '.join(unknown[:5])}"
    return True, f"{detail} knows the time zones of all triggers, {len(named):,} different"
