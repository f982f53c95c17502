"""The next fires of every trigger: by the rule in the source's document, and by the trigger that is stored."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, time
from typing import Any, LiteralString

import msgspec

from migrator.parity.fires import WORDS, compare, usable
from migrator.parity.rules import READERS, Rule, decoded_rule, is_live, stellaops_live, stored_rule
from migrator.pipeline import ledger
from migrator.pipeline.extract import batch_documents, raw_batches
from migrator.pipeline.transform import prepare
from migrator.records.trigger import Trigger
from migrator.sources.profile import Collection, Rejected, Skipped
from migrator.store.mongo.client import speaking_of
from migrator.store.postgres.connection import Connection
from migrator.values import document as documents
from migrator.values import identity
from migrator.values.rawid import raw_id
from migrator.verify.atsource import AtSource
from migrator.verify.meaning.opened import Odd

DOCUMENT_BYTES = 4_096
"""Taken for the size of a document with a rule when a batch is asked for."""

_COLUMNS = tuple(name for name in Trigger.__struct_fields__ if name not in ("source_spec", "extra"))
_STORED: LiteralString = (
    f"SELECT {', '.join(f't.{name}' for name in _COLUMNS)}, s.enabled, s.status, s.deleted_at IS NOT NULL"  # noqa: S608 - the record's own column names
    " FROM scheduler.triggers AS t JOIN scheduler.schedules AS s ON s.id = t.schedule_id"
    " WHERE t.source = %s AND t.source_id = ANY(%s)"
)


class Compared:
    """How many rules were compared, and over how many fires."""

    def __init__(self) -> None:
        """Begin at nothing."""
        self.rules = self.fires = self.changes = 0
        self.decoded: set[str] = set()
        """Sources whose rules could only be read by the profile's decode."""


def compare_rules(source: AtSource, target: Connection, odd: Odd) -> Compared:
    """Compare the fires of every document that may have a rule with those of its trigger."""
    done = Compared()
    since = datetime.combine(source.plan.as_of.astimezone(UTC).date(), time(), UTC)
    present = set(source.sessions.source.list_collection_names())
    for collection in source.sessions.profile.collections:
        name = source.sessions.profile.source_of(collection.name)
        if Trigger not in collection.tables or source.sessions.name_of(collection.name) not in present:
            continue
        if name not in READERS:
            done.decoded.add(name)
        aside = ledger.quarantined_ids(target, source.sessions.profile.name, collection.name)
        for batch in _batches(source, collection):
            wanted = {key: rule for key, rule in _rules(source, collection, name, batch) if key not in aside}
            found = _stored(target, name, list(wanted))
            for key, rule in wanted.items():
                result = compare(rule, found.get(key), since)
                done.rules += rule is not None
                done.fires += result.fires
                done.changes += result.changes
                if result.apart is not None:
                    title, fix = WORDS[result.apart]
                    odd.add(
                        "difference", result.apart, title, fix, key=key, table="triggers", collection=collection.name
                    )
    return done


def _batches(source: AtSource, collection: Collection) -> Iterator[list[bytes]]:
    with speaking_of("the source"):
        for batch in raw_batches(
            source.sessions.source,
            source.sessions.name_of(collection.name),
            lower=None,
            upper=None,
            condition={},
            batch_size=batch_documents(DOCUMENT_BYTES),
        ):
            yield documents.split(batch)


def _rules(source: AtSource, collection: Collection, name: str, raws: list[bytes]) -> Iterator[tuple[str, Rule | None]]:
    """Yield source id and rule of each document; one that cannot be read is in quarantine, or ``parity`` misses it."""
    read = READERS.get(name)
    if read is None:
        for raw in raws:
            try:
                yield identity.source_id(raw_id(raw)), decoded_rule(prepare(collection, source.context, raw).rows)
            except (Rejected, Skipped):
                continue
        return
    decoded: list[tuple[str, Mapping[str, Any]]] = []
    for raw in raws:
        try:
            decoded.append((identity.source_id(raw_id(raw)), documents.decode(raw)))
        except documents.Undecodable:
            continue
    living = _living(source, [document for _, document in decoded]) if name == "stellaops/triggers" else None
    for key, document in decoded:
        rule = usable(read(document))
        if rule is not None and living is not None and document.get("scheduleId") not in living:
            rule = msgspec.structs.replace(rule, live=False)
        yield key, rule


def _living(source: AtSource, triggers: list[Mapping[str, Any]]) -> set[str]:
    """Return which of the schedules that these triggers name go on firing."""
    names = [one["scheduleId"] for one in triggers if isinstance(one.get("scheduleId"), str)]
    with speaking_of("the source"):
        batches = source.sessions.source[source.sessions.name_of("schedules")].find_raw_batches(
            {"_id": {"$in": names}}, {"enabled": 1, "toolEnabled": 1, "status": 1, "deletedAt": 1}
        )
        found = documents.readable(batches)
        return {one["_id"] for one in found if stellaops_live(one)}


def _stored(target: Connection, source: str, keys: list[str]) -> dict[str, Rule]:
    rules: dict[str, Rule] = {}
    width = len(_COLUMNS)
    for row in target.execute(_STORED, (source, keys)):
        trigger = Trigger(**dict(zip(_COLUMNS, row[:width], strict=True)))
        enabled, status, deleted = row[width:]
        live = trigger.enabled and is_live(enabled=enabled, status=status, deleted=deleted)
        rules[str(trigger.source_id)] = stored_rule(trigger, live=live)
    return rules
