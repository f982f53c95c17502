"""Firing and claiming in PostgreSQL."""

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, TypeVar
from uuid import UUID

import msgspec
from psycopg.types.numeric import Int8

from migrator.connections.postgres import Connection
from migrator.records import Run, Schedule
from migrator.store import validation
from migrator.store.left_rows import LeftRows, is_of_one_row
from migrator.store.postgres import parallel_run, queue_statements
from migrator.store.postgres.connections import DispatcherPool
from migrator.store.postgres.firing import Firing, Key, insert_runs
from migrator.store.postgres.parallel_firing import ParallelFiring
from migrator.store.postgres.repository import UNREADABLE
from migrator.store.postgres.rows import as_json, fetch_readable, fetch_rows, table
from migrator.store.queue import Claim, Finish, FirePlan, HandlerFilter

Item = TypeVar("Item")


_MOST_LEFT: Final = 1_000
"""Rows that a call leaves at most, each of which costs it a transaction."""


class PostgresQueue:
    """``queue.Queue``."""

    def __init__(self, pool: DispatcherPool) -> None:
        self._pool = pool
        self._left_triggers, self._left_runs = LeftRows("triggers"), LeftRows("runs")

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
        named, filters = validation.checked_time(now), _given(tenants, queues, handlers)
        asked = _asked(tenants, queues, handlers)
        place, served_only = queue_statements.named_filters(3, **asked)

        def fire(connection: Connection, most: int, chosen: list[Key], left: Sequence[Key]) -> list[Run]:
            but = 3 + len(filters) if left else None
            at = named or self._pool.clock(connection)
            given = [at, Int8(most), *filters, *_keys(left)]
            chosen[:] = fetch_rows(connection, queue_statements.due(**asked, but=but), given)
            runs = Firing(connection, at, plan).fire(chosen) if chosen else []
            if (most > 1 or not chosen) and fetch_rows(connection, parallel_run.HOLD, ()):
                of_source = ParallelFiring(connection, at, plan)
                found = of_source.due(given, tenants=place, served_only=served_only, but=but)
                chosen += found
                runs += of_source.fire(found)
            return runs

        try:
            return self._pool.transact(lambda connection: fire(connection, limit, [], ()))
        except Exception as error:
            if not is_of_one_row(error):
                raise
        return self._one_by_one(
            self._left_triggers, limit, lambda connection, chosen, left: fire(connection, 1, chosen, left)
        )

    def _one_by_one(
        self,
        named: LeftRows,
        limit: int,
        act: Callable[[Connection, list[Key], Sequence[Key]], Sequence[Item]],
    ) -> Sequence[Item]:
        """Return the answers of ``act`` for one row after the other, each in its transaction; leave those that fail.

        ``act`` is given the rows to be left out: those that had their turn, of which one may wait again. It names the
        row that it has chosen before it may fail, and none if there is none any more. Raises the first error if every
        row failed.
        """
        made: list[Item] = []
        seen: list[Key] = []
        first: Exception | None = None
        failed = succeeded = 0
        # As many as the call may take, and as many again while none of them succeeded: they must not hide the others.
        while ((failed + succeeded) % limit or not succeeded) and failed < _MOST_LEFT:
            chosen: list[Key] = []

            def once(connection: Connection, chosen: list[Key] = chosen) -> Sequence[Item]:
                return act(connection, chosen, seen)

            try:
                made += self._pool.transact(once)
            except Exception as error:
                if not is_of_one_row(error) or not chosen:
                    raise
                failed += 1
                named.add(*chosen[-1], error)
                seen.append(chosen[-1])
                first = first or error
                continue
            if not chosen:
                break
            succeeded += 1
            seen.extend(chosen)
        if first is not None and not succeeded:
            raise first
        return made

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
        filters, asked = _given(tenants, queues, handlers), _asked(tenants, queues, handlers)
        holder = _plain(worker_id)
        at = validation.checked_time(now)

        def statement(most: int, *, only_look: bool = False) -> tuple[str, list[Any]]:
            left = self._left_runs.keys()  # with those of the call before: each claim would raise their fence
            but = 5 + len(filters) if left else None
            text = queue_statements.claim(**asked, but=but, only_look=only_look)
            return text, [at, holder, lease, Int8(most), *filters, *_keys(left)]

        def claim_first(connection: Connection, chosen: list[Key], _left: Sequence[Key]) -> Sequence[Claim]:
            chosen[:] = fetch_rows(connection, *statement(1, only_look=True))
            if not chosen:
                return []
            rows, unreadable = fetch_readable(connection, *statement(1))
            if unreadable:
                raise UNREADABLE
            return _claims(rows)

        try:
            rows, unreadable = self._pool.readable(*statement(limit))
        except Exception as error:
            if not is_of_one_row(error):
                raise
            return self._one_by_one(self._left_runs, limit, claim_first)
        if unreadable:
            ids, owners = _keys(unreadable)
            self._pool.rows(queue_statements.GIVE_BACK, (ids, owners, holder))
            for key in unreadable:
                self._left_runs.add(*key, UNREADABLE)
        return _claims(rows)

    def heartbeat(self, claims: Sequence[Claim], lease: timedelta, now: datetime | None = None) -> Sequence[UUID]:
        validation.check_above_zero("a lease", lease)
        return self._ids(queue_statements.HEARTBEAT, (validation.checked_time(now), _held(claims), lease))

    def finish(self, ends: Sequence[Finish], now: datetime | None = None) -> Sequence[UUID]:
        return self._end(ends, validation.checked_time(now), only_expired=False)

    def release(self, claims: Sequence[Claim], now: datetime | None = None) -> Sequence[UUID]:
        return self._ids(queue_statements.RELEASE, (validation.checked_time(now), _held(claims)))

    def expired(
        self,
        limit: int,
        now: datetime | None = None,
        tenants: Sequence[str] | None = None,
        *,
        workers: Sequence[str] | None = None,
    ) -> Sequence[Claim]:
        validation.check_page(limit)
        statement = queue_statements.expired(of_tenants=tenants is not None, of_workers=workers is not None)
        parameters = [validation.checked_time(now), Int8(limit), *_given(tenants, workers)]
        rows, unreadable = self._pool.readable(statement, parameters)
        for key in unreadable:
            self._left_runs.add(*key, UNREADABLE)
        return _claims(rows)

    def expire(self, ends: Sequence[Finish], now: datetime | None = None) -> Sequence[UUID]:
        return self._end(ends, validation.checked_time(now), only_expired=True)

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


def _asked(
    tenants: Sequence[str] | None, queues: Sequence[str] | None, handlers: HandlerFilter | None
) -> dict[str, bool]:
    """Return which filters the statements have."""
    return {"of_tenants": tenants is not None, "of_queues": queues is not None, "of_handlers": handlers is not None}


def _keys(rows: Sequence[Key]) -> list[list[Any]]:
    """Return ids and tenants as two parameters; none for no rows."""
    return [[identity for identity, _ in rows], [tenant for _, tenant in rows]] if rows else []


def _given(*filters: Sequence[str] | HandlerFilter | None) -> list[list[str]]:
    """Return the parameters of the filters that are asked for, in their order."""
    given: list[list[str]] = []
    for column in filters:
        if isinstance(column, HandlerFilter):
            given += [list(column.names), list(column.types)]
        elif column is not None:
            given.append(list(column))
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
    validation.check_outcome(end)
    validation.check_transition("run", "running", end.state)
    if end.schedule_status is not None:
        validation.check_transition("schedule", "running", end.schedule_status)
    if end.retry is not None:
        validation.checked_served_record(end.retry, end.tenant_id)


def _plain(text: str) -> str:
    validation.check_text("a worker's id", text)
    return text
