"""Every class of corruption on real servers: the checks that the page says turn red do, and no others than it says."""

from collections.abc import Iterator
from contextlib import ExitStack
from datetime import timedelta
from functools import partial
from typing import Any

import msgspec
import psycopg
import pytest
from bson.raw_bson import RawBSONDocument
from psycopg import sql
from pymongo import MongoClient
from pymongo.database import Database

from migrator.config import CopySettings, MongoSettings, PostgresSettings, Settings, SourceSettings
from migrator.errors import RefusedError
from migrator.pipeline.backfill import backfill
from migrator.pipeline.plan import Scope
from migrator.pipeline.sessions import Sessions, SourceSessions
from migrator.result import FAILED
from migrator.schema.revisions import upgrade
from migrator.testing.demo.faults import faulty_documents
from migrator.testing.demo.plan import Counts, Plan
from migrator.testing.demo.seed import COLLECTIONS
from migrator.testing.mutations import MUTATIONS
from migrator.testing.mutations.mutation import Mutation, ScratchCopy
from migrator.testing.servers.mongo import MongoServer
from migrator.testing.servers.postgres import PostgresServer
from migrator.verify.check import CheckContext, CheckResult
from migrator.verify.checks import sensitivity
from migrator.verify.registry import EVERY_CHECK
from migrator.verify.request import Request
from migrator.verify.runner import NOT_ASKED_FOR, verify
from migrator.verify.scratch_databases import PREFIX, ScratchDatabases, remove_leftovers, scratch_databases
from migrator.verify.sensitivity.sample import copy_sample, write_made_documents
from migrator.verify.sensitivity.trials import Trial, prepare, run_trials
from tests.declared_catalogue import declared_once

SEED = 7
DATABASE = "sensed"
COUNTS = Counts(40, 400, 20, 60, 30, 30, 30, 40, 12, 4, 30, 0)
MADE_ONLY = {"an interval doubled"}
"""Classes that the demo's documents hold nothing for: it has no collection of triggers."""
CLASSES = {one.name: one for one in MUTATIONS if one.kind != "behaviour"}


def proven(name: str) -> list[pytest.MarkDecorator]:
    """Return the marks of a class: of the report where it is caught, and of what the checks that catch it compare."""
    shown = {"0-T2.11.6"} if CLASSES[name].caught_by else set[str]()
    shown |= {"0-X1" for check in CLASSES[name].caught_by if check.startswith("parity.")}
    shown |= {"0-T2.11.3"} if name == "a weekday shifted by one" else set()
    return [pytest.mark.proves(*sorted(shown))] if shown else []


@pytest.fixture(scope="module")
def settings(mongo_server: MongoServer, postgres_server: PostgresServer) -> Iterator[Settings]:
    """A little of every collection of the demo, all the planted trouble, and a finished copy of it."""
    with MongoClient[dict[str, Any]](mongo_server.uri) as client, ExitStack() as closing:
        plan = Plan(seed=SEED, counts=COUNTS)
        for name, documents in COLLECTIONS.items():
            raw = list(documents(plan))
            raw += [item.raw for item in faulty_documents(SEED) if item.collection == name]
            if raw:
                client[DATABASE][name].insert_many(map(RawBSONDocument, raw))
        closing.callback(client.drop_database, DATABASE)
        dsn = postgres_server.create_database("sensed")
        closing.callback(postgres_server.drop_database, "sensed")
        upgrade(dsn)
        made = Settings(
            source=SourceSettings(),
            mongo=MongoSettings(uri=mongo_server.uri, database=DATABASE),
            postgres=PostgresSettings(dsn=dsn),
            copy=CopySettings(workers=1),
        )
        assert backfill(made, Scope()).complete
        yield made


@pytest.fixture(scope="module")
def sampled(settings: Settings) -> Iterator[ScratchDatabases]:
    """The scratch place with its sample."""
    sessions = Sessions(settings)
    with scratch_databases(settings) as place:
        assert prepare(place, lambda there: copy_sample(sessions, there.source)) > 200
        sessions.close()
        yield place


@pytest.fixture(scope="module")
def specimens(settings: Settings) -> Iterator[ScratchDatabases]:
    """The scratch place with documents made for the purpose."""
    with scratch_databases(settings) as place:
        prepare(place, write_made_documents)
        yield place


