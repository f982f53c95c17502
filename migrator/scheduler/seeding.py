"""Seeding handlers: done twice it changes nothing, and who seeds otherwise is told so instead of losing in silence."""

from collections.abc import Sequence

import msgspec

from migrator.records import EMPTY, Handler
from migrator.scheduler import checks
from migrator.scheduler.answers import Seeding
from migrator.store.protocols import Session
from migrator.store.validation import check_own_tenant


def seed(session: Session, handlers: Sequence[Handler]) -> Seeding:
    """Add the handlers whose name is not known yet; report those that are stored otherwise.

    Conflicting too is one whose code (``handler_path``) is stored under another name: the other seeder's name for it.
    """
    checks.distinct(f"handler {handler.name}" for handler in handlers)
    for handler in handlers:
        check_own_tenant(handler.tenant_id, session.tenant)
        checks.text("name", handler.name)
    stored = {handler.name: handler for handler in session.handlers.list()}
    names = {handler.handler_path: handler.name for handler in stored.values() if handler.handler_path is not None}
    added: list[str] = []
    unchanged: list[str] = []
    conflicting: list[str] = []
    for handler in handlers:
        known = stored.get(handler.name)
        if known is not None:
            (unchanged if _same(known, handler) else conflicting).append(handler.name)
        elif names.get(handler.handler_path or "", handler.name) != handler.name:
            conflicting.append(handler.name)
        else:
            session.handlers.upsert(handler)
            added.append(handler.name)
    return Seeding(added=tuple(added), unchanged=tuple(unchanged), conflicting=tuple(conflicting))


def _same(stored: Handler, seeded: Handler) -> bool:
    aside = {"id": seeded.id, "tenant_id": seeded.tenant_id, "source": None, "source_id": None, "extra": EMPTY}
    return msgspec.structs.replace(stored, **aside) == msgspec.structs.replace(seeded, **aside)
