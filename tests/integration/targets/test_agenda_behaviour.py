"""What Agenda 6 does on MongoDB and on PostgreSQL, by the headings of its own suite, which its package does not have.

``agenda-behaviours.mjs`` lets the library behave, ``agenda-behaviours.json`` says how it should: ``both``, or the two
and the sentence in docs/targets-agenda.md that tells the difference.
"""

import json
import os
import subprocess
from typing import Any, Final

import pytest
from pymongo import MongoClient

from migrator.testing.servers.mongo import MongoServer
from tests.agenda_tables import LIBRARY
from tests.conftest import NEWEST, Clusters, fresh_name
from tests.real_libraries import LOCKS, ROOT, SECONDS, packages

Document = dict[str, Any]

EXPECTED: Final[dict[str, Document]] = json.loads((LOCKS / "agenda-behaviours.json").read_text(encoding="utf-8"))
BACKENDS: Final = ("mongodb", "postgresql")


def observe(request: Document) -> Document:
    done = subprocess.run(
        ["node", str(LOCKS / "agenda-behaviours.mjs"), str(packages(LIBRARY))],
        input=json.dumps(request),
        env={**os.environ, "TZ": "UTC"},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    observed: Document = json.loads(done.stdout)
    return observed


@pytest.fixture(scope="module")
def observed(mongo_server: MongoServer, mongo_client: MongoClient[Document], clusters: Clusters) -> dict[str, Document]:
    cluster = clusters.get(NEWEST)
    dsn, name = cluster.empty(), fresh_name()
    found = {
        "mongodb": observe({"mongodb": {"uri": mongo_server.uri, "database": name}}),
        "postgresql": observe({"postgresql": {"uri": dsn}}),
    }
    cluster.drop(dsn)
    mongo_client.drop_database(name)
    return found


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", EXPECTED)
def test_the_library_behaves_as_is_known(name: str, backend: str, observed: dict[str, Document]) -> None:
    expected = EXPECTED[name]
    assert observed[backend][name] == expected.get("both", expected.get(backend))


def test_every_behaviour_is_expected(observed: dict[str, Document]) -> None:
    for backend in BACKENDS:
        assert observed[backend].keys() == EXPECTED.keys()


@pytest.mark.parametrize("name", [name for name, expected in EXPECTED.items() if "difference" in expected])
def test_the_page_tells_each_difference(name: str) -> None:
    page = " ".join((ROOT / "docs" / "targets-agenda.md").read_text(encoding="utf-8").split())
    assert EXPECTED[name]["mongodb"] != EXPECTED[name]["postgresql"]
    assert "- " + EXPECTED[name]["difference"] in page
