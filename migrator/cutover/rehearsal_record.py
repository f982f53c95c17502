"""Complete rehearsals on record, and which of them count for the gate of a cutover.

A rehearsal is a decision on record (``migration.decisions``), whose checksum shows a later change. It counts if this
version of the tool made it, by the same mapping and the same settings, and if it ended as the latest one did.
"""

import hashlib
from collections import Counter
from pathlib import Path
from typing import Any, Final

import msgspec

from migrator import __version__
from migrator.config import Settings
from migrator.connections.postgres import Connection
from migrator.cutover.server_gates import Answer
from migrator.pipeline.plan import Scope, config_digest
from migrator.schema import decisions
from migrator.sources.profile import Profile

REMEDY: Final = "call migrator cutover rehearse, which makes one on the servers that cutover.rehearsal_config names"
BEFORE: Final = "made before one that ended otherwise"
LIBRARY: Final = "rehearsals are made to the schema scheduler alone: set cutover.rehearsals to 0"


class RehearsalConditions(msgspec.Struct, frozen=True, kw_only=True):
    """What a rehearsal must have in common with the cutover for which it counts; digests of the contents."""

    profile: str
    """Name and version."""
    mapping: str
    """Of the mapping file; empty: a shipped source."""
    settings: str
    """Of ``[source]`` and ``[target]``, without addresses."""
    cutover: str
    """Of the keys of ``[cutover]`` and ``[copy]`` that decide what the cutover does, and what is copied."""

    def differing(self, other: "RehearsalConditions") -> list[str]:
        """Return in words what differs."""
        return [words for name, words in _WORDS.items() if getattr(self, name) != getattr(other, name)]


_WORDS: Final = {
    "profile": "another version of the source's profile",
    "mapping": "another mapping",
    "settings": "other settings of [source] or [target]",
    "cutover": "another plan (overdue, on_unwritable or backup of [cutover], or history of [copy])",
}


class Rehearsal(msgspec.Struct, frozen=True, kw_only=True):
    """What a complete rehearsal was, and what it measured."""

    environment: str
    """Where it was made."""
    conditions: RehearsalConditions
    documents: int
    copy_s: float
    pause_s: float
    """The write pause of the cutover."""
    rollback_s: float
    """The rollback as a whole."""
    rollback_pause_s: float
    """For how long the rollback stopped the writers of PostgreSQL."""
    result: dict[str, Any]
    """How it ended: what must be equal. No counts of documents, which differ with each dump of a source."""


class CountedRehearsals(msgspec.Struct, frozen=True, kw_only=True):
    """The rehearsals on record that count, the latest first, and why the others do not."""

    required: int
    equal: tuple[Rehearsal, ...]
    """The latest one that counts, and those directly before it that ended as it did."""
    left_out: dict[str, int] = {}
    """Reason to the number of rehearsals."""

    @property
    def words(self) -> str:
        """The pauses and rollbacks that were measured, as a sentence; empty: there is no rehearsal that counts."""
        if not self.equal:
            return ""
        pauses, rollbacks, stopped = (
            _range([getattr(rehearsal, name) for rehearsal in self.equal])
            for name in ("pause_s", "rollback_s", "rollback_pause_s")
        )
        return (
            f"measured in {len(self.equal)} rehearsal{'' if len(self.equal) == 1 else 's'}: write pause {pauses},"
            f" rollback {rollbacks} (writers of PostgreSQL stopped for {stopped})"
        )


def conditions_of(settings: Settings, profile: Profile) -> RehearsalConditions:
    """Return the digests of what must be the same for a rehearsal and these settings; the mapping by its content."""
    mapping = settings.source.mapping
    without = msgspec.structs.replace(settings, source=msgspec.structs.replace(settings.source, mapping=None))
    chosen = settings.cutover
    deciding = [chosen.overdue, chosen.on_unwritable, chosen.backup, settings.copy.history]
    return RehearsalConditions(
        profile=f"{profile.name}/{profile.version}",
        mapping="" if mapping is None else hashlib.sha256(Path(mapping).read_bytes()).hexdigest(),
        settings=config_digest(without, Scope()),
        cutover=hashlib.sha256(msgspec.json.encode(deciding)).hexdigest(),
    )


def counted(connection: Connection, settings: Settings, profile: Profile) -> CountedRehearsals:
    """Return the rehearsals on record that count for these settings."""
    wanted = conditions_of(settings, profile)
    left_out: Counter[str] = Counter()
    equal: list[Rehearsal] = []
    ended_otherwise = False
    for decision in reversed(decisions.recorded(connection)):
        if decision.kind != decisions.REHEARSED:
            continue
        rehearsal = msgspec.convert(decision.detail, Rehearsal)
        reasons = rehearsal.conditions.differing(wanted)
        if decision.tool_version != __version__:
            reasons.insert(0, f"version {decision.tool_version} made it, and this is {__version__}")
        if equal and not reasons:
            latest = equal[0].result
            ends = sorted(name for name in latest if rehearsal.result.get(name) != latest[name])
            ended_otherwise = ended_otherwise or bool(ends)
            if ended_otherwise:
                reasons = [f"ended otherwise than the latest one ({', '.join(ends)})" if ends else BEFORE]
        if reasons:
            left_out["; ".join(reasons)] += 1
        else:
            equal.append(rehearsal)
    return CountedRehearsals(required=settings.cutover.rehearsals, equal=tuple(equal), left_out=dict(left_out))


def answer(connection: Connection, settings: Settings, profile: Profile) -> Answer:
    """Return whether enough rehearsals count, and in words what was measured, or what is lacking."""
    if settings.target.is_native:
        return False, LIBRARY
    rehearsals = counted(connection, settings, profile)
    number = f"{len(rehearsals.equal)} of {rehearsals.required} rehearsals with equal result"
    if len(rehearsals.equal) >= rehearsals.required:
        return True, f"{number}; {rehearsals.words}"
    others = "; ".join(f"{count} not counted: {reason}" for reason, count in sorted(rehearsals.left_out.items()))
    return False, f"{number}{f' ({others})' if others else ''}: {REMEDY}"


def _range(seconds: list[float]) -> str:
    least, most = min(seconds), max(seconds)
    return f"{least:.2f} s" if f"{least:.2f}" == f"{most:.2f}" else f"{least:.2f} to {most:.2f} s"
