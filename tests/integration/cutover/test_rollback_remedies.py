"""What the messages say is done, word for word, until nothing is in the way; and every schedule fires in the end."""

import re
from collections.abc import Iterator
from typing import Final

import psycopg
import pytest
from click.testing import CliRunner

from migrator.cli import cli
from migrator.embedded.mongo import MongoServer
from migrator.exit_status import USAGE
from tests.conftest import fresh_name
from tests.copying import run
from tests.cutting_over import Scene, scene
from tests.integration.cutover.test_rounds import agree, of_the_old_application
from tests.ordinary_user import hand_over, ordinary_folder

REMEDY: Final = re.compile(
    r"(?:call|let) (?:migrator )?(backfill|tail|parity|cutover|quarantine)((?: --?[a-z]+| [a-z]+)*)"
)
WORDS: Final = frozenset({"--repair", "apply", "compare"})
"""Of a command; what follows besides is the sentence around it."""
MOST: Final = 8
"""Messages that are followed one after the other; more would be a circle."""


@pytest.fixture(scope="module")
def server() -> Iterator[MongoServer]:
    with MongoServer.start(auth=True, fast=True) as started:
        yield started


@pytest.fixture
def day(server: MongoServer, scheduler_dsn: str) -> Iterator[Scene]:
    """Some schedules of the old application; nothing was copied yet."""
    with ordinary_folder() as folder, scene(server, fresh_name(), scheduler_dsn, folder, "remedies") as made:
        hand_over(made.config)
        with made.foreign() as old:
            old.schedules.insert_many([of_the_old_application(f"s{number}") for number in range(4)])
        yield made


def called(scene: Scene, *arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(cli, [*arguments, "--config", str(scene.config)])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.output


def remedy_in(message: str) -> list[str]:
    """Return the command that a message names, without the words around it."""
    found = REMEDY.search(message)
    assert found is not None, message
    words = [found[1], *(word for word in found[2].split() if word in WORDS)]
    return [*words, "--until-caught-up"] if words == ["tail"] else words  # else it goes on for ever


def as_the_messages_say(scene: Scene) -> list[str]:
    """Follow the first message of the plan, again and again, until nothing is in the way; return what was called."""
    done: list[str] = []
    while (answer := called(scene, "cutover", "plan"))[0] != 0:
        assert len(done) < MOST, (done, answer[1])
        missing = [line for line in answer[1].splitlines() if line.startswith("NO ")]
        command = remedy_in(missing[0])
        done.append(" ".join(command))
        status, said = called(scene, *command)
        assert status == 0, (command, status, said)
    return done


def cut_over(scene: Scene) -> None:
    status, said = called(scene, "cutover", "run")
    assert status == 0, said
    agree(scene)


def change(scene: Scene, statement: str) -> None:
    with psycopg.connect(scene.dsn) as connection:
        assert connection.execute(statement).rowcount == 1


def test_from_nothing(day: Scene) -> None:
    assert as_the_messages_say(day) == ["backfill", "tail --until-caught-up", "cutover compare"]
    cut_over(day)


@pytest.mark.parametrize("late", [False, True], ids=["at-once", "after-writes"])
def test_after_a_rollback(day: Scene, *, late: bool) -> None:
    """The old application inserts a schedule: it has its trigger, and the next cutover goes as the first."""
    as_the_messages_say(day)
    cut_over(day)
    assert called(day, "rollback", "run")[0] == 0
    if late:
        with day.foreign() as old:
            old.schedules.insert_one(of_the_old_application("added", cronExpression="1 2 3 * *"))
            old.schedules.delete_one({"_id": "s0"})
            old.schedules.update_one({"_id": "s1"}, {"$set": {"cronExpression": "4 4 * * *"}})
    as_the_messages_say(day)
    cut_over(day)
    assert bool(agree(day).get("added")) is late


def test_the_messages_of_a_day_that_copied_everything_again(day: Scene) -> None:
    """After a rollback somebody calls backfill and the repair, as the issue tells it: neither does harm."""
    as_the_messages_say(day)
    cut_over(day)
    assert called(day, "rollback", "run")[0] == 0
    with day.foreign() as old:
        old.schedules.insert_one(of_the_old_application("added", cronExpression="1 2 3 * *"))
    assert called(day, "backfill")[0] == 0
    assert called(day, "parity", "--repair", "apply")[0] == 0
    as_the_messages_say(day)
    cut_over(day)
    assert agree(day)["added"]


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM scheduler.triggers WHERE source_id = 's1'",
        "UPDATE scheduler.triggers SET enabled = false WHERE source_id = 's1'",
    ],
    ids=["removed", "disabled"],
)
def test_a_trigger_that_somebody_has_spoiled(day: Scene, statement: str) -> None:
    as_the_messages_say(day)
    change(day, statement)
    assert as_the_messages_say(day) == ["parity --repair apply"]
    cut_over(day)


def test_a_copy_made_under_other_conditions(day: Scene) -> None:
    """The tail names what differs, and the command that it names works."""
    as_the_messages_say(day)
    day.config.write_text(day.config.read_text().replace("tenant-default", "another"))
    status, _, said = run("tail", "--until-caught-up", "--config", str(day.config))
    assert status == USAGE
    assert "the copy was made under other conditions (digest of the section [source] of the configuration: then" in said
    assert "tool" not in said
    status, said = called(day, *remedy_in(said))
    assert status == 0, said
    assert called(day, "tail", "--until-caught-up")[0] == 0
    as_the_messages_say(day)
    cut_over(day)
