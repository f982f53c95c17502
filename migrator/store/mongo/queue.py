"""The queue in MongoDB: firing and claiming, across tenants."""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from uuid import UUID

from migrator.records.run import Run
from migrator.sources.stellaops import names
from migrator.store import rules
from migrator.store.mongo.claiming import Claiming
from migrator.store.mongo.client import Source, speaking_of
from migrator.store.mongo.firing import Firing
from migrator.store.mongo.holding import Holding
from migrator.store.mongo.repository import Strangers
from migrator.store.mongo.transaction import WHAT
from migrator.store.work import Claim, Finish, FirePlan, HandlerFilter


class MongoQueue:
    """``work.Queue``."""

    def __init__(self, database: Source, strangers: Strangers, clock: Callable[[], datetime]) -> None:
        self._database, self._strangers, self._clock = database, strangers, clock

    def tenants(self) -> Sequence[str]:
        """Return the tenants that have schedules that are not deleted, or runs, by name; ``*`` and scratch ones too."""
        runs, schedules = self._database[names.RUNS], self._database[names.SCHEDULES]
        with speaking_of(WHAT):
            found = set(runs.distinct("tenantId"))
            for tenant in set(schedules.distinct("tenantId")) - found:  # the index knows them, not who is deleted
                if schedules.find_one({"tenantId": tenant, "deletedAt": None}, {"_id": 1}) is not None:
                    found.add(tenant)
            found |= set(schedules.distinct("selection.tenantId", {"tenantId": None, "deletedAt": None}))
        return sorted(one for one in found if isinstance(one, str) and one)

    def fire_due(
        self,
        plan: FirePlan,
        limit: int,
        now: datetime | None = None,
        tenants: Sequence[str] | None = None,
        *,
        queues: Sequence[str] | None = None,
        handlers: HandlerFilter | None = None,
    ) -> Sequence[Run]:
        """Fire due triggers: insert runs, advance; return the runs inserted; pass over what others are firing."""
        rules.page(limit)
        firing = Firing(
            self._database,
            self._strangers,
            self._at(now),
            plan=plan,
            queues=queues,
            handlers=handlers,
            tenants=tenants,
        )
        return firing.fire(limit)

    def claim(
        self,
        worker_id: str,
        limit: int,
        lease: timedelta,
        now: datetime | None = None,
        *,
        queues: Sequence[str] | None = None,
        handlers: HandlerFilter | None = None,
        tenants: Sequence[str] | None = None,
    ) -> Sequence[Claim]:
        """Take queued runs that are available, by the schedule's priority, then by when they became available."""
        rules.page(limit)
        rules.above_zero("a lease", lease)
        moment = self._at(now)
        claiming = Claiming(
            self._database,
            self._strangers,
            moment,
            worker_id=worker_id,
            until=rules.milliseconds(moment + lease),
            queues=queues,
            handlers=handlers,
            tenants=tenants,
        )
        return claiming.take(limit)

    def heartbeat(self, claims: Sequence[Claim], lease: timedelta, now: datetime | None = None) -> Sequence[UUID]:
        """Extend the leases; return the ids of the runs that are still this worker's and running."""
        rules.above_zero("a lease", lease)
        return self._holding(now).keep(claims, lease)

    def finish(self, ends: Sequence[Finish], now: datetime | None = None) -> Sequence[UUID]:
        """End runs that are still running under the same worker and fence; return their ids, leave the others."""
        return self._holding(now).end(ends, only_over=False)

    def release(self, claims: Sequence[Claim], now: datetime | None = None) -> Sequence[UUID]:
        """Give runs back unfinished: queued again, attempt unchanged; return the ids given back."""
        return self._holding(now).give_back(claims)

    def expired(
        self,
        limit: int,
        now: datetime | None = None,
        tenants: Sequence[str] | None = None,
        *,
        workers: Sequence[str] | None = None,
    ) -> Sequence[Claim]:
        """Return running runs whose lease is over, or whose schedule's timeout is over; changes nothing."""
        rules.page(limit)
        return self._holding(now).over(limit, tenants, workers)

    def expire(self, ends: Sequence[Finish], now: datetime | None = None) -> Sequence[UUID]:
        """End such runs as ``finish`` does, only where the lease or timeout is still over."""
        return self._holding(now).end(ends, only_over=True)

    def _holding(self, now: datetime | None) -> Holding:
        return Holding(self._database, self._strangers, self._at(now))

    def _at(self, now: datetime | None) -> datetime:
        return self._clock() if now is None else rules.moment(now)
