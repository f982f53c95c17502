"""The sentences and spellings of a report: what the verdict says, how numbers and keys are written."""

from collections import Counter
from typing import Final

import msgspec

from migrator.exit_status import TOOL_FAILED, UNVERIFIED
from migrator.report.areas import is_of_data
from migrator.result import (
    NAMED_LOSS,
    NOT_DUE,
    Area,
    Check,
    CutoverRecord,
    CutoverState,
    Evidence,
    Measurement,
    Policy,
    Requirement,
    Result,
    Status,
    Verdict,
)

STATUS_WORDS: Final[dict[Status, str]] = {
    "passed": "passed",
    "failed": "failed",
    "unverified": "not verified",
    "not-asked-for": "not asked for",
    "not-applicable": "not applicable",
}

VERDICT_WORDS: Final[dict[Verdict, str]] = {
    "equal": "Equal",
    "equal-but-quarantine": "Equal, with documents in quarantine",
    "accepted": "Equal, with failures declared acceptable",
    "different": "Not equal",
    "tool-failed": "Not finished",
    "unverified": "Not proven",
}

FAILED_WORD: Final = "Failed"
"""For ``different``, where what failed is not the data."""

STATE_WORDS: Final = {
    "running": "Interrupted",
    "aborted": "Undone",
    "cut-over": "Cut over",
    "rolled-back": "Rolled back",
    "finished": "Cut over, and finished",
}
IN_POSTGRES: Final = ("cut-over", "finished")
BEGUN: Final = ("running", *IN_POSTGRES)
"""States in which PostgreSQL holds the data."""

LOSS_WORDS: Final[dict[str, str]] = {
    "nan": "a number JSON does not have (NaN, an infinity)",
    "nul": "a text with NUL, which PostgreSQL refuses",
    "precision": "a time finer than a microsecond, or a number with more digits",
    "type": "a BSON type that the column does not tell apart",
}
"""Kinds of the loss ledger (``values.remainder``) in words."""

UNMET: Final = "not met"
"""The state of a gate that stops the cutover; one that cannot be told does not."""
GATES: Final = "cutover.gates"
"""The check that lists the gates of the cutover."""
_LISTED_DECISIONS: Final = 5
DROPPED: Final = "dropped"
"""Why a document is left out that a person dropped from quarantine (``parity.model``)."""
AFTER_CUTOVER: Final = frozenset({"0-T2.12.3", "4-B1", "4-B2", *(f"4-V{number}" for number in range(1, 7))})
"""Requirements of the time after a cutover. A verification can only rehearse them."""
_ALL_DOCUMENTS_OF: Final = {"4-Z1": "schedules", "4-Z3": "runs"}
"""Requirements that all documents are in a table of the target."""
_LISTED_CHECKS: Final = 4
_LONGEST_KEY: Final = 96
_SECOND: Final = 1_000
_MINUTE: Final = 60_000


def number(value: int) -> str:
    """Write a count as the commands do: ``20,272``."""
    return f"{value:,}"


def counted(value: int, one: str, many: str | None = None) -> str:
    """Write a count with its noun: ``1 document``, ``3 documents``."""
    return f"{number(value)} {one if value == 1 else many or one + 's'}"


def decimal(value: float) -> str:
    """Write a measurement: three digits that count, no more, and thousands apart."""
    if abs(value) >= 100:  # noqa: PLR2004 - three digits stand before the point
        return number(round(value))
    return f"{value:.1f}" if abs(value) >= 1 else f"{value:.3g}"


def measured(value: float, unit: str) -> str:
    """Write a measurement with its unit; one without a unit is a count, or a rate."""
    if not unit and float(value).is_integer():
        return number(int(value))
    return f"{decimal(value)} {unit}".rstrip()


