"""Real processes on PostgreSQL in a parallel run: what is not marked idempotent is recorded, and not done."""

from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest

from migrator.config import CutoverSettings, load_settings
from migrator.connections.postgres import Connection, open_target
from migrator.cutover import parallel
from migrator.errors import RefusedError
from migrator.records import Handler
from migrator.scheduler.executor import DRY_RUN
from migrator.schema import decisions
from migrator.schema.decisions import Approval
from migrator.store.epoch import Epoch
from migrator.store.postgres import epoch, parallel_run
from tests.cutting_over import COMPARABLE
from tests.scheduled_work import lines
from tests.scheduler_processes import Site, stop, until


@pytest.fixture
def dsn(new_scheduler_dsn: Callable[[], str]) -> str:
    return new_scheduler_dsn()


@pytest.fixture
def target(dsn: str, tmp_path: Path) -> Iterator[Connection]:
    config = tmp_path / "target.toml"
    config.write_text(f'[postgres]\ndsn = "{dsn}"\n')
    with open_target(load_settings(str(config), {}), autocommit=True) as connection:
        yield connection


@pytest.fixture
def site(dsn: str, tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path, "postgres", f'[postgres]\ndsn = "{dsn}"')
    with made.store.session(made.tenant) as session:
        for name, may in (("note", True), ("hold", False)):
            session.handlers.upsert(
                Handler(id=uuid4(), tenant_id=made.tenant, name=name, handler_type="function", idempotent=may)
            )
    yield made
    made.close()


@pytest.mark.proves("4-P2")
def test_a_process_runs_what_may_run_twice_and_follows_the_end_of_it_by_itself(site: Site, target: Connection) -> None:
    parallel.begin(target, COMPARABLE, "op", "both run for a day")
    now = site.store.now()
    twice = site.put("note", {"kind": "one_time", "run_at": now})
    once = site.put("hold", {"kind": "one_time", "run_at": now})
    process = site.start()
    until(lambda: site.states(twice) == site.states(once) == ["completed"])
    (run,), (dry,) = site.runs(twice), site.runs(once)
    assert run.result == b'{"attempt":1}'
    assert len(lines(site.folder, "done")) == 1
    assert dry.result == DRY_RUN
    assert dry.scheduled_at is not None  # its slot is on record, to be compared with the other side's
    assert lines(site.folder, "begun") == []

    parallel.end(target, COMPARABLE, CutoverSettings(), Approval("op", "the old one is off"))
    again = site.put("hold")
    until(lambda: lines(site.folder, "begun"))
    (site.folder / "go").touch()
    until(lambda: site.states(again) == ["completed"])
    assert site.runs(again)[0].result == b'"went on"'

    parallel.begin(target, COMPARABLE, "op", "once more")
    third = site.put("hold")
    until(lambda: site.states(third) == ["completed"])
    assert site.runs(third)[0].result == DRY_RUN
    assert len(lines(site.folder, "begun")) == 1
    assert stop(process) == 0, site.log(process)
    with site.store.session(site.tenant) as session:
        said = [line.message for line in session.execution_logs.of_run(dry.id)]
    assert said == ["attempt 1 began", "dry run: the other scheduler runs it", "completed"]
    assert "no longer runs in parallel with this one: every handler runs" in site.log(process)


@pytest.mark.proves("4-P2")
def test_nothing_runs_in_parallel_with_a_side_that_holds_the_data_or_is_closed(target: Connection) -> None:
    with pytest.raises(RefusedError, match="no parallel run is recorded"):
        parallel.end(target, COMPARABLE, CutoverSettings(), Approval("op", "why"))
    for backend, why in (("mongo", "refuses all writers since"), ("postgres", "is the only backend")):
        epoch.write(target, Epoch(1, backend))
        with pytest.raises(RefusedError, match=f"PostgreSQL {why}"):
            parallel.begin(target, COMPARABLE, "op", "why")
    assert parallel_run.since(target) is None
    assert target.execute("SELECT count(*) FROM migration.decisions").fetchone() == (0,)


def test_what_is_on_record_is_told_apart(target: Connection, dsn: str) -> None:
    first = parallel.begin(target, COMPARABLE, "op", "both run")
    assert parallel_run.since(target) == first
    assert parallel.begin(target, COMPARABLE, "op", "from now on") > first
    parallel.end(target, COMPARABLE, CutoverSettings(), Approval("op", "done"))
    with psycopg.connect(dsn) as connection:
        kinds = connection.execute("SELECT kind FROM migration.decisions ORDER BY id").fetchall()
    assert kinds == [(decisions.PARALLEL_BEGUN,), (decisions.PARALLEL_BEGUN,), (decisions.PARALLEL_ENDED,)]
