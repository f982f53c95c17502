"""Area schema: the target is what the revisions declare, complete, and enabled."""

from collections.abc import Iterable, Sequence

from migrator.cutover.fenced_rights import split_revoked
from migrator.errors import RefusedError
from migrator.records import ALL
from migrator.result import FAILED, PASSED, Cell, Finding, Tally
from migrator.schema.catalogue import differences, split_harmless
from migrator.schema.security import Roles
from migrator.verify.check import CheckContext, CheckResult, CheckSpec, outcome_of

TABLES = tuple(record.table for record in ALL)


def revision_current(context: CheckContext) -> CheckResult:
    """Both branches are at their heads."""
    try:
        pending = [one for one in context.positions if one.pending]
    except RefusedError as error:  # a file that is not the one that was applied, or a revision of a later version
        changed = Tally(severity="difference", cause="changed", title=str(error), count=1)
        return CheckResult(outcome=FAILED, tallies=(changed,), findings_total=1)
    return _result(
        [(one.branch, f"{len(one.pending)} pending") for one in pending],
        cause="pending-revision",
        title="a branch of the schema that is not at its latest revision",
        fix="call migrator schema upgrade",
        counts={"branches": len(context.positions), "pending revisions": sum(len(one.pending) for one in pending)},
    )


def constraints_validated(context: CheckContext) -> CheckResult:
    """No constraint is left NOT VALID, and no index invalid."""
    with context.target() as connection:
        constraints = connection.execute(
            "SELECT conrelid::regclass::text, conname FROM pg_constraint"
            " WHERE connamespace = 'scheduler'::regnamespace AND NOT convalidated ORDER BY 1, 2"
        ).fetchall()
        indexes = connection.execute(
            "SELECT indrelid::regclass::text, indexrelid::regclass::text FROM pg_index"
            " JOIN pg_class ON pg_class.oid = indrelid"
            " WHERE relnamespace = 'scheduler'::regnamespace AND NOT (indisvalid AND indisready) ORDER BY 1, 2"
        ).fetchall()
        row = connection.execute(
            "SELECT count(*) FROM pg_constraint WHERE connamespace = 'scheduler'::regnamespace"
        ).fetchone()
    return _result(
        [*constraints, *indexes],
        cause="not-validated",
        title="a constraint that is not validated, or an index that is not valid",
        fix="ALTER TABLE ... VALIDATE CONSTRAINT, REINDEX, or call backfill again, which restores deferred DDL",
        counts={"constraints": int(row[0]) if row else 0},
        cells=True,
    )


_DISABLED = """
SELECT c.oid::regclass::text, coalesce(con.conname, trg.tgname)
FROM pg_trigger AS trg
JOIN pg_class AS c ON c.oid = trg.tgrelid
LEFT JOIN pg_constraint AS con ON con.oid = trg.tgconstraint
WHERE c.relnamespace IN ('scheduler'::regnamespace, 'migration'::regnamespace) AND trg.tgenabled NOT IN ('O', 'A')
UNION
SELECT '', option || CASE WHEN setrole = 0 THEN '' ELSE ' of role ' || pg_get_userbyid(setrole) END
FROM pg_db_role_setting CROSS JOIN unnest(setconfig) AS option
WHERE setdatabase IN (0, (SELECT oid FROM pg_database WHERE datname = current_database()))
    AND starts_with(option, 'session_replication_role=') AND option <> 'session_replication_role=origin'
UNION
SELECT '', name || '=' || setting FROM pg_settings WHERE name = 'session_replication_role' AND setting <> 'origin'
ORDER BY 1, 2
"""


def enforced(context: CheckContext) -> CheckResult:
    """No foreign key and no trigger is disabled, for one table or for all sessions."""
    with context.target() as connection:
        rows = connection.execute(_DISABLED).fetchall()
        row = connection.execute(
            "SELECT count(*) FROM pg_constraint WHERE contype = 'f'"
            " AND connamespace IN ('scheduler'::regnamespace, 'migration'::regnamespace)"
        ).fetchone()
    return _result(
        rows,
        cause="not-enforced",
        title="a foreign key or a trigger that is disabled",
        fix="ALTER TABLE ... ENABLE TRIGGER ALL, or RESET session_replication_role where it is set; then compare"
        " everything, since rows may have been written meanwhile",
        counts={"foreign keys": int(row[0]) if row else 0},
        cells=True,
    )


