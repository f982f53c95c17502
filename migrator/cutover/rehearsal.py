"""A complete rehearsal on other servers: copy, tail, parity check, cutover, rollback; then it is put on record.

The servers are those of another configuration file. That they are other servers is asked of the servers themselves:
the fence of a rehearsal would stop the writers of the real MongoDB, and its smoke test would write into the real
target.
"""

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final
from uuid import UUID

import msgspec

from migrator.config import Settings, load_settings
from migrator.connections.identity import environment_name, replica_set_id, system_identifier
from migrator.connections.mongo import open_source, translate_errors
from migrator.connections.postgres import Connection, open_login, target_connection
from migrator.cutover import cutover, journal, rehearsal_record, rollback
from migrator.cutover.gates import GateOptions
from migrator.cutover.rehearsal_record import Rehearsal, conditions_of
from migrator.errors import ConfigurationError, MigratorError, RefusedError, UsageError
from migrator.exit_status import Allowance
from migrator.parity.recorded_check import check_and_record, is_clean
from migrator.pipeline.backfill import backfill
from migrator.pipeline.plan import Scope
from migrator.pipeline.sessions import close_cached
from migrator.pipeline.tail.loop import Tail
from migrator.schema import decisions
from migrator.schema.decisions import Approval
from migrator.sources import profile_of
from migrator.telemetry import say

COPY: Final = "copy"
TAIL: Final = "tail"
PARITY: Final = "parity check"
CUTOVER: Final = "cutover"
ROLLBACK: Final = "rollback"
TAIL_AFTERWARDS: Final = "tail after the rollback"
PARITY_AFTERWARDS: Final = "parity check after the rollback"
STEPS: Final = (COPY, TAIL, PARITY, CUTOVER, ROLLBACK, TAIL_AFTERWARDS, PARITY_AFTERWARDS)
_QUARANTINED: Final = (
    "SELECT DISTINCT collection, reason FROM migration.quarantine WHERE profile = %s AND state = 'open' ORDER BY 1, 2"
)
VARIABLES: Final = "a variable MIGRATOR_... of the environment may replace what the file says"


class RehearsalPlace(msgspec.Struct, frozen=True):
    """Where a rehearsal is made."""

    settings: Settings
    config: Path


class _ServersNamed(msgspec.Struct, frozen=True):
    """Which servers and databases settings name, as the servers say it themselves."""

    replica_set: str
    """Its id; empty: the user may not read it."""
    hosts: frozenset[str]
    cluster: str
    """The number that initdb gave the files of PostgreSQL; empty: the user may not read it."""
    database: str


def place_of(settings: Settings, config: Path) -> RehearsalPlace:
    """Return where the rehearsals for a configuration are made, after the servers were asked who they are.

    Raises ``RefusedError`` if one of them is a server of the configuration itself, if that cannot be told, or if a
    rehearsal there would not count; ``ConfigurationError`` without the file.
    """
    if settings.target.is_native:
        raise UsageError(rehearsal_record.LIBRARY)
    here = _identity(settings)
    path = config.absolute().parent / settings.cutover.rehearsal_config
    if not path.is_file():
        raise ConfigurationError(
            f"there is no file {path}: write a configuration there that names other servers, with the same [source]"
            " and [target]; cutover.rehearsal_config names another file"
        )
    other = load_settings(path)
    wanted = conditions_of(settings, profile_of(settings.source, settings.target))
    differing = wanted.differing(conditions_of(other, profile_of(other.source, other.target)))
    if differing:
        raise RefusedError(f"a rehearsal with {path} would not count: it has {', '.join(differing)}")
    _require_other(here, _identity(other), path)
    return RehearsalPlace(other, path)


def _identity(settings: Settings) -> _ServersNamed:
    source = open_source(settings)
    with closing(source.client), translate_errors("the source"):
        hello = source.client.admin.command("hello")
        replica_set = replica_set_id(source)
    with open_login(settings) as target:
        return _ServersNamed(
            replica_set=replica_set,
            hosts=frozenset((*hello.get("hosts", ()), *hello.get("passives", ()), hello.get("me", ""))) - {""},
            cluster=system_identifier(target),
            database=target.info.dbname,
        )


