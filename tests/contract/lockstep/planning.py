"""The part of the machine that plans: schedules and triggers are made, edited, paused, cancelled, deleted."""

from datetime import timedelta
from typing import Any

from migrator import states
from migrator.records import Schedule, Trigger
from migrator.store.protocols import ScheduleQuery
from tests.contract.lockstep import rules
from tests.contract.lockstep.base import PICK, TENANTS, Base
from tests.contract.lockstep.rules import precondition, rule
from tests.contract.rows import changed

STATUSES = rules.sampled_from(["scheduled"] * 6 + [*states.SCHEDULE])
ALL_STATUSES = rules.sampled_from([*states.SCHEDULE])
NAMES = rules.sampled_from(["alpha", "beta", "gamma"]) | rules.Draw(lambda choices: f"name {choices.of(range(10_000))}")
EDITS: rules.Draw = rules.some(
    {
        "name": NAMES,
        "enabled": rules.sampled_from([True, True, False]),
        "priority": rules.sampled_from([None, 0, 49, 50, 51, 100]),
        "max_concurrency": rules.sampled_from([None, None, 1, 2, 0]),
        "timeout_ms": rules.sampled_from([None, None, 5000, 60_000]),
        "queue": rules.sampled_from([None, "mail", "slow"]),
        "max_retries": rules.sampled_from([None, 0, 3]),
        "tags": rules.sampled_from([None, (), ("a",), ("a", "b")]),
        "payload": rules.sampled_from([None, b"{}", b'{"a":[1,2.5,null]}']),
    },
)
OFFSETS = rules.sampled_from([-60_000, -1000, -1, 0, 0, 0, 1, 1000, 60_000])
KINDS: dict[str, dict[str, Any]] = {
    "interval": {"interval_ms": 1000, "anchor": "fixed_rate"},
    "long": {"interval_ms": 60_000, "anchor": "completion"},
    "cron": {"cron_expression": "* * * * *", "cron_dialect": "debian"},
    "one_time": {},
    "event": {"event_name": "push"},
}


FURNITURE: tuple[tuple[str, dict[str, Any]], ...] = (
    (TENANTS[0], {"max_concurrency": 1, "priority": 51}),
    (TENANTS[0], {"timeout_ms": 5000, "queue": "mail"}),
    (TENANTS[1], {"max_concurrency": 2}),
)


