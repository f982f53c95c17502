"""Where rows of ``orchestrator`` came from; its platforms are tenants."""

from typing import Final
from uuid import UUID

from migrator.constraints import LONGEST_TENANT
from migrator.records import Record, Run, Schedule
from migrator.sources.orchestrator import names
from migrator.sources.profile import INHERITED, Rejected
from migrator.sources.rows import Origin, Row, inherits
from migrator.sources.shapes import indexed
from migrator.values import identity

PLATFORM: Final = f"coalesce(this.platform_id::text, '{names.GLOBAL_TENANT}')"
"""The tenant of a row that names its platform, in SQL."""


def origin_of(key: str, platform: str | None, table: str, *, keep_uuid: bool = True) -> Origin:
    """Return the origin of the row with this id; raises ``Rejected`` for a platform that no tenant can be."""
    return Origin(names.NAME, table, tenant_of(platform), identity.source_id(key), keep_uuid)


def tenant_of(platform: str | None) -> str:
    """Return the tenant of a platform; null is the global one."""
    if platform is None:
        return names.GLOBAL_TENANT
    if not platform.strip() or platform == names.GLOBAL_TENANT:
        raise Rejected("no-tenant", "platform_id", "the id of a platform, or null")
    return indexed(platform, "platform_id", LONGEST_TENANT)


def platform_of(tenant: str) -> str | None:
    """Return the platform of a tenant."""
    return None if tenant == names.GLOBAL_TENANT else tenant


def job_of(row: Row, column: str, of: str) -> tuple[str | None, str]:
    """Return the platform and the type of the job to which a row belongs, through the row that ``column`` names."""
    kind = str(inherits(row, "type", column, of))
    return row[INHERITED].get("platform_id"), kind


def schedule_id(tenant: str, job_id: str) -> UUID:
    """Return the id of the schedule of a job."""
    return _id(Schedule, tenant, names.JOBS, job_id)


def run_id(tenant: str, execution_id: str) -> UUID:
    """Return the id of the run of an execution."""
    return _id(Run, tenant, names.EXECUTIONS, execution_id)


def _id(record: type[Record], tenant: str, table: str, key: str) -> UUID:
    return identity.row_id(record.table, tenant, table, identity.source_id(key))
