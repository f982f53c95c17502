"""The tenant of a document: its own text, else the configured one."""

from functools import lru_cache
from typing import Final

from migrator.constraints import LONGEST_TENANT
from migrator.sources.profile import Context, Note, Rejected
from migrator.sources.shapes import indexed, plain

NO_TENANT: Final = "default"
"""The tenant of all rows of a native target: a library's tables have none."""
BLANK: Final = " \t\n\r\v\f"
"""White space that MongoDB's ``$trim`` is told to take too, so that both sides agree which tenant is none."""


def tenant_of(value: str | None, context: Context, notes: list[Note], *, path: str = "tenantId") -> str:
    """Return the tenant of a document: its own, else the configured one; never a trimmed text.

    ``path``: of the field that names it; empty: no field does. Raises ``Rejected`` where there is none at all.
    """
    if value and _is_said(plain(value, path)):
        return _usable(value, path)
    if context.default_tenant:
        notes.append(Note("tenant-defaulted", path))
        return context.default_tenant
    expected = "a tenant, or the setting default_tenant"
    raise Rejected(
        "no-tenant", path, expected if path else "the setting default_tenant, since these documents name no tenant"
    )


def first_said(*values: str | None) -> str | None:
    """Return the first text with something in it."""
    return next((value for value in values if value and value.strip(BLANK)), None)


@lru_cache(maxsize=4_096)
def _is_said(text: str) -> bool:
    return bool(text.strip(BLANK))


@lru_cache(maxsize=4_096)
def _usable(tenant: str, path: str) -> str:
    """Return the tenant; NUL in it is refused: no session could be of a tenant whose stored name is another."""
    if "\0" in tenant:
        raise Rejected("nul-in-tenant", path, "a text without NUL")
    return indexed(tenant, path, LONGEST_TENANT)
