"""What a target asks its user: declared as data, said in the settings, put where the mapping names it."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from migrator.config import SourceSettings, TargetSettings
from migrator.errors import ConfigurationError
from migrator.sources import profile_of
from migrator.sources.profile import Context, Profile, Rejected

MAPPING = """
[source]
name = "asking"

[target]
name = "asking"

[target.options]
owner = { meaning = "who owns the jobs", example = "me" }
zone = { meaning = "where the application runs", kind = "zone", default = "UTC", example = "Europe/Vienna" }
late = { meaning = "whether late jobs run", kind = "flag", default = false }
classes = { meaning = "classes with their annotations", kind = "lists", words = ["Alone"], example = { A = ["Alone"] } }

[target.tables.jobs]
key = ["id"]

[target.tables.jobs.columns]
id = "text not null"
owner = "text not null"
zone = "text not null"
late = "boolean not null"
alone = "boolean not null"

[collections.jobs]
tables = ["jobs"]

[collections.jobs.fields]
_id = { to = "jobs.id" }

[collections.jobs.constants]
jobs.owner = { option = "owner" }
jobs.zone = { option = "zone" }
jobs.late = { option = "late" }

[collections.jobs.choices]
jobs.alone = [{ if = "class", option = "classes", has = "Alone" }]
"""
SAID: dict[str, Any] = {"owner": "them", "classes": {"A": [], "B": ["Alone"]}}
CONTEXT = Context(as_of=datetime(2026, 11, 24, tzinfo=UTC))


def profile(folder: Path, options: dict[str, Any], mapping: str = MAPPING) -> Profile:
    path = folder / "asking.toml"
    path.write_text(mapping)
    return profile_of(SourceSettings(mapping=str(path)), TargetSettings(name="asking", options=options))


def columns(made: Profile, document: dict[str, Any]) -> tuple[Any, ...]:
    [row] = made.collections[0].decode(document, CONTEXT).rows
    held: Any = row
    return held.owner, held.zone, held.late, held.alone


def test_what_is_said_stands_in_the_rows(tmp_path: Path) -> None:
    made = profile(tmp_path, SAID)
    assert columns(made, {"_id": "1", "class": "A"}) == ("them", "UTC", False, False)
    assert columns(made, {"_id": "2", "class": "B"}) == ("them", "UTC", False, True)
    other = profile(tmp_path, {**SAID, "zone": "W. Europe Standard Time", "late": True})
    assert columns(other, {"_id": "2", "class": "B"}) == ("them", "Europe/Berlin", True, True)
    assert made.version != other.version


def test_a_document_that_the_lists_do_not_name_is_quarantined(tmp_path: Path) -> None:
    collection = profile(tmp_path, SAID).collections[0]
    for document in ({"_id": "1", "class": "C"}, {"_id": "1"}, {"_id": "1", "class": 1}):
        with pytest.raises(Rejected) as rejected:
            collection.decode(document, CONTEXT)
        refused = rejected.value
        assert (refused.reason, refused.path) == ("unknown-value", "class")
        assert refused.expected == "one of those that target.options.classes names"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"classes": {"A": []}}, "target.options.owner is not set: who owns the jobs"),
        ({**SAID, "ownr": "x"}, "target.options.ownr: the target asking has no such option; did you mean owner?"),
        ({**SAID, "owner": ""}, "target.options.owner: expected a text"),
        ({**SAID, "owner": 1}, "target.options.owner: expected a text"),
        ({**SAID, "late": "no"}, "target.options.late: expected true or false"),
        ({**SAID, "zone": "Nowhere/Town"}, "target.options.zone: "),
        ({**SAID, "zone": "Europe/Wien"}, "or a Windows zone name; did you mean Europe/Vienna?"),
        ({**SAID, "zone": 1}, "target.options.zone: expected the name of a time zone"),
        ({**SAID, "classes": {}}, "target.options.classes: expected at least one name, each with a list of words"),
        ({**SAID, "classes": {"A": "Alone"}}, "target.options.classes: expected at least one name"),
        ({**SAID, "classes": {"A": ["alone"]}}, "target.options.classes: expected .* of Alone"),
    ],
)
def test_what_is_said_wrongly_is_refused(options: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=message.replace("?", r"\?")):
        profile(tmp_path, options)


@pytest.mark.parametrize(
    ("written", "instead", "message"),
    [
        (
            'option = "owner" }',
            'option = "ownr" }',
            "option ownr: the target asking declares none of this name and kind",
        ),
        (
            'option = "classes"',
            'option = "owner"',
            "option owner: the target asking declares none of this name and kind",
        ),
        ('kind = "zone"', 'kind = "place"', "option zone: kind: expected one of text, flag, zone, lists"),
        ('meaning = "who owns the jobs", ', "", "option owner: meaning: expected what its value is, in words"),
        ('words = ["Alone"]', "words = [1]", "option classes: words: expected a list of texts"),
        ("example = { A", "exampel = { A", "unknown key exampel; did you mean example?"),
        ('{ option = "late" }', '{ option = "owner" }', "constant jobs.late of jobs: expected a value of type bool"),
    ],
)
def test_mistakes_of_a_mapping_are_told(written: str, instead: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as refused:
        profile(tmp_path, SAID, MAPPING.replace(written, instead))
    assert message in "\n".join(refused.value.lines)
