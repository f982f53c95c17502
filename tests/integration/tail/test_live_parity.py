"""Comparing and repairing, beside a tail that follows and without one."""

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pymongo.database import Database

from migrator.config import Settings
from migrator.parity import check, repair
from migrator.parity.check import check_parity
from migrator.parity.equal import is_equal
from migrator.parity.extra_rows import ExtraRows
from migrator.parity.recheck import MOVING, TWO_MOMENTS, Recheck, confirmed_extra_rows, wait_until_comparable
from migrator.parity.repair import apply_repair
from migrator.pipeline.plan import Scope
from migrator.pipeline.sessions import Sessions, close_cached
from migrator.pipeline.tail import reread
from migrator.pipeline.tail.loop import Tail
from migrator.pipeline.tail.reread import Drained
from migrator.pipeline.transform import SourceDocument
from migrator.result import Finding
from migrator.values.identity import source_id_of
from tests.copying import number, quarantine, run, run_of, write_config
from tests.stellaops_documents import fresh
from tests.tailing import caught_up, compared, copied, differences
from tests.workload import Workload

Source = Database[Any]
DIFFERENT = 1
ADD_AUDIT = (
    "CREATE TEMP TABLE one ON COMMIT DROP AS SELECT * FROM scheduler.audit LIMIT 1;"
    "UPDATE one SET id = gen_random_uuid(), source_id = 'nobody';"
    "INSERT INTO scheduler.audit SELECT * FROM one"
)


@pytest.fixture
def source(mongo_database: Source) -> Source:
    mongo_database["schedules"].insert_many([fresh("schedules", _id=f"s{one}", name=f"s{one}") for one in range(20)])
    mongo_database["runs"].insert_many([run_of(_id=f"r{one}", scheduleId=f"s{one % 25}") for one in range(100)])
    mongo_database["graph_jobs"].insert_many([fresh("graph_jobs", _id=f"g{one}") for one in range(20)])
    return mongo_database


@pytest.fixture
def settings(source: Source, scheduler_dsn: str) -> Settings:
    return copied(source, scheduler_dsn)


@contextmanager
def following(settings: Settings) -> Iterator[Callable[[], None]]:
    """Let a tail follow in a thread for the length of the block; yield what ends it before."""
    stop, follows = threading.Event(), threading.Event()

    def follow() -> None:
        with Tail(settings) as tail:
            tail.run("caught-up")
            follows.set()
            tail.run(None, stop)

    thread = threading.Thread(target=follow)

    def end() -> None:
        stop.set()
        thread.join()

    thread.start()
    follows.wait()
    try:
        yield end
    finally:
        end()


@contextmanager
def writing(source: Source, seed: int) -> Iterator[Workload]:
    """Let documents change in a thread for the length of the block."""
    workload, stop = Workload(source, seed), threading.Event()

    def write() -> None:
        while not stop.wait(0.005):
            workload.run(1)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield workload
    finally:
        stop.set()
        thread.join()


