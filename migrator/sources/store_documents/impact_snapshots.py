"""``impact_snapshots``: the images that a selection matched; documents up to 16 MB."""

from migrator.sources import aggregates
from migrator.sources.mapping.language import Field, Mapped
from migrator.sources.shapes import Int64, Shape
from migrator.sources.store_documents import names
from migrator.sources.store_documents.fields import field, json, reference, text, time, version
from migrator.sources.store_documents.selector import Selector


class Image(Shape):
    """An image and where it is used."""

    image_digest: str | None = None
    registry: str | None = None
    repository: str | None = None
    namespaces: list[str] | None = None
    tags: list[str] | None = None
    used_by_entrypoint: bool | None = None
    labels: dict[str, str] | None = None


IMPACT_SNAPSHOTS = Mapped(
    name=names.IMPACT_SNAPSHOTS,
    tables=("impact_snapshots",),
    fields=(
        version("impact_snapshots", names.IMPACT_SET_VERSION),
        Field(path="tenantId", converter="tenant", also=("selector.tenantId",), finding="tenant-from-selector"),
        reference("impact_snapshots.runId"),
        json("impact_snapshots.selector", Selector, respelled={"scope": names.SCOPES}),
        json("impact_snapshots.images", list[Image]),
        field("impact_snapshots.usageOnly", "flag"),
        time("impact_snapshots.generatedAt"),
        field("impact_snapshots.total", "number", shape=Int64),
        text("impact_snapshots.snapshotId"),
    ),
    measures=(
        aggregates.flag("usage_only", "$usageOnly", default=False),
        aggregates.plain_total("total", "total"),
        aggregates.length("images", "images"),
        aggregates.span("generatedAt", "generated_at"),
    ),
)
