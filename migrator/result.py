"""What a verification found: the one result model, which every rendering, exit status and signature is made from.

A ``Result`` has two halves. ``evidence`` is deterministic: two runs over the same data give the same bytes, and the
digest is taken over it. ``run`` holds what varies: times, durations, ports, versions of servers, measurements. Neither
half holds values of documents, only keys and paths.

``result.json`` is the result with its keys sorted; the digest is SHA-256 over the evidence as JSON with its keys sorted
and no white space, so that ``jq -cSj .evidence result.json | sha256sum`` gives it too. Evidence holds no floats.
"""

import hashlib
import json
from collections.abc import Sequence
from typing import Final, Literal, TypeAlias, cast

import msgspec

from migrator.errors import UsageError
from migrator.exit_status import DIFFERENT, TOOL_FAILED, UNVERIFIED, Allowance, beyond, mask

Status: TypeAlias = Literal["passed", "failed", "unverified", "not-asked-for", "not-applicable"]
Severity: TypeAlias = Literal["difference", "warning", "explained"]
"""``difference``: wrong; ``warning``: wrong only under ``fail_on``; ``explained``: by a policy or the source."""
AreaStatus: TypeAlias = Literal["checked", "skipped", "not-asked-for", "not-applicable", "absent"]
"""``absent``: this version of the tool has no checks of that area. The report shows it, and it sets no bit."""
RequirementState: TypeAlias = Literal["passed", "failed", "unverified", "shown-by-tests", "not-exercised"]
"""What is known of a requirement."""
Verdict: TypeAlias = Literal["equal", "equal-but-quarantine", "accepted", "different", "tool-failed", "unverified"]
"""``accepted``: a check failed in an area whose failures the caller declared acceptable (``Policy.accepted``)."""


class Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of everything in a result: immutable, and strict when read back."""


class Outcome(Part, frozen=True, kw_only=True):
    """How a check ended. "Failed" and "unverified" are different outcomes, and the latter has a reason."""

    status: Status
    reason: str = ""
    grant: str = ""
    """The statement with which an administrator gives the right that was missing, so that the check can be made."""

    def __post_init__(self) -> None:
        """Require a reason of a check that was not made."""
        if self.status in ("unverified", "not-asked-for", "not-applicable") and not self.reason:
            raise ValueError(f"an outcome {self.status} needs a reason")


PASSED: Final = Outcome(status="passed")
FAILED: Final = Outcome(status="failed")


def unverified(reason: str, grant: str = "") -> Outcome:
    """Return the outcome of a check that could not be made. ``grant`` is the statement that gives a missing right."""
    return Outcome(status="unverified", reason=reason, grant=grant)


def not_applicable(reason: str) -> Outcome:
    """Return the outcome of a check that a recorded decision makes irrelevant."""
    return Outcome(status="not-applicable", reason=reason)


def not_asked_for(reason: str) -> Outcome:
    """Return the outcome of a check that is made only when the caller asks for it; ``reason`` names the option.

    It sets no bit and does not count as passed. The first page of the report names it.
    """
    return Outcome(status="not-asked-for", reason=reason)


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
    """Which link or side is wrong, in the words of the check."""
    count: int = 1
    details: tuple[str, ...] = ()
    """An explanation: paths and types, values only when asked for."""


class Tally(Part, frozen=True, kw_only=True, order=True):
    """How many findings have one cause at one place. The count is complete, also if the list of findings is cut."""

    severity: Severity
    cause: str
    collection: str = ""
    table: str = ""
    path: str = ""
    title: str
    """The cause in words."""
    fix: str = ""
    """What most often corrects it; for an explained finding, the policy that decides it."""
    count: int
    keys: tuple[str, ...] = ()
    """The first few keys."""


NAMED_LOSS: Final = "named-loss"
"""The cause of an explained finding: a value that the target's tables cannot hold, by the words of the mapping."""


class Cell(Part, frozen=True, kw_only=True):
    """The outcome of a check for one table: a square of the coverage map."""

    table: str
    outcome: Outcome
    count: int | None = None
    """How many things were checked there, if they can be counted."""
    unit: str = ""


