"""What of a schedule the documents of a source cannot state: every kind of trigger, by source."""

from datetime import UTC, datetime
from typing import Any, Final
from uuid import UUID

import msgspec
import pytest

from migrator.config import SourceSettings
from migrator.records import Schedule, Trigger
from migrator.sources import context_of, described_profile, write_back
from migrator.sources.profile import Context, Profile
from tests.cutting_over import ACME

NOW: Final = datetime(2026, 11, 23, 12, tzinfo=UTC)
LATER: Final = datetime(2026, 12, 1, tzinfo=UTC)
SCHEDULE: Final = Schedule(
    id=UUID(int=1), tenant_id="house", name="nightly", handler_name="report", status="scheduled", created_at=NOW
)
KINDS: Final[dict[str, dict[str, Any]]] = {
    "utc": {"kind": "cron", "cron_expression": "30 2 * * *", "cron_dialect": "debian", "timezone": "UTC"},
    "berlin": {"kind": "cron", "cron_expression": "30 2 * * *", "cron_dialect": "debian", "timezone": "Europe/Berlin"},
    "interval": {"kind": "interval", "interval_ms": 3_600_000, "anchor": "fixed_rate"},
    "once": {"kind": "one_time", "run_at": LATER},
    "event": {"kind": "event", "event_name": "rain"},
}


def reasons(source: str, kind: str, schedule: Schedule = SCHEDULE, **changes: object) -> tuple[str, ...]:
    profile, context = told(source)
    columns = KINDS[kind] | ({} if kind == "event" else {"next_fire_at": LATER}) | changes
    trigger = Trigger(id=UUID(int=2), tenant_id=schedule.tenant_id, schedule_id=schedule.id, **columns)
    return write_back.unstated(profile, context, schedule, [trigger])


def told(source: str) -> tuple[Profile, Context]:
    profile = described_profile(str(ACME) if source == "acme" else source)
    return profile, context_of(SourceSettings(default_tenant="house", zone="Europe/Berlin"), NOW)


@pytest.mark.parametrize(
    ("source", "stated"),
    [
        ("agenda", {"utc", "interval", "once"}),
        ("celerybeat", {"interval"}),
        ("acme", {"utc", "berlin", "interval"}),
    ],
)
@pytest.mark.parametrize("status", ["scheduled", "paused", "cancelled"])
def test_what_a_source_states_does_not_depend_on_the_state(source: str, stated: set[str], status: str) -> None:
    schedule = msgspec.structs.replace(SCHEDULE, status=status)
    assert {kind for kind in KINDS if not reasons(source, kind, schedule)} == stated


@pytest.mark.parametrize(("source", "dialect"), [("agenda", "agenda"), ("celerybeat", "celery")])
def test_a_reason_names_the_dialect_that_would_do(source: str, dialect: str) -> None:
    (reason,) = reasons(source, "berlin")
    assert reason.endswith(f"; it can in the dialect {dialect}")
    assert reasons(source, "berlin", cron_dialect=dialect) == ()


@pytest.mark.parametrize("source", ["agenda", "celerybeat", "acme", "stellaops"])
def test_what_fires_no_more_and_what_nothing_fires_is_stated(source: str) -> None:
    assert source == "stellaops" or reasons(source, "once", next_fire_at=None) == ()
    profile, context = told(source)
    assert write_back.unstated(profile, context, SCHEDULE, []) == ()


def test_bounds_without_a_field_are_reasons() -> None:
    assert reasons("celerybeat", "interval", end_at=LATER, max_fires=3) == ()
    assert reasons("celerybeat", "interval", start_at=LATER) != (), (
        "beat's start_after is a local time, and needs a zone"
    )
    assert reasons("celerybeat", "interval", start_at=NOW, last_fire_at=NOW) == (), "it has begun"
    assert reasons("agenda", "interval", max_fires=3) == (
        "would fire without its max_fires: its document has no field for it",
    )
    assert reasons("acme", "interval", anchor="completion", end_at=LATER) == (
        "would fire without its anchor: its document has no field for it",
        "would fire without its end_at: its document has no field for it",
    )


def test_a_tenant_that_no_document_names_is_a_reason() -> None:
    other = msgspec.structs.replace(SCHEDULE, tenant_id="elsewhere")
    assert reasons("agenda", "interval", other) == (write_back.NO_TENANT,)
    assert reasons("acme", "interval", other) == ()


def test_values_that_make_no_document_are_a_reason() -> None:
    too_large = msgspec.structs.replace(SCHEDULE, payload=b'"%s"' % (b"x" * write_back.MAX_DOCUMENT_BYTES))
    assert reasons("agenda", "interval", too_large) == (write_back.NO_DOCUMENT,)
    no_date = msgspec.structs.replace(SCHEDULE, metadata=b'{"failedAt":"yesterday"}')
    assert reasons("agenda", "interval", no_date) == (write_back.NO_DOCUMENT,)


def test_a_rule_that_nobody_changed_is_stated_however_it_is_spelled() -> None:
    profile, context = told("celerybeat")
    rule = KINDS["berlin"] | {"cron_expression": "30 02 * * *"}
    held = Trigger(id=UUID(int=2), tenant_id="house", schedule_id=SCHEDULE.id, **rule)
    assert write_back.unstated(profile, context, SCHEDULE, [held]) != ()
    assert write_back.unstated(profile, context, SCHEDULE, [held], (SCHEDULE, held)) == ()
