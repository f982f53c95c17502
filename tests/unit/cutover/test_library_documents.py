"""Which native targets have a way back: the reason stands by name where rows cannot become documents again."""

import pytest

from migrator.config import SourceSettings, TargetSettings
from migrator.cutover.library_documents import faults, require_written_back
from migrator.errors import RefusedError
from migrator.sources import profile_of
from migrator.targets import load_target
from tests.quartz_documents import OPTIONS

BEAT = {"timezone": "UTC", "host_timezone": "UTC"}
GIVEN = {"quartz": OPTIONS, "sqlalchemy-celery-beat": BEAT, "django-celery-beat": BEAT}
SEVERAL = {
    "quartz": ["quartz_triggers"],
    "sqlalchemy-celery-beat": ["schedules"],
    "django-celery-beat": ["schedules"],
    "agenda": [],
    "apscheduler": [],
    "celery-results": [],
    "shedlock": [],
}
"""Target → the collections whose documents make rows of several tables."""


@pytest.mark.parametrize("name", SEVERAL)
def test_a_document_with_rows_of_several_tables_is_refused_by_name(name: str) -> None:
    (source,) = load_target(name).mappings
    profile = profile_of(SourceSettings(profile=source), TargetSettings(name=name, options=GIVEN.get(name, {})))
    reasons = faults(profile)
    named = [f"a document of {one} makes rows of several tables" for one in SEVERAL[name]]
    assert [one for one in reasons if one.endswith("of several tables")] == named
    assert bool(reasons) == bool(named)
    if not reasons:
        require_written_back(profile)
        return
    with pytest.raises(RefusedError, match=reasons[0]):
        require_written_back(profile)
