"""Which databases an installation moves: its name, the identities of its servers, and the digest of its settings."""

import hashlib

import bson
import msgspec
import psycopg
from psycopg.conninfo import conninfo_to_dict
from pymongo.errors import PyMongoError

from migrator.config import Settings, postgres_dsn, settings_tree
from migrator.connections.mongo import MongoDatabase
from migrator.connections.postgres import Connection, fetch_value
from migrator.errors import ConfigurationError
from migrator.redaction import redact_all

UNNAMED = "not named"


def environment_name(settings: Settings) -> str:
    """Return the name of the installation: the setting ``environment``, else the target's ``database@host``."""
    if settings.cutover.environment:
        return settings.cutover.environment
    try:
        given = conninfo_to_dict(postgres_dsn(settings))
    except (ConfigurationError, psycopg.Error):
        return UNNAMED
    if "service" in given and "dbname" not in given:
        return f"service {given['service']}"
    host = str(given.get("host") or given.get("hostaddr") or "")
    database = given.get("dbname") or given.get("user") or ""
    return f"{database}@{'this machine' if not host or host.startswith('/') else host}" if database else UNNAMED


def settings_digest(settings: Settings) -> str:
    """Return the SHA-256 of the effective settings, without credentials: another password is not another digest."""
    return hashlib.sha256(msgspec.json.encode(redact_all(settings_tree(settings)), order="sorted")).hexdigest()


def system_identifier(connection: Connection) -> str:
    """Return the number that initdb gave the server's files; empty if the user may not read it."""
    try:
        with connection.transaction():
            return str(fetch_value(connection, "SELECT system_identifier FROM pg_control_system()"))
    except psycopg.Error:
        return ""


def replica_set_id(source: MongoDatabase) -> str:
    """Return the id that MongoDB gave the replica set when it was initiated; empty if the user may not read it."""
    try:
        set_id = source.client.admin.command("replSetGetConfig")["config"]["settings"].get("replicaSetId")
    except (PyMongoError, KeyError):
        return ""
    return str(set_id) if isinstance(set_id, bson.ObjectId) else ""
