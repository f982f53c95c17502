"""History: documents that finished long ago are left out and counted, and copied when a wider value is set."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from pymongo.database import Database

from migrator.assessment import AssessmentLimits, assess
from migrator.config import Settings, load_settings
from migrator.errors import RefusedError
from migrator.exit_status import QUARANTINE, USAGE
from migrator.parity.check import check_parity
from migrator.parity.repair import apply_repair
from migrator.pipeline import ledger
from migrator.pipeline import plan as plans
from migrator.pipeline.backfill import backfill
from migrator.pipeline.census import census
from migrator.pipeline.plan import Scope, plan_backfill, plan_context
from migrator.pipeline.quarantine import retry
from migrator.pipeline.sessions import Sessions, open_sessions
from migrator.sources import history
from migrator.testing.mutations import MUTATIONS
from migrator.verify.registry import EVERY_CHECK
from migrator.verify.scratch_databases import scratch_databases
from migrator.verify.sensitivity.sample import copy_sample, write_made_documents
from migrator.verify.sensitivity.trials import prepare, run_trials
from tests.copying import number, quarantine, run, run_of, settings_for, uri_of, write_config
from tests.stellaops_documents import fresh
from tests.tailing import caught_up, compared

Source = Database[Any]
Document = dict[str, Any]

NOW = datetime.now(UTC).replace(microsecond=0)
ENDED = ("completed", "error", "cancelled", "canceled", "timeout", "skipped")
LIVE = ("planning", "queued", "running")


def text(days: float) -> str:
    """Return the time so many days ago, as the documents have it."""
    return (NOW - timedelta(days=days)).isoformat()


def run_ended(key: str, days: float, **changes: Any) -> Document:  # noqa: ANN401 - any BSON value
    return run_of(_id=key, state="completed", finishedAt=text(days)) | changes


def with_history(settings: Settings, value: str) -> Settings:
    return replace(settings, copy=replace(settings.copy, history=value))


def is_old(document: Document, before: datetime) -> bool:
    """Tell by the document alone, without the tool, whether its run ended before an instant."""
    ended = document.get("finishedAt")
    if document.get("state") not in ENDED:
        return False
    if isinstance(ended, str):
        try:
            ended = datetime.fromisoformat(ended)
        except ValueError:
            return False
    return isinstance(ended, datetime) and ended.replace(tzinfo=ended.tzinfo or UTC) < before


def in_this_process(settings: Settings) -> Settings:
    """Return the settings of a copy and a check that are small enough to be done where a fault is planted."""
    return replace(settings, copy=replace(settings.copy, chunk_documents=20_000))


def copied_ids(dsn: str, table: str = "runs") -> set[str]:
    found = number(dsn, f"SELECT coalesce(json_agg(source_id), '[]') FROM scheduler.{table}")
    return set(found)


def cutoff(settings: Settings) -> datetime | None:
    with open_sessions(settings) as sessions:
        plan = ledger.latest_plan(sessions.target)
        assert plan is not None
        return plan_context(plan).history_before


@pytest.fixture
def source(mongo_database: Source) -> Source:
    """Runs of every state, old and young; odd times; references to runs that are old."""
    runs = [
        run_of(_id=f"{state}-{days}", state=state, finishedAt=text(days))
        for state in (*ENDED, *LIVE)
        for days in (400, 45, 31, 29, 1)
    ]
    runs += [
        run_of(_id="no-time", state="completed", finishedAt=None),
        run_of(_id="unreadable", state="completed", finishedAt="long ago"),
        run_of(_id="number", state="completed", finishedAt=17),
        run_of(_id="list", state="completed", finishedAt=[text(400)]),
        run_of(_id="odd-state", state="vanished", finishedAt=text(400)),
        run_of(_id="states", state=["completed"], finishedAt=text(400)),
        run_of(_id="as-date", state="completed", finishedAt=NOW - timedelta(days=45)),
        run_of(_id="offset", state="completed", finishedAt=text(45).replace("+00:00", "-11:00")),
        run_ended("again", 2, retryOf="completed-400"),
    ]
    mongo_database["runs"].insert_many(runs)
    mongo_database["impact_snapshots"].insert_one(fresh("impact_snapshots", _id="i", runId="completed-400"))
    return mongo_database


@pytest.fixture
def settings(source: Source, scheduler_dsn: str) -> Settings:
    return with_history(settings_for(source, scheduler_dsn, chunk=7), "30d")


@pytest.mark.proves("6-U7")
def test_what_finished_before_the_cutoff_is_left_out_and_nothing_else(
    source: Source, settings: Settings, scheduler_dsn: str
) -> None:
    result = backfill(settings, Scope())
    before = cutoff(settings)
    assert before is not None
    assert abs(before - (datetime.now(UTC) - timedelta(days=30))) < timedelta(minutes=5)
    documents = list(source["runs"].find())
    old = {one["_id"] for one in documents if is_old(one, before)}
    aside = {key for name, key, *_ in quarantine(scheduler_dsn) if name == "runs"}
    assert copied_ids(scheduler_dsn) == {one["_id"] for one in documents} - old - aside
    assert aside == {"unreadable", "number", "list", "odd-state", "states"}, "what is odd is not taken for old"
    assert old == {f"{state}-{days}" for state in ENDED for days in (400, 45, 31)} | {"as-date", "offset"}
    assert result.by_collection["runs"].documents == len(documents) - len(old), "the server does not send them"
    assert {f"{state}-400" for state in LIVE} <= copied_ids(scheduler_dsn), "they have not ended"
    assert number(scheduler_dsn, "SELECT count(*) FROM scheduler.runs WHERE retry_of IS NOT NULL") == 0
    assert number(scheduler_dsn, "SELECT count(*) FROM scheduler.impact_snapshots WHERE run_id IS NULL") == 1
    assert result.dangling == 2, "a reference to a run that was left out is counted"


@pytest.mark.proves("6-U1", "6-U7")
def test_an_assessment_says_what_the_copy_then_leaves_out(
    source: Source, scheduler_dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "config.toml"
    status, said, _ = run(
        *(
            "assess",
            uri_of(source),
            "--database",
            source.name,
            "--write-config",
            str(path),
            "--allow-quarantined",
            "all",
        )
    )
    before = datetime.now(UTC) - timedelta(days=30)
    old = sum(is_old(document, before) for document in source["runs"].find())
    assert (status, old) == (0, 20)
    (line,) = (line.strip() for line in said.splitlines() if "[copy] history" in line)
    assert line == f'[copy] history = "30d" would leave out {old} documents that finished earlier (runs {old})'
    written = path.read_text()
    commented = '# history = "30d"  # would leave out 20 documents that finished earlier\n'
    assert f"[copy]\n{commented}" in written
    path.write_text(written.replace(commented, 'history = "30d"\n'))
    monkeypatch.setenv("POSTGRES_DSN", scheduler_dsn)
    settings = load_settings(path, {})
    assert {one.collection: one.left_out for one in plan_backfill(settings, Scope()).collections}["runs"] == old
    backfill(settings, Scope())
    [runs] = [one for one in check_parity(settings, Scope()).collections if one.collection == "runs"]
    assert runs.history == old


@pytest.mark.proves("6-U1")
def test_an_assessment_says_of_a_sample_what_the_whole_collection_would_leave_out(mongo_database: Source) -> None:
    mongo_database["runs"].insert_many([run_ended(f"old {n}", 400) for n in range(40)])
    limits = AssessmentLimits(sample=10)
    [found] = assess(uri_of(mongo_database), mongo_database.name, limits).sources
    assert found.history_left_out == {"runs": 40}
    mongo_database["runs"].update_many({}, {"$set": {"finishedAt": text(2)}})
    young = assess(uri_of(mongo_database), mongo_database.name, limits)
    assert young.sources[0].history_left_out == {"runs": 0}
    assert "history" not in young.config
    late = assess(uri_of(mongo_database), mongo_database.name, AssessmentLimits(seconds=0))
    assert [one.history_left_out for one in late.sources] in ([], [{"runs": None}])


@pytest.mark.proves("6-U7", "6-U8")
def test_reading_again_does_not_copy_what_was_left_out(
    source: Source, settings: Settings, scheduler_dsn: str, tmp_path: Path
) -> None:
    backfill(settings, Scope())
    caught_up(settings)
    before, copied = cutoff(settings), copied_ids(scheduler_dsn)
    assert before is not None
    config = ["--config", str(write_config(tmp_path, settings))]
    inside = sum(not is_old(document, before) for document in source["runs"].find())
    assert inside < source["runs"].count_documents({})
    again = ("backfill", "--only", "runs", "--again", *config)
    status, out, said = run(*again, "--dry-run", "--json")
    assert (status, json.loads(out)["documents"]) == (0, {"runs": inside}), said
    status, out, said = run(*again, "--json")
    assert (status, json.loads(out)["documents"]) == (QUARANTINE, {"runs": inside}), said
    assert (cutoff(settings), copied_ids(scheduler_dsn)) == (before, copied)
    names = tmp_path / "ids"
    names.write_text("completed-1\ncompleted-400\nas-date\n")
    rule = f"history: finished before {before:%Y-%m-%d %H:%M:%S} UTC"
    for dry_run in ([], ["--dry-run"]):
        status, _, said = run("backfill", "--only", "runs", "--ids", str(names), *dry_run, *config)
        assert status == USAGE
        assert (
            f"2 of 3 ids name documents of runs that copy.history leaves out ({rule}): completed-400, as-date" in said
        )
    names.write_text("completed-1\ncompleted-400\nnowhere\n")
    status, _, said = run("backfill", "--only", "runs", "--ids", str(names), *config)
    assert (status, "1 of 3 ids name neither a document of runs nor rows of one: nowhere;" in said) == (USAGE, True)
    assert copied_ids(scheduler_dsn) == copied
    # a document that left the scope while no tail ran: it loses its rows, as by the tail
    source["runs"].update_one({"_id": "completed-1"}, {"$set": {"finishedAt": text(400)}})
    names.write_text("completed-1\n")
    status, out, said = run("backfill", "--only", "runs", "--ids", str(names), *config)
    assert "wrote 0 rows, removed 1" in out, said
    assert copied_ids(scheduler_dsn) == copied - {"completed-1"}
    # the remedy that the refusal names
    wider = with_history(settings, "all")
    backfill(wider, Scope())
    assert {"completed-400", "as-date", "completed-1"} <= copied_ids(scheduler_dsn)


@pytest.mark.proves("6-U7")
def test_the_sensitivity_is_shown_on_documents_of_the_copy(
    mongo_database: Source, scheduler_dsn: str, request: pytest.FixtureRequest
) -> None:
    """What comes first in a collection is oldest, as a rule; it is left out, and no corruption could be shown on it."""
    mongo_database["runs"].insert_many([run_ended(f"a {n:02}", 400) for n in range(40)])
    mongo_database["runs"].insert_many([run_ended(f"b {n:02}", 2) for n in range(12)])
    settings = with_history(settings_for(mongo_database, scheduler_dsn), "30d")
    backfill(settings, Scope())
    names = ("a row is lost", "an extra row", "another state")
    classes = [one for one in MUTATIONS if one.name in names]
    specs = [spec for spec in EVERY_CHECK if spec.id in ("parity.documents", "parity.extra", "parity.rows")]
    sessions = Sessions(settings)
    request.addfinalizer(sessions.close)
    with scratch_databases(settings) as place:
        sample = prepare(place, lambda there: copy_sample(sessions, there.source))
        taken = {document["_id"] for document in place.source["runs"].find()}
        assert (sample, {key[0] for key in taken}) == (len(taken), {"b"})
        assert {one.name: one.ending for one in run_trials(place, classes, specs)} == dict.fromkeys(names, "caught")
    with scratch_databases(settings) as place:
        prepare(place, write_made_documents)  # of the demo, all old
        made = run_trials(place, classes, specs, made=True)
        assert {one.name: one.ending for one in made} == dict.fromkeys(names, "caught")


@pytest.mark.proves("6-U7")
def test_the_sum_of_a_parity_check_adds_up_with_the_rule_by_name(
    source: Source, settings: Settings, scheduler_dsn: str
) -> None:
    backfill(settings, Scope())
    before = cutoff(settings)
    assert before is not None
    assert compared(settings) == []
    outcome = check_parity(settings, Scope())
    [runs] = [one for one in outcome.collections if one.collection == "runs"]
    name = f"history: finished before {before:%Y-%m-%d %H:%M:%S} UTC"
    assert runs.skipped == {name: runs.history}
    assert runs.history == sum(is_old(one, before) for one in source["runs"].find())
    assert runs.documents == source["runs"].count_documents({})
    assert runs.documents == runs.matched + runs.quarantined + runs.history
    aggregates = [one for one in outcome.both_aggregates if one.collection == "runs"]
    assert aggregates
    assert not any(one.unverified or one.differing_total for one in aggregates)
    assert number(scheduler_dsn, "SELECT count(*) FROM scheduler.runs") == runs.matched


@pytest.mark.proves("6-U7")
@pytest.mark.parametrize("days", [-20, 20])
def test_a_reader_that_uses_another_cutoff_is_seen(
    days: int, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Plant the fault in what is read, in either direction; the counts of the server are those of the plan."""
    settings, right = in_this_process(settings), history.in_scope

    def wrong(collection: Any, before: datetime | None) -> dict[str, Any]:  # noqa: ANN401 - of the rule
        return right(collection, None if before is None else before + timedelta(days=days))

    monkeypatch.setattr(history, "in_scope", wrong)
    backfill(settings, Scope())
    found = compared(settings)
    assert ("runs", "", "unverified") in {one[:3] for one in found}
    monkeypatch.setattr(history, "in_scope", right)
    sides = {side for name, _, side, _ in compared(settings) if name == "runs"}
    assert sides >= ({"extra"} if days < 0 else {"missing"}), sides
    assert "aggregate" in sides


