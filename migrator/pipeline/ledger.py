"""The ledger in the schema ``migration``: plans, chunks, and what each chunk quarantined or counted.

A chunk's entry is committed in the transaction of its rows, so that a copy can be resumed.
"""

import hashlib
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from typing import Any, Literal, LiteralString
from uuid import UUID

import msgspec
from msgspec.structs import asdict
from psycopg import sql
from psycopg.types.json import Jsonb

from migrator.connections.postgres import Connection, fetch_structs, fetch_value
from migrator.pipeline import checksums
from migrator.pipeline.transform import PendingLink, SourceDocument
from migrator.schema.decisions import Approval
from migrator.values.identity import source_id_of

LoadMode = Literal["direct", "merge"]
"""``direct``: the range was empty when the plan was made, and rows are appended; ``merge``: rows are compared first."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """One pass over the source; its ``as_of``, profile and configuration hold for all of its chunks."""

    id: UUID
    profile: str
    profile_version: int
    tool_version: str
    config_digest: str
    source_identity: str
    as_of: datetime
    state: str = "open"
    context: dict[str, Any] = msgspec.field(default_factory=dict)
    """The input of decode (``Context``), and the scope: collections and tenants."""
    stream_position: bytes | None = None
    """Where a change stream must start so that it misses nothing; taken before the first read."""


class Chunk(msgspec.Struct, frozen=True, kw_only=True):
    """A range of ``_id`` in one collection: ``lower <= _id < upper``; None for an open end."""

    collection: str
    ordinal: int
    lower: bytes | None
    upper: bytes | None
    estimated: int
    average_bytes: int
    mode: LoadMode = "direct"
    done: bool = False


class ChunkResult(msgspec.Struct, kw_only=True):
    """The result of a chunk, as it is in the ledger; or the sum of several."""

    collection: str
    ordinal: int
    documents: int = 0
    """Documents read from the source."""
    bytes: int = 0
    skipped: Counter[str] = msgspec.field(default_factory=Counter)
    quarantined: int = 0
    rows: Counter[str] = msgspec.field(default_factory=Counter)
    """Rows that the documents make, by table."""
    written: Counter[str] = msgspec.field(default_factory=Counter)
    """Rows inserted or changed, by table."""
    clean: int = 0
    """Documents without a remainder."""
    already: bool = False
    """Another worker had done the chunk."""

    def add(self, other: "ChunkResult") -> None:
        """Add the counts of another chunk."""
        for name in ("documents", "bytes", "quarantined", "clean"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name in ("skipped", "rows", "written"):
            getattr(self, name).update(getattr(other, name))


PlanState = Literal["open", "complete", "abandoned"]
CLOSING_PASS = -1
"""The ordinal of what a closing pass counted."""


def latest_plan(connection: Connection, state: PlanState | None = None) -> Plan | None:
    """Return the newest plan (in ``state``), without its chunks."""
    plans = fetch_structs(
        connection,
        Plan,
        "SELECT id, profile, profile_version, tool_version, config_digest, source_identity, as_of, state, context,"
        " stream_position FROM migration.plans WHERE state = coalesce(%s, state) ORDER BY created_at DESC, id LIMIT 1",
        (state,),
    )
    return plans[0] if plans else None


def copied_database(connection: Connection, profile: str) -> str | None:
    """Return the database of the newest copy of a profile of which a chunk is done; None: there is no such copy."""
    identity: str | None = fetch_value(
        connection,
        "SELECT source_identity FROM migration.plans AS p WHERE profile = %s AND EXISTS"
        " (SELECT FROM migration.chunks WHERE plan_id = p.id AND state = 'done') ORDER BY created_at DESC, id LIMIT 1",
        (profile,),
    )
    return None if identity is None else database_of(identity)


def other_copied_profile(connection: Connection, profile: str) -> str | None:
    """Return another profile of whose copies a chunk is done; None: there is no such copy."""
    name: str | None = fetch_value(
        connection,
        "SELECT max(profile) FROM migration.plans AS p WHERE profile <> %s AND EXISTS"
        " (SELECT FROM migration.chunks WHERE plan_id = p.id AND state = 'done')",
        (profile,),
    )
    return name


def history_of_copies(connection: Connection, profile: str, collections: Sequence[str]) -> list[datetime | None]:
    """Return the cutoffs (``Context.history_before``) under which documents of these collections were copied."""
    rows = connection.execute(
        "SELECT DISTINCT (p.context -> 'context' ->> 'history_before')::timestamptz FROM migration.plans AS p"
        " WHERE profile = %(profile)s AND (EXISTS (SELECT FROM migration.chunks WHERE plan_id = p.id AND state = 'done'"
        " AND collection = ANY(%(collections)s))"
        " OR (p.state = 'complete' AND p.context -> 'scope' -> 'only' = '[]'))",  # a tail may have copied some
        {"profile": profile, "collections": list(collections)},
    )
    return [row[0] for row in rows]


def database_of(identity: str) -> str:
    """Return the database of a source's identity."""
    return identity.rpartition("/")[2]


