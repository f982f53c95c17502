"""MongoDB and PostgreSQL for a rehearsal: a daemon owns both, so that they go on when the command that started it ends.

The daemon owns both servers as any other process would (`migrator.testing.servers.server`): if it is killed, its
guardians end the servers. The data stay in the directory until somebody removes them. Who stops the daemon finds it by
pid and start time, so that no other process can be meant.
"""

import contextlib
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any, Final

import msgspec
import psycopg
from msgspec import Struct
from psycopg import sql
from pymongo import MongoClient

from migrator.config import EmbeddedSettings
from migrator.errors import ConfigurationError, MigratorError, RefusedError, UnreachableError
from migrator.files import open_private, write_private
from migrator.testing.servers import binaries
from migrator.testing.servers.directory import Account, PrivateDirectory, lock_within, may_enter, unprivileged
from migrator.testing.servers.mongo import MongoServer
from migrator.testing.servers.postgres import PostgresServer

DEFAULT_DIRECTORY: Final = ".migrator/servers"
SOURCE_DATABASE: Final = "stellaops_scheduler"
TARGET_DATABASE: Final = "scheduler"
TOOL: Final = "migrator"
APPLICATION: Final = "application"

STATE: Final = "servers.json"
LOCK: Final = "lock"
LOG: Final = "log"
SOURCE_URI: Final = "source-uri"
TARGET_DSN: Final = "target-dsn"
APPLICATION_URI: Final = "application-uri"
ADMIN_URI: Final = "admin-uri"
ADMIN_DSN: Final = "admin-dsn"
MONGO: Final = "mongod"
POSTGRES: Final = "postgres"
OURS: Final = (APPLICATION_URI, ADMIN_URI, ADMIN_DSN, SOURCE_URI, TARGET_DSN, LOG, LOCK, STATE)
"""The files of a directory; the state goes last, so that a removal that was interrupted can be called again."""

SELF_GRANT_SINCE: Final = 16
"""Version from which the creator of a role is a member of it only if a setting says so."""

LOOK_SECONDS: Final = 1.0  # between two looks at the servers
STOP_SECONDS: Final = 150.0  # both servers in good order, or by force
HANDOVER_SECONDS: Final = 2.0  # for a daemon that is just ending


class State(Struct, frozen=True):
    """What a directory of servers says about itself."""

    auth: bool
    data: str
    """Folder of the servers' own directories: this one, or another where the servers' account cannot enter this one."""
    pid: int
    """Process id of the daemon that was started last."""
    started: int
    """When that process began, in clock ticks since the start of the machine: two processes never share both."""
    mongo_port: int | None = None
    """None until both servers are ready."""
    postgres_port: int | None = None

    @property
    def running(self) -> bool:
        """Whether the daemon is there."""
        return started_at(self.pid) == self.started

    @property
    def ready(self) -> bool:
        """Whether both servers take connections."""
        return self.running and self.postgres_port is not None


class Order(Struct, frozen=True):
    """What the daemon is told to do; it holds no secret, because every user may read the arguments of a process."""

    directory: str
    auth: bool
    embedded: EmbeddedSettings
    answer: int
    """File descriptor to which the daemon writes one ``Answer``."""


class Answer(Struct, frozen=True):
    """How the start ended."""

    error: str | None = None
    configuration: bool = False
    """Whether the error is one of the configuration, not of a server."""


def started_at(pid: int) -> int | None:
    """Return when a process began, in clock ticks since the start of the machine; None if it has ended."""
    try:
        # the name in parentheses may hold spaces; the state follows the last one
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[19])


def read_state(directory: Path) -> State | None:
    """Return the state of the servers of a directory; None if it holds none. Raises ``ConfigurationError``."""
    try:
        return msgspec.json.decode((directory / STATE).read_bytes(), type=State)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, msgspec.MsgspecError) as error:
        raise ConfigurationError(f"cannot read {directory / STATE}: {type(error).__name__}") from None


