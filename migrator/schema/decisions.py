"""Decisions of people, as ``migration.decisions`` records them: what was decided, by whom, why and when."""

from datetime import datetime
from typing import Any, Final, LiteralString

import msgspec
from psycopg.types.json import Jsonb

from migrator import __version__
from migrator.connections.postgres import Connection, fetch_structs, fetch_value

CUTOVER: Final = "cutover"
CUTOVER_AGAIN: Final = "interrupted cutover continued"
CONFIRMED: Final = "application confirmed on PostgreSQL"
ROLLBACK: Final = "rollback"
RELEASE: Final = "MongoDB released after the cutover"
REPAIR: Final = "parity repair"
OVERWRITTEN: Final = "changes of another program overwritten"
DOWNGRADE: Final = "schema downgrade"
DROP: Final = "quarantine drop"
CONTROL: Final = "control"
PARALLEL_BEGUN: Final = "parallel run begun"
"""Processes read a lock row (``store.postgres.parallel_run``), which is written in the same transaction."""
PARALLEL_ENDED: Final = "parallel run ended"
COPY_CLEANED: Final = "rows of a rehearsal removed"
REHEARSED: Final = "complete rehearsal on other servers"
WAIVED: Final = "schedule waived in the parallel run"
WAIVER_WITHDRAWN: Final = "waiver of a schedule withdrawn"


CHECKSUMMED: Final[LiteralString] = (
    "stored.id, stored.kind, stored.who, stored.reason, extract(epoch FROM stored.at), stored.tool_version,"
    " stored.detail"
)
"""The expressions of the checksum of a row ``stored``."""
CHECKSUM: Final[LiteralString] = f"sha256(convert_to(jsonb_build_array({CHECKSUMMED})::text, 'UTF8'))"


class Approval(msgspec.Struct, frozen=True):
    """A person who wants something that cannot simply be undone."""

    who: str
    reason: str = ""


UNNAMED: Final = Approval("not named")
"""Of a call from Python that names nobody."""


class RecordedDecision(msgspec.Struct, frozen=True, kw_only=True):
    """A row of ``migration.decisions``."""

    kind: str
    who: str
    reason: str
    at: datetime
    tool_version: str
    detail: dict[str, Any]


def record(connection: Connection, kind: str, by: Approval, **detail: Any) -> datetime:  # noqa: ANN401 - any JSON value
    """Record a decision, and return its time."""
    at: datetime = fetch_value(
        connection,
        f"WITH stored AS (SELECT nextval(pg_get_serial_sequence('migration.decisions', 'id')) AS id, %s::text AS kind,"  # noqa: S608 - our own text
        " %s::text AS who, %s::text AS reason, clock_timestamp() AS at, %s::text AS tool_version, %s::jsonb AS detail)"
        " INSERT INTO migration.decisions (id, kind, who, reason, at, tool_version, detail, checksum)"
        f" SELECT id, kind, who, reason, at, tool_version, detail, {CHECKSUM} FROM stored RETURNING at",
        (kind, by.who, by.reason, __version__, Jsonb(detail)),
    )
    return at


def recorded(connection: Connection) -> list[RecordedDecision]:
    """Return all decisions, first to last."""
    return fetch_structs(
        connection,
        RecordedDecision,
        "SELECT kind, who, reason, at, tool_version, detail FROM migration.decisions ORDER BY id",
    )
