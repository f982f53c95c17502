"""The throttle: documents against a rate, a pause, the load of the source; with a clock of the test."""

from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from migrator.config import CopySettings, Settings
from migrator.errors import DeniedError
from migrator.pipeline.control import LIMITS, PAUSE, POSTPONE, Control, ControlEntry
from migrator.pipeline.job_feeder import JobFeeder
from migrator.pipeline.source_load import lag_in, load_in
from migrator.pipeline.throttle import SAID_EVERY_S, Pace, Throttle

AT = datetime(2026, 11, 23, 6, 0, tzinfo=UTC)


class Scene:
    """A throttle whose clock, control and source are the test's."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **copy: Any) -> None:  # noqa: ANN401 - keys of [copy]
        self.now = 0.0
        self.load = self.lag = 0.0
        self.entries: dict[str, ControlEntry] = {}
        self.said: list[str] = []
        monkeypatch.setattr("migrator.pipeline.throttle.waiting", self.said.append)
        self.throttle = Throttle(
            Settings(copy=CopySettings(**copy)),
            lambda: Control(entries=dict(self.entries)),
            {"max_source_load": lambda: self.load, "max_replication_lag": lambda: self.lag},
            clock=self._clock,
        )

    def _clock(self) -> float:
        return self.now

    def put(self, name: str, value: float | None = None, who: str = "anna", reason: str = "") -> None:
        self.entries[name] = ControlEntry(name=name, value=value, who=who, reason=reason, at=AT)

    def begun_within(self, seconds: float, documents: int) -> int:
        """Return how many chunks begin in so many seconds, each as soon as it may."""
        until, count = self.now + seconds, 0
        while self.now < until:
            wait_s = self.throttle.wait_s(documents)
            count += not wait_s
            self.now += max(wait_s, 0.001)
        return round(count, -1)


def test_a_rate_holds_over_time_and_the_first_chunk_does_not_wait() -> None:
    pace = Pace()
    assert pace.wait_s(100, 0.0) == 0
    pace.begin(250)
    assert pace.wait_s(100, 1.0) == 1.5
    assert pace.wait_s(100, 2.5) == 0
    pace.begin(100)
    assert pace.wait_s(50, 2.5) == 2  # the documents that were begun count against the rate of now
    assert pace.wait_s(0, 2.5) == 0


def test_what_was_not_used_is_not_saved_for_later() -> None:
    pace = Pace()
    pace.wait_s(100, 0.0)
    assert pace.wait_s(100, 1_000.0) == 0
    pace.begin(100)
    assert pace.wait_s(100, 1_000.0) == 1


def test_all_chunks_together_keep_to_the_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch, max_rate=500)
    assert scene.begun_within(60.0, 100) == 300
    assert scene.said == []  # a rate is no news where there are no bars


def test_a_rate_that_is_set_has_precedence_until_it_is_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch, max_rate=500)
    scene.put("max_rate", 50)
    assert scene.begun_within(60.0, 100) == 30
    del scene.entries["max_rate"]
    scene.now += 60
    assert scene.begun_within(60.0, 100) == 300
    scene.put("max_rate", 0)
    scene.now += 60
    assert scene.throttle.wait_s(10**9) == scene.throttle.wait_s(10**9) == 0


def test_a_pause_holds_everything_and_says_who_and_why(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch)
    scene.put(PAUSE, reason="nightly batch")
    assert scene.begun_within(60.0, 1) == 0
    assert set(scene.said) == {"paused by anna since 2026-11-23 06:00:00 UTC (nightly batch): migrator control resume"}
    assert len(scene.said) == 60 / SAID_EVERY_S
    del scene.entries[PAUSE]
    scene.now += 2  # what is set is read so often
    assert scene.throttle.wait_s(1_000) == 0


def test_a_postponed_cutover_does_not_hold_a_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch)
    scene.put(POSTPONE)
    assert scene.throttle.wait_s(1) == 0


def test_a_busy_source_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch, max_source_load=40)
    scene.load = 41
    assert scene.begun_within(5.0, 1) == 0
    assert scene.said == ["load of the source 41 clients, limit 40"]
    scene.load = 40
    scene.now += 3
    assert scene.throttle.wait_s(1) == 0


def test_what_cannot_be_measured_is_refused_before_anything_begins() -> None:
    def denied() -> float:
        raise DeniedError("the right is missing")

    with pytest.raises(DeniedError, match="the right is missing"):
        Throttle(Settings(copy=CopySettings(max_source_load=1)), Control, {"max_source_load": denied})
    Throttle(Settings(), Control, {"max_source_load": denied})


def test_the_load_of_mongodb_is_clients_and_the_queue() -> None:
    # MongoDB manual, serverStatus.globalLock
    status = {"globalLock": {"activeClients": {"total": 3, "readers": 1}, "currentQueue": {"total": 4, "writers": 4}}}
    assert load_in(status) == 7


def test_replication_lag_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch, max_replication_lag=timedelta(seconds=10), max_source_load=40)
    scene.lag = 14.4
    assert scene.throttle.wait_s(1) > 0
    assert scene.said == ["replication lag 14 s, limit 10 s"]
    scene.put("max_replication_lag", 15.0)
    scene.now += 2
    assert scene.throttle.wait_s(1) == 0


def test_the_lag_of_a_replica_set_is_that_of_its_slowest_secondary() -> None:
    # MongoDB manual, replSetGetStatus and replSetGetConfig
    def member(name: str, state: int, seconds: int) -> dict[str, Any]:
        return {"name": name, "state": state, "optimeDate": AT - timedelta(seconds=seconds)}

    members = [member("a", 1, 0), member("b", 2, 3), member("c", 2, 7), member("late", 2, 3_600), member("down", 8, 99)]
    config = {"members": [{"host": one["name"]} for one in members]}
    config["members"][3]["secondaryDelaySecs"] = 3_600
    assert lag_in({"members": members}, config) == 7
    assert lag_in({"members": members[:1] + members[3:]}, config) is None


def test_every_limit_is_a_key_of_the_configuration_and_is_in_force_when_set() -> None:
    assert set(LIMITS) <= set(CopySettings.__struct_fields__)
    entries: dict[str, ControlEntry] = {
        name: ControlEntry(name=name, value=7, who="anna", reason="", at=AT) for name in LIMITS
    }
    found = Control(entries=entries).limits(CopySettings())
    assert {name: getattr(found, name) for name in LIMITS} == dict.fromkeys(LIMITS, 7)


class HeldPool(Executor):
    """An executor whose jobs end when the test says so."""

    def __init__(self) -> None:
        self.futures: list[Future[Any]] = []

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **_: Any) -> Future[Any]:  # noqa: ANN401 - those of any job
        future: Future[Any] = Future()
        future.set_running_or_notify_cancel()
        future.set_result(function(*arguments))
        self.futures.append(future)
        return future


@contextmanager
def sleeping(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    def sleep(seconds: float) -> None:
        scene.now += seconds

    monkeypatch.setattr("migrator.pipeline.job_feeder.time.sleep", sleep)
    yield


def test_jobs_wait_for_the_throttle_and_all_are_done(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch, max_rate=10)
    settings = CopySettings(workers=2)
    with sleeping(scene, monkeypatch):
        jobs = JobFeeder(HeldPool(), str, range(50), settings, scene.throttle, lambda _: 10)
        assert sorted(int(done) for _, done in jobs) == list(range(50))
    assert scene.now == pytest.approx(49)


def test_a_shared_job_may_be_done_by_another_thread_unless_it_is_submitted() -> None:
    jobs = JobFeeder(HeldPool(), str, [1, 2, 3], CopySettings(workers=1), None, lambda _: 0, shared=[4, 5])
    running = iter(jobs)
    assert next(running)[0] in {1, 2, 3}
    assert jobs.take_shared() == 5
    assert {job for job, _ in running} | {1, 2, 3} == {1, 2, 3, 4}
    assert jobs.take_shared() is None


def test_jobs_are_asked_for_when_they_can_be_submitted() -> None:
    asked: list[int] = []

    def made() -> Iterator[int]:
        for number in range(50):
            asked.append(number)
            yield number

    pool = HeldPool()
    jobs = JobFeeder(pool, str, made(), CopySettings(workers=1), None, lambda _: 0)
    running = iter(jobs)
    next(running)
    assert len(asked) == len(pool.futures)
    assert sum(1 for _ in running) == 49
    assert asked == list(range(50))
