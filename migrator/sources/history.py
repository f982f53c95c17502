"""History: documents that are finished, and so old that a copy leaves them out; the rule as a filter of MongoDB.

The filter alone decides, for the copy, the tail, the parity check and the counts. A document of which a field has an
odd type or value is not left out: it is read, and judged like any other.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from migrator import states
from migrator.sources import aggregates
from migrator.sources.profile import Collection

RUN_STATE = "runs.state"
"""The column whose words say whether a run is finished."""


def finished_words(words: Mapping[Any, Any]) -> tuple[str, ...]:
    """Return those of a source's words that mean a state of a run which it never leaves."""
    return tuple(
        word for word, state in words.items() if isinstance(word, str) and state in states.RUN and not states.RUN[state]
    )


def unfinished_words(words: Mapping[Any, Any], chosen: Sequence[str]) -> list[str]:
    """Return those of the chosen words that do not mean a state which a run never leaves."""
    return sorted(set(chosen).difference(finished_words(words)))


def left_out(collection: Collection, before: datetime | None) -> dict[str, Any]:
    """Return the filter of the documents that are left out; empty if none are."""
    history = collection.history
    if history is None or before is None:
        return {}
    finished = aggregates.milliseconds(f"${history.at}")
    conditions: list[Any] = [
        {"$gt": [finished, None]},
        {"$lt": [finished, {"$toLong": before.astimezone(UTC).replace(tzinfo=None)}]},
    ]
    for path, texts in history.words.items():
        conditions += [{"$eq": [{"$type": f"${path}"}, "string"]}, {"$in": [f"${path}", list(texts)]}]
    conditions += [{"$eq": [{"$ifNull": [f"${path}", None]}, None]} for path in history.empty]
    if history.begun:
        begun = aggregates.milliseconds(f"${history.begun}")
        conditions += [{"$gt": [begun, None]}, {"$lte": [begun, finished]}]
    # the first two say nothing that the third does not say: by them the server may use an index
    return {
        **{path: {"$in": list(texts)} for path, texts in history.words.items()},
        "$or": [{history.at: {"$lt": before}}, {history.at: {"$type": "string"}}],
        "$expr": {"$and": conditions},
    }


def in_scope(collection: Collection, before: datetime | None) -> dict[str, Any]:
    """Return the filter of the documents that are not left out; empty if none are left out."""
    condition = left_out(collection, before)
    return {"$nor": [condition]} if condition else {}


def rule(before: datetime) -> str:
    """Return the name of the rule, as reports count by it."""
    return f"history: finished before {before.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
