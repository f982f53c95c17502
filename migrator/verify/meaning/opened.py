"""Both sides, opened for a check that reads them, and its findings as tallies."""

from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from migrator.errors import MigratorError
from migrator.parity.model import KEYS_LISTED
from migrator.pipeline.sessions import SourceSessions
from migrator.result import Finding, Severity, Tally
from migrator.store.postgres.connection import Connection
from migrator.verify.atsource import AtSource
from migrator.verify.context import Context

NO_SOURCE = "rows that came from the source look odd, and the source cannot be asked whether it says the same"


@contextmanager
def at_source(context: Context, target: Connection) -> Iterator[AtSource]:
    """Open the source as the latest plan reads it; what opening raises, it raises again without another wait."""
    if context.lent_source is not None:
        yield AtSource(context.lent_source, target)
        return
    if context.source_failure is not None:
        raise context.source_failure
    try:
        sessions = SourceSessions(context.settings)
    except MigratorError as error:
        context.source_failure = error
        raise
    try:
        yield AtSource(sessions, target)
    finally:
        sessions.close()


class _Kind(msgspec.Struct, frozen=True, order=True):
    severity: Severity
    cause: str
    collection: str
    table: str
    path: str
    title: str
    fix: str


class Odd(msgspec.Struct):
    """What a check has found so far: counts are complete, the list of findings is bounded."""

    listed: int
    side: str
    findings: list[Finding] = msgspec.field(default_factory=list)
    doubts: list[str] = msgspec.field(default_factory=list)
    """Why something could not be told."""
    _counts: dict[_Kind, int] = msgspec.field(default_factory=dict)
    _keys: dict[_Kind, list[str]] = msgspec.field(default_factory=dict)

    def add(
        self,
        severity: Severity,
        cause: str,
        title: str,
        fix: str,
        *,
        key: str,
        table: str,
        collection: str = "",
        path: str = "",
    ) -> None:
        """Count one; keep it while the lists are short."""
        kind = _Kind(severity, cause, collection, table, path, title, fix)
        self._counts[kind] = self._counts.get(kind, 0) + 1
        keys = self._keys.setdefault(kind, [])
        if len(keys) < KEYS_LISTED:
            keys.append(key)
        if severity == "difference" and len(self.findings) < self.listed:
            finding = Finding(
                severity=severity, cause=cause, collection=collection, table=table, key=key, path=path, side=self.side
            )
            self.findings.append(finding)

    def doubt(self, reason: str) -> None:
        """Say once why something could not be told."""
        if reason not in self.doubts:
            self.doubts.append(reason)

    def count(self, severity: Severity) -> int:
        """Return how many were found of a severity."""
        return sum(count for kind, count in self._counts.items() if kind.severity == severity)

    def tables(self, severity: Severity) -> set[str]:
        """Return the tables in which some were found."""
        return {kind.table for kind in self._counts if kind.severity == severity}

    def tallies(self) -> tuple[Tally, ...]:
        """Return the complete counts."""
        return tuple(
            Tally(
                severity=kind.severity,
                cause=kind.cause,
                collection=kind.collection,
                table=kind.table,
                path=kind.path,
                title=kind.title,
                fix=kind.fix,
                count=count,
                keys=tuple(sorted(self._keys[kind])),
            )
            for kind, count in sorted(self._counts.items())
        )
