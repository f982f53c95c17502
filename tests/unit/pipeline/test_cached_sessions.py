"""Connections that a thread keeps between its jobs."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import psycopg
import pytest

from migrator.config import MongoSettings, Settings, SourceSettings
from migrator.errors import UnreachableError
from migrator.pipeline import sessions


class Opened:
    """Stands for the connections of a thread."""

    def __init__(self, settings: object) -> None:
        self.settings = settings
        self.closed = False

    def close(self) -> None:
        self.closed = True


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    sessions.close_cached()
    yield
    sessions.close_cached()


def kept(settings: str) -> Opened:
    return sessions._with_sessions(settings, Opened, lambda opened: opened)  # type: ignore[arg-type,type-var]


def failing(settings: str) -> None:
    def fail(_: object) -> None:
        raise psycopg.OperationalError

    sessions._with_sessions(settings, Opened, fail)  # type: ignore[arg-type,type-var]


def test_a_thread_keeps_its_connections_for_the_same_settings() -> None:
    first = kept("a")
    assert kept("a") is first
    assert kept("b") is not first
    assert first.closed


def test_a_failure_closes_the_connections_of_its_thread() -> None:
    first = kept("a")
    with pytest.raises(psycopg.OperationalError):
        failing("a")
    assert first.closed
    assert kept("a") is not first


def test_a_thread_that_was_left_behind_closes_no_other_threads_connections() -> None:
    """An interrupted check leaves its thread waiting; it fails, and connects again, while other work goes on."""
    mine = kept("now")
    with ThreadPoolExecutor(1) as pool:
        with pytest.raises(psycopg.OperationalError):
            pool.submit(failing, "before").result()
        theirs = pool.submit(kept, "before").result()
    assert not mine.closed
    assert kept("now") is mine
    assert theirs is not mine
    sessions.close_cached()
    assert mine.closed
    assert theirs.closed


def test_a_connection_that_fails_before_the_first_job_is_told_by_the_job() -> None:
    nowhere = Settings(
        mongo=MongoSettings(uri="mongodb://127.0.0.1:1/", database="d", timeout=timedelta(milliseconds=1)),
        source=SourceSettings(profile="stellaops", default_tenant="t"),
    )
    sessions.prepare_job(nowhere)
    with pytest.raises(UnreachableError):
        sessions._with_sessions(nowhere, sessions.JobSessions, print)