@pytest.mark.parametrize("moment", ["before the documents", "after the documents"])
def test_a_tail_that_ends_during_a_check_leaves_changes_and_no_differences(
    moment: str, source: Source, settings: Settings, scheduler_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the source changed after the tail's end is not in the rows; only a row that is wrong is a difference."""
    run_jobs = check._run

    with following(settings) as end_tail:
        caught_up_with = wait_until_comparable
        sessions = Sessions(settings)
        assert caught_up_with(sessions)
        sessions.close()
        with psycopg.connect(scheduler_dsn) as connection:
            connection.execute("UPDATE scheduler.runs SET state = 'timeout' WHERE source_id = 'r99'")

        def interrupted(*arguments: Any) -> Any:  # noqa: ANN401 - as the function in its place
            done = run_jobs(*arguments) if moment == "after the documents" else None
            end_tail()
            source["runs"].update_one({"_id": "r5"}, {"$set": {"state": "error"}})
            source["runs"].delete_one({"_id": "r6"})
            source["graph_jobs"].delete_one({"_id": "g7"})
            return run_jobs(*arguments) if done is None else done

        monkeypatch.setattr(check, "_run", interrupted)
        outcome = check_parity(settings, Scope())
    found = {finding.key for one in outcome.collections for finding in one.findings}
    assert found == {"r99"}
    assert [one for one in outcome.aggregates if one.differing_total] == []


def spoil(dsn: str) -> None:
    """Make a row wrong, take one away, and add one."""
    with psycopg.connect(dsn) as connection:
        connection.execute("UPDATE scheduler.runs SET state = 'timeout' WHERE source_id = 'r99'")
        connection.execute("DELETE FROM scheduler.runs WHERE source_id = 'r98'")
        connection.execute(ADD_AUDIT)
    spoil_graph_jobs(dsn)


def spoil_graph_jobs(dsn: str) -> None:
    """Add a row to a table whose rows do not name their documents."""
    with psycopg.connect(dsn) as connection:
        connection.execute(
            "INSERT INTO scheduler.graph_jobs SELECT gen_random_uuid(), tenant_id, type, status,"
            " jsonb_set(payload, '{_id}', '\"stranger\"'), created_at, updated_at FROM scheduler.graph_jobs LIMIT 1"
        )


WRONG = {
    ("audit", "nobody", "extra"),
    ("graph_jobs", "extra"),
    ("runs", "r98", "missing"),
    ("runs", "r99", "row"),
}


def kinds(found: list[tuple[str, str, str, str]]) -> set[tuple[str, ...]]:
    return {
        (one[0], one[2]) if one[0] == "graph_jobs" else one[:3]
        for one in found
        if one[2] not in {"aggregate", "unverified"}
    }


def test_writes_are_no_differences_and_differences_are_seen_among_writes(
    source: Source, settings: Settings, scheduler_dsn: str
) -> None:
    source["audit"].insert_one(fresh("audit"))
    with following(settings), writing(source, 1) as workload:
        for _ in range(2):
            assert kinds(differences(check_parity(settings, Scope()))) == set()
        assert workload.done > 0
    caught_up(settings)
    with following(settings), writing(source, 2):
        with psycopg.connect(scheduler_dsn) as connection:
            connection.execute(ADD_AUDIT)
        assert ("audit", "nobody", "extra") in kinds(differences(check_parity(settings, Scope())))


def test_without_a_recheck_writes_would_be_differences(
    source: Source, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fault planted: what seems different counts at once."""
    monkeypatch.setattr(Recheck, "confirmed_differences", lambda _self, found, _stored, _quarantine: list(found))
    caught_up(settings)
    source["runs"].update_many({}, {"$set": {"note": 2}})
    assert kinds(compared(settings)) != set()


def too_many(settings: Settings, touch: Callable[[], object]) -> tuple[list[str], int]:
    """Let a schedule's row be too many at the first looks, and let something happen meanwhile."""
    seen = Finding(
        severity="difference", collection="schedules", key="s18", side="extra", table="schedules", cause="extra-row"
    )
    found = {"schedules": ExtraRows(tables=Counter(schedules=1), findings=[seen])}
    looks = iter([found, found, {}])

    def again(_names: set[str]) -> dict[str, ExtraRows]:
        touch()
        return next(looks)

    sessions = Sessions(settings)
    try:
        confirmed, moving = confirmed_extra_rows(sessions, found, again)
    finally:
        sessions.close()
    return [one.key for extra in confirmed.values() for one in extra.findings], len(moving)


def test_a_row_whose_document_came_back_while_it_was_looked_for_is_not_too_many(
    source: Source, settings: Settings
) -> None:
    """A document that is removed and restored again and again: its row was too many at two looks, and rightly there."""
    with following(settings):
        assert too_many(settings, lambda: source["schedules"].update_one({"_id": "s18"}, {"$inc": {"n": 1}})) == ([], 0)
        assert too_many(settings, lambda: source["schedules"].update_one({"_id": "s17"}, {"$inc": {"n": 1}})) == (
            ["s18"],
            0,
        )


def compared_here(settings: Settings) -> list[tuple[str, str, str, str]]:
    """Compare in this process, where a test can interfere."""
    with ThreadPoolExecutor(1) as pool:
        found = differences(check_parity(settings, Scope(), pool=pool))
        pool.submit(close_cached).result()
    return [one for one in found if TWO_MOMENTS not in one and one[2] != "aggregate"]


def test_a_document_that_was_gone_in_between_is_no_difference(
    source: Source, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is the same whenever it is read, and the rows are those of a moment in which it was not there."""
    judge, turns = Recheck._judge, iter([1])

    def meanwhile(self: Recheck, current: dict[str, bytes], stored: Any, aside: Any) -> Any:  # noqa: ANN401 - its parts
        if "r7" not in current or not next(turns, None):
            return judge(self, current, stored, aside)
        kept = source["runs"].find_one_and_delete({"_id": "r7"})
        assert kept is not None
        assert wait_until_comparable(self._sessions)
        judged = list(judge(self, current, stored, aside))
        source["runs"].insert_one(kept)
        return judged

    monkeypatch.setattr(Recheck, "_judge", meanwhile)
    monkeypatch.setattr("migrator.parity.recheck.is_equal", at_first_different("r7"))
    with following(settings):
        assert compared_here(settings) == []
    assert next(turns, None) is None  # it was looked at


def test_a_document_that_changes_at_every_look_is_left_out_and_said(
    source: Source, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    judge = Recheck._judge

    def meanwhile(self: Recheck, current: dict[str, bytes], stored: Any, aside: Any) -> Any:  # noqa: ANN401 - its parts
        judged = list(judge(self, current, stored, aside))
        source["runs"].update_one({"_id": "r7"}, {"$inc": {"n": 1}})
        return [(one, source_id_of(one.raw) != "r7") for one, _ in judged]

    monkeypatch.setattr(Recheck, "_judge", meanwhile)
    monkeypatch.setattr("migrator.parity.recheck.is_equal", at_first_different("r7"))
    with following(settings):
        assert compared_here(settings) == [("runs", "", "unverified", MOVING.format(1))]


def at_first_different(source_id: str) -> Callable[..., bool]:
    """Return a comparison that takes one document for different the first time."""
    turns = iter([1])

    def compare_one(document: SourceDocument, stored: Any, quarantined: Any) -> bool:  # noqa: ANN401 - its parts
        if source_id_of(document.raw) == source_id and next(turns, None):
            return False
        return is_equal(document, stored, quarantined)

    return compare_one


def test_a_repair_is_planned_then_applied(
    source: Source, settings: Settings, scheduler_dsn: str, tmp_path: Path
) -> None:
    source["audit"].insert_one(fresh("audit"))
    caught_up(settings)
    spoil(scheduler_dsn)
    assert kinds(compared(settings)) == WRONG
    config = str(write_config(tmp_path, settings))
    status, out, said = run("parity", "--repair", "plan", "--config", config)
    assert status == DIFFERENT, said
    assert out.splitlines()[:6] == [
        "audit: 1 documents would be read again",
        "  nobody",
        "graph_jobs: 1 documents would be read again",
        "  stranger",
        "runs: 2 documents would be read again",
        "  r98",
    ]
    assert kinds(compared(settings)) == WRONG
    status, out, said = run("parity", "--repair", "apply", "--config", config)
    assert status == 0, said
    assert "wrote 2 rows, removed 2" in out
    assert compared(settings) == []
    assert quarantine(scheduler_dsn) == []


def test_a_repair_removes_a_row_that_the_tail_does_not_know(
    source: Source, settings: Settings, scheduler_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tail has read which rows graph jobs have, before the row was added; it is given the time to do the repair."""
    caught_up(settings)
    drain = reread.drain

    def after_the_tail(sessions: Sessions, *rest: Any) -> Drained:  # noqa: ANN401 - passed on
        assert wait_until_comparable(sessions)
        return drain(sessions, *rest)

    monkeypatch.setattr(repair, "drain", after_the_tail)
    with following(settings):
        source["graph_jobs"].update_one({"_id": "g1"}, {"$set": {"note": 1}})
        assert compared_here(settings) == []
        spoil_graph_jobs(scheduler_dsn)
        assert kinds(compared_here(settings)) == {("graph_jobs", "extra")}
        repaired = apply_repair(settings, Scope())
        assert repaired.after is not None
        assert kinds(differences(repaired.after)) == set()


def test_a_repair_beside_a_tail(source: Source, settings: Settings, scheduler_dsn: str) -> None:
    source["audit"].insert_one(fresh("audit"))
    with following(settings):
        spoil(scheduler_dsn)
        repaired = apply_repair(settings, Scope())
        assert repaired.after is not None
        assert kinds(differences(repaired.after)) == set()
    assert number(scheduler_dsn, "SELECT count(*) FROM migration.pending_documents") == 0
    assert compared(settings) == []
