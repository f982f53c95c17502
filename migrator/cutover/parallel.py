"""The parallel run: what each of the two schedulers fired, slot by slot, and whether the new one was stable.

The runs of the old side came with the copy and the tail (``source`` names a document). The runs of the new side were
created on PostgreSQL. While both run, handlers that are marked idempotent may run twice. The new side makes dry runs of
the others (``scheduler.executor``): it compares their slots, and calls no handler. The gates are computed from the
rows.

A waiver excuses a schedule that does not fire while both sides run: it needs no completed run of the new side. A waiver
is a recorded decision. It stands until it is withdrawn, until the parallel run is ended, or until the cutover.
"""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, LiteralString
from uuid import UUID

import msgspec

from migrator import __version__, states
from migrator.config import CutoverSettings
from migrator.connections import advisory_locks
from migrator.connections.postgres import Connection, fetch_value
from migrator.cutover.fired_slots import compare_fired
from migrator.cutover.journal import database_time
from migrator.cutover.server_gates import Gate
from migrator.cutover.takeover import Takeover, take_over
from migrator.durations import format_duration
from migrator.errors import RefusedError, UsageError
from migrator.pipeline.locks import ROWS_KEY
from migrator.pipeline.sessions import Sessions
from migrator.pipeline.tail import planned_fires
from migrator.schema import decisions
from migrator.schema.decisions import Approval, RecordedDecision
from migrator.sources import comparable_in_parallel
from migrator.sources.profile import MONGODB, Profile
from migrator.store.postgres import epoch, parallel_run


def stable_since(began: datetime, errors: Iterable[datetime]) -> datetime:
    """Return since when there was no error: an error starts the window again. Pure."""
    return max([began, *(at for at in errors if at >= began)])


def require_comparable(profile: Profile) -> None:
    """Raise ``RefusedError`` for a source whose parallel run could never satisfy the gate ``history recorded``."""
    if profile.slots:
        return
    why = "nothing in its documents says for which slot a schedule fired"
    if MONGODB not in profile.servers:
        why = "its tables have no tail, so that what the old scheduler fires is not known here"
    known = ", ".join(comparable_in_parallel())
    raise RefusedError(
        f"a parallel run of profile {profile.name} cannot be compared: {why}; can be compared: {known}. Call migrator"
        " cutover plan, and cut over without a parallel run"
    )


def require_possible(target: Connection, profile: Profile) -> None:
    """Raise ``RefusedError`` for a source that cannot be compared, and if one of the sides cannot run."""
    require_comparable(profile)
    current_epoch = epoch.read(target)
    if current_epoch is not None:
        why = (
            "is the only backend"
            if current_epoch.backend == "postgres"
            else "refuses all writers since the last cutover was undone"
        )
        raise RefusedError(f"PostgreSQL {why}: a parallel run is not possible")


def require_begun(target: Connection) -> None:
    """Raise ``RefusedError`` if no parallel run is recorded."""
    if parallel_run.since(target) is None:
        raise RefusedError("no parallel run is recorded")


def begin(target: Connection, profile: Profile, who: str, reason: str) -> datetime:
    """Record that both sides run from now on, and return the time.

    Raises ``RefusedError``, before anything is written, for a source that cannot be compared, and if one of the sides
    cannot run. Scheduler processes on PostgreSQL read the record before their next claim.
    """
    require_possible(target, profile)
    with target.transaction():
        # A transaction of the tail ends before this one, or sees the record.
        advisory_locks.take_in_transaction(target, ROWS_KEY)
        since = decisions.record(target, decisions.PARALLEL_BEGUN, Approval(who, reason))
        parallel_run.begin(target, since)
        planned_fires.begin(target, profile, since)
    return since


def end(target: Connection, profile: Profile, settings: CutoverSettings, by: Approval) -> Takeover:
    """Record that the parallel run has ended: every handler runs here, and its gates do not apply any more.

    Raises ``RefusedError`` if none is recorded.
    """
    with target.transaction():
        done = take_over(target, profile, settings.slot_tolerance)
        if done is None:
            raise RefusedError("no parallel run is recorded")
        decisions.record(target, decisions.PARALLEL_ENDED, by)
    return done


def gates(sessions: Sessions, now: datetime | None = None) -> list[Gate]:
    """Return the five gates of the parallel run; none if no parallel run is recorded."""
    target = sessions.target
    began = parallel_run.since(target)
    if began is None:
        return []
    moment = now or database_time(target)
    window = sessions.settings.cutover.stability
    return [
        _stable_gate(target, began, moment, window),
        _success_gate(target, began),
        _history_gate(target, began, moment, sessions.profile, sessions.settings.cutover),
        _error_gate(target, moment - window),
        _summary_gate(target),
    ]


