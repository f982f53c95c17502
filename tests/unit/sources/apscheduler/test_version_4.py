"""Documents of APScheduler 4 in both serializers: they come back, say the same, and are plain data or refused."""

import json
import os
import pickle
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import bson
import pytest
from bson import json_util
from bson.binary import Binary
from bson.code import Code

from migrator import cron
from migrator.pipeline.transform import decode_document, rebuild
from migrator.records import EMPTY
from migrator.sources.apscheduler4 import PROFILE
from migrator.sources.profile import Decoded, Document, Note, Rejected
from migrator.values import document as documents
from migrator.values import jsonb
from migrator.values.canonical import same
from tests.agenda_documents import CONTEXT, FOLDER

SERIALIZERS = ("json", "pickle")
FINDINGS = {
    "and": ["unevaluable-trigger"],
    "calendar": ["unevaluable-trigger"],
    "interval-micros": ["unusable-interval"],
    "options": ["jitter-dropped"],
}


def documents_of(serializer: str) -> list[tuple[str, Document]]:
    """Return collection and document of each line of a file."""
    options = json_util.JSONOptions(json_mode=json_util.JSONMode.CANONICAL, tz_aware=False)
    text = (FOLDER / "apscheduler" / f"4.0.0a6-{serializer}.jsonl").read_text(encoding="utf-8")
    found = [json.loads(line) for line in text.splitlines()]
    return [
        (name, documents.decode(bson.encode(json_util.loads(json.dumps(one), json_options=options))))
        for name, one in found
    ]


def schedule(key: str, serializer: str = "json") -> Document:
    return next(one for name, one in documents_of(serializer) if name == "schedules" and one["_id"] == key)


def travel(name: str, document: Document) -> tuple[Any, Any, tuple[Note, ...], bool]:
    """Decode and encode a document as the copy does; return both rows, findings, and whether it is clean."""
    kind = PROFILE.by_name()[name]
    prepared = decode_document(kind, CONTEXT, bson.encode(document))
    prepared.serialize()
    rows, left = tuple(row.record for row in prepared.serialized), prepared.remainder
    assert same(rebuild(kind, rows), prepared.content)
    paths = {path.lstrip("+") for path in json.loads(left)}
    clean = left == EMPTY or paths <= kind.reference_paths
    return rows[0], rows[1] if len(rows) > 1 else None, Decoded(rows, prepared.notes).notes, clean


@pytest.mark.parametrize("serializer", SERIALIZERS)
def test_what_the_library_wrote_comes_back(serializer: str) -> None:
    for name, document in documents_of(serializer):
        _, _, notes, clean = travel(name, document)
        assert clean == (name != "tasks"), document["_id"]
        assert [note.kind for note in notes] == (FINDINGS.get(document["_id"], []) if name == "schedules" else [])


def test_both_serializers_say_the_same() -> None:
    for name, document in documents_of("json"):
        if name != "schedules" or document["_id"] == "cron-crontab":  # which begins when it is made
            continue
        ours, trigger, _, _ = travel(name, document)
        theirs, other, _, _ = travel(name, schedule(document["_id"], "pickle"))
        assert (ours.payload, ours.status) == (theirs.payload, theirs.status)
        for column in ("kind", "cron_expression", "timezone", "interval_ms", "run_at", "start_at", "end_at"):
            assert getattr(trigger, column, None) == getattr(other, column, None), document["_id"]


def test_the_columns_of_a_schedule() -> None:
    ours, trigger, _, _ = travel("schedules", schedule("options"))
    assert (ours.name, ours.handler_name, ours.queue, ours.status) == ("options", "time:sleep", "async", "scheduled")
    assert jsonb.decode(ours.payload) == {"args": [1], "kwargs": {"secs": 2, "when": "noon"}}
    assert (trigger.misfire_policy, trigger.misfire_grace_ms) == ("skip", 45_000)
    assert trigger.next_fire_at == datetime.fromtimestamp(1803967200, UTC)
    assert jsonb.decode(ours.metadata)["document"]["coalesce"] == "earliest"
    paused, trigger, _, _ = travel("schedules", schedule("paused"))
    assert (paused.status, paused.enabled, trigger.enabled) == ("paused", False, False)
    unbounded = schedule("cron") | {"misfire_grace_time": None}
    _, trigger, _, _ = travel("schedules", unbounded | {"coalesce": "all"})
    assert (trigger.misfire_policy, trigger.misfire_grace_ms) == ("fire_all", 0)
    _, trigger, _, _ = travel("schedules", unbounded)
    assert trigger.misfire_policy == "fire_once"


