"""The revision files: where they are, what they make, and whether an applied one was changed since."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from alembic.config import Config
from alembic.script import ScriptDirectory
from psycopg import sql

import migrator
from migrator.errors import MigratorError, RefusedError
from migrator.store.postgres.connection import Connection

BRANCHES = ("scheduler", "migration")
"""Each branch of the revisions fills the schema of its name and keeps its own version table there."""

VERSION_TABLE = "schema_revision"
"""Alembic's: the revision a branch is at."""
HISTORY_TABLE = "schema_history"
"""Which files were applied, with their SHA-256."""
BOOKKEEPING = (VERSION_TABLE, HISTORY_TABLE)

BOOKKEEPING_DDL = """
CREATE TABLE IF NOT EXISTS {version} (
    version_num text NOT NULL,
    CONSTRAINT pk_schema_revision PRIMARY KEY (version_num)
);
CREATE TABLE IF NOT EXISTS {history} (
    revision text NOT NULL,
    file text NOT NULL,
    sha256 text NOT NULL,
    applied_at timestamptz NOT NULL,
    tool_version text NOT NULL,
    CONSTRAINT pk_schema_history PRIMARY KEY (revision)
);
"""


class Revision(msgspec.Struct, frozen=True):
    """One revision file."""

    id: str
    branch: str
    title: str
    file: str
    sha256: str
    """Of the file's bytes, in hexadecimal."""
    tables: tuple[str, ...]
    """Tables it makes, and drops with their rows when it is undone."""


def folder() -> Path:
    """Return the folder of the revisions: inside the installed package, else beside the checkout."""
    package = Path(migrator.__file__).parent
    for place in (package / "_alembic", package.parent / "alembic"):
        if (place / "env.py").is_file():
            return place
    raise MigratorError(f"the schema's revisions are missing from the installation; looked beside {package}")


def configuration() -> Config:
    """Return Alembic's configuration, without a file."""
    config = Config()
    config.set_main_option("script_location", str(folder()).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config


def revisions(branch: str, config: Config | None = None) -> list[Revision]:
    """Return a branch's revisions, first to last."""
    scripts = ScriptDirectory.from_config(config or configuration())
    walk = list(scripts.walk_revisions("base", f"{branch}@head"))
    return [_revision(branch, script) for script in reversed(walk)]


def _revision(branch: str, script: Any) -> Revision:  # noqa: ANN401 - Alembic's Script
    path = Path(script.path)
    return Revision(
        id=script.revision,
        branch=branch,
        title=(script.doc or "").rstrip("."),
        file=path.name,
        sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
        tables=tuple(script.module.TABLES),
    )


def applied(connection: Connection, branch: str) -> Mapping[str, tuple[str, str]]:
    """Return revision → (file, SHA-256) of what was applied; empty where nothing was."""
    row = connection.execute("SELECT to_regclass(%s) IS NULL", (f"{branch}.{HISTORY_TABLE}",)).fetchone()
    if row == (True,):
        return {}
    query = sql.SQL("SELECT revision, file, sha256 FROM {} ORDER BY revision").format(
        sql.Identifier(branch, HISTORY_TABLE)
    )
    return {revision: (file, digest) for revision, file, digest in connection.execute(query)}


def recorded(connection: Connection, branch: str) -> list[str]:
    """Return the revisions that Alembic's own table names; empty where there is none."""
    row = connection.execute("SELECT to_regclass(%s) IS NULL", (f"{branch}.{VERSION_TABLE}",)).fetchone()
    if row == (True,):
        return []
    query = sql.SQL("SELECT version_num FROM {} ORDER BY 1").format(sql.Identifier(branch, VERSION_TABLE))
    return [revision for (revision,) in connection.execute(query)]


def check_recorded(branch: str, known: list[Revision], done: Mapping[str, tuple[str, str]], names: list[str]) -> None:
    """Refuse to go on when Alembic's table names anything but the last revision that was applied."""
    expected = [one.id for one in known if one.id in done][-1:]
    if names != expected:
        only = expected[0] if expected else "no row"
        raise RefusedError(
            f"{branch}.{VERSION_TABLE} names {', '.join(names) or 'no revision'} where {only} is expected: another tool"
            f" has changed this schema or its books; undo that, and let the table hold {only} alone"
        )


def check_applied(known: list[Revision], done: Mapping[str, tuple[str, str]]) -> None:
    """Refuse to go on when an applied revision is unknown, or its file is not what was applied."""
    by_id = {revision.id: revision for revision in known}
    for identity, (file, digest) in done.items():
        if identity not in by_id:
            raise RefusedError(
                f"the schema is at revision {identity} ({file}), which this version of the tool does not know;"
                " use the version that applied it"
            )
        if by_id[identity].sha256 != digest:
            raise RefusedError(
                f"revision {identity} was applied from a file with another content than {by_id[identity].file}:"
                " put the applied file back; a change needs a revision of its own"
            )
