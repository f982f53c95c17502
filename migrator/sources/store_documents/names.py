"""Every word of the source that is not a field name: collections, versions, prefixes, enumerations and their aliases.

Field names stand once, in the shapes. What is here follows the public documents of the product as far as they could be
read; where they disagree, or say nothing, this is the file to correct.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, TypeAlias

from migrator import states

NAME = "stellaops"

SCHEDULES = "schedules"
RUNS = "runs"
IMPACT_SNAPSHOTS = "impact_snapshots"
AUDIT = "audit"
POLICY_RUNS = "policy_runs"
POLICY_JOBS = "policy_jobs"
GRAPH_JOBS = "graph_jobs"
GRAPH_JOB_EVENTS = "graph_job_events"
RUN_SUMMARIES = "run_summaries"
LOCKS = "locks"
TRIGGERS = "triggers"
WORKERS = "workers"
EXECUTION_LOGS = "execution_logs"
HANDLERS = "handlers"

SCHEDULE_VERSION = "scheduler.schedule@1"
RUN_VERSION = "scheduler.run@1"
IMPACT_SET_VERSION = "scheduler.impact-set@1"
POLICY_STATUS_VERSION = "scheduler.policy-run-status@1"
POLICY_JOB_VERSION = "scheduler.policy-run-job@1"
GRAPH_BUILD_VERSION = "scheduler.graph-build-job@1"
GRAPH_OVERLAY_VERSION = "scheduler.graph-overlay-job@1"

POLICY_SNAKE_VERSION = "policy-run.snake-case@0"
"""Our own word for the snake_case documents of ``policy_runs``, which have no schemaVersion: it keeps their shape."""

SCHEDULE_PREFIX = "sch_"
RUN_PREFIX = "run_"
TRIGGER_PREFIX = "trg_"
GRAPH_BUILD_PREFIX = "gbj_"
GRAPH_OVERLAY_PREFIX = "goj_"

POLICY_ITEM_PREFIX = "pwi_"
"""Of work items that our own store makes: the source's own begin with ``prj_``."""

SCHEDULE_PRIORITY = "schedulePriority"
"""The field in which our store keeps the schedule's priority with triggers and runs: it follows from the schedule."""

CRON_DIALECT = "cronos"
"""The product evaluates its cron texts with the C# library Cronos."""


def _words(words: Mapping[str, object] | tuple[str, ...], **aliases: str) -> Mapping[str, str]:
    return MappingProxyType({word: word for word in words} | aliases)


RUN_STATES = _words(states.RUN, canceled="cancelled")

RUN_CAUSES: Mapping[str, str] = MappingProxyType(
    {word: word for word in states.RUN_CAUSES}
    | {
        "feedser": "conselier",
        "concelier": "conselier",
        "vexer": "excitor",
        "excititor": "excitor",
        "contentrefresh": "content-refresh",
    }
)
"""The services were renamed twice; another word is open text and stays."""

SCHEDULE_MODES = _words(states.SCHEDULE_MODES, analysisonly="analysis-only", contentrefresh="content-refresh")

SCHEDULE_STATUSES = _words(states.SCHEDULE, canceled="cancelled")

Scope: TypeAlias = Literal["all-images", "by-namespace", "by-repository", "by-digest", "by-labels", "by-repo"]
SCOPES = MappingProxyType({"by-repo": "by-repository"})
"""Scopes whose spelling is replaced."""

POLICY_STATUSES = _words(states.POLICY_JOB, cancelled="canceled")
POLICY_MODES = _words(states.POLICY_MODES)
POLICY_PRIORITIES = _words(states.POLICY_PRIORITIES)

GRAPH_STATUSES: Mapping[str, int] = MappingProxyType(
    {**states.GRAPH_JOB_CODES, "cancelled": states.GRAPH_JOB_CODES["canceled"]}
)
"""Jobs spell canceled, events cancelled: both are the source's own."""

GRAPH_TYPES = states.GRAPH_JOB_TYPES

GraphStatus: TypeAlias = Literal["pending", "queued", "running", "completed", "failed", "canceled", "cancelled"]
GraphTrigger: TypeAlias = Literal["sbom-version", "backfill", "manual", "policy", "advisory", "vex"]
GraphType: TypeAlias = Literal["build", "overlay"]
OverlayKind: TypeAlias = Literal["policy", "advisory", "vex"]
RunState: TypeAlias = Literal[
    "planning", "queued", "running", "completed", "error", "cancelled", "timeout", "skipped", "canceled"
]
Severity: TypeAlias = Literal["none", "unknown", "info", "low", "medium", "high", "critical"]


def source(collection: str) -> str:
    """Return the text of the ``source`` column."""
    return f"{NAME}/{collection}"
