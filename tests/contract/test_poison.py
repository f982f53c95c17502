"""Values that one of the databases refuses are refused by both, in the same words, and cost nothing else."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from migrator.errors import UsageError
from migrator.store.protocols import SessionStore, Store
from migrator.store.queue import Queue
from migrator.values import jsonb
from tests.contract.conftest import Bench
from tests.contract.rows import NOW, SECOND, changed, entry, handler, line, run, schedule, trigger
from tests.contract.working import end_of, held, now_of, put, run_of

LATER = NOW + SECOND
LONG = "é" * 1_001
"""2,002 bytes: an entry of an index has room for 2,704, the tenant and the rest included."""
HALF = "\ud83d"


def nested(levels: int) -> bytes:
    """Return the text of a list in so many levels."""
    return b"[" * levels + b"]" * levels


JSON: dict[str, tuple[bytes, str]] = {
    # what → (JSON text, how the error goes on after the name of the column)
    "no JSON": (b"{", "is no JSON text"),
    "NaN": (b'{"a":NaN}', "is no JSON text"),
    "infinity": (b"[Infinity]", "is no JSON text"),
    "NUL": (b'{"a":"x\\u0000"}', "holds the character NUL"),
    "NUL in a key": (b'{"a\\u0000":1}', "holds the character NUL"),
    "half a pair": (b'["\\ud83d"]', "is no JSON text"),
    "no UTF-8": (b'["\xff"]', "is no JSON text"),
    "a number of 65 bits": (b"[18446744073709551617]", "holds a whole number that neither"),
    "101 levels": (nested(101), "must have at most 100 levels"),
    "100,000 levels": (nested(100_000), "is no JSON text, or is nested too deep"),
}


@pytest.mark.parametrize("what", JSON)
def test_json_that_a_database_refuses_is_refused_by_every_backend(what: str, store: SessionStore, tenant: str) -> None:
    text, words = JSON[what]
    with store.session(tenant, now=NOW) as session:
        for column in ("payload", "metadata"):
            with pytest.raises(UsageError) as refused:
                session.schedules.upsert(schedule(tenant, **{column: text}))
            assert str(refused.value).startswith(f"schedules.{column} {words}")
        with pytest.raises(UsageError, match=f"runs.metadata {words}"):
            session.runs.create(run(tenant, metadata=text))
        good = session.schedules.upsert(schedule(tenant))  # the session goes on
        assert session.schedules.get(good.id) is not None


STORED = {
    "64 bits": b"[9223372036854775807,-9223372036854775808]",
    "a double without a fraction": b"[1e19,1e300,-2e22]",
    "the largest double": b"[1.7976931348623157e308]",
    "deep": nested(90),
    "escapes": b'["\\\\u0000","\\ud83d\\ude00"]',
}


@pytest.mark.parametrize("what", STORED)
def test_json_at_its_limits_is_stored_and_comes_back(what: str, store: SessionStore, tenant: str) -> None:
    one = schedule(tenant, payload=STORED[what])
    with store.session(tenant, now=NOW) as session:
        session.schedules.upsert(one)
        session.schedules.upsert(changed(one, description="again"))
    with store.session(tenant, now=NOW) as session:
        found = session.schedules.get(one.id)
    assert found is not None
    assert found.payload is not None
    assert jsonb.same(found.payload, STORED[what])


TEXTS: dict[str, tuple[str, Any, str]] = {
    # what → (table.column, value, how the error goes on)
    "half a pair in a name": ("schedules.name", HALF, "holds half of a surrogate pair"),
    "half a pair in a tag": ("schedules.tags", ("a", HALF), "holds half of a surrogate pair"),
    "a long name": ("schedules.name", LONG, "must have at most 2,000 bytes of UTF-8, since it is indexed"),
    "a long tag": ("schedules.tags", (LONG,), "must have at most 2,000 bytes of UTF-8, since it is indexed"),
    "a long dedupe key": ("runs.dedupe_key", LONG, "must have at most 2,000 bytes of UTF-8, since it is indexed"),
    "a long trace": ("runs.trace_id", LONG, "must have at most 2,000 bytes of UTF-8, since it is indexed"),
    "a long event": ("triggers.event_name", LONG, "must have at most 2,000 bytes of UTF-8, since it is indexed"),
    "a long handler": ("handlers.name", LONG, "must have at most 2,000 bytes of UTF-8, since it is indexed"),
    "half a pair in a line": ("execution_logs.message", HALF, "holds half of a surrogate pair"),
    "half a pair in the trail": ("audit.message", HALF, "holds half of a surrogate pair"),
    "the year 0": (
        "schedules.created_at",
        datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=1))),
        "must be in the years 1 to 9999 in UTC",
    ),
    "the year 10000": (
        "triggers.end_at",
        datetime(9999, 12, 31, 23, 30, tzinfo=timezone(timedelta(hours=-1))),
        "must be in the years 1 to 9999 in UTC",
    ),
    "the largest attempt": ("runs.attempt", 2**31 - 1, "must be between"),
}


@pytest.mark.parametrize("what", TEXTS)
def test_a_value_that_a_database_refuses_is_refused_by_every_backend(
    what: str, store: SessionStore, tenant: str
) -> None:
    column, value, words = TEXTS[what]
    table, _, name = column.partition(".")
    with store.session(tenant, now=NOW) as session:
        of = session.schedules.upsert(schedule(tenant))
        kind: dict[str, Any] = {"kind": "event", "next_fire_at": None} if name == "event_name" else {}
        given = {name: value}
        writes: dict[str, Callable[[], object]] = {
            "schedules": lambda: session.schedules.upsert(schedule(tenant, **given)),
            "runs": lambda: session.runs.create(run(tenant, **given)),
            "triggers": lambda: session.triggers.upsert(trigger(of, **kind, **given)),
            "handlers": lambda: session.handlers.upsert(handler(tenant, **given)),
            "execution_logs": lambda: session.execution_logs.append([line(tenant, **given)]),
            "audit": lambda: session.audit.append(entry(tenant, **given)),
        }
        with pytest.raises(UsageError) as refused:
            writes[table]()
        assert str(refused.value).startswith(f"{column} {words}")
        assert session.schedules.get(of.id) is not None


def test_a_row_larger_than_a_document_is_refused_by_every_backend(store: SessionStore, tenant: str) -> None:
    """A list of small numbers takes more room as BSON than as JSON."""
    for payload in (b'"' + b"x" * 17_000_000 + b'"', b"[" + b",".join([b"1"] * 2_000_000) + b"]"):
        with (
            store.session(tenant, now=NOW) as session,
            pytest.raises(UsageError, match="a row of schedules must be smaller than 16 MiB"),
        ):
            session.schedules.upsert(schedule(tenant, payload=payload))


@pytest.mark.parametrize("bad", ["t" * 501, HALF, "é" * 251])
def test_a_tenant_that_no_row_may_have(bad: str, store: SessionStore) -> None:
    with pytest.raises(UsageError, match="a tenant "), store.session(bad):
        pass


def test_a_lock_whose_key_is_too_long(at_work: Store, tenant: str) -> None:
    with pytest.raises(UsageError, match=r"locks\.key must have at most 2,000 bytes"):
        at_work.locks.acquire(tenant, LONG, ttl=SECOND)


OUTCOMES: dict[str, dict[str, Any]] = {
    "a result that is no JSON": {"result": b"{"},
    "a result of 65 bits": {"result": b"18446744073709551617"},
    "a result with NUL": {"result": b'"\\u0000"'},
    "a result of many levels": {"result": nested(101)},
    "an error with NUL": {"state": "error", "error": "\0"},
    "an error with half a pair": {"state": "error", "error": HALF},
    "a traceback with half a pair": {"state": "error", "error_detail": HALF},
    "too much": {"result": b'"' + b"x" * 17_000_000 + b'"'},
}


@pytest.mark.parametrize("what", OUTCOMES)
def test_an_outcome_that_a_database_refuses_is_refused_before_any_is_written(
    what: str, at_work: Store, queue: Queue, tenant: str
) -> None:
    good, bad = held(at_work, tenant), held(at_work, tenant)
    with pytest.raises(UsageError, match=r"runs\.result |runs\.error|the outcome of a run must be smaller"):
        queue.finish([end_of(good), changed(end_of(bad), **OUTCOMES[what])], LATER)
    assert now_of(at_work, good).state == now_of(at_work, bad).state == "running"
    assert list(queue.finish([end_of(good)], LATER)) == [good.run.id]


def test_numbers_of_runs_end_at_the_largest(bench: Bench, at_work: Store, tenant: str) -> None:
    of = schedule(tenant)
    put(at_work, of)
    bench.plant(run(tenant, schedule_id=of.id, run_number=2**31 - 3, state="completed"))
    with at_work.session(tenant, now=NOW) as session:
        made = [session.runs.create(run(tenant, schedule_id=of.id)) for _ in range(3)]
        session.run_summaries.recompute(of.id)
        made.append(session.runs.create(run(tenant, schedule_id=of.id)))
    assert [one.run_number for one in made] == [2**31 - 2, None, None, None]
    assert run_of(at_work, tenant, made[-1].id).run_number is None


def test_the_first_and_the_last_time_are_stored(store: SessionStore, tenant: str) -> None:
    edges = datetime.min.replace(tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC)
    with store.session(tenant, now=NOW) as session:
        of = session.schedules.upsert(schedule(tenant))
        made = session.triggers.upsert(trigger(of, start_at=edges[0], end_at=edges[1]))
        (found,) = session.triggers.of_schedule(of.id)
    assert (found.start_at, found.end_at) == (made.start_at, made.end_at) == edges
