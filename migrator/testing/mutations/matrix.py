"""Every mutation, and the tables of ``docs/verifiers.md``: mutation by check, made from the list alone."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from migrator.testing.mutations.behaviour import BEHAVIOUR_MUTATIONS
from migrator.testing.mutations.ledger import LEDGER_MUTATIONS
from migrator.testing.mutations.mutation import Mutation
from migrator.testing.mutations.rows import ROW_MUTATIONS, VALUE_MUTATIONS
from migrator.testing.mutations.schema import SCHEMA_MUTATIONS
from migrator.testing.mutations.triggers import TRIGGER_MUTATIONS

MUTATIONS: Final[tuple[Mutation, ...]] = (
    *ROW_MUTATIONS,
    *VALUE_MUTATIONS,
    *TRIGGER_MUTATIONS,
    *LEDGER_MUTATIONS,
    *SCHEMA_MUTATIONS,
    *BEHAVIOUR_MUTATIONS,
)
"""The mutations, in the order of the page."""

LATER: Final[tuple[str, ...]] = (
    "down migration that fails on real rows",
    "row moved after cutover lost by rollback",
)
"""Faults of the list of capabilities that no stored row shows, and for which there is no mutation yet."""


BEGIN: Final = "<!-- made from the list of corruptions: UPDATE_GOLDEN=1 pytest tests/unit/test_docs.py -->"
END: Final = "<!-- up to here -->"
_SMALL: Final = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")

PARITY: Final = tuple(
    f"parity.{name}"
    for name in (
        "documents",
        "rows",
        "extra",
        "columns",
        "aggregates",
        "losses",
        "quarantine",
        "ledger",
        "foreign",
        "round-trip",
    )
)
MEANING: Final = tuple(
    f"semantics.{name}" for name in ("fires", "scheduled", "summaries", "history", "counters", "priorities")
)
SCHEMA: Final = tuple(
    f"schema.{name}" for name in ("catalogue", "isolation", "comments", "validated", "enforced", "restored", "revision")
)


def page() -> str:
    """Return the part of the page that is made, its marks included."""
    data = [one for one in MUTATIONS if one.kind == "data"]
    lines = [
        BEGIN,
        "",
        "## Data: missing, extra and different rows",
        "",
        *_table(data, PARITY),
        "",
        "## Data: semantics",
        "",
        "Failures that none of these checks sees are left out.",
        "",
        *_table([one for one in data if _any(one, MEANING)], MEANING),
        "",
        "## Schema",
        "",
        *_table([one for one in MUTATIONS if one.kind == "schema"], SCHEMA),
    ]
    behaviour = [one for one in MUTATIONS if one.kind == "behaviour"]
    if behaviour:
        lines += ["", "## Behaviour", "", "| failure | turns red |", "|---|---|"]
        lines += [f"| {one.name} | {', '.join(f'`{check}`' for check in one.caught_by)} |" for one in behaviour]
    if LATER:
        lines += ["", "No stored row shows these; other tests must: " + "; ".join(LATER) + ".", ""]
    return "\n".join([*lines, END])


def _any(one: Mutation, checks: Iterable[str]) -> bool:
    return any(check in one.caught_by or one.sometimes_when(check) for check in checks)


def _table(classes: Sequence[Mutation], checks: Sequence[str]) -> Iterator[str]:
    """Yield the lines of a table, and of the notes under it."""
    notes: dict[str, int] = {}
    yield "| failure | " + " | ".join(f"`{check.partition('.')[2]}`" for check in checks) + " |"
    yield "|---" * (len(checks) + 1) + "|"
    for one in classes:
        name = one.name + (_mark(notes, one.note) if one.note else "")
        yield f"| {name} | " + " | ".join(_cell(one, check, notes) for check in checks) + " |"
    if notes:
        yield ""
        for note, number in notes.items():
            yield f"- {str(number).translate(_SMALL)} {note}"


def _cell(one: Mutation, check: str, notes: dict[str, int]) -> str:
    if check in one.caught_by:
        return "yes"
    when = one.sometimes_when(check)
    return f"sometimes{_mark(notes, when)}" if when else "no"


def _mark(notes: dict[str, int], note: str) -> str:
    return str(notes.setdefault(note, len(notes) + 1)).translate(_SMALL)
