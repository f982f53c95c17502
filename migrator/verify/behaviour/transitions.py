"""Scenarios of area transitions: every pair of states is tried on the backend.

The transitions are written down here a second time, on purpose: a change in ``states`` alone must show.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from migrator import states
from migrator.errors import TransitionError
from migrator.records import GraphJob, PolicyJob, Run
from migrator.result import FAILED, PASSED, StateMachine, Transition
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


def schedules(harness: Harness, observed: Observations) -> None:
    """Move schedules from every state to every state."""

    def attempt(before: str, after: str) -> tuple[bool, str]:
        row = harness.row(f"{before} to {after}", status=before)
        with harness.session() as session:
            session.schedules.upsert(row)
            done = _accepted(lambda: session.schedules.change_status(row.id, before, after))
            found = session.schedules.get(row.id)
        return done, "" if found is None else found.status

    _try_all_pairs(harness, observed, "schedule", states.SCHEDULE, SCHEDULE, attempt)
    row = harness.row("stale", status="scheduled")
    with harness.session() as session:
        session.schedules.upsert(row)
        stale = session.schedules.change_status(row.id, "paused", "scheduled")
        observed.expect(
            "who expects another state changes nothing",
            (None, "scheduled"),
            (stale, _status(session.schedules.get(row.id))),
        )


def runs(harness: Harness, observed: Observations) -> None:
    """Move runs from every state to every state."""

    def attempt(before: str, after: str) -> tuple[bool, str]:
        with harness.session() as session:
            row = session.runs.create(
                Run(id=harness.new_id(), tenant_id=harness.tenant, state=before, created_at=harness.now)
            )
            done = _accepted(lambda: session.runs.update(msgspec.structs.replace(row, state=after), before))
            found = session.runs.get(row.id)
        return done, "" if found is None else found.state

    _try_all_pairs(harness, observed, "run", states.RUN, RUN, attempt)
    with harness.session() as session:
        row = session.runs.create(
            Run(id=harness.new_id(), tenant_id=harness.tenant, state="queued", created_at=harness.now)
        )
        stale = session.runs.update(msgspec.structs.replace(row, state="completed"), "running")
        observed.expect("who expects another state changes nothing", (False, row), (stale, session.runs.get(row.id)))
    harness.advance(SECOND)
    with harness.session() as session:
        session.runs.update(msgspec.structs.replace(row, state="running"), "queued")
    harness.advance(SECOND * 1.234)
    with harness.session() as session:
        session.runs.update(msgspec.structs.replace(row, state="completed"), "running")
        ended = session.runs.get(row.id)
    times = (harness.now - SECOND * 1.234, harness.now, 1234)
    observed.expect(
        "start, end and duration are kept to the millisecond",
        times,
        None if ended is None else (ended.started_at, ended.finished_at, ended.duration_ms),
    )


def graph_jobs(harness: Harness, observed: Observations) -> None:
    """Move graph jobs of both types from every state to every state; each move leaves its event."""
    for kind, code in _TYPES.items():

        def attempt(before: str, after: str, code: int = code, kind: GraphType = kind) -> tuple[bool, str]:
            names = {number: word for word, number in states.GRAPH_JOB_CODES.items()}
            job = GraphJob(
                id=harness.new_id(),
                tenant_id=harness.tenant,
                type=code,
                status=states.GRAPH_JOB_CODES[before],
                payload=b"{}",
                created_at=harness.now,
                updated_at=harness.now,
            )
            with harness.session() as session:
                session.graph_jobs.insert(job)
                moved = msgspec.structs.replace(job, status=states.GRAPH_JOB_CODES[after])
                done = _accepted(lambda: session.graph_jobs.try_replace(moved, before))
                stored = session.graph_jobs.get(kind, job.id)
                events = [names[one.status] for one in session.graph_jobs.events(job.id)]
            observed.expect(
                f"{kind}: {before} to {after}: an event of each move, and of nothing else",
                [after] if done else [],
                events,
            )
            return done, "" if stored is None else names[stored.status]

        _try_all_pairs(harness, observed, f"graph {kind} job", states.GRAPH_JOB, GRAPH, attempt)


def policy_jobs(harness: Harness, observed: Observations) -> None:
    """Move policy jobs from every state to every state."""

    def attempt(before: str, after: str) -> tuple[bool, str]:
        job = PolicyJob(id=harness.new_id(), tenant_id=harness.tenant, policy_id="P-1", status=before)
        with harness.session() as session:
            session.policy_jobs.insert(job)
            done = _accepted(
                lambda: session.policy_jobs.try_replace(msgspec.structs.replace(job, status=after), before)
            )
            found = session.policy_jobs.get(job.id)
        return done, "" if found is None else found.status

    _try_all_pairs(harness, observed, "policy job", states.POLICY_JOB, POLICY, attempt)


def _try_all_pairs(
    harness: Harness, observed: Observations, name: str, known: Mapping[str, Any], written: str, attempt: Attempt
) -> None:
    """Try every pair; what is written down may be, everything else may not."""
    pairs = {tuple(pair.split(">")) for pair in written.split()}
    stated = sorted({word for pair in pairs for word in pair} | {*known})
    observed.expect(f"{name}: its states", stated, sorted(known))
    edges = []
    for before in known:
        for after in known:
            allowed = (before, after) in pairs
            right = observed.expect(
                f"{name}: {before} to {after}",
                (allowed, after if allowed else before),
                attempt(before, after),
                pair=True,
            )
            edges.append(
                Transition(
                    before=before, after=after, allowed=allowed, exercised=1, outcome=PASSED if right else FAILED
                )
            )
    observed.state_machines.append(
        StateMachine(name=f"{name} on {harness.backend}", states=tuple(known), transitions=tuple(edges))
    )


def _accepted(change: Callable[[], Any]) -> bool:
    try:
        return bool(change())
    except TransitionError:
        return False


def _status(row: Any) -> str | None:  # noqa: ANN401 - a schedule, or none
    return None if row is None else str(row.status)
