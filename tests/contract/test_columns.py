"""Every column comes back as it was written, full and empty, on every backend."""

from collections.abc import Callable
from typing import Any
from uuid import uuid4

import msgspec
import pytest

from migrator.errors import UsageError
from migrator.records import Record, Schedule
from migrator.store.protocols import Session, SessionStore
from migrator.values import jsonb
from migrator.values.copy_format import column_types
from tests.contract.rows import (
    NOW,
    SECOND,
    bare,
    changed,
    entry,
    handler,
    line,
    policy_job,
    run,
    schedule,
    snapshot,
    trigger,
)

STAMPS = frozenset({"created_at", "updated_at"})
WRITTEN_ELSEWHERE = frozenset(
    {"id", "tenant_id", "source", "source_id", "extra", "deleted_at", "deleted_by", "run_number", "duration_ms"}
)
JSON: dict[str, Any] = {
    "selection": {"scope": "all-images", "tenantId": "t"},
    "only_if": {"lastReportOlderThanDays": 3, "policyRevision": "r1"},
    "notify": {"includeKev": True, "minSeverity": "high", "onNewFindings": False},
    "limits": {"maxJobs": 5, "parallelism": 2},
    "payload": {"a": [1, 2.5, None, True, "ß"], "b": {"c": {}}},
    "metadata": {"k": "v"},
    "source_spec": {"expression": "@daily"},
    "stats": {"candidates": 3, "deltas": 1},
    "reason": {"manualReason": "asked", "impactWindowFrom": "2025-11-02T08:00:00+00:00"},
    "deltas": [{"imageDigest": "sha256:00", "newFindings": 1}],
    "result": {"ok": True},
    "context": {"a": 1},
    "actor": {"actorId": "me", "kind": "user"},
    "selector": {"scope": "all-images", "tenantId": "t"},
    "images": [{"imageDigest": "sha256:00", "registry": "r", "repository": "p"}],
    "inputs": {"sbomSet": ["s1"], "captureExplain": False},
}
WORDS: dict[str, Any] = {
    "status": "scheduled",
    "mode": "content-refresh",
    "handler_type": "celery_task",
    "retry_strategy": "exponential",
    "on_exhausted": "stop",
    "priority": 80,
    "level": "warn",
    "misfire_policy": "fire_all",
    "state": "running",
    "timezone": "Europe/Vienna",
}


def filled(least: Record, **columns: Any) -> Any:  # noqa: ANN401 - some record
    """Return the record with a value in every column that a writer may set."""
    values: dict[str, Any] = {}
    for place, (name, kind) in enumerate(column_types(type(least)).items()):
        if name in WRITTEN_ELSEWHERE or name in columns:
            continue
        plain = {"text": f"t {name}", "text[]": ("x", "y"), "bool": True, "timestamptz": NOW + SECOND * place}
        if name in WORDS:
            values[name] = WORDS[name]
        elif kind == "jsonb":
            values[name] = jsonb.encode(JSON[name])
        elif kind != "uuid":
            values[name] = plain.get(kind, place + 1)
    return msgspec.structs.replace(least, **values | columns)


def of_kind(kind: str, of: Schedule) -> Any:  # noqa: ANN401 - as above
    kinds: dict[str, dict[str, Any]] = {
        "cron": {"cron_expression": "0 8 * * 1-5", "cron_dialect": "debian"},
        "interval": {"interval_ms": 1, "anchor": "completion"},
        "one_time": {"run_at": NOW},
        "event": {"event_name": "push", "next_fire_at": None, "timezone": None},
    }
    nothing = dict.fromkeys(["cron_expression", "cron_dialect", "interval_ms", "anchor", "run_at", "event_name"])
    later = {"start_at": NOW, "end_at": NOW + SECOND}
    return filled(trigger(of), **{"kind": kind} | nothing | later | kinds[kind])


def compare(found: Record | None, given: Record, but: frozenset[str] = frozenset()) -> None:
    assert found is not None
    for name in given.__struct_fields__:
        if name not in but:
            assert getattr(bare(found), name) == getattr(given, name), name


@pytest.mark.proves("0-T2.3.1")
def test_all_columns_of_a_schedule(store: SessionStore, tenant: str) -> None:
    full = filled(schedule(tenant), name="n")
    with store.session(tenant, now=NOW) as session:
        compare(session.schedules.upsert(full), full)
    with store.session(tenant, now=NOW) as session:
        compare(session.schedules.get(full.id), full)
        empty = schedule(tenant, id=full.id, status="pending", enabled=False)
        compare(session.schedules.upsert(empty), empty, STAMPS)
        compare(session.schedules.get(full.id), empty, STAMPS)


@pytest.mark.parametrize("kind", ["cron", "interval", "one_time", "event"])
def test_all_columns_of_a_trigger(kind: str, store: SessionStore, tenant: str) -> None:
    of = schedule(tenant)
    full = of_kind(kind, of)
    with store.session(tenant, now=NOW) as session:
        session.schedules.upsert(of)
        compare(session.triggers.upsert(full), full)
    with store.session(tenant, now=NOW) as session:
        compare(session.triggers.get(full.id), full)
        least = trigger(of, id=full.id, next_fire_at=None)
        compare(session.triggers.upsert(least), least)
        compare(session.triggers.get(full.id), least)


