"""The fence: it stops every writer of a database, in any language, at the server.

**Of the source**, at the cutover. There are three kinds. The kind is chosen before anything is changed:

- ``write-block``: ``setUserWriteBlockMode`` (MongoDB 6.0 and later, with authentication, for a user that may call it
  and pass it: role ``restore`` or ``root``). The server refuses every write to every database from users without the
  privilege ``bypassWriteBlockingMode`` (error 371). The command waits for open transactions to end, also for those that
  only read, and delays new writes meanwhile, so it has a time limit. On 6.0.27, a transaction that was open before the
  call could still commit, and the call returned after it.
- ``roles``: every user that may write to the source's database loses its roles and gets read rights. The roles are
  returned before, so that they can be stored. A transaction that is open may still commit (on 6.0.27), so such
  transactions are waited for.
- ``collections``: only if the settings ask for it (``cutover.fence``), for a cutover of a group of collections. Every
  user that may write to one of them gets, in place of its roles, a role of its own that has all its rights except those
  to change something there (``narrowed_rights``). A user whose right comes from one to all databases is not stopped.

A process that is killed inside a transaction leaves it open at the server for ``transactionLifetimeLimitSeconds`` (60).
So both kinds end transactions that have been open for longer than `TRANSACTION_PATIENCE`, if the tool's user may
(`KILL_ACTIONS`). A client that still uses such a transaction gets an error when it commits, so that no acknowledged
write is lost. A collection validator is no fence: deletes pass it, and so do clients that bypass document validation.

**Of the target**, at a rollback: the application's roles lose their right to write. Owners, superusers and users with
rights besides the tool's roles are not stopped. They are named.
"""

import hashlib
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any, Final, Literal, TypeAlias

import msgspec
from psycopg import sql
from pymongo.errors import ExecutionTimeout, OperationFailure

from migrator.config import PostgresSettings
from migrator.connections.mongo import UNAUTHORIZED, MongoDatabase, first_line, translate_errors, version
from migrator.connections.postgres import Connection, fetch_value
from migrator.cutover.narrowed_rights import WRITE_ACTIONS, Privilege, can_narrow, narrowed, reaches
from migrator.errors import RefusedError
from migrator.records import ALL, columns_of
from migrator.schema.security import Roles, write_grants
from migrator.telemetry import say

FenceKind: TypeAlias = Literal["write-block", "roles", "collections"]

FENCE_ROLE: Final = "migrator-fence-"
"""What the name of a role of the fence ``collections`` begins with, in the database ``admin``."""
BYPASS_ACTION: Final = "bypassWriteBlockingMode"
BLOCK_COMMAND: Final = "setUserWriteBlockMode"
BLOCKED: Final = 2
"""``serverStatus().repl.userWriteBlockMode`` while writes are blocked (1: they are not)."""
WRITE_BLOCK_SINCE: Final = (6, 0)
WRITE_BLOCK_ACTIONS: Final = frozenset({BLOCK_COMMAND, BYPASS_ACTION, "serverStatus"})
"""Actions of the fence ``write-block``. The last one shows whether the fence is closed, after a kill."""
ROLE_ACTIONS: Final = frozenset({"grantRole", "revokeRole", "inprog"})
"""Actions of the fence ``roles``. The last one shows open transactions."""
COLLECTION_ACTIONS: Final = ROLE_ACTIONS | {"createRole", "dropRole"}
"""Actions of the fence ``collections``."""
NO_SUCH_USER: Final = 11
NO_SUCH_ROLE: Final = 31
ROLE_EXISTS: Final = 51_002
ILLEGAL_OPERATION: Final = 20
KILL_ACTIONS: Final = frozenset({"inprog", "killAnySession"})
"""Actions with which the tool sees and ends transactions of others (role ``hostManager`` with ``clusterMonitor``)."""
TRANSACTION_PATIENCE: Final = timedelta(seconds=2)
"""How long the fence waits for a transaction before it ends it; the scheduler's own transactions take milliseconds."""
POLL_S: Final = 0.05


