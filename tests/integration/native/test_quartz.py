"""quartz-mongodb's documents, moved into the tables of Quartz's own JDBC job store."""

import base64
from pathlib import Path
from typing import Any

import psycopg
import pytest
from bson.int64 import Int64
from pymongo.database import Database

from migrator.config import Settings, TargetSettings
from migrator.cutover import gates, library_cutover, library_rollback
from migrator.cutover.gates import GateOptions
from migrator.errors import ConfigurationError, RefusedError
from migrator.parity.check import check_parity
from migrator.parity.repair import apply_repair
from migrator.pipeline.backfill import backfill
from migrator.pipeline.plan import Scope
from migrator.pipeline.quarantine import retry
from migrator.schema import native_target, revisions
from migrator.sources import profile_of
from migrator.targets import load_target
from migrator.values.identity import source_id
from tests.copying import quarantine, settings_for, write_config
from tests.cutting_over import gate
from tests.modelled_documents import NOON, object_id
from tests.quartz_documents import JOB, MAP, NO_MONDAYS, OPTIONS, OTHER, Documents, job, quartz, trigger
from tests.quartz_tables import make, rows
from tests.tailing import caught_up, compared

MILLISECONDS = 1_795_348_800_000
"""Of ``NOON``."""
YEAR = 365 * 86_400_000


def prepared(database: Database[Any], dsn: str, documents: Documents, **options: Any) -> Settings:  # noqa: ANN401 - of the target
    for name, listed in documents.items():
        if listed:
            database[name].insert_many(listed)
    make(dsn)
    target = TargetSettings(name="quartz", options=OPTIONS | options)
    made = settings_for(database, dsn, profile="quartz", target=target)
    revisions.upgrade(dsn, branches=(revisions.TOOL,))
    with psycopg.connect(dsn, autocommit=True) as connection:
        native_target.prepare(connection, load_target("quartz"), made.target)
    return made


@pytest.fixture
def settings(mongo_database: Database[Any], postgres_dsn: str) -> Settings:
    """Documents of every kind, and tables as Quartz makes them."""
    return prepared(mongo_database, postgres_dsn, quartz())


def test_every_document_becomes_rows_and_can_be_rebuilt(settings: Settings, postgres_dsn: str) -> None:
    result = backfill(settings, Scope())
    assert (result.complete, result.quarantined) == (True, 0)
    names = ("job_name", "job_group", "description", "job_class_name", "is_durable", "is_nonconcurrent")
    details = rows(postgres_dsn, "qrtz_job_details", *names, "is_update_data", "requests_recovery", "job_data")
    assert details == [
        ("alone", "odd, group", None, "com.example.Alone", False, True, True, True, None),
        ("report", "DEFAULT", "nightly", "com.example.Report", True, False, False, False, base64.b64decode(MAP)),
    ]
    times = ("next_fire_time", "prev_fire_time", "start_time", "end_time")
    triggers = rows(
        postgres_dsn,
        "qrtz_triggers",
        "trigger_name",
        "trigger_group",
        "job_name",
        "trigger_state",
        "trigger_type",
        *times,
    )
    due = MILLISECONDS + YEAR
    assert [row[2:] for row in triggers] == [
        ("report", "WAITING", "CRON", due, -1, MILLISECONDS, 0),
        ("report", "PAUSED", "CRON", due, -1, MILLISECONDS, 0),
        ("report", "WAITING", "SIMPLE", due, -1, MILLISECONDS, 0),
        ("report", "WAITING", "SIMPLE", due, -1, MILLISECONDS, 0),
        ("alone", "WAITING", "SIMPLE", due, -1, MILLISECONDS, 0),
        ("report", "WAITING", "CAL_INT", due, -1, MILLISECONDS, 0),
        ("report", "WAITING", "DAILY_I", due, -1, MILLISECONDS, 0),
        ("report", "WAITING", "CRON", due, MILLISECONDS, MILLISECONDS, due + 731 * 86_400_000),
        ("report", "ERROR", "SIMPLE", None, MILLISECONDS, MILLISECONDS, 0),
    ]
    simple = ("trigger_name", "repeat_count", "repeat_interval", "times_triggered")
    assert rows(postgres_dsn, "qrtz_simple_triggers", *simple) == [
        ("trigger-12", -1, 90_000, 7), ("trigger-13", 4, 60_000, 1), ("trigger-14", 0, 0, 0), ("trigger-18", 0, 0, 1),
    ]  # fmt: skip
    assert rows(postgres_dsn, "qrtz_cron_triggers", "trigger_name", "cron_expression", "time_zone_id") == [
        ("trigger-10", "0 30 2 ? * 2-6", "Europe/Vienna"),
        ("trigger-11", "0 0 12 L * ?", "America/New_York"),
        ("trigger-17", "0 0 9 ? * MON-FRI", "UTC"),
    ]
    texts = ("str_prop_1", "str_prop_2", "str_prop_3", "int_prop_1", "int_prop_2", "long_prop_1")
    assert rows(postgres_dsn, "qrtz_simprop_triggers", *texts, "bool_prop_1") == [
        ("MINUTE", "2,3,4,5,6", "8,0,0,17,30,0", 90, 0, -1, None),
        ("MONTH", None, None, 3, 2, None, False),
    ]
    assert rows(postgres_dsn, "qrtz_calendars", "sched_name", "calendar_name", "calendar") == [
        ("main", "no mondays", NO_MONDAYS)
    ]
    assert rows(postgres_dsn, "qrtz_paused_trigger_grps", "sched_name", "trigger_group") == [("main", "paused")]
    found = check_parity(settings, Scope())
    assert (found.differs, found.unverified, found.unverified_because) == (False, False, ""), found
    assert backfill(settings, Scope()).written == 0


