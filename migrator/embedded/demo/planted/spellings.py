"""Older and other spellings: aliases, versions, cron texts and time zones."""

from collections.abc import Iterator
from typing import Any

from migrator.embedded.demo.planted.item import Nursery, Planted, loaded, quarantined


def spellings(nursery: Nursery) -> Iterator[Planted]:
    """Yield the documents that say it differently."""
    yield from _aliases(nursery)
    yield from _versions(nursery)
    yield from _cron(nursery)
    yield from _tenants(nursery)


def _aliases(nursery: Nursery) -> Iterator[Planted]:
    job = nursery.fresh("graph_jobs")
    job["status"] = "cancelled"
    yield loaded("alias", "graph_jobs", job, residue=False)
    job = nursery.fresh("policy_jobs")
    job["status"] = "cancelled"
    yield loaded("alias", "policy_jobs", job, "alias")
    schedule = nursery.fresh("schedules")
    schedule["mode"] = "analysisonly"
    yield loaded("alias", "schedules", schedule, "alias")
    schedule = {
        ("whenCron" if key == "cronExpression" else key): value for key, value in nursery.fresh("schedules").items()
    }
    yield loaded("alias-field", "schedules", schedule, "alias")
    for old in ("feedser", "vexer"):
        run = nursery.fresh("runs")
        run["trigger"] = old
        yield loaded("renamed-service", "runs", run, "alias")


def _versions(nursery: Nursery) -> Iterator[Planted]:
    run: dict[str, Any] = nursery.fresh("runs")
    run["schemaVersion"] = "scheduler.run@0"
    yield loaded("old-schema-version", "runs", run, "unknown-schema-version", residue=False)
    run = nursery.fresh("runs")
    run["schemaVersion"] = "  "
    yield loaded("blank-schema-version", "runs", run)
    run = nursery.fresh("runs")
    del run["schemaVersion"]
    yield loaded("no-schema-version", "runs", run, residue=False)


def _cron(nursery: Nursery) -> Iterator[Planted]:
    for text in ("every day at noon", "61 * * * *"):
        schedule = nursery.fresh("schedules")
        schedule["cronExpression"] = text
        yield loaded("cron-unevaluable", "schedules", schedule, "unevaluable-cron")
    schedule = nursery.fresh("schedules")
    schedule["timezone"] = "Mars/Olympus_Mons"
    yield loaded("zone-unknown", "schedules", schedule, "unknown-zone")
    for zone in ("W. Europe Standard Time", "Pacific Standard Time"):
        schedule = nursery.fresh("schedules")
        schedule["timezone"] = zone
        yield loaded("zone-windows", "schedules", schedule, "mapped-zone")


def _tenants(nursery: Nursery) -> Iterator[Planted]:
    run = nursery.fresh("runs")
    del run["tenantId"]
    yield quarantined("no-tenant", "runs", run, "no-tenant")
    schedule = nursery.fresh("schedules")
    del schedule["tenantId"]
    del schedule["selection"]["tenantId"]
    yield quarantined("no-tenant", "schedules", schedule, "no-tenant")