def listed(names: list[str]) -> str:
    """Join names as a sentence does: ``a, b and c``."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}" if names else ""


def loss(kind: str) -> str:
    """Return a kind of the loss ledger in words."""
    return LOSS_WORDS.get(kind, kind)


def milliseconds(value: int) -> str:
    """Write a duration for a reader: ``840 ms``, ``12.4 s``, ``3 min 05 s``."""
    if value < _SECOND:
        return f"{value} ms"
    if value < _MINUTE:
        return f"{value / _SECOND:.1f} s"
    minutes, rest = divmod(value // _SECOND, 60)
    return f"{minutes} min {rest:02d} s"


def visible(text: str) -> str:
    """Return a key as one visible line: what does not print is spelled out, what is very long is cut in the middle.

    Spelling out also disarms the characters that turn the direction of a text.
    """
    shown = visible_text(text)
    if len(shown) <= _LONGEST_KEY:
        return shown
    half = _LONGEST_KEY // 2
    return f"{shown[:half]}…{shown[-half:]}"


def moment(text: str) -> str:
    """Return an ISO 8601 time in UTC as all pages write it, to the second; another text as it is."""
    day, apart, rest = text.partition("T")
    if not apart or not rest.endswith("+00:00"):
        return text
    return f"{day} {rest.removesuffix('+00:00').partition('.')[0]} UTC"


def visible_text(text: str) -> str:
    """Return a sentence that may quote a name: whole, and with everything visible."""
    return "".join(one if one.isprintable() else f"\\u{{{ord(one):x}}}" for one in text)


def request(policy: Policy) -> str:
    """Return the caller's request, in words."""
    parts = [
        f"{name} {listed(list(areas))}"
        for name, areas in (
            ("only", policy.only),
            ("without", policy.skip),
            ("failing on", policy.fail_on),
            ("accepting failures of", policy.accepted),
        )
        if areas
    ]
    parts += ["values of the first differences in a local file"] if policy.values_shown else []
    parts += ["scratch on the source's server"] if policy.scratch_on_source else []
    if policy.allow_quarantined:
        parts.append(f"allowing {policy.allow_quarantined} documents in quarantine")
    return "; ".join(parts) or "every check that needs no option"


def _data_failed(result: Result) -> bool:
    return any(one.outcome.status == "failed" and is_of_data(one.area) for one in result.evidence.checks)


def verdict_words(result: Result) -> str:
    """Return the verdict in a word or two."""
    if result.cutover is not None:
        return _cutover_words(result, result.cutover)
    verdict = result.verdict()
    return FAILED_WORD if verdict == "different" and not _data_failed(result) else VERDICT_WORDS[verdict]


_TONES: Final[dict[Verdict, Status]] = {
    "equal": "passed",
    "equal-but-quarantine": "passed",
    "accepted": "unverified",
    "different": "failed",
    "tool-failed": "failed",
    "unverified": "unverified",
}


def tone(result: Result) -> Status:
    """Return the sign of the verdict: that of a passed, a failed or an unverified check."""
    found = _TONES[result.verdict()]
    settled = result.cutover is None or result.cutover.state in IN_POSTGRES
    return found if settled or found == "failed" else "unverified"


def verdict_sentence(result: Result) -> str:
    """Return the verdict in one sentence, with what was declared acceptable."""
    if result.cutover is not None:
        return _cutover_sentence(result.cutover)
    sentence = _verdict_sentence(result)
    if result.verdict() in ("different", "tool-failed", "unverified") and result.evidence.quarantined:
        verb = "is" if result.evidence.quarantined == 1 else "are"
        quarantined = counted(result.evidence.quarantined, "document")
        sentence = f"{sentence.removesuffix('.')}; {quarantined} {verb} in quarantine."
    accepted = result.accepted_failures()
    if not accepted:
        return sentence
    areas = listed(list(dict.fromkeys(check.area for check in accepted)))
    was = "was" if len(accepted) == 1 else "were"
    return (
        f"{sentence.removesuffix('.')}; {counted(len(accepted), 'failed check')} of {areas} {was} declared acceptable."
    )


def _cutover_words(result: Result, record: CutoverRecord) -> str:
    """Return the state of the cutover, and whether a criterion is not met."""
    counts = result.statuses()
    if counts["failed"]:
        return f"{STATE_WORDS[record.state]}, with criteria not met"
    if counts["unverified"] and record.state in IN_POSTGRES:
        return f"{STATE_WORDS[record.state]}, with criteria not verified"
    return STATE_WORDS[record.state]


