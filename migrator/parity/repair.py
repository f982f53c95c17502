"""Repair after a parity check: the documents that differ are read again, as the tail reads those that change.

``pipeline.tail.reread`` does it. This is also what makes up for a lost position of the tail: a new position is taken
first, then everything is compared, so that nothing between the two is missed.
"""

from collections.abc import Mapping

import msgspec

from migrator.config import Settings
from migrator.connections.mongo import committed_time
from migrator.parity import recorded_check
from migrator.parity.check import check_parity
from migrator.parity.model import ParityOutcome
from migrator.pipeline.completion import write_derived
from migrator.pipeline.plan import Scope
from migrator.pipeline.sessions import Sessions, open_sessions
from migrator.pipeline.tail import backlog, positions
from migrator.pipeline.tail.applier import Applier
from migrator.pipeline.tail.lookups import ensure_indexes, has_source_column
from migrator.pipeline.tail.reread import complete_plan, drain
from migrator.schema import decisions
from migrator.schema.decisions import UNNAMED, Approval

ALL_DIFFERENCES = 10_000_000
"""Differences listed one by one: a repair needs all of them."""


class Repair(msgspec.Struct, frozen=True, kw_only=True):
    """What a repair would do, or did."""

    found: ParityOutcome
    """The parity check that named the documents."""
    documents: dict[str, tuple[str, ...]]
    """Collection → source ids of the documents to be read again."""
    applied: bool = False
    written: int = 0
    removed: int = 0
    cleared: str = ""
    """The alarm of the tail that this repair has cleared."""
    after: ParityOutcome | None = None
    """The parity check after it."""


def plan_repair(settings: Settings, scope: Scope) -> Repair:
    """Return the plan of a repair; writes nothing."""
    outcome = _checked(settings, scope)
    with open_sessions(settings) as sessions:
        plan = complete_plan(sessions)
        return Repair(found=outcome, documents=_named(Applier(sessions, plan), sessions, outcome))


def apply_repair(settings: Settings, scope: Scope, by: Approval = UNNAMED, *, overwrite: bool = False) -> Repair:
    """Update the rows of every document that differs, and compare again.

    ``overwrite``: also rows of a library's tables that another program changed or deleted since the tool wrote them.

    Without ``--only`` and ``--tenant`` it also settles an alarm of the tail, and records the comparison after it, which
    is the one that the cutover asks for. Raises ``RefusedError`` while a copy is unfinished, or where the copy was made
    under other conditions, or another program changed or deleted rows of a library's tables.
    """
    whole = not scope.only and not scope.tenants
    with open_sessions(settings) as sessions:
        plan = complete_plan(sessions)
        chosen = [one for one in sessions.profile.collections if not scope.only or one.name in scope.only]
        taken: Mapping[str, int] = {}
        if overwrite:  # before anything is compared: what another program writes from here on, it keeps
            with sessions.target.transaction():
                taken = sessions.target_tables.take_over(sessions.target, chosen)
        else:
            sessions.target_tables.guard_changed(sessions.target, chosen)
        profile = sessions.profile.name
        state = positions.tail_state(sessions.target, profile)
        alarm = state.alarm if state is not None and whole else None
        if alarm is not None:
            # before anything is compared: what changes from here on, the tail will see
            start = positions.position_at_time(committed_time(sessions.source))
            positions.start_from(sessions.target, profile, sessions.reader.identity(), start)
        outcome = _checked(settings, scope)
        applier = Applier(sessions, plan)
        named = _named(applier, sessions, outcome)
        with sessions.target.transaction():
            ensure_indexes(sessions.target, sessions.profile)
            if alarm is not None:
                for one in sessions.profile.collections:  # it may have been corrected, or removed, in the meantime
                    backlog.add_quarantined(sessions.target, profile, one.name)
        drained = drain(sessions, applier, named)
        if whole:
            write_derived(sessions)
        if alarm is not None:
            positions.settle_alarm(sessions.target, profile)
        counts = {name: len(ids) for name, ids in named.items()}
        done = {"documents": counts, "written": drained.written, "removed": drained.removed}
        decisions.record(sessions.target, decisions.REPAIR, by, **done, **({"overwritten": taken} if overwrite else {}))
    return Repair(
        found=outcome,
        documents=named,
        applied=True,
        written=drained.written,
        removed=drained.removed,
        cleared=alarm or "",
        after=recorded_check.check_and_record(settings) if whole else check_parity(settings, scope),
    )


def _checked(settings: Settings, scope: Scope) -> ParityOutcome:
    report = msgspec.structs.replace(settings.report, max_differences=ALL_DIFFERENCES)
    return check_parity(msgspec.structs.replace(settings, report=report), scope)


def _named(applier: Applier, sessions: Sessions, outcome: ParityOutcome) -> dict[str, tuple[str, ...]]:
    """Return the documents that differ; an extra row whose table does not say its document is looked up."""
    named: dict[str, set[str]] = {}
    collections = sessions.profile.by_name()
    for compared in outcome.collections:
        collection = collections.get(compared.collection)
        if collection is None:
            continue  # rows that many documents make together
        records = {record.table: record for record in collection.tables}
        for difference in compared.findings:
            record = records.get(difference.table)
            key = "" if difference.cause == "foreign-row" else difference.key  # no document has this key
            if difference.side == "extra" and record is not None and not has_source_column(record):
                key = applier.lookups.by_row(collection, record, key)
            if key:
                named.setdefault(compared.collection, set()).add(key)
    for schedule in outcome.never_firing:
        named.setdefault(schedule.collection, set()).add(schedule.source_id)
    return {name: tuple(sorted(ids)) for name, ids in sorted(named.items())}
