"""Data in files: MongoDB as it is at the cutover, and the rows of PostgreSQL that a rollback does not carry.

**The backup of MongoDB** (rollback level 3): BSON by collection, and a manifest with digests, taken while nobody but
the tool can write. The folder gets its name when the backup is complete, so it is complete or does not exist. A restore
writes each collection under another name, verifies its digest, and then renames it, one collection at a time.

**Exports of PostgreSQL**: JSON lines, one file per table, for a person to read.
"""

import hashlib
import shutil
from collections.abc import Callable, Iterable, Iterator, MutableMapping
from datetime import datetime
from pathlib import Path
from typing import Any, Final, cast
from urllib.parse import quote

import bson
import msgspec
from bson.raw_bson import RawBSONDocument
from psycopg import sql

from migrator import fault_points
from migrator.connections.postgres import Connection
from migrator.errors import RefusedError
from migrator.files import make_folder, open_private, write_private
from migrator.pipeline.sessions import SourceSessions
from migrator.records import ALL, Handler, Record, Trigger
from migrator.store.epoch import KEY
from migrator.values import document as documents

MANIFEST: Final = "manifest.json"
RESTORE_PREFIX: Final = "migrator_restore_"
"""Prefix of the collections into which a restore writes."""
INSERTED_BYTES: Final = 8 * 1024 * 1024
"""Bytes that are inserted at a time, approximately."""
ALL_BUT_EPOCH: Final = {"_id": {"$ne": KEY}}
"""All documents but the epoch, which belongs to the tool."""