class SourceUser(msgspec.Struct, frozen=True, kw_only=True):
    """A user of the server, as far as it matters to the fence."""

    name: str
    database: str
    """The database that defines it; user names are unique within one."""
    roles: tuple[dict[str, str], ...]
    privileges: tuple[Privilege, ...]
    """All rights, those of its roles included."""
    writes: bool
    """May insert, update or remove in the source's database, or in one of the collections that are asked for."""
    passes: bool
    """May write while writes are blocked."""
    grants: bool
    """May give the revoked roles back to itself."""

    @property
    def title(self) -> str:
        """Return ``name@database``."""
        return f"{self.name}@{self.database}"


class FenceSurvey(msgspec.Struct, frozen=True, kw_only=True):
    """What this server allows, and which users would still write."""

    kind: FenceKind | None
    why_not: str = ""
    """Why no fence can be made; empty if one can."""
    unstopped: tuple[str, ...] = ()
    """Users, besides the tool's own, whom this fence would not stop."""
    stopped: tuple[str, ...] = ()
    """Users who may write now and whom the fence would stop."""
    ends: bool = False
    """Whether the tool may end transactions that stay open."""


def survey_source(
    source: MongoDatabase, *, prefer: FenceKind | None = None, collections: Collection[str] = ()
) -> FenceSurvey:
    """Find out which fence this server allows; ``prefer`` names the only kind to consider.

    ``collections``: those that the kind ``collections`` is to hold, which is considered if they are given alone.
    """
    with translate_errors("the source"):
        me = _own_users(source)
        if me is None:
            return FenceSurvey(
                kind=None,
                why_not="the server requires no authentication, so the fence cannot stop any user: start mongod with"
                " security.authorization (and security.keyFile, which members of a replica set need), and give the"
                " application and the tool a user each",
            )
        try:
            users = tuple(_users(source, collections))
        except OperationFailure:
            return FenceSurvey(
                kind=None, why_not="the tool's user may not see the users of the server (privilege viewUser)"
            )
        mine = {privilege for name in me for privilege in _actions(source, name)}
        others = [user for user in users if (user.name, user.database) not in me]
        writers = [user for user in others if user.writes]
        if collections:
            return _survey_collections(source, me, writers, collections, mine)
        if prefer != "roles" and _version(source) >= WRITE_BLOCK_SINCE and mine >= WRITE_BLOCK_ACTIONS:
            return FenceSurvey(
                kind="write-block",
                unstopped=tuple(user.title for user in writers if user.passes),
                stopped=tuple(user.title for user in writers if not user.passes),
                ends=mine >= KILL_ACTIONS,
            )
        if prefer != "write-block" and mine >= ROLE_ACTIONS:
            return _survey_roles(source, me, writers, ends=mine >= KILL_ACTIONS)
    return FenceSurvey(
        kind=None,
        why_not=f"the tool's user needs {BLOCK_COMMAND} and {BYPASS_ACTION} (role restore, MongoDB 6.0 and later) and"
        " serverStatus (role clusterMonitor), or grantRole, revokeRole and inprog",
    )


def writing_users(
    source: MongoDatabase, revoked: Sequence[Mapping[str, Any]] = (), collections: Collection[str] = ()
) -> set[str]:
    """Return the users (``name@database``), besides the tool's own, who may write where no fence stops them.

    ``revoked``: users whose roles a fence has revoked. ``collections``: to these; none given: anywhere.
    """
    with translate_errors("the source"):
        me = _own_users(source) or set()
        users = _users(source, collections)
        writers = {user.title for user in users if user.writes and (user.name, user.database) not in me}
    return writers | {f"{one['user']}@{one['database']}" for one in revoked}


