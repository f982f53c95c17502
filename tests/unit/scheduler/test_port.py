"""The client has the 18 methods of ``orchestrator``, each with the parameters that are declared here a second time."""

import inspect
from typing import get_type_hints

import pytest

from migrator.scheduler.client import Scheduler

TIMING = ("cron", "dialect", "timezone", "interval", "anchor")
DECLARED: dict[str, tuple[str, tuple[str, ...]]] = {
    "schedule": ("schedule", ("request",)),
    "scheduleOnce": ("schedule_once", ("request", "run_at")),
    "scheduleRecurring": ("schedule", ("request",)),
    "reschedule": ("reschedule", ("schedule_id", *TIMING, "by")),
    "unschedule": ("unschedule", ("schedule_id", "by", "reason")),
    "onEvent": (
        "on_event",
        (
            "event",
            "handler_name",
            "name",
            "schedule_id",
            "handler_type",
            "payload",
            "enabled",
            "priority",
            "max_retries",
            "timeout",
            "max_concurrency",
            "by",
        ),
    ),
    "triggerEvent": ("trigger_event", ("event", "data", "event_id", "by")),
    "getJob": ("get", ("schedule_id",)),
    "listJobs": ("list", ("query",)),
    "pauseJob": ("pause", ("schedule_id", "by", "reason")),
    "resumeJob": ("resume", ("schedule_id", "by", "reason")),
    "cancelJob": ("cancel", ("schedule_id", "by", "reason")),
    "getJobHistory": (
        "history",
        ("schedule_id", "limit", "offset", "states", "since", "until", "include_logs", "descending"),
    ),
    "getExecution": ("get_execution", ("run_id",)),
    "retryExecution": ("retry", ("run_id", "by", "reason")),
    "getMetrics": ("metrics", ("start", "end", "zone")),
    "healthCheck": ("health", ()),
    "getJobStats": ("stats", ("schedule_id", "since", "until")),
}
"""Method of the source's port → method of the client, and its parameters but ``self`` and ``now``, which all have."""

BESIDES = {"trigger_now", "toggle", "status", "retry_schedule", "update"}
"""What the routes of the other systems call besides."""


def parameters(owner: type, method: str) -> dict[str, inspect.Parameter]:
    found = dict(inspect.signature(getattr(owner, method)).parameters)
    del found["self"]
    return found


@pytest.mark.proves("2-V3")
def test_the_port_has_eighteen_methods_and_the_client_all_of_them() -> None:
    assert len(DECLARED) == 18
    assert all(callable(getattr(Scheduler, name)) for name in {method for method, _ in DECLARED.values()} | BESIDES)


@pytest.mark.proves("2-V3")
@pytest.mark.parametrize("name", DECLARED)
def test_a_method_is_as_declared_and_typed(name: str) -> None:
    method, declared = DECLARED[name]
    kept = parameters(Scheduler, method)
    assert tuple(kept) == (*declared, "now")
    assert kept["now"].kind is inspect.Parameter.KEYWORD_ONLY
    assert kept["now"].default is None
    assert get_type_hints(getattr(Scheduler, method)).keys() == {*kept, "return"}


@pytest.mark.parametrize("method", sorted(BESIDES - {"status"}))
def test_the_methods_besides_take_a_time_and_who_acts(method: str) -> None:
    assert {"now", "by"} <= set(parameters(Scheduler, method))
