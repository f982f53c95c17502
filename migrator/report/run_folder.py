"""The folder of the reports: one folder for each run, and ``index.html``, which lists them with what changed."""

import itertools
from pathlib import Path
from typing import Final

import msgspec

from migrator import files
from migrator.errors import UsageError
from migrator.report import integrity, renderer, wording
from migrator.result import Result

INDEX: Final = "index.html"
_LISTED: Final = 4
"""Checks named in the change of a run; the others are counted."""


class ListedRun(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the index."""

    folder: str
    kind: str
    at: str
    environment: str
    verdict: str
    tone: str
    """The sign of the verdict, a status."""
    passed: int
    judged: int
    quarantined: int
    signed: bool
    changed: tuple[str, ...]
    """What is not as in the run before of the same kind and environment, each a sentence."""
    tampered: str = ""
    """How the result was changed after it was made; empty where that cannot be seen."""


def make(base: Path, name: str) -> Path:
    """Make a new folder ``base/name``, or ``base/name-2`` and so on; raises ``UsageError`` where it may not."""
    for number in itertools.count(1):
        folder = base / (name if number == 1 else f"{name}-{number}")
        try:
            files.make_folder(folder)
        except FileExistsError:
            continue
        except OSError as error:
            raise UsageError(f"cannot write reports into {base}: {error.strerror or type(error).__name__}") from None
        return folder
    raise AssertionError


def write_index(base: Path) -> Path:
    """Write ``index.html`` anew from the results in the folders of ``base``; results of another format are left out."""
    path = base / INDEX
    try:
        files.write_private(path, renderer.index(listed(base)))
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror or type(error).__name__}") from None
    return path


def listed(base: Path) -> list[ListedRun]:
    """Return every run whose result can be read, the newest first."""
    runs: list[tuple[str, Result]] = []
    for path in sorted(base.glob(f"*/{renderer.RESULT}")):
        try:
            runs.append((path.parent.name, integrity.read_result(path)))
        except UsageError:
            continue
    runs.sort(key=lambda one: (one[1].run.started_at, one[0]))
    before: dict[tuple[str, str], Result] = {}
    rows = []
    for folder, result in runs:
        key = (_kind(result), _environment(result))
        rows.append(_row(folder, result, before.get(key)))
        before[key] = result
    return rows[::-1]


def _kind(result: Result) -> str:
    return "verification" if result.cutover is None else "cutover"


def _environment(result: Result) -> str:
    return result.run.installation.get("environment", "") or result.evidence.basis.get("environment", "")


def _row(folder: str, result: Result, before: Result | None) -> ListedRun:
    passed, judged = result.judged()
    return ListedRun(
        folder=folder,
        kind=_kind(result),
        at=result.run.started_at,
        environment=_environment(result),
        verdict=wording.verdict_words(result),
        tone=wording.tone(result),
        passed=passed,
        judged=judged,
        quarantined=result.evidence.quarantined,
        signed=result.signature is not None,
        changed=("the first of its kind",) if before is None else tuple(changes(before, result)),
        tampered=integrity.tampering(result) or "",
    )


def changes(before: Result, after: Result) -> list[str]:
    """Return the differences from an earlier run, each a sentence; empty if nothing changed."""
    then = {one.id: one.outcome.status for one in before.evidence.checks}
    now = {one.id: one.outcome.status for one in after.evidence.checks}
    sentences = []
    for description, ids in (
        ("now failed", [name for name in now if now[name] == "failed" and then.get(name) != "failed"]),
        ("passed again", [name for name in now if now[name] == "passed" and then.get(name) == "failed"]),
        ("not verified now", [name for name in now if now[name] == "unverified" and then.get(name) != "unverified"]),
        ("no longer checked", [name for name in then if name not in now]),
        ("checked for the first time", [name for name in now if name not in then]),
    ):
        if ids:
            rest = len(ids) - _LISTED
            more = f" and {wording.number(rest)} more" if rest > 0 else ""
            sentences.append(f"{description}: {', '.join(ids[:_LISTED])}{more}")
    for what, earlier, other in (
        ("documents", _documents(before), _documents(after)),
        ("documents in quarantine", before.evidence.quarantined, after.evidence.quarantined),
    ):
        if earlier != other:
            sentences.append(f"{what}: {wording.number(earlier)} before, {wording.number(other)} now")
    if wording.verdict_words(before) != wording.verdict_words(after):
        sentences.append(f"verdict before: {wording.verdict_words(before)}")
    return sentences


def _documents(result: Result) -> int:
    return sum(one.documents for one in result.evidence.collections)
