"""Why two values differ, as far as the values show it; what most often corrects it; and its description in words.

``classify`` looks at one place only. ``stale`` (the document changed after it was copied) and ``foreign-writer`` (a row
was written by another program) need more than the two values; ``parity.compare`` sets them where it knows.

DeepDiff describes the first few differences and decides nothing: equality is decided on canonical bytes. DeepDiff is a
thousand times slower than a comparison, and its equality is another one. Paths and types are named, types as BSON
and PostgreSQL call them; values only when asked for. The behaviour checks use the same words.
"""

import math
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any, Final, Literal, TypeAlias

import msgspec
from bson import Decimal128, Int64

from migrator.values.document import type_name

CauseCode: TypeAlias = Literal[
    "absent-null",
    "deleted-row",
    "empty-kind",
    "encoding",
    "extra-row",
    "foreign-row",
    "foreign-writer",
    "keys",
    "missing-row",
    "number",
    "number-precision",
    "number-type",
    "order",
    "quarantine-changed",
    "quarantine-entry",
    "quarantine-loadable",
    "reference",
    "reference-unrecorded",
    "never-firing-schedule",
    "stale",
    "text",
    "text-form",
    "text-truncated",
    "time",
    "time-precision",
    "time-zone",
    "type",
    "unquarantined",
    "value",
]
"""Stable codes: reports, filters and scripts use them."""


class Cause(msgspec.Struct, frozen=True):
    """A cause in words: what it is, and what to do about it."""

    title: str
    fix: str


_UNLESS_USED = "if no application works on PostgreSQL yet, run backfill again"
_AGAIN = f"{_UNLESS_USED}: it writes only the rows that differ"
_OVERWRITE = f"{_UNLESS_USED} with --overwrite-changed-rows, which"
_CODEC = "compare the field with the profile's decode and encode; a difference of this kind is a fault of the codec"

CAUSES: Final[Mapping[CauseCode, Cause]] = {
    "absent-null": Cause("present on one side, absent or null on the other", _CODEC),
    "deleted-row": Cause(
        "a document whose row another program has deleted",
        f"stop the other program; {_OVERWRITE} inserts the row again",
    ),
    "empty-kind": Cause("two different kinds of empty: {}, [], an empty text", _CODEC),
    "encoding": Cause("NUL or a replacement character where the other side has the original", _CODEC),
    "extra-row": Cause(
        "a row of this source without a document",
        "the document was deleted after it was copied, or another program wrote the row; find out which, and remove it",
    ),
    "foreign-row": Cause(
        "a row of a library's table that was not copied from this source",
        "another program wrote it: find out which, stop it, and remove the row if nobody needs it",
    ),
    "foreign-writer": Cause(
        "the row was written by another program",
        f"stop the other writer; {_AGAIN} (in a library's tables with --overwrite-changed-rows)",
    ),
    "keys": Cause("a key is missing or new inside the value", _CODEC),
    "missing-row": Cause("a document without its row", f"{_UNLESS_USED}: it writes the rows that are missing"),
    "number": Cause("a different number", _AGAIN),
    "number-precision": Cause("numbers that differ in their last places", _CODEC),
    "number-type": Cause("the same number in another type (int32, int64, double, decimal)", _CODEC),
    "order": Cause("the same members in another order", _CODEC),
    "quarantine-changed": Cause(
        "a quarantined document that changed at the source",
        "call quarantine retry: it brings the entry up to date; else find out who changed the entry",
    ),
    "quarantine-entry": Cause(
        "an entry of the quarantine that gives another reason than its document",
        "find out who changed the entry, then call quarantine retry: it writes the present reason",
    ),
    "quarantine-loadable": Cause(
        "a quarantined document that can be loaded now",
        "call quarantine retry: it loads the document",
    ),
    "reference": Cause(
        "a reference to another document, or a dangling one",
        "run backfill again, parents first: references are resolved while loading",
    ),
    "reference-unrecorded": Cause(
        "a dangling reference that is not recorded: the tail would not resolve it",
        "call parity --repair apply: it reads the document again, and records the reference",
    ),
    "never-firing-schedule": Cause(
        "an enabled schedule with a rule and without an enabled trigger: it never fires",
        "call parity --repair apply: it creates the trigger again from the schedule's document",
    ),
    "stale": Cause("the document changed after it was copied", _AGAIN),
    "text": Cause("a different text", _AGAIN),
    "text-form": Cause("the same text in another Unicode form, letter case or white space", _CODEC),
    "text-truncated": Cause("one text is the beginning of the other", _CODEC),
    "time": Cause("a different time", _AGAIN),
    "time-precision": Cause("times that differ by less than a second", _CODEC),
    "time-zone": Cause(
        "times that differ by whole quarters of an hour, as zones do",
        "look for a local time that was read as UTC, in the codec or by another writer",
    ),
    "type": Cause("values of different types", _CODEC),
    "unquarantined": Cause(
        "a document that cannot become rows, and is not in quarantine",
        "correct it in the source, or run backfill again: it quarantines the document",
    ),
    "value": Cause("a different value", _AGAIN),
}