def start(directory: Path, *, auth: bool, embedded: EmbeddedSettings) -> State:
    """Start both servers, unless they run; return what is known of them, once they take connections.

    ``auth``: MongoDB asks for passwords, and the tool gets users with the smallest rights on both servers. Raises
    ``ConfigurationError``, ``RefusedError`` and ``UnreachableError``.
    """
    found = require_startable(directory, auth=auth, embedded=embedded)
    if found is not None:
        return found
    _make(directory)
    answer = _launch(directory, auth=auth, embedded=embedded)
    if answer.error is not None:
        raise (ConfigurationError if answer.configuration else UnreachableError)(answer.error)
    state = read_state(directory)
    assert state is not None  # noqa: S101 - for the type checker: the daemon has written it
    return state


def require_startable(directory: Path, *, auth: bool, embedded: EmbeddedSettings) -> State | None:
    """Return the state of servers that run, None if they can be started; writes nothing, raises as ``start``."""
    if not embedded.mongod:
        binaries.mongod()
    if not embedded.postgres_bin:
        binaries.postgres(embedded.postgres_version)
    state = read_state(directory)
    if state is not None and state.auth != auth:
        made = "with --auth: add it" if state.auth else "without --auth: omit it"
        raise RefusedError(f"the servers in {directory} were made {made}, or name another directory with --dir")
    if state is not None and state.ready:
        return state
    if state is not None and state.running:
        raise RefusedError(
            f"the servers in {directory} are being started or stopped by process {state.pid}; call again when that has "
            f"ended, or call migrator servers stop --dir {directory}"
        )
    if state is None:
        _require_free(directory)
    return None


def _require_free(directory: Path) -> None:
    try:
        taken = directory.exists() and any(entry.name not in {LOCK, LOG} for entry in directory.iterdir())
    except OSError as error:
        raise _no_directory(directory, error) from None
    if taken:
        raise RefusedError(f"{directory} holds other files: name a directory that is empty, or new, with --dir")


def _make(directory: Path) -> None:
    if not directory.exists():
        try:
            # root's servers run as another user, who must be able to pass
            directory.mkdir(mode=0o711 if os.geteuid() == 0 else 0o700, parents=True)
        except OSError as error:
            raise _no_directory(directory, error) from None


def _no_directory(directory: Path, error: OSError) -> UnreachableError:
    return UnreachableError(f"no directory for servers at {directory}: {error.strerror}")


def _launch(directory: Path, *, auth: bool, embedded: EmbeddedSettings) -> Answer:
    """Start the daemon and wait for its answer; end it if the wait is interrupted."""
    read, write = os.pipe()
    try:
        order = Order(str(directory), auth, embedded, write)
        command = [sys.executable, "-m", "migrator.testing.servers.daemon", msgspec.json.encode(order).decode()]
        with open_private(directory / LOG) as log:
            # returns as soon as the daemon has left its parent
            subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=[write],
                start_new_session=True,
                check=False,
            )
    except BaseException:
        os.close(read)
        raise
    finally:
        os.close(write)
    with os.fdopen(read, "rb") as answers:
        try:
            answer = answers.readline()
        except BaseException:
            stop(directory)
            raise
    if not answer:
        return Answer(f"the daemon of the servers ended early; its log is {directory / LOG}")
    return msgspec.json.decode(answer, type=Answer)


def stop(directory: Path, *, remove: bool = False) -> bool:
    """End the servers of a directory in good order; tell whether they ran. Nothing happens where there are none.

    ``remove``: remove them with all their data. Raises ``ConfigurationError`` and ``UnreachableError``.
    """
    state = read_state(directory)
    if state is None:
        return False
    ran = _end(state)
    base = Path(state.data)
    for name in (MONGO, POSTGRES):
        _wait_until_free(base / name / LOCK)
    if remove:
        _remove(directory, base)
    return ran


def _end(state: State) -> bool:
    """Tell the daemon to end and wait for its end; tell whether there was one."""
    try:
        handle = os.pidfd_open(state.pid)
    except ProcessLookupError:
        return False
    try:
        if not state.running:  # looked up after the handle was taken: it cannot become another process's any more
            return False
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(handle, signal.SIGTERM)
        poll = select.poll()
        poll.register(handle, select.POLLIN)
        if not poll.poll(STOP_SECONDS * 1000):
            raise UnreachableError(f"process {state.pid} did not end its servers within {STOP_SECONDS:.0f} s")
    except PermissionError:
        raise RefusedError(f"process {state.pid} belongs to another user: call as that user") from None
    finally:
        os.close(handle)
    return True