def isolation_on(context: CheckContext) -> CheckResult:
    """Row-level security is on in every table, with its policies."""
    with context.target() as connection:
        rows = connection.execute(
            "SELECT relname, relrowsecurity, (SELECT count(*) FROM pg_policy WHERE polrelid = pg_class.oid)"
            " FROM pg_class WHERE relnamespace = 'scheduler'::regnamespace AND relkind = 'r' AND relname = ANY(%s)",
            (list(TABLES),),
        ).fetchall()
    on = {table for table, enabled, policies in rows if enabled and policies}
    return _result(
        [(table, "") for table in TABLES if table not in on],
        cause="isolation-off",
        title="a table whose row-level security is off or has no policy",
        fix="ALTER TABLE ... ENABLE ROW LEVEL SECURITY; find out who disabled it",
        counts={"tables": len(on), "policies": sum(policies for _, _, policies in rows)},
        cells=True,
    )


def deferred_ddl_restored(context: CheckContext) -> CheckResult:
    """Every index and foreign key that the first load removed is restored."""
    with context.target() as connection:
        rows = connection.execute(
            "SELECT target_table, name FROM migration.deferred_ddl WHERE restored_at IS NULL ORDER BY 1, 2"
        ).fetchall()
    return _result(
        rows,
        cause="deferred-ddl",
        title="an index or foreign key that the first load removed and nothing restored",
        fix="call backfill again: it restores what a killed run removed",
        counts={"missing": len(rows)},
        cells=True,
    )


def comments_present(context: CheckContext) -> CheckResult:
    """Every table and column has a comment."""
    with context.target() as connection:
        rows = connection.execute(
            "SELECT relname, coalesce(attname, ''), col_description(pg_class.oid, attnum) IS NOT NULL"
            " FROM pg_class JOIN pg_attribute ON attrelid = pg_class.oid AND attnum > 0 AND NOT attisdropped"
            " WHERE relnamespace = 'scheduler'::regnamespace AND relkind = 'r' AND relname = ANY(%(tables)s)"
            " UNION ALL SELECT relname, '', obj_description(oid, 'pg_class') IS NOT NULL FROM pg_class"
            " WHERE relnamespace = 'scheduler'::regnamespace AND relkind = 'r' AND relname = ANY(%(tables)s)"
            " ORDER BY 1, 2",
            {"tables": list(TABLES)},
        ).fetchall()
    described = {table for table, _, _ in rows}
    without_comment = [(table, column) for table, column, commented in rows if not commented]
    without_comment += [(table, "") for table in TABLES if table not in described]
    return _result(
        without_comment,
        cause="no-comment",
        title="a table or column without a comment",
        fix="migrator schema check shows the declared one",
        counts={"tables and columns": len(rows)},
        cells=True,
    )


def catalogue_declared(context: CheckContext) -> CheckResult:
    """Compare the live catalogue with the declared one: tables, columns, defaults, constraints, indexes, rights."""
    found = differences(context.dsn, names=Roles.of(context.settings.postgres))
    with context.target() as target:
        others, revoked = split_revoked(target, context.settings.postgres, found)
    wrong, additions = split_harmless(others)
    added = [
        Tally(
            severity="warning",
            cause="added-object",
            table=_table_of(one.object),
            path=one.object,
            title="an object that somebody added, and that harms nothing",
            fix="leave it; it is not in the dump of the schema",
            count=1,
        )
        for one in additions
    ]
    faults = [
        _fault(
            _table_of(one.object),
            one.object,
            cause=f"{one.kind}-object",
            title=f"an object of the schema that is {one.kind}",
            fix="migrator schema check shows both definitions; call migrator schema upgrade, or undo the change",
            details=(f"declared: {one.expected or 'nothing'}", f"found: {one.found or 'nothing'}"),
        )
        for one in wrong
    ]
    whole = any(not _table_of(one.object) and one.object == "schema scheduler" for one in wrong)
    return CheckResult(
        outcome=outcome_of(wrong=bool(wrong)),
        counts={"tables declared": len(TABLES), "differences": len(wrong)}
        | ({"additions": len(additions)} if additions else {})
        | ({"rights that the fence revoked": revoked} if revoked else {}),
        cells=_cells(TABLES if whole else [tally.table for tally, _ in faults]),
        tallies=(*(tally for tally, _ in faults), *added),
        findings=tuple(finding for _, finding in faults)[: context.listed],
        findings_total=len(faults),
    )


