"""Data in files: MongoDB as it is at the cutover, and the rows of PostgreSQL that a rollback does not carry.

**The backup of MongoDB** (rollback level 3): BSON by collection, and a manifest with digests, taken while nobody but
the tool can write, and before the reverse sync does: it holds what was there when the fence closed. It is made after
PostgreSQL is open, so that it costs no write pause, however large it is. The folder gets its name when the backup is
complete and on the disk, so it is complete or does not exist. A restore writes each collection under another name,
verifies its digest, and then renames it, one collection at a time.

**Exports of PostgreSQL**: JSON lines, one file per table, with a manifest of their digests. They hold whole rows, so
that a person can read them, and a program can insert them again.
"""

import hashlib
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO, Final, LiteralString, cast
from urllib.parse import quote

import bson
import msgspec
from bson.raw_bson import RawBSONDocument
from psycopg import sql
from pymongo import ReadPreference

from migrator import fault_points
from migrator.connections.postgres import Connection
from migrator.cutover.reverse_encoding import LostRow, UnstatedSchedule
from migrator.errors import RefusedError
from migrator.files import (
    UnreadableError,
    complete_folder,
    make_folder,
    open_flushed,
    open_private,
    read_bytes,
)
from migrator.pipeline.sessions import SourceSessions
from migrator.records import ALL, Handler, Record, Trigger
from migrator.store.epoch import KEY
from migrator.values import document as documents
from migrator.values.copy_format import codec

MANIFEST: Final = "manifest.json"
SCHEDULES_FILE: Final = "schedules.jsonl"
"""The file of an export with the schedules that no document states."""
_EXPORTED_SCHEDULES: Final = 1_000
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
    collections = {one["name"]: one for one in sessions.source.list_collections()}
    names = [sessions.name_of(one.name) for one in sessions.profile.collections]
    parts = [_export_collection(sessions, collections[name], beside) for name in names if name in collections]
    manifest = Manifest(database=sessions.source.name, profile=sessions.profile.name, parts=parts)
    with open_flushed(beside / MANIFEST) as file:
        file.write(msgspec.json.format(msgspec.json.encode(manifest)))
    complete_folder(beside, folder)
    return manifest


def verified_manifest(folder: Path) -> Manifest:
    """Return the manifest of a backup whose files are unchanged; raise ``RefusedError`` if they were changed."""
    try:
        manifest = msgspec.json.decode(read_bytes(folder / MANIFEST), type=Manifest)
    except (UnreadableError, msgspec.DecodeError, msgspec.ValidationError):
        raise RefusedError(f"{folder} holds no backup that can be read") from None
    for part in manifest.parts:
        try:
            read_back = _fingerprint(_file_documents(folder, part))
        except (OSError, bson.errors.InvalidBSON):
            raise RefusedError(f"the backup of {part.collection} in {folder} cannot be read") from None
        if read_back != (part.documents, part.sha256):
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
    existing = set(sessions.source.list_collection_names())
    kept = {part.collection for part in manifest.parts}
    for one in sessions.profile.collections:
        name = sessions.name_of(one.name)
        if name in existing and name not in kept:
            sessions.source.drop_collection(name)
    for name in existing:
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


