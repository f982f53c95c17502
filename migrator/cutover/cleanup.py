"""What a cutover or a rollback leaves on both servers and in files: why it is there, and what to do.

Each thing is looked up, and named only if it exists.
"""

import json
from collections.abc import Iterator
from pathlib import Path

from psycopg import sql
from pymongo.errors import PyMongoError

from migrator.connections.postgres import Connection, fetch_value
from migrator.cutover import reverse_sync
from migrator.cutover.backup import RESTORE_PREFIX
from migrator.cutover.journal import Cutover
from migrator.pipeline import ledger
from migrator.pipeline.sessions import Sessions
from migrator.pipeline.tail.lookups import tail_indexes
from migrator.records import ALL
from migrator.schema import LOOKUP_PREFIX
from migrator.sources.store_documents import names
from migrator.sources.store_documents.own import COPY_OF
from migrator.sources.store_documents.schedules import TOOL_ENABLED, TOOL_TRIGGER
from migrator.store import epoch
from migrator.store.queue import SCRATCH
from migrator.targets import load_target

SCRATCH_PREFIX = "migrator_"
"""Prefix of the databases that a verification creates. It removes them at its end, unless it is killed."""
REMOVE_LEDGER = "migrator schema downgrade migration@base --discard-rows"
REMOVE_ALL = "migrator schema downgrade --discard-rows"
FINISH = "migrator cutover finish"
RELEASE = "migrator cutover release-source"


def after_completion(sessions: Sessions, cutover: Cutover) -> tuple[str, ...]:
    """Return the checklist of what people must do when no rollback will follow."""
    target = sessions.target
    return (
        "the application: remove the old scheduler's file, its start and stop hooks, and their imports",
        "the application: remove the old scheduler's dependency, and MongoDB's driver where nothing else uses it",
        "processes: end migrator tail, and remove it from its supervisor",
        f"MongoDB: it refuses writes, until {RELEASE} opens it; what is written there then goes nowhere",
        f"{Path(cutover.config_path).name}: remove the section [mongo]",
        "MongoDB: remove the tool's user with its right to pass the fence, then the scheduler's collections",
        *(f"MongoDB: collection {name}: {why}" for name, why in _collections(sessions)),
        *_reverse_sync_fields(sessions),
        *_ledger(target),
        f"PostgreSQL: the row {epoch.KEY} of scheduler.locks stays: it keeps processes with an old configuration out",
        *_after_both(sessions, cutover),
    )


def after_library_completion(sessions: Sessions, cutover: Cutover) -> tuple[str, ...]:
    """Return the checklist of what people must do when an application has changed over to its library's tables."""
    kept = load_target(sessions.profile.target).tool_schema
    return (
        "the application: remove MongoDB's driver where nothing else uses it",
        "processes: end migrator tail, and remove it from its supervisor",
        f"MongoDB: it refuses writes, until {RELEASE} opens it; what is written there then goes nowhere",
        "MongoDB: remove the tool's user with its right to pass the fence, then the library's collections",
        *(f"MongoDB: collection {name}: {why}" for name, why in _collections(sessions)),
        (
            f"PostgreSQL: schema {kept}: what the documents had that the library's tables have no column for;"
            f" DROP SCHEMA {kept} CASCADE removes it, and no row of the library"
        ),
        *_ledger(sessions.target),
        *(
            f"file {path}: keep it as long as your rules for backups require, then delete it"
            for path in kept_files(sessions, cutover)
        ),
    )


def after_rollback(sessions: Sessions, cutover: Cutover) -> tuple[str, ...]:
    """Return the objects that still exist after a rollback; of the schema, those that level 2 has not removed."""
    target = sessions.target
    indexes = tail_indexes(target)
    lines = [f"MongoDB: collection {name}: {why}" for name, why in _collections(sessions)]
    lines += _reverse_sync_fields(sessions)
    if _has_schema(target, "scheduler"):
        why = f"the next cutover begins with it; {REMOVE_ALL} removes it"
        lines.append(f"PostgreSQL: the copy, in the schemas scheduler and migration: {why}")
    if indexes:
        lines.append(f"PostgreSQL: {len(indexes)} indexes {LOOKUP_PREFIX}*: migrator tail uses them again")
    return (*lines, *_after_both(sessions, cutover))


def _after_both(sessions: Sessions, cutover: Cutover) -> Iterator[str]:
    target, own = sessions.target, sessions.settings.postgres
    roles = (own.migration_role, own.service_role, own.dispatcher_role)
    if _has_schema(target, "scheduler"):
        yield f"PostgreSQL: roles {', '.join(roles)}: they belong to the schema and are removed with it"
    else:
        yield (
            f"PostgreSQL: roles {', '.join(roles)}: no schema of this database needs them; DROP ROLE {', '.join(roles)}"
            " removes them where no other database of the server does"
        )
    for name in _scratch_databases(sessions):
        yield f"{name}: a killed verification did not drop it; drop it when no migrator verify runs"
    count = _scratch_rows(target)
    if count:
        why = "a killed check did not remove them; migrator verify does"
        yield f"PostgreSQL: {count:,} rows of tenants {SCRATCH}*: {why}"
    for path in kept_files(sessions, cutover):
        yield f"file {path}: keep it as long as your rules for backups require, then delete it"