@pytest.mark.proves("0-T2.4.1")
def test_all_columns_of_a_run(store: SessionStore, tenant: str) -> None:
    of = schedule(tenant)
    cause = trigger(of)
    with store.session(tenant, now=NOW) as session:
        session.schedules.upsert(of)
        session.triggers.upsert(cause)
        first = session.runs.create(run(tenant))
        full = filled(
            run(tenant),
            schedule_id=of.id,
            trigger_id=cause.id,
            retry_of=first.id,
            started_at=NOW,
            finished_at=NOW + 2 * SECOND,
        )
        made = session.runs.create(full)
        compare(made, changed(full, run_number=1, duration_ms=2000))
    with store.session(tenant, now=NOW) as session:
        assert session.runs.get(full.id) == made
        ended = changed(full, state="completed", cause="api")
        assert session.runs.update(ended, "running") is True
        compare(session.runs.get(full.id), changed(ended, run_number=1, duration_ms=2000, updated_at=NOW))


@pytest.mark.proves("0-T2.6.1")
def test_all_columns_of_a_policy_job(store: SessionStore, tenant: str) -> None:
    # What only a status document has is not among a work item's fields.
    items = {"status": "pending", "mode": "full", "priority": "high", "stats": None, "started_at": None}
    full = filled(policy_job(tenant), **items)
    with store.session(tenant, now=NOW) as session:
        session.policy_jobs.insert(full)
    with store.session(tenant, now=NOW) as session:
        compare(session.policy_jobs.get(full.id), full)


FULL: dict[str, tuple[Callable[[str], Any], Callable[[Session, Any], Any], Callable[[Session, Any], Any]]] = {
    "impact_snapshots": (
        lambda tenant: filled(snapshot(tenant)),
        lambda session, row: session.impact_snapshots.insert(row),
        lambda session, row: session.impact_snapshots.get(row.id),
    ),
    "audit": (
        lambda tenant: filled(entry(tenant), schedule_id=uuid4(), run_id=uuid4()),
        lambda session, row: session.audit.append(row),
        lambda session, _: session.audit.list(1)[0],
    ),
    "handlers": (
        lambda tenant: filled(handler(tenant), is_system=False),
        lambda session, row: session.handlers.upsert(row),
        lambda session, row: session.handlers.get(row.name),
    ),
}
LEAST: dict[str, Callable[[str], Any]] = {"impact_snapshots": snapshot, "audit": entry, "handlers": handler}


@pytest.mark.proves("0-T2.7.1")
@pytest.mark.parametrize("table", FULL)
@pytest.mark.parametrize("full", [True, False])
def test_all_columns_of_the_other_tables(table: str, full: bool, store: SessionStore, tenant: str) -> None:  # noqa: FBT001 - a parameter
    make, write, read = FULL[table]
    row = make(tenant) if full else LEAST[table](tenant)
    with store.session(tenant, now=NOW) as session:
        write(session, row)
    with store.session(tenant, now=NOW) as session:
        compare(read(session, row), row)


@pytest.mark.parametrize("full", [True, False])
def test_all_columns_of_a_log_line(full: bool, store: SessionStore, tenant: str) -> None:  # noqa: FBT001 - a parameter
    with store.session(tenant, now=NOW) as session:
        of = session.runs.create(run(tenant))
        row = line(tenant, run_id=of.id)
        row = filled(row, schedule_id=uuid4(), run_id=of.id) if full else row
        session.execution_logs.append([row])
    with store.session(tenant, now=NOW) as session:
        compare(session.execution_logs.of_run(of.id)[0], row)


def test_times_are_cut_to_whole_milliseconds(store: SessionStore, tenant: str) -> None:
    fine, whole = NOW.replace(microsecond=250_999), NOW
    with store.session(tenant, now=fine) as session:
        of = session.schedules.upsert(schedule(tenant, created_at=fine, updated_at=fine))
        assert (of.created_at, of.updated_at) == (whole, whole)
        cause = session.triggers.upsert(trigger(of, next_fire_at=fine))
        assert cause.next_fire_at == whole
        made = session.runs.create(run(tenant, created_at=fine, available_at=fine))
        assert (made.created_at, made.available_at) == (whole, whole)
    with store.session(tenant, now=fine) as session:
        assert session.runs.get(made.id) == made
        assert session.triggers.get(cause.id) == cause
        assert session.schedules.get(of.id) == of


@pytest.mark.parametrize(
    "columns",
    [
        {"name": "a\0b"},
        {"description": "\0"},
        {"tags": ("a", "\0")},
        {"priority": 101},
        {"priority": -1},
        {"status": "no such"},
        {"mode": "no such"},
        {"handler_type": "no such"},
        {"retry_strategy": "no such"},
        {"on_exhausted": "no such"},
        {"max_retries": 1 << 31},
        {"timeout_ms": 1 << 63},
        {"created_at": NOW.replace(tzinfo=None)},
    ],
    ids=str,
)
def test_a_value_that_its_column_refuses_is_refused(columns: dict[str, Any], store: SessionStore, tenant: str) -> None:
    one = schedule(tenant, **columns)
    with store.session(tenant, now=NOW) as session:
        with pytest.raises(UsageError):
            session.schedules.upsert(one)
        assert session.schedules.get(one.id) is None


def test_where_a_row_came_from_is_not_written_from_a_record(store: SessionStore, tenant: str) -> None:
    told = {"source": "elsewhere", "source_id": "x1", "extra": b'{"a":1}'}
    one, job = schedule(tenant, **told), policy_job(tenant, run_id="r", **told)
    with store.session(tenant, now=NOW) as session:
        first = session.schedules.upsert(one)
        assert first.source != "elsewhere"
        assert first.source_id != "x1"
        again = session.schedules.upsert(changed(one, description="d"))
        assert (again.source, again.source_id, again.extra) == (first.source, first.source_id, first.extra)
        session.policy_jobs.insert(job)
        found = session.policy_jobs.by_run_id("r")
        assert found is not None
        assert found.source != "elsewhere"