def _wait_until_free(lock: Path) -> None:
    """Wait for the guardian of a daemon that was killed: it still ends its server."""
    with contextlib.suppress(FileNotFoundError):
        handle = os.open(lock, os.O_RDONLY)
        try:
            if not lock_within(handle, STOP_SECONDS):
                raise UnreachableError(f"a server in {lock.parent} did not end within {STOP_SECONDS:.0f} s")
        finally:
            os.close(handle)


def _remove(directory: Path, base: Path) -> None:
    """Remove what the servers and this module have made, and nothing else."""
    for name in (MONGO, POSTGRES):
        shutil.rmtree(base / name, ignore_errors=True)
    if base != directory:
        shutil.rmtree(base, ignore_errors=True)
    for name in OURS:
        (directory / name).unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # the user's own files are there too
        directory.rmdir()


class _EndedError(BaseException):
    """The daemon was told to end."""


def _told_to_end(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - a signal handler's signature
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # nothing interrupts the end
    raise _EndedError


def main() -> int:
    """Leave the parent, carry out the order on the command line, and own the servers until told to end."""
    order = msgspec.json.decode(sys.argv[1], type=Order)
    if os.fork():
        os._exit(0)
    signal.signal(signal.SIGTERM, _told_to_end)
    os.umask(0o077)
    directory = Path(order.directory)
    try:
        with contextlib.ExitStack() as servers:
            _own(directory, order, servers)
    except _EndedError:
        _answer(order, Answer("the servers were stopped while they started"))
    except MigratorError as error:
        _answer(order, Answer(str(error), isinstance(error, ConfigurationError)))
        return 1
    return 0


def _answer(order: Order, answer: Answer) -> None:
    with contextlib.suppress(OSError):  # nobody listens any more, or has been answered already
        os.write(order.answer, msgspec.json.encode(answer) + b"\n")


def _own(directory: Path, order: Order, servers: contextlib.ExitStack) -> None:
    lock = os.open(directory / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    if not lock_within(lock, HANDOVER_SECONDS):
        raise UnreachableError(f"another command starts the servers in {directory}: call again when that has ended")
    before = read_state(directory)
    account = unprivileged()
    began = started_at(os.getpid())
    assert began is not None  # noqa: S101 - for the type checker: this process runs
    base = Path(before.data) if before else _base(directory, account)
    state = State(order.auth, str(base), os.getpid(), began)
    _write_state(directory, state)
    own = order.embedded
    mongo_directory = PrivateDirectory.keep(base / MONGO, account)
    mongo = servers.enter_context(
        MongoServer(auth=order.auth, binary=Path(own.mongod) if own.mongod else None, directory=mongo_directory)
    )
    postgres_directory = PrivateDirectory.keep(base / POSTGRES, account)
    postgres = servers.enter_context(
        PostgresServer(
            version=own.postgres_version,
            bin_dir=Path(own.postgres_bin) if own.postgres_bin else None,
            directory=postgres_directory,
        )
    )
    secrets = dict([*_set_up_mongo(mongo, mongo_directory), *_set_up_postgres(postgres, postgres_directory, order)])
    for name, text in secrets.items():
        write_private(directory / name, f"{text}\n".encode())
    state = msgspec.structs.replace(state, mongo_port=mongo.port, postgres_port=postgres.port)
    _write_state(directory, state)
    try:
        os.write(order.answer, msgspec.json.encode(Answer()) + b"\n")
    except OSError:
        return  # who called was killed: nobody knows of the servers
    while mongo.running and postgres.running:
        time.sleep(LOOK_SECONDS)
    for one in (mongo, postgres):
        if not one.running:
            print(f"{one.name} ended by itself: {one.log[-2000:]}", file=sys.stderr)  # noqa: T201 - its log


def _base(directory: Path, account: Account | None) -> Path:
    """Return where the servers' directories are made; they belong to the account, which must reach them."""
    if account is None or may_enter(account, directory):
        return directory
    for place in (Path("/var/tmp"), Path("/tmp")):  # noqa: S108 - the directory made in it is private
        if os.access(place, os.W_OK | os.X_OK) and may_enter(account, place):
            base = Path(tempfile.mkdtemp(prefix="migrator-servers-", dir=place))
            base.chmod(0o711)
            return base
    raise UnreachableError(
        f"{account.name}, as which the servers run, cannot enter {directory}: name another with --dir"
    )


def _write_state(directory: Path, state: State) -> None:
    new = directory / f"{STATE}.new"
    write_private(new, msgspec.json.encode(state))
    new.rename(directory / STATE)


def _set_up_mongo(server: MongoServer, directory: PrivateDirectory) -> Iterator[tuple[str, str]]:
    """Make the users, once; yield the files of connection strings with their texts."""
    if server.user is None:
        if not directory.complete:
            directory.set_complete()
        yield SOURCE_URI, _uri(server, None, "")
        return
    users = {TOOL: directory.secret("tool"), APPLICATION: directory.secret(APPLICATION)}
    if not directory.complete:
        with MongoClient[dict[str, Any]](server.uri) as client:
            _make_users(client, server.user, users)
        directory.set_complete()
    yield SOURCE_URI, _uri(server, TOOL, users[TOOL])
    yield APPLICATION_URI, _uri(server, APPLICATION, users[APPLICATION])
    yield ADMIN_URI, server.uri


def _uri(server: MongoServer, user: str | None, password: str) -> str:
    login, source = (f"{user}:{password}@", "&authSource=admin") if user else ("", "")
    return f"mongodb://{login}127.0.0.1:{server.port}/{SOURCE_DATABASE}?replicaSet={server.replica_set}{source}"


def _make_users(client: MongoClient[dict[str, Any]], admin: str, users: dict[str, str]) -> None:
    """Make the users that the runbook asks for, and leave the administrator no right that a fence would not stop."""
    every = {"db": "", "collection": ""}
    client.admin.command(
        "createRole",
        "migratorFence",
        privileges=[
            {"resource": {"cluster": True}, "actions": ["viewUser", "killAnySession"]},
            {"resource": every, "actions": ["viewUser"]},
        ],
        roles=[],
    )
    owned = {"role": "readWrite", "db": SOURCE_DATABASE}
    fenced = [{"role": "read", "db": "local"}, "restore", "clusterMonitor", "migratorFence"]
    # readWriteAnyDatabase: only verify --scratch-on-source needs it
    roles = {TOOL: [owned, *fenced, "readWriteAnyDatabase"], APPLICATION: [owned]}
    for name, password in users.items():
        client.admin.command("createUser", name, pwd=password, roles=roles[name])
    client.admin.command("updateUser", admin, roles=["userAdminAnyDatabase", "clusterMonitor"])


def _set_up_postgres(server: PostgresServer, directory: PrivateDirectory, order: Order) -> Iterator[tuple[str, str]]:
    """Make the database and its owner, once; yield the files of connection strings with their texts."""
    password = directory.secret("tool") if order.auth else None
    if not directory.complete:
        with psycopg.connect(server.dsn(), autocommit=True) as connection:
            if password is not None:
                _make_owner(connection, password, server.version)
            owner = TOOL if password is not None else server.user
            connection.execute(
                sql.SQL("CREATE DATABASE {} OWNER {}").format(sql.Identifier(TARGET_DATABASE), sql.Identifier(owner))
            )
        directory.set_complete()
    if password is None:
        yield TARGET_DSN, server.dsn(TARGET_DATABASE)
        return
    yield TARGET_DSN, server.dsn(TARGET_DATABASE, user=TOOL, password=password)
    yield ADMIN_DSN, server.dsn(TARGET_DATABASE)


def _make_owner(connection: psycopg.Connection[Any], password: str, version: int) -> None:
    user = sql.Identifier(TOOL)
    connection.execute(sql.SQL("CREATE ROLE {} LOGIN CREATEROLE CREATEDB PASSWORD {}").format(user, password))
    connection.execute(sql.SQL("GRANT pg_read_all_stats TO {}").format(user))
    if version >= SELF_GRANT_SINCE:
        # it becomes a member of the group roles that it creates, as it would be on earlier versions by its own GRANT
        connection.execute(sql.SQL("ALTER ROLE {} SET createrole_self_grant = 'set, inherit'").format(user))


if __name__ == "__main__":
    sys.exit(main())
