"""Each success criterion that rests on rows is met, not met, or not to be told, by what is planted in them."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import msgspec
import pytest

from migrator.config import PostgresSettings, Settings
from migrator.connections.postgres import Connection
from migrator.cutover.evidence import CRITERIA, Facts
from migrator.cutover.journal import Cutover, Step
from migrator.result import Check
from tests.schema_rows import connect, insert

OPENED = datetime(2026, 3, 1, 12, tzinfo=UTC)
BEFORE, AFTER = OPENED - timedelta(hours=1), OPENED + timedelta(hours=1)
CUTOVER = Cutover(
    id=uuid4(),
    environment="test",
    state="cut-over",
    config_path="config.toml",
    backup_path="config.toml.before-cutover-1",
    began_at=OPENED - timedelta(seconds=5),
    ended_at=None,
    fence={},
    detail={},
)
OPEN = Step(step="open-target", state="done", began_at=OPENED, ended_at=OPENED, detail={})


@pytest.fixture
def target(scheduler_dsn: str) -> Iterator[Connection]:
    with connect(scheduler_dsn) as connection:
        yield connection


def judged(name: str, target: Connection, state: str = "finished") -> Check:
    cutover = msgspec.structs.replace(CUTOVER, state=state)
    settings = Settings(postgres=PostgresSettings(dsn=target.info.dsn))
    return CRITERIA[name](Facts(settings=settings, target=target, cutover=cutover, steps=(OPEN,)))


def run(target: Connection, created_at: datetime, **columns: Any) -> UUID:  # noqa: ANN401 - columns have all types
    identity: UUID = insert(target, "runs", created_at=created_at, **columns)
    return identity


def fired(target: Connection, *attempts: int) -> None:
    """Insert runs of one slot."""
    trigger = insert(target, "triggers")
    (schedule,) = (
        target.execute("SELECT schedule_id FROM scheduler.triggers WHERE id = %s", (trigger,)).fetchone() or ()
    )
    for attempt in attempts:
        run(target, AFTER, schedule_id=schedule, trigger_id=trigger, scheduled_at=AFTER, attempt=attempt)


def fired_twice(target: Connection) -> None:
    """Insert two runs of one slot and attempt, which the index refuses while it exists."""
    target.execute("DROP INDEX scheduler.uq_runs_slot")
    fired(target, 1, 1, 2)


@pytest.mark.proves("4-V7")
def test_runs_of_the_old_side_after_the_opening_fail_the_criterion_runs(target: Connection) -> None:
    run(target, BEFORE, source="stellaops/runs", source_id="old")
    untold = judged("runs", target)
    assert (untold.outcome.status, untold.counts) == ("unverified", {"runs since": 0, "of the old side": 0})
    run(target, AFTER)
    assert judged("runs", target).outcome.status == "passed"
    unasked = judged("runs", target, "cut-over").outcome
    assert (unasked.status, unasked.reason.partition(":")[0]) == ("unverified", "MongoDB cannot be asked")
    run(target, AFTER, source="stellaops/runs", source_id="late")
    found = judged("runs", target)
    assert (found.outcome.status, found.counts) == ("failed", {"runs since": 2, "of the old side": 1})
    assert [one.details for one in found.findings] == [
        ("1 runs that were made after PostgreSQL was opened come from the old side",)
    ]


@pytest.mark.proves("4-Z2")
def test_a_completed_run_of_a_celery_task_without_an_id_of_celery_fails_the_criterion_tasks(target: Connection) -> None:
    assert judged("tasks", target).outcome.status == "not-applicable"
    task = insert(target, "schedules", handler_type="celery_task")
    run(target, BEFORE, schedule_id=task, state="completed")
    run(target, AFTER, schedule_id=task, state="error")
    run(target, AFTER, schedule_id=insert(target, "schedules", handler_type="function"), state="completed")
    untold = judged("tasks", target)
    assert (untold.outcome.status, untold.counts) == ("unverified", {"completed runs": 0, "without an id": 0})
    run(target, AFTER, schedule_id=task, state="completed", external_task_id="t-1")
    assert judged("tasks", target).outcome.status == "passed"
    run(target, AFTER, schedule_id=task, state="completed")
    criterion = judged("tasks", target)
    assert (criterion.outcome.status, criterion.counts) == ("failed", {"completed runs": 2, "without an id": 1})
    assert [one.details for one in criterion.findings] == [
        ("1 runs of Celery tasks completed without an id of Celery",)
    ]


@pytest.mark.proves("4-Z6")
@pytest.mark.parametrize(
    ("plant", "status", "slots", "twice"),
    [
        (lambda _: None, "unverified", 0, 0),
        (lambda target: run(target, AFTER), "unverified", 0, 0),
        (lambda target: fired(target, 1, 2), "passed", 2, 0),
        (fired_twice, "failed", 2, 1),
    ],
    ids=["no run", "a run of no slot", "a slot and its retry", "a slot that ran twice"],
)
def test_a_slot_with_two_runs_fails_the_criterion_single(
    plant: Callable[[Connection], object], status: str, slots: int, twice: int, target: Connection
) -> None:
    plant(target)
    found = judged("single", target)
    assert (found.outcome.status, found.counts) == (status, {"slots": slots, "slots with two runs": twice})
    assert bool(found.findings) == (status == "failed")