def _cutover_sentence(record: CutoverRecord) -> str:
    """Return in one sentence what became of the cutover."""
    name = record.environment
    if record.state == "running":
        return f"The cutover of {name} was interrupted; it must be finished or undone."
    if record.state == "aborted":
        return f"The cutover of {name} was undone before the point of no return; MongoDB holds the data, as before."
    if record.state == "rolled-back":
        back = f" on {moment(record.ended_at)}" if record.ended_at else ""
        return f"{name} was rolled back{back}: MongoDB holds the data again."
    said = f"{name} uses PostgreSQL since {moment(record.opened_at)}"
    return f"{said}; the rollback window is closed." if record.state == "finished" else f"{said}."


def _verdict_sentence(result: Result) -> str:
    checks = counted(check_figures(result)["checks"], "check")
    quarantined = counted(result.evidence.quarantined, "document")
    compared = any(check.area == "parity" and check.outcome.status == "passed" for check in result.evidence.checks)
    equal = "Nothing was lost or changed" if compared else "Every check that applies has passed"
    verdict = result.verdict()
    if verdict == "equal" or (verdict == "accepted" and not result.evidence.quarantined):
        return f"{equal}."
    if verdict in ("equal-but-quarantine", "accepted"):
        copied = "Everything that was copied is equal" if compared else equal
        verb = "is" if result.evidence.quarantined == 1 else "are"
        return f"{copied}; {quarantined} could not be converted and {verb} in quarantine."
    if verdict == "different":
        failed = sum(one.outcome.status == "failed" for one in result.evidence.checks if result.counts_as_failed(one))
        if not failed:
            return "A warning that was declared a failure was raised."
        data = _data_failed(result)
        sentence = (
            "The two sides are not equal"
            if data
            else "The data is as it should be"
            if compared
            else "Not everything holds"
        )
        return f"{sentence}{':' if data or not compared else ', but'} {failed} of {checks} failed."
    if verdict == "tool-failed":
        errored = sum(check.errored for check in result.evidence.checks)
        return f"The verification did not finish: {errored} of {checks} ended in an error."
    return _unverified_words(result, checks)


def above_ceiling(one: Measurement) -> str:
    """Return a measurement that is above its ceiling, in words."""
    ceiling = measured(one.ceiling or 0, one.unit)
    return f"{one.name}: {measured(one.value, one.unit)}, above its ceiling of {ceiling}"


def _unverified_words(result: Result, checks: str) -> str:
    if all(one.outcome.status in NOT_DUE for one in result.evidence.checks):
        return "Nothing was verified: no check was made."
    count, skipped, reasons = result.statuses()["unverified"], skipped_areas(result), []
    if count:
        reasons.append(f"{count} of {checks} could not be made")
    if skipped:
        reasons.append(f"{listed(skipped)} {'was' if len(skipped) == 1 else 'were'} left out on request")
    if not reasons:
        reasons.append("some tables could not be compared")
    return f"No difference was found, but {' and '.join(reasons)}."


def basis(result: Result) -> list[str]:
    """Return the grounds of the verdict, and what it leaves open, each a sentence."""
    evidence = result.evidence
    sentences = []
    if evidence.collections:
        sentences.append(_documents(result))
    sentences.append(_counted(result))
    sentences += [f"Not asked for: {listed(names)}." for names in [not_asked_for(result)] if names]
    sentences += [
        f"{_checks(some)} a right that the tool's user lacks: {why}: {grant}" for why, grant, some in rights(result)
    ]
    unmet = gates_unmet(result)
    if unmet is not None and unmet[0]:
        verb, names = "is" if unmet[0] == 1 else "are", f": {', '.join(unmet[2])}" if unmet[2] else ""
        gates = counted(unmet[1], "gate")
        sentences.append(
            f"{number(unmet[0])} of {gates} of the cutover {verb} not met now{names}. The cutover needs all."
        )
    sentences += _explained(evidence)
    strength = mutations_caught(result)
    if strength is not None:
        sentences.append(_strength(strength))
    absent = [area.name for area in evidence.areas if area.status == "absent"]
    if absent:
        sentences.append(f"Not checked by this version of the tool: {listed(absent)}.")
    sentences += [
        f"{decision.kind}: decided by {decision.who} on {moment(decision.at)}"
        + (f", because {decision.why.removesuffix('.')}." if decision.why else ".")
        for decision in evidence.decisions[:_LISTED_DECISIONS]
    ]
    if len(evidence.decisions) > _LISTED_DECISIONS:
        sentences.append(f"{counted(len(evidence.decisions) - _LISTED_DECISIONS, 'more decision')}, listed below.")
    if evidence.policy.fail_on:
        sentences.append(f"Warnings count as failures in {listed(list(evidence.policy.fail_on))}.")
    if evidence.policy.accepted:
        sentences.append(f"Failures were declared acceptable in {listed(list(evidence.policy.accepted))}.")
    over = [one for one in result.run.measurements if one.is_over]
    if over:
        sentences.append(
            f"{counted(len(over), 'measurement')} {'is' if len(over) == 1 else 'are'} above the stated ceiling."
        )
    return sentences


