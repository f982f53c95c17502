"""Rollback level 1, rehearsed in scratch databases on both servers: what is written to PostgreSQL reaches MongoDB.

A sample of the source is copied, the outbox is opened, rows are written, the reverse stream runs. The judge knows
nothing of how it works: the documents of the written rows say what was written, one more document is there for the row
that was born, and every other document is what it was, byte for byte.
"""

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, Final, cast

import msgspec

from migrator.config import Settings
from migrator.cutover import outbox, reverse
from migrator.pipeline.sessions import Sessions, close_kept
from migrator.sources.stellaops import names
from migrator.store.mongo.client import Source, speaking_of
from migrator.store.postgres.connection import Connection, open_target
from migrator.store.postgres.connection import speaking_of as speaking_of_target
from migrator.values import identity
from migrator.values.document import split
from migrator.values.rawid import raw_id
from migrator.verify.sensitivity.sample import copy_sample
from migrator.verify.sensitivity.scratch import scratch
from migrator.verify.sensitivity.trial import prepare

SAID: Final = "written by the rehearsal of the way back"
WRITTEN: Final = {"schedules": "description", "runs": "error"}
"""Table → the column that is written."""
EACH: Final = 5
ASIDE: Final = frozenset({reverse.MARKERS})
"""The tool's own collection."""

Place = tuple[str, str]
"""Collection and ``_id`` as text."""


class WentBack(msgspec.Struct, frozen=True, kw_only=True):
    """What was carried, and what was wrong."""

    sample: int
    written: int
    carried: int
    wrong: tuple[str, ...]


def there_and_back(
    settings: Settings, carry: Callable[[Settings], object] = lambda place: reverse.run(place, noted_by_now=True)
) -> WentBack:
    """Rehearse; raises ``RefusedError`` where a right is missing, ``UnreachableError`` where a server is.

    ``carry`` stands for the reverse stream: how a fault is planted.
    """
    with ExitStack() as closing:
        sessions = Sessions(settings)
        closing.callback(sessions.close)
        place = closing.enter_context(scratch(settings))
        closing.callback(close_kept)
        sample = prepare(place, lambda there: copy_sample(sessions, there.source))
        sessions.close()
        with open_target(place.settings, autocommit=True) as target, speaking_of_target("the target"):
            outbox.open_outbox(target)
            before = _raws(place.source)
            written = _write(target)
            carry(place.settings)
            close_kept()
            left, _ = outbox.waiting(target)
        after = _raws(place.source)
    changed = {one for one in before.keys() | after.keys() if before.get(one) != after.get(one)}
    born = {one for one in after.keys() - before.keys() if one[0] == names.SCHEDULES and _says(after[one])}
    silent = [one for one in written if one not in after or not _says(after[one])]
    wrong = [f"{left} notes were left behind"] * bool(left)
    wrong += [f"{collection} {key} does not say what was written" for collection, key in sorted(silent)]
    wrong += [f"{collection} {key} was changed by nobody" for collection, key in sorted(changed - written - born)]
    if len(born) != 1:
        wrong.append(f"{len(born)} documents for the row that was born")
    return WentBack(
        sample=sample, written=len(written) + 1, carried=len(changed & written) + len(born), wrong=tuple(wrong)
    )


def _write(target: Connection) -> set[Place]:
    """Write into some rows, make one, and return the documents of the former."""
    written: set[Place] = set()
    for table, column in WRITTEN.items():
        rows = target.execute(
            f"UPDATE scheduler.{table} SET {column} = %s WHERE id IN (SELECT id FROM scheduler.{table}"  # noqa: S608 - of the list above
            " WHERE source LIKE %s ORDER BY id LIMIT %s) RETURNING source, source_id",
            (SAID, f"%/{table}", EACH),
        ).fetchall()
        written |= {(source.rpartition("/")[2], key) for source, key in rows}
    target.execute(
        "INSERT INTO scheduler.schedules (id, tenant_id, name, status, created_at, updated_at)"
        " VALUES (gen_random_uuid(), 'rehearsal', %s, 'scheduled', now(), now())",
        (SAID,),
    )
    return written


def _raws(source: Source) -> dict[Place, bytes]:
    found: dict[Place, bytes] = {}
    with speaking_of("the source"):
        for name in source.list_collection_names():
            if name in ASIDE:
                continue
            for batch in source[name].find_raw_batches({}):
                found |= {(name, identity.source_id(raw_id(raw))): raw for raw in split(cast("Any", batch))}
    return found


def _says(raw: bytes) -> bool:
    return SAID.encode() in raw
