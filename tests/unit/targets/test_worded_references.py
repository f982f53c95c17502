"""A row that refers to one of several tables, and what a mapping says for tables of a library besides."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from migrator.config import SourceSettings, TargetSettings
from migrator.errors import ConfigurationError
from migrator.sources import profile_of
from migrator.sources.profile import Collection, Context, Rejected

MAPPING = """
[source]
name = "acme"

[target]
name = "acme"

[target.tables.every]
key = ["id"]
made = "sequence"
[target.tables.every.columns]
id = "integer not null"
hours = { type = "integer not null", least = 1 }

[target.tables.lines]
key = ["id"]
made = "sequence"
[target.tables.lines.columns]
id = "integer not null"
minute = "text not null"

[target.tables.jobs]
key = ["id"]
[target.tables.jobs.references.rule]
by = "kind"
tables = { hours = "every", line = "lines" }
[target.tables.jobs.columns]
id = "text not null"
kind = "text not null"
rule = "integer not null"
begins = "timestamptz"
active = "boolean not null"
given = "text not null"

[collections.jobs.kinds.hours]
when = { path = "hours", present = true }
tables = ["jobs", "every"]
fixed = { "inner.class" = "Inner" }
[collections.jobs.kinds.hours.fields]
_id = { to = "jobs.id" }
hours = { to = "every.hours" }
inner.begins = { to = "jobs.begins", zone = "Europe/Vienna" }
active = { to = "jobs.active", default = false, below = ["count", "most"] }
given = { to = "jobs.given", as = "celery-json", default = "{}" }
line = { as = "refused", expected = "hours or a line" }
[collections.jobs.kinds.hours.constants]
jobs.kind = "hours"

[collections.jobs.kinds.line]
tables = ["jobs", "lines"]
[collections.jobs.kinds.line.fields]
_id = { to = "jobs.id" }
line.minute = { to = "lines.minute", as = "cron-field", part = "minute", dialect = "celery" }
[collections.jobs.kinds.line.constants]
jobs.kind = "line"
jobs.active = true
jobs.given = "{}"
"""
CONTEXT = Context(as_of=datetime(2026, 11, 24, tzinfo=UTC))


def jobs(folder: Path, mapping: str = MAPPING) -> Collection:
    path = folder / "acme.toml"
    path.write_text(mapping)
    [collection] = profile_of(SourceSettings(mapping=str(path)), TargetSettings(name="acme")).collections
    return collection


def test_a_row_refers_to_that_of_its_document(tmp_path: Path) -> None:
    collection = jobs(tmp_path)
    for document in ({"_id": "a", "hours": 2}, {"_id": "b", "line": {"minute": "5"}}):
        job, rule = collection.decode(document, CONTEXT).rows
        assert job.rule == rule.id  # type: ignore[attr-defined]  # a record of a native target
        assert collection.encode((job, rule)) == document


def test_a_local_time_is_an_instant_and_comes_back(tmp_path: Path) -> None:
    collection = jobs(tmp_path)
    inner = {"begins": datetime(2026, 7, 1, 12), "class": "Inner"}  # noqa: DTZ001 - as BSON has it
    document = {"_id": "a", "hours": 2, "inner": inner}
    rows: Any = collection.decode(document, CONTEXT).rows
    assert rows[0].begins == datetime(2026, 7, 1, 10, tzinfo=UTC)
    assert collection.encode(rows) == document
    stated = collection.decode({"_id": "a", "hours": 2, "inner": {"begins": "2026-07-01T12:00:00+00:00"}}, CONTEXT)
    assert stated.rows[0].begins == datetime(2026, 7, 1, 12, tzinfo=UTC)  # type: ignore[attr-defined]  # as above


@pytest.mark.parametrize(
    ("count", "most", "active"), [(2, 3, True), (3, 3, False), (4, 3.0, False), (4, 0, True), (None, 3, True)]
)
def test_a_flag_is_false_where_a_number_has_reached_its_limit(
    count: object,
    most: object,
    active: object,
    tmp_path: Path,
) -> None:
    document = {"_id": "a", "hours": 2, "active": True, "count": count, "most": most}
    rows: Any = jobs(tmp_path).decode(document, CONTEXT).rows
    assert rows[0].active is active


@pytest.mark.parametrize(
    ("document", "reason", "path"),
    [
        ({"hours": 0}, "out-of-range", "hours"),
        ({"hours": 2, "line": {"minute": "5"}}, "unknown-value", "line"),
        ({"line": {"minute": "61"}}, "unknown-value", "line.minute"),
        ({"line": {"minute": "5 6"}}, "unknown-value", "line.minute"),
        ({"line": {"minute": "5, 10-12"}}, "unknown-value", "line.minute"),
        ({"line": {"minute": ""}}, "unknown-value", "line.minute"),
        ({"hours": 2, "given": [b"x"]}, "wrong-type", "given"),
        ({"hours": 2, "inner": {"begins": datetime(1, 1, 1)}}, "bad-date", "inner.begins"),  # noqa: DTZ001 - as above
    ],
)
def test_what_does_not_fit_is_quarantined(document: dict[str, Any], reason: str, path: str, tmp_path: Path) -> None:
    with pytest.raises(Rejected) as error:
        jobs(tmp_path).decode({"_id": "a"} | document, CONTEXT)
    assert (error.value.reason, error.value.path) == (reason, path)


@pytest.mark.parametrize(
    ("written", "instead", "message"),
    [
        ('by = "kind"', 'by = "kinds"', "rule: by: expected the column that has the word for the table"),
        ('line = "lines" }', 'line = "line" }', "line is no table whose key is made; did you mean lines?"),
        ('tables = { hours = "every", line = "lines" }', "", "rule: tables: expected words, each with its table"),
        ("least = 1", 'least = "one"', "column hours of every: least: expected a whole number"),
        ('zone = "Europe/Vienna"', 'zone = "Europe/Wien"', "inner.begins of jobs/hours: zone: "),
        ('"count", "most"', '"count"', "active of jobs/hours: below: expected the paths of two numbers"),
        ('part = "minute"', 'part = "second"', "part: expected one of minute, hour"),
        (', expected = "hours or a line"', "", "field line of jobs/hours: expected: expected"),
    ],
)
def test_mistakes_are_told(written: str, instead: str, message: str, tmp_path: Path) -> None:
    assert written in MAPPING
    with pytest.raises(ConfigurationError) as error:
        jobs(tmp_path, MAPPING.replace(written, instead))
    assert message in "\n".join(error.value.lines)
