"""Drafts of a mapping, from documents in mongomock; in the deep run from those of a real server too."""

import tomllib
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pymongo.database import Database

from migrator.config import Settings, SourceSettings
from migrator.errors import ConfigurationError, UsageError
from migrator.pipeline.source_sample import check_source, draft_mapping
from tests.integration.test_mapping import NOON, SECONDS, fill

Document = dict[str, Any]


def test_a_draft_places_fields_by_their_names_and_types(settings: Settings, database: Database[Document]) -> None:
    fill(database)
    text = draft_mapping(settings, ("jobs", "history", "shedlock"), 1_000, "own")
    places = {line.partition("  #")[0] for line in text.splitlines()}
    assert places >= {
        'tables = ["schedules", "triggers"]',
        'org = { as = "tenant" }',
        'cron = { to = "triggers.cron_expression", dialect = "debian", write_null = true }',
        'next = { to = "triggers.next_fire_at", encoding = "seconds" }',
        '"options.timeout" = { to = "schedules.timeout_ms", unit = "seconds", type = "double" }',
        'job = { to = "runs.schedule_id", collection = "jobs" }',
        'queued = { to = "runs.created_at", encoding = "iso" }',
        'ended = { to = "runs.finished_at", encoding = "milliseconds" }',
        'tables = ["locks"]',
        "# more is kept in the remainder (string 1)",
    }
    assert 'lost = "?"' in text, "a word that was not understood is open"
    for private in ("nightly", "of no column", "Europe/Vienna", "host-1"):
        assert private not in text


def test_a_draft_looks_at_the_values_where_names_say_little(settings: Settings, database: Database[Document]) -> None:
    database["plans"].insert_many(
        [
            {"_id": number, "label": f"plan {number}", "st": number % 3, "when": {"every_s": 60, "next": SECONDS}}
            | {"line": "0 0 12 ? * MON"}
            for number in range(9)
        ]
    )
    database["done"].insert_many(
        [
            {"plan": number % 9, "count": number % 9, "how": ("SUCCESS", "TIMED_OUT")[number % 2]}
            | {"times": {"q": SECONDS, "note": "x"}, "tries": [1], "job": f"plan {number}"}
            for number in range(30)
        ]
    )
    text = draft_mapping(settings, ("done",), 1_000, "own", {"plans": "schedules"})
    lines = {line.partition("  #")[0] for line in text.splitlines()}
    assert lines >= {
        "[collections.plans]",
        'st = { to = "schedules.status", words = { 0 = "?", 1 = "?", 2 = "?" }, type = "int" }',
        '"when.every_s" = { to = "triggers.interval_ms", unit = "seconds" }',
        '"when.next" = { to = "triggers.next_fire_at", encoding = "seconds" }',
        'line = { to = "triggers.cron_expression", dialect = "cronos" }',
        'plan = { to = "runs.schedule_id", collection = "plans" }',
        'how = { to = "runs.state", words = { SUCCESS = "completed", TIMED_OUT = "timeout" } }',
        '# "times.q" = { to = "runs.?", encoding = "seconds" }',
        "# count is kept in the remainder (int 30)",
        "# tries is kept in the remainder (array 30); an array makes no rows",
        "# job is kept in the remainder (string 30); no reference: its values are no _id of another collection",
        '_id = { to = "runs.created_at", as = "id-time" }',
        "# no field looks like a tenant: set [source] default_tenant in config.toml",
    }
    database["flowSchedules"].insert_one(
        {"isPaused": True, "tags": ["a"], "due": "2026-11-22 12:00:00", "extra": {"status": "ok"}}
    )
    database["mails"].insert_many(
        [{"state": "NEW", "retryCount": number, "lockedUntil": number % 2 * SECONDS} for number in (0, 1)]
    )
    lines = {
        line.partition("  #")[0] for line in draft_mapping(settings, ("mails", "flowSchedules"), 10, "own").splitlines()
    }
    assert lines >= {
        "[collections.flowSchedules]",
        'tables = ["schedules"]',
        '_id = { to = "schedules.name", as = "id-text" }',
        'tags = { to = "schedules.tags" }',
        "# due is kept in the remainder (string 1); a time without an offset, which no converter reads",
        "# extra is kept in the remainder (object 1)",
        'schedules.status = [{ if = "isPaused", equals = true, value = "paused" }, { value = "scheduled" }]',
        'retryCount = { to = "runs.attempt", add = 1 }',
        'lockedUntil = { to = "runs.lease_expires_at", encoding = "seconds" }',
    }
    second = int(SECONDS)
    database["cronJobs"].insert_one(
        {"title": "mail", "cron": "0 3 * * *", "cron_tz": "Europe/Paris", "max_attempts": 3, "removed_at": NOON}
        | {"last_run_at": second, "payload": '{"a": 1}'}
    )
    database["calls"].insert_many(
        [
            {"run_at": second, "updated_at": NOON, "state": 0, "output": '{"rows":1}'}
            | {"times": {way: NOON}, "disk": 2**40, "at": "2026-11-22 12:00:00" if way == "failed" else None}
            for way in ("succeeded", "failed", "canceled")
        ]
    )
    database["mutexes"].insert_one({"lock_key": "a", "owner": "host-1", "expires_at": second})
    database["books"].insert_many([{"title": "a", "periodicity": word} for word in ("monthly", "manually")])
    text = draft_mapping(settings, ("cronJobs", "calls", "mutexes"), 10, "own", {"books": "schedules"})
    assert {line.partition("  #")[0] for line in text.splitlines()} >= {
        'payload = { to = "schedules.payload", as = "json-text", spaced = true }',
        'output = { to = "runs.result", as = "json-text" }',
        'cron_tz = { to = "triggers.timezone" }',
        'max_attempts = { to = "schedules.max_retries", add = -1, clamp = true }',
        'removed_at = { to = "schedules.deleted_at" }',
        'last_run_at = { to = "triggers.last_fire_at", encoding = "seconds", type = "int" }',
        'run_at = { to = ["runs.created_at","runs.scheduled_at"], encoding = "seconds", type = "int" }',
        'updated_at = { to = "runs.updated_at" }',
        '"times.succeeded" = { to = "runs.finished_at", also = ["times.canceled", "times.failed"] }',
        "# disk is kept in the remainder (long 3)",
        "# at is kept in the remainder (null 2, string 1); a time without an offset, which no converter reads",
        'lock_key = { to = "locks.key" }',
        "# no field says when a schedule fires, so it makes no trigger",
    }
    assert "words of periods: triggers.interval_ms, with words to milliseconds?" in text
    for chosen, message in (({"plans": "schedule"}, "did you mean schedules"), ({"a$b": "runs"}, "collection 'a[$]b'")):
        with pytest.raises(UsageError, match=message):
            draft_mapping(settings, ("done",), 1_000, "own", chosen)


