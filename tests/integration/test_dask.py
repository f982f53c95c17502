"""The same chunk function on a Dask cluster: the same rows as with local processes."""

import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from msgspec.structs import replace
from pymongo.database import Database

from migrator.config import Settings
from migrator.errors import ConfigurationError, UnreachableError
from migrator.parity.check import check_parity
from migrator.pipeline.backfill import backfill
from migrator.pipeline.census import census
from migrator.pipeline.plan import Scope
from tests.copying import contents, number, quarantine, run_of, settings_for

dask: Any = pytest.importorskip("dask", reason="not run: the extra dask is not installed")
distributed: Any = pytest.importorskip("distributed", reason="not run: the extra dask is not installed")


@pytest.fixture
def source(mongo_database: Database[Any]) -> Database[Any]:
    """A few chunks, one document that is set aside, and references."""
    ids = [f"r{number}" for number in range(9)]
    mongo_database["runs"].insert_many([run_of(_id=key, id=key, retryOf="r0") for key in ids])
    mongo_database["runs"].insert_one(run_of(_id="odd", state="exploded"))
    return mongo_database


def on_dask(settings: Settings, address: str | None = None) -> Settings:
    return replace(settings, copy=replace(settings.copy, executor="dask", dask_scheduler=address))


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    """Address of a cluster of two worker processes."""
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0") as cluster:
        yield cluster.scheduler_address


@pytest.mark.slow
def test_a_cluster_copies_as_local_processes_do(
    source: Database[Any], new_scheduler_dsn: Callable[[], str], cluster: str
) -> None:
    local, remote = new_scheduler_dsn(), new_scheduler_dsn()
    first = backfill(settings_for(source, local, workers=2, chunk=2), Scope())
    settings = on_dask(settings_for(source, remote, chunk=2), cluster)
    second = backfill(settings, Scope())
    assert (second.documents, second.written, second.quarantined, second.chunks) == (10, 9, 1, first.chunks)
    assert contents(remote) == contents(local)
    assert quarantine(remote) == quarantine(local)
    workers = number(remote, "SELECT count(DISTINCT worker) FROM migration.chunks")
    assert workers == 2
    assert backfill(settings, Scope()).written == 0
    assert [one.matched for one in check_parity(settings, Scope()).collections] == [9]
    assert [one.documents for one in census(settings, Scope()).collections] == [10]


@pytest.mark.slow
def test_a_cluster_of_this_machine_is_started_where_none_is_named(source: Database[Any], scheduler_dsn: str) -> None:
    settings = on_dask(settings_for(source, scheduler_dsn, workers=2, chunk=2))
    assert backfill(settings, Scope()).written == 9


def test_no_scheduler_at_that_address(source: Database[Any], scheduler_dsn: str) -> None:
    settings = on_dask(settings_for(source, scheduler_dsn), "tcp://127.0.0.1:9")
    with (
        dask.config.set({"distributed.comm.timeouts.connect": "1s"}),
        pytest.raises(UnreachableError, match=r"no Dask scheduler answers at tcp://127\.0\.0\.1:9"),
    ):
        backfill(settings, Scope())


def test_without_the_extra_it_says_what_to_install(source: Database[Any], scheduler_dsn: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "distributed", None)
        patch.delitem(sys.modules, "migrator.pipeline.dask", raising=False)
        with pytest.raises(ConfigurationError, match=r"pip install 'scheduler-migrator\[dask\]'"):
            backfill(on_dask(settings_for(source, scheduler_dsn)), Scope())
