"""Runs scripts on the backends that were asked for, compares what they saw, and makes a finding of every difference."""

from collections.abc import Callable
from typing import Final, TypeAlias

import msgspec

from migrator.errors import MigratorError
from migrator.result import FAILED, PASSED, Cell, Exhibit, Finding, Tally
from migrator.store.scratch import fresh
from migrator.verify.behaviour.craft import Craft
from migrator.verify.behaviour.ground import Ground
from migrator.verify.behaviour.notes import Failure, Notes, could_not_tell
from migrator.verify.behaviour.plain import differences
from migrator.verify.behaviour.scratch import scratch
from migrator.verify.check import Found, Run, judge
from migrator.verify.context import Context

BOTH: Final = "both backends"


class Script(msgspec.Struct, frozen=True):
    """A script of calls, and what holds when it goes as expected, as a few words."""

    name: str
    play: Callable[[Ground, Notes], None]
    only: tuple[str, ...] = ("postgres", "mongo")
    """The backends that have what it is about."""


Played: TypeAlias = dict[str, Notes]
"""By backend."""


def behave(*scripts: Script, tables: tuple[str, ...]) -> Run:
    """Return a check's function that plays scripts, each in emptied scratch tenants.

    ``tables`` are those that the scripts read and write: the squares of the coverage map.
    """

    def run(context: Context) -> Found:
        return found(context, scripts, play(context, scripts), tables)

    return run


def play(context: Context, scripts: tuple[Script, ...]) -> dict[str, Played]:
    """Play scripts on every backend; return the notes by script, then by backend."""
    craft = context.craft or Craft()
    played: dict[str, Played] = {script.name: {} for script in scripts}
    name = fresh()  # the same on both, so that ids are the same
    for backend in context.backends:
        with scratch(context.settings, backend, craft, name) as place:
            for number, script in enumerate(scripts):
                if backend not in script.only:
                    continue
                if number:
                    place.clear()
                notes = Notes()
                try:
                    script.play(Ground(place, script.name), notes)
                except MigratorError as error:
                    if could_not_tell(error):
                        raise
                    notes.broke(error)
                played[script.name][backend] = notes
    return played


def found(context: Context, scripts: tuple[Script, ...], played: dict[str, Played], tables: tuple[str, ...]) -> Found:
    """Return what scripts found, as a check says it."""
    failures = [
        (script.name, backend, failure)
        for script in scripts
        for backend, notes in played[script.name].items()
        for failure in notes.failures
    ]
    failures += [(script.name, BOTH, one) for script in scripts for one in _disagreements(played[script.name])]
    noted = [notes for each in played.values() for notes in each.values()]
    expected = sum(notes.expected for notes in noted)
    outcome = judge(wrong=bool(failures), unsure=() if expected else ("no expectation was looked at",))
    rows = tuple(
        (script.name, backend, notes.expected, len(notes.failures))
        for script in scripts
        for backend, notes in played[script.name].items()
    )
    columns = ("script", "backend", "expectations", "not met")
    return Found(
        outcome=outcome,
        counts={
            "scripts": len(scripts),
            "backends": len(context.backends),
            "expectations": expected,
            "differences": len(failures),
        },
        cells=tuple(
            Cell(table=table, outcome=FAILED if failures else PASSED, count=expected, unit="expectations")
            for table in tables
        ),
        tallies=_tallies(failures),
        findings=tuple(
            Finding(severity="difference", cause="behaviour", key=f"{script}: {one.what}", side=side, words=one.words)
            for script, side, one in failures
        )[: context.listed],
        findings_total=len(failures),
        exhibits=(
            Exhibit(kind="table", title="What was tried", columns=columns, rows=rows, rows_total=len(rows)),
            *(one for notes in noted for one in notes.exhibits),
        ),
        varying=tuple(one for notes in noted for one in notes.varying),
        machines=tuple(one for notes in noted for one in notes.machines),
        measurements=tuple(one for notes in noted for one in notes.measurements),
    )


def _tallies(failures: list[tuple[str, str, Failure]]) -> tuple[Tally, ...]:
    sides: dict[tuple[str, str], list[Failure]] = {}
    for script, side, failure in failures:
        sides.setdefault((script, side), []).append(failure)
    return tuple(
        Tally(
            severity="difference",
            cause="behaviour",
            collection=side,
            path=script,
            title=f"not met on {side}: {script}",
            fix="the scheduler does not do what it must: look at the expectation, and at what was changed last",
            count=len(own),
            keys=tuple(dict.fromkeys(one.what for one in own))[:3],
        )
        for (script, side), own in sorted(sides.items())
    )


def _disagreements(played: Played) -> list[Failure]:
    """Return where the backends answered differently; what came after the first such answer is not compared."""
    if len(played) < 2:  # noqa: PLR2004 - one side agrees with itself
        return []
    (_, first), (_, second) = sorted(played.items())
    for (what, one), (_, other) in zip(first.seen, second.seen, strict=False):
        if one != other:
            return [Failure(what, tuple(differences(one, other))[:3])]
    if len(first.seen) != len(second.seen):
        return [Failure("as many answers", (f"{len(first.seen)} against {len(second.seen)}",))]
    return []
