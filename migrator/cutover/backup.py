"""MongoDB as it is at the switch, in files: BSON by collection, and a manifest with digests (rollback level 3).

Taken while nobody but the tool can write. It is whole or not there: the folder gets its name when it is complete.
Restored beside what is there, checked by its digest, then put in its place, one collection at a time.
"""

import hashlib
import shutil
from collections.abc import Iterator, MutableMapping
from pathlib import Path
from typing import Any, Final, cast
from urllib.parse import quote

import bson
import msgspec
from bson.raw_bson import RawBSONDocument

from migrator import signals
from migrator.errors import RefusedError
from migrator.files import make_folder, open_private, write_private
from migrator.pipeline.sessions import SourceSessions
from migrator.store.epoch import KEY
from migrator.values import document as documents

MANIFEST: Final = "manifest.json"
BESIDE: Final = "migrator_restore_"
"""Collections that are being restored begin so."""
INSERTED_BYTES: Final = 8 * 1024 * 1024
"""About how many bytes are inserted at a time."""
ALL_BUT_EPOCH: Final = {"_id": {"$ne": KEY}}
"""All documents but the epoch, which is not the application's."""


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """One collection of a backup."""

    collection: str
    """Its name in the source."""
    documents: int
    sha256: str
    """Of all documents as BSON, in order of their ``_id``."""
    indexes: list[str]
    """Each as extended JSON, without the one on ``_id``."""
    options: str
    """As extended JSON."""


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What a backup holds."""

    database: str
    profile: str
    parts: list[Part]

    @property
    def digest(self) -> str:
        """Return one digest of all parts."""
        whole = "".join(f"{one.collection} {one.documents} {one.sha256}\n" for one in self.parts)
        return hashlib.sha256(whole.encode()).hexdigest()


def take(sessions: SourceSessions, folder: Path) -> Manifest:
    """Export every collection of the profile; a backup that is there already is checked and kept."""
    if folder.exists():
        return checked(folder)
    beside = folder.with_name(f".{folder.name}.part")
    shutil.rmtree(beside, ignore_errors=True)
    make_folder(beside)
    there = {one["name"]: one for one in sessions.source.list_collections()}
    names = [sessions.name_of(one.name) for one in sessions.profile.collections]
    parts = [_export(sessions, there[name], beside) for name in names if name in there]
    manifest = Manifest(database=sessions.source.name, profile=sessions.profile.name, parts=parts)
    write_private(beside / MANIFEST, msgspec.json.format(msgspec.json.encode(manifest)))
    beside.rename(folder)
    return manifest


def checked(folder: Path) -> Manifest:
    """Return the manifest of a backup whose files are as they were; raise ``RefusedError`` where they are not."""
    try:
        manifest = msgspec.json.decode((folder / MANIFEST).read_bytes(), type=Manifest)
    except (OSError, msgspec.DecodeError, msgspec.ValidationError):
        raise RefusedError(f"{folder} holds no backup that can be read") from None
    for part in manifest.parts:
        digest, count = hashlib.sha256(), 0
        try:
            for one in _stored(folder, part):
                digest.update(one)
                count += 1
        except (OSError, bson.errors.InvalidBSON):
            raise RefusedError(f"the backup of {part.collection} in {folder} cannot be read") from None
        if (count, digest.hexdigest()) != (part.documents, part.sha256):
            raise RefusedError(f"the backup of {part.collection} in {folder} is not what was written: digest differs")
    return manifest


def restore(sessions: SourceSessions, folder: Path) -> Manifest:
    """Put every collection of the profile back as it was; refused, and nothing touched, where a digest differs.

    Killed, it is called again. Collections of the profile that were not there are removed.
    """
    manifest = checked(folder)
    if (manifest.database, manifest.profile) != (sessions.source.name, sessions.profile.name):
        raise RefusedError(f"the backup is of {manifest.database}, profile {manifest.profile}")
    for part in manifest.parts:
        if fingerprint(sessions, part.collection) != (part.documents, part.sha256):
            _put_back(sessions, folder, part)
        signals.passed(f"{signals.CUTOVER}restored")
    there = set(sessions.source.list_collection_names())
    kept = {part.collection for part in manifest.parts}
    for one in sessions.profile.collections:
        name = sessions.name_of(one.name)
        if name in there and name not in kept:
            sessions.source.drop_collection(name)
    for name in there:
        if name.startswith(BESIDE):
            sessions.source.drop_collection(name)
    return manifest


def fingerprint(sessions: SourceSessions, name: str) -> tuple[int, str]:
    """Return how many documents a collection holds, and the digest of all of them in order of their ``_id``."""
    digest, count = hashlib.sha256(), 0
    for one in _all(sessions, name):
        digest.update(one)
        count += 1
    return count, digest.hexdigest()


def _export(sessions: SourceSessions, found: MutableMapping[str, Any], folder: Path) -> Part:
    name = found["name"]
    digest, count = hashlib.sha256(), 0
    with open_private(_file(folder, name)) as file:
        for one in _all(sessions, name):
            digest.update(one)
            file.write(one)
            count += 1
    indexes = [one for one in sessions.source[name].list_indexes() if one["name"] != "_id_"]
    return Part(
        collection=name,
        documents=count,
        sha256=digest.hexdigest(),
        indexes=[_text(one) for one in indexes],
        options=_text(found.get("options", {})),
    )


def _put_back(sessions: SourceSessions, folder: Path, part: Part) -> None:
    beside = f"{BESIDE}{part.collection}"
    source = sessions.source
    source.drop_collection(beside)
    source.command({"create": beside, **_value(part.options)})
    place = source.get_collection(beside)
    batch: list[RawBSONDocument] = []
    size = 0
    for one in _stored(folder, part):
        batch.append(RawBSONDocument(one))
        size += len(one)
        if size > INSERTED_BYTES:
            place.insert_many(batch, bypass_document_validation=True)
            batch, size = [], 0
    if batch:
        place.insert_many(batch, bypass_document_validation=True)
    indexes = [_value(one) for one in part.indexes]
    if indexes:
        source.command({"createIndexes": beside, "indexes": indexes})
    if fingerprint(sessions, beside) != (part.documents, part.sha256):
        raise RefusedError(f"{part.collection} was not restored as it was: digest differs; nothing was replaced")
    source[beside].rename(part.collection, dropTarget=True)


def _all(sessions: SourceSessions, name: str) -> Iterator[bytes]:
    with sessions.source[name].find_raw_batches(ALL_BUT_EPOCH, sort=[("_id", 1)]) as cursor:
        for batch in cursor:
            yield from documents.split(cast("bytes", batch))


def _file(folder: Path, collection: str) -> Path:
    """Return where a collection is kept; its name may hold what is no part of a file's name."""
    return folder / f"{quote(collection, safe=' ')}.bson"


def _stored(folder: Path, part: Part) -> Iterator[bytes]:
    with _file(folder, part.collection).open("rb") as file:
        while head := file.read(4):
            rest = file.read(int.from_bytes(head, "little") - 4)
            yield head + rest


def _text(value: Any) -> str:  # noqa: ANN401 - a document
    return bson.json_util.dumps(value, json_options=bson.json_util.CANONICAL_JSON_OPTIONS)


def _value(text: str) -> Any:  # noqa: ANN401 - a document
    value = bson.json_util.loads(text)
    for name in ("v", "ns"):
        value.pop(name, None)
    return value
