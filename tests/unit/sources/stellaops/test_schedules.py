"""Schedules, their triggers, and what is tolerated in them."""

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import msgspec
import pytest
from bson import Int64

from migrator import states
from migrator.records import Schedule, Trigger
from migrator.sources.profile import Note, Rejected, Skipped
from migrator.sources.stellaops import PROFILE
from migrator.values import jsonb
from tests.stellaops_documents import CONTEXT, fresh, travel

SCHEDULES, TRIGGERS = PROFILE.by_name()["schedules"], PROFILE.by_name()["triggers"]


def test_a_document_with_a_cron_text_is_a_schedule_and_its_trigger() -> None:
    trip = travel("schedules", fresh("schedules"))
    schedule, trigger = trip.rows
    assert isinstance(schedule, Schedule)
    assert isinstance(trigger, Trigger)
    assert schedule.id == UUID("0e5d7c1a9b3f4e6d8c2b1a0f9e8d7c6b")
    assert (schedule.source, schedule.source_id) == ("stellaops/schedules", "sch_0e5d7c1a9b3f4e6d8c2b1a0f9e8d7c6b")
    assert (schedule.status, schedule.mode, schedule.enabled) == ("scheduled", "analysis-only", True)
    assert schedule.subscribers == ("user:anna", "user:ops")
    assert schedule.deleted_at == datetime(2025, 11, 3, 10, 0, 0, 123_000, UTC)
    assert trigger.schedule_id == schedule.id
    assert trigger.id != schedule.id
    assert (trigger.source, trigger.source_id) == (schedule.source, schedule.source_id)
    assert (trigger.kind, trigger.cron_expression, trigger.cron_dialect) == ("cron", "0 2 * * *", "cronos")
    assert (trigger.timezone, trigger.enabled, trigger.next_fire_at) == ("Europe/Berlin", True, None)
    assert jsonb.decode(trigger.source_spec or b"") == {"cronExpression": "0 2 * * *", "timezone": "Europe/Berlin"}


def test_a_disabled_schedule_is_paused_and_so_is_its_trigger() -> None:
    schedule, trigger = travel("schedules", fresh("schedules", enabled=False)).rows
    assert (schedule.enabled, schedule.status, trigger.enabled) == (False, "paused", False)  # type: ignore[attr-defined] # records


@pytest.mark.parametrize("silent", [None, ...])
def test_a_schedule_that_does_not_say_is_enabled(silent: object) -> None:
    trip = travel("schedules", fresh("schedules", enabled=silent))
    assert (trip.row.enabled, trip.row.status, trip.fields) == (True, "scheduled", {"enabled"})


def test_as_our_own_store_reads_a_schedule_is_one_row() -> None:
    trip = travel("schedules", fresh("schedules"), msgspec.structs.replace(CONTEXT, of_store=True))
    assert len(trip.rows) == 1
    assert trip.fields == {"cronExpression", "timezone"}


@pytest.mark.parametrize("line", ["61 * * * *", "every day at noon", "0 2 * *\n*", "0 0 32 * *"])
def test_a_line_that_no_engine_evaluates_makes_no_trigger(line: str) -> None:
    trip = travel("schedules", fresh("schedules", cronExpression=line))
    assert len(trip.rows) == 1
    assert trip.notes == (Note("unevaluable-cron", "cronExpression"),)
    assert trip.fields == {"cronExpression", "timezone"}


def test_an_unknown_zone_makes_no_trigger() -> None:
    trip = travel("schedules", fresh("schedules", timezone="Mars/Olympus_Mons"))
    assert len(trip.rows) == 1
    assert trip.notes == (Note("unknown-zone", "timezone"),)
    assert trip.fields == {"cronExpression", "timezone"}


def test_a_windows_zone_is_mapped() -> None:
    trip = travel("schedules", fresh("schedules", timezone="W. Europe Standard Time"))
    assert trip.rows[1].timezone == "Europe/Berlin"  # type: ignore[attr-defined] # a trigger
    assert trip.notes == (Note("mapped-zone", "timezone"),)
    assert trip.fields == {"timezone"}


def test_the_index_field_name_of_the_cron_text_is_read() -> None:
    made = {("whenCron" if name == "cronExpression" else name): value for name, value in fresh("schedules").items()}
    trip = travel("schedules", made)
    assert trip.rows[1].cron_expression == "0 2 * * *"  # type: ignore[attr-defined] # a trigger
    assert trip.notes == (Note("alias", "whenCron"),)
    assert trip.fields == {"cronExpression", "whenCron"}