@pytest.mark.proves("6-U7")
def test_a_wider_history_copies_what_was_left_out_and_writes_nothing_twice(
    source: Source, settings: Settings, scheduler_dsn: str
) -> None:
    backfill(settings, Scope())
    first, there = cutoff(settings), copied_ids(scheduler_dsn)
    wider = with_history(settings, "60d")
    result = backfill(wider, Scope())
    new = copied_ids(scheduler_dsn) - there
    assert new == {f"{state}-{days}" for state in ENDED for days in (45, 31)} | {"as-date", "offset"}
    assert result.by_collection["runs"].written["runs"] == len(new)
    second = cutoff(wider)
    assert first is not None
    assert second is not None
    assert second < first
    assert compared(wider) == []
    everything = with_history(settings, "all")
    backfill(everything, Scope())
    assert cutoff(everything) is None
    aside = {key for name, key, *_ in quarantine(scheduler_dsn) if name == "runs"}
    assert copied_ids(scheduler_dsn) | aside == {one["_id"] for one in source["runs"].find({}, {"_id": 1})}
    assert compared(everything) == []
    filled = "SELECT count(*) FROM scheduler.runs AS r JOIN scheduler.runs AS o ON o.id = r.retry_of"
    assert number(scheduler_dsn, filled) == 1, "the reference leads to the run that is there now"
    assert number(scheduler_dsn, "SELECT count(*) FROM scheduler.impact_snapshots WHERE run_id IS NOT NULL") == 1
    assert backfill(everything, Scope()).written == 0