def test_a_clean_document_has_nothing_in_its_remainder_but_what_has_no_column(
    settings: Settings, postgres_dsn: str
) -> None:
    backfill(settings, Scope())
    with psycopg.connect(postgres_dsn) as connection:
        for table, left in (
            ("qrtz_job_details", set()),
            ("qrtz_triggers", {"fireInstanceId", "finalFireTime", "jobId"}),
            ("qrtz_calendars", set()),
            ("qrtz_paused_trigger_grps", set()),
        ):
            kept = connection.execute(f"SELECT extra::text FROM migration_quartz.{table}_origins").fetchall()
            fields = {
                name for (text,) in kept for name in ("state", *quartz()["quartz_triggers"][0]) if f'"{name}"' in text
            }
            assert fields - {"state"} <= left, (table, kept)


def test_the_tail_follows_and_repair_repairs(
    settings: Settings, mongo_database: Database[Any], postgres_dsn: str
) -> None:
    backfill(settings, Scope())
    triggers, jobs = mongo_database["quartz_triggers"], mongo_database["quartz_jobs"]
    triggers.update_one(
        {"_id": object_id(10)}, {"$set": {"nextFireTime": NOON, "previousFireTime": NOON, "state": "paused"}}
    )
    changed = trigger(12, "Cron", cronExpression="0 0 1 * * ?", timezone="UTC")
    triggers.replace_one({"_id": object_id(12)}, changed)  # the same trigger, rescheduled as one of another type
    triggers.delete_one({"_id": object_id(14)})
    jobs.delete_one({"_id": OTHER})
    jobs.insert_one(job(object_id(2), "new"))
    triggers.insert_one(
        trigger(19, "Simple", repeatCount=0, repeatInterval=Int64(0), timesTriggered=0, jobId=object_id(2))
    )
    caught_up(settings)
    assert compared(settings) == []
    types = dict(rows(postgres_dsn, "qrtz_triggers", "trigger_name", "trigger_type"))
    assert (types["trigger-12"], types["trigger-19"]) == ("CRON", "SIMPLE")
    assert "trigger-14" not in types
    assert [row[0] for row in rows(postgres_dsn, "qrtz_job_details", "job_name", "job_group")] == ["new", "report"]
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        connection.execute("UPDATE qrtz_triggers SET next_fire_time = 1 WHERE trigger_name = 'trigger-10'")
        connection.execute("DELETE FROM qrtz_simple_triggers WHERE trigger_name = 'trigger-13'")
        connection.execute("UPDATE qrtz_job_details SET is_nonconcurrent = true WHERE job_name = 'report'")
    wrong = {(key, side) for _, key, side, _ in compared(settings)}
    assert ({side for _, side in wrong} >= {"row"}, len({key for key, _ in wrong})) == (True, 3), wrong
    apply_repair(settings, Scope(), overwrite=True)
    assert compared(settings) == []
    assert backfill(settings, Scope()).written == 0