def _survey_roles(
    source: MongoDatabase, me: set[tuple[str, str]], writers: Sequence[SourceUser], *, ends: bool
) -> FenceSurvey:
    """Find out whether the roles can be given back: a role is granted in the database that defines it."""
    stopped = [user for user in writers if not user.grants]
    if missing := _not_grantable(source, me, {role["db"] for user in stopped for role in user.roles}):
        lacking = ", ".join(missing)
        return FenceSurvey(
            kind=None, why_not=f"the tool's user could not give roles of {lacking} back: it needs grantRole"
        )
    return FenceSurvey(
        kind="roles",
        unstopped=tuple(user.title for user in writers if user.grants),
        stopped=tuple(user.title for user in stopped),
        ends=ends,
    )


def _survey_collections(
    source: MongoDatabase,
    me: set[tuple[str, str]],
    writers: Sequence[SourceUser],
    collections: Collection[str],
    mine: set[str],
) -> FenceSurvey:
    """Find out whether the tool may make the narrowed roles, and whose rights can be narrowed."""
    if missing := COLLECTION_ACTIONS - mine:
        return FenceSurvey(
            kind=None, why_not=f"the fence collections needs the privileges {', '.join(sorted(missing))}"
        )
    stopped = [user for user in writers if _can_stop(source, user, collections)]
    needed = {"admin"} | {role["db"] for user in stopped for role in user.roles}
    needed |= {one["resource"].get("db", "admin") for user in stopped for one in user.privileges}
    if lacking := _not_grantable(source, me, needed):
        names = ", ".join(lacking)
        return FenceSurvey(kind=None, why_not=f"the fence collections needs the privilege grantRole in {names}")
    return FenceSurvey(
        kind="collections",
        unstopped=tuple(user.title for user in writers if user not in stopped),
        stopped=tuple(user.title for user in stopped),
        ends=mine >= KILL_ACTIONS,
    )


def _can_stop(source: MongoDatabase, user: SourceUser, collections: Collection[str]) -> bool:
    return not user.grants and can_narrow(user.privileges, source.name, collections)


def revocable_roles(source: MongoDatabase, collections: Collection[str] = ()) -> list[dict[str, Any]]:
    """Return the roles that the fence ``roles`` will revoke, to be stored before `engage_source`.

    ``collections``: those that the fence ``collections`` holds; each user then comes with the role it gets instead.
    """
    with translate_errors("the source"):
        me = _own_users(source) or set()
        writers = [
            user
            for user in _users(source, collections)
            # A user that could grant them to itself again is not stopped, and is named: if its roles were revoked,
            # nobody might be able to give them back.
            if user.writes and not user.grants and (user.name, user.database) not in me
        ]
        if not collections:
            return [_roles_of(user) for user in writers]
        others = sorted(set(source.list_collection_names()) - set(collections))
        return [
            _roles_of(user)
            | {
                "narrowed": f"{FENCE_ROLE}{user.title}",
                "privileges": narrowed(user.privileges, source.name, collections, others),
                "collections": sorted(collections),
            }
            for user in writers
            if _can_stop(source, user, collections)
        ]


def _roles_of(user: SourceUser) -> dict[str, Any]:
    return {"user": user.name, "database": user.database, "roles": list(user.roles)}


def engage_source(
    source: MongoDatabase, kind: FenceKind, revoked: Sequence[Mapping[str, Any]], limit: timedelta
) -> None:
    """Stop the writers; return when none can write any more, not even in a transaction begun before.

    Called again, it changes nothing. Raises ``RefusedError`` if that takes longer than ``limit``; the caller lifts the
    fence.
    """
    with translate_errors("the source"):
        if kind == "write-block":
            _block_writes(source, limit)
            return
        for user in revoked:
            if kind == "collections":
                _make_role(source, user)
                _set_roles(source, user, [{"role": user["narrowed"], "db": "admin"}])
            else:
                _set_roles(source, user, [{"role": "read", "db": source.name}])
        whose = None if kind == "roles" else {(one["user"], one["database"]) for one in revoked}
        _wait_for_transactions(source, limit, whose)


