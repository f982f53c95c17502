"""A mapping file: every mistake in it is reported, with its line and the nearest name, and no server is asked."""

import re
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

import pytest
from bson.binary import UUID_SUBTYPE, Binary

from migrator import states
from migrator.config import SourceSettings
from migrator.errors import ConfigurationError
from migrator.sources import NAMES, load_profile, native_profile, profile_of, shipped_mapping
from migrator.sources.mapping.file import load_mapping, read_mapping
from migrator.sources.profile import Context, DeclaredLoss, History
from migrator.sources.store_documents.runs import RUNS as RUN_DOCUMENTS

MAPPING = Path(__file__).parents[2] / "fixtures_data" / "mappings" / "acme.toml"
EVERY = MAPPING.with_name("every.toml")
NOON = datetime(2026, 11, 22, 12)  # noqa: DTZ001 - as BSON dates are read
CONTEXT = Context(as_of=NOON.replace(tzinfo=UTC), default_tenant="house")

BEGIN = """\
[source]
name = "acme"
[collections.jobs]
tables = ["schedules", "triggers", "runs"]
[collections.jobs.constants]
schedules.status = "scheduled"
runs.state = "queued"
[collections.jobs.fields]
name = { to = "schedules.name" }
line = { to = "triggers.cron_expression", dialect = "debian" }
made = { to = "runs.created_at" }
"""
"""Ten lines and one, without a mistake."""


def mistakes(tmp_path: Path, text: str) -> list[str]:
    path = tmp_path / "acme.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigurationError) as caught:
        load_mapping(path, ("stellaops", "agenda"))
    first, *rest = str(caught.value).splitlines()
    assert first == f"the mapping {path} cannot be used"
    return [line.removeprefix(f"{path}:") for line in rest]


RUNS = """
[source]
name = "acme"
[collections.log]
tables = ["runs"]
[collections.log.fields]
status = { to = "runs.state", words = { ok = "completed", failed = "error", busy = "running" } }
queued = { to = "runs.created_at" }
[collections.log.history]
"""


@pytest.mark.proves("6-U7")
def test_history_is_declared_by_fields_that_say_that_a_run_has_ended(tmp_path: Path) -> None:
    path = tmp_path / "acme.toml"
    stated = 'at = "a.ended"\nbegun = "begun"\nempty = ["next"]\nwords.status = ["ok", "failed"]\nwords.a.b = ["x"]\n'
    path.write_text(f"{RUNS}{stated}", encoding="utf-8")
    assert load_mapping(path).by_name()["log"].history == History(
        at="a.ended", begun="begun", empty=("next",), words={"status": ("ok", "failed"), "a.b": ("x",)}
    )


@pytest.mark.proves("6-U7")
@pytest.mark.parametrize(
    ("stated", "expected"),
    [
        ('at = "ended"', "words: expected the words of finished runs, of the field that fills runs.state"),
        (
            'at = "ended"\nempty = ["next"]',
            "words: expected the words of finished runs, of the field that fills runs.state",
        ),
        ('at = "ended"\nwords.status = ["ok", "busy"]', "words: status: a run in the state busy is not finished"),
        ('at = "ended"\nwords.status = ["ok", "lost"]', "words: status: a run in the state lost is not finished"),
        ('at = "ended"\nwords.status = []', "words: status: expected a list of texts"),
        ('words.status = ["ok"]', "at, begun, empty, words: expected paths of fields"),
        ('at = "ended"\nempty = "next"\nwords.status = ["ok"]', "at, begun, empty, words: expected paths of fields"),
        ('at = "$$NOW"\nwords.status = ["ok"]', "at, begun, empty, words: expected paths of fields"),
    ],
)
def test_history_that_could_leave_out_a_run_that_has_not_ended_is_refused(
    stated: str, expected: str, tmp_path: Path
) -> None:
    assert f"history of log: {expected}" in [
        line.partition(": ")[2] for line in mistakes(tmp_path, f"{RUNS}{stated}\n")
    ]


