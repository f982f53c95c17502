"""With PostgreSQL configured nothing needs MongoDB: not even its driver is imported."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.scheduler_processes import ROOT, Site

BLOCKED = 'import sys\nsys.modules["pymongo"] = None  # an import would fail\n'
COMMAND = f"{BLOCKED}from migrator.__main__ import main\nmain()"
CHECKS = f"""{BLOCKED}
import json
from migrator.config import PostgresSettings, Settings
from migrator.verify.check import CheckContext
from migrator.verify.checks import behaviour

context = CheckContext(Settings(postgres=PostgresSettings(dsn=sys.argv[1])))
areas = ("crud", "execution", "isolation", "transitions", "triggers", "workers")
asked = [spec for spec in behaviour.CHECKS if spec.id.partition(".")[0] in areas]
found = {{spec.id: spec.run(context) for spec in asked if spec.id != "crud.lockstep"}}
print(json.dumps({{name: [one.outcome.status, one.counts.get("expectations", 0)] for name, one in found.items()}}))
"""


@pytest.fixture
def site(tmp_path: Path, scheduler_dsn: str) -> Iterator[Site]:
    made = Site(tmp_path, "postgres", f'[postgres]\ndsn = "{scheduler_dsn}"')
    yield made
    made.close()


def program(text: str, *arguments: str) -> str:
    command = [sys.executable, "-c", text, *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


@pytest.mark.proves("1-D2", "1-T2")
def test_a_scheduler_process_fires_claims_and_finishes_runs(site: Site) -> None:
    once = site.put("note", {"kind": "one_time", "run_at": site.store.now()})
    program(COMMAND, "scheduler", "run", "--until-idle", "--config", str(site.configured()))
    assert site.states(once) == ["completed"]


@pytest.mark.slow
@pytest.mark.proves("1-T2")
def test_every_behaviour_of_the_scheduler_is_as_expected(new_scheduler_dsn: Callable[[], str]) -> None:
    found = json.loads(program(CHECKS, new_scheduler_dsn()))
    assert len(found) >= 15
    assert {status for status, _ in found.values()} == {"passed"}
    assert all(expectations > 0 for _, expectations in found.values()), found
