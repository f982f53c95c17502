"""Mutations of quarantine and ledger, and changes of the source after the copy."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from migrator.verify.sensitivity.mutation import Apply, Mutation, NoMaterial, ScratchCopy, Undo, sql

_FIELDS: Final = "Where the field is one that is counted, summed, or whose first and last time is taken."

_QUARANTINED: Final = "If quarantined documents are counted, because this one then is."


def _source(change: Callable[[Any, Mapping[str, Any]], None], collection: str = "audit") -> Apply:
    """Return a mutation that changes one document of the scratch source, and puts it back afterwards."""

    def apply(copy: ScratchCopy) -> Undo:
        documents = copy.source[copy.settings.source.collections.get(collection, collection)]
        row = copy.target.execute(
            f"SELECT source_id FROM scheduler.{collection} WHERE NOT starts_with(source_id, '{{') ORDER BY id LIMIT 1"  # noqa: S608 - a name of this module
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
    Mutation(
        name="quarantine was emptied",
        kind="data",
        apply=sql("DELETE FROM migration.quarantine"),
        caught_by=("parity.documents",),
        sometimes_by={
            "parity.aggregates": _QUARANTINED,
            "parity.columns": _QUARANTINED,
            "parity.rows": "Where one of them lost a key to another document: its row is the other's.",
            "semantics.fires": "Where one of them has a rule.",
        },
    ),
    Mutation(
        name="a document in quarantine was changed",
        kind="data",
        apply=sql(
            "UPDATE migration.quarantine SET raw = overlay(raw placing '\\x00'::bytea from octet_length(raw) - 2)"
            " WHERE id = (SELECT id FROM migration.quarantine WHERE state = 'open' ORDER BY id LIMIT 1)"
        ),
        caught_by=("parity.quarantine",),
    ),
    Mutation(
        name="an entry of the quarantine is lost",
        kind="data",
        apply=sql(
            "DELETE FROM migration.quarantine WHERE id = (SELECT id FROM migration.quarantine WHERE state = 'open'"
            " AND reason NOT LIKE 'duplicate%' ORDER BY id LIMIT 1)"
        ),
        caught_by=("parity.documents",),
        sometimes_by={
            "parity.aggregates": _QUARANTINED,
            "parity.columns": _QUARANTINED,
            "semantics.fires": "Where one of them has a rule.",
        },
    ),
    Mutation(
        name="the reason of an entry in quarantine was rewritten",
        kind="data",
        apply=sql(
            "UPDATE migration.quarantine SET reason = 'harmless' WHERE id = (SELECT id FROM migration.quarantine WHERE"
            " state = 'open' ORDER BY id LIMIT 1)"
        ),
        caught_by=("parity.quarantine",),
    ),
    Mutation(
        name="what an entry in quarantine expected was rewritten",
        kind="data",
        apply=sql(
            "UPDATE migration.quarantine SET expected = 'nothing' WHERE id = (SELECT id FROM migration.quarantine WHERE"
            " state = 'open' AND reason NOT LIKE 'duplicate%' ORDER BY id LIMIT 1)"
        ),
        caught_by=("parity.quarantine",),
    ),
    Mutation(
        name="an entry in quarantine was called resolved",
        kind="data",
        apply=sql(
            "UPDATE migration.quarantine SET state = 'resolved' WHERE id = (SELECT id FROM migration.quarantine WHERE"
            " state = 'open' AND reason NOT LIKE 'duplicate%' ORDER BY id LIMIT 1)"
        ),
        caught_by=("parity.documents",),
        sometimes_by={
            "parity.aggregates": _QUARANTINED,
            "parity.columns": _QUARANTINED,
            "semantics.fires": "Where one of them has a rule.",
        },
    ),
    Mutation(
        name="a note of the ledger was deleted",
        kind="data",
        apply=sql(
            "DELETE FROM migration.notes WHERE ctid = (SELECT ctid FROM migration.notes WHERE ordinal >= 0"
            " ORDER BY collection, ordinal, class, kind, path LIMIT 1)"
        ),
        caught_by=("parity.ledger",),
    ),
    Mutation(
        name="the notes of a closing pass were rewritten",
        kind="data",
        apply=sql(
            "INSERT INTO migration.notes (plan_id, collection, ordinal, class, kind, path, documents) SELECT id,"
            " 'runs', -1, 'finding', 'orphan', 'nowhere', 1 FROM migration.plans ORDER BY created_at DESC LIMIT 1"
        ),
        caught_by=("parity.ledger",),
    ),
    Mutation(
        name="a chunk counts more documents than it read",
        kind="data",
        apply=sql(
            "UPDATE migration.chunks SET documents = documents + 1 WHERE (plan_id, collection, ordinal) = (SELECT"
            " plan_id, collection, ordinal FROM migration.chunks WHERE state = 'done'"
            " ORDER BY collection, ordinal LIMIT 1)"
        ),
        caught_by=("parity.ledger",),
    ),
    Mutation(
        name="a chunk counts other rows than it wrote, its sum kept",
        kind="data",
        apply=sql(
            "UPDATE migration.chunks SET documents = documents + 1, skipped = skipped + 1 WHERE (plan_id, collection,"
            " ordinal) = (SELECT plan_id, collection, ordinal FROM migration.chunks WHERE state = 'done'"
            " ORDER BY collection, ordinal LIMIT 1)"
        ),
        caught_by=("parity.ledger",),
    ),
    Mutation(
        name="the record of dangling references was emptied",
        kind="data",
        apply=sql("DELETE FROM migration.dangling_references"),
        caught_by=("parity.ledger",),
    ),
    Mutation(
        name="a document that appeared after the copy",
        kind="data",
        apply=_source(_appears),
        caught_by=("parity.documents", "parity.aggregates", "parity.columns"),
    ),
    Mutation(
        name="a document that changed after the copy",
        kind="data",
        apply=_source(_changes),
        caught_by=("parity.rows",),
        sometimes_by={"parity.aggregates": _FIELDS, "parity.columns": _FIELDS},
    ),
    Mutation(
        name="a document that was deleted after the copy",
        kind="data",
        apply=_source(_is_deleted),
        caught_by=("parity.extra", "parity.aggregates", "parity.columns"),
    ),
    Mutation(
        name="a document that was corrupted after the copy: it would be quarantined now",
        kind="data",
        apply=_source(_is_spoilt),
        caught_by=("parity.documents",),
        sometimes_by={"parity.aggregates": _FIELDS, "parity.columns": _FIELDS},
    ),
    Mutation(
        name="the order of keys changed",
        kind="data",
        apply=_source(_reorders),
        note="The order of keys is not compared, and each report says so; the order of list members is.",
    ),
    Mutation(
        name="a collection that belongs to no profile",
        kind="data",
        apply=_unknown_collection,
        note="Named in the census, in the plan, and in the report among what was left out.",
    ),
)