SPECS = tuple(spec for spec in EVERY_CHECK if spec.area != "sensitivity")


@pytest.fixture(scope="module")
def trials(sampled: ScratchDatabases) -> dict[str, Trial]:
    """What became of each class in the sample."""
    classes = [one for one in CLASSES.values() if one.name not in MADE_ONLY]
    with declared_once():
        return {one.name: one for one in run_trials(sampled, classes, SPECS)}


@pytest.mark.parametrize("name", [pytest.param(name, marks=proven(name)) for name in CLASSES if name not in MADE_ONLY])
def test_a_corruption_turns_red_what_the_page_says(name: str, trials: dict[str, Trial]) -> None:
    assert_as_declared(CLASSES[name], trials[name])


def assert_as_declared(declared: Mutation, trial: Trial) -> None:
    assert trial.ending == ("caught" if declared.caught_by else "missed"), trial
    assert {*declared.caught_by} <= {*trial.failed}
    assert {
        check for check in trial.failed if check not in declared.caught_by and not declared.sometimes_when(check)
    } == set()


def test_what_the_sample_lacks_is_shown_on_documents_made_for_it(specimens: ScratchDatabases) -> None:
    (trial,) = run_trials(specimens, [CLASSES[name] for name in MADE_ONLY], SPECS, made=True)
    assert_as_declared(CLASSES[trial.name], trial)
    assert trial.made


@pytest.mark.proves("0-T2.11.6")
def test_faults_of_behaviour_are_caught_in_the_same_way(sampled: ScratchDatabases) -> None:
    """Two of them: faulty parts, and a changed database. ``verify_behaviour/test_mutations.py`` has them all."""
    names = {"a lock is released by who lost it", "numbers of runs begin anew after retention"}
    classes = [one for one in MUTATIONS if one.name in names]
    for declared, trial in zip(classes, run_trials(sampled, classes, SPECS), strict=True):
        assert_as_declared(declared, trial)
        assert trial.kind == "behaviour"


def test_a_red_check_names_what_is_wrong(sampled: ScratchDatabases) -> None:
    """Not only red: one of its findings, or a tally of it, says where."""
    wanted = CLASSES["a weekday shifted by one"]
    with sampled.clone() as clone:
        with psycopg.connect(str(clone.postgres.dsn), autocommit=True) as target:
            wanted.apply(ScratchCopy(clone, target, sampled.source))
            row = target.execute(
                "SELECT source_id FROM scheduler.triggers WHERE cron_expression LIKE '%* * 2%'"
            ).fetchone()
        result = verify(clone, Request(run_name="r", only=("semantics",)))
    (check,) = [one for one in result.evidence.checks if one.outcome.status == "failed"]
    assert row is not None
    assert (check.id, check.findings[0].key, check.findings[0].table) == ("semantics.fires", row[0], "triggers")
    assert check.tallies[0].fix