RECORDED: Final = "recorded only"
"""How a check ended that cannot fail."""


def check_figures(result: Result) -> dict[str, int]:
    """Return how the checks ended, in words; the figures add up to ``checks``, without areas that do not apply."""
    made = applicable(result)
    recorded = result.recorded()
    statuses = Counter(one.outcome.status for one in made)
    ends = {words: statuses[status] for status, words in STATUS_WORDS.items()}
    return {"checks": len(made), **ends, "passed": ends["passed"] - recorded, RECORDED: recorded}


def _counted(result: Result) -> str:
    """Return how the checks ended; those that cannot fail are counted apart."""
    total, *ends = check_figures(result).items()
    if not total[1]:
        return "No check was made."
    ended = ", ".join(f"{number(count)} {name}" for name, count in ends if count)
    return f"{counted(total[1], 'check')}: {ended}."


class Readiness(msgspec.Struct, frozen=True):
    """Whether the cutover could be made, as far as this run tells; or that it was made."""

    status: Status
    sentence: str
    why: tuple[str, ...]


def cutover_made(result: Result) -> CutoverState | None:
    """Return how the cutover stands, of a verification after it began; None before it, and after a rollback."""
    cutover = result.run.cutover
    return cutover if isinstance(cutover, CutoverState) and cutover.state in BEGUN else None


def readiness(result: Result) -> Readiness:
    """Return whether the cutover could be made now: every gate met, no check failed, nothing left unverified.

    After the cutover: since when PostgreSQL holds the data, and whether the cutover is finished.
    """
    why = []
    failed = sum(map(result.counts_as_failed, result.evidence.checks))
    if failed:
        why.append(f"{counted(failed, 'check')} failed.")
    made = cutover_made(result)
    if made is not None:
        return _after_cutover(result, made, why)
    gates = gates_unmet(result)
    if gates is not None and gates[0]:
        named = f": {', '.join(gates[2])}" if gates[2] else ""
        verb = "is" if gates[0] == 1 else "are"
        why.append(f"{number(gates[0])} of {counted(gates[1], 'gate')} {verb} not met{named}.")
    if why:
        return Readiness("failed" if failed else "unverified", READY.format("no"), tuple(why))
    unsure = result.exit_status() & (UNVERIFIED | TOOL_FAILED)
    if gates is None:
        why.append("The gates were not evaluated in this run; migrator cutover plan evaluates them.")
    if unsure:
        why.append("Not everything was verified.")
    if why:
        return Readiness("unverified", READY.format("not known"), tuple(why))
    return Readiness("passed", READY.format("yes"), ("Every gate was met when it was evaluated, and no check failed.",))


READY: Final = "Ready for the cutover: {}."


def _after_cutover(result: Result, cutover: CutoverState, failed: list[str]) -> Readiness:
    """Return how the cutover stands; ``failed``: the sentence about checks that failed, if there are any."""
    since = moment(cutover.opened_at)
    unsure = result.exit_status() & (UNVERIFIED | TOOL_FAILED)
    why = [*failed, *(["Not everything was verified."] if unsure else [])]
    status: Status = "failed" if failed else "unverified" if unsure else "passed"
    if cutover.state == "running":
        status = "failed" if failed else "unverified"
        sentence = f"The cutover has begun, {moment(cutover.began_at)}, and is not complete."
        opened = [f"PostgreSQL is open since {since}."] if since else []
        return Readiness(status, sentence, (*opened, "migrator cutover status names the command that leads on.", *why))
    holds = f"PostgreSQL holds the data since {since}." if since else "PostgreSQL holds the data."
    if cutover.state == "finished":
        ended = f"The cutover was finished on {moment(cutover.ended_at)}: it cannot be rolled back."
        return Readiness(status, holds, (ended, *why))
    return Readiness(status, holds, ("The cutover was made; migrator cutover finish has not ended it yet.", *why))


