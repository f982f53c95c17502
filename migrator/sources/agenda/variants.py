"""Which library wrote a job, and in which form: what it leaves out, what it writes as null, in which order.

The name of the variant is kept in ``schedules.schema_version``. ``encode`` writes a document the way that library does,
so that a document nobody else touched needs no remainder. Order matters only for speed: equality does not look at it.
"""

from collections.abc import Mapping
from functools import lru_cache
from itertools import islice
from typing import Any, Final, Literal

import msgspec

Form = Literal["created", "single", "unique"]
"""``every`` upserts by name, ``unique`` by the caller's query, everything else inserts."""

AGENDA_4: Final = "agenda-4"
"""Agenda 4 and 5, whose documents have the same shape."""
AGENDA_6: Final = "agenda-6"
HOKIFY: Final = "hokify"
PULSE: Final = "pulse"

_QUERY: Final[Mapping[Form, tuple[str, ...]]] = {"single": ("name", "type"), "unique": ("data", "name")}
"""Fields of the query of an upsert: the server puts them first, and sorts the others by name after them."""
_REPEAT: Final = ("repeatInterval", "repeatTimezone", "startDate", "endDate", "skipDays")
_STATE_HOKIFY: Final = ("failCount", "failReason", "failedAt", "lastFinishedAt", "lastRunAt", "progress")


class Variant(msgspec.Struct, frozen=True, kw_only=True):
    """One library's way of writing jobs."""

    name: str
    first: tuple[str, ...]
    """Fields of a job that has not run, in the order of an inserted one."""
    later: tuple[str, ...] = ()
    """Fields that are added when it is locked and runs, in that order."""
    always: frozenset[str]
    """Fields that are there in every job, null where there is nothing to say."""
    repeating: frozenset[str] = frozenset()
    """Fields that are there, null or not, in a job that repeats by interval or cron."""
    started: frozenset[str] = frozenset()
    """Fields that are there, null or not, in a job that has run."""
    saves_result: bool = False
    """``shouldSaveResult`` is always there, false unless the program asked for it."""
    completes: bool = False
    """An inserted job starts with what the program set; the library fills up the rest of its model after that."""


_VARIANTS: Final = (
    Variant(
        name=AGENDA_4,
        first=(
            *("name", "data", "priority", "shouldSaveResult", "type", "nextRunAt"),
            *(*_REPEAT, "repeatAt", "disabled", "lastModifiedBy"),
        ),
        later=("lockedAt", "lastRunAt", "failCount", "failReason", "failedAt", "lastFinishedAt", "result"),
        always=frozenset({"priority", "nextRunAt"}),
        saves_result=True,
        repeating=frozenset(_REPEAT),
        started=frozenset({"lockedAt"}),
    ),
    Variant(
        name=PULSE,
        first=(
            *("name", "data", "priority", "shouldSaveResult", "attempts", "backoff", "type", "nextRunAt"),
            *(*_REPEAT, "repeatAt", "disabled", "lastModifiedBy"),
        ),
        later=(
            *("lockedAt", "lastRunAt", "progress", "failCount", "failReason", "failedAt"),
            *("finishedCount", "lastFinishedAt", "result", "runCount"),
        ),
        always=frozenset({"priority", "nextRunAt", "attempts", "backoff"}),
        saves_result=True,
        repeating=frozenset(_REPEAT),
        started=frozenset({"lockedAt"}),
    ),
    Variant(
        name=HOKIFY,
        first=(
            *("name", "data", "type", "priority", "nextRunAt", *_REPEAT, "repeatAt", "disabled", "fork"),
            "lastModifiedBy",
        ),
        later=("lockedAt", *_STATE_HOKIFY),
        always=frozenset({"priority", "nextRunAt", "lastModifiedBy"}),
        repeating=frozenset({"repeatInterval", "repeatTimezone"}),
        started=frozenset({"lockedAt", *_STATE_HOKIFY}),
    ),
    Variant(
        name=AGENDA_6,
        first=(
            *("name", "data", "type", "priority", "nextRunAt", "lockedAt", "lastFinishedAt", "failedAt"),
            *("failCount", "failReason", "repeatTimezone", "lastRunAt", "repeatInterval", "repeatAt", "disabled"),
            *("progress", "debounceStartedAt", "fork", "startDate", "endDate", "skipDays", "lastModifiedBy"),
        ),
        always=frozenset(
            {
                *("priority", "nextRunAt", "lockedAt", "lastFinishedAt", "failedAt", "failCount", "failReason"),
                *("repeatTimezone", "lastRunAt", "repeatInterval", "repeatAt", "disabled", "progress"),
                *("debounceStartedAt", "fork", "startDate", "endDate", "skipDays", "lastModifiedBy"),
            }
        ),
        completes=True,
    ),
)
BY_NAME: Final[Mapping[str, Variant]] = {variant.name: variant for variant in _VARIANTS}
_FIELDS: Final = tuple(dict.fromkeys(name for each in _VARIANTS for name in (*each.first, *each.later)))


