"""A target that an installed package brings: a folder of TOML, and an entry point. Each command is a process."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pymongo.database import Database

from migrator.exit_status import DIFFERENT, QUARANTINE, USAGE
from tests.copying import run, settings_for, write_config

TABLE = """
CREATE TABLE public.leases (
    holder text NOT NULL, name varchar(64) PRIMARY KEY, until timestamptz NOT NULL, cluster text NOT NULL)
"""
MODULE = """
from pathlib import Path
from migrator.targets import folder_target
TARGET = folder_target(Path(__file__).parent / "leases")
"""
TARGET = """
[target]
name = "acme-leases"
title = "Acme's leases"
versions = "3"

[target.options]
cluster = { meaning = "the cluster that holds the leases", example = "main" }

[target.tables.leases]
key = ["name"]

[target.tables.leases.columns]
holder = "text not null"
name = "character varying(64) not null"
until = "timestamptz not null"
cluster = "text not null"
"""
MAPPING = """
[source]
name = "shedlock"

[collections.shedLock]
tables = ["leases"]

[collections.shedLock.fields]
_id = { to = "leases.name" }
lockUntil = { to = "leases.until" }
lockedBy = { to = "leases.holder" }

[collections.shedLock.constants]
leases.cluster = { option = "cluster" }
"""
UNTIL = datetime(2026, 11, 28, 12, tzinfo=UTC)


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    """Return a folder in which a package is installed that brings the target ``acme-leases``."""
    folder = tmp_path / "packages"
    described = folder / "acme" / "leases"
    described.mkdir(parents=True)
    (folder / "acme" / "__init__.py").write_text(MODULE)
    (described / "target.toml").write_text(TARGET)
    (described / "shedlock.toml").write_text(MAPPING)
    installed = folder / "acme-1.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1\n")
    (installed / "entry_points.txt").write_text("[migrator.targets]\nacme-leases = acme:TARGET\n")
    return folder


class Commands:
    """Calls the tool where the package is installed."""

    def __init__(self, packages: Path, config: Path) -> None:
        self._packages, self._config = packages, config

    def configure(self, more: str) -> None:
        """Append to the configuration file."""
        self._config.write_text(self._config.read_text() + more)

    def __call__(self, *words: str, **settings: str) -> tuple[int, str, str]:
        environment = {"PYTHONPATH": str(self._packages), "MIGRATOR_CONFIG": str(self._config), **settings}
        return run(*words, environment=environment)


@pytest.fixture
def call(packages: Path, mongo_database: Database[Any], postgres_dsn: str, tmp_path: Path) -> Commands:
    config = write_config(tmp_path, settings_for(mongo_database, postgres_dsn, profile="shedlock"))
    return Commands(packages, config)


def rows(dsn: str) -> list[Any]:
    with psycopg.connect(dsn) as connection:
        return connection.execute("SELECT name, holder, until, cluster FROM public.leases ORDER BY name").fetchall()


def said(answer: tuple[int, str, str]) -> Mapping[str, Any] | list[Any]:
    status, out, err = answer
    assert status == 0, err
    parsed: Mapping[str, Any] | list[Any] = json.loads(out)
    return parsed


@pytest.mark.proves("6-T1")
@pytest.mark.parametrize("name", ["acme-leases", "acme:TARGET"])
def test_its_tables_are_fed_like_those_of_a_shipped_one(
    call: Commands, mongo_database: Database[Any], postgres_dsn: str, name: str
) -> None:
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        connection.execute(TABLE)
    mongo_database["shedLock"].insert_many(
        [
            {"_id": "mail", "lockUntil": UNTIL, "lockedAt": UNTIL, "lockedBy": "host-1"},
            {"_id": "x" * 65, "lockUntil": UNTIL, "lockedAt": UNTIL, "lockedBy": "host-2"},
        ]
    )
    chosen = {"MIGRATOR_TARGET__NAME": name}
    status, _, err = call("target", "prepare", **chosen)
    assert (status, "target.options.cluster is not set: the cluster that holds the leases" in err) == (USAGE, True), err
    call.configure('[target.options]\ncluster = "north"\n')
    assert call("target", "prepare", **chosen)[::2] == (0, "")
    status, _, err = call("backfill", **chosen)
    assert status == QUARANTINE, err
    assert rows(postgres_dsn) == [("mail", "host-1", UNTIL, "north")]
    assert call("parity", **chosen)[0] == QUARANTINE, "the document that no column can hold is in quarantine"
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        connection.execute("UPDATE public.leases SET holder = 'nobody'")
    assert call("parity", **chosen)[0] == DIFFERENT | QUARANTINE


@pytest.mark.proves("6-T1")
def test_it_is_listed_and_shown_with_its_tables_options_and_mapping(call: Commands) -> None:
    listed = said(call("target", "list", "--json"))
    assert {"name": "acme-leases", "title": "Acme's leases", "versions": "3", "sources": ["shedlock"]} in listed
    shown = said(call("target", "show", "acme-leases", "--json"))
    assert isinstance(shown, dict)
    assert shown["tables"] == {
        "leases": {
            "holder": "text",
            "name": "character varying(64)",
            "until": "timestamp with time zone",
            "cluster": "text",
        }
    }
    assert shown["options"] == {"cluster": "the cluster that holds the leases"}
    assert shown["sources"] == {"shedlock": ["shedLock"]}
    status, out, _ = call("target", "show", "acme-leases")
    assert status == 0
    assert 'option cluster (must be said): the cluster that holds the leases; such as cluster = "main"' in out
    assert '  leases.cluster = { option = "cluster" }' in out
    status, out, _ = call("source", "list", "--json")
    assert "acme-leases" in next(source for source in json.loads(out) if source["name"] == "shedlock")["native_cutover"]


def test_a_folder_with_a_mistake_is_named(call: Commands, packages: Path) -> None:
    path = packages / "acme" / "leases" / "target.toml"
    path.write_text(TARGET.replace("text not null", "txet not null", 1))
    status, out, err = call("target", "show", "acme-leases")
    assert (status, out) == (USAGE, "")
    assert "Traceback" not in err
    assert "acme" in err


def test_the_name_of_the_entry_point_is_that_of_the_target(call: Commands, packages: Path) -> None:
    (packages / "acme-1.dist-info" / "entry_points.txt").write_text("[migrator.targets]\nleases = acme:TARGET\n")
    status, _, err = call("target", "show", "leases")
    assert status == USAGE
    assert "target leases: the package that offers it calls it acme-leases" in err
