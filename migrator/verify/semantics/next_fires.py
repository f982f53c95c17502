"""When triggers fire next: by the rule in the source's document, by the stored trigger, and whether they ever do."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, time, timedelta
from typing import Any, Final, LiteralString

import msgspec

from migrator import cron
from migrator.connections.mongo import translate_errors
from migrator.connections.postgres import Connection
from migrator.cron.expression import CronError
from migrator.parity.firing_rules import (
    DIFFERENCE_TEXTS,
    READERS,
    FiringRule,
    compare_fires,
    decoded_rule,
    is_live,
    stellaops_live,
    stored_rule,
    usable,
)
from migrator.parity.never_firing_schedules import LIVE, WITHOUT_TRIGGER, with_rule
from migrator.pipeline import ledger
from migrator.pipeline.extract import batch_documents
from migrator.pipeline.transform import decode_document
from migrator.records import Trigger
from migrator.sources.profile import Collection, Rejected, Skipped
from migrator.values import document as documents
from migrator.values import identity
from migrator.verify.semantics.anomalies import NO_SOURCE, Anomalies, RowKey, SourceRows, batches

DOCUMENT_BYTES = 4_096
"""Taken for the size of a document with a rule when a batch is asked for."""

_COLUMNS = tuple(name for name in Trigger.__struct_fields__ if name not in ("source_spec", "extra"))
_STORED: LiteralString = (
    f"SELECT {', '.join(f't.{name}' for name in _COLUMNS)}, s.enabled, s.status, s.deleted_at IS NOT NULL"  # noqa: S608 - the record's own column names
    " FROM scheduler.triggers AS t JOIN scheduler.schedules AS s ON s.id = t.schedule_id"
    " AND s.tenant_id = t.tenant_id WHERE t.source = %s AND t.source_id = ANY(%s)"
)


_RULES, _FIRES, _CHANGES = "rules", "fires compared", "changes of the clock crossed"


def compare_rules(source: SourceRows, target: Connection, anomalies: Anomalies) -> dict[str, int]:
    """Compare the fires of every document that may have a rule with those of its trigger; return what was counted."""
    done = dict.fromkeys((_RULES, _FIRES, _CHANGES), 0)
    since = datetime.combine(source.plan.as_of.astimezone(UTC).date(), time(), UTC)
    present = {one.name for one in source.sessions.survey()[0]}
    for collection in source.sessions.profile.collections:
        name = source.sessions.profile.source_of(collection.name)
        if Trigger not in collection.tables or source.sessions.name_of(collection.name) not in present:
            continue
        quarantined = ledger.quarantined_ids(target, source.sessions.profile.name, collection.name)
        for batch in _document_batches(source, collection):
            wanted = {key: rule for key, rule in _rules(source, collection, name, batch) if key not in quarantined}
            found = _stored_rules(target, name, list(wanted))
            for key, rule in wanted.items():
                result = compare_fires(rule, found.get(key), since)
                done[_RULES] += rule is not None
                done[_FIRES] += result.fires
                done[_CHANGES] += result.changes
                if result.apart is not None:
                    title, fix = DIFFERENCE_TEXTS[result.apart]
                    anomalies.add(
                        "difference", result.apart, title, fix, key=key, table="triggers", collection=collection.name
                    )
    return done


def _document_batches(source: SourceRows, collection: Collection) -> Iterator[list[bytes]]:
    with translate_errors("the source"):
        batch_size = batch_documents(DOCUMENT_BYTES)
        for batch in source.sessions.reader.of(collection, source.context.history_before).batches(
            batch_size=batch_size
        ):
            yield documents.split(batch)


def _rules(
    source: SourceRows, collection: Collection, name: str, raws: list[bytes]
) -> Iterator[tuple[str, FiringRule | None]]:
    """Yield source id and rule of each document; one that cannot be read is in quarantine, or ``parity`` misses it."""
    read = READERS.get(name)
    if read is None:
        for raw in raws:
            try:
                yield (
                    identity.source_id_of(raw),
                    decoded_rule(decode_document(collection, source.context, raw).rows),
                )
            except (Rejected, Skipped):
                continue
        return
    decoded: list[tuple[str, Mapping[str, Any]]] = []
    for raw in raws:
        try:
            decoded.append((identity.source_id_of(raw), documents.decode(raw)))
        except documents.Undecodable:
            continue
    living = _live_schedules(source, [document for _, document in decoded]) if name == "stellaops/triggers" else None
    for key, document in decoded:
        rule = usable(read(document))
        if rule is not None and living is not None and document.get("scheduleId") not in living:
            rule = msgspec.structs.replace(rule, live=False)
        yield key, rule


def _live_schedules(source: SourceRows, triggers: list[Mapping[str, Any]]) -> set[str]:
    """Return which of the schedules that these triggers name go on firing."""
    names = [one["scheduleId"] for one in triggers if isinstance(one.get("scheduleId"), str)]
    with translate_errors("the source"):
        batches = source.sessions.source[source.sessions.name_of("schedules")].find_raw_batches(
            {"_id": {"$in": names}}, {"enabled": 1, "toolEnabled": 1, "status": 1, "deletedAt": 1}
        )
        found = documents.readable(batches)
        return {one["_id"] for one in found if stellaops_live(one)}


def _stored_rules(target: Connection, source: str, keys: list[str]) -> dict[str, FiringRule]:
    rules: dict[str, FiringRule] = {}
    width = len(_COLUMNS)
    for row in target.execute(_STORED, (source, keys)):
        trigger = Trigger(**dict(zip(_COLUMNS, row[:width], strict=True)))
        enabled, status, deleted = row[width:]
        live = trigger.enabled and is_live(enabled=enabled, status=status, deleted=deleted)
        rules[str(trigger.source_id)] = stored_rule(trigger, live=live)
    return rules


_NEVER_FIRING: LiteralString = (
    f"SELECT s.id, s.source, s.source_id FROM scheduler.schedules AS s WHERE {WITHOUT_TRIGGER} ORDER BY s.id"  # noqa: S608 - words of the package
)
_ARMED: LiteralString = (
    "SELECT t.id, t.source, t.source_id, t.kind, t.cron_dialect, t.cron_expression, t.timezone, t.next_fire_at"  # noqa: S608 - words of this module
    f" FROM scheduler.triggers AS t JOIN scheduler.schedules AS s ON s.id = t.schedule_id AND s.tenant_id = t.tenant_id"
    f" WHERE {LIVE} AND t.enabled AND t.kind <> 'event' AND (t.end_at IS NULL OR t.next_fire_at IS NOT NULL)"
    " AND (t.max_fires IS NULL OR t.fire_count < t.max_fires) ORDER BY t.id"
)

_EPOCH: Final = datetime(2026, 1, 1, tzinfo=UTC)
"""From here on a line is looked at that may never fire; not the clock, so that two runs say the same."""

NEVER_FIRING = "an enabled schedule that never fires"
UNARMED = "an enabled trigger without a next fire"
OFF_SLOT = "a next fire that the trigger's own rule does not give"
NEVER = "an enabled trigger whose line never fires"


_SCHEDULES, _TRIGGERS, _TO_BE_ARMED = "enabled schedules", "enabled triggers", "next fire computed by the first leader"


def check_schedules(target: Connection, source: SourceRows | None, anomalies: Anomalies) -> dict[str, int]:
    """Find what will never fire, or at another time than its rule says; return what was counted."""
    done = dict.fromkeys((_SCHEDULES, _TRIGGERS, _TO_BE_ARMED), 0)
    _check_never_firing(target, source, anomalies)
    row = target.execute(f"SELECT count(*) FROM scheduler.schedules AS s WHERE {LIVE}").fetchone()  # noqa: S608 - as above
    done[_SCHEDULES] = int(row[0]) if row else 0
    for batch in batches(target, _ARMED):
        _check_armed(batch, source, anomalies, done)
    return done


def _check_never_firing(target: Connection, source: SourceRows | None, anomalies: Anomalies) -> None:
    for batch in batches(target, _NEVER_FIRING):
        keys = [RowKey("schedules", row[0], row[1], row[2]) for row in batch]
        asked = _source_triggers(source, keys)
        for key in keys:
            if source is None and key.source is not None:
                anomalies.add_doubt(NO_SOURCE)
                continue
            explained = key.source is not None and key.source_id not in asked
            anomalies.add(
                "explained" if explained else "difference",
                "never-firing",
                NEVER_FIRING,
                "the source names no rule that can be evaluated: it is run by hand or by others"
                if explained
                else "make its trigger again: run backfill, or look for who removed or disabled it",
                key=key.source_id or str(key.id),
                table="schedules",
            )


def _source_triggers(source: SourceRows | None, keys: list[RowKey]) -> set[str]:
    """Return the source ids of the schedules for which the source asks a trigger that is enabled."""
    if source is None:
        return set()
    triggers: set[str] = set()
    for name in sorted({key.source for key in keys if key.source is not None}):
        ids = [key.source_id for key in keys if key.source == name and key.source_id is not None]
        if (collection := source.collection_of(name)) is not None:
            triggers |= with_rule(source.sessions, source.context, collection, ids)
    return triggers


def _check_armed(
    batch: list[tuple[Any, ...]], source: SourceRows | None, anomalies: Anomalies, done: dict[str, int]
) -> None:
    suspects: list[tuple[str, str, tuple[Any, ...]]] = []
    for row in batch:
        done[_TRIGGERS] += 1
        _, origin, _, kind, dialect, line, zone, next_fire = row
        if next_fire is None:
            if kind == "cron" and _first_fire(dialect, line, zone) is None:
                suspects.append(("never-fires", NEVER, row))
            elif origin is None and kind != "one_time":
                suspects.append(("unarmed", UNARMED, row))
            else:
                done[_TO_BE_ARMED] += 1
        elif kind == "cron" and not _on_slot(dialect, line, zone, next_fire):
            suspects.append(("off-slot", OFF_SLOT, row))
    source_rows = {} if source is None else source.rows(RowKey("triggers", *row[:3]) for _, _, row in suspects)
    for code, title, row in suspects:
        if source is None and row[1] is not None:
            anomalies.add_doubt(NO_SOURCE)
            continue
        was = source_rows.get(("triggers", row[0]))
        explained = row[1] is not None and was is not None and getattr(was, "next_fire_at", None) == row[7]
        anomalies.add(
            "explained" if explained else "difference",
            code,
            title,
            "the source's own trigger says the same" if explained else "compute it anew from the rule (reschedule)",
            key=row[2] or str(row[0]),
            table="triggers",
            path="next_fire_at",
        )


def _first_fire(dialect: str, line: str, zone: str | None) -> object:
    try:
        return cron.next_fire(dialect, line, zone, _EPOCH)
    except CronError:
        return None


def _on_slot(dialect: str, line: str, zone: str | None, moment: datetime) -> bool:
    try:
        return cron.next_fire(dialect, line, zone, moment - timedelta(seconds=1)) == moment
    except CronError:
        return False
