"""Documents that nobody expected: each is copied whole, or quarantined with its reason; none is lost, or told."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from bson.raw_bson import RawBSONDocument
from pymongo.database import Database

from migrator.values import identity
from tests.bad_input.calling import Answer, call
from tests.bad_input.case import DIFFERENT, QUARANTINE, SECRET
from tests.bad_input.documents import DOCUMENTS, LOADED, Row
from tests.conftest import NEWEST, Clusters, fresh_name
from tests.copying import settings_for, write_config


class Copied:
    """All of the documents, copied once."""

    def __init__(self, config: Path, source: Database[Any], dsn: str) -> None:
        self.config, self.source, self.dsn = str(config), source, dsn
        self.done = self.call("backfill")

    def call(self, *arguments: str) -> Answer:
        answer = call([*arguments, "--config", self.config], {})
        text = answer.text
        assert "Traceback" not in text, text
        assert "unforeseen" not in text, text
        assert SECRET not in text, text
        assert [one for one in text if not (one.isprintable() or one == "\n")] == []
        return answer


@pytest.fixture(scope="module")
def copied(mongo_client: Any, clusters: Clusters, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Copied]:  # noqa: ANN401 - a client of documents of any kind
    cluster = clusters.get(NEWEST)
    dsn, source = cluster.scheduler(), mongo_client[fresh_name()]
    for row in DOCUMENTS:
        source[row.collection].insert_one(row.document)
    folder = tmp_path_factory.mktemp("documents")
    yield Copied(write_config(folder, settings_for(source, dsn)), source, dsn)
    mongo_client.drop_database(source.name)
    cluster.drop(dsn)


def source_id(row: Row) -> str:
    return identity.source_id(row.wrong if isinstance(row.document, RawBSONDocument) else row.document["_id"])


@pytest.mark.parametrize("row", [pytest.param(one, id=ascii(one.wrong)) for one in DOCUMENTS])
def test_a_document(row: Row, copied: Copied) -> None:
    with psycopg.connect(copied.dsn) as connection:
        loaded = connection.execute(
            f"SELECT count(*) FROM scheduler.{row.collection} WHERE source_id = %s".encode(), (source_id(row),)
        ).fetchone()
        aside = connection.execute(
            "SELECT reason, path FROM migration.quarantine WHERE collection = %s AND source_id = %s",
            (row.collection, source_id(row)),
        ).fetchall()
    if row.reason == LOADED:
        assert (aside, loaded) == ([], (1,))
        return
    assert (aside, loaded) == ([(row.reason, row.path)], (0,))
    if "\0" in source_id(row):
        return  # no argument of a command can hold it
    answer = copied.call("quarantine", "show", row.collection, source_id(row))
    assert answer.status == QUARANTINE, answer.text
    assert f"reason: {row.reason}\n" in answer.out


def test_nothing_is_lost_and_no_output_holds_a_value_or_a_control_character(copied: Copied) -> None:
    quarantined = sum(one.reason != LOADED for one in DOCUMENTS)
    assert copied.done.status == QUARANTINE
    assert f"{quarantined} documents are in quarantine" in copied.done.out
    for command in ("inspect --fields", "plan", "backfill", "quarantine list", "status", "parity", "parity --json"):
        answer = copied.call(*command.split())
        assert answer.status in (0, QUARANTINE), answer.text
    with psycopg.connect(copied.dsn) as connection:
        rows = connection.execute(
            "SELECT (SELECT count(*) FROM scheduler.runs) + (SELECT count(*) FROM scheduler.schedules)"
        ).fetchone()
    assert rows == (len(DOCUMENTS) - quarantined,)
    assert sum(copied.source[name].count_documents({}) for name in ("runs", "schedules")) == len(DOCUMENTS)


def test_a_difference_at_a_hostile_id_is_shown_and_not_obeyed(copied: Copied) -> None:
    with psycopg.connect(copied.dsn, autocommit=True) as connection:
        hostile = "an id\x1b]0;title\x07 with \u202e and\nanother line \x9b31m"
        copied.source["runs"].insert_one({**DOCUMENTS[1].document, "_id": hostile})
        answer = copied.call("parity")
        assert answer.status == DIFFERENT | QUARANTINE, answer.text
        assert "an id\\u001b]0;title\\u0007 with \\u202e and\\u000aanother line \\u009b31m" in answer.out
        copied.source["runs"].delete_one({"_id": hostile})
        connection.execute("SELECT 1")