def test_of_two_cron_texts_the_models_own_counts() -> None:
    trip = travel("schedules", fresh("schedules", whenCron="5 5 * * *"))
    assert trip.rows[1].cron_expression == "0 2 * * *"  # type: ignore[attr-defined] # a trigger
    assert trip.fields == {"whenCron"}


@pytest.mark.parametrize(("word", "mode"), [("analysisonly", "analysis-only"), ("contentrefresh", "content-refresh")])
def test_modes_that_an_older_tool_wrote_are_aliases(word: str, mode: str) -> None:
    trip = travel("schedules", fresh("schedules", mode=word))
    assert trip.row.mode == mode
    assert trip.notes == (Note("alias", "mode"),)
    assert trip.fields == {"mode"}


def test_the_short_scope_is_an_alias_and_the_jsonb_has_one_spelling() -> None:
    trip = travel("schedules", fresh("schedules", selection__scope="by-repo"))
    assert jsonb.decode(trip.row.selection)["scope"] == "by-repository"
    assert trip.notes == (Note("alias", "selection.scope"),)
    assert trip.fields == {"selection.scope"}


def test_an_unknown_member_stays_in_the_jsonb_and_leaves_no_remainder() -> None:
    trip = travel("schedules", fresh("schedules", selection__cluster={"zone": "a"}, limits__window=[1, "x"]))
    assert trip.remainder == b"{}"
    assert jsonb.decode(trip.row.selection)["cluster"] == {"zone": "a"}
    assert jsonb.decode(trip.row.limits)["window"] == [1, "x"]


def test_an_int64_in_a_jsonb_is_a_number_there_and_a_type_in_the_remainder() -> None:
    trip = travel("schedules", fresh("schedules", limits__maxJobs=Int64(5)))
    assert jsonb.decode(trip.row.limits)["maxJobs"] == 5
    assert trip.fields == {"limits.maxJobs"}


def test_a_tenant_is_taken_from_the_selector_then_from_the_configuration() -> None:
    trip = travel("schedules", fresh("schedules", tenantId=...))
    assert trip.row.tenant_id == "tenant-a"
    assert trip.notes == (Note("tenant-from-selector", "tenantId"),)
    assert trip.fields == {"tenantId"}
    trip = travel("schedules", fresh("schedules", tenantId=" \t", selection__tenantId=...))
    assert trip.row.tenant_id == "fallback"
    assert trip.notes == (Note("tenant-defaulted", "tenantId"),)
    with pytest.raises(Rejected) as caught:
        travel(
            "schedules",
            fresh("schedules", tenantId=..., selection=...),
            msgspec.structs.replace(CONTEXT, default_tenant=None),
        )
    assert (caught.value.reason, caught.value.path) == ("no-tenant", "tenantId")


def test_a_tenant_is_never_trimmed() -> None:
    assert travel("schedules", fresh("schedules", tenantId=" tenant-a ")).row.tenant_id == " tenant-a "


def test_a_rejected_word_is_answered_with_the_words_that_are_known() -> None:
    with pytest.raises(Rejected) as caught:
        travel("schedules", fresh("schedules", notify__minSeverity="huge"))
    assert caught.value.expected == "one of critical, high, info, low, medium, none, unknown"


def test_what_our_own_store_adds_is_carried_clean() -> None:
    own = {
        "description": "d",
        "status": "completed",
        "handlerName": "scan",
        "handlerType": "function",
        "queue": "q",
        "payload": {"a": [1, None]},
        "priority": 75,
        "maxRetries": 3,
        "retryDelayMs": 1000,
        "retryStrategy": "fixed",
        "retryCapMs": 60_000,
        "retryCount": 1,
        "onExhausted": "stop",
        "timeoutMs": 5000,
        "maxConcurrency": 1,
        "tags": ["x"],
        "metadata": {"k": {"deep": True}},
        "pausedAt": datetime(2025, 1, 1),  # noqa: DTZ001 - as BSON gives it
        "cancelledAt": datetime(2025, 1, 2),  # noqa: DTZ001 - as BSON gives it
        "completedAt": datetime(2025, 1, 3),  # noqa: DTZ001 - as BSON gives it
    }
    trip = travel("schedules", {**fresh("schedules", enabled=False), "toolEnabled": True, **own})
    assert trip.remainder == b"{}"
    assert trip.row.enabled
    assert (trip.row.status, trip.row.priority, trip.row.tags) == ("completed", 75, ("x",))
    assert trip.row.paused_at == datetime(2025, 1, 1, tzinfo=UTC)
    assert travel("schedules", fresh("schedules", status="scheduled")).fields == {"status"}


