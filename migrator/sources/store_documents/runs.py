"""``runs``: executions of schedules."""

from migrator.sources import aggregates
from migrator.sources.history import finished_words
from migrator.sources.mapping.language import Derivation, Mapped, Reading
from migrator.sources.profile import Context, Document, History, Note, Rejected
from migrator.sources.shapes import Moment, Shape
from migrator.sources.store_documents import names
from migrator.sources.store_documents.fields import ID, TENANT, field, json, own, reference, text, time, version


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


_STATS = Stats.__struct_encode_fields__


def _derive(document: Document, reading: Reading, _context: Context) -> None:
    """Note statistics below zero; reject a run of a slot that does not number its attempt."""
    run = reading.columns["runs"]
    stats = run.get("stats")
    if stats is not None and b":-" in stats:
        held = document["stats"]
        below = (name for name in _STATS if held.get(name) is not None and held[name] < 0)
        reading.notes.extend(Note("negative-stats", f"stats.{name}") for name in below)
    if "attempt" not in run and "trigger_id" in run and "scheduled_at" in run:
        raise Rejected("missing-field", "attempt", "a number, where trigger and slot are named")


RUNS = Mapped(
    name=names.RUNS,
    tables=("runs",),
    fields=(
        version("runs", names.RUN_VERSION),
        ID,
        TENANT,
        reference("runs.scheduleId", shared=True),
        field("runs.cause", "words", "trigger", words=names.RUN_CAUSES, allow_unknown=True, finding="unknown-cause"),
        field("runs.state", "words", words=names.RUN_STATES, required=True),
        json("runs.stats", Stats),
        json("runs.reason", Reason),
        time("runs.createdAt", required=True),
        time("runs.startedAt"),
        time("runs.finishedAt"),
        text("runs.error"),
        json("runs.deltas", list[Delta]),
        reference("runs.retryOf"),
    ),
    rare_fields=own(
        "runs",
        (
            "triggerId",
            "runNumber",
            "attempt",
            "scheduledAt",
            "availableAt",
            "workerId",
            "fence",
            "leaseExpiresAt",
            "externalTaskId",
            "result",
            "errorDetail",
            "traceId",
            "spanId",
            "parentSpanId",
            "triggeredBy",
            "dedupeKey",
            "metadata",
            "updatedAt",
        ),
        {"triggerId": {"shared": True}},
    ),
    derive=_derive,
    derive_if=Derivation(below_zero=("stats",)),
    ignored_fields={names.SCHEDULE_PRIORITY: int},
    history=History(at="finishedAt", words={"state": finished_words(names.RUN_STATES)}),
    measures=(
        aggregates.states("state", "$state", {"canceled": "cancelled"}),
        aggregates.free_words("cause", "$trigger", {old: new for old, new in names.RUN_CAUSES.items() if old != new}),
        *(aggregates.total(f"stats.{name}", "stats") for name in _STATS),
        aggregates.span("createdAt", "created_at"),
        aggregates.span("startedAt", "started_at"),
        aggregates.span("finishedAt", "finished_at"),
    ),
)
