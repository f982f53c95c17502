"""The part of the machine that stays alive or does not: workers, and locks with their fences."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from migrator.records import WorkerRecord
from migrator.store.locks import LockHandle
from tests.contract.lockstep import rules
from tests.contract.lockstep.base import PICK, TENANTS, Base
from tests.contract.lockstep.rules import precondition, rule

TTLS = rules.sampled_from([60_000, 120_000, 3_600_000])
"""Long against the time that an example takes: a holder gives up its session when the local clock says so."""

RESOURCES = rules.sampled_from(["leader", "job"])
OWNERS = rules.sampled_from(["*", TENANTS[0]])


class Staying(Base):
    """Workers and locks."""

    def furnish(self) -> None:
        super().furnish()
        self.register(kind="worker", again=0)

    @rule(kind=rules.sampled_from(["worker", "scheduler"]), again=PICK)
    def register(self, kind: str, again: int) -> None:
        identity = self.workers[again % len(self.workers)] if self.workers and again % 2 else self.new_id()
        row = WorkerRecord(
            id=identity, tenant_id="*", kind=kind, status="active", hostname="h", pid=again, queues=("mail",)
        )
        self.each("register", lambda store: store.workers.register(row, self.now))
        if identity not in self.workers:
            self.workers.append(identity)

    @precondition(lambda self: self.workers)
    @rule(pick=PICK)
    def stay_alive(self, pick: int) -> None:
        identity = self.workers[pick % len(self.workers)]
        self.each("worker heartbeat", lambda store: store.workers.heartbeat(identity, self.now))

    @precondition(lambda self: self.workers)
    @rule(pick=PICK)
    def stop(self, pick: int) -> None:
        identity = self.workers[pick % len(self.workers)]
        self.each("stop", lambda store: store.workers.stop(identity, self.now))

    @precondition(lambda self: self.workers)
    @rule(4, silence=rules.sampled_from([1, 5000, 30_000]), some=rules.NONE | rules.lists(PICK, most=2))
    def declare_dead(self, silence: int, some: list[int] | None) -> None:
        among = None if some is None else [self.workers[pick % len(self.workers)] for pick in some]
        self.ids(
            "declare_dead",
            lambda store: store.workers.declare_dead(timedelta(milliseconds=silence), self.now, among),
        )

    @precondition(lambda self: self.workers)
    @rule(pick=PICK)
    def forget(self, pick: int) -> None:
        identity = self.workers[pick % len(self.workers)]
        self.each("remove", lambda store: store.workers.remove(identity))

    @rule(2, tenant=OWNERS, resource=RESOURCES, ttl=TTLS, holder=rules.sampled_from(["", "me"]))
    def acquire(self, tenant: str, resource: str, ttl: int, holder: str) -> None:
        def act(store: Any) -> Any:  # noqa: ANN401 - a store
            handle = store.locks.acquire(tenant, resource, ttl=timedelta(milliseconds=ttl), holder=holder, now=self.now)
            if handle is None:
                return None
            self.handles.append(handle)
            self.side.open.append(handle)
            return handle.key, handle.fence

        self.each(f"acquire {tenant}/{resource}", act)

    def on_a_handle(self, what: str, pick: int, act: Callable[[LockHandle], Any]) -> None:
        handle = self.handles[-1 - pick % len(self.handles)]
        self.tell(what, lambda: act(handle))

    @precondition(lambda self: self.handles)
    @rule(pick=PICK, ttl=rules.NONE | TTLS)
    def renew(self, pick: int, ttl: int | None) -> None:
        length = None if ttl is None else timedelta(milliseconds=ttl)
        self.on_a_handle("renew", pick, lambda handle: handle.renew(length, now=self.now))

    @precondition(lambda self: self.handles)
    @rule(pick=PICK)
    def give_back(self, pick: int) -> None:
        self.on_a_handle("release a lock", pick, lambda handle: handle.release(now=self.now))

    @rule(tenant=OWNERS, resource=RESOURCES)
    def ask_who_holds(self, tenant: str, resource: str) -> None:
        self.each("holder", lambda store: store.locks.holder(tenant, resource, self.now))

    @rule(tenant=OWNERS, resource=RESOURCES, fence=rules.integers(0, 4))
    def guard(self, tenant: str, resource: str, fence: int) -> None:
        def act(store: Any) -> None:  # noqa: ANN401 - a store
            with store.session(TENANTS[0], now=self.now) as session:
                store.locks.guard(session, tenant, resource, fence)

        self.each(f"guard {tenant}/{resource} {fence}", act)
