"""Where a row came from, and the ids that follow from it."""

from functools import lru_cache
from typing import Final
from uuid import UUID

import msgspec
from bson.objectid import ObjectId

from migrator.sources.agenda.names import NAME
from migrator.sources.profile import Context, Rejected
from migrator.values import identity

_LONGEST_LABEL: Final = 100
"""Characters; the name of a schedule is indexed."""


class Origin(msgspec.Struct, frozen=True, gc=False):
    """What all rows of one document share."""

    tenant_id: str
    source: str
    source_id: str
    collection: str
    keep_uuid: bool
    """The collection is the first that feeds its tables, so its UUIDs are kept (schema.md, rules for every table)."""

    def key(self, table: str) -> UUID:
        """Return the id of the document's row in this table."""
        return identity.row_id(table, self.tenant_id, self.collection, self.source_id, keep_uuid=self.keep_uuid)


def origin_of(key: object, context: Context, collection: str, *, keep_uuid: bool) -> Origin:
    """Return the origin of the document with this ``_id``.

    Agenda's documents name no tenant: raises ``Rejected`` where none is configured.
    """
    if not context.default_tenant:
        raise Rejected("no-tenant", "", "the setting default_tenant, since these documents name no tenant")
    return Origin(context.default_tenant, source_of(collection), identity.source_id(key), collection, keep_uuid)


@lru_cache(maxsize=64)
def source_of(collection: str) -> str:
    """Return the text of the ``source`` column."""
    return f"{NAME}/{collection}"


def label(key: object, origin: Origin) -> str:
    """Return an ``_id`` as people read it: the hex digits of an ObjectId, and the row's own id for a long text."""
    if isinstance(key, ObjectId):
        return str(key)
    return origin.source_id if len(origin.source_id) <= _LONGEST_LABEL else str(origin.key("schedules"))
