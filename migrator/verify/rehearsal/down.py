"""Rollback level 2, rehearsed in a scratch database: all revisions undone with rows inside, and applied again."""

import tempfile
from pathlib import Path
from typing import Final

import msgspec

from migrator.config import Settings, postgres_dsn
from migrator.cutover import export
from migrator.errors import RefusedError
from migrator.records import ALL
from migrator.store.postgres import migrate
from migrator.store.postgres.catalogue import differences
from migrator.store.postgres.connection import open_target
from migrator.store.postgres.security import Roles
from migrator.verify.rehearsal.database import scratch_database
from migrator.verify.timing import rows

AMOUNT: Final = rows.Amount(schedules=50, due=10, waiting=20, stale=5, history=20)
TENANT: Final = "rehearsal"


class Undone(msgspec.Struct, frozen=True, kw_only=True):
    """What was done, and what was wrong about it."""

    rows: int
    """That were inside, and were exported before."""
    revisions: int
    wrong: tuple[str, ...]


def down_and_up(settings: Settings) -> Undone:
    """Go down and up again; raises ``RefusedError`` where no scratch database may be made."""
    names = settings.postgres
    roles = Roles(migration=names.migration_role, service=names.service_role, dispatcher=names.dispatcher_role)
    wrong = []
    with scratch_database(settings) as place, tempfile.TemporaryDirectory(prefix="migrator-rehearsal-") as folder:
        dsn = postgres_dsn(place)
        applied = migrate.upgrade(dsn, names=roles)
        with open_target(place, autocommit=True) as target:
            rows.fill(target, TENANT, AMOUNT)
            exported = export.everything(target, Path(folder) / "rows")
        try:
            migrate.downgrade(dsn, names=roles)
        except RefusedError:
            pass
        else:
            wrong.append("rows are lost without a word")
        undone = migrate.downgrade(dsn, names=roles, discard_rows=True)
        left = [one.branch for one in migrate.current(dsn) if one.revision is not None]
        if left or len(undone) != len(applied):
            wrong.append(f"{len(applied)} revisions were applied and {len(undone)} undone")
        again = migrate.upgrade(dsn, names=roles)
        if [one.revision for one in again] != [one.revision for one in applied]:
            wrong.append("not every revision was applied again")
        wrong += [f"not as declared afterwards: {one}" for one in differences(dsn, names=roles)]
    inside = sum(exported.get(f"scheduler.{record.table}", 0) for record in ALL)
    if inside != AMOUNT.rows:
        wrong.append(f"{inside} of {AMOUNT.rows} rows were exported")
    return Undone(rows=inside, revisions=len(undone), wrong=tuple(wrong))
