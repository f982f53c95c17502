"""A rollback keeps what no document can state: in its files, named before anything happens; documents keep their rule.

Each schedule is written by the public client, on Agenda, celerybeat and a mapping file. The documents are read by hand.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import psycopg
import pytest
from psycopg.rows import dict_row

from migrator.config import load_settings
from migrator.connections.postgres import Connection
from migrator.cutover import losses, outbox, reverse_sync
from migrator.cutover.evidence import cutover_result
from migrator.cutover.journal import latest
from migrator.exit_status import DIFFERENT, UNVERIFIED
from migrator.pipeline.extract import MongoCollection
from migrator.pipeline.sessions import open_sessions
from migrator.records import Schedule
from migrator.result import FAILED, PASSED, Run
from migrator.scheduler.client import Scheduler
from migrator.scheduler.models import ScheduleRequest
from migrator.store import open_scheduler_store
from migrator.testing.servers.mongo import MongoServer
from migrator.values import identity
from tests.conftest import fresh_name
from tests.copying import TENANT, run
from tests.cutting_over import ACME, Scene, own_scene, scene
from tests.integration.cutover.test_other_sources import again, changed, documents, keys_of

LINE, ZONE = "30 2 * * *", "Europe/Berlin"
UNSTATED: Final = {"agenda": "debian", "celerybeat": "debian", "acme": "celery"}
"""Source → a dialect in which its documents cannot state that line."""
OFF: Final[dict[str, dict[str, Any]]] = {
    "agenda": {"disabled": True},
    "celerybeat": {"enabled": False},
    "acme": {"active": False},
}
BY_WHOM: Final = ("lastModifiedBy", "date_changed")
"""Fields that say who changed a schedule, and when."""
TENANTS: Final = {"acme": "north"}


@pytest.fixture
def ready(request: pytest.FixtureRequest, auth_server: MongoServer, scheduler_dsn: str) -> Iterator[Scene]:
    with own_scene(auth_server, scheduler_dsn, request.param) as made:
        yield made


def crons(scene: Scene) -> list[dict[str, Any]]:
    """Return the enabled schedules with a cron line whose next fire is far, by name."""
    with psycopg.connect(scene.dsn, row_factory=dict_row) as connection:
        return connection.execute(
            "SELECT s.id, s.source, s.source_id, t.cron_expression FROM scheduler.schedules AS s JOIN"
            " scheduler.triggers AS t ON t.schedule_id = s.id WHERE t.kind = 'cron' AND s.enabled AND t.enabled"
            " AND s.status = 'scheduled' AND t.end_at IS NULL ORDER BY s.name, s.source_id"
        ).fetchall()


def rows(scene: Scene, table: str) -> dict[str, dict[str, Any]]:
    with psycopg.connect(scene.dsn, row_factory=dict_row) as connection:
        found = connection.execute(f"SELECT row_to_json(t) AS row FROM scheduler.{table} AS t".encode()).fetchall()
    return {one["row"]["id"]: one["row"] for one in found}


def called(scene: Scene, *arguments: str) -> str:
    status, out, said = run(*arguments, "--config", str(scene.config))
    assert status == 0, (arguments, status, out, said[-2000:])
    return out


def exported(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """Return the lines of each file of an export, whose digests are those of its manifest."""
    manifest = json.loads((folder / "manifest.json").read_bytes())
    found = {}
    for one in manifest["files"]:
        content = (folder / one["name"]).read_bytes()
        assert hashlib.sha256(content).hexdigest() == one["sha256"]
        found[one["name"]] = [json.loads(line) for line in content.splitlines()]
        assert len(found[one["name"]]) == one["lines"]
    assert {one.name for one in folder.iterdir()} == {*found, "manifest.json"}
    return found


def reschedule_beyond_documents(scene: Scene) -> tuple[list[dict[str, Any]], dict[str, Schedule]]:
    """Change and make schedules by the public client; return two rows that were changed, and those made, by name."""
    dialect = UNSTATED[scene.profile]
    changed_rows = crons(scene)[:2]
    request: dict[str, Any] = {"handler_name": "report", "created_by": "ops"}
    with open_scheduler_store(load_settings(str(scene.config))) as store:
        client = Scheduler(store, TENANTS.get(scene.profile, TENANT))
        for row in changed_rows:
            client.reschedule(row["id"], cron=LINE, timezone=ZONE, dialect=dialect)
        client.pause(changed_rows[1]["id"])
        line: dict[str, Any] = request | {"cron": LINE, "timezone": ZONE, "dialect": dialect}
        made = (
            client.schedule(ScheduleRequest(name="born", **line)),
            client.schedule(ScheduleRequest(name="off", enabled=False, **line)),
            client.on_event("rain", "report", name="heard", by="ops"),
            client.schedule(ScheduleRequest(name="said", interval=timedelta(hours=1), **request)),
        )
    return changed_rows, {job.schedule.name: job.schedule for job in made}


def key_of(scene: Scene, row: Schedule | dict[str, Any]) -> str:
    """Return the ``_id`` of the document that a schedule has, or would have."""
    if isinstance(row, dict):
        return str(identity.parse_source_id(row["source_id"]))
    return str(row.id) if scene.profile == "acme" else keys_of(row)


def lost_by_a_rollback(scene: Scene) -> tuple[str, ...]:
    """Return the rows that a rollback would lose, by the criterion of the cutover's report."""
    report = cutover_result(scene.settings, Run(name="report"), {})
    (found,) = (one for one in report.evidence.checks if one.id == "success.rollback")
    assert (found.outcome == FAILED) == bool(found.findings_total)
    return tuple(words for one in found.findings for words in one.details)