def chunks_of(connection: Connection, plan: UUID) -> list[Chunk]:
    """Return a plan's chunks in order."""
    return fetch_structs(
        connection,
        Chunk,
        "SELECT collection, ordinal, min_id AS lower, max_id AS upper, estimated, average_bytes, mode,"
        " state = 'done' AS done FROM migration.chunks WHERE plan_id = %s ORDER BY collection, ordinal",
        (plan,),
    )


def store_plan(connection: Connection, plan: Plan, chunks: Iterable[Chunk], now: datetime) -> None:
    """Record a new plan with all its chunks pending."""
    connection.execute(
        "INSERT INTO migration.plans (id, profile, profile_version, tool_version, config_digest, source_identity,"
        " as_of, created_at, state, context, stream_position) VALUES (%(id)s, %(profile)s, %(profile_version)s,"
        " %(tool_version)s, %(config_digest)s, %(source_identity)s, %(as_of)s, %(now)s, %(state)s, %(context)s,"
        " %(stream_position)s)",
        asdict(plan) | {"now": now, "context": Jsonb(plan.context)},
    )
    with connection.cursor() as cursor:
        cursor.executemany(
            "INSERT INTO migration.chunks (plan_id, collection, ordinal, min_id, max_id, estimated, mode, state,"
            " average_bytes) VALUES (%(plan)s, %(collection)s, %(ordinal)s, %(lower)s, %(upper)s, %(estimated)s,"
            " %(mode)s, 'pending', %(average_bytes)s)",
            [asdict(chunk) | {"plan": plan.id} for chunk in chunks],
        )
    checksums.write_plan(connection, plan.id)


def set_plan_state(connection: Connection, plan: UUID, state: PlanState) -> None:
    """Close or abandon a plan."""
    with connection.transaction():
        connection.execute("UPDATE migration.plans SET state = %s WHERE id = %s", (state, plan))
        checksums.write_plan(connection, plan)


def unconfirmed_chunks(connection: Connection, plan: UUID) -> list[Chunk]:
    """Return the chunks that are not done, when those that are done are on the server's disk.

    A chunk is committed without waiting for the disk, so a crash of the server takes the last ones away. The commit of
    this transaction waits; what it has seen was committed before it, and is on the disk with it.
    """
    with connection.transaction():
        connection.execute("UPDATE migration.plans SET state = state WHERE id = %s", (plan,))
        return [chunk for chunk in chunks_of(connection, plan) if not chunk.done]


def take_chunk(connection: Connection, plan: UUID, collection: str, ordinal: int) -> bool:
    """Lock a chunk's entry for this transaction; return whether the chunk must still be done."""
    row = connection.execute(
        "SELECT state FROM migration.chunks WHERE plan_id = %s AND collection = %s AND ordinal = %s FOR UPDATE",
        (plan, collection, ordinal),
    ).fetchone()
    return row is not None and row[0] == "pending"


