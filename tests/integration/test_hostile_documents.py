"""Whatever the documents hold, the copy and the parity check agree, and no statistic follows another rule.

Every known field of every collection is given a value of every kind, and documents no driver would write stand beside.
"""

import json
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import bson
import pytest
from bson.objectid import ObjectId
from bson.raw_bson import RawBSONDocument
from click.testing import CliRunner
from pymongo.database import Database

from migrator.cli import cli
from migrator.config import Settings
from migrator.exit_status import QUARANTINE, UNVERIFIED
from migrator.parity.check import check_parity
from migrator.parity.model import ParityOutcome
from migrator.pipeline.backfill import backfill
from migrator.pipeline.plan import Scope
from migrator.pipeline.quarantine import retry
from migrator.pipeline.sessions import close_cached
from migrator.report.areas import AREAS
from migrator.sources.stellaops import PROFILE
from tests.agenda_documents import created_4, every_4, hokify_run, job_6, log_6, pulse_run
from tests.copying import quarantine, settings_for, write_config
from tests.hostile_documents import VALUES, broken, broken_texts, odd_elements, odd_values, unreadable_ids
from tests.stellaops_documents import CANONICAL

BAD = ("failed", "unverified")


def fields_of(collection: str) -> tuple[str, ...]:
    """Return the fields of a collection's documents that stand at their top, but for ``_id``."""
    known = PROFILE.by_name()[collection].known
    return tuple(sorted({path for path in known if "." not in path and "[" not in path} - {"_id"}))


def members_of(collection: str) -> tuple[str, ...]:
    """Return the fields of members that the documented shapes name (``stats.queued``)."""
    known = PROFILE.by_name()[collection].known
    return tuple(sorted(path for path in known if path.count(".") == 1 and "[" not in path and "*" not in path))


def put(database: Database[Any], collection: str, raws: Iterator[bytes]) -> None:
    """Write documents, byte for byte."""
    database[collection].insert_many([RawBSONDocument(raw) for raw in raws])


def assert_without_contradiction(outcome: ParityOutcome, *, columns: bool = True) -> None:
    """Every document is accounted for and equal, and so is every figure."""
    for one in outcome.collections:
        said = (one.differing, one.missing, one.extra, one.unverified, one.balanced)
        assert (one.collection, *said) == (one.collection, 0, 0, 0, "", True), one.findings[:5]
    assert outcome.aggregates
    assert bool(outcome.columns) == columns
    wrong = [
        (one.collection, one.measure, one.differing[:3], one.unverified)
        for one in outcome.both_aggregates
        if one.differing_total or one.unverified
    ]
    assert wrong == []


@pytest.mark.parametrize("collection", CANONICAL)
def test_a_value_of_every_kind_in_every_field(
    collection: str, mongo_database: Database[Any], scheduler_dsn: str
) -> None:
    for each, raws in CANONICAL.items():  # all of them: a trigger without its schedule would be an orphan
        put(mongo_database, each, iter(raws))
    for field in (*fields_of(collection), *members_of(collection)):
        put(mongo_database, collection, odd_values(collection, field))
    put(mongo_database, collection, broken_texts(collection, fields_of(collection)))
    put(mongo_database, collection, odd_elements(collection))
    settings = settings_for(mongo_database, scheduler_dsn)
    done = backfill(settings, Scope())
    close_cached()
    assert done.complete
    aside = Counter(one[2] for one in quarantine(scheduler_dsn))
    stored = mongo_database[collection].count_documents({}) - done.quarantined
    assert stored > 2 * len(fields_of(collection)), (aside, "else the sides agree on little")
    assert aside["duplicate-key"] + aside["duplicate-id"] <= len(VALUES), aside
    assert_without_contradiction(check_parity(settings, Scope()))


AGENDA = {"agendaJobs": (created_4, every_4, hokify_run, job_6), "pulseJobs": (pulse_run,), "agenda_logs": (log_6,)}


def test_a_value_of_every_kind_in_every_field_of_agenda(mongo_database: Database[Any], scheduler_dsn: str) -> None:
    for collection, makers in AGENDA.items():
        for field in (one for make in makers for one in make() if one != "_id"):
            for make in makers:
                made = [make(_id=ObjectId(), **{field: value}) for value in VALUES]
                put(mongo_database, collection, (bson.encode(one) for one in made))
                put(mongo_database, collection, broken(make(_id=ObjectId()), field))
    settings = settings_for(mongo_database, scheduler_dsn, profile="agenda")
    done = backfill(settings, Scope())
    close_cached()
    assert done.complete
    assert done.quarantined > 0
    assert_without_contradiction(check_parity(settings, Scope()), columns=False)


@pytest.mark.parametrize("chunk", [3, 20_000], ids=["many chunks", "one chunk"])
def test_ids_that_no_value_stands_for(chunk: int, mongo_database: Database[Any], scheduler_dsn: str) -> None:
    for collection in CANONICAL:
        put(mongo_database, collection, iter(CANONICAL[collection]))
        put(mongo_database, collection, unreadable_ids(collection))
    settings = settings_for(mongo_database, scheduler_dsn, chunk=chunk)
    done = backfill(settings, Scope())
    close_cached()
    expected = sum(len(list(unreadable_ids(collection))) for collection in CANONICAL)
    assert (done.complete, done.quarantined) == (True, expected)
    assert_without_contradiction(check_parity(settings, Scope()))
    again = retry(settings)
    assert (again.loaded, again.rejected, again.gone) == (0, expected, 0)


@pytest.fixture
def mixed(mongo_database: Database[Any], scheduler_dsn: str) -> Settings:
    """A finished copy of sound documents and of a hundred that are hostile in one way or another."""
    hostile = random.Random(12)
    for collection in CANONICAL:
        put(mongo_database, collection, iter(CANONICAL[collection]))
        bad = [*unreadable_ids(collection), *broken_texts(collection, fields_of(collection)), *odd_elements(collection)]
        bad += [one for field in fields_of(collection) for one in odd_values(collection, field)]
        put(mongo_database, collection, iter(hostile.sample(bad, 8)))
    settings = settings_for(mongo_database, scheduler_dsn)
    done = backfill(settings, Scope())
    close_cached()
    assert done.complete
    assert done.quarantined > 50
    return settings


def test_a_mix_ends_with_quarantine_and_nothing_else(mixed: Settings, tmp_path: Path) -> None:
    config = str(write_config(tmp_path, mixed))
    assert CliRunner().invoke(cli, ["parity", "--config", config]).exit_code == QUARANTINE
    called = CliRunner().invoke(
        cli, ["verify", "--no-behaviour", "--config", config, "--report-dir", str(tmp_path / "reports")]
    )
    (stored,) = (tmp_path / "reports").glob("*/result.json")
    checks = json.loads(stored.read_text())["evidence"]["checks"]
    wrong = {
        check["id"]: (check["outcome"], check["findings"])
        for check in checks
        if check["outcome"]["status"] in BAD and not AREAS[check["area"]].writes
    }
    assert (wrong, called.exit_code) == ({}, QUARANTINE | UNVERIFIED)