def _export_collection(sessions: SourceSessions, manifest: MutableMapping[str, Any], folder: Path) -> BackupPart:
    name = manifest["name"]
    with open_flushed(_collection_file(folder, name)) as file:
        count, digest = _fingerprint(_source_documents(sessions, name), file.write)
    indexes = [one for one in sessions.source[name].list_indexes() if one["name"] != "_id_"]
    return BackupPart(
        collection=name,
        documents=count,
        sha256=digest,
        indexes=[_to_json(one) for one in indexes],
        options=_to_json(manifest.get("options", {})),
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
    # a secondary, which the URI may prefer, may not have the last writes before the fence yet
    place = sessions.source.get_collection(name, read_preference=ReadPreference.PRIMARY)
    with place.find_raw_batches(ALL_BUT_EPOCH, sort=[("_id", 1)]) as cursor:
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


class LinesFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file of an export."""

    name: str
    lines: int
    sha256: str


class Export(msgspec.Struct, frozen=True, kw_only=True):
    """Files of JSON lines, with their digests, which are also in ``manifest.json`` of the folder."""

    folder: str
    files: tuple[LinesFile, ...]
    digest: str
    """SHA-256 of the manifest."""


class ExportWriter:
    """Writes files of JSON lines into a folder that gets its name when all of them are on the disk.

    An export of the same name is replaced: the call that made it was interrupted, and this one exports again.
    """

    def __init__(self, folder: Path) -> None:
        self._folder, self._beside = folder, folder.with_name(f".{folder.name}.part")
        self._open: dict[str, tuple[BinaryIO, Any]] = {}
        self._lines: Counter[str] = Counter()
        shutil.rmtree(self._beside, ignore_errors=True)

    def add(self, name: str, lines: Iterable[str]) -> int:
        """Append lines to a file; return their number."""
        if name not in self._open:
            make_folder(self._beside, exist_ok=True)
            self._open[name] = open_private(self._beside / name), hashlib.sha256()
        file, digest = self._open[name]
        count = 0
        for line in lines:
            content = f"{line}\n".encode()
            digest.update(content)
            file.write(content)
            count += 1
        self._lines[name] += count
        return count

    def end(self) -> Export | None:
        """Flush the files to the disk, write the manifest, and give the folder its name; None if there is no file."""
        if not self._open:
            return None
        for file, _ in self._open.values():
            _close_flushed(file)
        files = tuple(
            LinesFile(name=name, lines=self._lines[name], sha256=digest.hexdigest())
            for name, (_, digest) in sorted(self._open.items())
        )
        content = msgspec.json.format(msgspec.json.encode({"files": files}))
        with open_flushed(self._beside / MANIFEST) as manifest:
            manifest.write(content)
        shutil.rmtree(self._folder, ignore_errors=True)
        complete_folder(self._beside, self._folder)
        return Export(folder=str(self._folder), files=files, digest=hashlib.sha256(content).hexdigest())


def _close_flushed(file: BinaryIO) -> None:
    with file:
        file.flush()
        os.fsync(file.fileno())


def export_target(target: Connection, folder: Path) -> dict[str, int]:
    """Export every row of every table of both schemas; return table → rows. Called again, it starts again."""
    tables = target.execute(
        "SELECT table_schema, table_name, 'true' FROM information_schema.tables WHERE table_type = 'BASE TABLE'"
        " AND table_schema IN ('scheduler', 'migration') ORDER BY 1, 2"
    ).fetchall()
    return _export_tables(target, folder, tables)[0]


def export_since(target: Connection, folder: Path, since: datetime) -> tuple[dict[str, int], Export | None]:
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


def export_lost(target: Connection, writer: ExportWriter, rows: Iterable[LostRow]) -> None:
    """Export rows as a whole, each with the columns for which documents have no place; ``*``: all of the row."""
    of: dict[str, dict[tuple[str, str], tuple[str, ...]]] = {}
    for row in rows:
        of.setdefault(row.table, {})[row.row_id, row.tenant] = row.columns
    for table, places in of.items():
        # In the type of the column: as text, each batch would read the whole table, while writers wait.
        kind = next(codec(record).types["id"] for record in ALL if record.table == table)
        statement = sql.SQL(
            "SELECT t.id::text, t.tenant_id, row_to_json(t)::text FROM {} AS t"
            " JOIN unnest(%s::{}[], %s::text[]) AS g (id, tenant) ON t.id = g.id AND t.tenant_id = g.tenant"
            " ORDER BY t.id"
        ).format(sql.Identifier("scheduler", table), sql.SQL(kind))
        lost_rows = target.execute(statement, ([row_id for row_id, _ in places], [tenant for _, tenant in places]))
        lines = (
            f'{{"columns":{msgspec.json.encode(places[row_id, tenant]).decode()},"row":{text}}}'
            for row_id, tenant, text in lost_rows.fetchall()
        )
        writer.add(f"lost.{table}.jsonl", lines)


def export_schedules(target: Connection, writer: ExportWriter, unstated: Iterable[UnstatedSchedule]) -> None:
    """Export schedules with all their triggers, why no document states them, and what becomes of their documents."""
    every = list(unstated)
    for first in range(0, len(every), _EXPORTED_SCHEDULES):
        part = {(one.schedule_id, one.tenant): one for one in every[first : first + _EXPORTED_SCHEDULES]}
        rows = target.execute(
            "SELECT s.id::text, s.tenant_id, row_to_json(s)::text, coalesce((SELECT json_agg(t ORDER BY t.id)::text"
            " FROM scheduler.triggers AS t WHERE t.schedule_id = s.id AND t.tenant_id = s.tenant_id), '[]')"
            " FROM scheduler.schedules AS s JOIN unnest(%s::uuid[], %s::text[]) AS g (id, tenant)"
            " ON s.id = g.id AND s.tenant_id = g.tenant ORDER BY s.id",
            ([row_id for row_id, _ in part], [tenant for _, tenant in part]),
        ).fetchall()
        lines = (
            f'{{"reasons":{msgspec.json.encode(one.reasons).decode()},'
            f'"document":{msgspec.json.encode(one.document).decode()},'
            f'"schedule":{schedule},"triggers":{triggers}}}'.replace("\n", " ")
            for row_id, tenant, schedule, triggers in rows
            for one in (part[row_id, tenant],)
        )
        writer.add(SCHEDULES_FILE, lines)


def _export_tables(
    target: Connection, folder: Path, parts: Iterable[tuple[Any, ...]]
) -> tuple[dict[str, int], Export | None]:
    writer = ExportWriter(folder)
    counts: dict[str, int] = {}
    for schema, table, where in parts:
        head = sql.SQL("SELECT row_to_json(t)::text FROM {} AS t WHERE ").format(sql.Identifier(schema, table))
        with target.transaction(), target.cursor("export") as cursor:
            lines = (row[0] for row in cursor.execute(head + sql.SQL(where)))
            counts[f"{schema}.{table}"] = writer.add(f"{schema}.{table}.jsonl", lines)
    return {name: count for name, count in counts.items() if count}, writer.end()


def export_rows(
    target: Connection, folder: Path, conditions: Mapping[LiteralString, LiteralString], given: Mapping[str, Any]
) -> None:
    """Export the rows ``t`` of tables for which a condition holds; ``given``: its parameters."""
    writer = ExportWriter(folder)
    for table, condition in conditions.items():
        head = sql.SQL("SELECT row_to_json(t)::text FROM {} AS t WHERE ").format(sql.Identifier("scheduler", table))
        with target.transaction(), target.cursor("export") as cursor:
            writer.add(f"{table}.jsonl", (row[0] for row in cursor.execute(head + sql.SQL(condition), given)))
    writer.end()