CHANGES = {
    "qrtz_job_details": "job_data = '\\x00' WHERE job_name = 'report'",
    "qrtz_triggers": "next_fire_time = 1 WHERE trigger_name = 'trigger-10'",
    "qrtz_cron_triggers": "cron_expression = '0 0 1 * * ?' WHERE trigger_name = 'trigger-11'",
    "qrtz_simple_triggers": "times_triggered = 9 WHERE trigger_name = 'trigger-12'",
    "qrtz_simprop_triggers": "str_prop_1 = 'WEEK' WHERE trigger_name = 'trigger-15'",
    "qrtz_calendars": "calendar = '\\x00'",
}
"""Table → a change of a row, as Quartz writes it when it fires, reschedules or replaces."""


@pytest.mark.proves("6-T8")
def test_rows_that_the_library_changes_are_told_and_nothing_is_cut_over_that_could_not_be_rolled_back(
    settings: Settings, mongo_database: Database[Any], postgres_dsn: str, tmp_path: Path
) -> None:
    """A document of a trigger makes rows of several tables: what Quartz changes in one of them has no way back."""
    backfill(settings, Scope())
    caught_up(settings)
    before = {name: list(mongo_database[name].find().sort("_id")) for name in sorted(quartz())}
    config = write_config(tmp_path, settings)
    for table, change in CHANGES.items():
        with psycopg.connect(postgres_dsn, autocommit=True) as connection:
            assert connection.execute(f"UPDATE {table} SET {change}".encode()).rowcount == 1
        differing = [key for _, key, side, _ in compared(settings) if side == "row"]
        assert len(differing) == 1, (table, differing)
        conditions = GateOptions(config=config)
        passed, words = gate(settings, conditions, "reverse sync")
        assert passed is False
        assert words == (
            "rows of the library cannot be carried back to MongoDB, so a cutover could not be rolled back: "
            "a document of quartz_triggers makes rows of several tables; "
            f"rows of quartz_triggers refer to those of other documents; {gates.WITHOUT_A_CUTOVER}"
        )
        with pytest.raises(RefusedError) as refused:
            library_cutover.run(settings, conditions)
        assert str(refused.value) == f"the cutover is refused: reverse sync: {words}", "no other gate counts then"
        with pytest.raises(RefusedError):
            library_rollback.run(settings)
        assert {name: list(mongo_database[name].find().sort("_id")) for name in before} == before
        apply_repair(settings, Scope(), overwrite=True)
        assert compared(settings) == []


def test_a_key_that_moves_to_another_document_is_followed(
    settings: Settings, mongo_database: Database[Any], postgres_dsn: str
) -> None:
    """What is removed and stored again under the same key, in one batch, is one row."""
    backfill(settings, Scope())
    triggers = mongo_database["quartz_triggers"]
    triggers.delete_one({"_id": object_id(13)})
    triggers.insert_one(trigger(40, "Cron", cronExpression="0 0 1 * * ?", timezone="UTC", keyName="trigger-13"))
    caught_up(settings)
    assert compared(settings) == []
    assert dict(rows(postgres_dsn, "qrtz_triggers", "trigger_name", "trigger_type"))["trigger-13"] == "CRON"


def test_a_job_that_is_renamed_under_its_triggers_is_quarantined_with_them(
    settings: Settings, mongo_database: Database[Any], postgres_dsn: str
) -> None:
    """Quartz itself never renames a job; its tables hold the former name until the triggers are read again."""
    backfill(settings, Scope())
    mongo_database["quartz_jobs"].update_one({"_id": JOB}, {"$set": {"keyName": "renamed"}})
    caught_up(settings)
    reasons = [reason for _, _, reason, _, _ in quarantine(postgres_dsn)]
    assert sorted(reasons) == ["key-in-use", *["orphan"] * 8]
    assert [(name, side) for name, _, side, _ in compared(settings)] == [("quartz_jobs", "ledger")]  # can be loaded now
    assert rows(postgres_dsn, "qrtz_triggers", "job_name", "trigger_name") == [("alone", "trigger-14")]
    assert retry(settings).loaded == 9
    assert compared(settings) == []
    assert {row[0] for row in rows(postgres_dsn, "qrtz_triggers", "job_name", "trigger_name")} == {"alone", "renamed"}


