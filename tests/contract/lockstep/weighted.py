"""A state machine whose rules have weights.

Hypothesis leaves some rules out of each example, and asks all others equally often. That finds short ways to a fault;
here the way to one is long (a schedule, its trigger, a fire, a claim, an end), and is hardly ever walked so.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine
from hypothesis.stateful import rule as hypothesis_rule

F = TypeVar("F", bound=Callable[..., None])


class Rule(NamedTuple):
    """What may be done next."""

    weight: int
    given: st.SearchStrategy[dict[str, Any]]


_RULE, _WHEN = "_lockstep_rule", "_lockstep_when"


def rule(weight: int = 1, /, **given: st.SearchStrategy[Any]) -> Callable[[F], F]:
    """Make a method a rule, ``weight`` times as likely as one of weight 1."""

    def mark(method: F) -> F:
        setattr(method, _RULE, Rule(weight, st.fixed_dictionaries(given)))
        return method

    return mark


def precondition(may: Callable[[Any], object]) -> Callable[[F], F]:
    """Let a rule wait until something is there."""

    def mark(method: F) -> F:
        setattr(method, _WHEN, may)
        return method

    return mark


class Weighted(RuleBasedStateMachine):
    """Takes one of the rules at each step."""

    def __init__(self) -> None:
        super().__init__()
        methods = {name: getattr(type(self), name) for name in dir(type(self))}
        self._choices = {
            name: (getattr(method, _RULE), getattr(method, _WHEN, None))
            for name, method in methods.items()
            if hasattr(method, _RULE)
        }

    @hypothesis_rule(data=st.data())
    def step(self, data: Any) -> None:  # noqa: ANN401 - Hypothesis does not name its type
        may = [
            name
            for name, (chosen, when) in self._choices.items()
            if when is None or when(self)
            for _ in range(chosen.weight)
        ]
        name = data.draw(st.sampled_from(may), label="rule")
        getattr(self, name)(**data.draw(self._choices[name][0].given, label=name))