def lift_source(source: MongoDatabase, kind: FenceKind, revoked: Sequence[Mapping[str, Any]]) -> None:
    """Let the writers write again, with the roles they had. Called again, it changes nothing.

    A user that does not exist any more is skipped. Raises ``UnreachableError`` if a user cannot be given its roles,
    after all others have theirs.
    """
    with translate_errors("the source"):
        if kind == "write-block":
            try:
                source.client.admin.command({BLOCK_COMMAND: 1, "global": False})
            except OperationFailure as error:
                if error.code != ILLEGAL_OPERATION:
                    raise
                say(f"cutover: somebody else's write block stays: {first_line(error)}", level="warning")
            return
        failed: OperationFailure | None = None
        for user in revoked:
            try:
                _set_roles(source, user, list(user["roles"]))
            except OperationFailure as error:
                say(
                    f"cutover: {user['user']}@{user['database']} does not have its roles back: {first_line(error)}",
                    level="warning",
                )
                failed = error
            else:
                if "narrowed" in user:
                    _drop_role(source, user["narrowed"])
        if failed is not None:
            raise failed


def _make_role(source: MongoDatabase, user: Mapping[str, Any]) -> None:
    """Make the role that a user has under the fence ``collections``; one of an earlier call gets these rights."""
    admin = source.client.admin
    try:
        admin.command("createRole", user["narrowed"], privileges=user["privileges"], roles=[])
    except OperationFailure as error:
        if error.code != ROLE_EXISTS:
            raise
        admin.command("updateRole", user["narrowed"], privileges=user["privileges"], roles=[])


def _drop_role(source: MongoDatabase, name: str) -> None:
    try:
        source.client.admin.command("dropRole", name)
    except OperationFailure as error:
        if error.code != NO_SUCH_ROLE:
            raise


def _set_roles(source: MongoDatabase, one: Mapping[str, Any], roles: list[Any]) -> None:
    try:
        source.client[one["database"]].command("updateUser", one["user"], roles=roles)
    except OperationFailure as error:
        if error.code != NO_SUCH_USER:
            raise


