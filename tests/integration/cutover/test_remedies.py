"""Every remedy that a message of the cutover names: executed literally, and what was in the way is gone."""

import re
import shlex
from contextlib import closing
from datetime import timedelta

import msgspec
import psycopg
import pytest
from click.testing import CliRunner

from migrator.cli import cli
from migrator.config import load_settings
from migrator.cutover import parallel
from migrator.cutover.gates import GateOptions
from migrator.exit_status import DIFFERENT, DONE, QUARANTINE, UNVERIFIED
from migrator.pipeline.sessions import Sessions, close_cached
from tests.consent import consenting
from tests.copying import run_of
from tests.cutting_over import Scene, gate, with_cutover
from tests.integration.tail.test_live_parity import following, writing


def call(scene: Scene, command: str) -> tuple[int, str]:
    """Execute a command as a message names it, but for the configuration file."""
    assert command.startswith("migrator ")
    done = CliRunner().invoke(cli, consenting([*shlex.split(command)[1:], "--config", str(scene.config)]))
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    close_cached()
    return done.exit_code, done.output


def remedies(words: str) -> list[str]:
    """Return the commands that a message names."""
    return re.findall(r"migrator (?:[a-z]+ ?)+(?:--[a-z-]+(?: apply| \d)?)?", words)


def mended(scene: Scene, name: str, expected: list[str]) -> None:
    """A gate is not met and names these commands; they are executed as they stand there, and it is met."""
    passed, words = gate(scene.settings, scene.conditions, name)
    assert passed is False, words
    found = [one.strip() for one in remedies(words)]
    assert found == expected, words
    for command in found:
        status, said = call(scene, command)
        assert status & ~QUARANTINE == DONE, said
    assert gate(scene.settings, scene.conditions, name)[0] is True, name


def sql(scene: Scene, statement: str) -> None:
    with psycopg.connect(scene.dsn) as connection:
        connection.execute(statement)


def test_the_copy(ready: Scene) -> None:
    sql(ready, "UPDATE migration.plans SET state = 'open'")
    mended(ready, "copy", ["migrator backfill"])


@pytest.mark.parametrize("wrong", ["UPDATE scheduler.runs SET state = 'timeout'", "DELETE FROM scheduler.audit"])
def test_a_comparison_that_found_differences_is_satisfied_by_the_repair(wrong: str, ready: Scene) -> None:
    """The comparison after the repair is the one that the gate looks at."""
    sql(ready, wrong)
    assert call(ready, "migrator parity")[0] & DIFFERENT
    mended(ready, "parity check", ["migrator parity --repair apply"])


def test_no_comparison_and_an_old_one(ready: Scene) -> None:
    sql(ready, "DELETE FROM migration.parity_checks")
    mended(ready, "parity check", ["migrator parity"])
    sql(ready, "UPDATE migration.parity_checks SET started_at = started_at - interval '3 days'")
    mended(ready, "parity check", ["migrator parity"])


def test_the_tail(ready: Scene) -> None:
    sql(ready, "UPDATE migration.tail SET alarm = 'the position is lost', alarm_at = now()")
    mended(ready, "tail", ["migrator parity --repair apply"])
    sql(ready, "DELETE FROM migration.tail")
    passed, words = gate(ready.settings, ready.conditions, "tail")
    assert (passed, words) == (False, "no tail has run for this source: call migrator tail")
    assert call(ready, "migrator tail --until-caught-up")[0] == DONE
    assert gate(ready.settings, ready.conditions, "tail")[0] is True


def test_quarantine_is_a_ceiling(ready: Scene) -> None:
    """The number moves while the source is written to: what was allowed in the morning is not exactly so at noon."""
    ready.database.runs.insert_many([run_of(_id=f"strange_{number}", state=number) for number in range(2)])
    ready.database.runs.insert_many([run_of(_id=f"clean_{number}") for number in range(300)])
    assert call(ready, "migrator tail --until-caught-up")[0] == QUARANTINE
    allowed = [
        gate(ready.settings, GateOptions(config=ready.config, quarantined=number), "quarantine") for number in range(4)
    ]
    assert [found[0] for found in allowed] == [False, False, True, True]
    words = allowed[0][1]
    assert words.startswith("2 documents are quarantined (at most 0): migrator quarantine list names them")
    assert "--allow-quarantined 2" in words
    assert "strange_1" in call(ready, "migrator quarantine list")[1]
    plan = call(ready, "migrator cutover plan --allow-quarantined 2")
    assert plan[0] == DONE, plan
    ready.database.runs.delete_one({"_id": "strange_1"})
    call(ready, "migrator tail --until-caught-up")
    assert call(ready, "migrator cutover run --allow-quarantined 2")[0] == DONE


def test_a_comparison_under_writes_is_what_the_runbook_says(ready: Scene) -> None:
    """Beside a tail: no document differs, figures are not compared, and the gate is satisfied."""
    settings = msgspec.structs.replace(ready.settings, copy=msgspec.structs.replace(ready.settings.copy, workers=1))
    sql(ready, "DELETE FROM migration.parity_checks")
    with following(settings), writing(ready.database, 1) as workload:
        status, said = call(ready, "migrator parity")
        assert workload.done > 0
    assert status & ~QUARANTINE in (DONE, UNVERIFIED), said
    total = said.splitlines()[-1] if "compared " in said.splitlines()[-1] else said
    assert not re.search(r"\d (different|missing|extra rows|aggregates that differ)", total), said
    if status & UNVERIFIED:
        assert "aggregates (counts, sums, times) not compared: the source is written to" in said
    patient = with_cutover(ready.settings, max_lag=timedelta(minutes=10))
    assert gate(patient, ready.conditions, "parity check")[0] is True


def test_a_parallel_run_of_an_older_version_is_ended(ready: Scene) -> None:
    sql(
        ready,
        "INSERT INTO scheduler.locks (id, tenant_id, key, lock_id, fence, metadata) VALUES (gen_random_uuid(), '*',"
        " '*/parallel', 1, 1, jsonb_build_object('since', now()))",
    )
    with closing(Sessions(ready.settings)) as sessions:
        sessions.profile = msgspec.structs.replace(sessions.profile, slots="")
        (found,) = (one for one in parallel.gates(sessions) if one.name == "history recorded")
    assert found.passed is False
    assert found.words.endswith("call migrator cutover parallel --end --who --reason")
    assert call(ready, "migrator cutover parallel --end --who op --reason why")[0] == DONE
    assert call(ready, f"migrator cutover plan --allow-quarantined {ready.quarantined}")[0] == DONE
    assert load_settings(str(ready.config)).persistence.scheduler == "mongo"
