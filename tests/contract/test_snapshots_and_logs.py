"""What a run leaves behind: impact snapshots and log lines."""

from collections.abc import Callable
from uuid import uuid4

import pytest

from migrator.errors import ConflictError, NotFoundError, UsageError
from migrator.store.protocols import SessionStore
from migrator.values import jsonb
from tests.contract.rows import NOW, SECOND, bare, changed, fresh, ids, line, run, snapshot

IMAGE = {"imageDigest": "sha256:00", "labels": {"a": "b"}, "namespaces": ["n"], "registry": "r", "repository": "p"}


@pytest.mark.proves("0-T2.7.1")
def test_a_snapshot_is_inserted_and_got_with_all_its_images(store: SessionStore, tenant: str) -> None:
    images = jsonb.encode([IMAGE | {"imageDigest": f"sha256:{number:064x}"} for number in range(200)])
    with store.session(tenant, now=NOW) as session:
        of = session.runs.create(run(tenant))
        one = snapshot(
            tenant,
            run_id=of.id,
            snapshot_id="impact::1",
            images=images,
            usage_only=True,
            total=200,
            generated_at=NOW,
            schema_version="scheduler.impact-set@1",
        )
        session.impact_snapshots.insert(one)
    with store.session(tenant, now=NOW) as session:
        found = session.impact_snapshots.get(one.id)
        assert found is not None
        assert bare(found) == one
        assert session.impact_snapshots.get(uuid4()) is None


@pytest.mark.proves("0-T2.7.1")
def test_a_snapshot_s_id_is_taken_once_and_its_run_must_exist(store: SessionStore, tenant: str) -> None:
    elsewhere = fresh()
    with store.session(elsewhere, now=NOW) as session:
        theirs = session.runs.create(run(elsewhere))
    with store.session(tenant, now=NOW) as session:
        one = snapshot(tenant, total=1, generated_at=NOW)
        session.impact_snapshots.insert(one)
        with pytest.raises(ConflictError):
            session.impact_snapshots.insert(changed(one, total=2))
        for run_id in (uuid4(), theirs.id):
            with pytest.raises(NotFoundError):
                session.impact_snapshots.insert(snapshot(tenant, run_id=run_id))
        found = session.impact_snapshots.get(one.id)
        assert found is not None
        assert found.total == 1


@pytest.mark.proves("0-T2.7.2")
def test_snapshots_of_a_run_come_newest_first_without_a_time_last(store: SessionStore, tenant: str) -> None:
    with store.session(tenant, now=NOW) as session:
        of, other = session.runs.create(run(tenant)), session.runs.create(run(tenant))
        times = [NOW, NOW + SECOND, NOW, NOW - SECOND]
        rows = [snapshot(tenant, run_id=of.id, generated_at=at) for at in times]
        for row in (*rows, snapshot(tenant, run_id=other.id), snapshot(tenant)):
            session.impact_snapshots.insert(row)
        expected = [rows[1].id, *sorted((rows[0].id, rows[2].id)), rows[3].id]
        assert ids(session.impact_snapshots.of_run(of.id)) == expected
        assert session.impact_snapshots.of_run(uuid4()) == []
    with store.session(fresh(), now=NOW) as session:
        assert session.impact_snapshots.of_run(of.id) == []
        assert session.impact_snapshots.get(rows[0].id) is None


@pytest.mark.proves("0-T2.7.2")
def test_snapshots_without_a_time_are_the_last(store: SessionStore, tenant: str) -> None:
    with store.session(tenant, now=NOW) as session:
        of = session.runs.create(run(tenant))
        rows = [snapshot(tenant, run_id=of.id, generated_at=at) for at in (None, NOW, None)]
        for row in rows:
            session.impact_snapshots.insert(row)
        assert ids(session.impact_snapshots.of_run(of.id)) == [rows[1].id, *sorted((rows[0].id, rows[2].id))]


@pytest.mark.proves("0-X2")
def test_a_global_snapshot_is_got(store: SessionStore, tenant: str, plant: Callable[..., None]) -> None:
    shared = snapshot("*", total=3, generated_at=NOW)
    plant(shared)
    with store.session(tenant, now=NOW) as session:
        found = session.impact_snapshots.get(shared.id)
        assert found is not None
        assert bare(found) == shared


def test_lines_of_a_run_come_in_the_order_of_time(store: SessionStore, tenant: str) -> None:
    with store.session(tenant, now=NOW) as session:
        of, other = session.runs.create(run(tenant)), session.runs.create(run(tenant))
        rows = [
            line(tenant, run_id=of.id, logged_at=NOW + SECOND * second, message=f"m{second}", context=b'{"a":1}')
            for second in (2, 0, 1, 0)
        ]
        session.execution_logs.append(rows[:3])
        session.execution_logs.append([rows[3], line(tenant, run_id=other.id), line(tenant)])
        session.execution_logs.append([])
        expected = sorted(rows, key=lambda row: (row.logged_at, row.id))
        assert [bare(found) for found in session.execution_logs.of_run(of.id)] == expected
        assert ids(session.execution_logs.of_run(of.id, limit=2)) == ids(expected)[:2]
        assert len(session.execution_logs.of_run(other.id)) == 1
        for limit in (0, -1):
            with pytest.raises(UsageError):
                session.execution_logs.of_run(of.id, limit)
    with store.session(fresh(), now=NOW) as session:
        assert session.execution_logs.of_run(of.id) == []


def test_lines_are_appended_all_or_none(store: SessionStore, tenant: str) -> None:
    with store.session(tenant, now=NOW) as session:
        of = session.runs.create(run(tenant))
        first = line(tenant, run_id=of.id)
        session.execution_logs.append([first])
        good = line(tenant, run_id=of.id)
        for bad, error in (
            (line(tenant, id=first.id, run_id=of.id), ConflictError),
            (line(tenant, id=good.id, run_id=of.id), ConflictError),
            (line(tenant, run_id=uuid4()), NotFoundError),
            (line(tenant, run_id=of.id, level="no such"), UsageError),
            (line(fresh(), run_id=of.id), UsageError),
        ):
            with pytest.raises(error):
                session.execution_logs.append([good, bad])
        assert ids(session.execution_logs.of_run(of.id)) == [first.id]
