"""The cutover and both levels of rollback, rehearsed on copies and in scratch databases: real data is not touched.

The cutover: the configuration value is changed and changed back, on a copy of the configuration in a folder of its own.

Rollback level 1: a sample of the source is copied into scratch databases, the outbox is opened, rows are written, the
reverse sync runs. Its judgement shares no code with the reverse sync: the documents of the written rows hold what was
written, one more document is there for the row that was inserted, and every other document is the same, byte for byte.

Rollback level 2: all revisions of a scratch database are undone with rows inside, and applied again.
"""

import tempfile
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, cast
from uuid import uuid4

import msgspec
import tomlkit
from psycopg import sql

from migrator.config import Settings, postgres_dsn, settings_tree
from migrator.connections.mongo import MongoDatabase, translate_errors
from migrator.connections.postgres import Connection, open_target, target_connection
from migrator.cutover import backup, config_file, outbox, reverse_sync
from migrator.errors import RefusedError
from migrator.pipeline.sessions import Sessions, close_cached
from migrator.records import ALL, Record, Run, Schedule
from migrator.schema import revisions
from migrator.schema.catalogue import differences, split_harmless
from migrator.schema.security import Roles
from migrator.sources import context_of, profile_of, write_back
from migrator.sources.profile import Context, Profile
from migrator.values import identity
from migrator.values.document import split
from migrator.verify import timing
from migrator.verify.scratch_databases import scratch_databases, scratch_target
from migrator.verify.sensitivity.sample import copy_sample
from migrator.verify.sensitivity.trials import prepare


class CutoverRehearsal(msgspec.Struct, frozen=True, kw_only=True):
    """What the rehearsal has done and found."""

    opened: dict[str, Any]
    """What the smoke test says of the store that the changed copy names."""
    identical: bool
    """The copy is, byte for byte, what it was; where the value was not written before, it means what it meant."""


def rehearse_cutover(
    settings: Settings, config: Path | None, look: Callable[[Path], dict[str, Any]]
) -> CutoverRehearsal:
    """Set the backend of a configuration copy to PostgreSQL, ``look`` at it, and set it back.

    Without a file the copy is made of the settings. Raises ``RefusedError`` where the file could not be changed.
    """
    with _configuration_copy(settings, config) as copy:
        before, named = copy.read_text(encoding="utf-8"), config_file.named_backend(copy)
        written = config_file.KEY in tomllib.loads(before).get(config_file.SECTION, {})
        other = "mongo" if named == "postgres" else "postgres"
        _set_backend(copy, other)
        if other == "mongo":
            _set_backend(copy, "postgres")
        opened = look(copy)
        _set_backend(copy, named)
        after = copy.read_text(encoding="utf-8")
        identical = after == before if written else config_file.named_backend(copy) == named
    return CutoverRehearsal(opened=opened, identical=identical)


def _set_backend(copy: Path, backend: str) -> None:
    config_file.set_backend(copy, backend, copy.with_name("before.toml"))  # type: ignore[arg-type] # one of its words


@contextmanager
def _configuration_copy(settings: Settings, config: Path | None) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="migrator-rehearsal-") as folder:  # readable by this user alone
        copy = Path(folder) / "config.toml"
        text = _as_toml(settings) if config is None else config.read_text(encoding="utf-8")
        copy.write_text(text, encoding="utf-8")
        yield copy


def _as_toml(settings: Settings) -> str:
    tree = settings_tree(settings)
    return tomlkit.dumps(
        {section: {key: one for key, one in keys.items() if one is not None} for section, keys in tree.items()}
    )


WRITTEN_TEXT: Final = "written by the rehearsal of the rollback"
WRITTEN_COLUMNS: Final[Mapping[type[Record], tuple[str, ...]]] = {
    Schedule: ("description", "name", "handler_name"),
    Run: ("error",),
}
"""Record → columns of which the first that its documents hold is written."""
NOW: Final = datetime(2026, 1, 2, tzinfo=UTC)
"""When the row that is inserted was created."""
ROWS_PER_TABLE: Final = 5
TOOL_COLLECTIONS: Final = frozenset({reverse_sync.FENCE_COLLECTION})
"""The tool's own collection."""

DocumentKey = tuple[str, str]
"""Collection and ``_id`` as text."""


class ReverseSyncRehearsal(msgspec.Struct, frozen=True, kw_only=True):
    """What was carried, and what was wrong."""

    sample: int
    written: int
    carried: int
    wrong: tuple[str, ...]


def rehearse_reverse_sync(
    settings: Settings, carry: Callable[[Settings], object] = lambda place: reverse_sync.run(place, noted_by_now=True)
) -> ReverseSyncRehearsal:
    """Rehearse; raises ``RefusedError`` where a right is missing, ``UnreachableError`` where a server is.

    ``carry`` replaces the reverse sync: how a fault is injected.
    """
    profile = profile_of(settings.source, settings.target)
    schedules = {one.name for one in write_back.homes(profile, Schedule)}
    with ExitStack() as closing:
        sessions = Sessions(settings)
        closing.callback(sessions.close)
        place = closing.enter_context(scratch_databases(settings))
        closing.callback(close_cached)
        sample = prepare(place, lambda scratch: copy_sample(sessions, scratch.source))
        sessions.close()
        with target_connection(place.settings) as target:
            outbox.open_outbox(target)
            before = _documents(place.source)
            context = context_of(settings.source, NOW)
            written = _write_rows(target, profile, context, settings.source.default_tenant or TENANT)
            carry(place.settings)
            close_cached()
            left, _ = outbox.backlog(target)
        after = _documents(place.source)
    changed = {one for one in before.keys() | after.keys() if before.get(one) != after.get(one)}
    created = {one for one in after.keys() - before.keys() if one[0] in schedules and _holds_written_text(after[one])}
    unwritten = [one for one in written if one not in after or not _holds_written_text(after[one])]
    wrong = [f"{left} outbox entries were not written"] * bool(left)
    wrong += [f"{collection} {key} does not say what was written" for collection, key in sorted(unwritten)]
    wrong += [f"{collection} {key} was changed by nobody" for collection, key in sorted(changed - written - created)]
    if len(created) != 1:
        wrong.append(f"{len(created)} documents for the row that was created")
    return ReverseSyncRehearsal(
        sample=sample, written=len(written) + 1, carried=len(changed & written) + len(created), wrong=tuple(wrong)
    )