@pytest.mark.proves("6-U7")
def test_no_shipped_source_takes_a_run_for_finished_that_is_not() -> None:
    """Of each word that a rule names, the mapping makes a state that a run never leaves."""
    declared = {
        (name, one.name): one.history
        for name in NAMES
        for one in load_profile(name).collections
        if one.history is not None
    }
    fields = {
        ("stellaops", "runs"): {one.path: one for one in RUN_DOCUMENTS.fields},
        ("celery-results", "celery_taskmeta"): {
            one.path: one for one in read_mapping(shipped_mapping("celery-results")).collections[0].fields
        },
    }
    for place, history in declared.items():
        for path, texts in history.words.items():
            field = fields[place][path]
            assert field.columns == ("runs.state",)
            assert {states.RUN[field.words[text]] for text in texts} == {frozenset()}
    assert {place for place, history in declared.items() if history.words} == fields.keys()
    assert {place for place, history in declared.items() if not history.words} == {
        ("agenda", one) for one in ("agendaJobs", "pulseJobs", "agenda_logs")
    }
    celery = declared["celery-results", "celery_taskmeta"]
    for target in ("celery-results", "celery-results-5-6"):
        assert native_profile("celery-results", target).by_name()["celery_taskmeta"].history == celery
    library = native_profile("agenda", "agenda").by_name()
    assert {("agenda", name): one.history for name, one in library.items()} == {
        place: history for place, history in declared.items() if place[0] == "agenda"
    }


def test_a_shipped_mapping_to_a_native_target_is_read_once_for_each_value_of_its_options() -> None:
    named = native_profile("quartz", "quartz", _quartz("first"))
    assert native_profile("quartz", "quartz", _quartz("first")) is named
    other = native_profile("quartz", "quartz", _quartz("second"))
    assert other is not named
    assert other.version != named.version


def _quartz(scheduler: str) -> dict[str, object]:
    return {"scheduler_name": scheduler, "job_classes": {"com.example.Report": []}}


def test_what_the_tables_cannot_hold_is_declared_with_a_reason(tmp_path: Path) -> None:
    path = tmp_path / "acme.toml"
    stated = 'a.b = "no column"\n"c" = { reason = "too short", unless = 0 }\n'
    path.write_text(f"{BEGIN}\n[collections.jobs.lost]\n{stated}", encoding="utf-8")
    lost = load_mapping(path).by_name()["jobs"].lost
    assert lost == {"a.b": DeclaredLoss("no column"), "c": DeclaredLoss("too short", 0)}
    wrong = mistakes(tmp_path, f"{BEGIN}\n[collections.jobs.lost]\n_id = 'why'\nx = ' '\ny = 5\nz = \"a\\nb\"\n")
    assert [line.partition(": ")[2] for line in wrong] == [
        "lost _id of jobs: the _id is always kept as the source id",
        *(f"lost {path} of jobs: expected the reason, in a line" for path in ("x", "y", "z")),
    ]