@pytest.mark.proves("4-B1", "6-N1")
@pytest.mark.parametrize("ready", ["agenda", "celerybeat", "acme"], indirect=True)
def test_a_rule_that_no_document_states_is_exported_and_named_and_the_document_keeps_its_own(ready: Scene) -> None:
    ready.switch()
    assert lost_by_a_rollback(ready) == ()
    before = documents(ready)
    (nightly, held), made = reschedule_beyond_documents(ready)
    stored = {"schedules": rows(ready, "schedules"), "triggers": rows(ready, "triggers")}
    line = f"would not fire for a cron line of the dialect {UNSTATED[ready.profile]}"
    assert lost_by_a_rollback(ready), "the criterion says so while it can be helped"
    planned = called(ready, "rollback", "plan")
    assert planned.count(line) == 4
    assert changed(before, documents(ready)) == {}, "a plan writes nothing"
    done = json.loads(called(ready, "rollback", "run", "--yes", "--json"))
    unsaid = {key_of(ready, row) for row in (nightly, held)}
    unsaid |= {key_of(ready, made[name]) for name in ("born", "off", "heard")}
    for key in unsaid:
        assert key in planned
    assert {key for gap in done["gaps"] for key in gap["ids"]} == unsaid
    assert done["unlike"] == []

    found = changed(before, documents(ready))
    for row in (nightly, held):
        fields = found.pop(key_in(row)) or {}
        assert {name: value for name, value in fields.items() if name not in BY_WHOM} == OFF[ready.profile] | (
            {"state": "off"} if row is held and ready.profile == "acme" else {}
        )
    assert {key[1] for key in found} == {key_of(ready, made["said"])}, "no half document was made"
    for row in (nightly, held):
        assert len(documents(ready)[key_in(row)]) >= len(before[key_in(row)]), "nothing is stripped"

    files = exported(Path(done["folder"]))
    manifest = (Path(done["folder"]) / "manifest.json").read_bytes()
    assert hashlib.sha256(manifest).hexdigest() == done["digest"]
    of = {line["schedule"]["id"]: line for line in files["schedules.jsonl"]}
    assert of.keys() == {
        str(one) for one in (nightly["id"], held["id"], *(made[n].id for n in ("born", "off", "heard")))
    }
    for schedule_id, exported_line in of.items():
        assert exported_line["schedule"] == stored["schedules"][schedule_id]
        triggers = [row for row in stored["triggers"].values() if row["schedule_id"] == schedule_id]
        assert exported_line["triggers"] == triggers
        assert exported_line["document"] == (
            "disabled" if schedule_id in map(str, (nightly["id"], held["id"])) else "absent"
        )
    assert_nothing_was_taken(ready, stored, files, {str(row.id): key_of(ready, row) for row in made.values()})
    with psycopg.connect(ready.dsn) as connection:
        note = connection.execute("SELECT detail -> 'rollback_export' FROM migration.cutovers").fetchone()
    assert note is not None
    assert (note[0]["folder"], note[0]["digest"]) == (done["folder"], done["digest"])
    report = cutover_result(ready.settings, Run(name="report"), {})
    assert report.evidence.cutover
    assert (report.evidence.cutover.export, report.evidence.cutover.export_digest) == (done["folder"], done["digest"])
    (fires,) = (one for one in report.evidence.checks if one.id == "success.fires")
    assert (fires.outcome, fires.findings_total) == (PASSED, 0)
    assert fires.counts["schedules"]
    again(ready)


