"""Removing old runs: kept are the newest of each schedule, and all that are young. Live runs always stay.

Nothing is removed unless a person asked for it: with ``migrator scheduler retention --yes``, or in the configuration
with a day from which on the leader removes (``retention_from``). Before that day it only says what it would remove.

In batches, each a transaction of its own, with the summaries of the schedules it touched and an entry of the audit
trail: it can be stopped at any point and called again. With an archive the runs of a batch are written to a file, which
is checked, before they are deleted in the same transaction (``migrator.scheduler.archive``).
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final
from uuid import UUID

import msgspec

from migrator import fault_points
from migrator.config import SchedulerSettings
from migrator.durations import format_duration
from migrator.errors import ArchiveError, UsageError
from migrator.scheduler.archive import ArchiveFile, write_archive
from migrator.scheduler.lifecycle import Event, audit_entry
from migrator.store.protocols import Session, Store
from migrator.store.queue import served_tenants
from migrator.telemetry import say

REMOVED: Final = "scheduler:retention.removed"
"""Action of the audit entries; no lifecycle event of the source."""


class RetentionRule(msgspec.Struct, frozen=True, kw_only=True):
    """What is kept: a run that is among the ``keep`` newest of its schedule, or younger than ``young``."""

    keep: int = 100
    """Live ones count. 0: age alone decides."""
    young: timedelta = timedelta(days=30)
    """By the time at which it was made."""
    batch: int = 2000

    @property
    def words(self) -> str:
        """Say which runs are removed."""
        return f"older than {format_duration(self.young)} and beyond the newest {self.keep:,} of their schedule"

    def check(self) -> None:
        """Raise ``UsageError`` for what is no rule."""
        if self.keep < 0:
            raise UsageError("keep must not be negative")
        if self.young < timedelta(0):
            raise UsageError("an age must not be negative")
        if self.batch < 1:
            raise UsageError("a batch must be at least 1")


def rule_of(settings: SchedulerSettings) -> RetentionRule:
    """Return the rule of ``[scheduler]``."""
    return RetentionRule(keep=settings.retention_keep, young=settings.retention_age)


def is_allowed(settings: SchedulerSettings, now: datetime) -> bool:
    """Whether ``[scheduler]`` names a day (UTC) from which on runs are removed, and it has come."""
    return settings.retention_from is not None and now.date() >= settings.retention_from


def plan_words(settings: SchedulerSettings) -> str:
    """Return the line of text about the leader's retention: its rule, or why it removes nothing."""
    since = settings.retention_from
    if not settings.retention_every:
        return "retention is off: removes no run (retention_every in [scheduler] is zero)"
    if since is None:
        return "retention logs what it would remove, and removes nothing: retention_from in [scheduler] is not set"
    words, archive = rule_of(settings).words, settings.retention_archive
    first = "" if archive is None else f", and archives them in {archive} first"
    return f"retention removes runs from {since.isoformat()} on, if this process leads: {words}{first}"


def archive_of(settings: SchedulerSettings) -> Path | None:
    """Return the folder of the archive that ``[scheduler]`` names."""
    return None if settings.retention_archive is None else Path(settings.retention_archive)


def carry_out(settings: SchedulerSettings, store: Store) -> str:
    """Remove what the rule does not keep, or only count it where no day has come; return what was done.

    Where runs cannot be archived, it says so; the leader tries it again at its next turn.
    """
    allowed, rule, since = is_allowed(settings, store.now()), rule_of(settings), settings.retention_from
    try:
        removed = apply_all(store, rule, dry_run=not allowed, archive=archive_of(settings))
    except ArchiveError as error:
        say(f"run: {error}", level="warning")
        return "retention stopped; runs that are not archived stay"
    count = f"{sum(one.total for one in removed):,} runs that are {rule.words}"
    if allowed:
        return f"retention removed {count}"
    day = "is not set" if since is None else f"is {since.isoformat()}"
    return f"retention would remove {count}; it removed nothing, since retention_from in [scheduler] {day}"


class Removal(msgspec.Struct, frozen=True, kw_only=True):
    """What was removed of a tenant, or would be."""

    tenant: str
    by_schedule: Mapping[UUID | None, int]
    """None for runs without a schedule."""
    dry_run: bool
    archives: tuple[ArchiveFile, ...] = ()
    """Where the removed runs are."""

    @property
    def total(self) -> int:
        """Return how many runs."""
        return sum(self.by_schedule.values())


def apply(
    store: Store,
    tenant: str,
    rule: RetentionRule,
    *,
    dry_run: bool = False,
    archive: Path | None = None,
    now: datetime | None = None,
) -> Removal:
    """Remove the old runs of a tenant, or with ``dry_run`` say which it would be; raises ``UsageError``.

    ``archive`` is the folder into which they are written first; raises ``ArchiveError`` where that fails. The runs of
    the batches before, which the log names, are removed then.
    """
    rule.check()
    removed: Counter[UUID | None] = Counter()
    archives: list[ArchiveFile] = []
    before: datetime | None = None
    while True:
        with store.session(tenant, now=now) as session:
            # One limit for all batches: what grows old meanwhile waits for the next call.
            before = session.now - rule.young if before is None else before
            if dry_run:
                removed.update(session.statistics.removable(rule.keep, before))
                break
            removable, file = _batch(session, rule, before, archive)
        removed.update(removable)
        if file is not None:
            archives.append(file)
            say(f"retention: archived {file.runs:,} runs with {file.logs:,} lines of their logs in {file.path}")
        if not removable:
            break
    return Removal(tenant=tenant, by_schedule=dict(removed), dry_run=dry_run, archives=tuple(archives))


def apply_all(
    store: Store,
    rule: RetentionRule,
    *,
    tenants: Sequence[str] | None = None,
    dry_run: bool = False,
    archive: Path | None = None,
    now: datetime | None = None,
) -> list[Removal]:
    """Do so for these tenants, or for all but ``*`` and those of verifications."""
    if tenants is None:
        tenants = served_tenants(store.queue)
    return [apply(store, tenant, rule, dry_run=dry_run, archive=archive, now=now) for tenant in tenants]


def _batch(
    session: Session, rule: RetentionRule, before: datetime, archive: Path | None
) -> tuple[Counter[UUID | None], ArchiveFile | None]:
    old, file = session.runs.beyond(rule.keep, before, rule.batch), None
    if old and archive is not None:
        old = session.runs.held([run.id for run in old])
        file = write_archive(archive, session, old) if old else None
        fault_points.reach(fault_points.RETENTION_ARCHIVED)
    counts = Counter(run.schedule_id for run in old)
    if not old or not session.runs.remove([run.id for run in old]):
        return Counter(), None
    for schedule_id in sorted(one for one in counts if one is not None):
        if session.schedules.get(schedule_id) is not None or session.runs.of_schedule(schedule_id, 1):
            session.run_summaries.recompute(schedule_id)
    details = {"runs": str(len(old)), "keep": str(rule.keep)} | ({} if file is None else {"archive": file.path})
    event = Event(name=REMOVED, tenant_id=session.tenant, at=session.now, details=details)
    session.audit.append(audit_entry(event))
    return counts, file