def test_the_beginning_has_no_mistake(tmp_path: Path) -> None:
    path = tmp_path / "acme.toml"
    path.write_text(BEGIN, encoding="utf-8")
    assert load_mapping(path).name == "acme"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('x = { to = "schedules.nam" }', "field x of jobs: column schedules.nam does not exist; did you mean name?"),
        (
            'x = { to = "schedule.name" }',
            "field x of jobs: schedule is not among the tables of the collection; did you",
        ),
        ('x = { to = "schedules.id" }', "field x of jobs: column schedules.id is filled by the tool"),
        (
            'x = { to = "triggers.kind" }',
            "field x of jobs: triggers.kind follows from the field that makes the trigger",
        ),
        ('x = { to = "schedules.name" }', "field x of jobs: schedules.name is filled by the field name already"),
        ('x = { to = "runs.error", as = "txt" }', "field x of jobs: unknown converter txt; did you mean text?"),
        (
            'x = { to = "runs.error", as = "time" }',
            "field x of jobs: the converter time does not fill runs.error (text)",
        ),
        ('x = { to = "runs.error", unit = "days" }', "field x of jobs: unknown key unit; known: to, as, also, tr"),
        ('x = { to = "runs.started_at", encoding = "unix" }', "field x of jobs: encoding: expected one of date, iso, "),
        (
            'x = { to = "schedules.timeout_ms", unit = "weeks" }',
            "field x of jobs: unit: expected one of microseconds, ",
        ),
        (
            'x = { to = "schedules.priority", default = "high" }',
            "field x of jobs: default: expected a value of ",
        ),
        (
            'x = { to = "schedules.priority", default = 101 }',
            "field x of jobs: default: expected a number from 0 to 100",
        ),
        (
            'x = { to = "schedules.mode", words = { a = "full" } }',
            "field x of jobs: words: schedules.mode has no word fu",
        ),
        (
            'x = { to = "schedules.mode", default = "full" }',
            "field x of jobs: default: expected a word of schedules.mode",
        ),
        (
            'x = { to = "runs.cause", words = { "1" = "cron", one = "manual" }, type = "int" }',
            "field x of jobs: words: the documents hold numbers (type): expected one in place of one",
        ),
        (
            'x = { to = "runs.state", words = { ok = "completed" }, write_as = { timeout = "bad" } }',
            "field x of jobs: write_as: bad is not among the words",
        ),
        (
            'x = { to = "runs.state", words = { ok = "completed" }, write_as = { done = "ok" } }',
            "field x of jobs: write_as: runs.state has no word done",
        ),
        (
            'x = { to = "runs.state", words = { ok = "completed" }, write_as = { completed = "ok" } }',
            "field x of jobs: write_as: completed has a word already",
        ),
        ('x = { to = "runs.cause", as = "words" }', "field x of jobs: words: expected { theirs = "),
        (
            'x = { to = "runs.retry_of" }',
            "field x of jobs: collection: expected the collection whose _id the field holds",
        ),
        ('x = { to = "runs.retry_of", collection = "job" }', "field x of jobs: no collection job; did you mean jobs?"),
        (
            'x = { to = "runs.state", as = "text" }',
            "field x of jobs: runs.state holds one word of a list: expected the converter words",
        ),
        (
            'x = { to = ["runs.schedule_id", "runs.trigger_id"], collection = "jobs" }',
            "field x of jobs: a reference fills one column",
        ),
        (
            'x = { to = ["schedules.mode", "schedules.handler_type"], words = { a = "analysis-only" } }',
            "field x of jobs: words: schedules.handler_type has no word analysis-only",
        ),
        (
            'x = { to = "schedules.priority", as = "words", words = { high = 101 } }',
            "field x of jobs: words: expected values of schedules.priority (int2)",
        ),
        (
            'x = { to = "runs.duration_ms" }',
            "field x of jobs: runs.duration_ms follows from runs.started_at and runs.finished_at",
        ),
        ("x = 5", 'field x of jobs: expected { to = "table.column" }'),
        (
            '_id = { to = "schedules.schema_version", as = "version", expected = "1" }',
            "field _id of jobs: the _id is always the source id: the converter version does not read it",
        ),
        (
            'x = { to = "runs.started_at", as = "id-time" }',
            "field x of jobs: the converter id-time reads the _id alone",
        ),
        (
            'x = { to = "schedules.name", as = "id-text" }',
            "field x of jobs: the converter id-text reads the _id alone",
        ),
        (
            'x = { to = "runs.error.code" }',
            "field x of jobs: column runs.error.code: only a jsonb column has members, table.column.member",
        ),
        ('x = { to = "runs.result.a.b" }', "field x of jobs: column runs.result.a.b: only a jsonb column has members"),
        (
            'x = { to = "runs.result.code", as = "json-text" }',
            "field x of jobs: a member of runs.result is filled by the converter json alone",
        ),
        (
            'x = { to = ["runs.result.code", "runs.result"] }',
            "field x of jobs: runs.result is filled by the field x already",
        ),
        (
            'x = { to = "runs.started_at", local = true }',
            "field x of jobs: local: expected a column of triggers, which keep the zone",
        ),
        (
            'x = { to = "triggers.start_at", encoding = "iso", local = true }',
            "field x of jobs: local: expected a BSON date; other encodings say what they mean",
        ),
        (
            'x = { to = "runs.started_at", zone = "Europe/Wien" }',
            (
                "field x of jobs: zone: time zone: expected a name of the IANA database or a Windows zone name"
                "; did you mean Europe/Vienna?"
            ),
        ),
        (
            'x = { to = "schedules.priority", write_default = true }',
            "field x of jobs: written: expected a default, which it says is written",
        ),
        (
            'x = { to = "triggers.interval_ms", as = "period", number = "n", unit_from = "u", fixed = { a = 1 } }',
            "field x of jobs: fixed: expected members and their texts",
        ),
        ('x = { to = "schedules.priority", null_value = 0.5 }', "field x of jobs: null_value: expected a whole number"),
        ('x = { to = "runs.error", as = "own-id" }', "field x of jobs: the converter own-id fills no column"),
        ('x = { to = "runs.error", also = "y" }', "field x of jobs: also: expected a list of paths"),
        ('x = { to = "runs.error", also = ["y", "y"] }', "field x of jobs: also: a name stands twice"),
        ('x = { to = "runs.error", trim = 1 }', "field x of jobs: trim: expected true or false"),
        ('x = { to = "runs.attempt", factor = nan }', "field x of jobs: factor: expected a finite number"),
        ('x = { to = "runs.attempt", add = inf }', "field x of jobs: add: expected a finite number"),
        (
            'x = { to = "triggers.misfire_policy", words = { a = ["skip"] } }',
            "field x of jobs: words: triggers.misfire_policy has no word ['skip']",
        ),
        (
            'x = { to = "runs.error", words = { a = { b = "c" } } }',
            "field x of jobs: words: expected values of runs.error (text)",
        ),
        (
            'x = { to = "runs.error", words = { a = "b\\u0000c" } }',
            "field x of jobs: words: expected values of runs.error (text)",
        ),
        (
            'x = { to = "runs.error", words = { a = "b" }, default = ["b"] }',
            "field x of jobs: default: expected a value of runs.error",
        ),
        ('x = { to = "runs.error", default = "b\\u0000c" }', "field x of jobs: default: expected a word of runs.error"),
        (
            'x = { to = "runs.started_at", encoding = "secnds" }',
            "field x of jobs: encoding: expected one of date, iso, iso-z, seconds, milliseconds, microseconds, milli",
        ),
        ('x = { to = "runs.attempt", factor = 0 }', "field x of jobs: factor: expected a number other than 0"),
        ('x = { to = "runs.attempt", add = "1" }', "field x of jobs: add: expected a number"),
        (
            'x = { to = "schedules.mode", allow_unknown = true }',
            "field x of jobs: keep: expected a column that takes any text",
        ),
        (
            'x = { to = "schedules.schema_version", as = "version" }',
            "field x of jobs: expected: expected the version that is known",
        ),
        (
            'x = { to = "triggers.interval_ms", as = "period", number = "n" }',
            "field x of jobs: unit_from: expected the member that holds the unit",
        ),
        (
            'x = { to = "triggers.interval_ms", as = "period", number = "n", unit_from = "u", words = { w = "week" } }',
            "field x of jobs: words: no unit week",
        ),
        (
            'x = { to = "schedules.created_by", as = "cron-fields", dialect = "debian" }',
            "field x of jobs: members: expected the list of members in the order of the cron line",
        ),
        (
            'name.x = { to = "runs.error" }\nname.y = { to = "runs.error" }',
            "field name.y of jobs: runs.error is filled",
        ),
    ],
)
@pytest.mark.proves("5-S1")
def test_a_mistake_in_a_field_is_named_with_its_line(tmp_path: Path, line: str, expected: str) -> None:
    if line.startswith("name."):  # TOML itself refuses a field inside a field that is an inline table
        text = BEGIN.replace('name = { to = "schedules.name" }\n', "") + line + "\n"
    else:
        text = BEGIN + line + "\n"
    found = mistakes(tmp_path, text)
    number = text.rstrip().count("\n") + 1
    assert [one[: len(f"{number}: {expected}")] for one in found if one.startswith(f"{number}:")] == [
        f"{number}: {expected}"
    ]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ('name = "acme"', 'name = "agenda"', "2: source.name: agenda is the name of a source that is shipped"),
        (
            'name = "acme"',
            'name = "Acme Jobs"',
            "2: source.name: expected a name of lower-case letters, digits, - and _",
        ),
        (
            "[collections.jobs.fields]",
            "[collections.jobs.fixed]\n_cls = 1\n[collections.jobs.fields]",
            "9: fixed _cls of jobs: expected a text",
        ),
        (
            "[collections.jobs.constants]",
            "expects_trigger = 1\n[collections.jobs.constants]",
            "5: collection jobs: expects_trigger: expected true or false, and triggers after the first table",
        ),
        ('"scheduled"', '"?"', "6: constant schedules.status of jobs: expected pending, "),
        (
            'schedules.status = "scheduled"',
            'schedules.status = "scheduled"\nschedules.queue = "?"',
            '7: constant schedules.queue of jobs: expected a value of type text in place of "?"',
        ),
        (
            'schedules.status = "scheduled"',
            'schedules.status = "scheduled"\ntriggers.event_name = "start"',
            "7: constant triggers.event_name of jobs: what makes a trigger fire comes from a field",
        ),
        ('"runs"]', '"run"]', "4: collection jobs: tables: unknown table run; did you mean runs?"),
        ('"runs"]', '"locks"]', "4: collection jobs: tables: locks can only stand first"),
        ('"runs"]', '"schedules"]', "4: collection jobs: tables: a table stands twice"),
        ('"scheduled"', '"planned"', "6: constant schedules.status of jobs: expected pending, scheduled, running, "),
        ('runs.state = "queued"\n', "", "3: collection jobs: runs.state may not be null, and nothing fills it"),
        ('made = { to = "runs.created_at" }', "", "3: collection jobs: runs.created_at may not be null, and nothing"),
        ("line = ", "#", "3: collection jobs: a trigger needs a field for one of triggers.cron_expression, "),
        (', dialect = "debian"', "", "10: field line of jobs: dialect: expected one of "),
        (
            "[collections.jobs.constants]",
            "[collections.jobs.constant]",
            "5: collection jobs: unknown key constant; did",
        ),
        ("[source]", "[sources]", "1: unknown key sources; did you mean source?"),
    ],
)
def test_a_mistake_elsewhere_is_named_with_its_line(tmp_path: Path, old: str, new: str, expected: str) -> None:
    assert old in BEGIN
    found = mistakes(tmp_path, BEGIN.replace(old, new))
    assert any(one.startswith(expected) for one in found), found


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("runs.state = []", "choice runs.state of jobs: a field or a constant fills it already"),
        ("runs.cause = []", 'choice runs.cause of jobs: expected a list of { if = "field", value = … }'),
        (
            'runs.cause = [{ of = "x", value = "a" }]',
            "choice runs.cause of jobs: unknown key of; known: if, equals, value",
        ),
        ("runs.cause = [{ value = 1 }]", "choice runs.cause of jobs: value: expected a value of type text"),
        (
            'runs.caus = [{ value = "a" }]',
            "choice runs.caus of jobs: column runs.caus does not exist; did you mean cause?",
        ),
        (
            'runs.cause = [{ equals = 1, value = "a" }]',
            "choice runs.cause of jobs: equals: expected a text, a number or a bool, beside if",
        ),
        (
            'schedules.mode = [{ if = "x", value = "full" }]',
            "choice schedules.mode of jobs: value: expected analysis-only, content-refresh",
        ),
        (
            'triggers.event_name = [{ value = "start" }]',
            "choice triggers.event_name of jobs: what makes a trigger fire comes from a field",
        ),
    ],
)
def test_a_mistake_in_a_choice_is_named_with_its_line(tmp_path: Path, line: str, expected: str) -> None:
    assert f"13: {expected}" in mistakes(tmp_path, f"{BEGIN}[collections.jobs.choices]\n{line}\n")


