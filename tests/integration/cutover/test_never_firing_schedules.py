"""Schedules that would never fire, and collections in quarantine: seen by the parity check, by verify, by the gates.

Each state is planted, and the remedy that the message names is followed literally.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest
from click.testing import CliRunner

from migrator.cli import cli
from migrator.exit_status import DIFFERENT
from migrator.parity.check import check_parity
from migrator.parity.never_firing_schedules import find_never_firing_schedules
from migrator.pipeline.plan import Scope
from migrator.pipeline.sessions import Sessions
from migrator.sources.profile import Context
from migrator.sources.store_documents import schedules
from migrator.testing.servers.mongo import MongoServer
from tests.conftest import fresh_name
from tests.consent import consenting
from tests.cutting_over import Scene, gate, scene, with_cutover
from tests.stellaops_documents import fresh

ALIVE: dict[str, Any] = {"deletedAt": ..., "deletedBy": ...}


@pytest.fixture
def ready(auth_server: MongoServer, scheduler_dsn: str, tmp_path: Any) -> Iterator[Scene]:  # noqa: ANN401 - a path
    with scene(auth_server, fresh_name(), scheduler_dsn, tmp_path) as made:
        made.database.schedules.insert_many([fresh("schedules", _id=f"s{n}", name=f"s{n}", **ALIVE) for n in range(3)])
        made.ready()
        yield made


def called(scene: Scene, *arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(cli, consenting([*arguments, "--config", str(scene.config)]))
    return done.exit_code, done.output


def change(scene: Scene, statement: str) -> None:
    with psycopg.connect(scene.dsn) as connection:
        assert connection.execute(statement).rowcount == 1


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM scheduler.triggers WHERE source_id = 's1'",
        "UPDATE scheduler.triggers SET enabled = false WHERE source_id = 's1'",
    ],
    ids=["removed", "disabled"],
)
def test_an_enabled_schedule_without_an_enabled_trigger_is_a_difference_and_a_gate(
    ready: Scene, statement: str
) -> None:
    assert gate(ready.settings, ready.conditions, "schedules fire")[0] is True
    change(ready, statement)
    found = check_parity(ready.settings, Scope())
    assert [(one.collection, one.source_id) for one in found.never_firing] == [("schedules", "s1")]
    assert (found.never_firing_total, found.differs) == (1, True)
    passed, words = gate(ready.settings, ready.conditions, "schedules fire")
    assert passed is False
    assert words == (
        "1 enabled schedules have a rule and no enabled trigger, and would never fire (s1): call migrator parity"
        " --repair apply, then migrator parity"
    )
    status, said = called(ready, "parity")
    assert status == DIFFERENT
    assert (
        "1 x never-firing-schedule: an enabled schedule with a rule and without an enabled trigger: it never fires"
        in said
    )
    status, said = called(ready, "parity", "--repair", "apply")
    assert status == 0, said
    assert called(ready, "parity")[0] == 0
    assert gate(ready.settings, ready.conditions, "schedules fire")[0] is True
    assert called(ready, "cutover", "plan")[0] == 0


def test_the_documents_are_asked_and_not_what_the_profile_makes_of_them(
    ready: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A profile that makes no triggers at all would agree with a target that has none."""
    monkeypatch.setattr(schedules, "_derive_trigger", lambda *_, **__: None)
    with psycopg.connect(ready.dsn) as connection:
        connection.execute("DELETE FROM scheduler.triggers WHERE source = 'stellaops/schedules'")
    sessions = Sessions(ready.settings)
    try:
        never_firing = find_never_firing_schedules(sessions, Context(as_of=datetime.now(UTC)))
        assert [one.source_id for one in never_firing] == ["s0", "s1", "s2"]
        assert len(find_never_firing_schedules(sessions, Context(as_of=datetime.now(UTC)), ["runs"])) == 0
    finally:
        sessions.close()


@pytest.mark.parametrize(("documents", "aside", "passed"), [(20, 1, True), (20, 3, False), (0, 1, False)])
def test_a_collection_that_is_in_quarantine_for_the_most_part_is_a_gate(
    ready: Scene, documents: int, aside: int, *, passed: bool
) -> None:
    ready.database.handlers.delete_many({})
    made = [fresh("handlers", _id=f"h{n}", name=f"h{n}") for n in range(documents - aside)]
    made += [fresh("handlers", _id=f"bad{n}", name=n) for n in range(aside)]
    ready.database.handlers.insert_many(made)
    called(ready, "tail", "--until-caught-up")
    settings = ready.settings
    found, words = gate(settings, ready.conditions, "quarantined share")
    assert found is passed
    if not passed:
        assert words.startswith(
            f"{aside} of {max(documents, aside)} documents of handlers are in quarantine (at most 10 %"
        )
        # the remedies that the message names
        assert (
            f"handlers: {aside}" in called(ready, "quarantine", "list")[1]
            or "bad0" in called(ready, "quarantine", "list")[1]
        )
        assert gate(with_cutover(settings, max_quarantined_percent=100), ready.conditions, "quarantined share")[0]
