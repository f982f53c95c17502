"""Shadow reads: the reads of one backend are repeated on the other one, outside the caller's path, and compared.

The caller gets the chosen backend's answer at once, whatever the other one does. When a session has ended without an
error, its reads are put into a bounded queue. A thread repeats them on the other backend, with the same time, and
counts. Reads after a write of their own session are skipped: the other side does not have the write. Reads that find
the queue full are dropped, and counted too. Errors of the chosen backend are raised to the caller and not compared.

What the backends cannot have in common is not compared: ``source``, ``source_id``, ``extra``, and the ids of graph job
events, which each backend numbers by itself.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from queue import Full, Queue
from threading import Lock, Thread
from typing import Any, Self, cast

import msgspec

from migrator.log import logger
from migrator.records import GraphJobEvent, Record, Schedule
from migrator.store import locks as lock_protocols
from migrator.store import protocols
from migrator.store import queue as queue_protocols
from migrator.store.protocols import Preparable, Transactional
from migrator.store.wakeups import Wakeups
from migrator.store.workers import Workers
from migrator.values import jsonb

READS: Mapping[str, frozenset[str]] = {
    "schedules": frozenset({"get", "by_name", "called", "list", "count", "due"}),
    "triggers": frozenset({"get", "of_schedule", "of_schedules", "of_event"}),
    "runs": frozenset({"get", "list", "pending", "of_schedule", "newest_of", "repeats", "beyond"}),
    "graph_jobs": frozenset({"get", "list", "events"}),
    "policy_jobs": frozenset({"get", "by_run_id", "list"}),
    "impact_snapshots": frozenset({"get", "of_run"}),
    "execution_logs": frozenset({"of_run", "of_runs"}),
    "run_summaries": frozenset({"get"}),
    "audit": frozenset({"list"}),
    "handlers": frozenset({"get", "list"}),
    "statistics": frozenset({"schedules", "runs", "backlog", "failures", "hours", "removable", "next_fires"}),
}
"""Repository to the methods that read; every other method writes."""

_NOT_COMPARED = frozenset({"source", "source_id", "extra"})


class ShadowCounts(msgspec.Struct, frozen=True, kw_only=True):
    """The counts of the reads so far."""

    same: int = 0
    different: int = 0
    failed: int = 0
    """The other side raised an error."""
    passed_over: int = 0
    """Reads after a write of their own session."""
    dropped: int = 0
    """Reads that found the queue full."""


class Mismatch(msgspec.Struct, frozen=True, kw_only=True):
    """A read that the two sides answered differently; holds no values."""

    tenant: str
    read: str
    """``runs.list``."""
    why: str
    """``error: <type>``, ``rows: 3 against 4``, or the columns that differ, in order."""


class _Read(msgspec.Struct, frozen=True, kw_only=True):
    tenant: str
    now: datetime
    repository: str
    method: str
    arguments: tuple[Any, ...]
    named: dict[str, Any]
    answer: Any


class _Watched:
    """A repository of the chosen backend, whose reads are recorded."""

    def __init__(self, name: str, repository: object, session: "ShadowedSession") -> None:
        self._name, self._repository, self._session = name, repository, session

    def __getattr__(self, method: str) -> Any:  # noqa: ANN401 - any method of the repository
        call = getattr(self._repository, method)
        if method not in READS[self._name]:
            return self._session.writing(call)
        return lambda *arguments, **named: self._session.read(
            self._name, method, arguments, named, call(*arguments, **named)
        )


class ShadowedSession:
    """A session of the chosen backend (``protocols.Session``) that records its reads."""

    def __init__(self, session: protocols.Session) -> None:
        self.chosen = session
        """The session itself, for functions that take one."""
        self.tenant, self.now = session.tenant, session.now
        self.reads: list[_Read] = []
        self.passed_over = 0
        self._wrote = False

    def __getattr__(self, repository: str) -> _Watched:
        return _Watched(repository, getattr(self.chosen, repository), self)

    def writing(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """Return the call; it records that the session writes."""

        def write(*arguments: Any, **named: Any) -> Any:  # noqa: ANN401 - whatever the method takes
            self._wrote = True
            return call(*arguments, **named)

        return write

    def read(self, repository: str, method: str, arguments: tuple[Any, ...], named: dict[str, Any], answer: Any) -> Any:  # noqa: ANN401 - whatever the method takes
        """Record a read and return its answer."""
        if self._wrote:
            self.passed_over += 1
        else:
            self.reads.append(
                _Read(
                    tenant=self.tenant,
                    now=self.now,
                    repository=repository,
                    method=method,
                    arguments=arguments,
                    named=named,
                    answer=answer,
                )
            )
        return answer


class ShadowedLocks:
    """The chosen backend's locks (``locks.Locks``), for sessions whose reads are recorded."""

    def __init__(self, locks: lock_protocols.Locks) -> None:
        self.acquire, self.holder, self._locks = locks.acquire, locks.holder, locks

    def guard(self, session: protocols.Session, tenant: str, resource: str, fence: int) -> None:
        self._locks.guard(session.chosen if isinstance(session, ShadowedSession) else session, tenant, resource, fence)


