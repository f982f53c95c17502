"""Words for a few differences; equality is decided elsewhere, on canonical bytes.

DeepDiff does the wording only: it is a thousand times slower than a comparison, and its idea of equality is its own.
Paths and types are named, types as BSON and PostgreSQL call them; values only when asked for.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final

from migrator.parity.causes import ABSENT
from migrator.values.bsontypes import type_name

LINES: Final = 5
"""Of one difference."""

_VERBS: Final = {
    "dictionary_item_added": "{path} is only in the target",
    "dictionary_item_removed": "{path} is only in the source",
    "iterable_item_added": "{path} is only in the target",
    "iterable_item_removed": "{path} is only in the source",
    "type_changes": "{path} is {before} in the source and {after} in the target",
    "values_changed": "{path} differs ({before})",
}


def explain(expected: object, actual: object, *, values: bool = False, lines: int = LINES) -> tuple[str, ...]:
    """Say where ``actual`` (rebuilt, or stored) is not ``expected`` (the source's), in at most ``lines`` lines.

    Where DeepDiff sees nothing although the canonical bytes differ (1 and 1.0, -0.0), it says so in a line of its own.
    """
    if expected is ABSENT or actual is ABSENT:
        return (f"the value is {_kind(expected)} in the source and {_kind(actual)} in the target",)
    said = sorted(_sentences(expected, actual, values=values))
    if not said:
        return ("the same to the eye; the typed bytes differ (int32, int64 and double, or the sign of zero)",)
    rest = len(said) - lines
    return (*said[:lines], f"and {rest} more") if rest > 0 else tuple(said)


def _sentences(expected: object, actual: object, *, values: bool) -> Iterator[str]:
    from deepdiff import DeepDiff  # noqa: PLC0415 - slow to import, and needed only where something differs

    tree = DeepDiff(expected, actual, view="tree", ignore_nan_inequality=True, threshold_to_diff_deeper=0)
    for kind, levels in tree.items():
        for level in _levels(levels):
            sentence = _VERBS.get(kind, "{path} differs").format(
                path=path_of(level.path(output_format="list")),
                before=_kind(level.t1),
                after=_kind(level.t2),
            )
            yield f"{sentence}: {level.t1!r} and {level.t2!r}" if values else sentence


def _kind(value: object) -> str:
    if value is ABSENT:
        return "absent"
    return type_name(value)


def _levels(levels: Any) -> Iterable[Any]:  # noqa: ANN401 - DeepDiff's tree is untyped
    return levels if isinstance(levels, Iterable) else ()


def path_of(steps: list[object]) -> str:
    """Return a field path as the reports write it: ``stats.queued``, ``images[3].digest``."""
    text = ""
    for step in steps:
        text += f"[{step}]" if isinstance(step, int) else f".{step}"
    return text.removeprefix(".") or "the value"