def test_a_schedule_that_its_status_holds_is_not_enabled_for_the_old_application() -> None:
    held = travel("schedules", fresh("schedules", enabled=False) | {"toolEnabled": True})
    assert (held.row.enabled, held.row.status, held.rows[1].enabled) == (True, "paused", True)  # type: ignore[attr-defined] # a trigger
    assert held.remainder == b"{}"
    for word in states.SCHEDULE:
        document = SCHEDULES.encode((msgspec.structs.replace(held.row, status=word), held.rows[1]))
        assert document["enabled"] is (word in {"pending", "scheduled", "running"}), word
        assert travel("schedules", document).row.status == word


@pytest.mark.parametrize("status", ["cancelled", "completed", "failed", "paused"])
def test_a_held_schedule_that_the_old_application_switches_on_fires(status: str) -> None:
    trigger = {"enabled": False, "fireCount": 3}
    made = fresh("schedules", deletedAt=..., deletedBy=...) | {"toolEnabled": True, "status": status}
    trip = travel("schedules", made | {"toolTrigger": trigger})
    assert (trip.row.enabled, trip.row.status, trip.rows[1].enabled) == (True, "scheduled", True)  # type: ignore[attr-defined] # a trigger


def test_what_the_tool_adds_to_a_trigger_is_carried_clean() -> None:
    added = {
        "id": "trg_6b1d3f5a7c9e4b1d8f3a5c7e9b1d3f5a",
        "cronDialect": "debian",
        "fireCount": 3,
        "skipIfOverdue": True,
        "misfirePolicy": "fire_all",
        "misfireGraceMs": 1_000,
        "lastFireAt": datetime(2026, 1, 1),  # noqa: DTZ001 - as BSON gives it
    }
    trip = travel("schedules", fresh("schedules") | {"toolTrigger": added})
    trigger: Any = trip.rows[1]
    assert trip.remainder == b"{}"
    assert trigger.id == UUID("6b1d3f5a7c9e4b1d8f3a5c7e9b1d3f5a")
    assert (trigger.cron_dialect, trigger.fire_count, trigger.misfire_policy) == ("debian", 3, "fire_all")
    assert (trigger.source_spec, trigger.next_fire_at, trigger.enabled) == (None, None, True)
    changed = travel("schedules", fresh("schedules", cronExpression="0 0 13 * 5") | {"toolTrigger": added})
    assert changed.rows[1].cron_dialect == "cronos"  # type: ignore[attr-defined] # in that line the dialects differ
    with pytest.raises(Rejected) as caught:
        travel("schedules", fresh("schedules") | {"toolTrigger": {"fireCount": "3"}})
    assert (caught.value.reason, caught.value.path) == ("wrong-type", "toolTrigger.fireCount")


@pytest.mark.parametrize(
    ("changes", "is_said"),
    [
        ({}, True),
        ({"cron_dialect": "debian"}, True),
        ({"cron_dialect": "debian", "cron_expression": "0 0 13 * 5"}, False),
        ({"cron_dialect": "debian", "cron_expression": "30 2 * * *"}, True),
        ({"max_fires": 3}, False),
        ({"start_at": datetime(2026, 1, 1, tzinfo=UTC)}, False),
        ({"end_at": datetime(2030, 1, 1, tzinfo=UTC)}, False),
        (
            {"kind": "interval", "interval_ms": 1_000, "anchor": "completion", "cron_expression": None},
            False,
        ),
    ],
)
def test_only_a_rule_that_fires_alike_becomes_a_cron_text(changes: dict[str, Any], *, is_said: bool) -> None:
    schedule, trigger = travel("schedules", fresh("schedules")).rows
    document = SCHEDULES.encode((schedule, msgspec.structs.replace(trigger, **changes)))
    assert ("cronExpression" in document) is is_said


def test_our_store_s_own_copy_of_a_rule_is_left_out() -> None:
    schedule, trigger = travel("schedules", fresh("schedules")).rows
    copy = TRIGGERS.encode((msgspec.structs.replace(trigger, source_id=f"trg_{trigger.id.hex}"),))  # type: ignore[attr-defined] # a trigger
    for one in (copy, fresh("triggers") | {"copyOf": "schedules"}):
        with pytest.raises(Skipped, match="copy of a schedule's rule"):
            TRIGGERS.decode(one, CONTEXT)
        assert len(TRIGGERS.decode(one, msgspec.structs.replace(CONTEXT, of_store=True)).rows) == 1
    for one in (copy | {"maxFires": 3}, copy | {"_id": "trg_another"}, copy | {"scheduleId": "sch_another"}):
        assert len(TRIGGERS.decode(one, CONTEXT).rows) == 1
    del schedule
