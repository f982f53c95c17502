"""The demo's data against the profile: clean documents come back byte for byte, planted ones do what was announced."""

from collections import Counter
from datetime import UTC, datetime

import pytest

from migrator.sources.profile import Context, Rejected, Skipped
from migrator.sources.stellaops import PROFILE
from migrator.testing.demo import COLLECTIONS, Plan, faulty_documents
from migrator.testing.demo.faults import FaultyDocument
from migrator.testing.demo.plan import Counts
from migrator.values import document as values

SEED = 5
CONTEXT = Context(as_of=datetime(2026, 11, 20, tzinfo=UTC))
PLAN = Plan(seed=SEED, counts=Counts(60, 2_000, 60, 150, 200, 150, 150, 80, 30, 12, 200, 60), plain=True)
# What has no column of its own: remainder, also in a document that is spelled as the newest writer spells it.
UNCARRIED = {"determinismHash", "errorCode", "traceId"}
# Decided by what else is stored, so not here.
BY_THE_TARGET = {
    "orphan-schedule",
    "orphan-retry",
    "orphan-run",
    "orphan-job",
    "duplicate-name",
    "duplicate-summary",
    "duplicate-lock",
    "duplicate-policy-run",
    "ids-meet",
}
# Decided when a row is rendered: text columns take no NUL.
BY_RENDERING = {"nul-text"}
PLANTED = [item for item in faulty_documents(SEED) if item.kind not in BY_THE_TARGET | BY_RENDERING]


OF_THE_STORE = {"handlers"}
"""Collections that no StellaOps deployment has: only this tool's own store writes them."""


def test_the_demo_has_every_collection_of_the_profile() -> None:
    assert COLLECTIONS.keys() == PROFILE.by_name().keys() - OF_THE_STORE


@pytest.mark.parametrize("name", [name for name in COLLECTIONS if name != "triggers"])
def test_clean_documents_come_back_byte_for_byte(name: str) -> None:
    collection = PROFILE.by_name()[name]
    seen: Counter[str] = Counter()
    for raw in COLLECTIONS[name](PLAN):
        document = values.decode(raw)
        try:
            decoded = collection.decode(document, CONTEXT)
        except Skipped as skipped:
            seen[skipped.reason] += 1
            continue
        assert decoded.notes == ()
        if UNCARRIED & document.keys():
            seen["uncarried"] += 1
            continue
        assert values.encode(collection.encode(decoded.rows)) == raw
        seen["clean"] += 1
    assert seen["clean"] >= 12
    assert set(seen) <= {"clean", "uncarried", "expired lock"}
    assert seen["expired lock"] == (10 if name == "locks" else 0)


def test_triggers_come_back_byte_for_byte_where_the_source_has_them() -> None:
    collection = PROFILE.by_name()["triggers"]
    context = Context(as_of=CONTEXT.as_of, of_store=True)
    plan = Plan(seed=SEED, counts=PLAN.counts, plain=True, triggers=True)
    documents = list(COLLECTIONS["triggers"](plan))
    assert len(documents) == PLAN.counts.triggers
    for raw in documents:
        decoded = collection.decode(values.decode(raw), context)
        assert values.encode(collection.encode(decoded.rows)) == raw


@pytest.mark.parametrize("number", range(len(PLANTED)), ids=[f"{n}-{item.kind}" for n, item in enumerate(PLANTED)])
def test_planted_trouble_is_what_it_says(number: int) -> None:
    item = PLANTED[number]
    assert what_becomes_of(item) == (item.outcome, item.reason, item.remainder)


def what_becomes_of(item: FaultyDocument) -> tuple[str, str, bool]:
    collection = PROFILE.by_name()[item.collection]
    try:
        document = values.decode(item.raw)
        if values.encode(document) != item.raw:
            return "quarantined", "not-round-trip", False
        decoded = collection.decode(document, CONTEXT)
    except values.Undecodable:
        return "quarantined", "undecodable", False
    except Rejected as rejected:
        return "quarantined", rejected.reason, False
    (reason,) = [note.kind for note in decoded.notes] or [""]
    return "loaded", reason, values.encode(collection.encode(decoded.rows)) != item.raw


def test_every_kind_of_trouble_of_the_issue_is_planted() -> None:
    kinds = {item.kind for item in faulty_documents(SEED)}
    assert kinds >= {
        "orphan-schedule",
        "orphan-retry",
        "unknown-field",
        "date-type",
        "date-zulu",
        "date-offset",
        "date-naive",
        "date-undecodable",
        "seven-digits",
        "duplicate-name",
        "nul-text",
        "nul-json",
        "nan",
        "invalid-utf8",
        "duplicate-key-in-document",
        "id-type",
        "unknown-state",
        "no-tenant",
        "ids-meet",
        "duplicate-summary",
        "alias",
        "cron-unevaluable",
        "zone-windows",
    }
