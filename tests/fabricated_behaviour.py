"""A fabricated result in which every area has checks: behaviour, machines, measurements, planted faults, decisions."""

from migrator.report.areas import AREAS
from migrator.result import (
    FAILED,
    PASSED,
    Area,
    Cell,
    Check,
    Decision,
    Evidence,
    Measurement,
    Panel,
    Result,
    Run,
    StateMachine,
    Tally,
    Transition,
    build,
    not_applicable,
)

TABLES = ("schedules", "triggers", "runs", "locks", "workers")
STATES = ("planning", "queued", "running", "completed", "error", "cancelled")
ALLOWED = {
    ("planning", "queued"),
    ("planning", "error"),
    ("planning", "cancelled"),
    ("queued", "running"),
    ("queued", "cancelled"),
    ("running", "completed"),
    ("running", "error"),
    ("running", "cancelled"),
}
CLASSES = ("lost row", "extra row", "one millisecond", "one unit in the last place", "null for absent", "wrong tenant")


def check(identity: str, title: str, **more: object) -> Check:
    more.setdefault("outcome", PASSED)
    return Check(id=identity, area=identity.partition(".")[0], title=title, **more)  # type: ignore[arg-type]


def machine() -> StateMachine:
    edges = []
    for before in STATES:
        for after in STATES:
            if before == after or (before, after) == ("error", "planning"):
                continue  # one pair is left untried
            wrong = (before, after) == ("completed", "queued")
            edges.append(
                Transition(
                    before=before,
                    after=after,
                    allowed=(before, after) in ALLOWED,
                    exercised=4,
                    outcome=FAILED if wrong else PASSED,
                )
            )
    return StateMachine(name="run", states=STATES, transitions=tuple(edges))


def checks() -> tuple[Check, ...]:
    every = tuple(Cell(table=table, outcome=PASSED, count=120, unit="rows") for table in TABLES)
    return (
        check("schema.catalogue", "The live catalogue is the declared one", cells=every, requirements=("0-T2.2.2",)),
        check("parity.rows", "Every stored row is the row of its document", outcome=not_applicable("fresh start")),
        check(
            "semantics.next-fires",
            "Every trigger fires next when its document says",
            counts={"triggers": 96, "fires compared": 38_400, "changes of the clock crossed": 4},
            panels=(
                Panel(
                    kind="table",
                    title="Zones with a change of the clock in the window",
                    columns=("zone", "change", "triggers"),
                    rows=(("Europe/Berlin", "2027-03-28 02:00", 31), ("America/New_York", "2027-03-14 02:00", 12)),
                    rows_total=2,
                ),
            ),
        ),
        check("crud.facade", "Both backends answer the same", counts={"operations": 2_400, "backends": 2}),
        check(
            "transitions.run",
            "Every step of a run that is allowed is made, every other refused",
            outcome=FAILED,
            counts={"pairs": 30},
        ),
        check("triggers.misfires", "Misfires follow the stated policy", counts={"policies": 3}),
        check(
            "locking.contention",
            "Of several processes one holds the lock",
            counts={"processes": 8, "turns": 400, "two at once": 0},
            panels=(
                Panel(
                    kind="table",
                    title="Who held the lock how often",
                    columns=("process", "turns"),
                    rows=tuple((f"process {number}", 40 + 7 * number % 23) for number in range(1, 9)),
                    rows_total=8,
                ),
            ),
        ),
        check("workers.heartbeats", "A worker that falls silent is declared dead once"),
        check("execution.end-to-end", "A due trigger becomes a run that ends", counts={"runs": 60}),
        check("isolation.tenants", "No tenant sees another", counts={"probes": 52}, cells=every[:3]),
        check(
            "cutover.rehearsal",
            "Cutover and rollback were rehearsed",
            panels=(
                Panel(
                    kind="table",
                    title="Readiness",
                    columns=("step", "state"),
                    rows=(("fence", "ready"), ("drain", "ready"), ("cutover", "ready"), ("rollback", "rehearsed")),
                    rows_total=4,
                ),
            ),
        ),
        check("performance.claim", "A run is claimed in time"),
        check(
            "sensitivity.mutations",
            "Every planted fault was caught",
            outcome=FAILED,
            counts={"classes": 48, "caught": 47, "missed": 1},
            tallies=(
                Tally(
                    severity="difference",
                    cause="missed",
                    path="null for absent",
                    title="a corruption that no check saw: null for absent",
                    fix="a check must be made that sees it",
                    count=1,
                ),
            ),
            panels=(
                Panel(
                    kind="table",
                    title="Planted faults by class",
                    columns=("class", "caught", "missed", "first seen by"),
                    rows=tuple(
                        (name, 7 if name == "null for absent" else 8, int(name == "null for absent"), "parity.rows")
                        for name in CLASSES
                    ),
                    rows_total=len(CLASSES),
                ),
            ),
        ),
    )


def behaviour() -> Result:
    evidence = Evidence(
        basis={"profile": "stellaops/1", "schema revision": "0004", "tool": "migrator 0.1.0"},
        decisions=(
            Decision(
                kind="fresh start",
                who="R. Lind",
                at="2026-11-20T16:58:02+00:00",
                why="the old history is archived and not needed",
                tool="migrator 0.1.0",
            ),
        ),
        areas=tuple(
            Area(name=name, title=spec.title, status="not-applicable", reason="fresh start")
            if name == "parity"
            else Area(name=name, title=spec.title, status="checked")
            for name, spec in AREAS.items()
        ),
        tables=TABLES,
        checks=checks(),
        state_machines=(machine(),),
    )
    contention = Panel(
        kind="table",
        title="Turns per second by number of processes",
        columns=("processes", "PostgreSQL", "MongoDB"),
        rows=((1, 410, 290), (2, 640, 420), (4, 820, 510), (8, 860, 530)),
        rows_total=4,
    )
    held = Panel(
        kind="spans",
        title="The first turns, in milliseconds",
        columns=("process", "from", "to", "fence"),
        rows=tuple((f"process {turn % 3 + 1}", turn * 12, turn * 12 + 9, turn + 1) for turn in range(12)),
        rows_total=400,
    )
    readings = tuple((str(number), 4.0 + number * 7 % 5) for number in range(40))
    run = Run(
        name="20261120-170412",
        started_at="2026-11-20T17:04:12+00:00",
        finished_at="2026-11-20T17:05:40+00:00",
        durations_ms={one.id: 90 + 731 * number for number, one in enumerate(checks())},
        environment={"mongodb": "not configured", "postgresql": "18.4", "time zone data": "2026.6"},
        measurements=(
            Measurement(
                check="performance.claim", name="claim p95", unit="ms", value=7.9, ceiling=20.0, points=readings
            ),
            Measurement(check="performance.claim", name="list runs p95", unit="ms", value=31.4, ceiling=25.0),
            Measurement(check="performance.claim", name="claims", unit="per second", value=1_840.0),
        ),
        panels={"locking.contention": (contention, held)},
    )
    return build(evidence, run)
