"""Documents of ``runs``, of ``run_summaries``, which tell the same story, and of ``impact_snapshots``."""

from collections import deque
from collections.abc import Iterator
from typing import Any, NamedTuple

import bson
from bson.raw_bson import RawBSONDocument

from migrator.testing.demo.plan import SPAN, Plan, Stream, digest, hexadecimal, stamp, tenant_of
from migrator.testing.demo.schedules import selector

_OUTCOMES = 1024
_LIVE_SHARE = 0.01
_RECENT = 20
_TRIGGERS = ("cron", "cron", "cron", "cron", "manual", "conselier", "excitor", "policy", "content-refresh")
_ENDED = ("completed",) * 17 + ("error", "error", "cancelled")
_LIVE = ("planning", "queued", "running", "running")
_PURLS = (
    "pkg:npm/lodash@4.17.20",
    "pkg:deb/debian/openssl@3.0.11",
    "pkg:pypi/requests@2.31.0",
    "pkg:golang/x/net@0.17.0",
)
_SEVERITIES = ("critical", "high", "high", "medium", "medium", "low")
_ERRORS = (
    "scanner did not answer within 300 s",
    "registry refused the pull: 429 Too Many Requests",
    "policy evaluation failed: rule «no-kev» raised",
)
_COUNTED = ("newCriticals", "newHigh", "newMedium", "newLow")


class RunFacts(NamedTuple):
    """What a run is about, before it is spelt out; ``schedule`` is an index, instants are milliseconds."""

    number: int
    id: str
    tenant: str
    schedule: int | None
    trigger: str
    state: str
    created: int
    started: int | None
    finished: int | None
    outcome: int
    retry_of: str | None


class DemoOutcome(NamedTuple):
    """Statistics and deltas that belong together, encoded once and used by many runs."""

    stats: RawBSONDocument
    deltas: tuple[RawBSONDocument, ...]
    counters: tuple[int, int, int, int, int]
    """Deltas, then new findings by severity."""


def run_id(plan: Plan, index: int) -> str:
    """Return the id of a run: most hold a UUID, some spell out what they are."""
    digits = hexadecimal(plan.seed, "run", index)
    if index % 13 == 5 and not plan.plain:  # noqa: PLR2004 - one in thirteen
        return f"run:{digits[:6]}:2025-{index % 12 + 1:02}-{index % 28 + 1:02}:{index}"
    return f"run_{digits}"


def facts(plan: Plan) -> Iterator[RunFacts]:
    """Yield the runs in the order in which they were made; only the last ones are still alive."""
    stream = plan.stream("runs")
    total = plan.counts.runs
    alive_from = int(total * (1 - _LIVE_SHARE))
    step = SPAN // max(total, 1)
    for index in range(total):
        created = index * step + stream.below(max(step, 2))
        trigger = stream.pick(_TRIGGERS)
        # Policy runs and some manual ones belong to no schedule.
        if trigger == "policy" or (trigger == "manual" and stream.chance(0.3)):
            schedule, tenant = None, tenant_of(stream)
        else:
            schedule = stream.below(len(plan.schedules))
            tenant = plan.schedules[schedule].tenant
        state = stream.pick(_LIVE if index >= alive_from else _ENDED)
        started, finished = _times(stream, state, created)
        retry_of = None
        if trigger == "manual" and index > 100 and stream.chance(0.25):  # noqa: PLR2004 - there must be runs before
            retry_of = run_id(plan, index - stream.between(1, 100))
        outcome = stream.below(_OUTCOMES)
        yield RunFacts(
            index,
            run_id(plan, index),
            tenant,
            schedule,
            trigger,
            state,
            created,
            started,
            finished,
            outcome,
            retry_of,
        )


def _times(stream: Stream, state: str, created: int) -> tuple[int | None, int | None]:
    wait, work = stream.below(20_000), 500 + stream.below(900_000)
    if state in ("planning", "queued"):
        return None, None
    if state == "running":
        return created + wait, None
    if state == "cancelled" and stream.chance(0.5):
        return None, created + wait
    return created + wait, created + wait + work


def outcomes(plan: Plan) -> tuple[DemoOutcome, ...]:
    """Return the statistics and deltas that runs choose from; the first third has no deltas."""
    stream = plan.stream("outcomes")
    return tuple(_outcome(plan, stream, index) for index in range(_OUTCOMES))


