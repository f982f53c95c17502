"""Graph jobs and policy jobs: the part of ``store.ports`` that the sources' own kinds of job need."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Protocol
from uuid import UUID

from migrator.records.graph_job import GraphJob
from migrator.records.graph_job_event import GraphJobEvent
from migrator.records.policy_job import PolicyJob
from migrator.store.queries import GraphType


class GraphJobs(Protocol):
    """Graph jobs of the session's tenant; build and overlay jobs never answer for each other."""

    def insert(self, job: GraphJob) -> None:
        """Insert; raises ``ConflictError`` for an id that exists."""

    def try_replace(self, job: GraphJob, expected: str) -> bool:
        """Replace if the status is ``expected`` now (a word of ``states.GRAPH_JOB``) and the type is the same.

        Writes an event with the new status in the same transaction: its time is now, its payload the source's envelope
        (``lives.graph_event``). Raises ``TransitionError`` for an illegal pair, the same status included.
        """

    def get(self, kind: GraphType, job_id: UUID) -> GraphJob | None:
        """Return the job of this type."""

    def list(self, kind: GraphType, status: str | None, limit: int) -> Sequence[GraphJob]:
        """Return jobs of this type, newest first; an unknown type or status raises ``UsageError``."""

    def append_event(self, event: GraphJobEvent) -> GraphJobEvent:
        """Append; the id is given here. Raises ``UnknownError`` when there is no such job."""

    def events(self, job_id: UUID) -> Sequence[GraphJobEvent]:
        """Return a job's events in the order they were appended."""


class PolicyJobs(Protocol):
    """Policy jobs of the session's tenant."""

    def insert(self, job: PolicyJob) -> None:
        """Insert; raises ``ConflictError`` for an id or a run id that exists."""

    def get(self, job_id: UUID) -> PolicyJob | None:
        """Return the job."""

    def by_run_id(self, run_id: str) -> PolicyJob | None:
        """Return the job with this idempotency key: of several sources, the one born here, else by source."""

    def list(self, status: str | None, limit: int) -> Sequence[PolicyJob]:
        """Return jobs, highest rank first, then by queued time (none last)."""

    def try_replace(self, job: PolicyJob, expected: str) -> bool:
        """Replace if the status is ``expected`` now; raises ``TransitionError`` for an illegal pair.

        The run id stays. The same status is an illegal pair.
        """

    def lease(self, owner: str, limit: int, lease: timedelta) -> Sequence[PolicyJob]:
        """Take pending jobs that are available: they are dispatching, leased to ``owner``, one attempt more.

        In the order of ``list``; ``last_attempt_at``, ``updated_at`` are now. Jobs that another session is taking are
        passed over (MongoDB: where two begin to take one at the very same moment, one session may end with
        ``ConflictError``). A lease not above zero raises ``UsageError``.
        """