def key_in(row: dict[str, Any]) -> tuple[str, Any]:
    return row["source"].rpartition("/")[2], str(identity.parse_source_id(row["source_id"]))


FOLLOWS: Final = frozenset({"updated_at", "id", "source", "source_id", "source_spec", "schedule_id", "priority"})
"""Columns that follow from the document, or from others."""


def assert_nothing_was_taken(
    scene: Scene, stored: dict[str, dict[str, Any]], files: dict[str, Any], keys: dict[str, str]
) -> None:
    """Each row of before is in the files as it was, or a stored row holds all that it held.

    ``keys``: id of a schedule that was made → ``_id`` of its document.
    """
    for table, before in stored.items():
        now = rows(scene, table)
        of_document = {str(identity.parse_source_id(row["source_id"])): row for row in now.values()}
        saved = {line["row"]["id"]: line["row"] for line in files.get(f"lost.{table}.jsonl", ())}
        for row_id, row in before.items():
            if row_id in saved:
                assert saved[row_id] == row
                continue
            kept = now.get(row_id) or of_document[keys[row.get("schedule_id", row_id)]]
            empty = {name for name, value in row.items() if value is None or value == []}
            assert {name for name in row if row[name] != kept[name]} <= FOLLOWS | empty


@pytest.mark.parametrize("ready", ["celerybeat"], indirect=True)
def test_level_two_keeps_what_level_one_has_exported(ready: Scene) -> None:
    """The rows of the removed schema are in another folder: they are exported when documents have replaced rows."""
    ready.switch()
    (nightly, _), made = reschedule_beyond_documents(ready)
    done = json.loads(called(ready, "rollback", "run", "--level", "2", "--yes", "--json"))
    of = {line["schedule"]["id"] for line in exported(Path(done["folder"]))["schedules.jsonl"]}
    assert {str(nightly["id"]), str(made["born"].id)} <= of
    assert len(exported(Path(done["tables"]))["scheduler.schedules.jsonl"]) == done["lost"]["scheduler.schedules"]


@pytest.mark.parametrize("ready", ["acme"], indirect=True)
def test_what_fires_otherwise_without_having_been_named_fails_the_rollback_that_is_finished(ready: Scene) -> None:
    """Somebody whom the fence does not stop changes a document, so that it fires by another line."""
    ready.switch()
    (changed_job, removed_job) = crons(ready)[:2]
    for row, change in ((changed_job, {"$set": {"cron": "1 1 * * *"}}), (removed_job, {"$set": {"active": False}})):
        key = identity.parse_source_id(row["source_id"])
        assert ready.database["jobs"].update_one({"_id": key}, change).modified_count == 1
    status, out, said = run("rollback", "run", "--yes", "--json", "--config", str(ready.config))
    assert status == DIFFERENT, (out, said[-2000:])
    done = json.loads(out)
    assert {one["words"]: one["ids"] for one in done["unlike"]} == {
        "fire by their documents at other times than in PostgreSQL": [key_of(ready, changed_job)],
        "fired in PostgreSQL, and do not fire by their documents": [key_of(ready, removed_job)],
    }
    report = cutover_result(ready.settings, Run(name="report"), {})
    (fires,) = (one for one in report.evidence.checks if one.id == "success.fires")
    assert (fires.outcome, fires.findings_total) == (FAILED, 2)
    assert report.evidence.cutover
    assert report.evidence.cutover.state == "rolled-back"
    assert len(report.evidence.cutover.unlike) == 2


@pytest.mark.parametrize("ready", ["acme"], indirect=True)
def test_rows_that_nothing_carries_are_told_while_the_window_is_open(ready: Scene) -> None:
    """Such as rows that are older than the outbox: a rollback would be refused."""
    ready.switch()
    with psycopg.connect(ready.dsn) as connection:
        connection.execute("ALTER TABLE scheduler.schedules DISABLE TRIGGER migrator_outbox")
        connection.execute(
            "INSERT INTO scheduler.schedules (id, tenant_id, name, handler_name, status) VALUES"
            " (gen_random_uuid(), 'north', 'older', 'report', 'completed')"
        )
        connection.execute("ALTER TABLE scheduler.schedules ENABLE TRIGGER migrator_outbox")
    (words,) = lost_by_a_rollback(ready)
    assert words.startswith("1 documents are not equal to their rows: jobs ")
    status, out, said = run("rollback", "plan", "--config", str(ready.config))
    assert status == UNVERIFIED, said
    assert f"NO  written back: {words}" in out


