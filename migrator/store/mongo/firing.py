"""Firing: due triggers become runs and move on, all of a call or nothing of it."""

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from migrator.errors import UsageError
from migrator.records.run import Run
from migrator.records.schedule import Schedule
from migrator.records.trigger import Trigger
from migrator.sources.profile import Document
from migrator.sources.shapes import instant
from migrator.sources.stellaops import names
from migrator.store import lives, rules
from migrator.store.mongo.atomic import Overtaken, atomically
from migrator.store.mongo.client import Source, speaking_of
from migrator.store.mongo.many import Many, counted
from migrator.store.mongo.minting import Minting
from migrator.store.mongo.ranking import Candidate, Ranking, Stream, Waiting
from migrator.store.mongo.repository import Stored, Strangers
from migrator.store.mongo.schedules import ENABLED
from migrator.store.mongo.transaction import WHAT, Change, Transaction, pause
from migrator.store.work import Fire, FirePlan, HandlerFilter, is_served
from migrator.values.times import to_bson

_ROUNDS = 5


def due_triggers(now: datetime) -> Waiting:
    """Return what is due: enabled triggers whose next fire is not after ``now``."""
    return Waiting(
        record=Trigger,
        streams=(
            Stream(
                where={"nextFireAt": {"$lte": to_bson(now)}, "enabled": ENABLED},
                order=(("nextFireAt", 1), ("_id", 1)),
            ),
        ),
        since=_since,
        fields=("nextFireAt",),
    )


def _since(document: Document) -> datetime:
    return instant(document.get("nextFireAt"), "nextFireAt")


def may_fire(schedule: Schedule | None) -> bool:
    """Tell whether a schedule's triggers fire."""
    return (
        schedule is not None and schedule.enabled and schedule.deleted_at is None and schedule.status in rules.MAY_RUN
    )


class Firing:
    """One call of ``Queue.fire_due``."""

    def __init__(
        self,
        database: Source,
        strangers: Strangers,
        now: datetime,
        *,
        plan: FirePlan,
        queues: Sequence[str] | None,
        handlers: HandlerFilter | None,
        tenants: Sequence[str] | None,
    ) -> None:
        self._database, self._strangers, self._now = database, strangers, now
        self._plan, self._tenants = plan, tenants
        self._queues, self._handlers = queues, handlers

    def fire(self, limit: int) -> Sequence[Run]:
        """Fire what comes first; triggers that others are firing at this moment are passed over."""
        for attempt in range(_ROUNDS):
            fired, overtaken = self._round(limit)
            if fired is not None or not overtaken:
                return fired or []
            pause(attempt)
        return []

    def _round(self, limit: int) -> tuple[Sequence[Run] | None, bool]:
        overtaken = False
        with speaking_of(WHAT), self._database.client.start_session() as session:
            ranking = Ranking(
                Transaction(self._database, session),
                self._strangers,
                self._now,
                due_triggers(self._now),
                fits=self._may,
                bounded=False,
                tenants=self._tenants,
            )
            while candidates := ranking.first(limit):
                try:
                    fired = self._fire(candidates)
                except Overtaken:
                    overtaken = True
                else:
                    if fired is not None:
                        return fired, overtaken
        return None, overtaken

    def _may(self, schedule: Schedule | None) -> bool:
        """Tell whether a schedule's triggers are fired by this call."""
        return may_fire(schedule) and is_served(schedule, self._queues, self._handlers)

    def _fire(self, candidates: Sequence[Candidate]) -> Sequence[Run] | None:
        return atomically(
            self._database,
            lambda transaction: _Batch(transaction, self._strangers, self._now).fire(self._plan, candidates),
        )


class _Batch:
    """Some triggers in one transaction, one after the other."""

    def __init__(self, transaction: Transaction, strangers: Strangers, now: datetime) -> None:
        self._transaction, self._now = transaction, now
        self._triggers = Many(Trigger, transaction, strangers, now)
        self._schedules = Many(Schedule, transaction, strangers, now)
        self._minting = Minting(transaction, strangers, now)
        self._live: dict[UUID, int] = {}

    def fire(self, plan: FirePlan, candidates: Sequence[Candidate]) -> Sequence[Run] | None:
        """Return the runs inserted; none where none of the triggers is due any more."""
        found = self._triggers.at([one.key for one in candidates], {})
        texts = {one.schedule: one.text for one in candidates if one.schedule is not None}
        shelf = self._schedules.found(texts, shared=True, hints=set(texts.values()))
        self._live = counted(self._transaction, shelf.values(), ("queued", "running"))
        self._minting.learn(shelf.values())
        self._minting.foresee(one.row for one in found.values())
        changes: list[Change] = []
        status: dict[UUID, Schedule] = {}
        fired: list[Run] = []
        for one in candidates:
            stored, of = found.get(one.source_id), shelf.get(one.schedule) if one.schedule else None
            if stored is None or of is None:
                continue
            schedule = status.get(of.row.id, of.row)
            if self._is_due(stored.row) and may_fire(schedule):
                fire = plan(schedule, stored.row, self._live[schedule.id], self._now)
                fired += self._insert(fire, stored.row, of)
                changes.append(self._triggers.update(stored, self._moved(fire, stored)))
                if fire.schedule_status is not None and lives.leads_to(schedule.status, fire.schedule_status):
                    status[schedule.id] = lives.with_status(schedule, fire.schedule_status, self._now)
        if not changes:
            return None
        self._transaction.write(names.TRIGGERS, changes)
        for of in {of.row.id: of for of in shelf.values()}.values():
            if of.row.id in status:
                self._schedules.replace(of, status[of.row.id])
        self._minting.insert()
        return fired

    def _is_due(self, trigger: Trigger) -> bool:
        return trigger.enabled and trigger.next_fire_at is not None and trigger.next_fire_at <= self._now

    def _insert(self, fire: Fire, trigger: Trigger, schedule: Stored[Schedule]) -> list[Run]:
        if fire.trigger.id != trigger.id:
            raise UsageError("a plan answers for the trigger that it was given")
        made: list[Run] = []
        for run in fire.runs:
            of = schedule if run.schedule_id == schedule.row.id else self._other(run)
            row = self._minting.add(run, trigger.tenant_id, of)
            if row is not None:
                made.append(row)
                if row.state in ("queued", "running") and row.schedule_id in self._live:
                    self._live[row.schedule_id] += 1
        return made

    def _other(self, run: Run) -> Stored[Schedule] | None:
        """Return the schedule of a run that is not the trigger's."""
        if run.schedule_id is None:
            return None
        return next(iter(self._schedules.found([(run.tenant_id, run.schedule_id)], shared=True).values()), None)

    @staticmethod
    def _moved(fire: Fire, stored: Stored[Trigger]) -> Trigger:
        return rules.precise(rules.served(fire.trigger, stored.row.tenant_id), stored.row)