def no_open_gate(result: Result) -> str:
    """Return why no gate is listed, as a sentence."""
    if cutover_made(result) is not None:
        return "The gates held for the cutover, which has begun: they are in its own report."
    return (
        "Every gate was met when it was evaluated."
        if gates_unmet(result)
        else "The gates were not evaluated in this run."
    )


def open_gates(result: Result) -> list[tuple[str, str]]:
    """Return the gates that were not met, or could not be told, each with why."""
    rows = [row for one in result.run.panels.get(GATES, ()) for row in one.rows if len(one.columns) > 2]  # noqa: PLR2004 - name, state, why
    return [
        (str(name) if state == UNMET else f"{name} ({state})", str(why)) for name, state, why in rows if state != "met"
    ]


def proved(result: Result) -> list[str]:
    """Return the facts that the checks of this run show, each a sentence."""
    evidence = result.evidence
    sentences = [_documents(result)] if evidence.collections else []
    sentences.append(_counted(result))
    by_area = {area.name: area.title for area in evidence.areas}
    made = [one for one in evidence.checks if one.outcome.status != "not-applicable"]
    passed = [
        name
        for name in by_area
        if (own := [one for one in made if one.area == name and one.can_fail])
        and all(one.outcome.status == "passed" for one in own)
    ]
    if passed:
        sentences.append(f"Every check passed that applies and can fail in {listed(passed)}.")
    shown = sum(_is_passed_whole(result, requirement) for requirement in evidence.requirements)
    if shown:
        sentences.append(f"{counted(shown, 'requirement')} passed by a check of this run.")
    sentences += _explained(evidence)
    return sentences


def _explained(evidence: Evidence) -> list[str]:
    """Return the sentence about findings that are no differences, if there are any."""
    count = sum(
        tally.count
        for check in evidence.checks
        for tally in check.tallies
        if tally.severity == "explained" and tally.cause != NAMED_LOSS and check.area != "sensitivity"
    )
    if not count:
        return []
    return [f"{counted(count, 'finding')} explained by a policy or by the source, and no difference."]


def named_losses(result: Result) -> list[str]:
    """Return the losses by name: values that the tables of the target cannot hold, each a sentence."""
    return [
        f"{tally.collection}, {tally.path}, in {counted(tally.count, 'document')}: {tally.fix}."
        for check in result.evidence.checks
        for tally in check.tallies
        if tally.cause == NAMED_LOSS and check.area != "sensitivity"
    ]


def areas_not_requested(result: Result) -> list[Area]:
    """Return the areas that are made only on request and were not, and those that were left out on request."""
    return [area for area in result.evidence.areas if area.status in ("not-asked-for", "skipped")]


def not_requested(result: Result) -> list[str]:
    """Return the areas that were not asked for, each with the option that asks for it."""
    evidence = result.evidence
    sentences = [f"{area.title} ({area.name}): {area.reason}" for area in areas_not_requested(result)]
    sentences += [
        f"{check.title} ({check.id}): {check.outcome.reason}"
        for check in evidence.checks
        if check.outcome.status == "not-asked-for"
    ]
    return sentences