KINDS = """\
[collections.g.kinds.a]
when = { path = "x", present = true }
tables = ["schedules"]
[collections.g.kinds.a.fields]
name = { to = "schedules.name" }
[collections.g.kinds.a.constants]
schedules.status = "scheduled"
"""
"""Lines 12 to 18."""


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ('"x", present', '"x", presen', "13: kind a of g: when: unknown key presen; did you mean present?"),
        ("present = true", "present = false", "13: kind a of g: when: present: expected true"),
        ("present = true", 'begins = ""', "13: kind a of g: when: begins: expected a text"),
        ("present = true", "equals = []", "13: kind a of g: when: equals: expected a text, a number or a bool"),
        (
            ", present = true",
            "",
            "13: kind a of g: when: expected one of present = true, absent = true, equals and begi",
        ),
        ('path = "x"', "path = 1", '13: kind a of g: when: expected { path = "field", … }'),
        ('tables = ["schedules"]', "skip = false", "14: kind a of g: skip: expected true, or tables and fields"),
        ('"schedules.name"', '"schedules.nam"', "16: field name of g/a: column schedules.nam does not exist; did you"),
        ("schedules.status =", "# ", "12: collection g/a: schedules.status may not be null, and nothing fills it"),
        (
            "[collections.g.kinds.a]",
            '[collections.g.kinds.b]\ntables = ["runs"]\n[collections.g.kinds.a]',
            "12: collection g: kinds: expected the same first table, not ",
        ),
        (
            KINDS,
            "[collections.g.kinds.a]\nskip = true\n",
            "12: collection g: kinds: expected one that feeds tables",
        ),
    ],
)
def test_a_mistake_in_a_kind_is_named_with_its_line(tmp_path: Path, old: str, new: str, expected: str) -> None:
    assert old in KINDS
    found = mistakes(tmp_path, BEGIN + KINDS.replace(old, new))
    assert any(one.startswith(expected) for one in found), found