def finish_chunk(
    connection: Connection, plan: UUID, done: ChunkResult, digest: bytes, began: datetime, worker: str
) -> None:
    """Mark a chunk done, with its result; part of the transaction of its rows, after its notes."""
    connection.execute(
        "UPDATE migration.chunks SET state = 'done', documents = %(documents)s, skipped = %(skipped)s,"
        " quarantined = %(quarantined)s, bytes = %(bytes)s, rows = %(rows)s, written = %(written)s,"
        " digest = %(digest)s, started_at = %(began)s, finished_at = clock_timestamp(), worker = %(worker)s"
        " WHERE plan_id = %(plan)s AND collection = %(collection)s AND ordinal = %(ordinal)s",
        asdict(done)
        | {"skipped": done.skipped.total(), "rows": Jsonb(done.rows), "written": Jsonb(done.written)}
        | {"digest": digest, "began": began, "worker": worker, "plan": plan},
    )
    checksums.write(
        connection,
        "chunks",
        "stored.plan_id = %s AND stored.collection = %s AND stored.ordinal = %s",
        plan,
        done.collection,
        done.ordinal,
    )


def store_notes(
    connection: Connection,
    plan: UUID,
    collection: str,
    ordinal: int,
    notes: Counter[tuple[str, str, str]],
) -> None:
    """Record how many documents of a chunk had each (class, kind, path)."""
    if not notes:
        return
    with connection.cursor() as cursor:
        cursor.executemany(
            "INSERT INTO migration.notes (plan_id, collection, ordinal, class, kind, path, documents)"
            " VALUES (%s, %s, %s, %s, %s, %s, %s) ON CONFLICT (plan_id, collection, ordinal, class, kind, path)"
            " DO UPDATE SET documents = EXCLUDED.documents",
            [(plan, collection, ordinal, *key, count) for key, count in sorted(notes.items())],
        )
    if ordinal == CLOSING_PASS:
        checksums.write_plan(connection, plan)


def quarantine(connection: Connection, plan: Plan, collection: str, documents: Sequence[SourceDocument]) -> None:
    """Put rejected documents into quarantine; update an entry that exists, and only if something changed.

    A document that was dropped stays so until it changes, or is quarantined for another reason.
    """
    if not documents:
        return
    with connection.cursor() as cursor:
        cursor.executemany(
            "INSERT INTO migration.quarantine AS stored (plan_id, profile, collection, source_key, source_id,"
            " tenant_id, reason, path, expected, raw, tool_version, profile_version, state, created_at)"
            " VALUES (%(plan)s, %(profile)s, %(collection)s, %(source_key)s, %(source_id)s, %(tenant)s, %(reason)s,"
            " %(path)s, %(expected)s, %(raw)s, %(tool_version)s, %(profile_version)s, 'open', clock_timestamp())"
            " ON CONFLICT (profile, collection, source_key) DO UPDATE SET plan_id = EXCLUDED.plan_id,"
            " reason = EXCLUDED.reason, path = EXCLUDED.path, expected = EXCLUDED.expected, raw = EXCLUDED.raw,"
            " tool_version = EXCLUDED.tool_version, profile_version = EXCLUDED.profile_version, state = 'open',"
            " resolved_at = NULL, dropped_by = NULL, dropped_because = NULL"
            " WHERE (stored.reason, stored.path, stored.expected, stored.raw)"
            " IS DISTINCT FROM (EXCLUDED.reason, EXCLUDED.path, EXCLUDED.expected, EXCLUDED.raw)"
            " OR stored.state NOT IN ('open', 'dropped')",
            [_quarantine_parameters(plan, collection, document) for document in documents],
        )


def _quarantine_parameters(plan: Plan, collection: str, document: SourceDocument) -> dict[str, Any]:
    source_id, reason = source_id_of(document.raw), document.rejected
    assert reason is not None  # noqa: S101 - told to the type checker: it was rejected
    return asdict(plan) | {
        "plan": plan.id,
        "collection": collection,
        "source_key": source_key(source_id),
        "source_id": source_id,
        "tenant": document.tenant,
        "reason": reason.reason,
        "path": reason.path,
        "expected": reason.expected,
        "raw": document.raw,
    }


def written_tables(connection: Connection, plan: UUID) -> set[str]:
    """Return the tables in which a plan has written rows."""
    rows = connection.execute(
        "SELECT DISTINCT counts.key FROM migration.chunks, jsonb_each_text(written) AS counts"
        " WHERE plan_id = %s AND counts.value::bigint > 0",
        (plan,),
    )
    return {row[0] for row in rows}