def _outcome(plan: Plan, stream: Stream, index: int) -> DemoOutcome:
    amount = 0 if index < _OUTCOMES // 3 else stream.between(1, 3)
    deltas = [_delta(plan, stream, 1000 * index + number) for number in range(amount)]
    sums = [sum(delta[name] for delta in deltas) for name in _COUNTED]
    candidates = stream.between(5, 4_000)
    deduped = stream.below(candidates)
    stats = {
        "candidates": candidates,
        "deduped": deduped,
        "queued": candidates - deduped,
        "completed": candidates - deduped,
        "deltas": amount,
        **dict(zip(_COUNTED, sums, strict=True)),
    }
    raw = tuple(RawBSONDocument(bson.encode(delta)) for delta in deltas)
    return DemoOutcome(RawBSONDocument(bson.encode(stats)), raw, (amount, sums[0], sums[1], sums[2], sums[3]))


def _delta(plan: Plan, stream: Stream, number: int) -> dict[str, Any]:
    counts = [stream.below(limit) for limit in (2, 4, 6, 9)]
    delta: dict[str, Any] = {
        "imageDigest": digest(plan.seed, "image", number),
        "newFindings": sum(counts),
        **dict(zip(_COUNTED, counts, strict=True)),
        "kevHits": [f"CVE-2024-{stream.between(1000, 9999)}"] if stream.chance(0.2) else [],
        "topFindings": [
            {
                "purl": stream.pick(_PURLS),
                "vulnerabilityId": f"CVE-2025-{stream.between(1000, 49999)}",
                "severity": stream.pick(_SEVERITIES),
            }
            for _ in range(stream.between(1, 2))
        ],
    }
    if stream.chance(0.5):
        delta["reportUrl"] = f"https://stella.example/reports/{stream.digits(12)}"
    if stream.chance(0.2):
        delta["attestation"] = {"uuid": hexadecimal(plan.seed, "attestation", number), "verified": True}
    return delta


def run_documents(plan: Plan) -> Iterator[bytes]:
    """Yield the runs, about 1.1 KB each; runs without deltas have no such field."""
    pool = outcomes(plan)
    nothing = RawBSONDocument(
        bson.encode(dict.fromkeys(("candidates", "deduped", "queued", "completed", "deltas", *_COUNTED), 0))
    )
    encode = bson.encode
    for fact in facts(plan):
        outcome = pool[fact.outcome]
        document: dict[str, Any] = {
            "_id": fact.id,
            "schemaVersion": "scheduler.run@1",
            "id": fact.id,
            "tenantId": fact.tenant,
        }
        if fact.schedule is not None:
            document["scheduleId"] = plan.schedules[fact.schedule].id
        document["trigger"] = fact.trigger
        document["state"] = fact.state
        document["stats"] = nothing if fact.started is None else outcome.stats
        document["reason"] = _reason(fact)
        document["createdAt"] = stamp(fact.created)
        if fact.started is not None:
            document["startedAt"] = stamp(fact.started)
        if fact.finished is not None:
            document["finishedAt"] = stamp(fact.finished)
        if fact.state == "error":
            document["error"] = _ERRORS[fact.outcome % len(_ERRORS)]
        if fact.started is not None and outcome.deltas:
            document["deltas"] = outcome.deltas
        if fact.retry_of is not None:
            document["retryOf"] = fact.retry_of
        yield encode(document)


def _reason(fact: RunFacts) -> dict[str, str]:
    if fact.trigger == "manual":
        return {"manualReason": "retry after a failure" if fact.retry_of else "asked for by the release manager"}
    if fact.trigger in ("conselier", "excitor"):
        return {
            f"{fact.trigger}ExportId": f"export-{fact.number % 9973:05}",
            "cursor": stamp(fact.created - fact.created % 3_600_000),
            "impactWindowFrom": stamp(max(fact.created - 3_600_000, 0)),
            "impactWindowTo": stamp(fact.created),
        }
    return {}


class _RunTotals:
    """What one schedule's runs add up to."""

    def __init__(self) -> None:
        self.states: dict[str, int] = dict.fromkeys(
            ("planning", "queued", "running", "completed", "error", "cancelled"), 0
        )
        self.found = [0, 0, 0, 0, 0]
        self.recent: deque[tuple[RunFacts, tuple[int, ...]]] = deque(maxlen=_RECENT)

    def add(self, fact: RunFacts, found: tuple[int, ...]) -> None:
        self.states[fact.state] += 1
        self.recent.appendleft((fact, found))
        for place, amount in enumerate(found):
            self.found[place] += amount