@pytest.mark.parametrize("ready", ["acme"], indirect=True)
def test_documents_are_compared_in_batches_and_each_that_differs_is_counted_once(
    ready: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seven that are not there, one that was changed in MongoDB, and the others, whose rows say that they changed."""
    ready.switch()
    key = identity.parse_source_id(crons(ready)[0]["source_id"])
    assert ready.database["jobs"].update_one({"_id": key}, {"$set": {"active": False}}).modified_count == 1
    with psycopg.connect(ready.dsn) as connection:
        connection.execute("ALTER TABLE scheduler.schedules DISABLE TRIGGER migrator_outbox")
        connection.execute("UPDATE scheduler.schedules SET updated_at = now() WHERE source IS NOT NULL")
        connection.execute(
            "INSERT INTO scheduler.schedules (id, tenant_id, name, handler_name, status) SELECT gen_random_uuid(),"
            " 'north', 'older ' || number, 'report', 'completed' FROM generate_series(1, 7) AS number"
        )
        connection.execute("ALTER TABLE scheduler.schedules ENABLE TRIGGER migrator_outbox")
    asked: list[int] = []
    by_ids = MongoCollection.by_ids

    def counted(collection: MongoCollection, ids: Iterable[str]) -> Iterator[bytes]:
        asked.append(len(list(ids)))
        return by_ids(collection, ids)

    monkeypatch.setattr(reverse_sync, "BATCH_NOTES", 3)
    monkeypatch.setattr(losses, "_MAX_BATCHES", 2)
    monkeypatch.setattr(MongoCollection, "by_ids", counted)
    with open_sessions(ready.settings) as sessions:
        began_at = latest(sessions.target).began_at  # type: ignore[union-attr] # it was cut over
        found = losses.survey(sessions, began_at)
    assert (found.unwritten_total, len(found.unwritten)) == (8, 5)
    assert losses.unequal(found).startswith("8 documents are not equal to their rows: jobs ")
    assert losses.unequal(found).endswith(", …")
    assert max(asked) <= 3
    assert found.documents > 8


@pytest.mark.parametrize("ready", ["acme"], indirect=True)
def test_a_row_that_is_written_before_each_look_is_no_difference(ready: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """The application writes on after the outbox was read, and the reverse sync has carried what it wrote before."""
    ready.switch()
    key = crons(ready)[0]["id"]
    waiting, written = outbox.waiting, 0

    def then_written(connection: Connection, size: int) -> Iterator[list[outbox.ChangedRow]]:
        nonlocal written
        execute("DELETE FROM migration.outbox")
        yield from waiting(connection, size)
        execute("UPDATE scheduler.schedules SET name = name || '+', updated_at = now() WHERE id = %s", key)
        written += 1

    def execute(statement: str, *parameters: object) -> None:
        with psycopg.connect(ready.dsn) as connection:
            connection.execute(statement.encode(), parameters)

    monkeypatch.setattr(outbox, "waiting", then_written)
    with open_sessions(ready.settings) as sessions:
        began_at = latest(sessions.target).began_at  # type: ignore[union-attr] # it was cut over
        assert losses.survey(sessions, began_at).unwritten == ()
        assert written == 2
        monkeypatch.undo()
        execute("DELETE FROM migration.outbox")
        assert losses.survey(sessions, began_at).unwritten_total == 1, "nobody writes, and nothing waits"


def test_a_source_without_a_field_of_its_own_for_disabled_pauses(
    auth_server: MongoServer, scheduler_dsn: str, tmp_path: Path
) -> None:
    """No field holds ``schedules.enabled``, so the word for a paused schedule stops the document."""
    mapping = tmp_path / "stateful.toml"
    field = 'active = { to = ["schedules.enabled", "triggers.enabled"] }\n'
    text = ACME.read_text(encoding="utf-8")
    assert field in text
    mapping.write_text(text.replace(field, "").replace('name = "acme"', 'name = "stateful"'), encoding="utf-8")
    with scene(auth_server, fresh_name(), scheduler_dsn, tmp_path, "stateful", profile=str(mapping)) as made:
        made.ready()
        made.switch()
        before = documents(made)
        (nightly,) = crons(made)[:1]
        with open_scheduler_store(load_settings(str(made.config))) as store:
            Scheduler(store, "north").reschedule(nightly["id"], cron=LINE, timezone=ZONE, dialect="celery")
        done = json.loads(called(made, "rollback", "run", "--yes", "--json"))
        assert changed(before, documents(made)) == {key_in(nightly): {"state": "off"}}
        assert [(len(gap["ids"]), gap["words"].rpartition("; ")[2]) for gap in done["gaps"]] == [
            (1, "its document keeps its former rule, and is disabled")
        ]
        assert done["unlike"] == []