def is_source_fenced(source: MongoDatabase, kind: FenceKind, revoked: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether the fence is closed, as the server reports it."""
    with translate_errors("the source"):
        if kind == "write-block":
            members = source.client.admin.command("serverStatus", repl=1).get("repl", {})  # none of a single server
            state = members.get("userWriteBlockMode")
            return bool(state == BLOCKED)
        fenced = {(one["user"], one["database"]) for one in revoked}
        held = {name for one in revoked for name in one.get("collections", ())}
        return not any(user.writes for user in _users(source, held) if (user.name, user.database) in fenced)


def _block_writes(source: MongoDatabase, limit: timedelta) -> None:
    """Repeat for `TRANSACTION_PATIENCE` at a time; end the transactions that were open all that time, no later ones."""
    until = time.monotonic() + limit.total_seconds()
    allowed = True
    while (left := until - time.monotonic()) > 0:
        patience = min(TRANSACTION_PATIENCE.total_seconds(), left) if allowed else left
        try:
            source.client.admin.command({BLOCK_COMMAND: 1, "global": True, "maxTimeMS": max(1, int(patience * 1000))})
        except OperationFailure as error:
            if error.code == ILLEGAL_OPERATION:
                raise RefusedError(
                    f"the server refuses to block writes, which somebody else may have blocked: {first_line(error)};"
                    " let them end their block, then call migrator cutover run again"
                ) from error
            if not isinstance(error, ExecutionTimeout):
                raise
            allowed = allowed and _end_transactions(source, _older_sessions(source, patience))
        else:
            return
    raise _fence_open_error(limit, _visible_transactions(source), allowed=allowed)


def _wait_for_transactions(source: MongoDatabase, limit: timedelta, whose: set[tuple[str, str]] | None) -> None:
    """Wait until no transaction is open that began before now: it may commit although the roles are revoked.

    ``whose``: only those of these users; None: all.
    """
    began = time.monotonic()
    open_now = {_transaction_key(one): one["lsid"] for one in _transactions(source) if _is_of(one, whose)}
    allowed = True
    while still := {key: one for one in _transactions(source) if (key := _transaction_key(one)) in open_now}:
        waited = time.monotonic() - began
        if waited > limit.total_seconds():
            raise _fence_open_error(limit, still.values(), allowed=allowed)
        if allowed and waited > TRANSACTION_PATIENCE.total_seconds():
            allowed = _end_transactions(source, [open_now[one] for one in still])
        time.sleep(POLL_S)


def _fence_open_error(limit: timedelta, transactions: Iterable[Mapping[str, Any]], *, allowed: bool) -> RefusedError:
    """Return the error; it names the clients of the transactions that are still open, as far as they are visible."""
    clients = "; ".join(
        f"client {one.get('client', 'unknown')}, application {one.get('appName', 'unknown')},"
        f" open for {one['transaction'].get('timeOpenMicros', 0) / 1_000_000:,.0f} s"
        for one in transactions
    )
    named = f" ({clients})" if clients else ""
    why = "" if allowed else f", and the tool's user may not end it (privileges {' and '.join(sorted(KILL_ACTIONS))})"
    return RefusedError(
        f"the fence did not close within {limit.total_seconds():g} s: a transaction stays open{named}{why}"
    )


def _visible_transactions(source: MongoDatabase) -> list[dict[str, Any]]:
    """Return the open transactions; none if the tool may not see them."""
    try:
        return list(_transactions(source))
    except OperationFailure as error:
        if error.code != UNAUTHORIZED:
            raise
        return []


def _older_sessions(source: MongoDatabase, seconds: float) -> list[Any] | None:
    """Return the sessions whose transaction has been open for so long; None if the tool may not see them."""
    try:
        transactions = list(_transactions(source))
    except OperationFailure as error:
        if error.code != UNAUTHORIZED:
            raise
        return None
    return [one["lsid"] for one in transactions if one["transaction"].get("timeOpenMicros", 0) >= seconds * 1_000_000]


def _end_transactions(source: MongoDatabase, sessions: Sequence[Any] | None) -> bool:
    """End the transactions of these sessions; false if the tool may not."""
    if sessions:
        try:
            source.client.admin.command("killAllSessionsByPattern", [{"lsid": one} for one in sessions])
        except OperationFailure as error:
            if error.code != UNAUTHORIZED:
                raise
            return False
        say(f"cutover: ended {len(sessions)} transactions that stayed open")
    return sessions is not None


def _transactions(source: MongoDatabase) -> Iterator[dict[str, Any]]:
    pipeline: list[dict[str, Any]] = [
        {"$currentOp": {"allUsers": True, "idleSessions": True}},
        {"$match": {"transaction": {"$exists": True}}},
    ]
    yield from source.client.admin.aggregate(pipeline)


def _is_of(operation: Mapping[str, Any], whose: set[tuple[str, str]] | None) -> bool:
    """Whether a transaction is one of these users.

    A session's identifier holds the digest of its user (``user@database``), also while it does nothing.
    """
    digest = operation["lsid"].get("uid")
    return whose is None or digest is None or any(_digest(user) == bytes(digest) for user in whose)


def _digest(user: tuple[str, str]) -> bytes:
    return hashlib.sha256("@".join(user).encode()).digest()


def _transaction_key(operation: Mapping[str, Any]) -> tuple[bytes, int]:
    return bytes(operation["lsid"]["id"]), operation["transaction"]["parameters"]["txnNumber"]


def _own_users(source: MongoDatabase) -> set[tuple[str, str]] | None:
    """Return the user as whom the tool is logged in; None if the server has no authentication."""
    status = source.client.admin.command("connectionStatus")["authInfo"]
    found = {(user["user"], user["db"]) for user in status["authenticatedUsers"]}
    return found or None


def _users(source: MongoDatabase, collections: Collection[str] = ()) -> Iterator[SourceUser]:
    answer = source.client.admin.command("usersInfo", {"forAllDBs": True})
    for entry in answer["users"]:
        privileges = tuple(_privileges(source, (entry["user"], entry["db"])))
        actions = {action for one in privileges if reaches(one, source.name, ()) for action in one["actions"]}
        writing = {action for one in privileges if reaches(one, source.name, collections) for action in one["actions"]}
        yield SourceUser(
            name=entry["user"],
            database=entry["db"],
            roles=tuple({"role": role["role"], "db": role["db"]} for role in entry["roles"]),
            privileges=privileges,
            writes=bool(WRITE_ACTIONS & writing),
            passes=BYPASS_ACTION in actions,
            grants="grantRole" in actions,
        )


def _actions(source: MongoDatabase, user: tuple[str, str]) -> Iterator[str]:
    """Yield the actions of a user in the source's database or on the whole server."""
    for privilege in _privileges(source, user):
        if reaches(privilege, source.name, ()):
            yield from privilege["actions"]


def _not_grantable(source: MongoDatabase, me: set[tuple[str, str]], databases: set[str]) -> list[str]:
    """Return those of the databases whose roles the tool may not grant, in order."""
    granted = {database for name in me for database in _grantable_databases(source, name)}
    return [] if "" in granted else sorted(databases - granted)


def _grantable_databases(source: MongoDatabase, user: tuple[str, str]) -> Iterator[str]:
    """Yield the databases whose roles a user may grant; "" means all."""
    for privilege in _privileges(source, user):
        if "grantRole" in privilege["actions"]:
            yield privilege["resource"].get("db", "")


def _privileges(source: MongoDatabase, user: tuple[str, str]) -> Iterator[dict[str, Any]]:
    answer = source.client[user[1]].command("usersInfo", {"user": user[0], "db": user[1]}, showPrivileges=True)
    for entry in answer["users"]:
        yield from entry["inheritedPrivileges"]


def _version(source: MongoDatabase) -> tuple[int, ...]:
    return tuple(int(number) for number in version(source).split(".")[:2])


def engage_target(connection: Connection, roles: PostgresSettings, limit: timedelta) -> None:
    """Revoke the right to write, and wait for every transaction that began before; end one that is too old.

    Returns when the two application roles cannot write any more. Called again, it changes nothing.
    """
    with connection.transaction():
        for record in ALL:
            connection.execute(
                sql.SQL("REVOKE INSERT, UPDATE, DELETE ON {} FROM {}, {}").format(
                    sql.Identifier("scheduler", record.table),
                    sql.Identifier(roles.service_role),
                    sql.Identifier(roles.dispatcher_role),
                )
            )
    fenced_at = fetch_value(connection, "SELECT clock_timestamp()")
    until = time.monotonic() + limit.total_seconds()
    while older := _writing_before(connection, fenced_at):
        if time.monotonic() > until:
            with _as_login_user(connection):
                for pid in older:
                    connection.execute("SELECT pg_terminate_backend(%s)", (pid,))
            if time.monotonic() > until + limit.total_seconds():
                raise RefusedError(f"transactions older than the fence do not end: {_sessions(connection, older)}")
        time.sleep(POLL_S)
    while prepared := _prepared_writes(connection):  # no session holds them, and a right is not asked for again
        if time.monotonic() > until:
            named = ", ".join(prepared)
            raise RefusedError(
                f"prepared transactions that write to the scheduler's tables do not end: {named}; whoever prepared them"
                " ends each with COMMIT PREPARED or ROLLBACK PREPARED (pg_prepared_xacts lists them)"
            )
        time.sleep(POLL_S)


def lift_target(connection: Connection, roles: PostgresSettings) -> None:
    """Grant the rights again, as the schema's revisions do. Called again, it changes nothing."""
    with connection.transaction():
        names = Roles.of(roles)
        for record in ALL:
            for statement in write_grants("scheduler", record.table, columns_of(record), names):
                connection.execute(statement)


def is_target_fenced(connection: Connection, roles: PostgresSettings) -> bool:
    """Return whether neither application role may write to any table."""
    may_write = fetch_value(
        connection,
        "SELECT bool_or(has_table_privilege(role, format('scheduler.%%I', t), 'INSERT, UPDATE, DELETE')"
        " OR has_any_column_privilege(role, format('scheduler.%%I', t), 'INSERT, UPDATE'))"
        " FROM unnest(%s::text[]) AS role, unnest(%s::text[]) AS t",
        ([roles.service_role, roles.dispatcher_role], [record.table for record in ALL]),
    )
    return may_write is False


def unstopped_on_target(connection: Connection, roles: PostgresSettings) -> list[str]:
    """Return who could still write: superusers, members of the owning role, roles with rights of their own."""
    with _as_login_user(connection):
        rows = connection.execute(
            "SELECT rolname FROM pg_roles WHERE rolcanlogin AND rolname <> session_user"
            " AND (rolsuper OR pg_has_role(oid, %(owner)s, 'MEMBER')) UNION"
            " SELECT grantee FROM (SELECT grantee, table_schema, privilege_type"
            " FROM information_schema.role_table_grants UNION SELECT grantee, table_schema, privilege_type"
            " FROM information_schema.role_column_grants) AS granted"
            " WHERE table_schema = 'scheduler' AND privilege_type IN ('INSERT', 'UPDATE', 'DELETE')"
            " AND grantee NOT IN (%(owner)s, %(service)s, %(dispatcher)s) ORDER BY 1",
            {"owner": roles.migration_role, "service": roles.service_role, "dispatcher": roles.dispatcher_role},
        ).fetchall()
    return [row[0] for row in rows]


def _writing_before(connection: Connection, fenced_at: datetime) -> list[int]:
    """Return the backends that may still write to this database, or commit what they wrote, by a right they had before.

    Rights are checked when a statement begins. So these are the transactions that began before the rights were gone,
    and that have written or are in a statement; all others meet the fence at their next statement. A transaction id is
    no mark for it: it is assigned at the first row that is written, which may be long after the check of the rights.
    """
    with _as_login_user(connection):
        rows = connection.execute(
            "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
            " AND backend_type = 'client backend' AND xact_start <= %s"
            " AND (backend_xid IS NOT NULL OR state = 'active')",
            (fenced_at,),
        ).fetchall()
    return [row[0] for row in rows]


def _sessions(connection: Connection, pids: Sequence[int]) -> str:
    """Describe sessions by process, user, client and the age of the transaction."""
    with _as_login_user(connection):
        rows = connection.execute(
            "SELECT format('process %%s (user %%s, client %%s, open for %%s s)', pid, usename,"
            " coalesce(host(client_addr), 'local'), extract(epoch FROM clock_timestamp() - xact_start)::int)"
            " FROM pg_stat_activity WHERE pid = ANY(%s) ORDER BY xact_start",
            ([*pids],),
        ).fetchall()
    return "; ".join(row[0] for row in rows)


def _prepared_writes(connection: Connection) -> list[str]:
    """Return the prepared transactions that hold a lock of a writer on a table of the scheduler, by their names.

    They keep their locks until they are committed, by whom and whenever that is.
    """
    rows = connection.execute(
        "SELECT quote_literal(gid) FROM pg_prepared_xacts AS prepared WHERE database = current_database()"
        " AND EXISTS (SELECT FROM pg_locks AS own JOIN pg_locks AS held USING (virtualtransaction)"
        " JOIN pg_class ON pg_class.oid = held.relation WHERE own.transactionid = prepared.transaction"
        " AND own.pid IS NULL AND held.pid IS NULL AND relnamespace = to_regnamespace('scheduler')"
        " AND held.mode NOT IN ('AccessShareLock', 'RowShareLock')) ORDER BY prepared.prepared, gid"
    ).fetchall()
    return [row[0] for row in rows]


@contextmanager
def _as_login_user(connection: Connection) -> Iterator[None]:
    """Act as the user who logged in: the owning role of this session does not see the sessions of others."""
    with connection.transaction():
        connection.execute("SET LOCAL ROLE NONE")
        yield
