"""Rights of a user of MongoDB, narrowed so that it writes to a database except to some collections. Pure.

A role of MongoDB cannot take a right away. So the rights to a whole database are written out: what reads stays, and
what changes something is granted for each other collection that exists.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

Privilege: TypeAlias = Mapping[str, Any]

WRITE_ACTIONS: Final = frozenset({"insert", "update", "remove"})
READ_ACTIONS: Final = frozenset(
    {
        *("find", "listCollections", "listIndexes", "listSearchIndexes", "collStats", "dbStats", "dbHash"),
        *("indexStats", "killCursors", "changeStream", "planCacheRead", "viewRole", "viewUser"),
    }
)
"""Actions on a database, or on a collection, that change neither documents nor collections."""


def reaches(privilege: Privilege, database: str, collections: Collection[str]) -> bool:
    """Whether a privilege holds in a database: in one of these collections; for none given, anywhere in it."""
    resource = privilege["resource"]
    if resource.get("cluster") or resource.get("anyResource"):
        return True
    if resource.get("db") not in ("", database):
        return False
    name = resource.get("collection", "")
    return not collections or name == "" or name in collections


def can_narrow(privileges: Sequence[Privilege], database: str, held: Collection[str]) -> bool:
    """Whether the right to write to ``held`` comes from this database alone: not from one to all databases."""
    return not any(
        WRITE_ACTIONS & set(one["actions"]) and reaches(one, database, held) and one["resource"].get("db") != database
        for one in privileges
    )


def narrowed(
    privileges: Sequence[Privilege], database: str, held: Collection[str], others: Sequence[str]
) -> list[dict[str, Any]]:
    """Return the privileges without those that change something in ``held``.

    ``others``: the other collections of the database. A collection that is made later is not among them.
    """
    return list(_narrowed(privileges, database, held, others))


def _narrowed(
    privileges: Sequence[Privilege], database: str, held: Collection[str], others: Sequence[str]
) -> Iterator[dict[str, Any]]:
    for privilege in privileges:
        resource = dict(privilege["resource"])
        if resource.get("db") != database or not reaches(privilege, database, held):
            yield {"resource": resource, "actions": list(privilege["actions"])}
            continue
        reading = sorted(READ_ACTIONS & set(privilege["actions"]))
        if reading:
            yield {"resource": resource, "actions": reading}
        if resource["collection"] == "" and len(reading) < len(privilege["actions"]):
            for name in others:
                yield {"resource": {"db": database, "collection": name}, "actions": list(privilege["actions"])}
