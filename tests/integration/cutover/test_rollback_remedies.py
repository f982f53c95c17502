"""What the messages say is done, word for word, until nothing is in the way; and every schedule fires in the end."""

import re
from collections.abc import Iterator
from typing import Final

import psycopg
import pytest
from click.testing import CliRunner
from psycopg import sql

from migrator.cli import cli
from migrator.cutover import reverse_sync
from migrator.errors import RefusedError
from migrator.exit_status import USAGE
from migrator.testing.servers.mongo import MongoServer
from tests.conftest import fresh_name
from tests.consent import consenting
from tests.copying import run
from tests.cutting_over import Scene, scene
from tests.integration.cutover.test_rounds import (
    OLD,
    agree,
    of_the_old_application,
    work_of_the_old_application,
    work_on_postgres,
)
from tests.ordinary_user import hand_over, ordinary_folder

REMEDY: Final = re.compile(
    r"(?:call|let) (?:migrator )?(backfill|tail|parity|cutover|quarantine|schema)((?: --?[a-z]+| [a-z]+)*)"
)
WORDS: Final = frozenset({"--repair", "apply", "upgrade"})
"""Of a command; what follows besides is the sentence around it."""
MOST: Final = 8
"""Messages that are followed one after the other; more would be a circle."""


@pytest.fixture
def day(auth_server: MongoServer, scheduler_dsn: str) -> Iterator[Scene]:
    """Some schedules of the old application; nothing was copied yet."""
    with ordinary_folder() as folder, scene(auth_server, fresh_name(), scheduler_dsn, folder, "remedies") as made:
        hand_over(made.config)
        with made.foreign() as old:
            old.schedules.insert_many([of_the_old_application(f"s{number}") for number in range(4)])
        yield made


def called(scene: Scene, *arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(cli, consenting([*arguments, "--config", str(scene.config)]))
    if isinstance(done.exception, RefusedError):
        return USAGE, f"NO  {done.exception}"  # as ``migrator`` itself ends; what it says is its only line
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
        assert status == 0, (done, status, said)
    return done


def cut_over(scene: Scene) -> None:
    status, said = called(scene, "cutover", "run")
    assert status == 0, said
    agree(scene)


def change(scene: Scene, statement: str) -> None:
    with psycopg.connect(scene.dsn) as connection:
        assert connection.execute(statement).rowcount == 1


def test_from_nothing(day: Scene) -> None:
    assert as_the_messages_say(day) == ["backfill", "tail --until-caught-up", "parity"]
    cut_over(day)


@pytest.mark.parametrize("late", [False, True], ids=["at-once", "after-writes"])
def test_after_a_rollback(day: Scene, *, late: bool) -> None:
    """The old application inserts a schedule: it has its trigger, and the next cutover goes as the first."""
    as_the_messages_say(day)
    cut_over(day)
    assert called(day, "rollback", "run")[0] == 0
    status, said = called(day, "schema", "check")
    assert (status, "grants without the rights to write" in said) == (0, True)
    if late:
        with day.foreign() as old:
            old.schedules.insert_one(of_the_old_application("added", cronExpression="1 2 3 * *"))
            old.schedules.delete_one({"_id": "s0"})
            old.schedules.update_one({"_id": "s1"}, {"$set": {"cronExpression": "4 4 * * *"}})
    as_the_messages_say(day)
    cut_over(day)
    assert bool(agree(day).get("added")) is late


INTERVAL: Final = (
    "INSERT INTO scheduler.triggers (id, tenant_id, schedule_id, kind, interval_ms, anchor, enabled)"
    " SELECT gen_random_uuid(), tenant_id, id, 'interval', 60000, 'completion', true FROM scheduler.schedules"
    " WHERE name = 'by hand'"
)
"""A trigger for a schedule of the old application, which its document cannot state."""


def born_here(scene: Scene) -> dict[str, int]:
    """Return how many rows of each table name no document of the source: those that were born in PostgreSQL."""
    with psycopg.connect(scene.dsn) as connection:
        tables = connection.execute(
            "SELECT table_name FROM information_schema.columns WHERE table_schema = 'scheduler'"
            " AND column_name = 'source' ORDER BY 1"
        ).fetchall()
        counts = {
            table: connection.execute(
                sql.SQL("SELECT count(*) FROM {} WHERE source IS NULL").format(sql.Identifier("scheduler", table))
            ).fetchone()
            for (table,) in tables
        }
    return {table: row[0] for table, row in counts.items() if row and row[0]}


@pytest.mark.parametrize("late", [False, True], ids=["at-once", "after-writes"])
@pytest.mark.parametrize("level", [2, 3])
def test_after_a_rollback_that_takes_rows_away(day: Scene, level: int, *, late: bool) -> None:
    """Rows that were born in PostgreSQL are in nobody's way: the next cutover goes as the first.

    Level 2 carries them to MongoDB and drops the schema; level 3 restores MongoDB as it was, and keeps the schema.
    """
    with day.foreign() as old:
        old.schedules.insert_many([dict(one) for one in OLD])
    as_the_messages_say(day)
    cut_over(day)
    work_on_postgres(day, 1)
    change(day, INTERVAL)
    assert born_here(day).keys() >= {"runs", "schedules", "triggers"}
    reverse_sync.run(
        day.settings, noted_by_now=True
    )  # nothing waits any more: what was changed is told by the rows alone
    status, said = called(day, "rollback", "run", "--level", str(level))
    assert status == 0, said
    (kept,) = day.folder.glob(f"backups/*.rollback-{level}")
    assert '"born 1"' in (kept / "scheduler.schedules.jsonl").read_text()
    assert '"to be paused"' in (kept / "scheduler.schedules.jsonl").read_text()
    assert '"Asia/Tokyo"' in (kept / "scheduler.triggers.jsonl").read_text()
    if late:
        if level == 2:
            work_of_the_old_application(day, 1)
        else:
            with day.foreign() as old:
                assert old.schedules.find_one({"name": "born 1"}) is None
                old.schedules.insert_one(of_the_old_application("added 1", cronExpression="1 9 * * 1"))
                assert old.schedules.delete_one({"_id": "to be removed"}).deleted_count == 1
                line = {"$set": {"cronExpression": "0 8 * * 5"}}
                assert old.schedules.update_one({"name": "by day"}, line).modified_count == 1
    steps = as_the_messages_say(day)
    if level == 3:
        assert steps[0] == "parity --repair apply"
    status, said = called(day, "parity")
    assert status == 0, (steps, said)
    fires = agree(day)
    cut_over(day)
    assert agree(day) == fires
    assert bool(fires.get("added 1")) is late
    assert bool(fires.get("born 1")) is (level == 2)
    assert fires["to be changed"]
    with psycopg.connect(day.dsn) as connection:
        (intervals,) = connection.execute(
            "SELECT array_agg(s.name ORDER BY s.name) FROM scheduler.triggers AS t"
            " JOIN scheduler.schedules AS s ON s.id = t.schedule_id WHERE t.kind = 'interval'"
        ).fetchone() or (None,)
    assert intervals == (["by hand", "interval 1"] if level == 2 else None)


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
    assert "the copy was made with other settings (digest of the section [source] of the configuration: then" in said
    assert "tool" not in said
    status, said = called(day, *remedy_in(said))
    assert status == 0, said
    assert called(day, "tail", "--until-caught-up")[0] == 0
    as_the_messages_say(day)
    cut_over(day)
