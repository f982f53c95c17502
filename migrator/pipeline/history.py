"""The cutoff before which finished documents are left out of a copy: how it is chosen, and what it leaves out.

It is an instant, and it belongs to a plan. The plan of a later copy has the same one or an earlier one, whatever the
setting says: rows that were copied are not removed because they grow old, or because the setting was made narrower.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime

import msgspec

from migrator.config import Settings, history_age
from migrator.connections.mongo import translate_errors
from migrator.errors import RefusedError
from migrator.pipeline.extract import SourceCollection, tenant_filter
from migrator.pipeline.sessions import SourceSessions
from migrator.sources import history
from migrator.sources.profile import Collection, Context, Profile


class HistoryScope(msgspec.Struct, frozen=True, kw_only=True):
    """What a plan leaves out as history."""

    setting: str
    """``copy.history``."""
    before: datetime | None = None
    """Documents that finished before it are left out; None: none are."""
    kept: bool = False
    """An earlier copy had this cutoff, and the setting alone would leave out more."""
    covers: tuple[str, ...] = ()
    """Collections that have finished documents."""
    others: tuple[str, ...] = ()
    """Collections of which every document is copied, whatever its age."""


def covered(profile: Profile) -> tuple[str, ...]:
    """Return the collections of which finished documents may be left out."""
    return tuple(one.name for one in profile.collections if one.history is not None)


def cutoff(settings: Settings, profile: Profile, now: datetime, copied: Sequence[datetime | None]) -> datetime | None:
    """Return the cutoff of a new plan; ``copied``: those of the copies before it."""
    age = history_age(settings.copy.history)
    if age is None or None in copied or settings.source.in_postgres or not covered(profile):
        return None
    # whole seconds, so that the name of the rule says it exactly
    return min([(now - age).replace(microsecond=0), *(one for one in copied if one is not None)])


def scope_of(
    settings: Settings,
    profile: Profile,
    existing: Iterable[SourceCollection],
    now: datetime,
    before: datetime | None,
) -> HistoryScope:
    """Return the scope of a cutoff among the collections that exist."""
    names = [one.collection.name for one in existing]
    chosen = () if settings.source.in_postgres else covered(profile)
    return HistoryScope(
        setting=settings.copy.history,
        before=before,
        kept=before != cutoff(settings, profile, now, ()),
        covers=tuple(name for name in names if name in chosen),
        others=tuple(name for name in names if name not in chosen),
    )


def require_all_widened(
    profile: Profile,
    only: Sequence[str],
    present: Iterable[str],
    before: datetime | None,
    copied: Sequence[datetime | None],
) -> None:
    """Raise ``RefusedError`` if a copy of some collections would move the cutoff of others back."""
    missing = sorted({*covered(profile)}.intersection(present).difference(only))
    if only and missing and copied and before not in copied:
        raise RefusedError(
            f"copy.history now leaves out less than the copy before, also of {', '.join(missing)}: call backfill"
            " without --only, which copies what was left out"
        )


def left_out(sessions: SourceSessions, collection: Collection, context: Context, tenants: Sequence[str] = ()) -> int:
    """Return how many documents of a collection are left out; the server counts them."""
    condition = history.left_out(collection, context.history_before)
    return _count(sessions, collection, context, tenants, condition) if condition else 0


def total(sessions: SourceSessions, collection: Collection, context: Context, tenants: Sequence[str] = ()) -> int:
    """Return how many documents a collection has; the server counts them."""
    return _count(sessions, collection, context, tenants, {})


def _count(
    sessions: SourceSessions,
    collection: Collection,
    context: Context,
    tenants: Sequence[str],
    condition: dict[str, object],
) -> int:
    own = tenant_filter(collection, tenants, context.default_tenant)
    with translate_errors("the source"):
        return sessions.source[sessions.name_of(collection.name)].count_documents(
            {"$and": [own, condition]} if own and condition else own or condition
        )
