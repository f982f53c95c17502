"""A scheduler keeps working while it is copied, followed, switched and taken back, and while everything is killed.

Real processes over one configuration file: nobody tells them about the switch. One judge
(``tests.contract.assignment``) wants every slot to have fired once, whichever side it fired on; the other one
(``tests.acknowledged``) wants every operation that a client of the facade was told is done to be there once, on the new
side and, after the way back, on the old one. Processes, commands and both servers are killed at moments that a seed
chooses; commands are called again.
"""

import random
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from migrator import fault_points
from migrator.cutover import journal
from migrator.schema.revisions import upgrade
from migrator.testing.servers.mongo import MongoServer
from migrator.testing.servers.postgres import PostgresServer
from tests.acknowledged import Operation, as_of, faults, seen
from tests.acknowledged import told as told_in
from tests.conftest import FIGURES, fresh_name
from tests.contract.assignment import once_each
from tests.cron_lines import DEEP
from tests.cutting_over import scene
from tests.supervised import Fate, Victim
from tests.under_load import Load, loaded

SEEDS = range(20) if DEEP else range(1)
SLOTS = 8 if DEEP else 4
CLIENTS = 2 if DEEP else 1
COPY = (
    fault_points.AFTER_PLAN_STORED,
    fault_points.AFTER_CHUNK_BEGUN,
    fault_points.AFTER_LOAD_BEFORE_COMMIT,
    fault_points.AFTER_COMMIT,
    fault_points.AFTER_LINKS_CLOSED,
)
FOLLOWING = (
    fault_points.TAIL_BATCH_TAKEN,
    fault_points.TAIL_APPLIED,
    fault_points.TAIL_BEFORE_COMMIT,
    fault_points.TAIL_AFTER_COMMIT,
    fault_points.BEFORE_REVERSE_WRITE,
    fault_points.AFTER_REVERSE_WRITE,
    fault_points.AFTER_REVERSE_DROP,
)
SWITCH = tuple(
    f"{fault_points.CUTOVER_PREFIX}{step}.{moment}" for step in journal.CUTOVER_STEPS for moment in ("begun", "done")
)
BACK = tuple(
    f"{fault_points.CUTOVER_PREFIX}{step}.{moment}"
    for step in journal.ROLLBACK_STEPS[1]
    for moment in ("begun", "done")
)
VICTIMS: tuple[Victim, ...] = ("itself", "mongod", "postgres")


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What a seed has in store."""

    copy: list[Fate]
    tail: Fate | None
    switch: list[Fate]
    back: list[Fate]
    strikes: dict[str, list[str]]
    """Phase → who is killed at its beginning."""


def drawn(seed: int) -> Plan:
    """Return a plan: the short profile kills the command, a server and a process; the deep one all it can."""
    dice = random.Random(seed)

    def fates(points: tuple[str, ...], most: int, passings: int = 1) -> list[Fate]:
        number = dice.randint(1, most)
        return [Fate(dice.choice(VICTIMS), dice.choice(points), dice.randint(1, passings)) for _ in range(number)]

    if not DEEP:
        switch = [
            Fate("mongod", f"{fault_points.CUTOVER_PREFIX}drain.begun"),
            Fate("itself", f"{fault_points.CUTOVER_PREFIX}open-target.begun"),
        ]
        return Plan(copy=[], tail=None, switch=switch, back=[], strikes={"since": ["scheduler", "client"]})
    phases = ("tail", "since", "back")
    everybody = ("scheduler", "scheduler", "client", "tail", "mongod", "postgres")
    return Plan(
        copy=fates(COPY, 2),
        tail=fates(FOLLOWING, 1, 30)[0],
        switch=fates(SWITCH, 3),
        back=fates(BACK, 3),
        strikes={phase: dice.sample(everybody, dice.randint(1, 3)) for phase in phases},
    )


@pytest.fixture(scope="module")
def server() -> Iterator[MongoServer]:
    # not fast: what it has acknowledged has to outlive its death
    with MongoServer(auth=True) as started:
        yield started


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    with PostgresServer(fast=True) as started:
        yield started


@pytest.fixture
def target(postgres: PostgresServer) -> Iterator[str]:
    name = fresh_name()
    dsn = postgres.create_database(name)
    upgrade(dsn)
    yield dsn
    postgres.drop_database(name)


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.proves("0-T2.10.2", "4-X4", "4-X5", "4-X6", "4-B1")
def test_nothing_acknowledged_is_lost_and_no_slot_is_missed_or_fired_twice(
    seed: int,
    server: MongoServer,
    postgres: PostgresServer,
    target: str,
    tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> None:
    with scene(server, fresh_name(), target, tmp_path) as ready, loaded(ready, postgres, seed, CLIENTS) as load:
        said = _there_and_back(load, drawn(seed))
        load.note(f"seed {seed}: {said}")
        record_property(FIGURES, said)


def _there_and_back(load: Load, plan: Plan) -> str:
    load.begin()
    load.more(SLOTS)
    load.operate("backfill", fates=plan.copy)
    load.follow(plan.tail)
    _struck(load, plan, "tail")
    load.caught_up()
    load.operate("parity")
    printed = load.operate("cutover", "run", fates=plan.switch)
    pause = re.search(r"write pause: ([0-9.]+) s", printed)
    assert pause is not None, printed
    _struck(load, plan, "since")
    _as_told_so_far(load)
    _struck(load, plan, "back")
    load.operate("rollback", "run", fates=plan.back)
    load.more(SLOTS)
    load.dismiss("client")
    due = load.due()
    told = told_in(load.folder)
    load.until(lambda: set(due) <= set(load.slots()))  # what a killed process held is repeated by others
    load.until(lambda: not _faults(load, told))
    load.dismiss("scheduler")
    load.dismiss("tail")
    if DEEP:
        load.operate("tail", "--until-caught-up")  # with nothing set aside, else its status says so
        load.operate("parity")  # and the next switch could be made
    last = max(at for _, at in due)
    verdict = once_each(due, [slot for slot in load.slots() if slot[1] <= last])
    assert verdict.clean, verdict
    assert _faults(load, told) == []
    assert "Traceback" not in load.said.read_text(errors="replace")
    answers = Counter(one.answer for one in told)
    asked = f"{answers['done']} operations acknowledged, {answers['lost']} unknown, {answers['refused']} refused"
    return f"write pause {pause[1]} s; {asked}; {verdict.matched} slots; killed: {load.killed()}"


def _struck(load: Load, plan: Plan, phase: str) -> None:
    """Kill whom the plan names, one after the other, and wait until work goes on."""
    for victim in plan.strikes.get(phase, ()):
        load.note(f"strike {victim}")
        load.strike(victim)
        load.more(SLOTS // 2)
    load.more(SLOTS)


def _faults(load: Load, told: list[Operation]) -> list[str]:
    """Return the contradictions to the answers that the clients got, once all of them have ended."""
    with load.store() as store:
        looked = {tenant: seen(store, tenant) for tenant in {one.tenant for one in told}}
    return faults(told, looked, ended=True)


def _as_told_so_far(load: Load) -> None:
    """Look at PostgreSQL while the clients go on: what they were told before is there."""

    def look() -> bool:
        before = told_in(load.folder)
        with load.store() as store:
            assert store.backend == "postgres"
            looked = {tenant: seen(store, tenant) for tenant in {one.tenant for one in before}}
        found = faults(as_of(before, told_in(load.folder)), looked, ended=False)
        assert not found, found
        return True

    load.until(look)
