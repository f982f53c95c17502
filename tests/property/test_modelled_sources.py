"""The sources that are mapping files alone: documents come back, however they are changed, or are quarantined."""

from datetime import UTC
from typing import Any

import bson
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from migrator.pipeline.transform import decode_document, rebuild
from migrator.records import Trigger
from migrator.sources import load_profile
from migrator.sources.profile import Context, Rejected, Skipped
from migrator.values import document as documents
from migrator.values import remainder
from migrator.values.canonical import same
from tests.modelled_documents import MODELLED, NOON, Document
from tests.property.test_mapping import assert_storable, likely
from tests.strategies_bson import keys, made, values

CONTEXT = Context(as_of=NOON.replace(tzinfo=UTC), default_tenant="house")
PROFILES = {source: load_profile(source).by_name() for source in MODELLED}
CASES = [(source, name, document) for source, held in MODELLED.items() for name in held for document in held[name]]


def outcome(source: str, name: str, raw: bytes) -> tuple[Rejected | None, tuple[Any, ...], Document, set[str]]:
    """Return why a document is quarantined, or its rows, the document that they give back, and its remainder."""
    collection = PROFILES[source][name]
    try:
        decoded = decode_document(collection, CONTEXT, raw)
        decoded.serialize()
    except Rejected as reason:
        return reason, (), {}, set()
    except Skipped:
        return None, (), {}, set()
    rows = tuple(row.record for row in decoded.serialized)
    return None, rows, rebuild(collection, rows), {entry.field for entry in remainder.entries(decoded.remainder)}


@st.composite
def changed(draw: st.DrawFn) -> tuple[str, str, Document]:
    """Draw a document of one of the sources with some of its fields dropped, nulled, replaced or added."""
    source, name, base = draw(st.sampled_from(CASES))
    document = dict(base)
    for _ in range(draw(st.integers(0, 4))):
        field = draw(st.sampled_from(sorted(document)))
        action = draw(st.sampled_from(["drop", "likely", "likely", "any", "add", "inner"]))
        if action == "drop" and field != "_id":
            document.pop(field)
        elif action == "inner" and isinstance(document[field], dict) and document[field]:
            inner = draw(st.sampled_from(sorted(document[field])))
            document[field] = document[field] | {inner: draw(likely)}
        elif action == "likely" and field != "_id":
            document[field] = draw(likely)
        else:
            document[field if action == "any" else draw(keys())] = draw(values())
    return source, name, made(document)


@settings(deadline=None, max_examples=80, suppress_health_check=[HealthCheck.too_slow])
@given(changed())
def test_a_changed_document_is_quarantined_or_comes_back(case: tuple[str, str, Document]) -> None:
    source, name, document = case
    raw = bson.encode(document)
    rejected, rows, rebuilt, _ = outcome(source, name, raw)
    if rejected is not None:
        assume(rejected.reason not in ("not-round-trip", "undecodable"))
        assert rejected.expected
    elif rows:
        assert same(rebuilt, documents.decode(raw))
        assert_storable(rows)


REMAINDER = {
    ("shedlock", "shedLock"): set(),
    ("quartz", "quartz_jobs"): {"keyGroup", "durability", "requestsRecovery", "jobData"},
    ("quartz", "quartz_schedulers"): {"schedulerName", "checkinInterval"},
    ("hangfire", "hangfire.server"): set(),
    ("hangfire", "hangfire.locks"): set(),
    ("jobrunr", "recurring_jobs"): {"version"},
    ("jobrunr", "jobs"): {"version", "jobAsJson", "jobSignature", "recurringJobId"},
}
"""Source and collection to the fields that no column holds, or of which it does not hold the spelling (JSON texts whose
keys stand in another order)."""


@pytest.mark.parametrize(("source", "name"), sorted(REMAINDER))
def test_only_fields_without_a_column_are_in_the_remainder(source: str, name: str) -> None:
    left: set[str] = set()
    for document in MODELLED[source][name]:
        left |= outcome(source, name, bson.encode(document))[3] - {"state"}
    assert left == REMAINDER[source, name]


def test_each_kind_of_trigger_is_written_by_its_own_fields() -> None:
    """None of the fields that make a trigger fire is in the remainder."""
    for document in MODELLED["quartz"]["quartz_triggers"]:
        rejected, rows, _, left = outcome("quartz", "quartz_triggers", bson.encode(document))
        if rejected is None:
            fires_by = {"cronExpression", "timezone", "repeatCount", "repeatInterval", "timesTriggered"}
            expected = {"repeatCount", "repeatInterval"} if rows[0].kind == "one_time" else {"repeatCount"}
            assert left & fires_by <= (set() if rows[0].kind == "cron" else expected)


def test_triggers_of_quartz_and_hangfire_fire_as_they_did() -> None:
    made = []
    for source, name in (("quartz", "quartz_triggers"), ("hangfire", "hangfire.jobGraph")):
        for document in MODELLED[source][name]:
            for row in outcome(source, name, bson.encode(document))[1]:
                if isinstance(row, Trigger):
                    fires = (row.cron_dialect or row.kind, row.timezone, row.interval_ms, row.max_fires, row.enabled)
                    made.append((document.get("keyName") or document["Key"].partition(":")[2], *fires))
    assert made == [
        ("trigger-10", "quartz", "Europe/Vienna", None, None, True),
        ("trigger-11", "quartz", "America/New_York", None, None, False),
        ("trigger-13", "interval", None, 90_000, None, True),
        ("trigger-14", "interval", None, 60_000, 5, True),
        ("trigger-15", "one_time", None, None, None, True),
        ("trigger-17", "quartz", "UTC", None, None, True),
        ("nightly", "cronos", "Europe/Vienna", None, None, True),
        ("windows", "cronos", "Europe/Budapest", None, None, True),
        ("old", "cronos", "Europe/Vienna", None, None, True),
        ("never again", "cronos", "Europe/Vienna", None, None, True),
    ]
