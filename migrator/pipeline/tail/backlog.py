"""What the tail must still do: whether it may write rows, the documents that it must read again, waiting for it.

It may write rows if no copy is unfinished, and documents still make the same rows. That prevents that a late chunk
undoes a newer event, or that a deleted document comes back. While a copy is unfinished, the tail only records which
documents have changed: the backlog, in which a parity check names documents too. Afterwards it reads them. What it
reads then is newer than what any chunk has read, and no chunk writes any more.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from datetime import datetime
from itertools import islice
from uuid import UUID

import msgspec
from bson.timestamp import Timestamp

from migrator.config import Settings
from migrator.connections import advisory_locks
from migrator.connections.mongo import committed_time
from migrator.connections.postgres import Connection, fetch_value
from migrator.errors import RefusedError
from migrator.pipeline import ledger
from migrator.pipeline import plan as plans
from migrator.pipeline.ledger import Plan
from migrator.pipeline.locks import ROWS_KEY, is_tail_running
from migrator.pipeline.sessions import Sessions, open_sessions
from migrator.pipeline.tail import positions
from migrator.pipeline.tail.positions import NO_POSITION, PositionLostError, tail_state
from migrator.pipeline.tail.stream import BATCH_EVENTS, BATCH_S, ChangeStream, EventBatch
from migrator.telemetry import waiting

UNFINISHED = "the copy is unfinished; changes are recorded until it is complete"
WRITING = "a backfill, a retry or a repair is writing rows"
BACKLOG_DOCUMENTS = 1_000
"""Documents of the backlog that one transaction reads again."""


class OtherConditionsError(RefusedError):
    """Documents would not become the rows that the copy has made of them."""


class WritePermission(msgspec.Struct, frozen=True):
    """The answer: the plan whose rows may be updated, or why none may be."""

    plan: Plan | None
    reason: str = ""


def write_permission(target: Connection, known: Plan | None, *, shared: bool = False) -> WritePermission:
    """Evaluate the conditions for this transaction; ``known``: the plan of the last answer, which is not read again.

    ``shared``: other sessions that share the lock of the rows may write at the same time.
    """
    # first: a plan is opened only under this lock
    locked = advisory_locks.try_in_transaction(target, ROWS_KEY, shared=shared)
    row = target.execute(
        "SELECT id, state, EXISTS (SELECT FROM migration.plans WHERE state = 'open')"
        " FROM migration.plans ORDER BY created_at DESC, id LIMIT 1"
    ).fetchone()
    newest: tuple[UUID, str, bool] | None = row
    if newest is None or newest[1] != "complete" or newest[2]:
        return WritePermission(None, UNFINISHED)
    if not locked:
        return WritePermission(None, WRITING)
    if known is not None and known.id == newest[0]:
        return WritePermission(known)
    return WritePermission(ledger.latest_plan(target))


def require_same_conditions(sessions: Sessions, plan: Plan) -> None:
    """Raise ``RefusedError`` if the copy is not one of all tenants of this database, with the rows that it would make.

    The last is ``OtherConditionsError``. That depends on the profile, and on the part of the configuration that
    concerns the source.
    """
    scope = plans.plan_scope(plan)
    if scope.tenants:
        raise RefusedError("only some tenants were copied, and the tail needs all: copy all of them first")
    plans.require_one_source(sessions)
    profile = sessions.profile
    digest = plans.config_digest(sessions.settings, scope)
    differs = plans.differences(
        ("profile", f"{plan.profile}/{plan.profile_version}", f"{profile.name}/{profile.version}"),
        ("digest of the section [source] of the configuration", plan.config_digest[:12], digest[:12]),
    )
    if differs:
        raise OtherConditionsError(
            f"the copy was made with other settings ({differs}): call migrator backfill, which updates every row"
        )


def tailed_collections(sessions: Sessions) -> tuple[str, ...]:
    """Return the collections whose rows are updated: all, once all were copied; before that those that were."""
    rows = sessions.target.execute("SELECT context FROM migration.plans WHERE state = 'complete'").fetchall()
    names = [one.name for one in sessions.profile.collections]
    if any(not context["scope"]["only"] for (context,) in rows):
        return tuple(names)
    copied = ledger.copied_collections(sessions.target)
    return tuple(name for name in names if name in copied)


INSERT_DOCUMENTS = 10_000

WHOLE = b""
"""In place of the key of a document: all of the collection."""


def add(target: Connection, named: Mapping[str, Iterable[str]]) -> None:
    """Record documents, each once even if it is named more often. Memory holds the ids of one insert."""
    for collection, ids in named.items():
        left = iter(ids)
        while some := list(islice(left, INSERT_DOCUMENTS)):
            target.execute(
                "INSERT INTO migration.pending_documents (collection, source_key, source_id)"
                " SELECT %s, * FROM unnest(%s::bytea[], %s::text[]) ON CONFLICT DO NOTHING",
                (collection, [ledger.source_key(one) for one in some], some),
            )


def add_quarantined(target: Connection, profile: str, collection: str) -> None:
    """Record the documents of a collection that are quarantined now, or were dropped from quarantine."""
    target.execute(
        "INSERT INTO migration.pending_documents (collection, source_key, source_id)"
        " SELECT collection, source_key, source_id FROM migration.quarantine WHERE profile = %s AND collection = %s"
        " AND state IN ('open', 'dropped') ON CONFLICT DO NOTHING",
        (profile, collection),
    )


def add_whole(target: Connection, collections: Iterable[str]) -> None:
    """Record that every document of these collections must be read again: those with rows, and those in the source."""
    for collection in collections:
        target.execute(
            "INSERT INTO migration.pending_documents (collection, source_key, source_id) VALUES (%s, %s, '')"
            " ON CONFLICT DO NOTHING",
            (collection, WHOLE),
        )


def take_whole(target: Connection, collections: Sequence[str]) -> list[str]:
    """Remove the entries of whole collections, and return these."""
    rows = target.execute(
        "DELETE FROM migration.pending_documents WHERE collection = ANY(%s) AND source_key = %s RETURNING collection",
        (list(collections), WHOLE),
    )
    return sorted(row[0] for row in rows)


def take(target: Connection, collections: Sequence[str], limit: int) -> dict[str, dict[str, None]]:
    """Remove and return some documents of these collections."""
    taken: dict[str, dict[str, None]] = {}
    for collection, source_id in target.execute(
        "DELETE FROM migration.pending_documents WHERE (collection, source_key) IN (SELECT collection, source_key"
        " FROM migration.pending_documents WHERE collection = ANY(%s) AND source_key <> %s"
        " ORDER BY collection, source_key LIMIT %s)"
        " RETURNING collection, source_id",
        (list(collections), WHOLE, limit),
    ):
        taken.setdefault(collection, {})[source_id] = None
    return taken


def any_left(target: Connection, collections: Sequence[str]) -> bool:
    """Return whether a document of these collections must be read again."""
    query = "SELECT EXISTS (SELECT FROM migration.pending_documents WHERE collection = ANY(%s))"
    return bool(fetch_value(target, query, (list(collections),)))


def count(target: Connection) -> int:
    """Return the number of entries."""
    return int(fetch_value(target, "SELECT count(*) FROM migration.pending_documents"))


POLL_S = 0.02
SILENT_S = 1.0
"""How long a wait is not logged."""


def wait_for_tail(sessions: Sessions, goal: Timestamp, seconds: float, *, derived: bool = False) -> bool:
    """Wait until every change up to a cluster time is in the target; return whether the tail has reached it.

    ``derived``: also the rows that are made from many documents. It returns false if no tail runs any more, or after
    ``seconds``.
    """
    began = time.monotonic()
    announced = False
    while not _has_caught_up(sessions, goal, derived=derived):
        waited = time.monotonic() - began
        if waited > seconds or not is_tail_running(sessions.target):
            return False
        if not announced and waited > SILENT_S:
            announced = True
            waiting("for the tail to catch up with the source")
        time.sleep(POLL_S)
    return True


def _has_caught_up(sessions: Sessions, goal: Timestamp, *, derived: bool) -> bool:
    state = tail_state(sessions.target, sessions.profile.name)
    return (
        state is not None
        and state.position.time >= goal
        and not (derived and state.derived_pending)
        and not any_left(sessions.target, tailed_collections(sessions))
    )


class PendingChanges(msgspec.Struct, frozen=True, kw_only=True):
    """What a call of the tail would apply, up to what the source had committed when it was counted."""

    position_at: datetime
    """Cluster time up to which all events were read."""
    events: int
    documents: dict[str, int]
    """Collection → documents that the events name: each would be read again."""
    whole: tuple[str, ...]
    """Collections that were dropped, renamed or replaced: every document of them would be read again."""
    owed: int
    """Documents that earlier events name and that must still be read again."""
    reason: str
    """Why rows would not be updated now; empty if they would be."""


def pending_changes(settings: Settings) -> PendingChanges:
    """Read the changes since the position of the tail, and write nothing; a tail may run meanwhile.

    Raises ``RefusedError`` and ``AlarmError`` as the tail does, and ``BackendMovedError`` after a cutover.
    """
    with open_sessions(settings) as sessions:
        target, profile = sessions.target, sessions.profile.name
        sessions.target_tables.require_forward(target)
        begin = positions.next_position(target, profile, sessions.reader.identity())
        if begin is None:
            raise PositionLostError(NO_POSITION)
        goal = committed_time(sessions.source)
        names = {sessions.name_of(one.name): one.name for one in sessions.profile.collections}
        batch, reached = EventBatch(begin), False
        while not reached:  # a dropped database ends a stream, and the next one goes on behind it
            with closing(ChangeStream(sessions.source, names, batch.position)) as stream:
                batch.ended = False
                while not (reached or batch.ended):
                    batch.add(stream.take(BATCH_EVENTS, BATCH_S))
                    at = batch.position.time
                    reached = at > goal or (at == goal and batch.exhausted)
        return PendingChanges(
            position_at=positions.as_datetime(begin.time),
            events=batch.events,
            documents={name: len(ids) for name, ids in sorted(batch.touched.items())},
            whole=tuple(sorted(batch.whole)),
            owed=count(target),
            reason=write_permission(target, None).reason,
        )
