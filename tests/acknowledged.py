"""What clients of the scheduler's facade were told, and whether the database says the same: each operation once.

A client writes into its journal what it is about to do, does it, and writes what it was answered. An answer that never
came leaves open whether it was done; it may not have been done twice. Every operation is named by its actor, which the
audit trail keeps, so that two entries of one actor are one operation done twice.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Final, Literal, TypeAlias
from uuid import UUID

import msgspec

from migrator.records import Run
from migrator.store.protocols import RunQuery, ScheduleQuery, Session, Store

Answer: TypeAlias = Literal["done", "refused", "lost"]
Phase: TypeAlias = Literal["absent", "live", "paused", "cancelled"]
State: TypeAlias = tuple[Phase, str]
"""A schedule, and its name."""

AFTER: Final[Mapping[str, Phase]] = {"pause": "paused", "resume": "live", "cancel": "cancelled", "unschedule": "absent"}
ABSENT: Final[State] = ("absent", "")
MAKES: Final = ("create", "once")
ALL: Final = 1_000_000


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """What a client asked for."""

    tenant: str
    number: int
    kind: str
    schedule: UUID
    value: str = ""
    """The name that a schedule gets, or the id of an event, under which it may be told again."""
    at: float = 0.0
    """When it was asked for, or answered, by the machine's monotonic clock."""
    answer: Answer = "lost"
    run: UUID | None = None
    why: str = ""

    @property
    def actor(self) -> str:
        """Return who did it, in the audit trail."""
        return f"{self.tenant} {self.number}"

    @property
    def once(self) -> str:
        """Return the key of the work that may be done only once, however often it is requested."""
        return self.value if self.kind == "event" else self.actor


def told(folder: Path) -> list[Operation]:
    """Return the operations of all journals with their answers, in the order of each client."""
    found: dict[str, Operation] = {}
    for file in sorted(folder.glob("*.journal")):
        for line in file.read_bytes().splitlines(keepends=True):
            if line.endswith(b"\n"):
                one = msgspec.json.decode(line, type=Operation)
                found[one.actor] = one
    return list(found.values())


def as_of(before: Iterable[Operation], now: Iterable[Operation]) -> list[Operation]:
    """Return the operations of which a reading between two moments may have seen this or that."""
    known = {one.actor: one for one in before}
    return [known.get(one.actor) or msgspec.structs.replace(one, answer="lost", run=None) for one in now]


class Seen(msgspec.Struct, frozen=True):
    """What the database says of one tenant."""

    entries: Counter[str]
    """Entries of the audit trail by actor."""
    schedules: dict[UUID, State]
    """Those that are not removed."""
    runs: list[Run]


def seen(store: Store, tenant: str) -> Seen:
    """Read it in one transaction."""
    with store.session(tenant) as session:
        actors = [msgspec.json.decode(one.actor or b"{}")["actorId"] for one in session.audit.list(ALL)]
        found: dict[UUID, State] = {}
        for one in session.schedules.list(ScheduleQuery(limit=ALL)):
            phase: Phase = "paused" if one.status == "paused" else "cancelled" if one.status == "cancelled" else "live"
            found[one.id] = (phase, one.name)
        return Seen(Counter(actors), found, every_run(session))


def every_run(session: Session) -> list[Run]:
    """Return all runs of a tenant, page by page."""
    runs: list[Run] = []
    query = RunQuery(limit=500)
    while True:
        page = session.runs.list(query)
        runs += page.runs
        if page.cursor is None:
            return runs
        query = RunQuery(limit=500, cursor=page.cursor)


def faults(operations: Sequence[Operation], looked: Mapping[str, Seen], *, ended: bool) -> list[str]:
    """Return the contradictions to the clients' answers; ``ended``: every requested run has to be done by now.

    ``looked`` is what was read of each tenant.
    """
    found = []
    for tenant, group in groupby(sorted(operations, key=lambda one: (one.tenant, one.number)), key=lambda o: o.tenant):
        if tenant in looked:
            found += [f"{tenant}: {fault}" for fault in _of_tenant(list(group), looked[tenant], ended=ended)]
    return found


def _of_tenant(own: Sequence[Operation], looked: Seen, *, ended: bool) -> Iterable[str]:
    for key in dict.fromkeys(one.once for one in own):
        asked = [one for one in own if one.once == key]
        count = sum(looked.entries[one.actor] for one in asked)
        answers = {one.answer for one in asked}
        wanted = {1} if "done" in answers else {0} if answers == {"refused"} else {0, 1}
        if count not in wanted:
            yield f"{asked[0].kind} {key}: {count} times, told {sorted(answers)} {asked[-1].why}"
    for schedule in dict.fromkeys(one.schedule for one in own):
        mine = [one for one in own if one.schedule == schedule]
        may_be = _states(mine)
        stands = looked.schedules.get(schedule, ABSENT)
        if stands not in may_be:
            yield f"schedule {schedule} is {stands}, and may be {sorted(may_be)}"
        runs = [run for run in looked.runs if run.schedule_id == schedule]
        yield from _runs(mine, runs, may_be, ended=ended)


def _states(operations: Sequence[Operation]) -> set[State]:
    """Return the states that a schedule may have by the answers that its only client got."""
    listens = all(one.kind not in MAKES for one in operations)  # it was there before, under the tenant's name
    states: set[State] = {("live", operations[0].tenant) if listens else ABSENT}
    for one in operations:
        after = {_after(one, state) for state in states}
        states = after if one.answer == "done" else states | after if one.answer == "lost" else states
    return {ABSENT if phase == "absent" else (phase, name) for phase, name in states}


def _after(one: Operation, state: State) -> State:
    if one.kind in MAKES:
        return "live", one.value
    if one.kind == "update":
        return state[0], one.value
    return AFTER.get(one.kind, state[0]), state[1]


def _runs(own: Sequence[Operation], runs: Sequence[Run], may_be: set[State], *, ended: bool) -> Iterable[str]:
    """Yield what is wrong with the runs that were asked for: one each, and in the end one of its attempts completed."""
    schedule = own[0].schedule
    asked: dict[str, list[Answer]] = {}
    for one in own:
        if one.kind in ("run", "event", "once"):
            asked.setdefault(one.once, []).append(one.answer)
    least = sum("done" in answers for answers in asked.values())
    most = least + sum("done" not in answers and "lost" in answers for answers in asked.values())
    roots = {run.id: run for run in runs if run.retry_of is None}
    fires = 0 if own[0].kind != "once" else 1
    if not (least - (0 if ended else fires) <= len(roots) <= most):
        yield f"schedule {schedule}: {len(roots)} runs, asked for {least} to {most}"
    for one in own:
        if one.kind in ("run", "event") and one.answer == "done" and one.run is not None and one.run not in roots:
            yield f"schedule {schedule}: run {one.run} of {one.actor} is not there"
    below = {run.retry_of: run.id for run in runs if run.retry_of is not None}
    by_id = {run.id: run for run in runs}
    for root in roots.values():
        chain = [root]
        while (following := below.get(chain[-1].id)) is not None:
            chain.append(by_id[following])
        done = sum(run.state == "completed" for run in chain)
        must = ended and all(phase == "live" for phase, _ in may_be)
        if done > 1 or (must and done != 1):
            yield f"run {root.id} of {schedule}: {done} times completed: {[(run.state, run.error) for run in chain]}"