class Absent(Enum):
    """The value of a field that is not there, which is not the same as null."""

    ABSENT = "absent"


ABSENT: Final = Absent.ABSENT

_WIDEST_ZONE = timedelta(hours=14)
_QUARTER = timedelta(minutes=15)
_NEARLY = Decimal("1e-9")
_EMPTY: tuple[Any, ...] = ({}, [], "")
_LOST_TEXT = ("\x00", "\ufffd")


def classify(expected: object, actual: object) -> CauseCode:
    """Return why ``actual`` is not ``expected``; either may be ``ABSENT``. The caller knows that they differ."""
    for fits, judge in _CLASSIFIERS:
        if fits(expected, actual):
            return judge(expected, actual)
    return "value" if type(expected) is type(actual) else "type"


def _nothing(value: object) -> bool:
    return value is None or value is ABSENT


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float, Decimal128, Decimal)) and not isinstance(value, bool)


def _times(expected: datetime, actual: datetime) -> CauseCode:
    if (expected.tzinfo is None) != (actual.tzinfo is None):
        return "time-zone"
    apart = abs(expected - actual)
    if apart < timedelta(seconds=1):
        return "time-precision"
    return "time-zone" if apart <= _WIDEST_ZONE and not apart % _QUARTER else "time"


def _numbers(expected: object, actual: object) -> CauseCode:
    first, second = _decimal(expected), _decimal(actual)
    if first is None or second is None or first == second:
        return "number-type" if type(expected) is not type(actual) else "number"
    largest = max(abs(first), abs(second))
    return "number-precision" if abs(first - second) <= largest * _NEARLY else "number"


def _decimal(value: object) -> Decimal | None:
    """Return the number, exactly; None for NaN and the infinities."""
    if isinstance(value, Decimal128):
        value = value.to_decimal()
    if isinstance(value, float):
        return Decimal(value) if math.isfinite(value) else None
    if isinstance(value, Decimal):
        return value if value.is_finite() else None
    return Decimal(int(value)) if isinstance(value, (int, Int64)) else None


def _texts(expected: str, actual: str) -> CauseCode:
    if any((mark in expected) != (mark in actual) for mark in _LOST_TEXT):
        return "encoding"
    if _folded(expected) == _folded(actual):
        return "text-form"
    shorter, longer = sorted((expected, actual), key=len)
    return "text-truncated" if shorter and longer.startswith(shorter) else "text"


