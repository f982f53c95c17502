"""Fabricated results of cutovers, shared by tests: one that went well, one with trouble, one that was rolled back."""

import msgspec

from migrator.result import (
    FAILED,
    PASSED,
    Area,
    Check,
    CutoverRecord,
    Decision,
    Evidence,
    Finding,
    GateState,
    JournalStep,
    Measurement,
    Result,
    Run,
    Side,
    build,
    not_applicable,
    table_panel,
    unverified,
)

DAY = "2026-11-22T21:"


def record() -> CutoverRecord:
    names = (
        "preflight",
        "catch-up",
        "fence",
        "drain",
        "parity",
        "outbox",
        "point-of-no-return",
        "open-target",
        "smoke",
    )
    told = {"catch-up": ("events: 1204",), "parity": ("documents: 311",), "fence": ("kind: roles",)}
    return CutoverRecord(
        id="0f8fad5b-d9cb-469f-a165-70867728950e",
        environment="production",
        state="cut-over",
        who="op <ops@example.org>",
        why="ticket 4711",
        epoch=1,
        began_at=f"{DAY}00:00.000+00:00",
        ended_at=f"{DAY}00:09.000+00:00",
        point_passed_at=f"{DAY}00:06.000+00:00",
        opened_at=f"{DAY}00:07.000+00:00",
        rollback_until="2026-11-24T21:00:07.000+00:00",
        config="/etc/scheduler/config.toml",
        config_backup="/etc/scheduler/config.toml.cutover-1",
        fence="write roles of 2 users are revoked",
        gates=(
            GateState(name="tail", met=True, words="lag 1 s, no alarm"),
            GateState(name="quarantine", met=True, words="15 documents are quarantined (at most 20)"),
            GateState(name="history", met=None, words="the tool's user may not read local.oplog.rs"),
        ),
        steps=tuple(
            JournalStep(
                step=name,
                state="done",
                began_at=f"{DAY}00:0{number}.000+00:00",
                ended_at=f"{DAY}00:0{number}.900+00:00",
                took_ms=900,
                told=told.get(name, ()),
            )
            for number, name in enumerate(names)
        ),
        pause_ms=5_120,
        pause_planned_ms=4_000,
        pause_limit_ms=30_000,
        lag_before_s=1,
        compared=311,
        overdue=3,
        waived=("quarantine: 15 documents are quarantined (at most 20)", "gate history could not be told: no right"),
        backup="/var/backups/cutover-0f8fad5b",
        backup_digest="ab" * 32,
        backup_documents=20_272,
    )


def good() -> Result:
    checks = (
        Check(id="success.pause", area="success", title="Writers were stopped no longer than allowed", outcome=PASSED,
              counts={"ms": 5_120, "ms allowed": 30_000}, limits=("An application's own pause is not measured.",)),
        Check(id="success.parity", area="success", title="Every document was equal", requirements=("4-Z1",),
              outcome=PASSED, counts={"documents": 311}),
        Check(id="success.metrics", area="success", title="The key metrics are recorded", can_fail=False,
              outcome=PASSED),
    )  # fmt: skip
    evidence = Evidence(
        basis={"profile": "stellaops/1", "report": "cutover", "tool": "migrator 0.1.0"},
        decisions=(
            Decision(kind="cutover", who="op", at=f"{DAY}00:06+00:00", why="ticket 4711", tool="migrator 0.1.0"),
        ),
        areas=(Area(name="success", title="Success criteria", status="checked"),),
        checks=checks,
        cutover=record(),
    )
    points = (("before", 40.0), ("at the cutover", 41.0), ("now", 39.0))
    run = Run(
        name="cutover-20261122-220000",
        started_at="2026-11-22T22:00:00+00:00",
        sides=(
            Side(name="source", server="MongoDB 6.0.27", address="db1.example:27017", database="s", replica_set="rs0"),
            Side(name="target", server="PostgreSQL 18.4", address="pg.example:5432", database="scheduler"),
        ),
        installation={"environment": "production"},
        measurements=(Measurement(check="success.metrics", name="waiting runs", unit="", value=39.0, points=points),),
        panels={"success.metrics": (table_panel("Key metrics", ("metric", "before"), (("waiting runs", "40"),)),)},
    )
    return build(evidence, run)


def bad() -> Result:
    """A pause above its limit, and a criterion that could not be told."""
    found = good()
    slow = msgspec.structs.replace(record(), pause_ms=41_000, who="", why="", waived=(), rollback_until="")
    finding = Finding(severity="difference", cause="cutover", details=("writers were stopped for 41 s <b>",))
    first, second, third = found.evidence.checks
    checks = (
        msgspec.structs.replace(first, outcome=FAILED, findings=(finding,), findings_total=1),
        msgspec.structs.replace(second, outcome=unverified("no run was made since PostgreSQL was opened")),
        third,
    )
    return build(msgspec.structs.replace(found.evidence, cutover=slow, checks=checks), found.run)


def rolled_back() -> Result:
    found = good()
    gone = not_applicable("the cutover is rolled-back: the data is in MongoDB")
    first, *others = found.evidence.checks
    back = msgspec.structs.replace(
        record(), state="rolled-back", lost={"runs.result": 4}, gaps=("no cron line: 2 schedules",), backup="", gates=()
    )
    checks = (msgspec.structs.replace(first, outcome=gone), *others)
    return build(msgspec.structs.replace(found.evidence, cutover=back, checks=checks, decisions=()), found.run)
