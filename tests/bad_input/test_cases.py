"""A stranger's list of bad inputs: no traceback, no secret, no silence, nothing written, nothing lost."""

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from pymongo import MongoClient

from migrator.testing.servers.mongo import MongoServer
from tests.bad_input.calling import Answer, call, configuration, filled, judge
from tests.bad_input.case import QUARANTINE, SECRET, Case
from tests.bad_input.command_line import COMMAND_LINE
from tests.bad_input.configuration import CONFIGURATION
from tests.bad_input.files import FILES
from tests.bad_input.mappings import MAPPINGS
from tests.bad_input.places import Places
from tests.bad_input.servers import MONGODB, POSTGRESQL
from tests.conftest import NEWEST, Clusters

LISTS = {
    "configuration": CONFIGURATION,
    "command line": COMMAND_LINE,
    "MongoDB": MONGODB,
    "PostgreSQL": POSTGRESQL,
    "files": FILES,
    "mappings": MAPPINGS,
}
ROWS = [pytest.param(one, id=f"{where}: {one.wrong}") for where, rows in LISTS.items() for one in rows]


@pytest.fixture(scope="module")
def places(mongo_server: MongoServer, mongo_client: MongoClient[Any], clusters: Clusters) -> Iterator[Places]:
    cluster = clusters.get(NEWEST)
    made: list[str] = []

    def lent(dsn: str) -> str:
        made.append(dsn)
        return dsn

    with ExitStack() as stack:
        stack.callback(lambda: list(map(cluster.server.drop_database, (one.rpartition("/")[2] for one in made))))
        yield Places(
            mongo_server, mongo_client, lambda: lent(cluster.scheduler()), lambda: lent(cluster.empty()), stack
        )


@pytest.fixture(scope="module")
def prepared(places: Places, tmp_path_factory: pytest.TempPathFactory) -> Places:
    """The good pair, copied once."""
    folder = tmp_path_factory.mktemp("prepared")
    file = folder / "config.toml"
    good = Case("nothing", ("backfill",), QUARANTINE, ("in quarantine",))
    file.write_text(configuration(good, lambda text: filled(text, places, folder)))
    file.chmod(0o600)
    judge(call(["backfill", "--config", str(file)], {}), good, str)
    return places


@pytest.mark.parametrize("case", ROWS)
def test_a_bad_input(case: Case, prepared: Places, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fill(text: str) -> str:
        for name in case.places:
            text = text.replace(f"{{{name}}}", getattr(prepared, name))
        return filled(text, prepared, tmp_path)

    for name, content in case.files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
        (tmp_path / name).chmod(0o600)
    for name in case.pipes:
        os.mkfifo(tmp_path / name)
    for name, target in case.links.items():
        (tmp_path / name).symlink_to(target)
    (tmp_path / "config.toml").write_text(configuration(case, fill))
    (tmp_path / "config.toml").chmod(0o600)
    monkeypatch.chdir(tmp_path)
    before = prepared.counts(), contents(tmp_path)
    answer = call([fill(one) for one in case.arguments], case.environment)
    judge(answer, case, fill)
    after = contents(tmp_path)
    assert {name: after.pop(name, None) is not None for name in case.writes} == dict.fromkeys(case.writes, True)
    assert (prepared.counts(), after) == before


def contents(folder: Path) -> dict[str, bytes]:
    files = [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


@pytest.mark.parametrize(
    "planted",
    [
        Answer(2, b"", f"migrator: unknown thing {SECRET}\n".encode()),
        Answer(2, b"", b"Traceback (most recent call last)\nmigrator: unknown thing\n"),
        Answer(2, b"", b"migrator: unforeseen KeyError: unknown thing\n"),
        Answer(2, b"unknown thing\x1b[31m\n", b"migrator: x\n"),
        Answer(2, b"unknown thing\n", "migrator: \u202e\n".encode()),
        Answer(0, b"unknown thing\n", b""),
        Answer(2, b"unknown thing\n", b""),
        Answer(2, b"", b"migrator: another thing\n"),
        Answer(2, b"", b"migrator: Unknown thing\n"),
        Answer(2, b"", b"migrator: unknown thing.\n"),
    ],
)
def test_the_judge_sees_what_is_planted(planted: Answer) -> None:
    expected = Case("planted", ("status",), 2, ("unknown thing",))
    judge(Answer(2, b"", b"migrator: unknown thing\n"), expected, str)
    with pytest.raises(AssertionError):
        judge(planted, expected, str)


def test_the_list_is_long_and_no_case_is_there_twice() -> None:
    rows = [one for some in LISTS.values() for one in some]
    assert len({(where, one.wrong) for where, some in LISTS.items() for one in some}) == len(rows)
    assert len(rows) >= 200