def _folded(text: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def _mappings(expected: Mapping[Any, Any], actual: Mapping[Any, Any]) -> CauseCode:
    if set(expected) != set(actual):
        return "keys"
    inner = {classify(expected[key], actual[key]) for key in expected if expected[key] != actual[key]}
    if not inner:
        return "number-type"
    return inner.pop() if len(inner) == 1 else "value"


def _sequences(expected: Sequence[Any], actual: Sequence[Any]) -> CauseCode:
    if len(expected) != len(actual):
        return "value"
    if sorted(map(repr, expected)) == sorted(map(repr, actual)):
        return "order"
    inner = {classify(one, other) for one, other in zip(expected, actual, strict=True) if one != other}
    return inner.pop() if len(inner) == 1 else "value"


_Fits: TypeAlias = Callable[[Any, Any], bool]
_Classifier: TypeAlias = Callable[[Any, Any], CauseCode]

_CLASSIFIERS: Final[tuple[tuple[_Fits, _Classifier], ...]] = (
    (lambda a, b: _nothing(a) or _nothing(b), lambda _a, _b: "absent-null"),
    (lambda a, b: isinstance(a, datetime) and isinstance(b, datetime), _times),
    (lambda a, b: _is_number(a) and _is_number(b), _numbers),
    (lambda a, b: any(a == one for one in _EMPTY) and any(b == one for one in _EMPTY), lambda _a, _b: "empty-kind"),
    (lambda a, b: isinstance(a, str) and isinstance(b, str), _texts),
    (lambda a, b: isinstance(a, Mapping) and isinstance(b, Mapping), _mappings),
    (lambda a, b: isinstance(a, (list, tuple)) and type(a) is type(b), _sequences),
)
"""The first pair that fits decides; the order matters: an empty text is an empty kind before it is a text."""


MAX_LINES: Final = 5
"""Of one difference."""

LONGEST_VALUE: Final = 160
"""Characters of a value that is shown."""

_SENTENCES: Final = {
    "dictionary_item_added": "{path} is only in {actual}",
    "dictionary_item_removed": "{path} is only in {expected}",
    "iterable_item_added": "{path} is only in {actual}",
    "iterable_item_removed": "{path} is only in {expected}",
    "type_changes": "{path} is {before} in {expected} and {after} in {actual}",
    "values_changed": "{path} differs ({before})",
}


def describe_difference(
    expected: object,
    actual: object,
    *,
    sides: tuple[str, str] = ("the source", "the target"),
    values: bool = False,
    lines: int = MAX_LINES,
) -> tuple[str, ...]:
    """Say where ``actual`` (of the second of ``sides``) is not ``expected`` (of the first), in at most ``lines`` lines.

    ``values``: each line ends with the values, in ``sides``' order. Where DeepDiff sees nothing although the canonical
    bytes differ (1 and 1.0, -0.0), a line of its own says so.
    """
    if expected is ABSENT or actual is ABSENT:
        return (f"the value is {_type_of(expected)} in {sides[0]} and {_type_of(actual)} in {sides[1]}",)
    sentences = sorted(_sentences(expected, actual, sides, values=values))
    if not sentences:
        return ("they look the same, and their typed bytes differ (int32, int64 and double, or the sign of zero)",)
    rest = len(sentences) - lines
    return (*sentences[:lines], f"and {rest} more") if rest > 0 else tuple(sentences)


def shown(value: object) -> str:
    """Return a value as text of at most ``LONGEST_VALUE`` characters."""
    text = value.isoformat() if isinstance(value, datetime) else repr(value)
    return text if len(text) <= LONGEST_VALUE else f"{text[: LONGEST_VALUE - 1]}…"


def _sentences(expected: object, actual: object, sides: tuple[str, str], *, values: bool) -> Iterator[str]:
    from deepdiff import DeepDiff  # noqa: PLC0415 - few need it: every worker would spend memory and time on it
    from deepdiff.helper import NotPresent  # noqa: PLC0415 - as above

    tree = DeepDiff(expected, actual, view="tree", ignore_nan_inequality=True, threshold_to_diff_deeper=0)
    for kind, levels in tree.items():
        for level in levels if isinstance(levels, Iterable) else ():
            sentence = _SENTENCES.get(kind, "{path} differs").format(
                path=path_of(level.path(output_format="list")),
                expected=sides[0],
                actual=sides[1],
                before=_type_of(level.t1),
                after=_type_of(level.t2),
            )
            values_shown = " and ".join(shown(one) for one in (level.t1, level.t2) if not isinstance(one, NotPresent))
            yield f"{sentence}: {values_shown}" if values else sentence


def _type_of(value: object) -> str:
    if value is ABSENT:
        return "absent"
    return type_name(value)


def path_of(steps: list[object]) -> str:
    """Return a field path as the reports write it: ``stats.queued``, ``images[3].digest``."""
    text = ""
    for step in steps:
        text += f"[{step}]" if isinstance(step, int) else f".{step}"
    return text.removeprefix(".") or "the value"
