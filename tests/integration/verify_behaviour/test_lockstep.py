"""Random calls on both backends: no difference there is, and one that is made is found and cut down."""

import json
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from click.testing import CliRunner

from migrator.cli import cli
from migrator.config import Settings
from migrator.errors import UsageError
from migrator.scheduler.client import Scheduler
from migrator.scheduler.models import Job
from migrator.scratch import Components
from migrator.verify.behaviour import lockstep
from migrator.verify.check import CheckContext
from migrator.verify.request import Request
from migrator.verify.runner import verify
from tests.integration.verify_behaviour.conftest import SPECS

CHECK = SPECS["crud.lockstep"]


def asked(calls: int, seed: int) -> Request:
    return Request(behaviour=calls, seed=seed, scratch_on_source=True)


class Disagreeing(Scheduler):
    """On MongoDB, pausing answers another name."""

    def pause(self, schedule_id: Any, **more: Any) -> Job:  # noqa: ANN401 - as the facade
        job = super().pause(schedule_id, **more)
        if self.store.backend == "postgres":
            return job
        return msgspec.structs.replace(job, schedule=msgspec.structs.replace(job.schedule, name="another"))


@pytest.mark.proves("0-T2.11.1", "0-T2.11.2")
def test_random_calls_are_answered_alike(settings: Settings) -> None:
    found = CHECK.run(CheckContext(settings, asked(120, seed=7)))
    assert (found.outcome.status, found.counts) == ("passed", {"operations": 120, "differences": 0})
    assert ("seed", 7) in found.varying[0].rows


@pytest.mark.proves("0-T2.11.6")
def test_a_difference_is_found_and_cut_down(settings: Settings) -> None:
    found = CHECK.run(CheckContext(settings, asked(150, seed=3), components=Components(service=Disagreeing)))
    assert found.outcome.status == "failed"
    (finding,) = found.findings
    assert finding.key == "seed 3"
    assert "name" in finding.details[0]
    steps = finding.details[-1].removeprefix("after: ").split("; ")
    assert len(steps) == 2, steps
    assert steps[-1].startswith("pause ")
    assert "--seed 3" in found.tallies[0].fix


def test_the_same_seed_is_the_same_calls() -> None:
    assert lockstep.draw(1, 50) == lockstep.draw(1, 50) != lockstep.draw(2, 50)


def test_it_is_done_only_when_asked_for(context: CheckContext, settings: Settings) -> None:
    assert CHECK.run(context).outcome.status == "not-asked-for"
    with pytest.raises(UsageError, match="contradict"):
        verify(settings, Request(run_name="r", behaviour=5, no_behaviour=True))
    assert cast("Any", Request(seed=4)).seed == 4


def test_the_command_takes_backend_count_and_seed(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MIGRATOR_MONGO__URI", str(settings.mongo.uri))
    monkeypatch.setenv("MIGRATOR_MONGO__DATABASE", str(settings.mongo.database))
    monkeypatch.setenv("MIGRATOR_POSTGRES__DSN", str(settings.postgres.dsn))
    options = [
        "--only",
        "crud",
        "--backend",
        "both",
        "--behaviour",
        "25",
        "--seed",
        "6",
        "--json",
        "--scratch-on-source",
    ]
    answer = CliRunner().invoke(cli, ["verify", *options])
    assert answer.exit_code == 4, answer.output  # the other areas were left out
    found = json.loads(answer.stdout)
    checks = {one["id"]: one for one in found["evidence"]["checks"]}
    assert {name: one["outcome"]["status"] for name, one in checks.items()} == dict.fromkeys(checks, "passed")
    assert checks["crud.lockstep"]["counts"]["operations"] == 25
    assert checks["crud.schedules"]["counts"]["backends"] == 2
    assert ["seed", 6] in found["run"]["panels"]["crud.lockstep"][0]["rows"]