def _table_of(name: str) -> str:
    """Return the table in the name of an object (``scheduler.runs constraint ck_runs_state``); empty where none is."""
    schema, _, relation = name.partition(" ")[0].partition(".")
    return relation if schema == "scheduler" else ""


def _result(
    wrong: Sequence[tuple[str, str]],
    *,
    cause: str,
    title: str,
    fix: str,
    counts: dict[str, int],
    cells: bool = False,
) -> CheckResult:
    """Return the result of a schema check from its findings: pairs of a table (or branch) and a name in it."""
    faults = [_fault(table.rpartition(".")[2], name, cause=cause, title=title, fix=fix) for table, name in wrong]
    return CheckResult(
        outcome=outcome_of(wrong=bool(faults)),
        counts=counts,
        cells=_cells(tally.table for tally, _ in faults) if cells else (),
        tallies=tuple(tally for tally, _ in faults),
        findings=tuple(finding for _, finding in faults),
        findings_total=len(faults),
    )


def _fault(
    table: str, name: str, *, cause: str, title: str, fix: str, details: tuple[str, ...] = ()
) -> tuple[Tally, Finding]:
    return (
        Tally(severity="difference", cause=cause, table=table, path=name, title=title, fix=fix, count=1),
        Finding(severity="difference", cause=cause, table=table, key=name or table, side="schema", details=details),
    )


def _cells(wrong: Iterable[str]) -> tuple[Cell, ...]:
    bad = set(wrong)
    return tuple(Cell(table=table, outcome=FAILED if table in bad else PASSED) for table in TABLES)


_GRAPH_TABLES = tuple(f"1-S{number}" for number in range(1, 18))
"""Every column, key and index of graph_jobs and graph_job_events has a row of its own."""

CHECKS = (
    CheckSpec(
        id="schema.revision",
        title="The schema is at its latest revision, applied from unchanged files",
        fails_if="a revision is pending, unknown, or was applied from a file that was changed since",
        requirements=("0-T2.2.1",),
        run=revision_current,
    ),
    CheckSpec(
        id="schema.catalogue",
        title="The live catalogue is equal to the declared one",
        fails_if=(
            "a table, column, collation, default, constraint, index, sequence, replica identity, child table, policy, "
            "function or right differs from the declaration. Rights to write that a rollback has revoked are counted, "
            "and are no difference; so is an addition that harms nothing: the right of a role to read, and an index "
            "that no row can violate"
        ),
        requirements=("0-T2.2.2", "0-T2.2.3", *_GRAPH_TABLES),
        run=catalogue_declared,
    ),
    CheckSpec(
        id="schema.validated",
        title="Every constraint is validated, every index valid",
        fails_if="a constraint is NOT VALID, an index invalid",
        requirements=("0-T2.2.2",),
        run=constraints_validated,
    ),
    CheckSpec(
        id="schema.enforced",
        title="Every foreign key and trigger is enabled",
        fails_if=(
            "a foreign key or a trigger of a table is disabled, or `session_replication_role` is set for the database, "
            "a role or the server"
        ),
        requirements=("0-T2.2.2",),
        limits=("A session that disables them for itself alone is not detected, except by the rows that it wrote.",),
        run=enforced,
    ),
    CheckSpec(
        id="schema.restored",
        title="Every index and foreign key that the first load removed is restored",
        fails_if="an index or foreign key that the first load removed is still missing",
        requirements=("0-T2.2.2",),
        run=deferred_ddl_restored,
    ),
    CheckSpec(
        id="schema.isolation",
        title="Row-level security is on in every table",
        fails_if="row-level security is off in a table, or has no policy",
        requirements=("0-X2",),
        limits=("The area isolation tests that a session is bound by it.",),
        run=isolation_on,
    ),
    CheckSpec(
        id="schema.comments",
        title="Every table and column has a comment",
        fails_if="a table or column has no comment",
        run=comments_present,
    ),
)
