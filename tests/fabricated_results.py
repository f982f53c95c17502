"""Fabricated results, shared by tests: a verification with all kinds of trouble, and one without any."""

from migrator.result import (
    FAILED,
    PASSED,
    Area,
    Cell,
    Check,
    CollectionCounts,
    Decision,
    Evidence,
    Finding,
    Loss,
    Measurement,
    Panel,
    Policy,
    Quarantined,
    Requirement,
    Result,
    Run,
    Side,
    StateMachine,
    Tally,
    Transition,
    build,
    not_applicable,
    not_asked_for,
    unverified,
)
from migrator.verify.requirements import OUT_OF_SCOPE

TABLES = ("schedules", "triggers", "runs", "graph_jobs", "policy_jobs", "impact_snapshots", "locks", "handlers")
HOSTILE = "run-\u202e<script>alert(1)</script>|`x`\n"


def clean() -> Result:
    evidence = Evidence(
        basis={"profile": "stellaops/1", "schema revision": "0002", "tool": "migrator 0.1.0"},
        areas=(
            Area(name="schema", title="The target's schema", status="checked"),
            Area(name="parity", title="Every document and its rows are equal", status="checked"),
        ),
        tables=("runs",),
        checks=(
            Check(id="schema.revision", area="schema", title="The schema is at its latest revision", outcome=PASSED),
            Check(
                id="parity.round-trip",
                area="parity",
                title="Every document can be rebuilt",
                requirements=("0-X1", "1-M1"),
                outcome=PASSED,
                counts={"documents": 12_000, "rows": 12_000},
                cells=(Cell(table="runs", outcome=PASSED, count=12_000, unit="rows"),),
            ),
        ),
        collections=(
            CollectionCounts(
                collection="runs",
                tables=("runs",),
                documents=12_000,
                matched=12_000,
                rows=12_000,
                without_remainder=12_000,
            ),
        ),
    )
    return build(evidence, Run(name="20261120-170000", durations_ms={"parity.round-trip": 4_210}))


