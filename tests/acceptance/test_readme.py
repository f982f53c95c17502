"""The session in the README, run as it stands in the deep run: its configuration, its commands, their output.

``...`` stands for what is left out, within a line or for whole lines.
"""

import doctest
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pymongo.database import Database

from tests.copying import uri_of
from tests.cron_lines import DEEP

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
SHOWN_URI = "mongodb://localhost:27017/?replicaSet=rs0"
SHOWN_DATABASE = "stellaops_scheduler"
SHOWN_DSN = "postgresql://postgres@localhost/scheduler"


def blocks(kind: str) -> list[str]:
    """Return the fenced blocks of the README of one kind."""
    return re.findall(rf"^```{kind}\n(.*?)^```$", README, flags=re.MULTILINE | re.DOTALL)


def session(text: str) -> list[tuple[str, str]]:
    """Return the commands of a console block with the output shown for each."""
    parts = re.split(r"^\$ (.*)\n", text, flags=re.MULTILINE)
    assert parts[0] == "", "a block begins with a command"
    return list(zip(parts[1::2], parts[2::2], strict=True))


def is_like(shown: str, output: str) -> bool:
    return doctest.OutputChecker().check_output(shown, output, doctest.ELLIPSIS)


if DEEP:  # each day its commands and their output are compared with those of the tutorial (test_tutorial.py)

    @pytest.mark.slow
    def test_the_session_in_the_readme_is_a_real_one(
        mongo_database: Database[Any], postgres_dsn: str, tmp_path: Path
    ) -> None:
        def here(text: str) -> str:
            for shown, real in (
                (SHOWN_URI, uri_of(mongo_database)),
                (SHOWN_DATABASE, mongo_database.name),
                (SHOWN_DSN, postgres_dsn),
            ):
                text = text.replace(shown, real)
            return text

        (configuration,) = blocks("toml")
        assert {SHOWN_URI, SHOWN_DATABASE, SHOWN_DSN} <= set(re.findall(r'"(.*)"', configuration))
        (tmp_path / "config.toml").write_text(here(configuration))
        status = 0
        (block,) = blocks("console")
        steps = session(block)
        assert len(steps) >= 8, "the whole way is shown"
        for command, shown in steps:
            if command == "echo $?":
                assert int(shown) == status
                continue
            program, *words = shlex.split(here(command))
            assert program == "migrator"
            if words[:2] == ["demo", "seed"]:
                words += ["--database", mongo_database.name]  # the README writes into the one that the product uses
            done = subprocess.run(
                [sys.executable, "-m", "migrator", *words], capture_output=True, text=True, check=False, cwd=tmp_path
            )
            status = done.returncode
            assert status in (0, 8), f"{command}: {done.stderr[-2000:]}"
            assert is_like(here(shown), done.stdout), f"{command}\n{done.stdout}"


def test_make_has_the_targets_that_the_readme_names() -> None:
    makefile = (ROOT / "Makefile").read_text()
    named = [target for block in blocks("sh") for target in re.findall(r"^make (\w+)", block, flags=re.MULTILINE)]
    assert named[:2] == ["demo", "test"]
    for target in named:
        assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE)


def test_every_link_within_the_documentation_leads_somewhere() -> None:
    pages = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))]
    links = [
        (page, target) for page in pages for target in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", page.read_text())
    ]
    assert [f"{page.name}: {target}" for page, target in links if not (page.parent / target).exists()] == []
