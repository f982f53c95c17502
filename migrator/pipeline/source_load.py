"""How busy the source's server is: active clients and queued operations of MongoDB, or sessions of PostgreSQL."""

from collections.abc import Mapping
from typing import Any, Final

from pymongo.errors import OperationFailure

from migrator.connections import postgres
from migrator.connections.mongo import UNAUTHORIZED, MongoDatabase, grant_of, translate_errors
from migrator.connections.postgres import fetch_value, translate_source_errors
from migrator.errors import DeniedError
from migrator.pipeline.sessions import SourceSessions

MONITOR: Final = "clusterMonitor"
"""Role of MongoDB that may ask how busy the server is."""

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
    status = _administrative(sessions.source, "serverStatus", "copy.max_source_load")
    return load_in(status)


def load_in(status: Mapping[str, Any]) -> float:
    """Return the load in what MongoDB says of itself (``serverStatus``)."""
    lock = status["globalLock"]
    return float(lock["activeClients"]["total"] + lock["currentQueue"]["total"])


def _sessions_of_postgres(sessions: SourceSessions) -> float:
    with translate_source_errors(), postgres.open_source(sessions.settings) as connection:
        if not fetch_value(connection, _SEES_OTHERS):
            raise DeniedError(
                "copy.max_source_load cannot be measured: the user of source.uri does not see the sessions of others;"
                f" let an administrator call GRANT pg_read_all_stats TO {connection.info.user}"
            )
        return float(fetch_value(connection, _ACTIVE))


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
