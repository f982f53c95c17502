"""Connecting to MongoDB: a client, its database, and the driver's errors as errors of the tool."""

import atexit
import json
import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeAlias, cast

import pymongo
from bson.timestamp import Timestamp
from pymongo.database import Database
from pymongo.errors import (
    AutoReconnect,
    InvalidName,
    InvalidURI,
    OperationFailure,
    PyMongoError,
    ServerSelectionTimeoutError,
)
from pymongo.errors import (
    ConfigurationError as MongoConfigurationError,
)
from pymongo.read_concern import ReadConcern
from pymongo.synchronous import monitor

from migrator.config import Settings, lowered, mongo_uri
from migrator.errors import ConfigurationError, DeniedError, RefusedError, UnreachableError
from migrator.redaction import redact

MongoDatabase: TypeAlias = Database[dict[str, Any]]

OLDEST: Final = 5
"""The oldest major version of the source; 4.4 lacks operators of the aggregates that a parity check compares."""

SCHEMES = ("mongodb://", "mongodb+srv://")
LONGEST_DATABASE = 63
"""Bytes of the name of a database, as the server limits them."""
AUTHENTICATION_FAILED = 18
UNAUTHORIZED = 13
TRANSIENT_CODES = (43, 175, 237)
"""Cursor not found, query plan killed, cursor killed: a new cursor may pass."""
TRANSIENT_LABELS = ("RetryableWriteError", "TransientTransactionError")


def open_source(settings: Settings) -> MongoDatabase:
    """Connect to the source and return its database.

    Raises ``ConfigurationError`` (URI or database name, a server that is too old), ``UnreachableError`` (no server,
    wrong password).
    """
    uri = mongo_uri(settings)
    if not uri.startswith(SCHEMES):  # the driver would take it for the name of a host
        raise ConfigurationError(f"mongo.uri is not a MongoDB URI: expected it to begin with {' or '.join(SCHEMES)}")
    timeout_ms = settings.mongo.timeout // timedelta(milliseconds=1)
    with translate_errors("the source"), ExitStack() as on_error:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error", UserWarning)  # the driver only warns of an unknown or illegal option
                client: pymongo.MongoClient[dict[str, Any]] = pymongo.MongoClient(
                    uri,
                    serverSelectionTimeoutMS=timeout_ms,
                    connectTimeoutMS=timeout_ms,
                    appname="migrator",
                    datetime_conversion="DATETIME_AUTO",
                )
            on_error.callback(client.close)
            database = client[settings.mongo.database] if settings.mongo.database else client.get_default_database()
            _require_short(database)
        except (InvalidURI, ValueError) as error:
            raise ConfigurationError(f"mongo.uri is not a MongoDB URI: {lowered(_without_login(uri, error))}") from None
        except OSError as error:  # ssl.SSLError is one
            raise ConfigurationError(
                f"mongo.uri: a file that its TLS options name cannot be used: {error.strerror or type(error).__name__}"
            ) from None
        except UserWarning as error:
            raise ConfigurationError(f"mongo.uri: {lowered(_without_login(uri, error))}") from None
        except InvalidName as error:
            raise ConfigurationError(f"mongo.database is no legal name: {lowered(str(error))}") from None
        except MongoConfigurationError as error:
            if "default database" in str(error).lower():
                raise ConfigurationError("mongo.database is not set and mongo.uri names no database") from None
            raise ConfigurationError(f"mongo.uri: {lowered(_without_login(uri, error))}") from None
        _require_version(str(client.server_info()["version"]))
        on_error.pop_all()
    return database


def _require_version(found: str) -> None:
    if int(found.partition(".")[0]) < OLDEST:
        raise ConfigurationError(
            f"mongo.uri names a server with MongoDB {found}, and the tool needs MongoDB {OLDEST}.0 or later: upgrade"
            " the server, or restore a dump of the database on a newer one, and name that"
        )


def _require_short(database: MongoDatabase) -> None:
    if len(database.name.encode()) > LONGEST_DATABASE:
        raise InvalidName(f"expected at most {LONGEST_DATABASE} bytes")


def leave_monitors() -> None:
    """Let this process end without waiting for the driver's monitors.

    At the end of a process the driver stops them and waits until they look up, which each does every half second. They
    are daemon threads, and hold nothing.
    """
    atexit.unregister(monitor._shutdown_resources)  # noqa: SLF001 - the driver has no option for it


@contextmanager
def translate_errors(what: str) -> Iterator[None]:
    """Turn the driver's errors into the tool's: who failed, and what an operator can do."""
    try:
        yield
    except ServerSelectionTimeoutError as error:
        raise UnreachableError(f"{what} cannot be reached: {first_line(error)}") from error
    except OperationFailure as error:
        raise _failure(what, error) from error
    except PyMongoError as error:
        raise UnreachableError(f"{what} failed: {type(error).__name__}: {first_line(error)}") from error


def _failure(what: str, error: OperationFailure) -> UnreachableError:
    if error.code == AUTHENTICATION_FAILED:
        return UnreachableError(f"{what} refuses the user or the password of mongo.uri")
    if error.code == UNAUTHORIZED:
        words = _without_command(first_line(error))
        return DeniedError(f"{what} denies a right: {words}; the copy needs the role read on the database")
    return UnreachableError(f"{what} answered with error {error.code}: {first_line(error)}")


