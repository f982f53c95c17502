"""What the pages say of each check, made from the checks and the mutations: parts of report.md and verifiers.md."""

import re
from collections.abc import Iterable, Iterator, Sequence

from migrator.report.areas import AREAS
from migrator.testing.mutations import MUTATIONS
from migrator.testing.mutations.mutation import Mutation
from migrator.verify.check import CheckSpec

BEGIN = "<!-- made from the checks and the mutations: UPDATE_GOLDEN=1 pytest tests/unit/test_docs.py -->"
END = "<!-- up to here -->"
LATER = ("down migration that fails on real rows", "row moved after cutover lost by rollback")
"""Faults of the list of capabilities that no stored row shows, and for which there is no mutation."""

HEADINGS = {
    "parity": ("## Data: missing, extra and different rows",),
    "semantics": ("## Data: semantics", "", "Failures that none of these checks sees are left out."),
    "schema": ("## Schema",),
}
"""The areas whose checks are columns of a table of their own."""
LINKED = {
    "policies decide": "policy",
    "a chunk": "chunk",
    "dangling reference": "dangling-reference",
    "outbox": "outbox",
    "transition": "transitions",
    "slot": "slot",
    "reverse sync": "reverse-sync",
}
"""Terms of the table of the report that are linked to their definition where they are first used."""
_SMALL = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


def between_marks(page: str, begin: str = BEGIN) -> str:
    """Return the part of a page that is made, its marks included; ``begin``: the first one."""
    return page[page.index(begin) : page.index(END) + len(END)]


def fails_if(specs: Iterable[CheckSpec]) -> str:
    """Return the table of ``docs/report.md``: what makes each check fail."""
    rows = "\n".join(f"| `{spec.id}` | {spec.fails_if} |" for spec in specs)
    for term, anchor in LINKED.items():
        rows = re.sub(rf"\b{term}\b", f"[{term}](glossary.md#{anchor})", rows, count=1)
    return f"{BEGIN}\n\n| check | fails if |\n|---|---|\n{rows}\n\n{END}"


def mutations_by_check(specs: Sequence[CheckSpec], mutations: Sequence[Mutation] = MUTATIONS) -> str:
    """Return the tables of ``docs/verifiers.md``: mutation by check."""
    lines = [BEGIN, ""]
    for area, heading in HEADINGS.items():
        kind = AREAS[area].mutations
        checks = [spec.id for spec in specs if spec.area == area and spec.can_fail]
        own = [one for one in mutations if one.kind == kind]
        lines += [*heading, "", *_table(own if area != "semantics" else _seen(own, checks), checks), ""]
    lines += ["## Behaviour", "", "| failure | turns red |", "|---|---|"]
    behaviour = [one for one in mutations if one.kind == "behaviour"]
    lines += [f"| {one.name} | {', '.join(f'`{check}`' for check in one.caught_by)} |" for one in behaviour]
    return "\n".join([*lines, "", "No stored row shows these; other tests must: " + "; ".join(LATER) + ".", "", END])


def _seen(mutations: Iterable[Mutation], checks: Sequence[str]) -> list[Mutation]:
    return [one for one in mutations if any(check in one.caught_by or one.sometimes_when(check) for check in checks)]


def _table(mutations: Iterable[Mutation], checks: Sequence[str]) -> Iterator[str]:
    """Yield the lines of a table, and of the notes under it."""
    notes: dict[str, int] = {}
    yield "| failure | " + " | ".join(f"`{check.partition('.')[2]}`" for check in checks) + " |"
    yield "|---" * (len(checks) + 1) + "|"
    for one in mutations:
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