def recognise(document: Mapping[str, Any]) -> str:
    """Return the name of the variant that writes documents with these keys.

    Pulse alone counts runs and attempts; Agenda 6 writes every field of its model, null or not; 4 and 5 always say
    whether the result is to be saved; what is left is hokify's.
    """
    if "attempts" in document or "runCount" in document or "finishedCount" in document:
        return PULSE
    if "fork" in document and "disabled" in document and "repeatAt" in document:
        return AGENDA_6
    return AGENDA_4 if "shouldSaveResult" in document else HOKIFY


def is_unique(document: Mapping[str, Any]) -> bool:
    """Whether the job was saved as ``unique``, which no field says: its data then stands before its name."""
    return next(islice(document, 1, None), None) == "data"


def put_off(document: Mapping[str, Any], name: str) -> bool:
    """Whether the first run was put off (``skipImmediate``).

    The libraries that leave unset fields out then write a null ``lastRunAt``.
    """
    return not BY_NAME[name].completes and "lastRunAt" in document and document["lastRunAt"] is None


def completed(
    fields: Mapping[str, Any], variant: Variant, facts: Mapping[str, Any], *, repeats: bool
) -> dict[str, Any]:
    """Return the fields, and those that the library writes even where there is nothing to say."""
    nulls = _nulls(variant.name, repeats=repeats, has_run="lastRunAt" in fields, is_put_off="skipImmediate" in facts)
    document = {**nulls, **fields}
    if variant.saves_result:
        document["shouldSaveResult"] = facts.get("shouldSaveResult", False)
    return document


@lru_cache(maxsize=64)
def _nulls(name: str, *, repeats: bool, has_run: bool, is_put_off: bool) -> dict[str, None]:
    """Return the fields that the library writes in such a job, null where there is nothing to say."""
    variant = BY_NAME[name]
    written = set(variant.always)
    if repeats:
        written |= variant.repeating
    if has_run:
        written |= variant.started
    if is_put_off:
        written.add("lastRunAt")
    return dict.fromkeys(written)


def order(variant: Variant, facts: Mapping[str, Any], fields: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the known fields in the order in which the library writes them in such a job, without ``_id``."""
    form: Form = "single" if facts.get("type") == "single" else "unique" if "unique" in facts else "created"
    set_first: tuple[str, ...] = ()
    if variant.completes:
        repeat = ("repeatInterval", "repeatTimezone") if fields.get("repeatInterval") is not None else ()
        set_first = (*repeat, *(name for name in ("repeatAt", "disabled") if fields.get(name) is not None))
    return _order(variant.name, form, set_first, never_run="skipImmediate" in facts)


@lru_cache(maxsize=256)
def _order(name: str, form: Form, set_first: tuple[str, ...], *, never_run: bool) -> tuple[str, ...]:
    """Return the fields in the library's order, then all other known fields.

    ``set_first`` are those that the program set before it saved an inserted job, where the library completes the rest.
    ``never_run`` is for a job whose first run was put off: it then has a null ``lastRunAt`` from the beginning.
    """
    variant = BY_NAME[name]
    first = variant.first
    if never_run and "lastRunAt" not in first:
        first = (*first[:-1], "lastRunAt", first[-1])
    if form != "created":
        query = _QUERY[form]
        first = (*query, *sorted(set(first).difference(query)))
    elif variant.completes:
        cut = first.index("nextRunAt") + 1
        first = (*first[:cut], *set_first, *first[cut:])
    return tuple(dict.fromkeys((*first, *variant.later, *_FIELDS)))