def copied_collections(connection: Connection) -> set[str]:
    """Return the collections of which a plan has done every chunk."""
    rows = connection.execute(
        "SELECT collection FROM migration.chunks GROUP BY plan_id, collection HAVING bool_and(state = 'done')"
    )
    return {row[0] for row in rows}


def collections_with_skips(connection: Connection) -> set[str]:
    """Return the collections of which a copy skipped documents by a rule."""
    return {row[0] for row in connection.execute("SELECT DISTINCT collection FROM migration.chunks WHERE skipped > 0")}


def quarantined_ids(connection: Connection, profile: str, collection: str) -> set[str]:
    """Return the source ids of a collection's documents that are quarantined now, or were dropped from quarantine."""
    rows = connection.execute(
        "SELECT source_id FROM migration.quarantine WHERE profile = %s AND collection = %s"
        " AND state IN ('open', 'dropped')",
        (profile, collection),
    )
    return {row[0] for row in rows}


def collections_in_quarantine(connection: Connection, profile: str, *, characters: int) -> set[str]:
    """Return the collections whose source ids in quarantine have more characters than so many, together."""
    rows = connection.execute(
        "SELECT collection FROM migration.quarantine WHERE profile = %s AND state IN ('open', 'dropped')"
        " GROUP BY collection HAVING sum(length(source_id)) > %s",
        (profile, characters),
    )
    return {row[0] for row in rows}


class QuarantinedIds:
    """Which documents of a collection are in quarantine: read once for all chunks that a process works on.

    It is as of the first chunk. No other document of the collection comes into quarantine while chunks are copied; a
    parity check reads the entries of the documents that it doubts anew.
    """

    def __init__(self) -> None:
        self._asked: tuple[str, str, str] | None = None
        self._ids: frozenset[bytes] = frozenset()

    def of(self, connection: Connection, profile: str, collection: str, begun: str) -> frozenset[bytes]:
        """Return the source ids; ``begun`` names the copy or the check, empty: they are read now."""
        asked = (profile, collection, begun)
        if not begun or asked != self._asked:
            found = quarantined_ids(connection, profile, collection)
            self._ids, self._asked = frozenset(one.encode() for one in found), asked
        return self._ids


FEW_ENTRIES = 1_000


def documents_with_entries(
    connection: Connection, table: LiteralString, collection: str, source_ids: Sequence[str]
) -> set[str]:
    """Return the documents of these that have an entry in a table of the ledger, closed ones included.

    Most documents have none, so a few entries are read as a whole, which costs less than a query by keys.
    """
    query = sql.SQL("SELECT source_id FROM {} WHERE collection = %s").format(sql.Identifier("migration", table))
    rows = connection.execute(query + sql.SQL(" LIMIT {}").format(FEW_ENTRIES + 1), (collection,)).fetchall()
    if len(rows) > FEW_ENTRIES:
        keys = [source_key(one) for one in source_ids]
        rows = connection.execute(query + sql.SQL(" AND source_key = ANY(%s)"), (collection, keys)).fetchall()
    return {one for (one,) in rows}.intersection(source_ids)


class QuarantineEntry(msgspec.Struct, frozen=True):
    """The quarantine entry of a document."""

    reason: str
    path: str
    expected: str
    digest: bytes
    """SHA-256 of the document's bytes."""
    dropped: bool = False
    """A person gave the document up."""


def quarantine_entries(
    connection: Connection, profile: str, collection: str, source_ids: Collection[str]
) -> dict[str, QuarantineEntry]:
    """Return the quarantine entries of some documents, by source id; also of those that were dropped."""
    if not source_ids:
        return {}
    rows = connection.execute(
        "SELECT source_id, reason, path, expected, sha256(raw), state = 'dropped' FROM migration.quarantine"
        " WHERE profile = %s AND collection = %s AND source_key = ANY(%s) AND state IN ('open', 'dropped')",
        (profile, collection, [source_key(one) for one in source_ids]),
    )
    return {row[0]: QuarantineEntry(row[1], row[2], row[3], bytes(row[4]), row[5]) for row in rows}