def not_proved(result: Result) -> list[str]:
    """Return the limits of this verification, the most important first, each a sentence."""
    evidence = result.evidence
    sentences = [
        f"{_checks(some)} a right that the tool's user lacks: {why}: {grant}" for why, grant, some in rights(result)
    ]
    unsure = [one for one in evidence.checks if one.outcome.status == "unverified" and not one.outcome.grant]
    sentences += [f"{check.id} could not be made: {check.outcome.reason}" for check in unsure[:_LISTED_CHECKS]]
    if len(unsure) > _LISTED_CHECKS:
        sentences.append(f"{counted(len(unsure) - _LISTED_CHECKS, 'more check')} could not be made.")
    absent = [area.name for area in evidence.areas if area.status == "absent"]
    if absent:
        sentences.append(f"Not checked by this version of the tool: {listed(absent)}.")
    sentences += list(evidence.left_out[:_LISTED_CHECKS])
    strength = mutations_caught(result)
    if strength is None:
        planted = (
            "no fault is planted in the tables of a library"
            if _has_no_strength(result)
            else "none was planted in this run (--sensitivity)"
        )
        sentences.append(f"How many faults these checks would miss: {planted}.")
    else:
        sentences.append(_strength(strength))
    sentences.append("What happens after this run: it holds for the moment at which it was made.")
    sentences.append("Programs of the application that are not schedulers, their code, and how it is deployed.")
    limits = len(limits_of_checks(result))
    if limits:
        sentences.append(f"{counted(limits, 'limit')} of single checks, listed under coverage.")
    return sentences


def _has_no_strength(result: Result) -> bool:
    """Whether no mutation can be planted here."""
    return any(area.name == "sensitivity" and area.status == "not-applicable" for area in result.evidence.areas)


def applicable(result: Result) -> list[Check]:
    """Return the checks without those of areas that do not apply, and those that do not apply for the same reason."""
    areas = {area.name: area.reason for area in result.evidence.areas if area.status == "not-applicable"}
    return [
        check
        for check in result.evidence.checks
        if check.area not in areas
        and not (check.outcome.status == "not-applicable" and check.outcome.reason in areas.values())
    ]


def limits_of_checks(result: Result) -> list[tuple[Check, str]]:
    """Return each check that applies with each limit of what it detects."""
    return [
        (check, limit)
        for check in result.evidence.checks
        if check.outcome.status != "not-applicable"
        for limit in check.limits
    ]


def not_asked_for(result: Result) -> list[str]:
    """Return the names of areas and checks that are made only on request, and were not."""
    areas = [area.name for area in result.evidence.areas if area.status == "not-asked-for"]
    return [*areas, *(check.id for check in result.evidence.checks if check.outcome.status == "not-asked-for")]


def rights(result: Result) -> list[tuple[str, str, list[Check]]]:
    """Return each right that was missing: why, the statement that gives it, and the checks that need it."""
    lacking: dict[str, list[Check]] = {}
    for check in result.evidence.checks:
        if check.outcome.grant:
            lacking.setdefault(check.outcome.grant, []).append(check)
    return [(some[0].outcome.reason, grant, some) for grant, some in lacking.items()]


def _strength(caught: tuple[int, int]) -> str:
    classes = counted(caught[1], "class", "classes")
    return (
        f"Of {classes} of faults planted to test this verification, {number(caught[0])} were caught"
        f" and {number(caught[1] - caught[0])} missed."
    )


def _checks(some: list[Check]) -> str:
    """Return some checks as the subject of a sentence: their number and the first few ids."""
    ids = ", ".join(one.id for one in some[:_LISTED_CHECKS])
    more = f" and {number(len(some) - _LISTED_CHECKS)} more" if len(some) > _LISTED_CHECKS else ""
    return f"{counted(len(some), 'check')} ({ids}{more}) {'needs' if len(some) == 1 else 'need'}"


def gates_unmet(result: Result) -> tuple[int, int, list[str]] | None:
    """Return how many gates of the cutover are not met now, of how many, and which; None if they were not checked."""
    gates = {one.name: one for one in result.run.measurements if one.check == GATES}
    total = sum(one.counts.get("gates", 0) for one in result.evidence.checks if one.id == GATES)
    if not gates or not total:
        return None
    rows = [row for one in result.run.panels.get(GATES, ()) for row in one.rows]
    names = [str(row[0]) for row in rows if len(row) > 1 and row[1] == UNMET]
    return int(sum(one.value for one in gates.values())), total, names