def test_the_command_reports_the_score_and_the_misses(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    few = [CLASSES["a microsecond"], CLASSES["an interval doubled"], CLASSES["the order of keys changed"]]
    few.append(Mutation(name="nothing at all", kind="data", apply=lambda _place: None, caught_by=("parity.rows",)))
    monkeypatch.setattr(sensitivity, "MUTATIONS", tuple(few))
    monkeypatch.setattr(sensitivity, "measure", partial(sensitivity.measure, classes=few))
    result = verify(settings, Request(run_name="r", only=("sensitivity",), scratch_on_source=True))
    (check,) = result.evidence.checks
    assert check.outcome.status == "failed"
    counts = {name: check.counts[name] for name in ("classes", "caught", "missed")}
    assert counts == {"classes": 4, "caught": 2, "missed": 2}
    assert [one.key for one in check.findings] == ["nothing at all"], "a miss that a note explains is explained"
    assert {one.severity for one in check.tallies} == {"explained", "difference"}
    assert [row[2] for row in check.panels[0].rows] == ["caught", "caught", "missed", "missed"]
    assert nothing_left(settings)


def test_it_is_measured_only_when_asked_for(settings: Settings) -> None:
    result = verify(settings, Request(run_name="r", skip=("parity", "semantics"), no_behaviour=True))
    (area,) = [one for one in result.evidence.areas if one.name == "sensitivity"]
    assert (area.status, area.reason) == ("not-asked-for", NOT_ASKED_FOR)


def nothing_left(settings: Settings) -> bool:
    """Whether only the scratch places of this module's fixtures stand."""
    with psycopg.connect(str(settings.postgres.dsn)) as target, MongoClient[Any](str(settings.mongo.uri)) as client:
        databases = {row[0] for row in target.execute("SELECT datname FROM pg_database")}
        databases |= set(client.list_database_names())
        held = target.execute("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted").fetchone()
    assert held is not None
    runs = {name.removeprefix(PREFIX)[:12] for name in databases if name.startswith(PREFIX)}
    return len(runs) <= int(held[0])


def test_what_a_killed_run_left_is_found_and_removed(settings: Settings) -> None:
    """Databases whose advisory lock nobody holds; those of a living run stay."""
    dead = f"{PREFIX}{'d' * 12}"
    sessions = SourceSessions(settings)
    source: Database[Any] = sessions.source.client[dead]
    source["runs"].insert_one({"_id": 1})
    with psycopg.connect(str(settings.postgres.dsn), autocommit=True) as control:
        for name in (dead, f"{dead}_3", f"{PREFIX}of_somebody_else"):
            control.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        try:
            with scratch_databases(settings) as living:
                databases = {row[0] for row in control.execute("SELECT datname FROM pg_database")}
                assert not {dead, f"{dead}_3"} & databases
                assert dead not in sessions.source.client.list_database_names()
                assert {living.name, f"{PREFIX}of_somebody_else"} <= databases, "what is alive, or not ours, stays"
                assert remove_leftovers(control, living.source) == []
        finally:
            control.execute(sql.SQL("DROP DATABASE {}").format(sql.Identifier(f"{PREFIX}of_somebody_else")))
    sessions.close()


def test_the_scratch_place_goes_also_when_the_work_fails(settings: Settings) -> None:
    names = []

    def fail() -> None:
        with scratch_databases(settings) as place:
            names.append(place.name)
            place.source["runs"].insert_one({"_id": 1})
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    with psycopg.connect(str(settings.postgres.dsn)) as target, MongoClient[Any](str(settings.mongo.uri)) as client:
        databases = {row[0] for row in target.execute("SELECT datname FROM pg_database")}
        assert not any(one.startswith(names[0]) for one in databases | set(client.list_database_names()))


def test_without_the_right_to_make_databases_it_is_unverified(
    settings: Settings, postgres_server: PostgresServer
) -> None:
    with psycopg.connect(postgres_server.dsn(), autocommit=True) as admin:
        admin.execute("CREATE ROLE poor LOGIN PASSWORD 'poor' IN ROLE scheduler_migration")
    try:
        poor = postgres_server.dsn("sensed", user="poor", password="poor")
        meagre = msgspec.structs.replace(settings, postgres=PostgresSettings(dsn=poor))
        with pytest.raises(RefusedError, match="CREATEDB"), scratch_databases(meagre):
            pass
        result = verify(meagre, Request(run_name="r", only=("sensitivity",), scratch_on_source=True))
        assert result.evidence.checks[0].outcome.status == "unverified"
        assert result.evidence.checks[0].outcome.grant == 'ALTER ROLE "poor" CREATEDB'
    finally:
        with psycopg.connect(postgres_server.dsn(), autocommit=True) as admin:
            admin.execute("DROP ROLE poor")


def test_without_the_source_it_is_unverified(settings: Settings) -> None:
    nowhere = MongoSettings(
        uri="mongodb://127.0.0.1:9/?directConnection=true", database=DATABASE, timeout=timedelta(milliseconds=200)
    )
    found = sensitivity.mutations_caught(SPECS, CheckContext(msgspec.structs.replace(settings, mongo=nowhere)))
    assert found.outcome.status == "unverified"


def test_a_sound_copy_that_is_red_already_shows_nothing(sampled: ScratchDatabases) -> None:
    never = msgspec.structs.replace(SPECS[0], run=lambda _context: CheckResult(outcome=FAILED))
    with pytest.raises(RefusedError, match="fails already"):
        run_trials(sampled, [CLASSES["an index is gone"]], [never])
