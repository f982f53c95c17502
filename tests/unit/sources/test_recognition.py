"""Each shipped source is recognised by documents that its library wrote, or that are modelled on them; and no other."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import bson
import pytest
from bson import json_util

from migrator.sources import NAMES, installed_sources, load_profile
from migrator.sources.profile import MONGODB
from migrator.sources.recognition import recognise
from migrator.testing.demo import SEED
from migrator.testing.demo.plan import Counts, Plan
from migrator.testing.demo.seed import COLLECTIONS
from tests.modelled_documents import MODELLED
from tests.real_documents import DATA, real_documents

pytestmark = pytest.mark.proves("6-U1")

Samples = Mapping[str, Sequence[Mapping[str, Any]]]
SMALL = Counts(*([5] * 12))


def apscheduler4() -> Samples:
    found: dict[str, list[dict[str, Any]]] = {}
    for line in (DATA / "apscheduler" / "4.0.0a6-json.jsonl").read_text(encoding="utf-8").splitlines():
        collection, document = json.loads(line)
        found.setdefault(collection, []).append(document)
    return found


def demo() -> Samples:
    plan = Plan(seed=SEED, counts=SMALL)
    return {name: list(map(bson.decode, documents(plan))) for name, documents in COLLECTIONS.items()}


DATABASES: dict[str, tuple[str, Samples]] = {
    "the demo": ("stellaops", demo()),
    **{
        folder: ("agenda", {name: real_documents(f"{folder}/{name}")})
        for folder, name in (
            ("agenda-4", "agendaJobs"),
            ("agenda-5", "agendaJobs"),
            ("agenda-6", "agendaJobs"),
            ("hokify-6", "agendaJobs"),
            ("pulse-1", "pulseJobs"),
        )
    },
    "logs of agenda 6": ("agenda", {"agenda_logs": real_documents("agenda-6/agenda_logs")}),
    "apscheduler 3": ("apscheduler", {"jobs": real_documents("apscheduler/3.11.3")}),
    "apscheduler 4": ("apscheduler4", apscheduler4()),
    "celerybeat": ("celerybeat", {"schedules": real_documents("celerybeat-mongo/schedules")}),
    "celery-results": ("celery-results", {"celery_taskmeta": real_documents("celery-results/celery_taskmeta")}),
    "mongodb-cron": ("mongodb-cron", {"jobs": real_documents("mongodb-cron/jobs")}),
    "mongodb-queue": ("mongodb-queue", {"queue": real_documents("mongodb-queue/queue")}),
    **{name: (name, MODELLED[name]) for name in ("shedlock", "quartz", "jobrunr")},
}


@pytest.mark.parametrize("database", DATABASES)
def test_a_source_is_recognised_and_no_other_is(database: str) -> None:
    expected, samples = DATABASES[database]
    found = recognise(tuple(installed_sources()), samples)
    assert [(one.profile, one.sure) for one in found] == [(expected, "certain")], found
    assert not found[0].renamed
    assert all("%" in line for line in found[0].why)


def test_one_collection_of_hangfire_holds_two_sources() -> None:
    found = recognise(tuple(installed_sources()), MODELLED["hangfire"])
    assert {one.profile for one in found} == {"hangfire", "hangfire-jobs"}


def test_every_shipped_source_in_mongodb_has_signs_and_is_tested() -> None:
    in_mongodb = {name for name in NAMES if MONGODB in load_profile(name).servers and load_profile(name).signs}
    without = {name for name in NAMES if MONGODB in load_profile(name).servers} - in_mongodb
    assert without == set(), without
    assert in_mongodb == {expected for expected, _ in DATABASES.values()} | {"hangfire", "hangfire-jobs"}


def test_a_collection_of_another_name_is_likely_and_says_the_setting() -> None:
    found = recognise(tuple(installed_sources()), {"background": real_documents("agenda-6/agendaJobs")})
    assert [(one.profile, one.sure) for one in found] == [("agenda", "likely")]
    assert found[0].renamed == {"agendaJobs": "background"}
    assert "the profile calls it agendaJobs" in found[0].why[0]


def test_several_sources_in_one_database_are_all_named() -> None:
    samples = {
        "agendaJobs": real_documents("agenda-6/agendaJobs"),
        "celery_taskmeta": real_documents("celery-results/celery_taskmeta"),
        **MODELLED["shedlock"],
    }
    found = recognise(tuple(installed_sources()), samples)
    assert {one.profile for one in found} == {"agenda", "celery-results", "shedlock"}


@pytest.mark.parametrize(
    "samples",
    [
        {},
        {"jobs": []},
        {"jobs": [{"_id": 1, "title": "x", "state": "new"}], "users": [{"_id": 1, "name": "x"}]},
        {"agendaJobs": [{"_id": 1, "topic": "budget", "priority": 1}]},
    ],
    ids=["nothing", "an empty collection", "another application", "the name alone"],
)
def test_other_documents_are_no_source(samples: Samples) -> None:
    assert recognise(tuple(installed_sources()), samples) == ()


def test_few_documents_of_a_name_are_possible_only() -> None:
    others = [{"_id": number, "topic": "budget"} for number in range(20)]
    found = recognise(tuple(installed_sources()), {"agendaJobs": [*others, real_documents("agenda-6/agendaJobs")[0]]})
    assert [(one.profile, one.sure) for one in found] == [("agenda", "possible")]
    assert json_util.dumps(found[0].why)