def kept_files(sessions: Sessions, cutover: Cutover) -> list[Path]:
    """Return the files and folders that cutovers and rollbacks of this configuration have made, if they exist."""
    config = Path(cutover.config_path)
    folder = config.parent / sessions.settings.cutover.backup_directory
    texts = [*config.parent.glob(f"{config.name}.before-*"), *config.parent.glob(f"{config.name}.undone")]
    folders = [*folder.glob("cutover-*"), *folder.glob(".cutover-*.part")] if folder.is_dir() else []
    return sorted([*texts, *folders])


def _ledger(target: Connection) -> Iterator[str]:
    if not _has_schema(target, "migration"):
        return
    plan = ledger.latest_plan(target)
    count = 0 if plan is None else ledger.quarantined_count(target, plan.profile)
    also = f", and the bytes of {count:,} quarantined documents, which are in no row" if count else ""
    yield (
        f"PostgreSQL: schema migration: the ledger and the journal, the evidence of the copy{also}; {REMOVE_LEDGER}"
        " removes it when nobody needs it any more, and with it the record of the fence: release MongoDB before, if it"
        " is to be written again"
    )


def _collections(sessions: Sessions) -> Iterator[tuple[str, str]]:
    """Yield the collections of the source that did not exist at the first copy, and why they exist."""
    existing = set(sessions.source.list_collection_names())
    if reverse_sync.FENCE_COLLECTION in existing:
        yield reverse_sync.FENCE_COLLECTION, f"the reverse sync's own; {FINISH} removes it"
    for name in sorted(name for name in existing if name.startswith(RESTORE_PREFIX)):
        yield name, "an interrupted restore's; the same migrator rollback run --level 3 removes it"
    copied = _copied_collections(sessions.target)
    if copied is None:
        return
    for one in sessions.profile.collections:
        name = sessions.name_of(one.name)
        if name in existing and one.name not in copied:
            yield name, "made since the copy, by the application, the reverse sync or the lock of the cutover"


def _reverse_sync_fields(sessions: Sessions) -> Iterator[str]:
    """Yield the fields that the reverse sync has written into collections of the application, and what removes them."""
    if not sessions.profile.kept_by_store:
        return
    triggers, schedules = sessions.name_of(names.TRIGGERS), sessions.name_of(names.SCHEDULES)
    marked = {COPY_OF: names.SCHEDULES}
    count = sessions.source[triggers].count_documents(marked)
    if count:
        yield (
            f"MongoDB: {count:,} documents of {triggers} with {COPY_OF}: copies of schedules' rules, which a copy"
            f" skips; db.{triggers}.deleteMany({json.dumps(marked)}) removes them"
        )
    for field in (TOOL_TRIGGER, TOOL_ENABLED):
        having = {field: {"$exists": True}}
        count = sessions.source[schedules].count_documents(having)
        if count:
            yield (
                f"MongoDB: {count:,} documents of {schedules} with {field}: the old application does not read it, and"
                f" the next cutover needs it; where none follows, db.{schedules}.updateMany({json.dumps(having)},"
                f" {json.dumps({'$unset': {field: ''}})}) removes it"
            )


def _copied_collections(target: Connection) -> set[str] | None:
    """Return the collections that the first copy found; None if the ledger does not exist any more."""
    if not _has_schema(target, "migration"):
        return None
    found = fetch_value(target, "SELECT context -> 'collections' FROM migration.plans ORDER BY created_at, id LIMIT 1")
    return None if found is None else set(found)


def _has_schema(target: Connection, name: str) -> bool:
    return bool(fetch_value(target, "SELECT to_regnamespace(%s) IS NOT NULL", (name,)))


def _scratch_databases(sessions: Sessions) -> Iterator[str]:
    rows = sessions.target.execute(
        "SELECT datname FROM pg_database WHERE starts_with(datname, %s) ORDER BY 1", (SCRATCH_PREFIX,)
    )
    yield from (f"PostgreSQL: database {row[0]}" for row in rows.fetchall())
    try:
        names = sorted(name for name in sessions.source.client.list_database_names() if name.startswith(SCRATCH_PREFIX))
    except PyMongoError:  # the user may not list them: then no verification of this user created one
        names = []
    yield from (f"MongoDB: database {name}" for name in names)


def _scratch_rows(target: Connection) -> int:
    if not _has_schema(target, "scheduler"):
        return 0
    counts = [
        sql.SQL("(SELECT count(*) FROM {} WHERE starts_with(tenant_id, {}))").format(
            sql.Identifier("scheduler", record.table), sql.Literal(SCRATCH)
        )
        for record in ALL
    ]
    return int(fetch_value(target, sql.SQL("SELECT {}").format(sql.SQL(" + ").join(counts))))
