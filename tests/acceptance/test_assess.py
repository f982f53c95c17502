"""docs/assess.md, run as it stands: its commands, their output."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pymongo.database import Database

from migrator.config import load_settings
from tests.acceptance.test_readme import is_like, session
from tests.copying import uri_of
from tests.modelled_documents import MODELLED
from tests.real_documents import real_documents

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "assess.md").read_text(encoding="utf-8")
SHOWN = "mongodb://localhost:27017/acme"


@pytest.mark.proves("6-U1")
def test_the_session_of_the_page_is_a_real_one(mongo_database: Database[Any], tmp_path: Path) -> None:
    for name in ("agendaJobs", "agenda_logs"):
        mongo_database[name].insert_many(real_documents(f"agenda-6/{name}"))
    mongo_database["shedLock"].insert_many(MODELLED["shedlock"]["shedLock"])
    mongo_database["invoices"].insert_many([{"_id": number} for number in range(40)])
    real = uri_of(mongo_database).replace("/?", f"/{mongo_database.name}?")
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    (block,) = re.findall(r"^```console\n(.*?)^```$", PAGE, flags=re.MULTILINE | re.DOTALL)
    for command, shown in session(block):
        words = command.replace(SHOWN, f"'{real}'")
        done = subprocess.run(
            ["bash", "-c", words], capture_output=True, text=True, check=False, cwd=tmp_path, env=environment
        )
        assert done.returncode == 0, done.stderr
        output = done.stdout.replace(real, SHOWN).replace(mongo_database.name, "acme")
        assert is_like(shown, output), f"{command}\n{output}"
    assert load_settings(tmp_path / "config.toml", {}).source.profile == "agenda"
    assert json.loads((tmp_path / "assessment.json").read_text())["database"] == mongo_database.name
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert f"What is in {mongo_database.name}" in page
    assert not re.search(r"""(?:src|href)=["'](?!#)""", page)  # no address that a browser would fetch