WRONG: list[tuple[str, dict[str, Any], str, str]] = [
    ("too long", {"keyName": "x" * 201}, "too-long", "keyName"),
    ("a class of its own", {"class": "com.example.MoonTrigger"}, "unknown-value", ""),
    ("no class", {"class": None}, "unknown-value", ""),
    ("no line", {"cronExpression": "not a line"}, "unknown-value", "cronExpression"),
    ("an unknown state", {"state": "asleep"}, "unknown-value", "state"),
    ("no start", {"startTime": None}, "missing-field", "startTime"),
    ("a text for a time", {"nextFireTime": "tomorrow"}, "wrong-type", "nextFireTime"),
    ("a number too large", {"misfireInstruction": 40_000}, "out-of-range", "misfireInstruction"),
    ("no job", {"jobId": object_id(99)}, "orphan", "jobId"),
    ("no base64", {"jobData": "***"}, "unknown-value", "jobData"),
    ("no serialized object", {"jobData": "AAAA"}, "unknown-value", "jobData"),
    ("data in plain form", {"jobDataPlain": {"to": "a"}}, "unknown-value", "jobDataPlain"),
    ("the key of another one", {"keyName": "trigger-10"}, "duplicate-key", ""),
]


def test_odd_documents_are_quarantined_alone(mongo_database: Database[Any], postgres_dsn: str) -> None:
    documents = quartz()
    documents["quartz_triggers"] += [
        trigger(100 + number, "Cron", cronExpression="0 0 1 * * ?", timezone="UTC") | wrong
        for number, (_, wrong, _, _) in enumerate(WRONG)
    ]
    documents["quartz_jobs"] += [
        job(object_id(200), "unsaid", "com.example.Unsaid"),
        job(object_id(201), "long", jobDescription="x" * 251),
        job(object_id(202), "spelled", durability="true"),
    ]
    settings = prepared(mongo_database, postgres_dsn, documents)
    assert backfill(settings, Scope()).quarantined == len(WRONG) + 3
    found = {(key, reason, path) for _, key, reason, path, _ in quarantine(postgres_dsn)}
    expected = {(source_id(object_id(100 + number)), reason, path) for number, (_, _, reason, path) in enumerate(WRONG)}
    assert found == expected | {
        (source_id(object_id(200)), "unknown-value", "jobClass"),
        (source_id(object_id(201)), "too-long", "jobDescription"),
        (source_id(object_id(202)), "wrong-type", "durability"),
    }
    assert len(rows(postgres_dsn, "qrtz_triggers", "trigger_name", "trigger_group")) == 9
    assert compared(settings) == []


def test_plain_data_needs_the_setting_of_the_application(mongo_database: Database[Any], postgres_dsn: str) -> None:
    plain = {"to": "ä = b", " key:": " two\nlines\\", "empty": "", "smile": "\U0001f600"}
    documents = {
        "quartz_jobs": [
            job(JOB, "plain", jobDataPlain=plain),
            job(object_id(2), "serialized", jobData=MAP),
            job(object_id(3), "number", jobDataPlain={"n": 1}),
            job(object_id(4), "none"),
        ]
    }
    settings = prepared(mongo_database, postgres_dsn, documents, use_properties=True)
    assert backfill(settings, Scope()).quarantined == 2
    stored = dict(rows(postgres_dsn, "qrtz_job_details", "job_name", "job_data"))
    assert stored == {
        "none": None,
        "plain": b"to=\\u00E4 \\= b\n\\ key\\:=\\ two\\nlines\\\\\nempty=\nsmile=\\uD83D\\uDE00\n",
    }
    assert {(reason, path) for _, _, reason, path, _ in quarantine(postgres_dsn)} == {
        ("unknown-value", "jobData"),
        ("wrong-type", "jobDataPlain.n"),
    }
    assert compared(settings) == []


@pytest.mark.parametrize("left_out", sorted(OPTIONS))
def test_what_no_document_holds_is_asked_for(left_out: str, mongo_database: Database[Any], postgres_dsn: str) -> None:
    said = {name: value for name, value in OPTIONS.items() if name != left_out}
    target = TargetSettings(name="quartz", options=said)
    made = settings_for(mongo_database, postgres_dsn, profile="quartz", target=target)
    with pytest.raises(ConfigurationError, match=f"target.options.{left_out} is not set"):
        profile_of(made.source, made.target)