def quarantined_count(connection: Connection, profile: str) -> int:
    """Return how many documents are quarantined now."""
    return sum(quarantined_by_collection(connection, profile).values())


def quarantined_by_collection(connection: Connection, profile: str) -> dict[str, int]:
    """Return the number of quarantined documents of each collection, if there are any."""
    rows = connection.execute(
        "SELECT collection, count(*) FROM migration.quarantine WHERE profile = %s AND state = 'open' GROUP BY 1"
        " ORDER BY 1",
        (profile,),
    )
    return {row[0]: int(row[1]) for row in rows}


def noted_documents(connection: Connection, plan: UUID, group: str, kind: str) -> int:
    """Return how many documents of a plan had a note of a class and kind, over all paths."""
    count: int = fetch_value(
        connection,
        "SELECT coalesce(sum(documents), 0)::bigint FROM migration.notes WHERE plan_id = %s AND class = %s"
        " AND kind = %s",
        (plan, group, kind),
    )
    return count


def close_entries(
    connection: Connection,
    profile: str,
    collection: str,
    source_ids: Iterable[str],
    state: Literal["resolved", "superseded"],
) -> None:
    """Close quarantine entries: ``resolved`` of loaded documents, ``superseded`` of deleted and skipped ones.

    Also entries of documents that were dropped.
    """
    connection.execute(
        "UPDATE migration.quarantine SET state = %s, resolved_at = clock_timestamp(), dropped_by = NULL,"
        " dropped_because = NULL"
        " WHERE profile = %s AND collection = %s AND source_key = ANY(%s) AND state IN ('open', 'dropped')",
        (state, profile, collection, [source_key(one) for one in source_ids]),
    )


def drop_entry(connection: Connection, collection: str, source_id: str, by: Approval) -> bool:
    """Drop a quarantined document: a person gives it up. Return whether it was in quarantine."""
    done = connection.execute(
        "UPDATE migration.quarantine SET state = 'dropped', resolved_at = clock_timestamp(), dropped_by = %s,"
        " dropped_because = %s WHERE collection = %s AND source_key = %s AND state = 'open'",
        (by.who, by.reason, collection, source_key(source_id)),
    )
    return done.rowcount > 0


def dropped_count(connection: Connection, profile: str) -> int:
    """Return how many documents people have given up."""
    count: int = fetch_value(
        connection,
        "SELECT count(*) FROM migration.quarantine WHERE profile = %s AND state = 'dropped'",
        (profile,),
    )
    return count


def source_key(source_id: str) -> bytes:
    """Return the key of fixed size by which a source id, which may be long, is unique."""
    return hashlib.sha256(source_id.encode("utf-8", "surrogatepass")).digest()


def store_links(connection: Connection, collection: str, links: Sequence[PendingLink]) -> None:
    """Record references that the closing pass resolves; of two for one column, the last."""
    by_column = {link[:4]: link for link in links}
    if not by_column:
        return
    *names, extras = map(list, zip(*by_column.values(), strict=True))
    connection.execute(
        "INSERT INTO migration.pending_links (collection, record_table, row_id, tenant_id, column_name,"
        " target_table, target_id, target_source, target_source_id, resolved_extra)"
        " SELECT %s, record_table, row_id, tenant_id, column_name, target_table, target_id, target_source,"
        " target_source_id, extra::jsonb FROM unnest(%s::text[], %s::uuid[], %s::text[], %s::text[], %s::text[],"
        " %s::uuid[], %s::text[], %s::text[], %s::text[]) AS link (record_table, row_id, tenant_id, column_name,"
        " target_table, target_id, target_source, target_source_id, extra)"
        " ON CONFLICT (record_table, row_id, tenant_id, column_name) DO UPDATE SET target_id = EXCLUDED.target_id,"
        " target_source = EXCLUDED.target_source, target_source_id = EXCLUDED.target_source_id,"
        " resolved_extra = EXCLUDED.resolved_extra",
        (collection, *names, [extra.decode() for extra in extras]),
    )
