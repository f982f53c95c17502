"""What the source systems offer over HTTP, as a table: route, method of the scheduler's facade, shape of the answer.

Their servers and pages are theirs; whoever puts the facade behind the old addresses reads it here. Only data. Paths are
without their prefix (``/api/v1/scheduler`` and the like) and name their parameters in braces.
"""

from typing import Final, Literal

import msgspec

from migrator.sources.crawler import names as crawler
from migrator.sources.orchestrator import names as orchestrator
from migrator.sources.support_center import names as support_center

Verb = Literal["GET", "POST", "PUT", "DELETE"]


class Route(msgspec.Struct, frozen=True):
    """One route of a system."""

    system: str
    verb: Verb
    path: str
    call: str
    """A member of ``FACADE`` or of ``WITHOUT_FACADE``."""
    table: str | None = None
    """Table whose columns the answer has; None: an answer of its own, or none."""
    many: bool = False
    """The answer is a list."""
    capability: str = ""
    """The row of ``docs/capabilities.md`` that asks for it."""


def _routes(system: str, capability: str, *rows: tuple[Verb, str, str, str | None, bool]) -> tuple[Route, ...]:
    return tuple(Route(system, verb, path, call, table, many, capability) for verb, path, call, table, many in rows)


_ORCHESTRATOR: Final = _routes(
    orchestrator.NAME,
    "2-X13",
    ("POST", "/jobs/cron", "schedule", orchestrator.JOBS, False),
    ("POST", "/jobs/once", "schedule_once", orchestrator.JOBS, False),
    ("GET", "/jobs/{id}", "get", orchestrator.JOBS, False),
    ("GET", "/jobs", "list", orchestrator.JOBS, True),
    ("PUT", "/jobs/{id}/schedule", "reschedule", orchestrator.JOBS, False),
    ("POST", "/jobs/{id}/pause", "pause", None, False),
    ("POST", "/jobs/{id}/resume", "resume", None, False),
    ("DELETE", "/jobs/{id}", "unschedule", None, False),
    ("GET", "/jobs/{id}/executions", "history", orchestrator.EXECUTIONS, True),
    ("GET", "/executions/{id}", "get_execution", orchestrator.EXECUTIONS, False),
    ("POST", "/executions/{id}/retry", "retry", orchestrator.EXECUTIONS, False),
    ("POST", "/events/trigger", "trigger_event", None, False),
)

_CRAWLER: Final = (
    *_routes(
        crawler.NAME,
        "3-D1..4",
        ("POST", "/jobs/{id}/pause", "pause", crawler.JOBS, False),
        ("POST", "/jobs/{id}/resume", "resume", crawler.JOBS, False),
        ("POST", "/jobs/{id}/cancel", "cancel", crawler.JOBS, False),
        ("POST", "/jobs/{id}/retry", "retry_schedule", crawler.JOBS, False),
    ),
    *_routes(crawler.NAME, "3-D5", ("GET", "/jobs/{id}/executions", "history", crawler.EXECUTIONS, True)),
    *_routes(crawler.NAME, "3-D6", ("GET", "/jobs/{id}/stats", "stats", None, False)),
    *_routes(crawler.NAME, "3-D7", ("GET", "/executions/{id}", "get_execution", crawler.EXECUTIONS, False)),
    *_routes(crawler.NAME, "3-D8", ("GET", "/scheduler/metrics", "metrics", None, False)),
)

_SUPPORT_CENTER: Final = _routes(
    support_center.NAME,
    "4-S7",
    ("GET", "/task-functions", "handlers.list", support_center.TASK_FUNCTIONS, True),
    ("GET", "/job-types", "states.TRIGGER_KINDS", support_center.JOB_TYPES, True),
    ("GET", "/jobs", "list", support_center.JOBS, True),
    ("POST", "/jobs", "schedule", support_center.JOBS, False),
    ("GET", "/jobs/{job_id}", "get", support_center.JOBS, False),
    ("PUT", "/jobs/{job_id}", "update", support_center.JOBS, False),
    ("DELETE", "/jobs/{job_id}", "unschedule", None, False),
    ("PUT", "/jobs/{job_id}/status", "toggle", support_center.JOBS, False),
    ("POST", "/jobs/{job_id}/trigger", "trigger_now", support_center.EXECUTIONS, False),
    ("GET", "/executions", "runs.list", support_center.EXECUTIONS, True),
    ("GET", "/jobs/{job_id}/executions", "history", support_center.EXECUTIONS, True),
    ("GET", "/status", "status", None, False),
)

ROUTES: Final = (*_ORCHESTRATOR, *_CRAWLER, *_SUPPORT_CENTER)
"""Every route: 12 of source 002, 8 of 003, 12 of 004."""

FACADE: Final = frozenset(
    {
        "schedule",
        "schedule_once",
        "schedule_recurring",
        "reschedule",
        "unschedule",
        "on_event",
        "trigger_event",
        "get",
        "list",
        "pause",
        "resume",
        "cancel",
        "history",
        "get_execution",
        "retry",
        "metrics",
        "health",
        "stats",
        "trigger_now",
        "toggle",
        "status",
        "retry_schedule",
        "update",
    }
)
"""Methods of the facade that a route may call: the 18 of source 002's port, and five that the others need."""

WITHOUT_FACADE: Final = frozenset({"handlers.list", "runs.list", "states.TRIGGER_KINDS"})
"""What needs no method of the facade: a repository of ``store.ports``, or a list in code."""
