"""What a gate is, how one is evaluated, and the gates that examine the two servers alone, as ``doctor`` does too.

Leases, due times and ages are judged by the clock of the server that is asked. If two clocks differ, a trigger would
fire early, or a second time, when the data moves from one server to the other.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Final, TypeAlias

import msgspec
import psycopg

from migrator.config import Settings
from migrator.connections.mongo import MongoDatabase, server_time, translate_errors
from migrator.connections.mongo import replica_set as name_of_set
from migrator.connections.postgres import Connection, translated
from migrator.connections.server_product import UNKNOWN, WITHOUT_A_TAIL, source_server
from migrator.cutover import fence
from migrator.cutover.journal import database_time
from migrator.errors import MigratorError
from migrator.pipeline.tail.positions import OplogHistory
from migrator.sources.profile import Profile
from migrator.sources.write_back import write_back


class Gate(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One condition of the cutover."""

    name: str
    passed: bool | None
    """None: it is not known, which does not stop the cutover."""
    words: str
    ids: tuple[str, ...] = ()
    """``_id``s of all documents that are concerned; ``words`` names some."""


Answer: TypeAlias = tuple[bool | None, str]
"""The fields of a ``Gate``: whether it is met, and the words."""


def evaluate(name: str, look: Callable[[], Answer], target: Connection | None = None) -> Gate:
    """Return the gate that ``look`` answers; one that cannot be evaluated is not met.

    Raises ``psycopg.Error`` if the session ``target`` has ended: then no other gate can be evaluated either.
    """
    try:
        with translate_errors("the source"):
            passed, detail = look()
    except MigratorError as error:
        passed, detail = False, str(error)
    except psycopg.Error as error:
        if target is not None and target.closed:
            raise
        passed, detail = False, str(translated("the target", error))
    return Gate(name=name, passed=passed, words=detail)


def unmet(gates: Iterable[Gate]) -> list[Gate]:
    """Return the gates that are not met."""
    return [gate for gate in gates if gate.passed is False]


REVERSE_SYNC: Final = "reverse sync"
"""The gate that is not met as long as source, target and mapping are the same."""


def in_the_way(gates: Iterable[Gate]) -> list[Gate]:
    """Return the gates because of which a cutover is refused: ``REVERSE_SYNC`` alone, else all that are not met."""
    missing = unmet(gates)
    return [gate for gate in missing if gate.name == REVERSE_SYNC] or missing


def gate_lines(gates: Iterable[Gate]) -> Iterator[str]:
    """Yield the gates as lines for a terminal."""
    marks = {True: "ok", False: "NO", None: "?"}
    for gate in gates:
        yield f"{marks[gate.passed]:<3} {gate.name}: {gate.words}"