def identity(result: Result) -> list[tuple[str, str]]:
    """Return the sides of the comparison: each database with its server, address and identity, and the installation."""
    lines: list[tuple[str, str]] = []
    for side in result.run.sides:
        parts = [side.server, f"database {side.database}" if side.database else "", side.address]
        parts.append(f"replica set {side.replica_set}" if side.replica_set else "")
        parts.append(f"replica set id {side.replica_set_id}" if side.replica_set_id else "")
        parts.append(f"system identifier {side.system_identifier}" if side.system_identifier else "")
        lines.append((side.name, ", ".join(part for part in parts if part)))
    return [*lines, *result.run.installation.items()]


def documents_left(result: Result, requirement: str) -> int:
    """Return how many documents of those that must all be in a table are in quarantine, or were dropped from it."""
    table = _ALL_DOCUMENTS_OF.get(requirement, "")
    is_library = bool(table) and bool(result.evidence.tables) and table not in result.evidence.tables
    return sum(
        collection.quarantined + collection.skipped.get(DROPPED, 0)
        for collection in result.evidence.collections
        if is_library or table in collection.tables
    )


def is_rehearsed(result: Result, requirement: str) -> bool:
    """Whether a requirement is of the time after a cutover, and this is a verification, which can only rehearse it."""
    return result.cutover is None and requirement in AFTER_CUTOVER


def _is_passed_whole(result: Result, requirement: Requirement) -> bool:
    """Whether a requirement is passed, is more than rehearsed, and holds for every document."""
    passed = result.requirement_status(requirement) == "passed"
    return passed and not is_rehearsed(result, requirement.id) and not documents_left(result, requirement.id)


def requirement_texts(result: Result, check: Check) -> list[str]:
    """Return the requirements that a check shows a part of, each in its words, with its id after them."""
    words = {requirement.id: requirement.text for requirement in result.evidence.requirements}
    return [f"{words[name]} ({name})" for name in check.requirements if name in words]


def shown_requirements(result: Result, check: Check) -> str:
    """Return ``requirement_texts`` as one text."""
    return ", ".join(requirement_texts(result, check))


def left_behind(result: Result) -> dict[str, int]:
    """Return the documents that a rule or a person left in the source, by the rule; none of them is in quarantine."""
    by_rule: Counter[str] = Counter()
    for collection in result.evidence.collections:
        by_rule.update(collection.skipped)
    return dict(sorted(by_rule.items()))


def document_figures(result: Result) -> dict[str, int]:
    """Return where the documents are that were read; the figures add up to ``documents read``."""
    collections = result.evidence.collections
    return {
        "documents read": sum(one.documents for one in collections),
        "equal": sum(one.matched for one in collections),
        "in quarantine": sum(one.quarantined for one in collections),
        "not copied, by rule": sum(left_behind(result).values()),
        "changed in PostgreSQL since the cutover": sum(
            0 if one.changed is msgspec.UNSET else one.changed for one in collections
        ),
        "missing or not equal": sum(one.missing + one.differing for one in collections),
    }


def _documents(result: Result) -> str:
    collections = result.evidence.collections
    figures = document_figures(result)
    read = f"{counted(figures['documents read'], 'document')} of {counted(len(collections), 'collection')} were read"
    parts = [f"{read}, and {number(figures['equal'])} of them can be rebuilt from PostgreSQL, typed and complete"]
    parts += _left_in_the_source(result)
    changed = figures["changed in PostgreSQL since the cutover"]
    if changed:
        parts.append(f"{number(changed)} were changed in PostgreSQL since the cutover, and were not compared")
    apart = figures["missing or not equal"]
    if apart:
        parts.append(f"{number(apart)} {'is' if apart == 1 else 'are'} missing or not equal")
    return "; ".join(parts) + "."


def _left_in_the_source(result: Result) -> list[str]:
    """Return the sentences about the documents that are in the source alone."""
    parts = []
    by_rule = left_behind(result)
    dropped = by_rule.pop(DROPPED, 0)
    skipped, quarantined = sum(by_rule.values()), document_figures(result)["in quarantine"]
    if quarantined:
        parts.append(f"{number(quarantined)} {'is' if quarantined == 1 else 'are'} in quarantine")
    if skipped:
        rules = ", ".join(f"{name} {number(count)}" for name, count in by_rule.items())
        parts.append(f"{number(skipped)} {'was' if skipped == 1 else 'were'} not copied, by rule ({rules})")
    if dropped:
        parts.append(f"{number(dropped)} {'was' if dropped == 1 else 'were'} dropped from quarantine by a person")
    return parts


