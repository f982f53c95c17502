"""How busy the source's server is (clients and queued operations, or sessions), and how far its replicas are behind."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from pymongo.errors import OperationFailure

from migrator.connections import postgres
from migrator.connections.mongo import UNAUTHORIZED, MongoDatabase, grant_of, replica_set, translate_errors
from migrator.connections.postgres import Connection, fetch_value, translate_source_errors
from migrator.errors import DeniedError, RefusedError
from migrator.pipeline.sessions import SourceSessions

MONITOR: Final = "clusterMonitor"
"""Role of MongoDB that may ask how busy the server is."""

LAG: Final = "copy.max_replication_lag"
LOAD: Final = "copy.max_source_load"
PRIMARY: Final = 1
SECONDARY: Final = 2
"""States of a member (MongoDB manual, replica set member states)."""

_STANDBYS: Final = (
    "SELECT count(*), max(extract(epoch FROM replay_lag))::float8 FROM pg_catalog.pg_stat_replication"
    " WHERE application_name <> 'pg_basebackup'"
)
_ACTIVE: Final = (
    "SELECT count(*) FROM pg_catalog.pg_stat_activity"
    " WHERE state = 'active' AND backend_type = 'client backend' AND pid <> pg_catalog.pg_backend_pid()"
)
_SEES_OTHERS: Final = "SELECT pg_catalog.pg_has_role('pg_read_all_stats', 'USAGE')"


def source_load(sessions: SourceSessions) -> float:
    """Return how many clients the source's server works for or lets wait, this tool's own included.

    Raises ``DeniedError``, with the right that is missing.
    """
    if sessions.settings.source.in_postgres:
        return _sessions_of_postgres(sessions)
    status = _administrative(sessions.source, "serverStatus", LOAD)
    return load_in(status)


def load_in(status: Mapping[str, Any]) -> float:
    """Return the load in what MongoDB says of itself (``serverStatus``)."""
    lock = status["globalLock"]
    return float(lock["activeClients"]["total"] + lock["currentQueue"]["total"])


def replication_lag(sessions: SourceSessions) -> float:
    """Return by how many seconds the slowest secondary, or standby, of the source is behind.

    A source that was idle for some seconds may show that time for a moment after a write. Raises ``DeniedError``, with
    the right that is missing, and ``RefusedError`` for a source without a secondary.
    """
    if sessions.settings.source.in_postgres:
        with _statistics_of_postgres(sessions, LAG) as connection:
            standbys, seconds = connection.execute(_STANDBYS).fetchone() or (0, None)
        if not standbys:
            raise RefusedError(f"{LAG} cannot be measured: the source has no standby")
        return float(seconds or 0)
    if replica_set(sessions.source) is None:
        raise RefusedError(f"{LAG} cannot be measured: the source is not a replica set")
    config = _administrative(sessions.source, "replSetGetConfig", LAG)["config"]
    lag = lag_in(_administrative(sessions.source, "replSetGetStatus", LAG), config)
    if lag is None:
        raise RefusedError(f"{LAG} cannot be measured: the replica set {config['_id']} has no secondary that answers")
    return lag


def lag_in(status: Mapping[str, Any], config: Mapping[str, Any]) -> float | None:
    """Return the lag in what MongoDB says of a replica set; None if no secondary answers.

    A member that is delayed on purpose does not count.
    """
    delayed = {one["host"] for one in config["members"] if one.get("secondaryDelaySecs", 0)}
    times = {
        one["name"]: one["optimeDate"]
        for one in status["members"]
        if one["state"] in (PRIMARY, SECONDARY) and one["name"] not in delayed
    }
    behind = [one["name"] for one in status["members"] if one["state"] == SECONDARY and one["name"] in times]
    if not behind:
        return None
    newest = max(times.values())
    return max(float((newest - times[name]).total_seconds()) for name in behind)


def _sessions_of_postgres(sessions: SourceSessions) -> float:
    with _statistics_of_postgres(sessions, LOAD) as connection:
        return float(fetch_value(connection, _ACTIVE))


@contextmanager
def _statistics_of_postgres(sessions: SourceSessions, setting: str) -> Iterator[Connection]:
    """Connect to a source in PostgreSQL as one who sees the sessions of others; raise ``DeniedError`` otherwise."""
    with translate_source_errors(), postgres.open_source(sessions.settings) as connection:
        if not fetch_value(connection, _SEES_OTHERS):
            raise DeniedError(
                f"{setting} cannot be measured: the user of source.uri does not see the sessions of others; let an"
                f" administrator call GRANT pg_read_all_stats TO {connection.info.user}"
            )
        yield connection


def _administrative(source: MongoDatabase, command: str, setting: str) -> Mapping[str, Any]:
    """Return the answer to a command of ``clusterMonitor``; raise ``DeniedError`` with the grant that is missing."""
    try:
        with translate_errors("the source"):
            answer: dict[str, Any] = source.client.admin.command(command)
            return answer
    except DeniedError as error:
        cause = error.__cause__
        if isinstance(cause, OperationFailure) and cause.code == UNAUTHORIZED:
            raise DeniedError(
                f"{setting} cannot be measured: the user of mongo.uri needs the role {MONITOR}; let an administrator"
                f" call {grant_of(source, MONITOR, 'admin')}"
            ) from error
        raise