class Panel(Part, frozen=True, kw_only=True):
    """A table or chart of the report without a type of its own (what was tried, readiness lists, ...).

    ``table`` is shown unchanged. ``spans``: lane, first, last, label: who held what from when to when. A panel that
    varies from run to run is in ``Run.panels``, not in evidence.
    """

    kind: Literal["table", "spans"]
    title: str
    columns: tuple[str, ...]
    """As many as every row has cells."""
    rows: tuple[tuple[str | int | None, ...], ...]
    rows_total: int
    """How many there are; ``rows`` may be cut."""


def table_panel(title: str, columns: tuple[str, ...], rows: Sequence[tuple[str | int | None, ...]]) -> Panel:
    """Return a panel that is a table, with all of its rows."""
    return Panel(kind="table", title=title, columns=columns, rows=tuple(rows), rows_total=len(rows))


class Check(Part, frozen=True, kw_only=True):
    """One check, and what it found."""

    id: str
    """``<area>.<name>``; links into the report end with it."""
    area: str
    title: str
    requirements: tuple[str, ...] = ()
    """Rows of the list of capabilities that it shows (``Evidence.requirements`` has their words)."""
    can_fail: bool = True
    """Whether the check can fail. One that cannot only records, and shows no requirement."""
    outcome: Outcome
    errored: bool = False
    """The check ended by an error of the tool or a server, not by a judgement."""
    counts: dict[str, int] = {}
    cells: tuple[Cell, ...] = ()
    tallies: tuple[Tally, ...] = ()
    findings: tuple[Finding, ...] = ()
    findings_total: int = 0
    limits: tuple[str, ...] = ()
    """What this check cannot detect, each a sentence."""
    panels: tuple[Panel, ...] = ()


class Requirement(Part, frozen=True, kw_only=True):
    """A row of the list of capabilities, and every check of this version that shows a part of it."""

    id: str
    text: str
    checks: tuple[str, ...]
    """Ids, also of checks that this run left out; the requirement is unverified then."""
    tests: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET
    """Tests of the product that show it; some of them, where there are many."""


class OutOfScope(Part, frozen=True, kw_only=True):
    """A row of the list of capabilities that the tool leaves to others or does not offer."""

    id: str
    text: str
    note: str
    """Who fulfils it, or what the tool does instead."""


class Area(Part, frozen=True, kw_only=True):
    """An area of verification, and whether it was checked."""

    name: str
    title: str
    status: AreaStatus
    reason: str = ""


class CollectionCounts(Part, frozen=True, kw_only=True):
    """How many documents of one collection are where. The counts must add up to ``documents``."""

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
    without_remainder: int = 0
    with_remainder: int = 0
    changed: int | msgspec.UnsetType = msgspec.UNSET
    """Whose rows PostgreSQL changed since the cutover, and which are not compared; unset: none."""


class Quarantined(Part, frozen=True, kw_only=True):
    """Documents quarantined for one reason at one field path."""

    collection: str
    reason: str
    path: str = ""
    expected: str = ""
    count: int
    keys: tuple[str, ...] = ()


class Loss(Part, frozen=True, kw_only=True):
    """A line of the loss ledger: what a column could not hold, and whether the remainder keeps it."""

    collection: str
    path: str
    kind: str
    count: int
    kept: bool


class Transition(Part, frozen=True, kw_only=True):
    """A pair of states, and how often the step from one to the other was tried."""

    before: str
    after: str
    allowed: bool
    exercised: int
    outcome: Outcome


class StateMachine(Part, frozen=True, kw_only=True):
    """A state machine, with the transitions that were tried."""

    name: str
    states: tuple[str, ...]
    transitions: tuple[Transition, ...]


class Decision(Part, frozen=True, kw_only=True):
    """A decision of a person that the verdict rests on; the same decision repeated keeps its first time."""

    kind: str
    who: str
    at: str
    why: str
    tool: str


class GateState(Part, frozen=True, kw_only=True):
    """A gate of a cutover, as it was before the fence."""

    name: str
    met: bool | None
    """None: it could not be told, which does not stop a cutover."""
    words: str


class JournalStep(Part, frozen=True, kw_only=True):
    """A step of a cutover or a rollback, as the journal has it."""

    step: str
    state: Literal["running", "done", "undone"]
    began_at: str
    ended_at: str = ""
    took_ms: int | None = None
    told: tuple[str, ...] = ()
    """What the step recorded, each as ``name: value``."""