def _stable_gate(target: Connection, began: datetime, now: datetime, window: timedelta) -> Gate:
    """Require that no run failed for the time of the setting."""
    errors = target.execute(
        "SELECT coalesce(finished_at, updated_at, created_at) FROM scheduler.runs WHERE state = ANY(%s)"
        " AND coalesce(finished_at, updated_at, created_at) >= %s",
        ([*states.RUN_FAILED], began),
    ).fetchall()
    lasted = now - stable_since(began, [at for (at,) in errors])
    words = f"{lasted.total_seconds() / 3600:,.1f} h of {format_duration(window)} without an error"
    return Gate(name="stable", passed=lasted >= window, words=words)


def _success_gate(target: Connection, began: datetime) -> Gate:
    """Require that every schedule that may run has completed a run of the new side, or was waived."""
    rows = target.execute(
        "SELECT id, tenant_id, NOT EXISTS (SELECT FROM scheduler.runs WHERE runs.schedule_id = schedules.id"
        " AND runs.schedule_tenant_id = schedules.tenant_id AND runs.source IS NULL AND runs.state = 'completed'"
        " AND runs.created_at >= %s) FROM scheduler.schedules"
        " WHERE enabled AND deleted_at IS NULL AND status = ANY(%s)",
        (began, [*states.SCHEDULE_FIRING]),
    ).fetchall()
    without = {(identity, tenant) for identity, tenant, lacks in rows if lacks}
    waived = [one for one in waivers(target) if (one.schedule_id, one.tenant_id) in without]
    left = len(without) - len(waived)
    detail = f"{left:,} of {len(rows):,} schedules have no completed run of the new side"
    if waived:
        detail += f"; {len(waived):,} waived: {', '.join(one.words for one in waived)}"
    return Gate(name="all jobs succeeded", passed=left == 0, words=detail)


def _history_gate(
    target: Connection, began: datetime, now: datetime, profile: Profile, settings: CutoverSettings
) -> Gate:
    """Require that the new side recorded what the old side fired, and nothing else.

    Slots of the last moments are not judged: one of the sides may still be about to fire them.
    """
    if not profile.slots:  # begun by an older version, which did not refuse it
        detail = f"profile {profile.name} cannot be compared: call migrator cutover parallel --end --who --reason"
        return Gate(name="history recorded", passed=False, words=detail)
    tolerance = settings.slot_tolerance
    compared = compare_fired(target, profile, began, now - tolerance, tolerance)
    detail = (
        f"{compared.matched:,} slots matched, {compared.inferred:,} of them inferred (within"
        f" {format_duration(tolerance)}),"
        f" {len(compared.missing):,} missing, {len(compared.extra):,} extra, {len(compared.duplicate):,} duplicate,"
        f" {len(compared.unmatched):,} runs of the old side without a slot"
    )
    return Gate(name="history recorded", passed=compared.clean and compared.matched > 0, words=detail)


def _error_gate(target: Connection, since: datetime) -> Gate:
    """Require that no run of the new side failed in the window, as the runs say."""
    count = fetch_value(
        target,
        "SELECT count(*) FROM scheduler.runs WHERE state = ANY(%s) AND source IS NULL"
        " AND coalesce(finished_at, updated_at, created_at) >= %s",
        ([*states.RUN_FAILED], since),
    )
    return Gate(name="no errors", passed=count == 0, words=f"{count:,} runs of the new side failed in the window")