def _without_command(text: str) -> str:
    """Keep of the command that the server quotes its name: the rest has session ids and times."""
    return re.sub(r"(to execute command) \{ (\w+):.*", r"\1 \2", text, flags=re.DOTALL)


def grant_of(source: MongoDatabase, role: str, database: str) -> str:
    """Return the command with which an administrator gives the connected user a role on a database."""
    with translate_errors("the source"):
        status = source.client.admin.command("connectionStatus")
    users = status["authInfo"]["authenticatedUsers"] or [{"user": "", "db": "admin"}]
    command = {"grantRolesToUser": users[0]["user"], "roles": [{"role": role, "db": database}]}
    return f"db.getSiblingDB({json.dumps(users[0]['db'])}).runCommand({json.dumps(command)})"


def committed(source: MongoDatabase) -> MongoDatabase:
    """Return the source with reads of what a majority has: what an election undoes was never read, nor streamed."""
    with translate_errors("the source"):
        hello = source.client.admin.command("hello")
    if "setName" not in hello and hello.get("msg") != "isdbgrid":
        return source  # a plain server refuses to speak of majorities
    return source.with_options(read_concern=ReadConcern("majority"))


def server_time(source: MongoDatabase) -> datetime:
    """Return the server's time (aware, UTC)."""
    with translate_errors("the source"):
        at = source.client.admin.command("hello")["localTime"]
    # gateways of DocumentDB on PostgreSQL answer with milliseconds
    return datetime.fromtimestamp(at / 1000, UTC) if isinstance(at, int) else cast("datetime", at).replace(tzinfo=UTC)


def committed_time(source: MongoDatabase) -> Timestamp:
    """Return the cluster time up to which a majority has everything: a change stream from there misses nothing.

    The time of the last write would not do: it may be ahead of a write that is not committed yet. Raises
    ``RefusedError`` for a server that has none.
    """
    time = cluster_time(source)
    if time is None:
        raise RefusedError(
            "the source is not a replica set, and has no cluster time at which a change stream could begin"
        )
    return time


def cluster_time(source: MongoDatabase) -> Timestamp | None:
    """Return the time that ``committed_time`` returns; None: the server has none, and so no change stream."""
    with translate_errors("the source"):
        hello = source.client.admin.command("hello")
    if "lastWrite" in hello:
        return cast("Timestamp", hello["lastWrite"]["majorityOpTime"]["ts"])
    # a router, which speaks of what it has seen of its shards
    return cast("Timestamp | None", hello.get("operationTime"))


def replica_set(source: MongoDatabase) -> str | None:
    """Return the replica set's name; None for a standalone server."""
    with translate_errors("the source"):
        name = source.client.admin.command("hello").get("setName")
    return str(name) if name else None


def require_replica_set(source: MongoDatabase) -> str:
    """Return the replica set's name; raise ``RefusedError`` for a standalone server, and for a sharded cluster."""
    with translate_errors("the source"):
        return replica_set_in(source.client.admin.command("hello"))


def replica_set_in(hello: Mapping[str, Any]) -> str:
    """Return the replica set's name in what a server says of itself; raise as ``require_replica_set`` does."""
    if hello.get("msg") == "isdbgrid":  # MongoDB manual, hello: what a mongos says
        raise RefusedError(
            "the source is a mongos, and a sharded cluster cannot be followed: its change stream is not tested;"
            " call backfill with --no-position while nothing writes"
        )
    if "setName" not in hello:
        raise RefusedError(
            "the source is not a replica set, so it has no change stream for changes made during the copy;"
            " make it one (a single member is enough), or call backfill with --no-position while nothing writes"
        )
    return str(hello["setName"])


def version(source: MongoDatabase) -> str:
    """Return the server's version, as it says it."""
    with translate_errors("the source"):
        return str(source.client.server_info()["version"])


def first_line(error: BaseException) -> str:
    """Return an error's first sentence, without credentials or the driver's topology dump."""
    text = redact(str(error)).partition(", full error")[0].partition(", Topology Description")[0]
    return text.splitlines()[0][:300] if text else type(error).__name__


def _without_login(uri: str, error: BaseException) -> str:
    """Take out every piece of user and password: the driver quotes what it took for a port or a host."""
    text = redact(str(error))
    login = uri.partition("://")[2].rpartition("@")[0]
    for piece in sorted(re.split(r"[:/?@,=&;]", login), key=len, reverse=True):
        text = re.sub(rf"(?i)(?<!\w){re.escape(piece)}(?!\w)", "***", text) if piece else text
    return text.removesuffix(". Refer to docstring.").removesuffix(".")


def is_transient(error: PyMongoError) -> bool:
    """Whether another attempt may pass."""
    if isinstance(error, OperationFailure) and error.code in TRANSIENT_CODES:
        return True
    return isinstance(error, AutoReconnect) or any(map(error.has_error_label, TRANSIENT_LABELS))
