"""2-X13, 3-D1..4, 3-D5..8, 4-S7: every route of the three systems calls something, and answers in a known shape."""

import re

import pytest

from migrator.sources.routes import FACADE, ROUTES, WITHOUT_FACADE, Route
from migrator.sources.rows import columns_of
from tests.other_systems import SYSTEMS

PARAMETER = re.compile(r"\{([a-z_]+)\}")


@pytest.mark.parametrize(("system", "count"), [("orchestrator", 12), ("crawler", 8), ("support-center", 12)])
def test_the_routes_are_as_many_as_the_systems_have(system: str, count: int) -> None:
    assert len([route for route in ROUTES if route.system == system]) == count


def test_no_route_is_listed_twice() -> None:
    assert len({(route.system, route.verb, route.path) for route in ROUTES}) == len(ROUTES)


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.system} {route.verb} {route.path}")
def test_each_route_calls_something_and_answers_in_a_known_shape(route: Route) -> None:
    assert route.call in FACADE | WITHOUT_FACADE
    assert route.path.startswith("/")
    assert PARAMETER.findall(route.path) in ([], ["id"], ["job_id"])
    assert route.capability
    if route.table is not None:
        tables = next(system for system, _ in SYSTEMS if system.name == route.system).by_name()
        assert columns_of(tables[route.table].shape)
    if route.many:
        assert route.verb == "GET"


def test_the_facade_has_the_eighteen_methods_of_the_port_and_five_more() -> None:
    """2-V3: 18 methods."""
    assert len(FACADE - {"trigger_now", "toggle", "status", "retry_schedule", "update"}) == 18
