"""``runs``: executions of schedules."""

from datetime import datetime
from types import MappingProxyType
from typing import Any

import msgspec

from migrator.records import Run, Schedule, Trigger, attach_extra, remainder_of
from migrator.sources import aggregates, tenants
from migrator.sources.profile import Collection, Context, Decoded, Document, Note, Rejected, Rows
from migrator.sources.shapes import (
    Moment,
    Shape,
    choice,
    filled,
    keys,
    known_paths,
    ordered_reader,
    plain,
    read,
    required,
    text,
)
from migrator.sources.stellaops import ids, names
from migrator.sources.stellaops.columns import OwnFields
from migrator.sources.stellaops.ids import by_field
from migrator.sources.stellaops.own import SCHEDULE_PRIORITY
from migrator.values import identity, jsonb
from migrator.values.times import format_iso

SOURCE = names.source(names.RUNS)


class Stats(Shape):
    """Counters of a run; they never decrease while it lives."""

    candidates: int | None = None
    deduped: int | None = None
    queued: int | None = None
    completed: int | None = None
    deltas: int | None = None
    new_criticals: int | None = None
    new_high: int | None = None
    new_medium: int | None = None
    new_low: int | None = None


class Reason(Shape):
    """What made it run; the words in it are never rewritten."""

    manual_reason: str | None = None
    conselier_export_id: str | None = None
    excitor_export_id: str | None = None
    cursor: str | None = None
    impact_window_from: Moment = None
    impact_window_to: Moment = None


class Finding(Shape):
    """A finding of a delta."""

    purl: str | None = None
    vulnerability_id: str | None = None
    severity: names.Severity | None = None
    link: str | None = None


class Attestation(Shape):
    """Where a delta is attested."""

    uuid: str | None = None
    verified: bool | None = None


class Delta(Shape):
    """What a run found new on one image."""

    image_digest: str | None = None
    new_findings: int | None = None
    new_criticals: int | None = None
    new_high: int | None = None
    new_medium: int | None = None
    new_low: int | None = None
    kev_hits: list[str] | None = None
    top_findings: list[Finding] | None = None
    report_url: str | None = None
    attestation: Attestation | None = None
    detected_at: Moment = None


class RunDocument(Shape, kw_only=True):
    """A run as the source writes it."""

    key: Any = msgspec.field(name="_id")
    schema_version: str | None = None
    id: Any = None
    tenant_id: str | None = None
    schedule_id: str | None = None
    trigger: str | None = None
    state: str
    stats: Stats | None = None
    reason: Reason | None = None
    created_at: Moment
    started_at: Moment = None
    finished_at: Moment = None
    error: str | None = None
    deltas: list[Delta] | None = None
    retry_of: str | None = None


OWN = OwnFields(
    Run,
    (
        "trigger_id",
        "run_number",
        "attempt",
        "scheduled_at",
        "available_at",
        "worker_id",
        "fence",
        "lease_expires_at",
        "external_task_id",
        "result",
        "error_detail",
        "trace_id",
        "span_id",
        "parent_span_id",
        "triggered_by",
        "dedupe_key",
        "metadata",
        "updated_at",
    ),
)
"""What our own store adds to a run."""

_NAMES = keys(RunDocument)
_stats, _reason, _deltas = ordered_reader(Stats), ordered_reader(Reason), ordered_reader(Delta, many=True)


def decode(document: Document, context: Context) -> Decoded:
    """Return the run of a document."""
    found = read(document, RunDocument)
    notes: list[Note] = []
    tenant = tenants.tenant_of(found.tenant_id, context, notes)
    source_id = identity.source_id(found.key)
    if found.id != found.key:
        ids.compare_ids(found.key, found.id, notes)
    stats = None if found.stats is None else jsonb.encode(document["stats"])
    if found.stats is not None and stats is not None and b":-" in stats:
        _note_negative(found.stats, notes)
    started, finished = found.started_at, found.finished_at
    schedule = text(found.schedule_id, "scheduleId")
    retried = None if found.retry_of is None else text(found.retry_of, "retryOf")
    row = Run(
        id=identity.row_id("runs", tenant, names.RUNS, source_id),
        tenant_id=tenant,
        source=SOURCE,
        source_id=source_id,
        schedule_id=None if schedule is None else ids.schedule_id(tenant, schedule),
        retry_of=None if retried is None else ids.run_id(tenant, retried),
        cause=None if found.trigger is None else _cause(found.trigger, notes),
        state=choice(found.state, names.RUN_STATES, "state"),
        created_at=required(found.created_at, "createdAt"),
        started_at=started,
        finished_at=finished,
        duration_ms=None if started is None or finished is None else _duration(started, finished, notes),
        stats=stats,
        reason=None if found.reason is None else jsonb.encode(document["reason"]),
        deltas=None if found.deltas is None else jsonb.encode(document["deltas"]),
        error=None if found.error is None else text(found.error, "error"),
        schema_version=ids.version_of(found.schema_version, names.RUN_VERSION, notes),
    )
    if not OWN.keys.isdisjoint(document):
        row = msgspec.structs.replace(row, **_own(document, tenant))
    if row.state != found.state:
        notes.append(Note("alias", "state"))
    return Decoded((row,), tuple(notes))


