"""Waivers of a parallel run: schedules that need no completed run of the new side, by whose decision, and why.

They are for schedules that do not fire while both sides run. A waiver is a recorded decision. It stands until it is
withdrawn, until the parallel run is ended, or until the cutover.
"""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from uuid import UUID

import msgspec

from migrator import __version__
from migrator.connections.postgres import Connection
from migrator.errors import RefusedError, UsageError
from migrator.schema import decisions
from migrator.schema.decisions import Approval, RecordedDecision
from migrator.store.postgres import parallel_run

_FOUND = (
    "SELECT id, tenant_id, coalesce(name, '') FROM scheduler.schedules"
    " WHERE (id::text = lower(%(named)s) OR name = %(named)s OR source_id = %(named)s"
    " OR tenant_id || '/' || id::text = %(named)s) AND deleted_at IS NULL"
    " ORDER BY tenant_id, id LIMIT 3"
)


class Waiver(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule that needs no completed run of the new side."""

    schedule_id: UUID
    tenant_id: str
    name: str
    who: str
    reason: str
    at: datetime

    @property
    def words(self) -> str:
        """The schedule, by its name if it has one, who waived it, and why."""
        return f"{self.name or self.schedule_id} ({self.who}: {self.reason})"


def standing(recorded: Iterable[RecordedDecision]) -> tuple[Waiver, ...]:
    """Return the waivers that stand after these decisions, which are in their order. Pure."""
    found: dict[tuple[str, str], Waiver] = {}
    for one in recorded:
        if one.kind in (decisions.PARALLEL_ENDED, decisions.CUTOVER):
            found.clear()
        elif one.kind == decisions.WAIVED:
            found[one.detail["schedule"], one.detail["tenant"]] = Waiver(
                schedule_id=UUID(one.detail["schedule"]),
                tenant_id=one.detail["tenant"],
                name=one.detail["name"],
                who=one.who,
                reason=one.reason,
                at=one.at,
            )
        elif one.kind == decisions.WAIVER_WITHDRAWN:
            found.pop((one.detail["schedule"], one.detail["tenant"]), None)
    return tuple(found.values())


def waivers(target: Connection) -> tuple[Waiver, ...]:
    """Return the waivers that stand."""
    return standing(decisions.recorded(target))


def waive(target: Connection, named: Sequence[str], by: Approval, *, dry_run: bool = False) -> tuple[Waiver, ...]:
    """Waive schedules, by id or name; return the waivers that stand then, or would without ``dry_run``.

    Raises ``RefusedError`` if no parallel run is recorded, and ``UsageError`` for a schedule that does not exist, or a
    name that several have; nothing is recorded then.
    """
    return _decide(target, named, by, decisions.WAIVED, dry_run=dry_run)


def withdraw(target: Connection, named: Sequence[str], by: Approval, *, dry_run: bool = False) -> tuple[Waiver, ...]:
    """Withdraw the waivers of schedules; return those that stand then.

    Raises as ``waive`` does, and ``RefusedError`` for a schedule that is not waived.
    """
    return _decide(target, named, by, decisions.WAIVER_WITHDRAWN, dry_run=dry_run)


def _decide(target: Connection, named: Sequence[str], by: Approval, kind: str, *, dry_run: bool) -> tuple[Waiver, ...]:
    if parallel_run.since(target) is None:
        raise RefusedError("no parallel run is recorded")
    made: list[RecordedDecision] = []
    with target.transaction():
        known = {(one.schedule_id, one.tenant_id) for one in waivers(target)}
        for text in named:
            schedule, tenant, name = _schedule(target, text)
            if kind == decisions.WAIVER_WITHDRAWN and (schedule, tenant) not in known:
                raise RefusedError(f"schedule {text} is not waived")
            detail = {"schedule": str(schedule), "tenant": tenant, "name": name}
            at = datetime.now(UTC) if dry_run else decisions.record(target, kind, by, **detail)
            made.append(
                RecordedDecision(
                    kind=kind, who=by.who, reason=by.reason, at=at, tool_version=__version__, detail=detail
                )
            )
    return standing([*decisions.recorded(target), *made])


def _schedule(target: Connection, named: str) -> tuple[UUID, str, str]:
    """Return id, tenant and name."""
    found = target.execute(_FOUND, {"named": named.replace("\0", "")}).fetchall()
    if not found:
        raise UsageError(f"no schedule has the id or the name {named}")
    if len(found) > 1:
        ids = ", ".join(f"{tenant}/{identity}" for identity, tenant, _ in found[:2])
        raise UsageError(f"several schedules are called {named}: name one by its tenant and id ({ids}, …)")
    schedule, tenant, name = found[0]
    return schedule, tenant, name