class BackupPart(msgspec.Struct, frozen=True, kw_only=True):
    """One collection of a backup."""

    collection: str
    """Its name in the source."""
    documents: int
    sha256: str
    """Digest of all documents as BSON, in order of their ``_id``."""
    indexes: list[str]
    """Each index as extended JSON, without the one on ``_id``."""
    options: str
    """The options as extended JSON."""


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a backup."""

    database: str
    profile: str
    parts: list[BackupPart]

    @property
    def digest(self) -> str:
        """Return one digest of all parts."""
        whole = "".join(f"{one.collection} {one.documents} {one.sha256}\n" for one in self.parts)
        return hashlib.sha256(whole.encode()).hexdigest()


def export_source(sessions: SourceSessions, folder: Path) -> Manifest:
    """Export every collection of the profile; verify and keep a backup that exists already."""
    if folder.exists():
        return verified_manifest(folder)
    beside = folder.with_name(f".{folder.name}.part")
    shutil.rmtree(beside, ignore_errors=True)
    make_folder(beside)
    there = {one["name"]: one for one in sessions.source.list_collections()}
    names = [sessions.name_of(one.name) for one in sessions.profile.collections]
    parts = [_export_collection(sessions, there[name], beside) for name in names if name in there]
    manifest = Manifest(database=sessions.source.name, profile=sessions.profile.name, parts=parts)
    write_private(beside / MANIFEST, msgspec.json.format(msgspec.json.encode(manifest)))
    beside.rename(folder)
    return manifest


def verified_manifest(folder: Path) -> Manifest:
    """Return the manifest of a backup whose files are unchanged; raise ``RefusedError`` if they were changed."""
    try:
        manifest = msgspec.json.decode((folder / MANIFEST).read_bytes(), type=Manifest)
    except (OSError, msgspec.DecodeError, msgspec.ValidationError):
        raise RefusedError(f"{folder} holds no backup that can be read") from None
    for part in manifest.parts:
        try:
            found = _fingerprint(_file_documents(folder, part))
        except (OSError, bson.errors.InvalidBSON):
            raise RefusedError(f"the backup of {part.collection} in {folder} cannot be read") from None
        if found != (part.documents, part.sha256):
            raise RefusedError(
                f"the backup of {part.collection} in {folder} was changed after it was written: digest differs"
            )
    return manifest


def restore_source(sessions: SourceSessions, folder: Path) -> Manifest:
    """Restore every collection of the profile; refuse, and change nothing, if a digest differs.

    A call that was killed can be repeated. Collections of the profile that did not exist are removed.
    """
    manifest = verified_manifest(folder)
    if (manifest.database, manifest.profile) != (sessions.source.name, sessions.profile.name):
        raise RefusedError(f"the backup is of {manifest.database}, profile {manifest.profile}")
    for part in manifest.parts:
        if fingerprint(sessions, part.collection) != (part.documents, part.sha256):
            _restore_collection(sessions, folder, part)
        fault_points.reach(f"{fault_points.CUTOVER_PREFIX}restored")
    there = set(sessions.source.list_collection_names())
    kept = {part.collection for part in manifest.parts}
    for one in sessions.profile.collections:
        name = sessions.name_of(one.name)
        if name in there and name not in kept:
            sessions.source.drop_collection(name)
    for name in there:
        if name.startswith(RESTORE_PREFIX):
            sessions.source.drop_collection(name)
    return manifest


def fingerprint(sessions: SourceSessions, name: str) -> tuple[int, str]:
    """Return how many documents a collection holds, and the digest of all of them in order of their ``_id``."""
    return _fingerprint(_source_documents(sessions, name))


def _fingerprint(found: Iterable[bytes], write: Callable[[bytes], object] = lambda _: None) -> tuple[int, str]:
    """Return the number of documents and their digest; pass each to ``write``."""
    digest, count = hashlib.sha256(), 0
    for one in found:
        digest.update(one)
        write(one)
        count += 1
    return count, digest.hexdigest()


def _export_collection(sessions: SourceSessions, found: MutableMapping[str, Any], folder: Path) -> BackupPart:
    name = found["name"]
    with open_private(_collection_file(folder, name)) as file:
        count, digest = _fingerprint(_source_documents(sessions, name), file.write)
    indexes = [one for one in sessions.source[name].list_indexes() if one["name"] != "_id_"]
    return BackupPart(
        collection=name,
        documents=count,
        sha256=digest,
        indexes=[_to_json(one) for one in indexes],
        options=_to_json(found.get("options", {})),
    )


def _restore_collection(sessions: SourceSessions, folder: Path, part: BackupPart) -> None:
    beside = f"{RESTORE_PREFIX}{part.collection}"
    source = sessions.source
    source.drop_collection(beside)
    source.command({"create": beside, **_from_json(part.options)})
    place = source.get_collection(beside)
    batch: list[RawBSONDocument] = []
    size = 0
    for one in _file_documents(folder, part):
        batch.append(RawBSONDocument(one))
        size += len(one)
        if size > INSERTED_BYTES:
            place.insert_many(batch, bypass_document_validation=True)
            batch, size = [], 0
    if batch:
        place.insert_many(batch, bypass_document_validation=True)
    indexes = [_from_json(one) for one in part.indexes]
    if indexes:
        source.command({"createIndexes": beside, "indexes": indexes})
    if fingerprint(sessions, beside) != (part.documents, part.sha256):
        raise RefusedError(f"{part.collection} was not restored unchanged: digest differs; nothing was replaced")
    source[beside].rename(part.collection, dropTarget=True)


def _source_documents(sessions: SourceSessions, name: str) -> Iterator[bytes]:
    with sessions.source[name].find_raw_batches(ALL_BUT_EPOCH, sort=[("_id", 1)]) as cursor:
        for batch in cursor:
            yield from documents.split(cast("bytes", batch))


def _collection_file(folder: Path, collection: str) -> Path:
    """Return the file of a collection, whose name may hold characters that no file name may."""
    return folder / f"{quote(collection, safe=' ')}.bson"


def _file_documents(folder: Path, part: BackupPart) -> Iterator[bytes]:
    with _collection_file(folder, part.collection).open("rb") as file:
        while head := file.read(4):
            rest = file.read(int.from_bytes(head, "little") - 4)
            yield head + rest


def _to_json(value: Any) -> str:  # noqa: ANN401 - a document
    return bson.json_util.dumps(value, json_options=bson.json_util.CANONICAL_JSON_OPTIONS)


def _from_json(text: str) -> Any:  # noqa: ANN401 - a document
    value = bson.json_util.loads(text)
    for name in ("v", "ns"):
        value.pop(name, None)
    return value


def export_target(target: Connection, folder: Path) -> dict[str, int]:
    """Export every row of every table of both schemas; return table → rows. Called again, it starts again."""
    tables = target.execute(
        "SELECT table_schema, table_name, 'true' FROM information_schema.tables WHERE table_type = 'BASE TABLE'"
        " AND table_schema IN ('scheduler', 'migration') ORDER BY 1, 2"
    ).fetchall()
    return _export_tables(target, folder, tables)


def export_since(target: Connection, folder: Path, since: datetime) -> dict[str, int]:
    """Export the rows that were created or changed since an instant, carried or not: a restore leaves them out.

    ``triggers`` and ``handlers`` do not record when a row was changed, so all their rows are exported.
    """
    return _export_tables(
        target, folder, [("scheduler", record.table, _changed_since(record, since)) for record in ALL]
    )


def _changed_since(record: type[Record], since: datetime) -> str:
    """Return the condition for the rows of a table that a restore leaves out."""
    columns = set(record.__struct_fields__)
    if record in (Trigger, Handler):
        return "true"
    conditions = [f"id::text IN (SELECT row_id FROM migration.outbox WHERE table_name = '{record.table}')"]  # noqa: S608 - a record's table name
    if "source" in columns:
        conditions.append("source IS NULL")
    if "updated_at" in columns:
        conditions.append(f"updated_at >= '{since.isoformat()}'")
    elif "created_at" in columns:
        conditions.append(f"created_at >= '{since.isoformat()}'")  # rows are only added to it
    return " OR ".join(conditions)


def export_columns(target: Connection, folder: Path, places: Iterable[str]) -> None:
    """Export columns (``table.column``) for which documents have no place, of every row with a value there."""
    make_folder(folder, exist_ok=True)
    for place in places:
        table, _, column = place.partition(".")
        if column == "*":
            statement = sql.SQL("SELECT row_to_json(t)::text FROM {} AS t").format(sql.Identifier("scheduler", table))
        else:
            statement = sql.SQL(
                "SELECT json_build_object('id', id, 'tenant_id', tenant_id, {name}, {column})::text FROM {table}"
                " WHERE {column} IS NOT NULL"
            ).format(name=sql.Literal(column), column=sql.Identifier(column), table=sql.Identifier("scheduler", table))
        _export_lines(target, folder / f"lost.{place}.jsonl", statement)


def export_created(target: Connection, folder: Path, tables: Iterable[str]) -> None:
    """Export the rows of tables that were created on PostgreSQL, for which documents have no place."""
    make_folder(folder, exist_ok=True)
    for table in tables:
        statement = sql.SQL("SELECT row_to_json(t)::text FROM {} AS t WHERE source IS NULL")
        _export_lines(target, folder / f"lost.{table}.jsonl", statement.format(sql.Identifier("scheduler", table)))


def _export_tables(target: Connection, folder: Path, parts: Iterable[tuple[Any, ...]]) -> dict[str, int]:
    beside = folder.with_name(f".{folder.name}.part")
    shutil.rmtree(beside, ignore_errors=True)
    make_folder(beside)
    counts: dict[str, int] = {}
    for schema, table, where in parts:
        head = sql.SQL("SELECT row_to_json(t)::text FROM {} AS t WHERE ").format(sql.Identifier(schema, table))
        file = beside / f"{schema}.{table}.jsonl"
        counts[f"{schema}.{table}"] = _export_lines(target, file, head + sql.SQL(where))
    shutil.rmtree(folder, ignore_errors=True)
    beside.rename(folder)
    return {name: count for name, count in counts.items() if count}


def _export_lines(target: Connection, path: Path, statement: sql.Composed) -> int:
    """Write the rows of a query, each one text, into a file; return their number."""
    count = 0
    with open_private(path) as file, target.transaction(), target.cursor("export") as cursor:
        for (line,) in cursor.execute(statement):
            file.write(f"{line}\n".encode())
            count += 1
    return count
