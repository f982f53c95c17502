"""Area library: the library itself reads, computes and executes a scratch copy of its tables.

One examination serves every check. What differs between libraries is in ``migrator/targets/library_rules.py``.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

from migrator.result import PASSED, Finding, Outcome, Tally, not_applicable, unverified
from migrator.sources import profile_of
from migrator.targets import SHIPPED, load_target
from migrator.targets.library import LibraryError
from migrator.targets.library_rules import RULES, Part
from migrator.verify import library_examination
from migrator.verify.check import CheckContext, CheckResult, CheckSpec, outcome_of
from migrator.verify.library_examination import PartResult

PARTS: Final[tuple[Part, ...]] = ("entries", "fires", "work", "locks")
_CAUSES: Final = {
    "library-missing": ("the library does not list an entry of the source", "call migrator parity"),
    "library-extra": ("the library lists an entry that the source does not have", "call migrator parity"),
    "library-differs": ("the library says something else of an entry than on the source", "call migrator parity"),
    "library-rule": (
        "the library computes other next fires than the rule of an entry has",
        "compare the version of the library with docs/cron.md",
    ),
    "library-fires": ("an entry has other next fires than on the source", "compare the versions of the library"),
    "library-idle": ("the library does not execute an entry that is due", "start the library on a copy, and look"),
    "library-twice": ("the library executes one fire twice", "start the library on a copy, and look"),
    "library-unasked": ("the library executes an entry that is not due", "start the library on a copy, and look"),
    "library-raised": ("the library fails to execute an entry", "start the library on a copy, and look"),
    "library-lock": ("the library does not heed who holds an entry", "start the library on a copy, and look"),
}
"""Cause → in words, and what most often corrects it."""


def check_part(context: CheckContext, *, part: Part) -> CheckResult:
    """Return the result of a part of the examination; it is made once, with all parts that were asked for."""
    target = load_target(profile_of(context.settings.source, context.settings.target).target)
    if target.name not in RULES:
        if target.name in SHIPPED:
            return CheckResult(
                outcome=unverified(f"the library of the target {target.name} is not asked by this version")
            )
        return CheckResult(outcome=not_applicable(f"no library is known that reads the tables of {target.name}"))
    if reason := RULES[target.name].inapplicable.get(part):
        return CheckResult(outcome=not_applicable(reason))
    wanted = [one for one in PARTS if context.request.wants(f"library.{one}")]
    try:
        results = context.shared("library", partial(library_examination.examine, context, wanted))
        answer = results[part]
        if isinstance(answer, LibraryError):
            raise answer
    except LibraryError as error:  # nothing is known about the data, and nothing of the tool's has failed
        return CheckResult(outcome=unverified(str(error)))
    if not isinstance(answer, PartResult):
        raise answer
    return _result(context, answer)


def _result(context: CheckContext, part: PartResult) -> CheckResult:
    wrong = sum(part.causes.values())
    outcome: Outcome = outcome_of(wrong=bool(wrong), unsure=part.unsure)
    if outcome == PASSED and part.nothing:
        outcome = not_applicable(part.nothing)
    by_cause = {cause: [one.key for one in part.faults if one.cause == cause] for cause in part.causes}
    return CheckResult(
        outcome=outcome,
        counts={**part.counts, "differences": wrong},
        tallies=_explained(part.explained)
        + tuple(
            Tally(
                severity="difference",
                cause=cause,
                title=_CAUSES[cause][0],
                fix=_CAUSES[cause][1],
                count=count,
                keys=tuple(by_cause[cause][:5]),
            )
            for cause, count in part.causes.items()
        ),
        findings=tuple(
            Finding(severity="difference", cause=one.cause, key=one.key, details=(one.words,))
            for one in part.faults[: context.listed]
        ),
        findings_total=wrong,
    )


_EXPLAINED: Final = {
    "library-alone": (
        "next fires that the library alone computes: a fault of it that both sides have is not seen",
        "the library says them, for this tool does not compute their rule (docs/targets.md)",
    ),
    "library-fails": (
        "the library ends with an error before it has computed every next fire of an entry, on both sides",
        "it does so in the application too, before the copy and after it",
    ),
}
"""Cause of what is no difference → in words, and why it is none."""


def _explained(entries: Mapping[str, Sequence[str]]) -> tuple[Tally, ...]:
    """Return the findings about entries that are not held against their rule."""
    return tuple(
        Tally(
            severity="explained",
            cause=cause,
            title=_EXPLAINED[cause][0],
            fix=_EXPLAINED[cause][1],
            count=len(keys),
            keys=tuple(keys[:5]),
        )
        for cause, keys in entries.items()
        if keys
    )


_COPY: Final = "The library is asked about a scratch copy of its tables. It is not started on the tables themselves."
_STAND_INS: Final = "Handlers are stand-ins that do nothing. No code of the application is executed."

CHECKS = (
    CheckSpec(
        id="library.entries",
        title="The library lists every entry, and says of each what it says of the document",
        fails_if="the library lists other entries than in the source, or says something else of one",
        limits=(
            _COPY,
            "A document in quarantine has no row, and is not compared.",
            "Objects of classes of the application are compared by what they are made of.",
        ),
        source=True,
        run=partial(check_part, part="entries"),
    ),
    CheckSpec(
        id="library.fires",
        title="The library computes the same next fires as in the source",
        fails_if="the library computes other next fires for an entry than in the source, or than the tool computes of"
        " the same rule, across changes of the clock",
        limits=(
            _COPY,
            "A year from the day of the copy on is compared, and the days around each change of the clock in it.",
            "Of an entry that fires often the first fires in each of these are compared.",
            "Jitter, which is random, is left out.",
            "The tool itself computes the fires of most rules. The others are counted, and named as a finding.",
        ),
        source=True,
        run=partial(check_part, part="fires"),
    ),
    CheckSpec(
        id="library.work",
        title="The library executes each entry that is due once, and no other",
        fails_if="the library does not execute an entry that is due, executes a fire twice, or one that is not due",
        limits=(
            _COPY,
            _STAND_INS,
            "Entries are executed at the first instants at which some are due, not all of them.",
        ),
        run=partial(check_part, part="work"),
    ),
    CheckSpec(
        id="library.locks",
        title="The library leaves alone what another process holds",
        fails_if="the library executes an entry that another process holds, or leaves one that nobody holds",
        limits=(_COPY, _STAND_INS, "Half of the entries that are due are held, in the scratch copy."),
        run=partial(check_part, part="locks"),
    ),
)