_ENDED: Final = [state for state in states.RUN if states.is_terminal(states.RUN, state)]
_OURS: Final = (
    "s.source IS NULL AND r.source IS NULL AND greatest(r.finished_at, r.updated_at, r.created_at) <= s.updated_at"
)
_OF_SUMMARY: Final = "r.schedule_id = s.schedule_id AND r.tenant_id = s.tenant_id"
_LAST: Final = (
    "SELECT FROM scheduler.runs AS l WHERE l.schedule_id = s.schedule_id AND l.tenant_id = s.tenant_id"
    " AND s.last_run ->> 'runId' IN (l.source_id, 'run_' || replace(l.id::text, '-', ''))"
)
_SUMMARY_DIFFERENCES: LiteralString = f"""
SELECT count(*),
    count(*) FILTER (WHERE EXISTS (
        SELECT FROM unnest(%(ended)s::text[]) AS one (state), LATERAL (
            SELECT count(*) FILTER (WHERE {_OURS}) AS least, count(*) AS most
            FROM scheduler.runs AS r WHERE {_OF_SUMMARY} AND r.state = one.state
        ) AS runs
        WHERE CASE WHEN jsonb_typeof(s.counters -> one.state) = 'number'
            THEN (s.counters ->> one.state)::numeric NOT BETWEEN runs.least AND runs.most END)),
    count(*) FILTER (WHERE s.last_run IS NOT NULL AND NOT EXISTS ({_LAST})),
    count(*) FILTER (WHERE EXISTS (
        SELECT FROM scheduler.runs AS r WHERE {_OF_SUMMARY} AND {_OURS} AND r.state = ANY (%(ended)s)
            AND s.counters ?& ARRAY['total', 'lastRunNumber']
            AND NOT EXISTS ({_LAST} AND l.created_at >= r.created_at
                AND (l.id <> r.id OR s.last_run ->> 'state' = r.state))))
FROM scheduler.run_summaries AS s
"""  # noqa: S608 - names of this module's own
"""The number of summaries, and of those that differ from the runs: in counts, in the last run, in its order or state.

A summary that came from the source counts runs of the old side alone. A summary is as of its ``updated_at``. Runs of
the old side arrive after they ended. So a count is between the number of runs that had ended here by then and the
number of all runs that exist now.
"""


def _summary_gate(target: Connection) -> Gate:
    """Require that summaries agree with the runs, in their counts and their last run."""
    row = target.execute(_SUMMARY_DIFFERENCES, {"ended": _ENDED}).fetchone()
    whole, counts, gone, last = row or (0, 0, 0, 0)
    detail = (
        f"of {whole:,} run summaries {counts:,} count other runs than there are, {gone:,} name a last run that does"
        f" not exist, {last:,} name a last run that is not the newest or is in another state"
    )
    return Gate(name="summaries agree", passed=not (counts or gone or last), words=detail)


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


def standing_waivers(recorded: Iterable[RecordedDecision]) -> tuple[Waiver, ...]:
    """Return the waivers that stand after these decisions, which are in their order. Pure."""
    left: dict[tuple[str, str], Waiver] = {}
    for waiver in recorded:
        if waiver.kind in (decisions.PARALLEL_ENDED, decisions.CUTOVER):
            left.clear()
        elif waiver.kind == decisions.WAIVED:
            left[waiver.detail["schedule"], waiver.detail["tenant"]] = Waiver(
                schedule_id=UUID(waiver.detail["schedule"]),
                tenant_id=waiver.detail["tenant"],
                name=waiver.detail["name"],
                who=waiver.who,
                reason=waiver.reason,
                at=waiver.at,
            )
        elif waiver.kind == decisions.WAIVER_WITHDRAWN:
            left.pop((waiver.detail["schedule"], waiver.detail["tenant"]), None)
    return tuple(left.values())


def waivers(target: Connection) -> tuple[Waiver, ...]:
    """Return the waivers that stand."""
    return standing_waivers(decisions.recorded(target))


def waive(target: Connection, named: Sequence[str], by: Approval, *, dry_run: bool = False) -> tuple[Waiver, ...]:
    """Waive schedules, by id or name; return the waivers that stand then, or would without ``dry_run``.

    Raises ``RefusedError`` if no parallel run is recorded, and ``UsageError`` for a schedule that does not exist, or a
    name that several have; nothing is recorded then.
    """
    return _decide(target, named, by, decisions.WAIVED, dry_run=dry_run)


def withdraw_waivers(
    target: Connection, named: Sequence[str], by: Approval, *, dry_run: bool = False
) -> tuple[Waiver, ...]:
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
    return standing_waivers([*decisions.recorded(target), *made])


def _schedule(target: Connection, named: str) -> tuple[UUID, str, str]:
    """Return id, tenant and name."""
    rows = target.execute(_FOUND, {"named": named.replace("\0", "")}).fetchall()
    if not rows:
        raise UsageError(f"no schedule has the id or the name {named}")
    if len(rows) > 1:
        ids = ", ".join(f"{tenant}/{identity}" for identity, tenant, _ in rows[:2])
        raise UsageError(f"several schedules are called {named}: name one by its tenant and id ({ids}, …)")
    schedule, tenant, name = rows[0]
    return schedule, tenant, name
