"""Firing and claiming in PostgreSQL."""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec

from migrator.connections.postgres import Connection
from migrator.errors import UsageError
from migrator.records import Run, Schedule
from migrator.store import validation
from migrator.store.postgres import parallel_run, queue_statements
from migrator.store.postgres.dispatcher_pool import DispatcherPool, as_json, checked_time, fetch_rows
from migrator.store.postgres.firing import Firing, insert_runs
from migrator.store.postgres.parallel_firing import ParallelFiring
from migrator.store.postgres.rows import table
from migrator.store.queue import Claim, Finish, FirePlan, HandlerFilter


class PostgresQueue:
    """``queue.Queue``."""

    def __init__(self, pool: DispatcherPool) -> None:
        self._pool = pool

    def tenants(self) -> Sequence[str]:
        return [tenant for (tenant,) in self._pool.rows(queue_statements.TENANTS, ())]

    def fire_due(
        self,
        plan: FirePlan,
        limit: int,
        now: datetime | None = None,
        tenants: Sequence[str] | None = None,
        *,
        queues: Sequence[str] | None = None,
        handlers: HandlerFilter | None = None,
    ) -> Sequence[Run]:
        validation.check_page(limit)
        named = checked_time(now)
        place, served_only = queue_statements.named_filters(
            2, of_tenants=tenants is not None, of_queues=queues is not None, of_handlers=handlers is not None
        )
        statement = queue_statements.due(
            limit, of_tenants=tenants is not None, of_queues=queues is not None, of_handlers=handlers is not None
        )

        def fire(connection: Connection) -> list[Run]:
            at = named or self._pool.clock(connection)
            given = [at, *_given(tenants, queues, handlers)]
            due = fetch_rows(connection, statement, given)
            runs = Firing(connection, at, plan).fire([(identity, tenant) for identity, tenant in due]) if due else []
            if fetch_rows(connection, parallel_run.HOLD, ()):
                of_source = ParallelFiring(connection, at, plan)
                runs += of_source.fire(of_source.due(limit, given, tenants=place, served_only=served_only))
            return runs

        return self._pool.transact(fire)

    def claim(
        self,
        worker_id: str,
        limit: int,
        lease: timedelta,
        now: datetime | None = None,
        *,
        queues: Sequence[str] | None = None,
        handlers: HandlerFilter | None = None,
        tenants: Sequence[str] | None = None,
    ) -> Sequence[Claim]:
        validation.check_page(limit)
        validation.check_above_zero("a lease", lease)
        statement = queue_statements.claim(
            limit, of_tenants=tenants is not None, of_queues=queues is not None, of_handlers=handlers is not None
        )
        named = [checked_time(now), _plain(worker_id), lease, *_given(tenants, queues, handlers)]
        return _claims(self._pool.rows(statement, named))

    def heartbeat(self, claims: Sequence[Claim], lease: timedelta, now: datetime | None = None) -> Sequence[UUID]:
        validation.check_above_zero("a lease", lease)
        return self._ids(queue_statements.HEARTBEAT, (checked_time(now), _held(claims), lease))

    def finish(self, ends: Sequence[Finish], now: datetime | None = None) -> Sequence[UUID]:
        return self._end(ends, checked_time(now), only_expired=False)

    def release(self, claims: Sequence[Claim], now: datetime | None = None) -> Sequence[UUID]:
        return self._ids(queue_statements.RELEASE, (checked_time(now), _held(claims)))

    def expired(
        self,
        limit: int,
        now: datetime | None = None,
        tenants: Sequence[str] | None = None,
        *,
        workers: Sequence[str] | None = None,
    ) -> Sequence[Claim]:
        validation.check_page(limit)
        statement = queue_statements.expired(limit, of_tenants=tenants is not None, of_workers=workers is not None)
        return _claims(self._pool.rows(statement, [checked_time(now), *_given(tenants, workers)]))

    def expire(self, ends: Sequence[Finish], now: datetime | None = None) -> Sequence[UUID]:
        return self._end(ends, checked_time(now), only_expired=True)

    def _end(self, ends: Sequence[Finish], now: datetime | None, *, only_expired: bool) -> Sequence[UUID]:
        for end in ends:
            _check(end)
        if not ends:
            return []
        of_schedules = any(end.schedule_status is not None for end in ends)
        statement = queue_statements.finish(only_expired=only_expired, of_schedules=of_schedules)
        if all(end.retry is None for end in ends):
            return [identity for identity, _ in self._pool.rows(statement, (now, _ended(ends)))]

        def end_and_repeat(connection: Connection) -> list[UUID]:
            at = now or self._pool.clock(connection)
            ended = [(identity, tenant) for identity, tenant in fetch_rows(connection, statement, (at, _ended(ends)))]
            ids, tenants = [identity for identity, _ in ended], [tenant for _, tenant in ended]
            left = set(ended)
            bare = set(fetch_rows(connection, queue_statements.WITHOUT_TRIGGER, (ids, tenants)))
            retries = []
            for end in ends:
                key = (end.run_id, end.tenant_id)
                if key in left:
                    left.discard(key)
                    retry = end.retry
                    if retry is not None and key in bare:
                        retry = msgspec.structs.replace(retry, trigger_id=None)
                    retries += [] if retry is None else [(retry, end.tenant_id)]
            insert_runs(connection, retries, at)
            return ids

        return self._pool.transact(end_and_repeat)

    def _ids(self, statement: str, parameters: Sequence[Any]) -> list[UUID]:
        return [identity for (identity,) in self._pool.rows(statement, parameters)]


def _given(*filters: Sequence[str] | HandlerFilter | None) -> list[list[str]]:
    """Return the parameters of the filters that are asked for, in their order."""
    given: list[list[str]] = []
    for one in filters:
        if isinstance(one, HandlerFilter):
            given += [list(one.names), list(one.types)]
        elif one is not None:
            given.append(list(one))
    return given


def _claims(rows: Sequence[tuple[Any, ...]]) -> list[Claim]:
    runs, schedules = table(Run), table(Schedule)
    width = len(runs.names)
    return [
        Claim(run=runs.read(row[:width]), schedule=None if row[width] is None else schedules.read(row[width:]))
        for row in rows
    ]


def _held(claims: Iterable[Claim]) -> str:
    return as_json(
        {"id": run.id, "tenant": run.tenant_id, "worker": run.worker_id or "", "fence": run.fence or 0}
        for run in (claim.run for claim in claims)
    )


def _ended(ends: Iterable[Finish]) -> str:
    first: dict[tuple[object, ...], dict[str, Any]] = {}
    for position, end in enumerate(ends):
        first.setdefault(
            (end.run_id, end.tenant_id, end.worker_id, end.fence),
            {
                "position": position,
                "id": end.run_id,
                "tenant": end.tenant_id,
                "worker": end.worker_id,
                "fence": end.fence,
                "state": end.state,
                "result": None if end.result is None else msgspec.Raw(end.result),
                "error": end.error,
                "detail": end.error_detail,
                "status": end.schedule_status,
            },
        )
    return as_json(first.values())


def _check(end: Finish) -> None:
    validation.check_transition("run", "running", end.state)
    if end.schedule_status is not None:
        validation.check_transition("schedule", "running", end.schedule_status)
    if end.retry is not None:
        validation.checked_served_record(end.retry, end.tenant_id)


def _plain(text: str) -> str:
    if "\0" in text:
        raise UsageError("a worker's id holds the character NUL")
    return text
