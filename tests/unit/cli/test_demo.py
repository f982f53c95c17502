"""What the demo says about documents in quarantine that were, or were not, planted there."""

import pytest

from migrator.cli.demo import fault_lines, manifest, unexpected_outcomes
from migrator.testing.demo import FaultyDocument, faulty_documents
from migrator.values import identity


def item(name: str, outcome: str = "quarantined", reason: str = "bad-date") -> FaultyDocument:
    return FaultyDocument(kind="odd", collection="runs", id=name, outcome=outcome, reason=reason, raw=b"")  # type: ignore[arg-type]


def test_nothing_is_said_when_quarantine_holds_what_was_planted() -> None:
    assert list(unexpected_outcomes((item("a"), item("b", "loaded", "alias")), {("runs", "a"): "bad-date"})) == []


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ({("runs", "a"): "bad-date", ("audit", "x"): "wrong-type"}, "audit x was quarantined: wrong-type"),
        ({}, "runs a was not quarantined, as expected: bad-date"),
        ({("runs", "a"): "no-tenant"}, "runs a was quarantined for no-tenant, not for bad-date"),
    ],
)
def test_every_surprise_is_said(found: dict[tuple[str, str], str], said: str) -> None:
    assert list(unexpected_outcomes((item("a"),), found)) == [said]


def test_the_manifest_lists_every_planted_document_on_a_line_of_its_own() -> None:
    items = faulty_documents()
    rows = [line for line in manifest(items).splitlines() if line.startswith("| ") and "expected outcome" not in line]
    assert len(rows) == len(items)
    for row, one in zip(rows, items, strict=True):
        assert row.count(" | ") == 4
        assert one.kind in row
        assert "\x00" not in row
        assert identity.source_id(one.id).replace("|", "\\|")[:80] in row


def test_the_kinds_add_up_to_the_documents() -> None:
    items = faulty_documents()
    assert sum(int(line.split(" x ")[0]) for line in fault_lines(items)) == len(items)