def _cause(word: str, notes: list[Note]) -> str:
    cause = names.RUN_CAUSES.get(word) if type(word) is str else None
    if cause is None:
        notes.append(Note("unknown-cause", "trigger"))
        return plain(word, "trigger")
    if cause != word:
        notes.append(Note("alias", "trigger"))
    return cause


def _duration(started: datetime, finished: datetime, notes: list[Note]) -> int | None:
    if finished < started:
        notes.append(Note("finished-before-started", "finishedAt"))
        return None
    lasted = finished - started
    return (lasted.days * 86_400 + lasted.seconds) * 1_000 + lasted.microseconds // 1_000


def _note_negative(stats: Stats, notes: list[Note]) -> None:
    for name, value in zip(Stats.__struct_encode_fields__, msgspec.structs.astuple(stats), strict=True):
        if value is not None and value < 0:
            notes.append(Note("negative-stats", f"stats.{name}"))


def _own(document: Document, tenant: str) -> dict[str, Any]:
    own = OWN.decode(document, tenant)
    if "trigger_id" in own and "scheduled_at" in own and "attempt" not in own:
        raise Rejected("missing-field", "attempt", "a number, where trigger and slot are named")
    return own


def encode(rows: Rows) -> Document:
    """Return the document of a run."""
    row: Any = rows[0]
    key, own_id = ids.keys_of(row.source_id)
    document = filled(
        _NAMES,
        (
            key,
            row.schema_version,
            own_id,
            row.tenant_id,
            ids.schedule_text(row.schedule_id),
            row.cause,
            row.state,
            None if row.stats is None else _stats(row.stats),
            None if row.reason is None else _reason(row.reason),
            format_iso(row.created_at),
            None if row.started_at is None else format_iso(row.started_at),
            None if row.finished_at is None else format_iso(row.finished_at),
            row.error,
            None if row.deltas is None else _deltas(row.deltas),
            None if row.retry_of is None else ids.run_text(row.retry_of),
        ),
    )
    document.update(OWN.encode(row))
    return document


_RENAMED = {
    "feedser": "conselier",
    "concelier": "conselier",
    "vexer": "excitor",
    "excititor": "excitor",
    "contentrefresh": "content-refresh",
}

COLLECTION = Collection(
    name=names.RUNS,
    tables=(Run,),
    decode=decode,
    encode=encode,
    references=(
        by_field(Run, "schedule_id", Schedule, "scheduleId", shared=True),
        by_field(Run, "retry_of", Run, "retryOf"),
        by_field(Run, "trigger_id", Trigger, "triggerId", shared=True),
    ),
    after=(names.SCHEDULES, names.TRIGGERS),
    tenant_expression=aggregates.tenant(),
    measures=(
        aggregates.states("state", "$state", {"canceled": "cancelled"}),
        aggregates.free_words("cause", "$trigger", _RENAMED),
        *(aggregates.total(f"stats.{name}", "stats") for name in Stats.__struct_encode_fields__),
        aggregates.span("createdAt", "created_at"),
        aggregates.span("startedAt", "started_at"),
        aggregates.span("finishedAt", "finished_at"),
    ),
    attach=attach_extra,
    remainder=remainder_of,
    unique=(
        ("tenant_id", "schedule_id", "run_number"),
        ("tenant_id", "trigger_id", "scheduled_at", "attempt"),
        ("tenant_id", "trigger_id", "dedupe_key"),
    ),
    reference_paths=frozenset({"scheduleId", "retryOf", "triggerId"}),
    known=known_paths(RunDocument) | OWN.keys | {SCHEDULE_PRIORITY},
    derived=MappingProxyType({SCHEDULE_PRIORITY: int}),
)
