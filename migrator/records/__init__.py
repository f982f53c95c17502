"""The thirteen records: one frozen struct per table of the schema ``scheduler``, in load order."""

from migrator.records.audit import AuditEntry
from migrator.records.base import Record
from migrator.records.execution_log import ExecutionLog
from migrator.records.graph_job import GraphJob
from migrator.records.graph_job_event import GraphJobEvent
from migrator.records.handler import Handler
from migrator.records.impact_snapshot import ImpactSnapshot
from migrator.records.lock import Lock
from migrator.records.policy_job import PolicyJob
from migrator.records.run import Run
from migrator.records.run_summary import RunSummary
from migrator.records.schedule import Schedule
from migrator.records.trigger import Trigger
from migrator.records.worker import Worker

ALL: tuple[type[Record], ...] = (
    Handler,
    Schedule,
    Trigger,
    Run,
    ExecutionLog,
    ImpactSnapshot,
    GraphJob,
    GraphJobEvent,
    PolicyJob,
    RunSummary,
    Worker,
    Lock,
    AuditEntry,
)
"""Every record, parents before the rows that refer to them."""

__all__ = [
    "ALL",
    "AuditEntry",
    "ExecutionLog",
    "GraphJob",
    "GraphJobEvent",
    "Handler",
    "ImpactSnapshot",
    "Lock",
    "PolicyJob",
    "Record",
    "Run",
    "RunSummary",
    "Schedule",
    "Trigger",
    "Worker",
]