def signed_for(result: Result) -> list[str]:
    """Return the sentences that a signature stands for; none for a report of a cutover."""
    if result.cutover is not None:
        return []
    sentences = []
    if result.evidence.collections:
        left = "; ".join(_left_in_the_source(result))
        sentences.append(
            f"Documents left behind in the source: {left}." if left else "No document is left behind in the source."
        )
    sentences.append(f"{readiness(result).sentence} A signature does not change that.")
    return sentences


SIGNERS: Final = ("Executed the migration", "Accepts the result")
"""The roles of those who sign."""


def above_ceilings(result: Result) -> list[str]:
    """Return the measurements that are above their ceiling, each in words."""
    return [above_ceiling(one) for one in result.run.measurements if one.is_over]


def mutations_caught(result: Result) -> tuple[int, int] | None:
    """Return how many mutations the verification caught, and of how many; None where none was applied.

    The checks of area ``sensitivity`` count them under ``caught`` and ``missed``.
    """
    counts = [one.counts for one in result.evidence.checks if one.area == "sensitivity" and "caught" in one.counts]
    found = sum(one["caught"] for one in counts)
    return (found, found + sum(one.get("missed", 0) for one in counts)) if counts else None


def skipped_areas(result: Result) -> list[str]:
    """Return the areas that the caller left out."""
    return [area.name for area in result.evidence.areas if area.status == "skipped"]


def short(check: Check) -> str:
    """Return a check's id without its area."""
    return check.id.partition(".")[2] or check.id


def grouped(result: Result) -> list[tuple[Status, str, list[Check]]]:
    """Return the checks that did not pass by how they ended and why, so that a reason is given once.

    Without those of areas that do not apply: ``inapplicable_areas``.
    """
    groups: dict[tuple[Status, str, str], list[Check]] = {}
    for check in applicable(result):
        outcome = check.outcome
        if outcome.status != "passed":
            key = outcome.reason or check.id  # a failed check gives no reason: each is a group of its own
            groups.setdefault((outcome.status, key, outcome.grant), []).append(check)
    return [
        (status, some[0].outcome.reason or counted(some[0].findings_total, "finding"), some)
        for (status, _, _), some in groups.items()
    ]


def inapplicable_areas(result: Result, *, wanted: bool = False) -> list[tuple[str, str]]:
    """Return the areas that do not apply, those with one reason together: their names, and the reason.

    With them the checks of other areas that do not apply for that reason. ``wanted``: only areas that were asked for.
    """
    asked = {one.area for one in result.evidence.checks}
    by_reason: dict[str, list[str]] = {}
    for area in result.evidence.areas:
        if area.status == "not-applicable" and (area.name in asked or not wanted):
            by_reason.setdefault(area.reason, []).append(area.name)
    own = {name for names in by_reason.values() for name in names}
    told = []
    for reason, names in by_reason.items():
        checks = [
            one.id
            for one in result.evidence.checks
            if one.area not in own and one.outcome.status == "not-applicable" and one.outcome.reason == reason
        ]
        beside = f"; {'check' if len(checks) == 1 else 'checks'} {listed(checks)}" if checks else ""
        told.append((f"{'area' if len(names) == 1 else 'areas'} {listed(names)}{beside}", reason))
    return told


def terminal_lines(result: Result, folder: str) -> list[str]:
    """Return the last lines of a verification on a terminal."""
    lines = [verdict_sentence(result), *(f"  {name}: {words}" for name, words in identity(result))]
    lines += [f"  {one}" for one in basis(result)]
    for status, why, some in grouped(result):
        if some[0].outcome.grant:
            continue  # listed above, with its statement
        which = f"{some[0].id}: {some[0].title}" if len(some) == 1 else ", ".join(one.id for one in some)
        lines.append(f"  {STATUS_WORDS[status]}: {which} ({why})")
    lines += [f"  not applicable: {names} ({why})" for names, why in inapplicable_areas(result, wanted=True)]
    return [*lines, f"report: {folder}/report.html"]
