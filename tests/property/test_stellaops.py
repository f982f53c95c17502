"""The law of the round trip, over documents that somebody has tampered with.

Whatever is done to a document: it is refused with a reason, or skipped by a rule, or the rows and their remainder
give it back (``travel`` proves that, through the JSON texts as PostgreSQL would return them), and every row can be
rendered.
"""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from migrator.records import Record
from migrator.sources.profile import Document, Rejected, Skipped
from migrator.values import document
from migrator.values.copy_format import NulInTextError, codec
from tests.cron_lines import DEEP
from tests.stellaops_documents import CANONICAL, travel
from tests.strategies_bson import keys, values

# Nothing here may depend on how busy the machine is.
PROFILE = settings(deadline=None, max_examples=50 if DEEP else 25, suppress_health_check=[HealthCheck.too_slow])
REASONS = {
    "wrong-type",
    "out-of-range",
    "missing-field",
    "unknown-value",
    "bad-date",
    "no-tenant",
    "too-long",
    "wrong-kind",
    "nul-in-tenant",
}
WORDS = st.sampled_from(
    [
        "",
        " ",
        "\0",
        "*",
        "canceled",
        "cancelled",
        "feedser",
        "by-repo",
        "analysisonly",
        "goj_1",
        "0 0 * * *",
        "UTC",
        "2025-11-02T08:00:00Z",
        "2025-11-02T08:00:00.1234567+00:00",
        "2025-11-02T08:00:00",
        "0001-01-01T00:00:00+14:00",
        "9999-12-31T23:59:59.9999999Z",
        "sch_0e5d7c1a9b3f4e6d8c2b1a0f9e8d7c6b",
        "n" * 2001,
    ]
)


def _places(value: Any, place: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:  # noqa: ANN401 - any BSON
    """List the places inside a document: of every member, and of every item."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [found for key, member in inner for found in [(*place, key), *_places(member, (*place, key))]]


@st.composite
def tampered(draw: st.DrawFn, collection: str) -> Document:
    """Return a canonical document after one to four changes anywhere in it."""
    made: Document = document.decode(draw(st.sampled_from(CANONICAL[collection])))
    for _ in range(draw(st.integers(1, 4))):
        places = _places(made)
        *steps, last = draw(st.sampled_from(places))
        holder: Any = made
        for step in steps:
            holder = holder[step]
        match draw(st.sampled_from(["drop", "null", "word", "value", "unknown", "rename"])):
            case "drop":
                del holder[last]
            case "null":
                holder[last] = None
            case "word":
                holder[last] = draw(WORDS)
            case "value":
                holder[last] = draw(values())
            case "unknown" if isinstance(holder, dict):
                holder[draw(keys())] = draw(values())
            case "rename" if isinstance(holder, dict):
                holder[draw(keys())] = holder.pop(last)
        if not made:
            made["_id"] = 1
    return made


@pytest.mark.parametrize("collection", CANONICAL)
@PROFILE
@given(data=st.data())
def test_a_document_is_refused_or_comes_back(collection: str, data: st.DataObject) -> None:
    try:
        trip = travel(collection, data.draw(tampered(collection)))
    except Rejected as refused:
        assert refused.reason in REASONS  # noqa: PT017 - either outcome will do
        return
    except Skipped:
        assert collection == "locks"
        return
    for row in trip.rows:
        _render(row)


def _render(row: Record) -> None:
    try:
        codec(type(row)).serialize(row)
    except NulInTextError:
        return
