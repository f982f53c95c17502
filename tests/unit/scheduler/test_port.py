"""The client has the 18 methods of ``orchestrator``, each with the parameters that are declared here a second time."""

import inspect
from typing import Any, get_type_hints

import pytest

from migrator.scheduler.client import PORT_METHODS, Scheduler, SchedulerPort
from tests.contract.memory.store import MemoryStore

DECLARED: dict[str, tuple[str, ...]] = {
    "schedule": ("request",),
    "schedule_once": ("request",),
    "schedule_recurring": ("request",),
    "reschedule": ("schedule_id", "timing", "by"),
    "unschedule": ("schedule_id", "by"),
    "on_event": ("event", "handler_name", "request"),
    "trigger_event": ("event", "data", "event_id", "by"),
    "get": ("schedule_id",),
    "list": ("query",),
    "pause": ("schedule_id", "by"),
    "resume": ("schedule_id", "by"),
    "cancel": ("schedule_id", "by", "reason"),
    "history": ("schedule_id", "query"),
    "get_execution": ("run_id",),
    "retry": ("run_id", "by"),
    "metrics": ("start", "end", "zone"),
    "health": (),
    "stats": ("schedule_id", "since", "until"),
}
"""Method to its parameters, but for ``self`` and ``now``, which all have."""

BESIDES = {"trigger_now", "toggle", "status", "retry_schedule", "update"}
"""What the routes of the other systems call besides."""


def parameters(owner: type, method: str) -> dict[str, inspect.Parameter]:
    found = dict(inspect.signature(getattr(owner, method)).parameters)
    del found["self"]
    return found


@pytest.mark.proves("2-V3")
def test_the_port_has_eighteen_methods_and_the_facade_all_of_them() -> None:
    assert len(DECLARED) == 18
    assert set(PORT_METHODS.values()) == set(DECLARED)
    assert len(PORT_METHODS) == 18
    assert all(callable(getattr(Scheduler, name)) for name in set(DECLARED) | BESIDES)


@pytest.mark.proves("2-V3")
@pytest.mark.parametrize("method", DECLARED)
def test_a_method_is_as_declared_in_the_protocol_and_in_the_facade(method: str) -> None:
    promised, kept = parameters(SchedulerPort, method), parameters(Scheduler, method)
    assert tuple(promised) == (*DECLARED[method], "now")
    assert tuple(kept) == tuple(promised)
    for name, parameter in promised.items():
        assert kept[name].kind == parameter.kind
        assert (kept[name].default is inspect.Parameter.empty) == (parameter.default is inspect.Parameter.empty)
    assert kept["now"].kind is inspect.Parameter.KEYWORD_ONLY
    assert kept["now"].default is None
    assert get_type_hints(getattr(SchedulerPort, method)) == get_type_hints(getattr(Scheduler, method))


@pytest.mark.proves("2-V3")
def test_the_facade_is_one_at_run_time_too() -> None:
    facade: SchedulerPort = Scheduler(MemoryStore(), "t")  # mypy looks at this line as well
    assert isinstance(facade, SchedulerPort)

    class Less:
        """A facade without one of them."""

    without: Any = Less()
    for name in list(DECLARED)[1:]:
        setattr(without, name, lambda: None)
    assert not isinstance(without, SchedulerPort)


@pytest.mark.parametrize("method", sorted(BESIDES - {"status"}))
def test_the_methods_besides_take_a_time_and_who_acts(method: str) -> None:
    assert {"now", "by"} <= set(parameters(Scheduler, method))