def test_a_path_that_is_read_twice_is_refused(tmp_path: Path) -> None:
    text = BEGIN + 'x = { to = "runs.error", also = ["made"] }\n'
    assert mistakes(tmp_path, text) == ["11: collection jobs: also: made is read twice"]


@pytest.mark.parametrize("name", ["x'] = 1; raise SystemExit #", "'''", "\u2028", "{x}", "%s"])
def test_the_name_of_a_field_is_never_run_as_code(tmp_path: Path, name: str) -> None:
    path = tmp_path / "acme.toml"
    path.write_text(BEGIN + f'"{name}" = {{ to = "runs.error" }}\n', encoding="utf-8")
    collection = load_mapping(path).by_name()["jobs"]
    document = {"_id": 1, "name": "n", name: "late", "made": NOON}
    rebuilt = collection.encode(collection.decode(document, CONTEXT).rows)
    assert (rebuilt["made"], rebuilt[name]) == (NOON, "late")


@pytest.mark.parametrize("name", ['a\\"b', "a\\tb", "a\\\\b", "a\\u0000"])
def test_a_field_whose_name_cannot_be_read_is_refused(tmp_path: Path, name: str) -> None:
    [found] = mistakes(tmp_path, BEGIN + f'"{name}" = {{ to = "runs.error" }}\n')
    assert found.endswith("a name with a quotation mark, \\ or a control character is not read")