class Planning(Base):
    """Schedules and triggers."""

    def furnish(self) -> None:
        for tenant, columns in FURNITURE:
            self.make_a_schedule(tenant=tenant, columns=columns, status="scheduled")
            for kind, offset in (("interval", 0), ("interval", -1000), ("cron", 5000)):
                self.make_a_trigger(pick=0, kind=kind, offset=offset, enabled=True)

    @rule(tenant=rules.sampled_from(TENANTS), columns=EDITS, status=STATUSES)
    def make_a_schedule(self, tenant: str, columns: dict[str, Any], status: str) -> None:
        identity = self.new_id()
        least = Schedule(id=identity, tenant_id=tenant, name=f"n {identity}", status=status)
        row = changed(least, **columns)
        if self.within("upsert", tenant, lambda session: session.schedules.upsert(row)) is not None:
            self.schedules.append((tenant, identity))

    @precondition(lambda self: self.schedules)
    @rule(pick=PICK, columns=EDITS)
    def edit_a_schedule(self, pick: int, columns: dict[str, Any]) -> None:
        row = self.schedule(pick)
        if row is not None:
            edited = changed(row, **columns)
            self.within("upsert again", row.tenant_id, lambda session: session.schedules.upsert(edited))

    @precondition(lambda self: self.schedules)
    @rule(pick=PICK, columns=EDITS)
    def change_a_schedule(self, pick: int, columns: dict[str, Any]) -> None:
        tenant, identity = self.schedules[-1 - pick % len(self.schedules)]
        self.within("change", tenant, lambda session: session.schedules.change(identity, **columns))

    @precondition(lambda self: self.schedules)
    @rule(pick=PICK, follower=ALL_STATUSES, wrong=rules.NONE | rules.NONE | ALL_STATUSES)
    def change_a_status(self, pick: int, follower: str, wrong: str | None) -> None:
        tenant, identity = self.schedules[-1 - pick % len(self.schedules)]
        row = self.schedule(pick)
        expected = wrong or ("scheduled" if row is None else row.status)
        self.within(
            f"{expected} to {follower}",
            tenant,
            lambda session: session.schedules.change_status(identity, expected, follower, updated_by="me"),
        )

    @precondition(lambda self: len(self.schedules) > 2)
    @rule(pick=PICK, tenant=rules.NONE | rules.sampled_from(TENANTS))
    def delete_a_schedule(self, pick: int, tenant: str | None) -> None:
        whose, identity = self.schedules[-1 - pick % len(self.schedules)]
        self.within("soft_delete", tenant or whose, lambda session: session.schedules.soft_delete(identity, "me"))

    @precondition(lambda self: self.schedules)
    @rule(
        2,
        pick=PICK,
        kind=rules.sampled_from([*KINDS, "interval", "interval"]),
        offset=OFFSETS,
        enabled=rules.sampled_from([True, True, False]),
    )
    def make_a_trigger(self, pick: int, kind: str, offset: int, enabled: bool) -> None:  # noqa: FBT001 - as above
        tenant, of = self.schedules[-1 - pick % len(self.schedules)]
        fire = None if kind == "event" else self.now + timedelta(milliseconds=offset)
        columns = KINDS[kind] | ({"run_at": fire} if kind == "one_time" else {})
        row = Trigger(
            id=self.new_id(),
            tenant_id=tenant,
            schedule_id=of,
            kind="interval" if kind == "long" else kind,
            next_fire_at=fire,
            enabled=enabled,
            **columns,
        )
        if self.within("trigger", tenant, lambda session: session.triggers.upsert(row)) is not None:
            self.triggers.append((tenant, row.id))

    @precondition(lambda self: self.triggers)
    @rule(
        pick=PICK,
        columns=rules.some({"enabled": rules.BOOLEANS, "fire_count": rules.integers(0, 9)}),
    )
    def edit_a_trigger(self, pick: int, columns: dict[str, Any]) -> None:
        row = self.trigger(pick)
        if row is not None:
            edited = changed(row, **columns)
            self.within("trigger again", row.tenant_id, lambda session: session.triggers.upsert(edited))

    @precondition(lambda self: self.triggers)
    @rule(pick=PICK, offset=rules.NONE | OFFSETS, right=rules.sampled_from([True, True, False]))
    def move_a_trigger(self, pick: int, offset: int | None, right: bool) -> None:  # noqa: FBT001 - as above
        tenant, identity = self.triggers[-1 - pick % len(self.triggers)]
        row = self.trigger(pick)
        expected = row.next_fire_at if row is not None and right else self.now
        to = None if offset is None else self.now + timedelta(milliseconds=offset)
        self.within("move", tenant, lambda session: session.triggers.move(identity, expected, to))

    @precondition(lambda self: len(self.triggers) > 3)
    @rule(pick=PICK)
    def delete_the_triggers_of_a_schedule(self, pick: int) -> None:
        tenant, identity = self.schedules[-1 - pick % len(self.schedules)]
        self.within("delete triggers", tenant, lambda session: session.triggers.delete_of_schedule(identity))

    @rule(
        tenant=rules.sampled_from(TENANTS),
        query=rules.builds(
            ScheduleQuery,
            statuses=rules.sampled_from([(), ("scheduled",), ("paused", "running")]),
            kinds=rules.sampled_from([(), ("interval",), ("event", "cron")]),
            enabled=rules.sampled_from([None, None, True, False]),
            tags_any=rules.sampled_from([(), ("a", "b")]),
            tags_all=rules.sampled_from([(), ("a", "b")]),
            name_contains=rules.sampled_from([None, None, "A", "name"]),
            limit=rules.sampled_from([1, 3, 50]),
            offset=rules.sampled_from([0, 0, 1]),
            sort_by=rules.sampled_from(["created_at", "next_fire_at", "name", "priority"]),
            descending=rules.BOOLEANS,
        ),
    )
    def list_schedules(self, tenant: str, query: ScheduleQuery) -> None:
        self.within(
            f"list {query}", tenant, lambda session: (session.schedules.list(query), session.schedules.count(query))
        )

    @rule(tenant=rules.sampled_from(TENANTS), limit=rules.integers(0, 5))
    def ask_what_is_due(self, tenant: str, limit: int) -> None:
        self.within("due", tenant, lambda session: (session.schedules.due(limit), session.triggers.of_event("push")))
