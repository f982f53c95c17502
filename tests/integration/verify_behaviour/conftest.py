"""Contexts over a fresh database of each kind."""

from collections.abc import Callable
from typing import Any

import pytest
from pymongo.database import Database

from migrator.config import MongoSettings, PostgresSettings, Settings
from migrator.testing.servers.mongo import MongoServer
from migrator.verify.check import CheckContext, CheckSpec
from migrator.verify.registry import EVERY_CHECK
from migrator.verify.request import Request

BEHAVIOUR_AREAS = ("crud", "transitions", "triggers", "locking", "workers", "execution", "isolation")
BOTH = Request(backend="both", scratch_on_source=True)
SPECS: dict[str, CheckSpec] = {spec.id: spec for spec in EVERY_CHECK if spec.area in BEHAVIOUR_AREAS}

SHOWS: dict[str, tuple[str, ...]] = {
    "crud": ("0-T2.11.1",),
    "transitions": ("0-T2.11.2", "0-R3"),
    "triggers": ("0-T2.11.3", "0-R2"),
    "locking": ("0-T2.11.4", "0-R1"),
    "execution": ("0-T2.11.5",),
    "isolation": ("0-X2",),
}
"""What the checks of an area show."""


@pytest.fixture
def settings(
    new_scheduler_dsn: Callable[[], str], mongo_server: MongoServer, mongo_database: Database[Any]
) -> Settings:
    return Settings(
        postgres=PostgresSettings(dsn=new_scheduler_dsn()),
        mongo=MongoSettings(uri=mongo_server.uri, database=mongo_database.name),
    )


@pytest.fixture
def context(settings: Settings) -> CheckContext:
    return CheckContext(settings)