def _require_other(here: _ServersNamed, others: _ServersNamed, path: Path) -> None:
    """Raise ``RefusedError`` unless both servers are shown to be others: MongoDB as a whole, PostgreSQL's database."""
    known = here.replica_set and others.replica_set
    if (known and here.replica_set == others.replica_set) or here.hosts & others.hosts:
        raise RefusedError(
            f"{path} leads to the MongoDB of this configuration, whose writers a rehearsal would stop: name another"
            f" server there ({VARIABLES})"
        )
    if not known and not (here.hosts and others.hosts):
        raise RefusedError(f"nothing shows that {path} leads to another MongoDB: give the tool's user clusterMonitor")
    if not (here.cluster and others.cluster):
        raise RefusedError(f"nothing shows that {path} leads to another PostgreSQL: pg_control_system() is denied")
    if (here.cluster, here.database) == (others.cluster, others.database):
        raise RefusedError(
            f"{path} leads to the target of this configuration, into which a rehearsal would write: name another"
            f" database there ({VARIABLES})"
        )


class _MeasuredSteps:
    """The steps of a rehearsal: each is announced and measured, and one that fails says where to look."""

    def __init__(self, place: RehearsalPlace) -> None:
        self._place = place
        self.seconds: dict[str, float] = {}

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Announce a step, and measure it."""
        say(f"rehearsal in {environment_name(self._place.settings)}: {name}")
        began = time.monotonic()
        try:
            yield
        except MigratorError:
            say(
                f"the rehearsal ended in its step {name} and does not count; migrator cutover status --config"
                f" {self._place.config} says what is to be done there",
                level="warning",
            )
            raise
        self.seconds[name] = round(time.monotonic() - began, 3)


def rehearse(settings: Settings, place: RehearsalPlace, by: Approval, *, quarantined: Allowance = 0) -> Rehearsal:
    """Make a rehearsal, and put it on record; one that does not come to its end is not recorded, and raises."""
    other, progress = place.settings, _MeasuredSteps(place)
    try:
        with progress.step(COPY):
            copied = backfill(other, Scope())
            if not copied.complete:
                raise RefusedError("the copy is unfinished: call again")
        with progress.step(TAIL), Tail(other) as tail:
            tail.run("caught-up")
        with progress.step(PARITY):
            documents = _compared(other)
        with progress.step(CUTOVER):
            done = cutover.run(other, GateOptions(config=place.config, quarantined=quarantined), by)
        with progress.step(ROLLBACK):
            back = rollback.run(other, place.config, 1, by)
        with progress.step(TAIL_AFTERWARDS), Tail(other) as tail:
            tail.run("caught-up")
        with progress.step(PARITY_AFTERWARDS):
            _compared(other)
    finally:
        close_cached()
    profile = profile_of(settings.source, settings.target)
    with target_connection(other) as target:
        reasons = target.execute(_QUARANTINED, (profile.name,)).fetchall()
        stopped = _rollback_pause_s(target, done.cutover.id)
    rehearsal = Rehearsal(
        environment=environment_name(other),
        conditions=conditions_of(settings, profile),
        documents=documents,
        copy_s=progress.seconds[COPY],
        pause_s=round(done.pause_s, 3),
        rollback_s=progress.seconds[ROLLBACK],
        rollback_pause_s=stopped,
        result={
            "quarantine": [list(row) for row in reasons],
            "reverse sync": str(done.cutover.detail.get(journal.REVERSE_STOPPED) or ""),
            "not in MongoDB": sorted(back.lost),
            "fires otherwise": len(back.unlike),
        },
    )
    with target_connection(settings) as target:
        decisions.record(target, decisions.REHEARSED, by, **msgspec.to_builtins(rehearsal))
    return rehearsal


def _compared(settings: Settings) -> int:
    """Compare everything, and return the number of documents; raise ``RefusedError`` for a difference."""
    outcome = check_and_record(settings)
    if not is_clean(outcome):
        raise RefusedError("the parity check found differences")
    return sum(comparison.documents for comparison in outcome.collections)


def _rollback_pause_s(target: Connection, cutover_id: UUID) -> float:
    """Return for how many seconds the rollback stopped the writers of PostgreSQL, by the journal."""
    times = {step.step: step for step in journal.steps(target, cutover_id)}
    begun, ended = times["rollback-fence"].began_at, times[journal.REOPEN_STEP].ended_at
    return round(((ended or begun) - begun).total_seconds(), 3)