def _write_rows(target: Connection, profile: Profile, context: Context, tenant: str) -> set[DocumentKey]:
    """Update some rows, insert one, and return the documents of the updated rows."""
    written: set[DocumentKey] = set()
    for record, columns in WRITTEN_COLUMNS.items():
        column = columns[0] if profile.kept_by_store else _carried(profile, record, columns)
        if column is None:
            continue
        table = record.table
        rows = target.execute(
            f"UPDATE scheduler.{table} SET {column} = %s WHERE id IN (SELECT id FROM scheduler.{table}"  # noqa: S608 - of the list above
            " WHERE source = ANY(%s) ORDER BY id LIMIT %s) RETURNING source, source_id",
            (WRITTEN_TEXT, [profile.source_of(one.name) for one in write_back.homes(profile, record)], ROWS_PER_TABLE),
        ).fetchall()
        written |= {(source.rpartition("/")[2], key) for source, key in rows}
    created = Schedule(
        id=uuid4(), tenant_id=tenant, name=WRITTEN_TEXT, handler_name=WRITTEN_TEXT, status="scheduled", created_at=NOW
    )
    _insert(target, created)
    trigger = None if profile.kept_by_store else write_back.sample_trigger(profile, context, created)
    if trigger is not None:  # a library may have no documents without a rule
        _insert(target, trigger)
    return written


def _insert(target: Connection, row: Record) -> None:
    columns = {name: value for name in row.__struct_fields__ if (value := getattr(row, name)) is not None}
    columns.pop("extra")
    target.execute(
        sql.SQL("INSERT INTO {} ({}) VALUES ({})").format(
            sql.Identifier("scheduler", row.table),
            sql.SQL(", ").join(map(sql.Identifier, columns)),
            sql.SQL(", ").join(sql.Placeholder() * len(columns)),
        ),
        list(columns.values()),
    )


def _carried(profile: Profile, record: type[Record], columns: Sequence[str]) -> str | None:
    """Return the first of these columns that documents of a record hold; None if they hold none."""
    if not write_back.homes(profile, record):
        return None
    carried = write_back.carried_columns(profile, record)
    return next((one for one in columns if one in carried), None)


def _documents(source: MongoDatabase) -> dict[DocumentKey, bytes]:
    documents: dict[DocumentKey, bytes] = {}
    with translate_errors("the source"):
        for name in source.list_collection_names():
            if name in TOOL_COLLECTIONS:
                continue
            for batch in source[name].find_raw_batches({}):
                documents |= {(name, identity.source_id_of(raw)): raw for raw in split(cast("Any", batch))}
    return documents


def _holds_written_text(raw: bytes) -> bool:
    return WRITTEN_TEXT.encode() in raw


AMOUNT: Final = timing.RowCounts(schedules=50, due=10, waiting=20, stale=5, history=20)
TENANT: Final = "rehearsal"


class DowngradeRehearsal(msgspec.Struct, frozen=True, kw_only=True):
    """What was done, and what was wrong about it."""

    rows: int
    """That were inside, and were exported before."""
    revisions: int
    wrong: tuple[str, ...]


def rehearse_downgrade(settings: Settings) -> DowngradeRehearsal:
    """Undo all revisions and apply them again; raises ``RefusedError`` where no scratch database may be made."""
    roles = Roles.of(settings.postgres)
    wrong = []
    with scratch_target(settings) as place, tempfile.TemporaryDirectory(prefix="migrator-rehearsal-") as folder:
        dsn = postgres_dsn(place)
        applied = revisions.upgrade(dsn, names=roles)
        with open_target(place, autocommit=True) as target:
            timing.insert_rows(target, TENANT, AMOUNT)
            exported = backup.export_target(target, Path(folder) / "rows")
        try:
            revisions.downgrade(dsn, names=roles)
        except RefusedError:
            pass
        else:
            wrong.append("rows are lost without a word")
        undone = revisions.downgrade(dsn, names=roles, discard_rows=True)
        left = [one.branch for one in revisions.current(dsn) if one.revision is not None]
        if left or len(undone) != len(applied):
            wrong.append(f"{len(applied)} revisions were applied and {len(undone)} undone")
        again = revisions.upgrade(dsn, names=roles)
        if [one.revision for one in again] != [one.revision for one in applied]:
            wrong.append("not every revision was applied again")
        wrong += [f"not as declared afterwards: {one}" for one in split_harmless(differences(dsn, names=roles))[0]]
    inside = sum(exported.get(f"scheduler.{record.table}", 0) for record in ALL)
    if inside != AMOUNT.rows:
        wrong.append(f"{inside} of {AMOUNT.rows} rows were exported")
    return DowngradeRehearsal(rows=inside, revisions=len(undone), wrong=tuple(wrong))
