"""A verification on record in the schema ``migration``: when, by which version, how it ended, where its report lies."""

import socket
from datetime import datetime
from pathlib import Path
from uuid import uuid4

import msgspec
from psycopg.types.json import Jsonb

from migrator import __version__
from migrator.config import Settings
from migrator.errors import MigratorError
from migrator.result import Result
from migrator.store.postgres.connection import open_target, speaking_of
from migrator.telemetry import logger

COMMAND = "verify"


def record(settings: Settings, result: Result, folder: Path) -> bool:
    """Put a result on record in ``migration.tool_runs``; tell whether that went well.

    A target that cannot be written is no reason to lose the result: the files hold all of it.
    """
    detail = {
        "policy": msgspec.to_builtins(result.evidence.policy),
        "decisions": msgspec.to_builtins(result.evidence.decisions),
        "verdict": result.verdict(),
        "digest": result.digest,
        "report": str(folder.absolute()),
    }
    try:
        with open_target(settings, autocommit=True) as target, speaking_of("the target"):
            target.execute(
                "INSERT INTO migration.tool_runs (id, command, started_at, finished_at, exit_status, tool_version,"
                " host, settings) VALUES (%s, %s, %s, clock_timestamp(), %s, %s, %s, %s)",
                (
                    uuid4(),
                    COMMAND,
                    datetime.fromisoformat(result.run.started_at),
                    result.exit_status(),
                    __version__,
                    socket.gethostname(),
                    Jsonb(detail),
                ),
            )
    except MigratorError as error:
        logger().warning("verify.not_recorded", why=str(error))
        return False
    return True