@pytest.mark.parametrize("serializer", SERIALIZERS)
def test_the_states_of_runs(serializer: str) -> None:
    found = documents_of(serializer)
    jobs = [(one, travel(name, one)[0]) for name, one in found if name == "jobs"]
    assert {run.state for one, run in jobs if "acquired_by" in one} == {"running"}
    assert {(run.state, run.worker_id) for one, run in jobs if "acquired_by" not in one} <= {("queued", None)}
    results = {one["outcome"]: travel(name, one)[0] for name, one in found if name == "job_results"}
    assert {outcome: run.state for outcome, run in results.items()} == {
        "success": "completed",
        "error": "error",
        "missed_start_deadline": "skipped",
        "cancelled": "cancelled",
        "abandoned": "error",
    }
    assert jsonb.decode(results["success"].result) == {"rows": 3}
    assert results["missed_start_deadline"].started_at is None


def test_a_result_that_is_not_read_is_kept() -> None:
    document = next(one for name, one in documents_of("json") if name == "job_results" and one["outcome"] == "success")
    run, _, notes, clean = travel("job_results", document | {"return_value": Binary(pickle.dumps(os.system), 0)})
    assert clean
    assert run.result is None
    assert [note.kind for note in notes] == ["unreadable-result"]


MAGIC = '{"_apscheduler_json": ["%s", %s]}'


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"trigger": pickle.dumps(os.system)}, "refused-import at trigger"),
        ({"trigger": b"\x82\x01\x02"}, "bad-pickle at trigger: expected JSON, or a pickle"),
        ({"trigger": b"[" * 100_000}, "bad-pickle at trigger"),
        ({"trigger": b"[" * 200 + b"]" * 200}, "bad-pickle at trigger: expected at most 100 values inside each other"),
        ({"trigger": (MAGIC % ("os:system", '{"a": 1}')).encode()}, "wrong-type at trigger: expected a trigger of APS"),
        ({"trigger": b"{}"}, "wrong-type at trigger: expected a trigger of APScheduler"),
        ({"trigger": "text"}, "wrong-type at trigger: expected binary"),
        ({"args": b"nothing"}, "bad-pickle at args"),
        ({"task_id": None}, "wrong-type at task_id: expected string"),
        ({"misfire_grace_time": "soon"}, "wrong-type at misfire_grace_time"),
    ],
)
def test_what_is_no_schedule_is_quarantined(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(Rejected, match=sentence):
        travel("schedules", schedule("cron") | changes)


def test_an_unknown_outcome_is_quarantined() -> None:
    document = next(one for name, one in documents_of("json") if name == "job_results")
    for outcome in ("odd", Code("success"), Code("success", {}), ["success"], None):
        with pytest.raises(Rejected, match="unknown-value at outcome: expected one of abandoned, cancelled"):
            travel("job_results", document | {"outcome": outcome})


def test_cron_lines_fire_as_in_version_4() -> None:
    """What 4.0.0a6 answered, across changes of the clock; it cannot be installed beside version 3."""
    names = ("year", "month", "day", "week", "day_of_week", "hour", "minute", "second")
    lines = (FOLDER / "apscheduler" / "4.0.0a6-fires.jsonl").read_text(encoding="utf-8").splitlines()
    compared = 0
    for line in map(json.loads, lines):
        text = json.dumps(dict(zip(names, line["fields"], strict=True)))
        for before, after in pairwise(map(datetime.fromisoformat, line["fires"])):
            assert cron.next_fire("apscheduler", text, line["zone"], before) == after, line
            compared += 1
    assert compared > 900