class CutoverRecord(Part, frozen=True, kw_only=True):
    """A cutover, as its journal has it. Times are ISO 8601, in UTC; empty where it has none."""

    id: str
    environment: str
    state: Literal["running", "aborted", "cut-over", "rolled-back", "finished"]
    who: str = ""
    why: str = ""
    epoch: int | None = None
    began_at: str
    ended_at: str = ""
    point_passed_at: str = ""
    opened_at: str = ""
    """When PostgreSQL was opened to everybody."""
    rollback_until: str = ""
    config: str = ""
    config_backup: str = ""
    fence: str = ""
    """What stops the writers of MongoDB, in words."""
    gates: tuple[GateState, ...] = ()
    steps: tuple[JournalStep, ...] = ()
    pause_ms: int | None = None
    """How long writers were stopped."""
    pause_planned_ms: int | None = None
    pause_limit_ms: int
    lag_before_s: int | None = None
    """Seconds that the tail was behind MongoDB before the fence."""
    compared: int | None = None
    """Documents compared under the fence."""
    overdue: int | None = None
    waived: tuple[str, ...] = ()
    """What a person let pass, each a sentence."""
    backup: str = ""
    backup_digest: str = ""
    """SHA-256 over the digests of all collections."""
    backup_documents: int | None = None
    lost: dict[str, int] = {}
    """What a rollback could not write to MongoDB, by table and column."""
    gaps: tuple[str, ...] = ()
    """Schedules that the old application does not fire as PostgreSQL did, named before the rollback."""
    unlike: tuple[str, ...] = ()
    """Schedules that fire otherwise after the rollback, and were not named before."""
    export: str = ""
    """Folder of the files with the rows that no document has."""
    export_digest: str = ""
    """SHA-256 of the manifest in that folder."""


class Policy(Part, frozen=True, kw_only=True):
    """What the caller asked for, as far as it changes what the result means."""

    only: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()
    fail_on: tuple[str, ...] = ()
    """Areas in which warnings, and measurements above their ceiling, count as failures."""
    accepted: tuple[str, ...] = ()
    """Areas of behaviour whose failures the caller declared acceptable: shown, named in the verdict, no bit."""
    values_shown: bool = False
    allow_quarantined: Allowance | msgspec.UnsetType = msgspec.UNSET
    """How many documents may be in quarantine before the exit status says so; unset where none was allowed."""
    scratch_on_source: bool = False
    """Scratch databases and tenants could be written to the source's server; else nothing was written there."""


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
    requirements: tuple[Requirement, ...] = ()
    out_of_scope: tuple[OutOfScope, ...] = ()
    """Requirements that this tool cannot verify."""
    collections: tuple[CollectionCounts, ...] = ()
    quarantine: tuple[Quarantined, ...] = ()
    losses: tuple[Loss, ...] = ()
    state_machines: tuple[StateMachine, ...] = ()
    left_out: tuple[str, ...] = ()
    """What exists and was not checked, each a sentence: collections in no profile, rows of other origin, ..."""
    cutover: CutoverRecord | msgspec.UnsetType = msgspec.UNSET
    """Only of a cutover report: the cutover that its checks judge."""

    @property
    def quarantined(self) -> int:
        """Return how many documents are in quarantine."""
        return sum(line.count for line in self.quarantine)


class Measurement(Part, frozen=True, kw_only=True):
    """A measured value that varies from run to run; above its ceiling it is a warning of its check."""

    check: str
    name: str
    unit: str
    value: float
    ceiling: float | None = None
    points: tuple[tuple[str, float], ...] = ()
    """Single readings, or the value over time: a label and the value, in order."""

    @property
    def is_over(self) -> bool:
        """Whether it is above its ceiling."""
        return self.ceiling is not None and self.value > self.ceiling


class Side(Part, frozen=True, kw_only=True):
    """A database that was checked; without its user and password."""

    name: Literal["source", "target"]
    server: str
    """Product and version, or why they are not known."""
    address: str = ""
    """Hosts and ports, or the folder of a socket."""
    database: str = ""
    replica_set: str = ""
    replica_set_id: str = ""
    """The id that MongoDB gave the replica set when it was initiated."""
    system_identifier: str = ""
    """The number that PostgreSQL gave the server's files when they were made; a copy of the files keeps it."""


