"""What an application makes while the rollback is open, and the source could not state: warned about, or refused."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import msgspec
import psycopg
import pytest
from structlog.testing import capture_logs

from migrator import Scheduler, ScheduleRequest
from migrator.config import Settings
from migrator.cutover import completion, rollback
from migrator.errors import RefusedError
from migrator.pipeline.sessions import close_cached
from migrator.schema.decisions import Approval
from migrator.store import open_store
from migrator.store.protocols import ScheduleQuery
from migrator.testing.servers.mongo import MongoServer
from tests import store_postgres
from tests.copying import TENANT
from tests.cutting_over import Scene, own_scene, with_cutover

AHEAD = datetime(2098, 3, 1, 12, tzinfo=UTC)
OWN = {"cron": "15 4 * * mon", "dialect": "celery", "timezone": "Europe/Vienna"}
ELSEWHERE = OWN | {"timezone": "Asia/Tokyo"}


@pytest.fixture
def ready(auth_server: MongoServer, scheduler_dsn: str) -> Iterator[Scene]:
    with own_scene(auth_server, scheduler_dsn, "celerybeat") as made:
        yield made


def of_application(scene: Scene, **cutover: object) -> Settings:
    settings = with_cutover(scene.settings, **cutover)
    return msgspec.structs.replace(
        settings, persistence=msgspec.structs.replace(settings.persistence, scheduler="postgres")
    )


def request(name: str, **timing: object) -> ScheduleRequest:
    return ScheduleRequest(name=name, handler_name="demo.task", created_by="tests", **timing)  # type: ignore[arg-type]


def test_what_the_source_cannot_state_is_refused_while_the_window_is_open(ready: Scene) -> None:
    before = of_application(ready, on_unwritable="refuse")
    ready.switch()
    close_cached()
    with open_store(before) as store:
        client = Scheduler(store, TENANT)
        made = client.schedule(request("can be stated", **OWN))
        with pytest.raises(RefusedError) as refused:
            client.schedule(request("elsewhere", **ELSEWHERE))
        assert str(refused.value).startswith("schedule ")
        assert "would not fire for a cron line of the dialect celery" in str(refused.value)
        assert "celerybeat, to which a rollback would go, states triggers of kind cron, interval" in str(refused.value)
        with pytest.raises(RefusedError, match="kind one_time"):
            client.schedule_once(request("once"), AHEAD)
        with pytest.raises(RefusedError, match="kind event"):
            client.on_event("rain", "demo.task")
        with pytest.raises(RefusedError, match="dialect debian"):
            client.reschedule(made.id, cron="30 2 * * *", timezone="Europe/Berlin")
        assert not any(client.list(ScheduleQuery(name_contains=name)).jobs for name in ("elsewhere", "once", "rain"))
        [trigger] = made.triggers
        with pytest.raises(RefusedError), store.session(TENANT) as session:
            session.triggers.upsert(msgspec.structs.replace(trigger, timezone="Asia/Tokyo"))
        kept = client.get(made.id)
        assert kept is not None
        assert [one.timezone for one in kept.triggers] == ["Europe/Vienna"]
        client.reschedule(made.id, interval=timedelta(hours=3))
        client.pause(made.id)
        client.cancel(made.id)


def test_by_default_it_is_logged_and_after_finish_nothing_is_said(ready: Scene) -> None:
    ready.switch()
    close_cached()
    with open_store(of_application(ready)) as store, capture_logs() as lines:
        client = Scheduler(store, TENANT)
        client.schedule(request("can be stated", **OWN))
        assert lines == []
        made = client.schedule(request("elsewhere", **ELSEWHERE))
        [line] = lines
        assert (line["log_level"], line["schedule"], line["source"]) == ("warning", str(made.id), "celerybeat")
        assert "would not fire for a cron line" in line["why"][0]
        lines.clear()
        client.pause(made.id)
        client.cancel(made.id)
        assert lines == [], "these change no rule"
    completion.finish(ready.settings, early=Approval("tests", "the end"))
    close_cached()
    with open_store(of_application(ready, on_unwritable="refuse")) as store, capture_logs() as lines:
        Scheduler(store, TENANT).schedule(request("after finish", **ELSEWHERE))
    assert lines == []


def test_settings_of_another_source_are_told_and_refused(ready: Scene) -> None:
    """The application built its settings in code, and named no source."""
    ready.switch()
    close_cached()
    ours = store_postgres.settings(ready.dsn)
    with open_store(ours) as store, capture_logs() as lines:
        client = Scheduler(store, TENANT)
        client.schedule(request("elsewhere", **ELSEWHERE))
        client.schedule(request("elsewhere too", **ELSEWHERE))
    [line] = lines
    assert "the cutover came from celerybeat, and [source] of this process names stellaops" in line["event"]
    with (
        open_store(with_cutover(ours, on_unwritable="refuse")) as store,
        pytest.raises(RefusedError, match="names stellaops: set it as it was for the cutover"),
    ):
        Scheduler(store, TENANT).schedule(request("a third", **OWN))


def test_after_a_rollback_the_row_names_no_source(ready: Scene) -> None:
    ready.switch()
    rollback.run(ready.settings, ready.config, 1)
    with psycopg.connect(ready.dsn) as connection:
        row = connection.execute("SELECT metadata FROM scheduler.locks WHERE key = '*/persistence'").fetchone()
    assert row is not None
    assert (row[0]["backend"], "source" in row[0]) == ("mongo", False)
