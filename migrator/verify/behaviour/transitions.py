"""Scenarios of area transitions: every pair of states is tried on the backend.

The transitions are written down here a second time, on purpose: a change in ``states`` alone must show.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from migrator import states
from migrator.errors import TransitionError
from migrator.records import GraphJob, PolicyJob, Run
from migrator.result import FAILED, PASSED, Edge, Machine
from migrator.store.protocols import GraphType
from migrator.verify.behaviour.harness import SECOND, Harness
from migrator.verify.behaviour.scenarios import Observations

SCHEDULE: Final = """
pending>scheduled pending>running pending>cancelled scheduled>running scheduled>paused scheduled>cancelled
scheduled>pending running>completed running>failed running>scheduled running>cancelled paused>scheduled
paused>cancelled paused>pending completed>scheduled failed>pending
"""
RUN: Final = """
planning>queued planning>cancelled planning>error queued>running queued>cancelled queued>error queued>skipped
running>completed running>error running>cancelled running>timeout
planning>planning queued>queued running>running
"""
"""A live run may be written in its own state: its other columns change then."""
GRAPH: Final = """
pending>queued pending>running pending>failed pending>canceled queued>running queued>failed queued>canceled
running>completed running>failed running>canceled
"""
POLICY: Final = """
pending>dispatching pending>failed pending>canceled dispatching>submitted dispatching>pending dispatching>failed
dispatching>canceled submitted>completed submitted>failed submitted>canceled queued>running queued>failed
queued>canceled running>succeeded running>failed running>canceled replay_pending>queued replay_pending>failed
replay_pending>canceled
"""

_TYPES: Final[dict[GraphType, int]] = {"build": 0, "overlay": 1}

Attempt = Callable[[str, str], tuple[bool, str]]
"""Tries a pair on a new row; returns whether it was accepted, and the state afterwards."""


def schedules(ground: Harness, notes: Observations) -> None:
    """Move schedules from every state to every state."""

    def attempt(before: str, after: str) -> tuple[bool, str]:
        row = ground.row(f"{before} to {after}", status=before)
        with ground.session() as session:
            session.schedules.upsert(row)
            done = _accepted(lambda: session.schedules.change_status(row.id, before, after))
            found = session.schedules.get(row.id)
        return done, "" if found is None else found.status

    _try_all_pairs(ground, notes, "schedule", states.SCHEDULE, SCHEDULE, attempt)
    row = ground.row("stale", status="scheduled")
    with ground.session() as session:
        session.schedules.upsert(row)
        stale = session.schedules.change_status(row.id, "paused", "scheduled")
        notes.expect(
            "who expects another state changes nothing",
            (None, "scheduled"),
            (stale, _status(session.schedules.get(row.id))),
        )


def runs(ground: Harness, notes: Observations) -> None:
    """Move runs from every state to every state."""

    def attempt(before: str, after: str) -> tuple[bool, str]:
        with ground.session() as session:
            row = session.runs.create(
                Run(id=ground.new_id(), tenant_id=ground.tenant, state=before, created_at=ground.now)
            )
            done = _accepted(lambda: session.runs.update(msgspec.structs.replace(row, state=after), before))
            found = session.runs.get(row.id)
        return done, "" if found is None else found.state

    _try_all_pairs(ground, notes, "run", states.RUN, RUN, attempt)
    with ground.session() as session:
        row = session.runs.create(
            Run(id=ground.new_id(), tenant_id=ground.tenant, state="queued", created_at=ground.now)
        )
        stale = session.runs.update(msgspec.structs.replace(row, state="completed"), "running")
        notes.expect("who expects another state changes nothing", (False, row), (stale, session.runs.get(row.id)))
    ground.later(SECOND)
    with ground.session() as session:
        session.runs.update(msgspec.structs.replace(row, state="running"), "queued")
    ground.later(SECOND * 1.234)
    with ground.session() as session:
        session.runs.update(msgspec.structs.replace(row, state="completed"), "running")
        ended = session.runs.get(row.id)
    times = (ground.now - SECOND * 1.234, ground.now, 1234)
    notes.expect(
        "start, end and duration are kept to the millisecond",
        times,
        None if ended is None else (ended.started_at, ended.finished_at, ended.duration_ms),
    )


def graph_jobs(ground: Harness, notes: Observations) -> None:
    """Move graph jobs of both types from every state to every state; each move leaves its event."""
    for kind, code in _TYPES.items():

        def attempt(before: str, after: str, code: int = code, kind: GraphType = kind) -> tuple[bool, str]:
            words = {number: word for word, number in states.GRAPH_JOB_CODES.items()}
            job = GraphJob(
                id=ground.new_id(),
                tenant_id=ground.tenant,
                type=code,
                status=states.GRAPH_JOB_CODES[before],
                payload=b"{}",
                created_at=ground.now,
                updated_at=ground.now,
            )
            with ground.session() as session:
                session.graph_jobs.insert(job)
                moved = msgspec.structs.replace(job, status=states.GRAPH_JOB_CODES[after])
                done = _accepted(lambda: session.graph_jobs.try_replace(moved, before))
                found = session.graph_jobs.get(kind, job.id)
                events = [words[one.status] for one in session.graph_jobs.events(job.id)]
            notes.expect(
                f"{kind}: {before} to {after}: an event of each move, and of nothing else",
                [after] if done else [],
                events,
            )
            return done, "" if found is None else words[found.status]

        _try_all_pairs(ground, notes, f"graph {kind} job", states.GRAPH_JOB, GRAPH, attempt)


def policy_jobs(ground: Harness, notes: Observations) -> None:
    """Move policy jobs from every state to every state."""

    def attempt(before: str, after: str) -> tuple[bool, str]:
        job = PolicyJob(id=ground.new_id(), tenant_id=ground.tenant, policy_id="P-1", status=before)
        with ground.session() as session:
            session.policy_jobs.insert(job)
            done = _accepted(
                lambda: session.policy_jobs.try_replace(msgspec.structs.replace(job, status=after), before)
            )
            found = session.policy_jobs.get(job.id)
        return done, "" if found is None else found.status

    _try_all_pairs(ground, notes, "policy job", states.POLICY_JOB, POLICY, attempt)


def _try_all_pairs(
    ground: Harness, notes: Observations, name: str, known: Mapping[str, Any], written: str, attempt: Attempt
) -> None:
    """Try every pair; what is written down may be, everything else may not."""
    pairs = {tuple(pair.split(">")) for pair in written.split()}
    stated = sorted({word for pair in pairs for word in pair} | {*known})
    notes.expect(f"{name}: its states", stated, sorted(known))
    edges = []
    for before in known:
        for after in known:
            allowed = (before, after) in pairs
            right = notes.expect(
                f"{name}: {before} to {after}", (allowed, after if allowed else before), attempt(before, after)
            )
            if before != after:
                edges.append(
                    Edge(before=before, after=after, allowed=allowed, exercised=1, outcome=PASSED if right else FAILED)
                )
    notes.machines.append(Machine(name=f"{name} on {ground.backend}", states=tuple(known), edges=tuple(edges)))


def _accepted(change: Callable[[], Any]) -> bool:
    try:
        return bool(change())
    except TransitionError:
        return False


def _status(row: Any) -> str | None:  # noqa: ANN401 - a schedule, or none
    return None if row is None else str(row.status)