def troubled() -> Result:
    """Every kind of part that a result can have, and keys that try to break out of the page."""
    policy_tables = ("policy_jobs",)
    moved = (
        CollectionCounts(
            collection="schedules",
            tables=("schedules", "triggers"),
            documents=1_204,
            matched=1_201,
            quarantined=3,
            rows=2_388,
            without_remainder=1_150,
            with_remainder=51,
        ),
        CollectionCounts(
            collection="runs",
            tables=("runs",),
            documents=15_000,
            matched=14_871,
            differing=118,
            missing=2,
            quarantined=9,
            rows=14_989,
            extra=4,
            without_remainder=14_310,
            with_remainder=561,
        ),
        CollectionCounts(
            collection="policy_runs",
            tables=policy_tables,
            documents=840,
            matched=840,
            rows=840,
            without_remainder=840,
        ),
        CollectionCounts(
            collection="locks",
            tables=("locks",),
            documents=40,
            matched=7,
            skipped={"expired": 33},
            rows=7,
            without_remainder=7,
        ),
        CollectionCounts(collection="impact_snapshots", tables=("impact_snapshots",), documents=0, matched=0),
    )
    findings = [
        Finding(
            severity="difference",
            cause="time-precision",
            collection="runs",
            table="runs",
            key=HOSTILE if index == 0 else f"run_{index:032x}",
            path="started_at",
            side="row",
            details=("the value of started_at differs (datetime)",),
        )
        for index in range(30)
    ]
    round_trip = Check(
        id="parity.round-trip",
        area="parity",
        title="Every document can be rebuilt from its rows",
        requirements=("0-X1", "0-T2.7.1", "1-M1"),
        outcome=FAILED,
        counts={"documents": 17_084, "matched": 16_919, "differing": 118, "missing": 2},
        cells=(
            Cell(table="schedules", outcome=PASSED, count=1_201, unit="rows"),
            Cell(table="triggers", outcome=PASSED, count=1_187, unit="rows"),
            Cell(table="runs", outcome=FAILED, count=14_989, unit="rows"),
            Cell(table="policy_jobs", outcome=PASSED, count=840, unit="rows"),
            Cell(table="locks", outcome=PASSED, count=7, unit="rows"),
            Cell(table="impact_snapshots", outcome=unverified("the copy of impact_snapshots is not finished")),
            Cell(table="handlers", outcome=not_applicable("no collection feeds this table")),
        ),
        tallies=(
            Tally(
                severity="difference",
                cause="time-precision",
                collection="runs",
                table="runs",
                path="started_at",
                title="times that differ by less than a second",
                fix="compare the field with the profile's decode and encode",
                count=112,
                keys=("run_0001", "run_0002"),
            ),
            Tally(
                severity="difference",
                cause="number-type",
                collection="runs",
                path="stats.queued",
                title="the same number in another type (int32, int64, double, decimal)",
                fix="compare the field with the profile's decode and encode",
                count=6,
                keys=(HOSTILE,),
            ),
            Tally(
                severity="explained",
                cause="orphan",
                collection="runs",
                path="schedule_id",
                title="a dangling reference: the document does not exist",
                fix="the column stays null, the text stays in the remainder",
                count=37,
                keys=("run_0007",),
            ),
        ),
        findings=tuple(findings),
        findings_total=118,
        limits=("The order of keys inside documents is not compared.",),
    )
    locking = Check(
        id="locking.contention",
        area="locking",
        title="One winner per lock under contention",
        outcome=PASSED,
        panels=(
            Panel(
                kind="table",
                title="Contenders and winners",
                columns=("lock", "contenders", "winners"),
                rows=(("leader", 8, 1), ("retention", 8, 1)),
                rows_total=2,
            ),
        ),
    )
    checks = (
        Check(
            id="schema.revision",
            area="schema",
            title="The schema is at its latest revision",
            requirements=("0-T2.2.1",),
            outcome=PASSED,
        ),
        Check(
            id="schema.catalogue",
            area="schema",
            title="The live catalogue is the declared one",
            requirements=("0-T2.2.2",),
            outcome=PASSED,
            cells=tuple(Cell(table=table, outcome=PASSED) for table in TABLES),
        ),
        round_trip,
        Check(
            id="parity.aggregates",
            area="parity",
            title="Both databases compute the same aggregates",
            requirements=("0-X1",),
            outcome=unverified("too many documents are in quarantine to leave them out one by one"),
        ),
        locking,
        Check(
            id="performance.claim",
            area="performance",
            title="A run is claimed in time",
            outcome=PASSED,
            tallies=(
                Tally(
                    severity="warning",
                    cause="slow",
                    title="a timing above its ceiling",
                    fix="look at the plan",
                    count=1,
                ),
            ),
        ),
    )
    evidence = Evidence(
        basis={
            "environment": "staging",
            "profile": "stellaops/1",
            "schema revision": "0002",
            "tool": "migrator 0.1.0",
        },
        policy=Policy(skip=("workers",)),
        decisions=(
            Decision(kind="fresh start", who="R. Lind", at="2026-11-20", why="no history is needed", tool="0.1.0"),
        ),
        areas=(
            Area(name="schema", title="The target's schema", status="checked"),
            Area(name="parity", title="Every document and its rows are equal", status="checked"),
            Area(name="transitions", title="State machines", status="checked"),
            Area(name="locking", title="Locks under contention", status="checked"),
            Area(name="workers", title="Workers and their heartbeats", status="skipped", reason="left out by --skip"),
            Area(
                name="execution",
                title="Execution of due schedules",
                status="absent",
                reason="not checked by this version of the tool",
            ),
            Area(name="performance", title="Times and their ceilings", status="checked"),
            Area(name="cutover", title="The cutover and the rollback", status="checked"),
            Area(
                name="sensitivity",
                title="How strong this verification is",
                status="not-asked-for",
                reason="made only with --sensitivity",
            ),
        ),
        tables=TABLES,
        checks=(*checks, *_of_the_cutover()),
        requirements=(
            Requirement(
                id="0-X1",
                text="parity counts, checksums per collection/table",
                checks=("parity.round-trip", "parity.aggregates"),
            ),
            Requirement(id="0-T2.2.2", text="all 11 tables and indexes", checks=("schema.catalogue",)),
            Requirement(id="0-T2.9.3", text="dead worker detection", checks=("workers.heartbeats",)),
            Requirement(id="4-B1", text="rollback level 1: switch back", checks=("cutover.rollback",)),
            Requirement(
                id="0-T2.8.4", text="lock renewal", checks=(), tests=("integration/test_locks.py::test_renewal",)
            ),
        ),
        out_of_scope=OUT_OF_SCOPE[:2],
        collections=moved,
        quarantine=(
            Quarantined(
                collection="runs",
                reason="unknown-value",
                path="state",
                expected="one of planning, queued, running, completed, error, cancelled",
                count=9,
                keys=("run_00ff", HOSTILE),
            ),
            Quarantined(collection="schedules", reason="no-tenant", path="tenantId", expected="a tenant", count=3),
        ),
        losses=(
            Loss(collection="runs", path="createdAt", kind="precision", count=412, kept=True),
            Loss(collection="schedules", path="name", kind="nul", count=2, kept=False),
        ),
        state_machines=(
            StateMachine(
                name="run",
                states=("queued", "running"),
                transitions=(
                    Transition(before="queued", after="running", allowed=True, exercised=12, outcome=PASSED),
                    Transition(before="running", after="queued", allowed=False, exercised=12, outcome=PASSED),
                ),
            ),
        ),
        left_out=("collection audit_old is in no profile: not copied, so not compared",),
    )
    run = Run(
        name="20261120-170412",
        started_at="2026-11-20T17:04:12+00:00",
        finished_at="2026-11-20T17:05:40+00:00",
        durations_ms={"parity.round-trip": 61_400, "schema.catalogue": 840, "schema.revision": 12},
        sides=(
            Side(
                name="source",
                server="MongoDB 6.0.27",
                address="db1.example:27017, db2.example:27017",
                database="stellaops_scheduler",
                replica_set="rs0",
                replica_set_id="6560a1f2c4d5e6f708192a3b",
            ),
            Side(
                name="target",
                server="PostgreSQL 18.4",
                address="pg.example:5432",
                database="scheduler",
                system_identifier="7574218093458812345",
            ),
        ),
        installation={
            "environment": "scheduler@pg.example",
            "configuration": "sha256:" + "5e" * 32,
            "plan": "0f8fad5b-d9cb-469f-a165-70867728950e, as of 2026-11-20 16:30:00 UTC, complete",
        },
        panels={
            "cutover.gates": (
                Panel(
                    kind="table",
                    title="Cutover readiness",
                    columns=("gate", "now", "why"),
                    rows=(
                        ("schema", "met", "at its latest revision"),
                        ("fence", "not met", "the server requires no authentication"),
                        ("history", "cannot be told", "the tool's user may not read local.oplog.rs"),
                    ),
                    rows_total=3,
                ),
            )
        },
        environment={"mongodb": "6.0.27", "postgresql": "18.4", "python": "3.11.7", "time zone data": "2026.6"},
        measurements=(
            Measurement(check="performance.claim", name="claim p95", unit="ms", value=12.5, ceiling=10.0),
            Measurement(check="cutover.gates", name="gates not met now", unit="", value=1),
        ),
    )
    return build(evidence, run)


def _of_the_cutover() -> tuple[Check, ...]:
    """Return a check that cannot fail, two that a missing right kept from being made, one that nobody asked for."""
    lacking = unverified(
        "the target's user tool may make no database; an administrator calls", "ALTER ROLE tool CREATEDB"
    )
    return (
        Check(
            id="cutover.gates",
            area="cutover",
            title="The state of each gate of the cutover is recorded",
            outcome=PASSED,
            can_fail=False,
            counts={"gates": 3},
        ),
        Check(
            id="cutover.downgrade", area="cutover", title="The schema can be downgraded and upgraded", outcome=lacking
        ),
        Check(id="cutover.configuration", area="cutover", title="The configuration can be changed", outcome=lacking),
        Check(
            id="cutover.rollback",
            area="cutover",
            title="Reverse sync writes what is written after the cutover",
            requirements=("4-B1",),
            outcome=not_asked_for("made only with --scratch-on-source"),
        ),
    )
