"""Complete rehearsals on other servers: recorded with their times, counted by the gate, never made on the real ones."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from msgspec import to_builtins
from msgspec.structs import replace
from pymongo import MongoClient

from migrator.config import Settings
from migrator.connections.postgres import open_target
from migrator.cutover import rehearsal_record
from migrator.cutover.rehearsal_record import Rehearsal, RehearsalConditions, conditions_of
from migrator.exit_status import DONE, UNVERIFIED, USAGE
from migrator.pipeline.backfill import backfill
from migrator.pipeline.plan import Scope
from migrator.pipeline.sessions import close_cached
from migrator.schema import decisions
from migrator.schema.decisions import Approval
from migrator.sources import profile_of
from migrator.testing.servers.mongo import MongoServer
from tests.conftest import NEWEST, Clusters, fresh_name
from tests.copying import run, settings_for, write_config
from tests.cutting_over import Scene, scene
from tests.stellaops_documents import CANONICAL, fresh

REQUIRED = 2


class Real:
    """A copy whose cutover requires two rehearsals, and the place where they are made."""

    def __init__(self, settings: Settings, config: Path, rehearsed: Scene) -> None:
        self.settings, self.config, self.rehearsed = settings, config, rehearsed

    def call(self, *arguments: str) -> tuple[int, str, str]:
        return run(*arguments, "--config", str(self.config))

    def gate(self) -> tuple[bool | None, str]:
        """Return the gate as ``cutover plan`` has it."""
        _, out, said = self.call("cutover", "plan", "--json")
        assert out, said
        [gate] = [gate for gate in json.loads(out)["gates"] if gate["name"] == "rehearsals"]
        return gate["passed"], gate["words"]

    def record(self, *, version: str = "", result: dict[str, Any] | None = None, **changes: str) -> None:
        """Put a rehearsal on record that was never made."""
        conditions = conditions_of(self.settings, profile_of(self.settings.source, self.settings.target))
        made = Rehearsal(
            environment="staging", conditions=replace(conditions, **changes), documents=9, copy_s=1, pause_s=2.5,
            rollback_s=4.5, rollback_pause_s=1.25, result={"quarantine": []} if result is None else result,
        )  # fmt: skip
        with open_target(self.settings, autocommit=True) as target:
            decisions.record(target, decisions.REHEARSED, Approval("ann"), **to_builtins(made))
            if version:
                target.execute(
                    "UPDATE migration.decisions SET tool_version = %s WHERE id = (SELECT max(id) FROM"
                    " migration.decisions)",
                    (version,),
                )

    def answer(self, required: int = REQUIRED) -> tuple[bool | None, str]:
        settings = replace(self.settings, cutover=replace(self.settings.cutover, rehearsals=required))
        with open_target(settings, autocommit=True) as target:
            return rehearsal_record.answer(target, settings, profile_of(settings.source, settings.target))


@pytest.fixture
def real(
    auth_server: MongoServer,
    mongo_server: MongoServer,
    scheduler_dsn: str,
    clusters: Clusters,
    tmp_path: Path,
) -> Iterator[Real]:
    cluster, name = clusters.get(NEWEST), fresh_name()
    own = cluster.scheduler()
    folder = tmp_path / "rehearsal"
    folder.mkdir()
    with (
        MongoClient[dict[str, Any]](mongo_server.uri) as client,
        scene(auth_server, fresh_name(), scheduler_dsn, folder) as rehearsed,
    ):
        for collection in CANONICAL:
            client[name][collection].insert_one(fresh(collection))
        settings = settings_for(client[name], own)
        config = write_config(tmp_path, settings)
        config.write_text(
            f"[persistence]\nscheduler = 'mongo'\n\n{config.read_text()}\n[cutover]\nrehearsals = {REQUIRED}\n"
            "rehearsal_config = 'rehearsal/config.toml'\n"
        )
        assert backfill(settings, Scope()).complete
        close_cached()
        yield Real(settings, config, rehearsed)
        client.drop_database(name)
    cluster.drop(own)


@pytest.mark.proves("6-U9")
def test_the_command_that_the_gate_names_opens_it(real: Real) -> None:
    passed, words = real.gate()
    assert (passed, words) == (False, f"0 of 2 rehearsals with equal result: {rehearsal_record.REMEDY}")
    assert "expected write pause: not known yet" in real.call("cutover", "plan")[1]
    for number in (1, 2):
        status, out, said = real.call("cutover", "rehearse")  # as the gate says
        assert status == DONE, said
        assert "recorded; next: migrator cutover plan" in out
        assert real.gate()[1].startswith(f"{number} of 2 rehearsals with equal result")
    assert real.gate()[0] is True
    shown = real.call("cutover", "plan")[1]
    assert "measured in 2 rehearsals: write pause " in shown
    assert "expected write pause" not in shown
    with open_target(real.settings, autocommit=True) as target:
        recorded = [one.detail for one in decisions.recorded(target) if one.kind == decisions.REHEARSED]
        assert target.execute("SELECT count(*) FROM migration.cutovers").fetchone() == (0,)
    with open_target(real.rehearsed.settings, autocommit=True) as target:
        journal = target.execute("SELECT state, (detail ->> 'pause_s')::float8 FROM migration.cutovers").fetchall()
    assert [state for state, _ in journal] == ["rolled-back", "rolled-back"]
    assert sorted(one["pause_s"] for one in recorded) == sorted(round(pause, 3) for _, pause in journal)
    assert all(0 < one["rollback_pause_s"] < one["rollback_s"] for one in recorded)


@pytest.mark.proves("6-U9")
def test_what_does_not_count_is_named_with_its_reason(real: Real) -> None:
    real.record()
    real.record(version="0.0.1")
    real.record(mapping="another")
    real.record(cutover="another")
    passed, words = real.answer()
    assert passed is False
    assert words.startswith("1 of 2 rehearsals with equal result (")
    for reason in ("version 0.0.1 made it, and this is", "another mapping", "another plan"):
        assert f"1 not counted: {reason}" in words
    assert words.endswith(rehearsal_record.REMEDY)
    assert real.answer(required=1)[0] is True


@pytest.mark.proves("6-U9")
def test_rehearsals_that_ended_differently_do_not_add_up(real: Real) -> None:
    real.record()
    real.record(result={"quarantine": [["runs", "bad-date"]]})
    passed, words = real.answer()
    assert (passed, "1 not counted: ended otherwise than the latest one (quarantine)" in words) == (False, True)
    real.record()
    passed, words = real.answer()
    assert passed is False, "the one before the last ended otherwise"
    assert "1 not counted: made before one that ended otherwise" in words
    real.record()
    passed, words = real.answer()
    measured = "write pause 2.50 s, rollback 4.50 s (writers of PostgreSQL stopped for 1.25 s)"
    assert (passed, words) == (True, f"2 of 2 rehearsals with equal result; measured in 2 rehearsals: {measured}")


@pytest.mark.proves("6-U9")
def test_a_cutover_is_refused_until_the_gate_is_open(real: Real) -> None:
    status, _, said = real.call("cutover", "run")
    assert (status, "0 of 2 rehearsals with equal result" in said) == (USAGE, True)


def test_without_the_setting_there_is_no_such_gate(real: Real) -> None:
    real.config.write_text(real.config.read_text().replace("rehearsals = 2", "rehearsals = 0"))
    status, out, _ = real.call("cutover", "plan", "--json")
    assert status == UNVERIFIED
    assert "rehearsals" not in [gate["name"] for gate in json.loads(out)["gates"]]


@pytest.mark.parametrize("side", ["mongo", "postgres", "environment"])
def test_a_rehearsal_is_never_made_on_the_real_servers(real: Real, side: str) -> None:
    path, words = real.rehearsed.config, real.rehearsed.config.read_text()
    environment: dict[str, str] = {}
    if side == "mongo":
        path.write_text(words.replace(str(real.rehearsed.settings.mongo.uri), str(real.settings.mongo.uri)))
    elif side == "postgres":
        path.write_text(words.replace(str(real.rehearsed.settings.postgres.dsn), str(real.settings.postgres.dsn)))
    else:
        environment = {"MIGRATOR_MONGO__URI": str(real.settings.mongo.uri)}
    status, _, said = run("cutover", "rehearse", "--config", str(real.config), environment=environment)
    expected = "leads to the target of this" if side == "postgres" else "leads to the MongoDB of this configuration"
    assert (status, expected in said) == (USAGE, True), said
    with psycopg.connect(str(real.settings.postgres.dsn)) as connection:
        assert connection.execute("SELECT count(*) FROM migration.cutovers").fetchone() == (0,)


def test_a_rehearsal_that_would_not_count_is_refused_before_it_begins(real: Real) -> None:
    path = real.rehearsed.config
    words = path.read_text()
    for other in (words + "\n[cutover]\noverdue = 'skip'\n", words.replace('history = "all"', 'history = "30d"')):
        assert other != words
        path.write_text(other)
        status, _, said = real.call("cutover", "rehearse")
        assert (status, "would not count: it has another plan" in said) == (USAGE, True), said
    path.unlink()
    status, _, said = real.call("cutover", "rehearse")
    assert (status, "write a configuration there that names other servers" in said) == (USAGE, True)


def test_a_rehearsal_that_fails_is_not_counted_and_says_where_to_look(real: Real) -> None:
    path = real.rehearsed.config
    path.write_text(path.read_text() + "\n[hooks]\ncutover_before_fence = ['false']\n")
    status, _, said = real.call("cutover", "rehearse")
    assert status != DONE
    assert "the rehearsal ended in its step cutover and does not count" in said
    assert real.answer()[1].startswith("0 of 2")


def test_conditions_name_what_differs() -> None:
    one = RehearsalConditions(profile="p/1", mapping="m", settings="s", cutover="c")
    assert one.differing(one) == []
    assert one.differing(replace(one, settings="t", profile="p/2")) == [
        "another version of the source's profile",
        "other settings of [source] or [target]",
    ]