def test_what_the_documents_were_seen_in_is_a_text(tmp_path: Path) -> None:
    assert load_mapping(EVERY).documents == "made for the tests"
    assert mistakes(tmp_path, BEGIN.replace('"acme"', '"acme"\ndocuments = 5')) == [
        "3: source.documents: expected a text"
    ]


@pytest.mark.proves("5-S1")
def test_all_mistakes_are_named_at_once(tmp_path: Path) -> None:
    found = mistakes(
        tmp_path, BEGIN.replace('"acme"', '"A"') + 'x = { to = "runs.eror" }\ny = { to = "runs.error", as = "zone2" }\n'
    )
    assert [int(one.partition(":")[0]) for one in found] == [2, 12, 13]


def test_fields_of_a_table_whose_name_is_misspelled_are_checked_too(tmp_path: Path) -> None:
    text = BEGIN.replace('"schedules"', '"schedulez"') + 'x = { to = "schedules.nam" }\n'
    found = mistakes(tmp_path, text)
    assert [line.partition(":")[0] for line in found] == ["4", "12"]
    assert found[1].endswith("column schedules.nam does not exist; did you mean name?")


def test_the_nearest_one_of_a_list_is_named(tmp_path: Path) -> None:
    text = BEGIN.replace('dialect = "debian"', 'dialect = "quarz"')
    dialect, encoding = mistakes(tmp_path, text + 'x = { to = "runs.started_at", encoding = "secnds" }\n')
    assert dialect.endswith("; did you mean quartz?")
    assert encoding.endswith("; did you mean seconds?")