class CutoverState(Part, frozen=True, kw_only=True):
    """How the last cutover of the target stands when a verification is made."""

    state: Literal["running", "aborted", "cut-over", "rolled-back", "finished"]
    began_at: str
    """Times are ISO 8601, in UTC; empty where there is none."""
    opened_at: str = ""
    """When PostgreSQL was opened to everybody."""
    ended_at: str = ""


class Run(Part, frozen=True, kw_only=True):
    """The half that varies. It is not part of the digest of the evidence."""

    name: str
    """Name of the folder under ``reports/``."""
    started_at: str = ""
    finished_at: str = ""
    durations_ms: dict[str, int] = {}
    """By check id, and by step for the steps around them."""
    sides: tuple[Side, ...] = ()
    installation: dict[str, str] = {}
    """Which installation this is: name of the environment, plan of the copy and its time, digest of the settings; of a
    native target, which collection was moved into which tables."""
    cutover: CutoverState | msgspec.UnsetType = msgspec.UNSET
    """Unset if there was no cutover, or if it could not be read."""
    environment: dict[str, str] = {}
    """Versions of servers and libraries, time zone data, pooling, clock skew, host, ports."""
    measurements: tuple[Measurement, ...] = ()
    panels: dict[str, tuple[Panel, ...]] = {}
    """By check id: tables and charts that vary from run to run."""


class Signature(Part, frozen=True, kw_only=True):
    """A signature over both halves (``signed_text``)."""

    algorithm: Literal["ed25519"]
    key: str
    """Public key, its 32 bytes as base64."""
    value: str
    """The 64 bytes of the signature as base64."""


FORMAT: Final = 5
"""Version of ``result.json``; it rises when a reader of the old one would misread the new one."""


STATUSES: Final[tuple[Status, ...]] = ("passed", "failed", "unverified", "not-asked-for", "not-applicable")
NOT_DUE: Final[tuple[Status, ...]] = ("not-asked-for", "not-applicable")
"""Of checks that this run was not to make."""


class Result(Part, frozen=True, kw_only=True):
    """A verification: what was found, and under which circumstances."""

    format: int = FORMAT
    evidence: Evidence
    run: Run
    digest: str
    """``sha256:`` and 64 hexadecimal digits, over ``evidence``."""
    signature: Signature | None = None

    @property
    def cutover(self) -> CutoverRecord | None:
        """Return the cutover that this is the report of; None for a verification."""
        return self.evidence.cutover or None

    def statuses(self) -> dict[Status, int]:
        """Count the checks by how they ended."""
        counts: dict[Status, int] = dict.fromkeys(STATUSES, 0)
        for check in self.evidence.checks:
            counts[check.outcome.status] += 1
        return counts

    def judged(self) -> tuple[int, int]:
        """Return how many checks that can fail have passed, and how many of them this run was to make."""
        wanted = [one for one in self.evidence.checks if one.can_fail and one.outcome.status not in NOT_DUE]
        return sum(one.outcome.status == "passed" for one in wanted), len(wanted)

    def recorded(self) -> int:
        """Return how many checks of this run cannot fail and only recorded."""
        return sum(not one.can_fail and one.outcome.status == "passed" for one in self.evidence.checks)

    def exit_status(self) -> int:
        """Return the bit mask: 1 failed, 4 unverified, 8 quarantine, 16 the tool failed; 0 when none holds.

        Quarantine counts beyond ``allow_quarantined``.

        Settled findings, warnings outside ``fail_on``, failures in ``accepted`` areas, and what is not applicable set
        no bit.
        """
        checks = self.evidence.checks
        skipped = any(area.status == "skipped" for area in self.evidence.areas)
        return mask(
            different=any(map(self.counts_as_failed, checks)),
            unverified=skipped or not checks or any(map(is_unverified, checks)),
            quarantine=beyond(self.evidence.quarantined, self.evidence.policy.allow_quarantined or 0),
            tool_failed=any(check.errored for check in checks),
        )

    def verdict(self) -> Verdict:
        """Return the verdict in one word. A failure takes precedence over what is not known."""
        status = self.exit_status()
        if status & DIFFERENT:
            return "different"
        if status & TOOL_FAILED:
            return "tool-failed"
        if status & UNVERIFIED:
            return "unverified"
        if self.accepted_failures():
            return "accepted"
        return "equal-but-quarantine" if self.evidence.quarantined else "equal"

    def requirement_status(self, requirement: Requirement) -> Status:
        """Return the status of a requirement in this run: passed only where a check that can fail has passed.

        A check that was not asked for, or does not apply, does not count if another one was made. A check that this run
        left out leaves the requirement not verified.
        """
        made = {check.id: check for check in self.evidence.checks}
        own = [made[name] for name in requirement.checks if name in made]
        statuses = [one.outcome.status for one in own if one.can_fail]
        asked = {area.name for area in self.evidence.areas if area.status in NOT_DUE}
        left = any(name not in made and name.partition(".")[0] not in asked for name in requirement.checks)
        if "failed" in statuses:
            return "failed"
        if left or "unverified" in statuses or any(map(is_unverified, own)):
            return "unverified"
        if "passed" in statuses:
            return "passed"
        return "not-applicable" if "not-applicable" in statuses else "not-asked-for"

    def requirement_state(self, requirement: Requirement) -> RequirementState:
        """Return the state of a requirement: in this run, else whether the product's tests show it."""
        status = self.requirement_status(requirement)
        if requirement.checks and status in ("passed", "failed", "unverified"):
            return cast("RequirementState", status)
        return "shown-by-tests" if requirement.tests else "not-exercised"

    def counts_as_failed(self, check: Check) -> bool:
        """Whether a check sets bit 1: it failed and that is not accepted, or it warned where that fails."""
        policy = self.evidence.policy
        if check.outcome.status == "failed":
            return check.area not in policy.accepted
        return check.area in policy.fail_on and self.warns(check)

    def warns(self, check: Check) -> bool:
        """Whether a check has a warning, or a measurement above its ceiling."""
        slow = any(one.check == check.id and one.is_over for one in self.run.measurements)
        return slow or any(one.severity == "warning" for one in check.tallies)

    def accepted_failures(self) -> list[Check]:
        """Return the checks that failed in an area whose failures were declared acceptable."""
        accepted = self.evidence.policy.accepted
        return [one for one in self.evidence.checks if one.outcome.status == "failed" and one.area in accepted]


