"""Rules with weights, and what their arguments are drawn from: a number alone, as the operations of the client are."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from migrator.verify.behaviour.lockstep import Choices

F = TypeVar("F", bound=Callable[..., None])


class Draw(NamedTuple):
    """Values of which one is drawn."""

    value: Callable[[Choices], Any]

    def __or__(self, other: "Draw") -> "Draw":
        return Draw(lambda choices: choices.of((self, other)).value(choices))


def sampled_from(values: Sequence[Any]) -> Draw:
    return Draw(lambda choices: choices.of(values))


def integers(first: int, last: int) -> Draw:
    return sampled_from(range(first, last + 1))


def lists(each: Draw, most: int, least: int = 0) -> Draw:
    return Draw(lambda choices: [each.value(choices) for _ in range(integers(least, most).value(choices))])


def some(columns: Mapping[str, Draw]) -> Draw:
    """Draw some of the columns, each with a value."""
    return Draw(lambda choices: {name: each.value(choices) for name, each in columns.items() if choices.chance()})


def builds(kind: Callable[..., Any], **given: Draw) -> Draw:
    return Draw(lambda choices: kind(**{name: each.value(choices) for name, each in given.items()}))


BOOLEANS = sampled_from((True, False))
NONE = sampled_from((None,))


class Rule(NamedTuple):
    """What may be done."""

    weight: int
    given: dict[str, Draw]


RULE, WHEN = "_lockstep_rule", "_lockstep_when"


def rule(weight: int = 1, /, **given: Draw) -> Callable[[F], F]:
    """Make a method a rule, ``weight`` times as likely as one of weight 1."""

    def mark(method: F) -> F:
        setattr(method, RULE, Rule(weight, given))
        return method

    return mark


def precondition(may: Callable[[Any], object]) -> Callable[[F], F]:
    """Let a rule do nothing until something is there."""

    def mark(method: F) -> F:
        setattr(method, WHEN, may)
        return method

    return mark


def rules_of(kind: type[Any]) -> dict[str, Rule]:
    """Return the rules of a class by their names."""
    return {name: getattr(method, RULE) for name in dir(kind) if hasattr(method := getattr(kind, name), RULE)}