@pytest.mark.proves("6-U7")
def test_a_widened_copy_that_misses_documents_is_seen(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = in_this_process(settings)
    backfill(settings, Scope())
    first, right = cutoff(settings), history.in_scope
    monkeypatch.setattr(history, "in_scope", lambda collection, _: right(collection, first))
    wider = with_history(settings, "60d")
    backfill(wider, Scope())
    monkeypatch.setattr(history, "in_scope", right)
    missing = {key for name, key, side, _ in compared(wider) if (name, side) == ("runs", "missing")}
    assert missing >= {"completed-45", "error-31", "as-date"}
    apply_repair(wider, Scope())
    assert compared(wider) == []


@pytest.mark.proves("6-U7")
@pytest.mark.parametrize("value", ["10d", "none"])
def test_a_narrower_history_keeps_what_was_copied(
    value: str, settings: Settings, scheduler_dsn: str, tmp_path: Path
) -> None:
    backfill(settings, Scope())
    before, there = cutoff(settings), copied_ids(scheduler_dsn)
    narrower = with_history(settings, value)
    planned = plan_backfill(narrower, Scope())
    assert (planned.history.before, planned.history.kept) == (before, True)
    status, out, said = run("plan", "--config", str(write_config(tmp_path, narrower)))
    assert status == 0, said
    assert "this cutoff is that of the copy before: what was copied stays\n" in out
    assert backfill(narrower, Scope()).written == 0
    assert (cutoff(narrower), copied_ids(scheduler_dsn)) == (before, there)
    assert compared(narrower) == []


@pytest.mark.proves("6-U7")
def test_all_that_was_copied_once_stays_whatever_the_history(source: Source, scheduler_dsn: str) -> None:
    settings = settings_for(source, scheduler_dsn)
    backfill(settings, Scope())
    there = copied_ids(scheduler_dsn)
    later = with_history(settings, "30d")
    backfill(later, Scope())
    assert (cutoff(later), copied_ids(scheduler_dsn)) == (None, there)


@pytest.mark.proves("6-U7")
def test_an_unfinished_copy_is_continued_with_its_cutoff_only(settings: Settings) -> None:
    backfill(settings, Scope())
    with open_sessions(settings) as sessions:
        plan = ledger.latest_plan(sessions.target)
        assert plan is not None
        ledger.set_plan_state(sessions.target, plan.id, "open")
    with pytest.raises(RefusedError, match=r"copy.history: then 30d, now 60d"):
        backfill(with_history(settings, "60d"), Scope())
    assert backfill(settings, Scope()).resumed


@pytest.mark.proves("6-U7")
def test_some_collections_alone_are_not_widened(settings: Settings) -> None:
    backfill(settings, Scope())
    for ask in (backfill, plan_backfill):
        with pytest.raises(RefusedError, match="also of runs: call backfill without --only"):
            ask(with_history(settings, "60d"), Scope(only=("impact_snapshots",)))
    backfill(settings, Scope(only=("impact_snapshots",)))


@pytest.mark.proves("6-U7")
def test_the_tail_copies_what_changes_back_into_the_scope(
    source: Source, settings: Settings, scheduler_dsn: str
) -> None:
    backfill(settings, Scope())
    caught_up(settings)
    source["runs"].update_one({"_id": "completed-400"}, {"$set": {"error": "noted later"}})
    source["runs"].update_one({"_id": "error-400"}, {"$set": {"finishedAt": text(0)}})
    source["runs"].update_one({"_id": "timeout-400"}, {"$set": {"state": "running"}, "$unset": {"finishedAt": 1}})
    source["runs"].insert_one(run_ended("restored", 90))
    source["runs"].update_one({"_id": "running-1"}, {"$set": {"state": "completed", "finishedAt": text(0)}})
    caught_up(settings)
    ids = copied_ids(scheduler_dsn)
    assert {"error-400", "timeout-400", "running-1"} <= ids
    assert not {"completed-400", "restored"} & ids
    assert compared(settings) == []
    apply_repair(settings, Scope())
    retry(settings)
    assert not {"completed-400", "restored"} & copied_ids(scheduler_dsn)
    assert compared(settings) == []


@pytest.mark.proves("6-U7")
def test_plan_and_inspect_name_the_rule_and_the_counts(
    source: Source, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plans, "DOCUMENTS_PER_SECOND", 1)
    planned = plan_backfill(settings, Scope())
    before = planned.history.before
    assert before is not None
    old = sum(is_old(one, before) for one in source["runs"].find())
    assert {one.collection: one.left_out for one in planned.collections} == {"runs": old, "impact_snapshots": 0}
    assert planned.history.covers == ("runs",)
    copied = sum(one.documents - one.left_out for one in planned.collections)
    assert planned.estimated_seconds == copied, "the time is that of the documents that are copied"
    status, out, said = run("plan", "--config", str(write_config(tmp_path, settings)))
    assert status == 0, said
    whole = source["runs"].count_documents({})
    assert f"runs: left out as history: {old} of {whole}\n" in out
    assert "copied whatever their age: impact_snapshots\n" in out
    [runs] = [one for one in census(settings, Scope()).collections if one.collection == "runs"]
    assert (runs.documents, list(runs.skipped.values())) == (whole - old, [old])
    status, out, _ = run("inspect", "--config", str(write_config(tmp_path, settings)))
    assert f"runs: skipped by rule: {old} x history: finished before " in out


@pytest.mark.proves("6-U7")
def test_the_report_says_what_is_left_behind_by_the_rule(settings: Settings, tmp_path: Path) -> None:
    backfill(settings, Scope())
    before = cutoff(settings)
    assert before is not None
    config, folder = write_config(tmp_path, settings), tmp_path / "out"
    run("verify", "--only", "parity", "--no-behaviour", "--report-dir", str(folder), "--config", str(config))
    [found] = folder.glob("**/result.json")
    [runs] = [one for one in json.loads(found.read_text())["evidence"]["collections"] if one["collection"] == "runs"]
    assert runs["skipped"] == {history.rule(before): 20}
    [page] = folder.glob("**/report.md")
    left = f"5 are in quarantine; 20 were not copied, by rule ({history.rule(before)} 20)"
    assert f"Documents left behind in the source: {left}" in page.read_text()


@pytest.mark.proves("6-U7")
@pytest.mark.parametrize("value", ["", "30", "soon", "-1d", "0s", "All"])
def test_a_bad_value_is_refused_when_it_is_read(value: str, settings: Settings, tmp_path: Path) -> None:
    config = write_config(tmp_path, with_history(settings, value))
    status, _, said = run("config", "check", "--config", str(config))
    assert status != 0
    assert 'copy.history: expected "all", "none", or a duration with its unit, such as "30d"' in said