def test_a_draft_is_toml_whatever_the_documents_hold(settings: Settings, database: Database[Document]) -> None:
    odd = ('say "ok"', "a\nb", "\x7f", "\x1b[31m", "= #", "\\", "ü", "\u202e", "", "to", "when")
    name = 'odd "one"\n#x'
    database[name].insert_many(
        [{"_id": word, "status": word, "parent": word} | dict.fromkeys(odd, word) for word in odd]
    )
    database[name].insert_one({"a b": {"c d": [1], 'e"f': {"start": NOON}}, "is paused": True, "cron": "@daily"})
    for chosen in ({name: "runs"}, {name: "schedules"}, {name: "execution_logs"}, {}):
        drafted = tomllib.loads(draft_mapping(settings, (name,), 100, "own", chosen))
        assert drafted["collections"][name]["tables"][:1] == [chosen.get(name, "schedules")]


def test_a_draft_proposes_no_state_that_would_be_executed(
    settings: Settings, database: Database[Document], tmp_path: Path
) -> None:
    """Parse Server's collections, a collection of accounts, and schedules that say nothing of their state."""
    database["_JobSchedule"].insert_one(
        {"_id": "k3", "jobName": "mail", "params": "{}", "startAfter": "2026-11-22T00:00:00.000Z", "lastRun": 0}
        | {"daysOfWeek": ["1"], "timeOfDay": "10:00:00.000Z", "repeatMinutes": 5}
        | {"_created_at": NOON, "_updated_at": NOON}
    )
    database["_JobStatus"].insert_one(
        {"_id": "r1", "jobName": "mail", "status": "succeeded", "message": "sent 5 mails", "source": "api"}
        | {"_created_at": NOON, "finishedAt": NOON}
    )
    database["accounts"].insert_many([{"mail": f"{number}@x", "createdAt": NOON} for number in range(5)])
    database["timers"].insert_one({"name": "a", "cron": "0 3 * * *"})
    database["crons"].insert_one({"name": "a", "cron": "0 3 * * *", "enabled": True})
    names = ("_JobSchedule", "_JobStatus", "accounts", "timers", "crons")
    text = draft_mapping(settings, names, 10, "own")
    drafted = tomllib.loads(text)["collections"]
    assert {name: held["tables"][0] for name, held in drafted.items()} == {
        "_JobSchedule": "schedules",
        "_JobStatus": "runs",
        "accounts": "runs",
        "timers": "schedules",
        "crons": "schedules",
    }
    assert "message" not in drafted["_JobStatus"]["fields"]
    assert "a message: runs.error, if only runs that failed have one" in text
    assert drafted["accounts"]["constants"]["runs"] == {"state": "?"}
    assert drafted["timers"]["constants"]["schedules"] == {"status": "?"}
    assert drafted["crons"]["constants"]["schedules"] == {"status": "scheduled"}, "enabled says which fire"
    path = tmp_path / "own.toml"
    path.write_text(text)
    with pytest.raises(ConfigurationError, match=r'constant runs\.state of accounts: expected .* in place of "\?"'):
        check_source(msgspec.structs.replace(settings, source=SourceSettings(mapping=str(path))), 10, values=False)