class ClockSkew(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds that each server is ahead of this machine; negative: it is late; None: it was not asked."""

    source: float | None = None
    target: float | None = None

    @property
    def apart(self) -> float:
        """How far the clocks are apart, in seconds."""
        found = (0.0, self.source or 0.0, self.target or 0.0)
        return max(found) - min(found)

    @property
    def words(self) -> str:
        """Describe the clock of each server."""
        asked = {"the source": self.source, "the target": self.target}
        sides = {side: by for side, by in asked.items() if by is not None}
        off = [
            f"{side} is {abs(by):,.1f} s {'ahead of' if by > 0 else 'behind'} this machine"
            for side, by in sides.items()
            if round(abs(by), 1)
        ]
        return ", ".join(off) or f"{', '.join(sides)} and this machine show the same time"


def clock_offset(server: float, began: float, ended: float) -> float:
    """Return how far a clock is ahead that was read between two moments of this machine's clock. Pure."""
    return max(0.0, server - ended) + min(0.0, server - began)


def clock_skew(
    source: MongoDatabase | None, target: Connection | None, clock: Callable[[], float] = time.time
) -> ClockSkew:
    """Read the clocks of both servers; ``clock`` is that of this machine, in seconds."""
    return ClockSkew(
        source=None if source is None else _measured_offset(lambda: server_time(source), clock),
        target=None if target is None else _measured_offset(lambda: database_time(target), clock),
    )


def _measured_offset(ask: Callable[[], datetime], clock: Callable[[], float]) -> float:
    began = clock()
    found = ask().timestamp()
    return clock_offset(found, began, clock())


FREE_SPACE_MB: Final = 8
"""Bytes that the target must be able to take: the notes of the outbox, runs of overdue triggers, the journal."""


def reverse_sync(profile: Profile) -> Answer:
    """Whether a cutover of this source could be rolled back. It is refused if it could not."""
    ability = write_back(profile)
    if not ability.faults:
        return True, f"profile {profile.name}: changes in PostgreSQL can be written back to MongoDB"
    words = "cannot be written back to MongoDB, so a cutover could not be rolled back and is refused"
    return False, f"profile {profile.name}: changes in PostgreSQL {words}: {'; '.join(ability.faults)}"


def server_product(source: MongoDatabase) -> Answer:
    """Which product the source's server is; an unknown one stops nothing, and is named."""
    server = source_server(source)
    if server.why_no_tail:
        return False, f"{server.words}; so there is no tail and no cutover; {WITHOUT_A_TAIL}"
    return None if server.product is UNKNOWN else True, server.words


def replica_set(source: MongoDatabase) -> Answer:
    """Whether the source is a replica set: only its members have a change stream."""
    if words := source_server(source).why_no_tail:
        return False, words
    name = name_of_set(source)
    if name is None:
        return (
            False,
            "the source is no replica set, so it has no change stream: make it one (a single member is enough)",
        )
    return True, f"replica set {name}"


def held_collections(settings: Settings, profile: Profile) -> tuple[str, ...]:
    """Return the names of the collections that the fence holds: those of the profile, or none for a whole database."""
    if settings.cutover.fence != "collections":
        return ()
    return tuple(settings.source.collections.get(one.name, one.name) for one in profile.collections)


def steps_of(texts: Mapping[str, str], held: Sequence[str]) -> dict[str, str]:
    """Return the steps of a plan, with what the fence holds; ``held``: of ``held_collections``."""
    names = ", ".join(held)
    words = f"MongoDB refuses every other user's writes to {names}, also in transactions that stay open"
    return dict(texts) | ({"fence": words} if held else {})


def fence_survey(source: MongoDatabase, settings: Settings, held: Sequence[str]) -> fence.FenceSurvey:
    """Return which fence of those that the settings allow this server allows. ``held``: of ``held_collections``."""
    kind = settings.cutover.fence
    return fence.survey_source(source, prefer=None if kind == "any" else kind, collections=held)


def writers(source: MongoDatabase, settings: Settings, profile: Profile) -> Answer:
    """Which users could still write under the fence, except those who are known not to."""
    held = held_collections(settings, profile)
    survey = fence_survey(source, settings, held)
    if survey.kind is None:
        return False, survey.why_not
    through = [name for name in survey.unstopped if name not in settings.cutover.tolerated_writers]
    if through:
        return False, f"{survey.kind} does not stop {', '.join(through)}"
    kind = f"{survey.kind} ({', '.join(held)})" if held else survey.kind
    detail = f"{kind}; stops {', '.join(survey.stopped) or 'nobody'}"
    if not survey.ends:
        detail += f"; waits for transactions that stay open, without {' and '.join(sorted(fence.KILL_ACTIONS))}"
    return True, detail


def oplog(history: OplogHistory | None) -> Answer:
    """How far back the oplog of the source reaches."""
    if history is None:
        return None, "not known: the tool's user may not read local.oplog.rs (role read on local)"
    length = f"{history.seconds:,} s" if history.seconds < 2 * 3600 else f"{history.seconds / 3600:,.1f} h"
    dropped = "" if history.full else ", and has removed nothing yet"
    return True, f"the source keeps {length} of its history (oplog){dropped}"


def clocks(
    source: MongoDatabase | None, target: Connection | None, settings: Settings, clock: Callable[[], float]
) -> Answer:
    """How far the clocks are apart; ``clock`` is that of this machine, in seconds."""
    found = clock_skew(source, target, clock)
    limit = settings.cutover.max_clock_skew.total_seconds()
    return found.apart <= limit, f"{found.words} (at most {limit:g} s apart)"


RUNS_FIRST: Final = "the library executes a job before it writes that down, and a fence refuses the writing alone"
"""Of an application that is connected while the fence is closed (``Target.runs_first``)."""
NOBODY_CONNECTED: Final = "nobody else is connected to the target's database"
_SESSIONS: Final = """
SELECT usename::text, application_name, count(*) FROM pg_stat_activity
WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()
    AND application_name NOT LIKE 'migrator%'
GROUP BY usename, application_name ORDER BY usename, application_name
"""


def sessions_of_others(target: Connection) -> list[str]:
    """Return the sessions in the target's database that are not the tool's: user, application, number."""
    rows = target.execute(_SESSIONS).fetchall()
    return [f"{user or 'a hidden user'} ({name or 'without a name'}, {count:,})" for user, name, count in rows]


def target_writes(target: Connection) -> Answer:
    """Whether the target can take what a cutover writes, and a rollback can see other sessions; raises ``DiskFull``.

    What is written for this test is removed.
    """
    row = target.execute(
        "SELECT rolsuper OR pg_has_role(session_user, 'pg_read_all_stats', 'MEMBER'), pg_is_in_recovery(),"
        " current_setting('default_transaction_read_only') = 'on', pg_size_pretty(pg_database_size(current_database()))"
        " FROM pg_roles WHERE rolname = session_user"
    ).fetchone()
    assert row is not None  # noqa: S101 - the session's user exists
    if row[1]:
        return False, "the target is a standby, which accepts no writes: postgres.dsn must name the primary"
    if row[2]:
        return False, "the target accepts no writes: default_transaction_read_only is on"
    if not row[0]:
        return False, "a rollback must see other sessions: grant pg_read_all_stats to the tool's user"
    with target.transaction(force_rollback=True):
        target.execute("CREATE TABLE migration.cutover_probe (filler text)")
        # in CREATE TABLE only since PostgreSQL 16
        target.execute("ALTER TABLE migration.cutover_probe ALTER COLUMN filler SET STORAGE PLAIN")
        target.execute(
            "INSERT INTO migration.cutover_probe SELECT repeat('0', 8000) FROM generate_series(1, %s)",  # a page each
            (FREE_SPACE_MB * 128,),
        )
    return True, f"accepts writes; the database has {row[3]}"
