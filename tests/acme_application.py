"""The home-made scheduler whose documents ``fixtures_data/mappings/acme.toml`` describes: it reads them by itself."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any
from zoneinfo import ZoneInfo

from cronsim import CronSim

from tests.real_libraries import Loaded

FIELDS = {"_id", "org", "title", "owner", "cron", "every", "zone", "next", "active", "state", "priority", "options"}
FIELDS |= {"grade", "labels", "payload", "created"}
FIRES = 5


def load(jobs: Iterable[dict[str, Any]], instants: Sequence[datetime]) -> dict[str, Loaded]:
    """Return the jobs as the application reads them; raises ``ValueError`` for one that it cannot read."""
    return {str(job["_id"]): _loaded(job, instants) for job in jobs}


def _loaded(job: dict[str, Any], instants: Sequence[datetime]) -> Loaded:
    if job.keys() - FIELDS or (job.get("cron") is not None and job.get("every") is not None):
        raise ValueError(f"a job with the fields {', '.join(job)}")
    if job["state"] not in ("on", "off", "done") or type(job["active"]) is not bool:
        raise ValueError(f"a job whose state is {job['state']}, active {job['active']}")
    fires = None
    if job.get("cron") is not None:
        zone = ZoneInfo(job.get("zone") or "UTC")
        fires = tuple(
            tuple(fire.astimezone(UTC) for fire in islice(CronSim(job["cron"], first.astimezone(zone)), FIRES))
            for first in instants
        )
    elif job.get("every") is not None:
        length = timedelta(seconds=job["every"])
        fires = tuple(tuple(first + length * number for number in range(1, FIRES + 1)) for first in instants)
    runs = job["active"] and job["state"] == "on" and fires is not None
    return Loaded(fires=fires, next=None, ran=runs)
