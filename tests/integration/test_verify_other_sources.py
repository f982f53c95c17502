"""A whole ``verify`` of a sound copy, for every source but the main one: it ends as the data are."""

import json
from pathlib import Path
from typing import Any

import pytest
from bson.objectid import ObjectId
from click.testing import CliRunner
from pymongo.database import Database

from migrator.cli import cli
from migrator.config import Settings
from migrator.exit_status import UNVERIFIED
from migrator.pipeline.backfill import backfill
from migrator.pipeline.plan import Scope
from migrator.pipeline.sessions import close_cached
from migrator.report.areas import AREAS, area_of
from migrator.values import document as documents
from tests.agenda_documents import (
    NOON,
    SECOND,
    Document,
    created_4,
    every_4,
    hokify,
    hokify_run,
    pulse,
    pulse_run,
    real,
)
from tests.copying import settings_for, write_config
from tests.cron_lines import DEEP

LIBRARIES: dict[str, dict[str, list[Document]]] = {
    "agenda-4": {"agendaJobs": [documents.decode(raw) for raw in real("agenda-4", "agendaJobs")]},
    "agenda-5": {
        "agendaJobs": [
            created_4(_id=ObjectId("6b005affa4375445fe122301")),
            every_4(
                _id=ObjectId("6b005affa4375445fe122302"), lastRunAt=NOON, lockedAt=None, lastFinishedAt=NOON + SECOND
            ),
        ]
    },
    "agenda-6": {
        name: [documents.decode(raw) for raw in real("agenda-6", name)] for name in ("agendaJobs", "agenda_logs")
    },
    "hokify": {
        "agendaJobs": [
            hokify(_id=ObjectId("6b005affa4375445fe122301")),
            hokify_run(_id=ObjectId("6b005affa4375445fe122302")),
        ]
    },
    "pulse": {
        "pulseJobs": [
            pulse(_id=ObjectId("6b005affa4375445fe122301")),
            pulse_run(_id=ObjectId("6b005affa4375445fe122302")),
        ]
    },
}
"""What each library of the family leaves in its collections."""


WHOLE = LIBRARIES if DEEP else ("agenda-6",)
"""Libraries whose copies are verified whole: the behaviour in scratch tenants does not depend on the source."""


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_sound_copy_of_any_library_ends_green(
    library: str, mongo_database: Database[Any], scheduler_dsn: str, tmp_path: Path
) -> None:
    for name, some in LIBRARIES[library].items():
        mongo_database[name].insert_many([dict(one) for one in some])
    settings = settings_for(mongo_database, scheduler_dsn, profile="agenda")
    done = backfill(settings, Scope())
    close_cached()
    assert (done.complete, done.quarantined) == (True, 0)
    whole = library in WHOLE
    status, checks = verified(settings, tmp_path, *(() if whole else ("--no-behaviour",)))
    wrong = {
        name: check["outcome"]
        for name, check in checks.items()
        if check["outcome"]["status"] in ("failed", "unverified") and (whole or not AREAS[area_of(name)].writes)
    }
    assert (wrong, status) == ({}, 0 if whole else UNVERIFIED)
    if not whole:
        return
    assert checks["cutover.rollback"]["outcome"]["status"] == "not-asked-for"
    assert "--scratch-on-source" in checks["cutover.rollback"]["outcome"]["reason"]


def verified(settings: Settings, folder: Path, *more: str) -> tuple[int, dict[str, Any]]:
    """Run ``migrator verify``; return its exit status and the checks of its result by id."""
    config = write_config(folder, settings)
    called = CliRunner().invoke(
        cli, ["verify", "--config", str(config), "--report-dir", str(folder / "reports"), *more]
    )
    (result,) = (folder / "reports").glob("*/result.json")
    stored = json.loads(result.read_text())
    return called.exit_code, {one["id"]: one for one in stored["evidence"]["checks"]}
