"""What tests of the area ``library`` of ``verify`` share: its checks on a copy, and faults in the rows."""

import psycopg

from migrator.config import Settings
from migrator.result import Check
from migrator.verify.request import Request
from migrator.verify.runner import verify


def checked(settings: Settings, *parts: str) -> dict[str, Check]:
    """Return the checks of the area, or those that are named, by the name behind the area."""
    result = verify(settings, Request(only=tuple(f"library.{part}" for part in parts) or ("library",)))
    return {check.id.partition(".")[2]: check for check in result.evidence.checks if check.area == "library"}


def told(check: Check) -> list[tuple[str, str, str]]:
    """Return key, cause and words of each finding."""
    return [(finding.key or "", finding.cause, finding.details[0]) for finding in check.findings]


def execute(settings: Settings, statement: str, *parameters: object) -> None:
    """Execute a statement on the target, which changes something."""
    with psycopg.connect(settings.postgres.dsn or "", autocommit=True) as connection:
        assert connection.execute(statement.encode(), parameters).rowcount != 0
