"""The profiles that the mapping language describes make of every recorded document what the code before it made."""

import json
from collections import Counter

import pytest

from tests.ports import PROFILES, RECORDED, TABLES, digest, outcomes, recorded, show, structure

LINES = {profile: recorded(profile) for profile in PROFILES}
COLLECTIONS = [
    (profile, collection) for profile, lines in LINES.items() for collection in dict.fromkeys(one[0] for one in lines)
]
_NAN = "JSON has null in place of NaN, and a null member is not written: the remainder adds the field, not corrects it"
_NAN_FIELDS = [
    f"field/{base}/{name}" for base in (0, 1) for name in ("duration", "failCount", "retryAttempt", "retryDelay")
]
EXCEPTIONS = {
    "agenda agenda_logs tenant changes/4 38": _NAN,
    **{f"agenda agenda_logs tenant {field} 19": _NAN for field in _NAN_FIELDS},
    **{
        f"agenda agenda_logs tenant field/{base}/level {value}": "JavaScript code is an unknown word, not a wrong type"
        for base in (0, 1)
        for value in (33, 34)
    },
    **{
        f"stellaops triggers {context} field/{base}/eventName 7": "too long for its index: the document is quarantined"
        for context in ("tenant", "store")
        for base in (0, 3)
    },
    **{
        f"support-center scheduled_jobs no-tenant base {base}": "no tenant and no parent: the tenant is asked for first"
        for base in (14, 19)
    },
}
"""Documents that become something else than before, and why."""


@pytest.mark.parametrize(("profile", "collection"), COLLECTIONS)
def test_a_document_becomes_what_it_became_before(profile: str, collection: str) -> None:
    found = {
        f"{profile} {line.key} {number}"
        for line, digests in LINES[profile].items()
        if line.collection == collection
        for number, (before, facts) in enumerate(zip(digests, outcomes(profile, line), strict=True))
        if digest(line, facts) != before
    }
    expected = {case for case in EXCEPTIONS if case.startswith(f"{profile} {collection} ")}
    assert expected <= found, "an exception that is none"
    different = sorted(found - expected)
    if different:
        first = different[:5]
        named = " ".join(f"'{case}'" for case in first)
        pytest.fail(
            f"{len(different)} documents became something else, such as:\n\n"
            + "\n".join(map(show, first))
            # What it was: a worktree of the commit that wrote the record has the code of then.
            + f"\ncompare with a worktree of an earlier commit: python -m tests.ports compare FOLDER {named}",
            pytrace=False,
        )


@pytest.mark.parametrize("profile", PROFILES)
def test_the_collections_are_described_as_before(profile: str) -> None:
    before = json.loads((RECORDED / f"{profile}-collections.json").read_text(encoding="utf-8"))
    assert structure(profile) == before


@pytest.mark.parametrize("profile", PROFILES)
def test_the_record_holds_documents_of_every_outcome(profile: str) -> None:
    found: Counter[str] = Counter()
    for line in LINES[profile]:
        if line.what.startswith(("base", "fixture", "demo", "changes")):
            for facts in outcomes(profile, line):
                found["clean" if "remainder: {}" in facts else facts[0].partition(":")[0]] += 1
    wanted = {"clean", "finding", "rejected", *(["skipped"] if profile == "stellaops" else [])}
    if profile not in TABLES:
        wanted.add("remainder")
    assert all(found[one] > 15 for one in wanted), found
