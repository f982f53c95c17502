"""What a schedule or an impact set selects."""

from migrator.sources.shapes import Shape
from migrator.sources.store_documents import names


class Label(Shape):
    """A label and its accepted values."""

    key: str | None = None
    values: list[str] | None = None


class Selector(Shape):
    """A selection of images; filters that select nothing stay as empty lists."""

    scope: names.Scope | None = None
    tenant_id: str | None = None
    namespaces: list[str] | None = None
    repositories: list[str] | None = None
    digests: list[str] | None = None
    include_tags: list[str] | None = None
    labels: list[Label] | None = None
    resolves_tags: bool | None = None
