"""What a verification found: the one result model, which every rendering, exit status and signature is made from.

A ``Result`` has two halves. ``evidence`` is deterministic: two runs over the same data give the same bytes, and the
digest is taken over it. ``run`` holds what varies: times, durations, ports, versions of servers, measurements. No
document values stand in either, keys and paths only.

``result.json`` is the result with its keys sorted; the digest is SHA-256 over the evidence as JSON with its keys sorted
and no white space, so that ``jq -cSj .evidence result.json | sha256sum`` gives it too. Evidence holds no floats.
"""

import hashlib
from typing import Final, Literal, TypeAlias

import msgspec

from migrator.errors import UsageError

FORMAT: Final = 1
"""Version of ``result.json``; it rises when a reader of the old one would misread the new one."""

Status: TypeAlias = Literal["passed", "failed", "unverified", "not-applicable"]
Severity: TypeAlias = Literal["difference", "warning", "settled"]
"""``difference``: wrong; ``warning``: wrong only under ``fail_on``; ``settled``: a declared policy says what it is."""
Standing: TypeAlias = Literal["checked", "skipped", "not-applicable", "absent"]
"""``absent``: this version of the tool has no checks of that area; shown in plain sight, sets no bit."""
Verdict: TypeAlias = Literal["equal", "equal-but-quarantine", "different", "tool-failed", "unverified"]

DIFFERENT: Final = 1
UNVERIFIED: Final = 4
QUARANTINE: Final = 8
TOOL_FAILED: Final = 16
"""Bits of the exit status; 2, usage or configuration, is never the result of a check."""


class Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of everything in a result: immutable, and strict when read back."""


class Outcome(Part, frozen=True, kw_only=True):
    """How a check ended. "Wrong" and "could not tell" are different outcomes, and the latter says why."""

    status: Status
    reason: str = ""

    def __post_init__(self) -> None:
        """Demand a reason from what was not checked."""
        if self.status in ("unverified", "not-applicable") and not self.reason:
            raise ValueError(f"an outcome {self.status} needs a reason")


PASSED: Final = Outcome(status="passed")
FAILED: Final = Outcome(status="failed")


def unverified(reason: str) -> Outcome:
    """Return the outcome of a check that could not tell."""
    return Outcome(status="unverified", reason=reason)


def not_applicable(reason: str) -> Outcome:
    """Return the outcome of a check that a recorded decision makes meaningless here."""
    return Outcome(status="not-applicable", reason=reason)


class Finding(Part, frozen=True, kw_only=True, order=True):
    """One thing found, at one place or, with a ``count``, at many of a kind."""

    severity: Severity
    cause: str
    """Stable code (``parity.causes``, a note of the profile, a catalogue difference)."""
    collection: str = ""
    table: str = ""
    key: str = ""
    """``source_id`` of the document, or the name of the schema object."""
    path: str = ""
    """Column or field path."""
    side: str = ""
    """Which link or side broke, in the words of the check."""
    count: int = 1
    words: tuple[str, ...] = ()
    """An explanation in words: paths and types, values only when asked for."""


class Tally(Part, frozen=True, kw_only=True, order=True):
    """How many findings have one cause at one place; complete, also where the findings are cut."""

    severity: Severity
    cause: str
    collection: str = ""
    table: str = ""
    path: str = ""
    title: str
    """The cause in words."""
    fix: str = ""
    """What most often mends it; for a settled finding, the policy that settles it."""
    count: int
    keys: tuple[str, ...] = ()
    """The first few keys."""


class Cell(Part, frozen=True, kw_only=True):
    """What a check says about one table: a square of the coverage map."""

    table: str
    outcome: Outcome
    count: int | None = None
    """How many things were checked there, when they can be counted."""
    unit: str = ""


class Exhibit(Part, frozen=True, kw_only=True):
    """A table or chart of evidence that has no type of its own here (contention curves, readiness lists, ...)."""

    kind: Literal["table", "bars", "series"]
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str | int | None, ...], ...]
    rows_total: int
    """How many there are; ``rows`` may be cut."""


class Check(Part, frozen=True, kw_only=True):
    """One check, and what it found."""

    id: str
    """``<area>.<name>``; links into the report end in it."""
    area: str
    title: str
    requirements: tuple[str, ...] = ()
    """Rows of the list of capabilities that it proves."""
    outcome: Outcome
    broke: bool = False
    """The check ended by an error of the tool or a server, not by a judgement."""
    counts: dict[str, int] = {}
    cells: tuple[Cell, ...] = ()
    tallies: tuple[Tally, ...] = ()
    findings: tuple[Finding, ...] = ()
    findings_total: int = 0
    limits: tuple[str, ...] = ()
    """What this check cannot see, each a sentence."""
    exhibits: tuple[Exhibit, ...] = ()


class Area(Part, frozen=True, kw_only=True):
    """A field of verification, and whether it was looked at."""

    name: str
    title: str
    standing: Standing
    reason: str = ""


class Moved(Part, frozen=True, kw_only=True):
    """Where the documents of one collection are: the sum that must come out even."""

    collection: str
    tables: tuple[str, ...]
    documents: int
    matched: int
    differing: int = 0
    missing: int = 0
    quarantined: int = 0
    skipped: dict[str, int] = {}
    rows: int = 0
    extra: int = 0
    clean: int = 0
    residue: int = 0


class Quarantined(Part, frozen=True, kw_only=True):
    """Documents set aside for one reason at one field path."""

    collection: str
    reason: str
    path: str = ""
    expected: str = ""
    count: int
    keys: tuple[str, ...] = ()


class Loss(Part, frozen=True, kw_only=True):
    """A line of the loss ledger: what a column could not hold, and whether the residue keeps it."""

    collection: str
    path: str
    kind: str
    count: int
    kept: bool


class Edge(Part, frozen=True, kw_only=True):
    """A pair of states, and how often the pair was tried."""

    before: str
    after: str
    allowed: bool
    exercised: int
    outcome: Outcome


class Machine(Part, frozen=True, kw_only=True):
    """A state machine as exercised."""

    name: str
    states: tuple[str, ...]
    edges: tuple[Edge, ...]


class Decision(Part, frozen=True, kw_only=True):
    """A decision of a person that the verdict rests on; the same decision repeated keeps its first time."""

    kind: str
    who: str
    at: str
    why: str
    tool: str


class Policy(Part, frozen=True, kw_only=True):
    """What the caller asked for, as far as it changes what the result means."""

    only: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()
    fail_on: tuple[str, ...] = ()
    """Areas in which warnings count as failures."""
    values_shown: bool = False


class Evidence(Part, frozen=True, kw_only=True):
    """The deterministic half; the digest is taken over it."""

    basis: dict[str, str] = {}
    """What the verdict rests on: tool, profile, schema revision, ..."""
    policy: Policy = Policy()
    decisions: tuple[Decision, ...] = ()
    areas: tuple[Area, ...] = ()
    tables: tuple[str, ...] = ()
    """Every table of the target: the rows of the coverage map, whether checked or not."""
    checks: tuple[Check, ...] = ()
    moved: tuple[Moved, ...] = ()
    quarantine: tuple[Quarantined, ...] = ()
    losses: tuple[Loss, ...] = ()
    machines: tuple[Machine, ...] = ()
    left_out: tuple[str, ...] = ()
    """What exists and was not looked at, each a sentence: collections in no profile, rows of other origin, ..."""

    @property
    def quarantined(self) -> int:
        """Return how many documents are set aside."""
        return sum(line.count for line in self.quarantine)


class Measurement(Part, frozen=True, kw_only=True):
    """A figure that varies from run to run; over its ceiling it is a warning of its check."""

    check: str
    name: str
    unit: str
    value: float
    ceiling: float | None = None
    points: tuple[tuple[str, float], ...] = ()


class Run(Part, frozen=True, kw_only=True):
    """The half that varies; outside the digest."""

    name: str
    """Name of the folder under ``reports/``."""
    started_at: str = ""
    finished_at: str = ""
    durations_ms: dict[str, int] = {}
    """By check id, and by step for the steps around them."""
    environment: dict[str, str] = {}
    """Versions of servers and libraries, time zone data, pooling, clock skew, host, ports."""
    measurements: tuple[Measurement, ...] = ()


class Signature(Part, frozen=True, kw_only=True):
    """A signature over the digest."""

    algorithm: Literal["ed25519"]
    key: str
    """Public key, base64."""
    value: str


class Result(Part, frozen=True, kw_only=True):
    """A verification: what was found, and under which circumstances."""

    format: int = FORMAT
    evidence: Evidence
    run: Run
    digest: str
    """``sha256:`` and 64 hexadecimal digits, over ``evidence``."""
    signature: Signature | None = None

    def statuses(self) -> dict[Status, int]:
        """Count the checks by how they ended."""
        counts: dict[Status, int] = {"passed": 0, "failed": 0, "unverified": 0, "not-applicable": 0}
        for check in self.evidence.checks:
            counts[check.outcome.status] += 1
        return counts

    def exit_status(self) -> int:
        """Return the bit mask: 1 failed, 4 unverified, 8 quarantine, 16 the tool failed; 0 when none holds.

        Settled findings, warnings outside ``fail_on``, and what is not applicable set no bit.
        """
        checks = self.evidence.checks
        counts = self.statuses()
        skipped = any(area.standing == "skipped" for area in self.evidence.areas)
        partly = any(cell.outcome.status == "unverified" for check in checks for cell in check.cells)
        return (
            (DIFFERENT if counts["failed"] or any(map(self._warned, checks)) else 0)
            | (UNVERIFIED if counts["unverified"] or partly or skipped or not checks else 0)
            | (QUARANTINE if self.evidence.quarantined else 0)
            | (TOOL_FAILED if any(check.broke for check in checks) else 0)
        )

    def verdict(self) -> Verdict:
        """Return the worst thing that can be said, in one word: what is wrong before what is not known."""
        status = self.exit_status()
        for bit, verdict in _VERDICTS:
            if status & bit:
                return verdict
        return "equal"

    def _warned(self, check: Check) -> bool:
        return check.area in self.evidence.policy.fail_on and any(one.severity == "warning" for one in check.tallies)


_VERDICTS: Final[tuple[tuple[int, Verdict], ...]] = (
    (DIFFERENT, "different"),
    (TOOL_FAILED, "tool-failed"),
    (UNVERIFIED, "unverified"),
    (QUARANTINE, "equal-but-quarantine"),
)


def build(evidence: Evidence, run: Run) -> Result:
    """Put the two halves together under the digest of the first.

    What is returned is what would be read back, the order of names included: the same result, the same rendering.
    """
    return decode(encode(Result(evidence=evidence, run=run, digest=digest(evidence))))


def digest(evidence: Evidence) -> str:
    """Return ``sha256:<hex>`` over the canonical bytes of the evidence."""
    return "sha256:" + hashlib.sha256(msgspec.json.encode(evidence, order="sorted")).hexdigest()


def encode(result: Result) -> bytes:
    """Return the bytes of ``result.json``: keys sorted, two spaces, one newline at the end."""
    return msgspec.json.format(msgspec.json.encode(result, order="sorted"), indent=2) + b"\n"


def decode(text: bytes) -> Result:
    """Read ``result.json``; raise ``UsageError`` when it is none, or of another format."""
    try:
        version = msgspec.json.decode(text, type=_Versioned).format
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise UsageError(f"not a result of this tool: {str(error).lower()}") from None
    if version != FORMAT:
        raise UsageError(f"a result of format {version}; this version of the tool reads format {FORMAT}")
    try:
        return msgspec.json.decode(text, type=Result)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise UsageError(f"not a whole result: {str(error).lower()}") from None


class _Versioned(msgspec.Struct):
    format: int
