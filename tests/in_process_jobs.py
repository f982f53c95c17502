"""The jobs that the application ``support-center`` kept in the memory of each of its processes."""

from typing import Any

from apscheduler.schedulers.base import BaseScheduler


def sync_domain_users() -> None:
    """Stand in for the application's function."""


def session_cleanup(retention_days: int) -> None:
    """Stand in for the application's function."""


def desktop_session_cleanup(timeout_minutes: int) -> None:
    """Stand in for the application's function."""


def add_jobs(scheduler: BaseScheduler) -> None:
    """Add the three jobs, as the application does at each start."""
    every: dict[str, Any] = {"trigger": "interval", "max_instances": 1, "replace_existing": True}
    scheduler.add_job(sync_domain_users, id="sync_domain_users", hours=1, **every)
    scheduler.add_job(session_cleanup, id="session_cleanup", hours=24, kwargs={"retention_days": 7}, **every)
    scheduler.add_job(
        desktop_session_cleanup, id="desktop_session_cleanup", minutes=1, kwargs={"timeout_minutes": 2}, **every
    )