def test_the_column_of_a_key_is_read_as_the_id_alone(tmp_path: Path) -> None:
    text = BEGIN.replace("[collections.jobs]", '[collections.jobs]\nkey = ["name"]')
    [mistake] = mistakes(tmp_path, text)
    assert mistake == "10: field name of jobs: the column name is the whole key, and is read as _id"
    path = tmp_path / "acme.toml"
    path.write_text(text.replace('key = ["name"]', 'key = ["name", "made"]'), encoding="utf-8")
    assert load_mapping(path).collections[0].key == ("name", "made")


def test_every_path_that_is_read_twice_is_named(tmp_path: Path) -> None:
    text = BEGIN + 'x = { to = "runs.error", also = ["name", "made"] }\n'
    assert [line.partition("also: ")[2] for line in mistakes(tmp_path, text)] == [
        "name is read twice",
        "made is read twice",
    ]


def test_documents_of_which_only_the_id_is_read_are_written_back(tmp_path: Path) -> None:
    path = tmp_path / "acme.toml"
    path.write_text(
        '[source]\nname = "acme"\n[collections.jobs]\ntables = ["schedules"]\n'
        '[collections.jobs.fields]\n_id = { to = "schedules.name" }\n'
        '[collections.jobs.constants]\nschedules.status = "scheduled"\n'
    )
    [jobs] = load_mapping(path).collections
    assert jobs.encode(jobs.decode({"_id": "nightly"}, CONTEXT).rows) == {"_id": "nightly"}


def test_two_tenants_and_a_field_inside_another_are_refused(tmp_path: Path) -> None:
    text = BEGIN + 'a = { as = "tenant" }\nb = { as = "tenant" }\n'
    assert mistakes(tmp_path, text) == ["13: field b of jobs: the tenant is read from the field a already"]
    inside = BEGIN + '"name.x" = { to = "runs.error" }\n'
    [found] = mistakes(tmp_path, inside)
    assert found.endswith("field name.x of jobs: it lies within the field name, which is mapped too")


