"""Documents of ``impact_snapshots``: most are small, one in ten is a whole estate of about 22 KB."""

from collections.abc import Iterator
from typing import Any

import bson
from bson.raw_bson import RawBSONDocument

from migrator.embedded.demo import runs
from migrator.embedded.demo.plan import Plan, tenant_of
from migrator.embedded.demo.schedules import selector
from migrator.embedded.demo.streams import SPAN, Stream, digest, hexadecimal, stamp

_IMAGES = 2048
_FEW = (1, 2, 3, 5, 8)
_MANY = (76, 80, 84)


def documents(plan: Plan) -> Iterator[bytes]:
    """Yield the snapshots; images come from a pool that is encoded once."""
    stream = plan.stream("impact-snapshots")
    images = pool(plan)
    for index in range(plan.counts.impact_snapshots):
        amount = stream.pick(_MANY if index % 10 == 0 else _FEW)
        yield snapshot(plan, stream, images, index, amount)


def pool(plan: Plan) -> list[RawBSONDocument]:
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
        document["runId"] = runs.identifier(plan, stream.below(plan.counts.runs))
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
