"""The table of expectations by name: what holds, what does not, and on which backend."""

from typing import Any

from migrator.config import Settings
from migrator.verify.behaviour.scenarios import Observations, Scenario, result_of
from migrator.verify.check import CheckContext
from migrator.verify.request import Request


def never(_harness: Any, _observed: Observations) -> None:  # noqa: ANN401 - a harness
    raise AssertionError


def test_every_expectation_is_named_with_its_outcome_on_each_backend() -> None:
    first, second = Observations(), Observations()
    for observed, answer in ((first, 1), (second, 2)):
        observed.expect("one is one", 1, 1)
        observed.expect("one is one", 1, answer)
        observed.expect("a pair of states", 1, 1, pair=True)
    second.record_error(ValueError("broke"))
    first.expect("only here", 1, 1)
    context = CheckContext(Settings(), Request(backend="both", scratch_on_source=True))
    found = result_of(
        context, (Scenario("script", never),), {"script": {"postgres": first, "mongo": second}}, ("runs",)
    )
    (table,) = [one for one in found.panels if one.title == "Expectations by name"]
    assert table.columns == ("script", "expectation", "postgres", "mongo")
    assert table.rows == (
        ("script", "one is one", "holds", "not met"),
        ("script", "only here", "holds", "not tried"),
        ("script", "goes through to its end", "not tried", "not met"),
    )
