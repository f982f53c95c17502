"""The four state machines as tables, and the closed lists of words that the columns hold.

The CHECK constraints of the schema and the documentation come from here. A machine maps each state to the states that
may follow it; a state without followers is terminal; no state follows itself. Every write of a state is a
compare-and-set on the expected one: these tables say which pairs may be asked for.
"""

from collections.abc import Mapping
from typing import TypeAlias

Machine: TypeAlias = Mapping[str, frozenset[str]]
"""State to the states that may follow it, in the order of a life."""


def _machine(**edges: str) -> Machine:
    return {state: frozenset(followers.split()) for state, followers in edges.items()}


SCHEDULE: Machine = _machine(
    pending="scheduled running cancelled",
    scheduled="running paused cancelled pending",
    running="completed failed scheduled cancelled",
    paused="scheduled cancelled pending",
    completed="scheduled",
    failed="pending",
    cancelled="",
)
"""A schedule; scheduled or paused to pending is a forced run."""

RUN: Machine = _machine(
    planning="queued cancelled error",
    queued="running cancelled error skipped",
    running="completed error cancelled timeout",
    completed="",
    error="",
    cancelled="",
    timeout="",
    skipped="",
)
"""A run; a retry is a new queued run that names this one in ``retry_of``."""

GRAPH_JOB: Machine = _machine(
    pending="queued running failed canceled",
    queued="running failed canceled",
    running="completed failed canceled",
    completed="",
    failed="",
    canceled="",
)
"""A graph build or overlay job."""

POLICY_JOB: Machine = _machine(
    pending="dispatching failed canceled",
    dispatching="submitted pending failed canceled",
    submitted="completed failed canceled",
    queued="running failed canceled",
    running="succeeded failed canceled",
    succeeded="",
    completed="",
    failed="",
    canceled="",
    replay_pending="queued failed canceled",
)
"""A policy work item (pending …) or status document (queued …); dispatching to pending is a lost lease."""

SCHEDULE_FIRING = ("pending", "scheduled", "running")
"""Statuses of a schedule whose triggers fire."""

RUN_WAITING = ("planning", "queued")
"""States of a run that no worker has begun."""

RUN_OPEN = ("queued", "running")
"""States of a run that counts as live when its schedule fires again."""

SCHEDULE_QUEUED = "queued"
"""What is said of a running schedule while each live run of it waits. No column holds it: a claim of a run writes no
schedule."""

RUN_FAILED = ("error", "timeout")
"""States of a run that did not do its work."""

WORKER_LIVE = ("active", "draining")
"""Statuses of a process that sends heartbeats."""

WORKER_ENDED = ("stopped", "dead")
"""Statuses of a process that does not come back under its id."""

MACHINES: Mapping[str, Machine] = {
    "schedule": SCHEDULE,
    "run": RUN,
    "graph job": GRAPH_JOB,
    "policy job": POLICY_JOB,
}

GRAPH_JOB_CODES: Mapping[str, int] = {
    "queued": 0,
    "running": 1,
    "completed": 2,
    "failed": 3,
    "canceled": 4,
    "pending": 5,
}
"""Codes of ``graph_jobs.status``: the list in the plan of StellaOps, in its order, then ``pending``, which it lacks."""

GRAPH_JOB_TYPES: Mapping[str, int] = {"build": 0, "overlay": 1}
"""Codes of ``graph_jobs.type``."""

SCHEDULE_MODES = ("analysis-only", "content-refresh")
HANDLER_TYPES = ("function", "agent", "workflow", "job_creator", "celery_task", "async_function")
RETRY_STRATEGIES = ("exponential", "fixed")
EXHAUSTED_POLICIES = ("keep", "stop")
TRIGGER_KINDS = ("cron", "interval", "one_time", "event")
TRIGGER_ANCHORS = ("completion", "fixed_rate")
MISFIRE_POLICIES = ("fire_once", "skip", "fire_all")
POLICY_MODES = ("full", "incremental", "simulate")
POLICY_PRIORITIES = ("normal", "high", "emergency")
WORKER_KINDS = ("worker", "scheduler")
WORKER_STATUSES = ("active", "draining", "stopped", "dead")
LOG_LEVELS = ("trace", "debug", "info", "warn", "error", "fatal")

RUN_CAUSES = (
    "cron",
    "interval",
    "one_time",
    "manual",
    "api",
    "event",
    "retry",
    "conselier",
    "excitor",
    "policy",
    "content-refresh",
)
"""Known values of ``runs.cause``, which is open text: another word is loaded as it is."""

PRIORITY_WORDS: Mapping[str, int] = {"low": 25, "medium": 50, "high": 75, "critical": 100}
"""Words for ``schedules.priority``."""


SCHEDULE_ACTIONS: Mapping[str, tuple[frozenset[str], str]] = {
    "pause": (frozenset({"scheduled"}), "paused"),
    "resume": (frozenset({"paused"}), "scheduled"),
    "cancel": (frozenset({"pending", "scheduled", "running", "paused"}), "cancelled"),
    "retry": (frozenset({"failed"}), "pending"),
}
"""What a person may ask of a schedule: in which states, and to which it leads (each an edge of ``SCHEDULE``)."""


def may_be_asked(action: str, status: str) -> bool:
    """Whether a schedule in this state may be asked to pause, resume, cancel or retry."""
    return status in SCHEDULE_ACTIONS[action][0]


def may_follow(machine: Machine, state: str, follower: str) -> bool:
    """Whether ``follower`` may come after ``state``; an unknown state has no followers."""
    return follower in machine.get(state, frozenset())


def is_terminal(machine: Machine, state: str) -> bool:
    """Whether nothing follows ``state``; raises KeyError for a state that the machine does not know."""
    return not machine[state]


def live(machine: Machine) -> tuple[str, ...]:
    """Return the states that something may follow, in the machine's order."""
    return tuple(state for state in machine if machine[state])