def is_unverified(check: Check) -> bool:
    """Whether a check, or what it says of one table, could not be made."""
    return "unverified" in (check.outcome.status, *(cell.outcome.status for cell in check.cells))


def build(evidence: Evidence, run: Run) -> Result:
    """Put the two halves together under the digest of the first.

    The returned result is the one that is read back, with names in the same order, so it renders to the same bytes.
    """
    return decode(encode(Result(evidence=evidence, run=run, digest=digest(evidence))))


def digest(half: Evidence | Run) -> str:
    """Return ``sha256:<hex>`` over the canonical bytes of one half of a result."""
    return "sha256:" + hashlib.sha256(msgspec.json.encode(half, order="sorted")).hexdigest()


def signed_text(result: Result) -> bytes:
    """Return the signed text: two lines, the digest of the evidence and that of the run."""
    return f"migrator evidence {result.digest}\nmigrator run {digest(result.run)}\n".encode()


def encode(result: Result) -> bytes:
    """Return the bytes of ``result.json``: keys sorted, two spaces, one newline at the end."""
    return msgspec.json.format(msgspec.json.encode(result, order="sorted"), indent=2) + b"\n"


def decode(text: bytes) -> Result:
    """Read ``result.json``; raise ``UsageError`` if it is not a result, or of another format.

    A name that occurs twice in one object is refused: readers differ in which of its values they use. So is a name
    that this format does not have, because no digest is computed over it.
    """
    try:
        version = msgspec.json.decode(text, type=_Versioned).format
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise UsageError(f"not a result of this tool: {str(error).lower()}") from None
    if version != FORMAT:
        raise UsageError(f"a result of format {version}; this version of the tool reads format {FORMAT}")
    try:
        json.loads(text.decode(), object_pairs_hook=_unique)
        return msgspec.json.decode(text, type=Result)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise UsageError(f"not a whole result: {str(error).lower()}") from None


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    members = dict(pairs)
    if len(members) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"the name {max(names, key=names.count)} occurs twice in one object")
    return members


class _Versioned(msgspec.Struct):
    format: int
