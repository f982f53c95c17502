"""The rows of the list of capabilities that checks show, in their words, so that the report says them itself.

A check names a row, or one member of a row that lists several. It names only rows whose violation makes it fail.
"""

from collections.abc import Iterable
from functools import cache
from importlib import resources
from typing import Final, NamedTuple

from migrator.result import OutOfScope, Requirement
from migrator.verify.check import CheckSpec

_COLUMNS: Final = ("id", "tenant_id", "type 0/1", "status", "payload", "created_at", "updated_at", "correlation_id")
_EVENTS: Final = ("id", "job_id, cascade FK", "tenant_id", "status", "payload", "created_at")
_AFTER: Final = ("in UI", "on schedule", "manual", "history", "leader", "toggle", "no old runs")

WORDS: Final[dict[str, str]] = {
    "0-O6": "backfill from Mongo",
    "0-R1": "risk: contention",
    "0-R2": "risk: trigger errors",
    "0-R3": "risk: transition bugs",
    "0-T2.2.1": "create-schema migration",
    "0-T2.2.2": "all 11 tables (+graph_job_events) and indexes",
    "0-T2.2.3": "partial index for active schedules",
    "0-T2.4.2": "run state transitions",
    "0-T2.9.3": "dead worker detection",
    "0-T2.10.2": "backend switching",
    "0-T2.11.1": "verify schedule CRUD",
    "0-T2.11.2": "verify run creation + transitions",
    "0-T2.11.3": "verify trigger calculation",
    "0-T2.11.4": "verify locking under concurrency",
    "0-T2.11.5": "verify job execution end-to-end",
    "0-T2.12.3": "integration tests after switch",
    "0-X1": "parity counts, checksums per collection/table",
    "0-X2": "tenant isolation",
    "1-G3": "determinism of transitions and ordering",
    "1-G4": "tenant isolation",
    **{f"1-S{number}": f"graph_jobs column {name}" for number, name in enumerate(_COLUMNS, 1)},
    "1-S9": "index tenant,status,created desc",
    "1-S10": "index tenant,type,status,created desc",
    **{f"1-S{number}": f"graph_job_events column {name}" for number, name in enumerate(_EVENTS, 11)},
    "1-S17": "index job, created desc",
    "2-X11": "job statistics counters",
    "3-P1": "10,000+ jobs",
    "3-P5": "5\N{EN DASH}10 instances safe",
    "4-B1": "rollback level 1: switch back",
    "4-B2": "level 2: schema downgrade",
    **{f"4-V{number}": f"post check: {name}" for number, name in enumerate(_AFTER, 1)},
    "4-V9": "performance: connections",
    "4-Z1": "success criterion: all jobs in DB",
    "4-Z2": "success criterion: all via Celery",
    "4-Z3": "success criterion: history in DB",
    "4-Z6": "success criterion: no duplicate executions",
}
"""Id to words, those of the list of capabilities."""


OUT_OF_SCOPE: Final = tuple(
    OutOfScope(id=name, text=words, note=note)
    for name, words, note in (
        ("0-T2.12.2", "deploy staging", "The operator deploys. The report names the environment that it was made in."),
        (
            "0-T2.12.4",
            "deploy production",
            "The operator deploys. The report names the environment that it was made in.",
        ),
        (
            "2-X5",
            "built-in handlers (5)",
            "Their names are rows of the table handlers. Their code is the application's.",
        ),
        ("2-X14", "UI pages", "They are the application's. Every answer of the client can be written as JSON."),
        ("3-D9", "JWT", "Authentication of HTTP requests is the application's. The tool has no HTTP server."),
        ("3-K1", "known limit: dependencies", "Not offered: no schedule waits for another one."),
        ("3-K2", "known limit: windows", "Not offered: a trigger has a start and an end, and no hours of service."),
        ("3-K3", "known limit: quotas", "Not offered: a schedule has a limit of concurrent runs, a tenant has none."),
        (
            "3-K4",
            "known limit: archive",
            "Solved: retention can write old runs into an archive before it removes them.",
        ),
        ("3-K5", "known limit: complex cron", "Solved: a cron text is kept as it is and evaluated by its own dialect."),
        (
            "3-N1",
            "load distribution, adaptive, auto-managed",
            "Not offered. Such fields of a source stay in the remainder.",
        ),
        (
            "4-J6",
            "event-loop blocking solved",
            "A scheduler process runs handlers in threads of its own process. The application's event loop runs none.",
        ),
        (
            "4-X3",
            "step: deploy/restart",
            "The operator restarts. The cutover waits for the heartbeats of the processes.",
        ),
        (
            "4-Y1",
            "cleanup after 48 h: file, imports, dependency",
            "The operator cleans up. cutover finish lists what has to be removed.",
        ),
    )
)
"""The rows that the application or a person has to fulfil, and what is recorded of each."""


class Capability(NamedTuple):
    """A row of the list of capabilities."""

    id: str
    words: str
    members: frozenset[str]
    tests: tuple[str, ...]
    """Some of the product's tests that show it; empty unless each member has one."""


@cache
def capabilities() -> tuple[Capability, ...]:
    """Return the list of capabilities, which the tests of the product write (``tests/golden/docs``)."""
    text = resources.files("migrator.verify").joinpath("capabilities.tsv").read_text("utf-8")
    rows = (line.split("\t") for line in text.splitlines())
    return tuple(
        Capability(name, words, frozenset(members.split()), tuple(tests.split()))
        for name, words, members, tests in rows
    )


def requirements(specs: Iterable[CheckSpec]) -> tuple[Requirement, ...]:
    """Return every requirement by id: those that checks name, and the other rows of the list of capabilities."""
    checks: dict[str, list[str]] = {}
    for spec in specs:
        for name in spec.requirements:
            checks.setdefault(name, []).append(spec.id)
    tests = {member: row.tests for row in capabilities() for member in row.members}
    listed = [
        Requirement(id=name, text=WORDS.get(name, ""), checks=tuple(ids), tests=tests.get(name, ()))
        for name, ids in checks.items()
    ]
    elsewhere = checks.keys() | {one.id for one in OUT_OF_SCOPE}
    listed += [
        Requirement(id=row.id, text=row.words, checks=(), tests=row.tests)
        for row in capabilities()
        if not row.members <= elsewhere
    ]
    return tuple(sorted(listed, key=lambda one: one.id))