def test_what_is_no_mapping_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"cannot read the mapping .*: no such file or directory"):
        profile_of(SourceSettings(mapping=str(tmp_path / "none.toml")))
    path = tmp_path / "broken.toml"
    path.write_text("[source\n", encoding="utf-8")
    with pytest.raises(ConfigurationError, match="is not TOML: expected"):
        profile_of(SourceSettings(mapping=str(path)))
    path.write_text("a = " + "[" * 9_000, encoding="utf-8")
    with pytest.raises(ConfigurationError, match=r"its values lie too deep in one another|is not TOML"):
        profile_of(SourceSettings(mapping=str(path)))
    path.write_bytes(b"\xff")
    with pytest.raises(ConfigurationError, match="expected text in UTF-8; byte 0 is not"):
        profile_of(SourceSettings(mapping=str(path)))
    path.write_text("", encoding="utf-8")
    with pytest.raises(ConfigurationError, match=re.escape("expected a section [source]")):
        profile_of(SourceSettings(mapping=str(path)))


def test_the_version_follows_from_the_content_and_not_from_the_comments(tmp_path: Path) -> None:
    path = tmp_path / "acme.toml"
    path.write_text(MAPPING.read_text(encoding="utf-8") + "\n# a comment\n", encoding="utf-8")
    assert load_mapping(path).version == load_mapping(MAPPING).version
    path.write_text(MAPPING.read_text(encoding="utf-8").replace("off =", "idle ="), encoding="utf-8")
    assert load_mapping(path).version != load_mapping(MAPPING).version


def test_a_collection_is_loaded_after_those_that_it_refers_to() -> None:
    profile = load_mapping(MAPPING)
    assert [one.name for one in profile.collections] == ["jobs", "history", "shedlock"]
    assert profile.by_name()["history"].after == ("jobs",)


@pytest.mark.parametrize("id_type", ["uuid", "text"])
def test_a_reference_to_a_row_that_keeps_its_uuid_is_written_from_the_row(tmp_path: Path, id_type: str) -> None:
    path = tmp_path / "acme.toml"
    log = f"""
[collections.logs]
tables = ["execution_logs"]
[collections.logs.fields]
job = {{ to = "execution_logs.schedule_id", collection = "jobs", id_type = "{id_type}" }}
at = {{ to = "execution_logs.logged_at" }}
[collections.logs.constants]
execution_logs.level = "info"
"""
    path.write_text(BEGIN + log, encoding="utf-8")
    logs = load_mapping(path).by_name()["logs"]
    key = UUID("00000000-0000-4000-8000-000000000001")
    document = {"_id": 1, "job": str(key) if id_type == "text" else Binary(key.bytes, UUID_SUBTYPE), "at": NOON}
    rows = logs.decode(document, CONTEXT).rows
    assert getattr(rows[0], "schedule_id") == key  # noqa: B009 - not on every record's type
    assert logs.encode(rows) == document


def test_an_unknown_id_type_is_a_mistake(tmp_path: Path) -> None:
    log = BEGIN + 'of = { to = "runs.retry_of", collection = "jobs", id_type = "int" }\n'
    assert "id_type: expected one of uuid, text" in "".join(mistakes(tmp_path, log))


def test_a_profile_in_python_is_found_by_its_place() -> None:
    assert profile_of(SourceSettings(profile="migrator.sources.agenda:PROFILE")).name == "agenda"
    for place, why in (("migrator.sources.agenda:NONE", "AttributeError"), ("no.such:P", "ModuleNotFoundError")):
        with pytest.raises(ConfigurationError, match=why):
            profile_of(SourceSettings(profile=place))
    with pytest.raises(ConfigurationError, match=r"expected a migrator\.sources\.profile\.Profile"):
        profile_of(SourceSettings(profile="migrator.sources.agenda:jobs"))
