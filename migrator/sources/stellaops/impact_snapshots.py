"""``impact_snapshots``: the images that a selection matched; documents up to 16 MB."""

from typing import Any

import msgspec

from migrator.records import ImpactSnapshot, Run, attach_extra, remainder_of
from migrator.sources import aggregates, tenants
from migrator.sources.profile import Collection, Context, Decoded, Document, Note, Rows
from migrator.sources.shapes import Int64, Moment, Shape, filled, keys, known_paths, ordered_reader, read, text
from migrator.sources.stellaops import ids, names
from migrator.sources.stellaops import selector as selectors
from migrator.sources.stellaops.ids import by_field
from migrator.sources.stellaops.selector import Selector
from migrator.values import identity, jsonb
from migrator.values.times import format_iso

SOURCE = names.source(names.IMPACT_SNAPSHOTS)


class Image(Shape):
    """An image and where it is used."""

    image_digest: str | None = None
    registry: str | None = None
    repository: str | None = None
    namespaces: list[str] | None = None
    tags: list[str] | None = None
    used_by_entrypoint: bool | None = None
    labels: dict[str, str] | None = None


class ImpactSetDocument(Shape, kw_only=True):
    """An impact set as it is stored."""

    key: Any = msgspec.field(name="_id")
    schema_version: str | None = None
    tenant_id: str | None = None
    run_id: str | None = None
    selector: Selector | None = None
    images: list[Image] | None = None
    usage_only: bool | None = None
    generated_at: Moment = None
    total: Int64 | None = None
    snapshot_id: str | None = None


_NAMES = keys(ImpactSetDocument)
_images = ordered_reader(Image, many=True)


def decode(document: Document, context: Context) -> Decoded:
    """Return the snapshot of a document."""
    found = read(document, ImpactSetDocument)
    notes: list[Note] = []
    chosen = found.selector
    tenant = tenants.tenant_of(found.tenant_id, context, notes, selector=None if chosen is None else chosen.tenant_id)
    source_id = identity.source_id(found.key)
    run = text(found.run_id, "runId")
    row = ImpactSnapshot(
        id=identity.row_id("impact_snapshots", tenant, names.IMPACT_SNAPSHOTS, source_id),
        tenant_id=tenant,
        source=SOURCE,
        source_id=source_id,
        run_id=None if run is None else ids.run_id(tenant, run),
        snapshot_id=text(found.snapshot_id, "snapshotId"),
        selector=None if chosen is None else selectors.stored(document["selector"], chosen, "selector", notes),
        images=None if found.images is None else jsonb.encode(document["images"]),
        usage_only=found.usage_only,
        total=found.total,
        generated_at=found.generated_at,
        schema_version=ids.version_of(found.schema_version, names.IMPACT_SET_VERSION, notes),
    )
    return Decoded((row,), tuple(notes))


def encode(rows: Rows) -> Document:
    """Return the document of a snapshot."""
    row: Any = rows[0]
    return filled(
        _NAMES,
        (
            identity.parse_source_id(row.source_id),
            row.schema_version,
            row.tenant_id,
            ids.run_text(row.run_id),
            None if row.selector is None else selectors.read_back(row.selector),
            None if row.images is None else _images(row.images),
            row.usage_only,
            None if row.generated_at is None else format_iso(row.generated_at),
            row.total,
            row.snapshot_id,
        ),
    )


COLLECTION = Collection(
    name=names.IMPACT_SNAPSHOTS,
    tables=(ImpactSnapshot,),
    decode=decode,
    encode=encode,
    references=(by_field(ImpactSnapshot, "run_id", Run, "runId"),),
    after=(names.RUNS,),
    tenant_expression=aggregates.tenant("$selector.tenantId"),
    measures=(
        aggregates.flag("usage_only", "$usageOnly", default=False),
        aggregates.plain_total("total", "total"),
        aggregates.length("images", "images"),
        aggregates.span("generatedAt", "generated_at"),
    ),
    attach=attach_extra,
    remainder=remainder_of,
    reference_paths=frozenset({"runId"}),
    known=known_paths(ImpactSetDocument),
)
