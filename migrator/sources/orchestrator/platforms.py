"""The platforms of ``orchestrator`` are tenants; its rows without a platform are of the tenant of all."""

from collections.abc import Callable
from typing import Any, Final

from migrator.constraints import LONGEST_TENANT
from migrator.sources.mapping.compiled import NULL
from migrator.sources.orchestrator import names
from migrator.sources.profile import INHERITED, Context, Document, Rejected, Rows
from migrator.sources.shapes import indexed
from migrator.sources.table_columns import inherits, text

TENANT_SQL: Final = f"coalesce(this.platform_id::text, '{names.GLOBAL_TENANT}')"
"""The tenant of a row that names its platform."""


def tenant_of(document: Document, _context: Context) -> str:
    """Return the tenant of a row that names its platform."""
    return _tenant(document.get("platform_id"))


def tenant_of_parent(path: str, of: str, *needed: str) -> Callable[[Document, Context], str]:
    """Return the tenant function of a row that inherits its platform, and ``needed``, through the one it names."""

    def tenant(document: Document, _context: Context) -> str:
        for name in needed:
            inherits(document, name, path, of)
        return _tenant(document[INHERITED].get("platform_id"))

    return tenant


def _tenant(platform: str | None) -> str:
    if platform is None:
        return names.GLOBAL_TENANT
    if not platform.strip() or platform == names.GLOBAL_TENANT:
        raise Rejected("no-tenant", "platform_id", "the id of a platform, or null")
    return indexed(platform, "platform_id", LONGEST_TENANT)


def _platform(rows: Rows) -> Any:  # noqa: ANN401 - a text, or null
    row: Any = rows[0]
    return NULL if row.tenant_id == names.GLOBAL_TENANT else row.tenant_id


FIELD: Final = text("platform_id", write=_platform)
