"""Applies the mutations one after the other in a scratch copy, and runs the checks that may see them.

A mutation that changes rows only shares its clone with others, and its rows are put back, since making a clone takes
longer than a trial. Any other mutation has a clone of its own.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from typing import Any, Final, Literal, LiteralString, TypeAlias

import msgspec
import psycopg

from migrator.config import Settings
from migrator.connections.postgres import open_login, open_target
from migrator.errors import MigratorError, RefusedError
from migrator.parity.check import LEFT_OUT
from migrator.pipeline.backfill import backfill
from migrator.pipeline.plan import Scope
from migrator.pipeline.sessions import SourceSessions, close_cached
from migrator.records import ALL
from migrator.report.areas import AREAS
from migrator.schema.revisions import upgrade
from migrator.schema.security import Roles
from migrator.scratch import Components
from migrator.sources import profile_of
from migrator.testing.mutations.mutation import Mutation, NoMaterial, ScratchCopy, Sql
from migrator.verify.check import CheckContext, CheckSpec, Lent
from migrator.verify.scratch_databases import ScratchDatabases

_DEPENDENT_TABLES: Final[dict[str, tuple[str, ...]]] = {
    "schedules": ("triggers",),
    "runs": ("execution_logs", "impact_snapshots"),
    "graph_jobs": ("graph_job_events",),
}
"""Tables whose rows may go with those of another."""
_DDL: Final[tuple[LiteralString, ...]] = ("ALTER ", "DROP ", "CREATE ", "migration.")


def is_restorable(one: Mutation) -> bool:
    """Whether a mutation changes rows of known tables and nothing else."""
    if one.kind != "data" or not isinstance(one.apply, Sql):
        return False
    return bool(one.touched_tables) and not any(word in text for text in one.apply.statements for word in _DDL)


class SavedRows:
    """The tables that were kept in one clone, and how to bring them back."""

    def __init__(self) -> None:
        """Begin with none."""
        self._tables: set[str] = set()

    def keep(self, target: psycopg.Connection[Any], tables: tuple[str, ...]) -> None:
        """Keep the rows of tables, and of those that may go with them, before they are touched for the first time."""
        target.execute("CREATE SCHEMA IF NOT EXISTS kept")
        for table in self._with_following(tables):
            if table not in self._tables:
                target.execute(f"CREATE TABLE kept.{table} AS TABLE scheduler.{table}")
                self._tables.add(table)

    def restore(self, target: psycopg.Connection[Any], tables: tuple[str, ...]) -> None:
        """Bring the rows back: remove what is new, then put back what is gone or changed, parents first."""
        wanted = self._with_following(tables)
        with target.transaction():
            for table in reversed(wanted):
                target.execute(
                    f"DELETE FROM scheduler.{table} AS t WHERE NOT EXISTS"  # noqa: S608 - names of the records
                    f" (SELECT FROM kept.{table} AS k WHERE (k.id, k.tenant_id) = (t.id, t.tenant_id))"
                )
            for table in wanted:
                names = ", ".join(_COLUMNS[table])
                changes = ", ".join(f"{name} = EXCLUDED.{name}" for name in _COLUMNS[table])
                target.execute(
                    f"INSERT INTO scheduler.{table} ({names}) SELECT {names} FROM kept.{table}"  # noqa: S608 - as above
                    f" ON CONFLICT (id, tenant_id) DO UPDATE SET {changes}"
                )

    def _with_following(self, tables: tuple[str, ...]) -> list[str]:
        names = {*tables, *(other for table in tables for other in _DEPENDENT_TABLES.get(table, ()))}
        return [record.table for record in ALL if record.table in names]


_KEPT: Final = {"runs": ("global_schedule", "priority"), "triggers": ("priority",)}
_COLUMNS: Final = {record.table: (*record.__struct_fields__, *_KEPT.get(record.table, ())) for record in ALL}
"""Table to its columns, without those that the server computes."""


Ending: TypeAlias = Literal["caught", "missed", "no-material", "refused", "errored"]
"""``refused``: the database itself refuses the mutation; ``errored``: a check ended in an error."""


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """The trial of one mutation."""

    name: str
    kind: str
    ending: Ending
    failed: tuple[str, ...] = ()
    """Checks that failed, and passed without the mutation."""
    why: str = ""
    """Why a check could not tell."""
    made: bool = False
    """Applied to documents made for the purpose: the sample held nothing to apply it to."""


@contextmanager
def _lent(
    settings: Settings, source: SourceSessions, tables: Sequence[str], components: Components
) -> Iterator[CheckContext]:
    """Open a context whose checks compare, in this process, what feeds the changed tables; everything if none is named.

    Its connection is closed at the end, so that the clone can be dropped.
    """
    collections = tuple(
        one.name
        for one in profile_of(settings.source, settings.target).collections
        if {record.table for record in one.tables}.intersection(tables)
    )
    with closing(open_target(settings, autocommit=True)) as target:
        yield CheckContext(settings, components=components, lent=Lent(source, target, collections))


def prepare(databases: ScratchDatabases, fill: Callable[[ScratchDatabases], int]) -> int:
    """Fill the scratch databases: documents, the schema, and a finished copy; return how many documents."""
    documents = fill(databases)
    postgres = databases.settings.postgres
    upgrade(str(postgres.dsn), names=Roles.of(postgres))
    if not backfill(databases.settings, Scope()).complete:
        raise RefusedError("the copy of the sample did not finish")
    close_cached()
    return documents


def failed_checks(context: CheckContext, specs: Iterable[CheckSpec]) -> tuple[dict[str, bool], str]:
    """Run the checks; return which ended, and whether they failed; and why one of them could not tell."""
    failed: dict[str, bool] = {}
    why = ""
    for spec in specs:
        try:
            outcome = spec.run(context).outcome
        except MigratorError as error:
            why = why or f"{spec.id}: {error}"
            continue
        failed[spec.id] = outcome.status == "failed"
        if outcome.status == "unverified" and LEFT_OUT not in outcome.reason:
            why = why or f"{spec.id}: {outcome.reason}"
    return failed, why


def run_trials(
    databases: ScratchDatabases,
    classes: Sequence[Mutation],
    specs: Sequence[CheckSpec],
    *,
    made: bool = False,
) -> list[Trial]:
    """Try every mutation; ``made``: in documents made for the purpose.

    Mutations that change rows only share a clone, whose rows are put back; the others have one of their own.
    Raises ``RefusedError`` when checks of the unchanged copy fail already, or fail when all rows were put back.
    """
    trials: dict[str, Trial] = {}
    sound = [spec for spec in specs if any(one.runs_check(spec.id) for one in classes)]
    with closing(SourceSessions(databases.settings)) as source:
        with databases.clone() as settings:
            _require_passed(settings, source, sound)
            kept = SavedRows()
            shared = [one for one in classes if is_restorable(one)]
            for mutation in shared:
                trials[mutation.name] = _run_trial(settings, databases, source, mutation, specs, kept)
            if shared:
                _require_passed(settings, source, [spec for spec in sound if AREAS[spec.area].mutations == "data"])
        for mutation in classes:
            if mutation.name not in trials:
                with databases.clone() as settings:
                    trials[mutation.name] = _run_trial(settings, databases, source, mutation, specs)
    return [msgspec.structs.replace(trials[one.name], made=made) for one in classes]


def _require_passed(settings: Settings, source: SourceSessions, specs: Sequence[CheckSpec]) -> None:
    with _lent(settings, source, (), Components()) as context:
        failed, _ = failed_checks(context, specs)
    wrong = sorted(name for name, has_failed in failed.items() if has_failed)
    if wrong:
        raise RefusedError(
            f"the unchanged copy of the sample fails already ({', '.join(wrong)}): no mutation can be tried"
        )


def _run_trial(
    settings: Settings,
    databases: ScratchDatabases,
    source: SourceSessions,
    mutation: Mutation,
    specs: Sequence[CheckSpec],
    kept: SavedRows | None = None,
) -> Trial:
    """Try one mutation; with ``kept`` the rows are put back afterwards."""
    with ExitStack() as undone:
        try:
            with open_login(settings) as target:
                if kept is not None:
                    kept.keep(target, mutation.touched_tables)
                    undone.callback(_restore, settings, kept, mutation.touched_tables)
                undo = mutation.apply(ScratchCopy(settings, target, databases.source))
        except NoMaterial:
            return Trial(name=mutation.name, kind=mutation.kind, ending="no-material")
        except (psycopg.IntegrityError, psycopg.errors.InsufficientPrivilege):
            return Trial(name=mutation.name, kind=mutation.kind, ending="refused")
        if undo is not None:
            undone.callback(undo)
        with _lent(settings, source, mutation.touched_tables, mutation.components) as context:
            failed, why = failed_checks(context, [spec for spec in specs if mutation.runs_check(spec.id)])
    caught = tuple(sorted(name for name, has_failed in failed.items() if has_failed))
    ending: Ending = "caught" if caught else "errored" if why else "missed"
    return Trial(name=mutation.name, kind=mutation.kind, ending=ending, failed=caught, why=why)


def _restore(settings: Settings, kept: SavedRows, tables: tuple[str, ...]) -> None:
    with open_login(settings) as target:
        kept.restore(target, tables)