def summaries(plan: Plan) -> Iterator[bytes]:
    """Yield one summary for every schedule that ever ran, as its runs give it; the newest twenty runs are listed."""
    pool = outcomes(plan)
    stories: dict[int, _RunTotals] = {}
    for fact in facts(plan):
        if fact.schedule is not None:
            found = (0, 0, 0, 0, 0) if fact.started is None else pool[fact.outcome].counters
            stories.setdefault(fact.schedule, _RunTotals()).add(fact, found)
    for schedule in sorted(stories):
        yield bson.encode(_summary(plan, schedule, stories[schedule]))


def _summary(plan: Plan, schedule: int, story: _RunTotals) -> dict[str, Any]:
    owner = plan.schedules[schedule]
    recent = [_entry(fact, found) for fact, found in story.recent]
    newest = story.recent[0][0]
    return {
        "_id": f"{owner.tenant}:{owner.id}",
        "tenantId": owner.tenant,
        "scheduleId": owner.id,
        "updatedAt": stamp(max(newest.created, newest.finished or 0)),
        "lastRun": recent[0],
        "recent": recent,
        "counters": {
            "total": sum(story.states.values()),
            **story.states,
            **dict(
                zip(
                    ("totalDeltas", "totalNewCriticals", "totalNewHigh", "totalNewMedium", "totalNewLow"),
                    story.found,
                    strict=True,
                )
            ),
        },
    }


def _entry(fact: RunFacts, counts: tuple[int, ...]) -> dict[str, Any]:
    entry: dict[str, Any] = {"runId": fact.id, "state": fact.state, "createdAt": stamp(fact.created)}
    if fact.finished is not None:
        entry["finishedAt"] = stamp(fact.finished)
    entry["deltas"] = counts[0]
    return entry


_IMAGES = 2048
_FEW = (1, 2, 3, 5, 8)
_MANY = (76, 80, 84)


def snapshot_documents(plan: Plan) -> Iterator[bytes]:
    """Yield the snapshots; images come from a pool that is encoded once."""
    stream = plan.stream("impact-snapshots")
    images = image_pool(plan)
    for index in range(plan.counts.impact_snapshots):
        amount = stream.pick(_MANY if index % 10 == 0 else _FEW)
        yield snapshot(plan, stream, images, index, amount)


def image_pool(plan: Plan) -> list[RawBSONDocument]:
    """Return the images that snapshots choose from, about 330 bytes each."""
    stream = plan.stream("images")
    return [RawBSONDocument(bson.encode(_image(plan, stream, index))) for index in range(_IMAGES)]


def snapshot(plan: Plan, stream: Stream, images: list[RawBSONDocument], index: int, amount: int) -> bytes:
    """Return one snapshot of ``amount`` images."""
    tenant = tenant_of(stream)
    identifier = f"imp_{hexadecimal(plan.seed, 'snapshot', index)}"
    start = stream.below(len(images))
    chosen = [images[(start + number) % len(images)] for number in range(amount)]
    document: dict[str, Any] = {
        "_id": identifier,
        "schemaVersion": "scheduler.impact-set@1",
        "tenantId": tenant,
    }
    if stream.chance(0.7) and plan.counts.runs:
        document["runId"] = run_id(plan, stream.below(plan.counts.runs))
    document |= {
        "selector": selector(plan, stream, index, tenant),
        "images": chosen,
        "usageOnly": stream.chance(0.4),
        "generatedAt": stamp(stream.below(SPAN)),
        "total": amount,
        "snapshotId": identifier,
    }
    return bson.encode(document)


def _image(plan: Plan, stream: Stream, index: int) -> dict[str, Any]:
    name = stream.pick(("api", "web", "worker", "cron", "gateway", "search"))
    return {
        "imageDigest": digest(plan.seed, "image", index),
        "registry": "registry.example",
        "repository": f"shop/{name}",
        "namespaces": [stream.pick(("payments", "checkout", "billing"))],
        "tags": [f"v{stream.between(1, 4)}.{stream.below(20)}.{stream.below(9)}"],
        "usedByEntrypoint": stream.chance(0.6),
        "labels": {"env": stream.pick(("prod", "staging")), "team": stream.pick(("payments", "platform"))},
    }