class ShadowedStore(Preparable):  # by name, so that the type checker finds a method that is missing
    """The chosen backend's store (``protocols.Store``) with shadow reads on the other one.

    Calls across tenants go to the chosen backend only: they would change the other side, or differ by their nature.
    """

    def __init__(
        self,
        store: protocols.Store,
        open_other: Callable[[], protocols.SessionStore],
        *,
        report: Callable[[Mismatch], None] | None = None,
        capacity: int = 1000,
    ) -> None:
        """Open the other side when there is something to compare; ``report`` (default: the log) receives mismatches."""
        self._store, self._open_other, self._other = store, open_other, cast("protocols.SessionStore | None", None)
        self._report = _log if report is None else report
        self._waiting: Queue[_Read | None] = Queue(capacity)
        self._counts = dict.fromkeys(ShadowCounts.__struct_fields__, 0)
        self._lock = Lock()
        self._thread: Thread | None = None

    @property
    def backend(self) -> protocols.Backend:
        return self._store.backend

    @property
    def queue(self) -> queue_protocols.Queue:
        return self._store.queue

    @property
    def workers(self) -> Workers:
        return self._store.workers

    @property
    def locks(self) -> lock_protocols.Locks:
        return ShadowedLocks(self._store.locks)

    @property
    def wakeups(self) -> Wakeups:
        return self._store.wakeups

    @contextmanager
    def session(self, tenant: str, *, now: datetime | None = None) -> Iterator[protocols.Session]:
        with self._store.session(tenant, now=now) as session:
            shadowed = ShadowedSession(session)
            yield cast("protocols.Session", shadowed)
        self._count("passed_over", shadowed.passed_over)
        for read in shadowed.reads:
            self._put(read)

    def using(self, connection: protocols.PsycopgConnection) -> protocols.Store:
        assert isinstance(self._store, Transactional)  # noqa: S101 - the client asks for the backend first
        return self._store.using(connection)  # no shadow reads: the other side does not have what is not committed

    def now(self) -> datetime:
        return self._store.now()

    def ping(self) -> timedelta:
        return self._store.ping()

    def connections(self) -> int | None:
        return self._store.connections()

    def purge(self, tenant: str) -> Mapping[str, int]:
        return self._store.purge(tenant)

    def prepare(self) -> Mapping[str, Sequence[str]]:
        return self._store.prepare() if isinstance(self._store, Preparable) else {}

    def create_missing_triggers(self, covers: Callable[[Schedule], bool]) -> int:
        return self._store.create_missing_triggers(covers) if isinstance(self._store, Preparable) else 0

    def copy_priorities(self, covers: Callable[[Schedule], bool]) -> int:
        return self._store.copy_priorities(covers) if isinstance(self._store, Preparable) else 0

    def counts(self) -> ShadowCounts:
        """Return the counts of the reads so far."""
        with self._lock:
            return ShadowCounts(**self._counts)

    def wait_until_compared(self) -> None:
        """Wait until every recorded read is compared."""
        self._waiting.join()

    def close(self) -> None:
        """Compare the recorded reads that are left, then close both sides."""
        if self._thread is not None:
            self._waiting.put(None)
            self._thread.join()
            self._thread = None
        if self._other is not None:
            self._other.close()
        self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _put(self, read: _Read) -> None:
        with self._lock:
            if self._thread is None:
                self._thread = Thread(target=self._work, name="shadow reads", daemon=True)
                self._thread.start()
        try:
            self._waiting.put_nowait(read)
        except Full:
            self._count("dropped")

    def _count(self, what: str, by: int = 1) -> None:
        with self._lock:
            self._counts[what] += by

    def _work(self) -> None:
        while (read := self._waiting.get()) is not None:
            try:
                self._compare(read)
            finally:
                self._waiting.task_done()
        self._waiting.task_done()

    def _compare(self, read: _Read) -> None:
        try:
            if self._other is None:
                self._other = self._open_other()
            with self._other.session(read.tenant, now=read.now) as session:
                answer = getattr(getattr(session, read.repository), read.method)(*read.arguments, **read.named)
            why = difference(read.answer, answer)
            what = "same" if why is None else "different"
        except Exception as error:  # noqa: BLE001 - whatever the other side does, the caller must not feel it
            what, why = "failed", f"error: {type(error).__name__}"
        self._count(what)
        if why is not None:
            self._tell(Mismatch(tenant=read.tenant, read=f"{read.repository}.{read.method}", why=why))

    def _tell(self, mismatch: Mismatch) -> None:
        try:
            self._report(mismatch)
        except Exception as error:  # noqa: BLE001 - a listener that fails must not end the comparing
            logger().warning("a listener to shadow reads failed", error=type(error).__name__)


def _log(mismatch: Mismatch) -> None:
    logger().warning("shadow read differs", tenant=mismatch.tenant, read=mismatch.read, why=mismatch.why)


def difference(one: object, other: object) -> str | None:
    """Return how two answers to one read differ, without their values; None if they are equal."""
    left, right = _rows(one), _rows(other)
    if len(left) != len(right):
        return f"rows: {len(left)} against {len(right)}"
    columns: dict[str, None] = {}
    for mine, theirs in zip(left, right, strict=True):
        if isinstance(mine, Record) and isinstance(theirs, Record):
            columns |= dict.fromkeys(_differing(mine, theirs))
        elif mine != theirs:
            columns["the value"] = None
    return ", ".join(columns) or None


def _rows(answer: object) -> Sequence[object]:
    if isinstance(answer, protocols.RunPage):
        return [*answer.runs, answer.cursor]
    return answer if isinstance(answer, (list, tuple)) else [answer]


def _differing(mine: Record, theirs: Record) -> Iterator[str]:
    if type(mine) is not type(theirs):
        yield "the table"
        return
    ignored = _NOT_COMPARED | {"id"} if isinstance(mine, GraphJobEvent) else _NOT_COMPARED
    for name in mine.__struct_fields__:
        left, right = getattr(mine, name), getattr(theirs, name)
        if name in ignored or left == right:
            continue
        if not (isinstance(left, bytes) and isinstance(right, bytes) and jsonb.same(left, right)):
            yield name
