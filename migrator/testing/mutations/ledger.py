"""Mutations of quarantine and ledger, and changes of the source after the copy."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from migrator.testing.mutations.mutation import (
    Apply,
    Mutation,
    NoMaterial,
    ScratchCopy,
    Sql,
    Undo,
    data,
    delete_first,
    update_first,
)

_FIELDS: Final = "Where the field is one that is counted, summed, or whose first and last time is taken."

_QUARANTINED: Final = "If quarantined documents are counted, because this one then is."
_COUNTED: Final = {"parity.aggregates": _FIELDS, "parity.columns": _FIELDS}
_LOADED: Final = {
    "parity.aggregates": _QUARANTINED,
    "parity.columns": _QUARANTINED,
    "semantics.fires": "Where one of them has a rule.",
}
_OPEN: Final = "t.state = 'open'"
_CONVERTED: Final = "t.state = 'open' AND t.reason NOT LIKE 'duplicate%'"
"""A document that was quarantined for itself, not because another one has its key."""
_FIRST_CHUNK: Final = (
    "(plan_id, collection, ordinal) = (SELECT plan_id, collection, ordinal FROM migration.chunks"
    " WHERE state = 'done' ORDER BY collection, ordinal LIMIT 1)"
)


def _source(change: Callable[[Any, Mapping[str, Any]], None]) -> Apply:
    """Return a change of one audit document of the scratch source, which is put back afterwards."""

    def apply(copy: ScratchCopy) -> Undo:
        documents = copy.source[copy.settings.source.collections.get("audit", "audit")]
        row = copy.target.execute(
            "SELECT source_id FROM scheduler.audit WHERE NOT starts_with(source_id, '{') ORDER BY id LIMIT 1"
        ).fetchone()
        before = None if row is None else documents.find_one({"_id": row[0]})
        if before is None:
            raise NoMaterial
        change(documents, before)

        def undo() -> None:
            documents.delete_one({"_id": _NEW})
            documents.replace_one({"_id": before["_id"]}, before, upsert=True)

        return undo

    return apply


_NEW: Final = "new-after-the-copy"


def _appears(documents: Any, one: Mapping[str, Any]) -> None:  # noqa: ANN401 - a collection of the driver
    documents.insert_one({**one, "_id": _NEW})


def _changes(documents: Any, one: Mapping[str, Any]) -> None:  # noqa: ANN401 - as above
    documents.update_one({"_id": one["_id"]}, {"$set": {"actor": {"name": "changed after the copy"}}})


def _is_deleted(documents: Any, one: Mapping[str, Any]) -> None:  # noqa: ANN401 - as above
    documents.delete_one({"_id": one["_id"]})


def _is_spoilt(documents: Any, one: Mapping[str, Any]) -> None:  # noqa: ANN401 - as above
    documents.update_one({"_id": one["_id"]}, {"$set": {"occurredAt": "the day before yesterday"}})


def _reorders(documents: Any, one: Mapping[str, Any]) -> None:  # noqa: ANN401 - as above
    rest = sorted((name for name in one if name != "_id"), reverse=True)
    documents.replace_one({"_id": one["_id"]}, {"_id": one["_id"], **{name: one[name] for name in rest}})


def _unknown_collection(copy: ScratchCopy) -> Undo:
    copy.source["never_heard_of"].insert_one({"_id": 1})

    def undo() -> None:
        copy.source.drop_collection("never_heard_of")

    return undo


LEDGER_MUTATIONS: Final[tuple[Mutation, ...]] = (
    data(
        "quarantine was emptied",
        Sql("DELETE FROM migration.quarantine"),
        "parity.documents",
        sometimes_by={
            **_LOADED,
            "parity.rows": "Where one of them lost a key to another document: its row is the other's.",
        },
    ),
    data(
        "a document in quarantine was changed",
        update_first(
            "migration.quarantine",
            "raw = overlay(raw placing '\\x00'::bytea from octet_length(raw) - 2)",
            _OPEN,
        ),
        "parity.quarantine",
    ),
    data(
        "an entry of the quarantine is lost",
        delete_first("migration.quarantine", _CONVERTED),
        "parity.documents",
        sometimes_by=_LOADED,
    ),
    data(
        "the reason of an entry in quarantine was rewritten",
        update_first("migration.quarantine", "reason = 'harmless'", _OPEN),
        "parity.quarantine",
    ),
    data(
        "what an entry in quarantine expected was rewritten",
        update_first("migration.quarantine", "expected = 'nothing'", _CONVERTED),
        "parity.quarantine",
    ),
    data(
        "an entry in quarantine was called resolved",
        update_first("migration.quarantine", "state = 'resolved'", _CONVERTED),
        "parity.documents parity.ledger",
        sometimes_by=_LOADED,
    ),
    data(
        "a ghost in quarantine: an entry of a document that the source does not have",
        Sql(
            "INSERT INTO migration.quarantine (profile, profile_version, collection, source_id, source_key, reason,"
            " path, expected, raw, tool_version, state) SELECT profile, profile_version, collection, 'a ghost',"
            " sha256('a ghost'), reason, path, expected, raw, tool_version, 'open' FROM migration.quarantine"
            " WHERE state = 'open' ORDER BY id LIMIT 1"
        ),
        "parity.quarantine",
    ),
    data(
        "an entry in quarantine under another key",
        update_first("migration.quarantine", "source_key = sha256('x')", _OPEN),
        "parity.documents parity.ledger",
        sometimes_by=_LOADED,
    ),
    data(
        "an entry in quarantine that was dropped at no time",
        update_first(
            "migration.quarantine", "state = 'dropped', dropped_by = 'me', dropped_because = 'it was old'", _OPEN
        ),
        "parity.ledger",
        sometimes_by={"parity.policies": "Where its reason is not one that a policy names."},
    ),
    data(
        "a note of a chunk that does not exist",
        Sql(
            "INSERT INTO migration.notes (plan_id, collection, ordinal, class, kind, path, documents) SELECT id,"
            " 'runs', 999, 'finding', 'orphan', 'nowhere', 1 FROM migration.plans ORDER BY created_at DESC LIMIT 1"
        ),
        "parity.ledger",
    ),
    data(
        "a decision by a person who made none",
        Sql(
            "INSERT INTO migration.decisions (kind, who, reason, tool_version, checksum)"
            " VALUES ('cutover', 'somebody', 'it was urgent', '0', sha256('x'))"
        ),
        "parity.ledger",
    ),
    data(
        "a cutover that never was",
        Sql(
            "INSERT INTO migration.cutovers (id, environment, state, config_path, backup_path, tool_version)"
            " VALUES (gen_random_uuid(), 'x', 'finished', '', '', '0')"
        ),
        "parity.ledger",
    ),
    data(
        "a note of the ledger was deleted",
        Sql(
            "DELETE FROM migration.notes WHERE ctid = (SELECT ctid FROM migration.notes WHERE ordinal >= 0"
            " ORDER BY collection, ordinal, class, kind, path LIMIT 1)"
        ),
        "parity.ledger",
    ),
    data(
        "the notes of a closing pass were rewritten",
        Sql(
            "INSERT INTO migration.notes (plan_id, collection, ordinal, class, kind, path, documents) SELECT id,"
            " 'runs', -1, 'finding', 'orphan', 'nowhere', 1 FROM migration.plans ORDER BY created_at DESC LIMIT 1"
        ),
        "parity.ledger",
    ),
    data(
        "a chunk counts more documents than it read",
        Sql(f"UPDATE migration.chunks SET documents = documents + 1 WHERE {_FIRST_CHUNK}"),  # noqa: S608 - of this module
        "parity.ledger",
    ),
    data(
        "a chunk counts other rows than it wrote, its sum kept",
        Sql(f"UPDATE migration.chunks SET documents = documents + 1, skipped = skipped + 1 WHERE {_FIRST_CHUNK}"),  # noqa: S608 - as above
        "parity.ledger",
    ),
    data(
        "the record of dangling references was emptied",
        Sql("DELETE FROM migration.dangling_references"),
        "parity.ledger",
    ),
    data(
        "a document that appeared after the copy",
        _source(_appears),
        "parity.documents parity.aggregates parity.columns",
    ),
    data("a document that changed after the copy", _source(_changes), "parity.rows", sometimes_by=_COUNTED),
    data(
        "a document that was deleted after the copy",
        _source(_is_deleted),
        "parity.extra parity.aggregates parity.columns",
    ),
    data(
        "a document that was corrupted after the copy: it would be quarantined now",
        _source(_is_spoilt),
        "parity.documents",
        sometimes_by=_COUNTED,
    ),
    data(
        "the order of keys changed",
        _source(_reorders),
        note="The order of keys is not compared, and each report says so; the order of list members is.",
    ),
    data(
        "a collection that belongs to no profile",
        _unknown_collection,
        note="Named in the census, in the plan, and in the report among what was left out.",
    ),
)
