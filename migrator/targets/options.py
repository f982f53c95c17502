"""What a native target asks its user: options declared by the target as data, said in ``[target.options]``.

A mapping names an option where it would state a value: ``{ option = "scheduler_name" }``. What the user says takes its
place before the mapping is read, so that the mapping, and its version, are those of what was said.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from migrator import cron
from migrator.config import near, nearest
from migrator.errors import ConfigurationError
from migrator.targets.model import OptionKind, Target, TargetOption

OPTION: Final = "option"
"""The one key of what stands in a mapping for the value of an option."""

IS: Final = "is"
"""Beside ``option``: the place is true if the value is this one, else false."""

HAS: Final = "has"
"""Beside ``option`` in a case of a choice: the word that the list of a name may have."""

WHAT: Final[Mapping[OptionKind, str]] = {
    "text": "a text",
    "flag": "true or false",
    "zone": "the name of a time zone of the IANA database",
    "lists": "at least one name, each with a list of words",
}
"""What is expected of an option of each kind."""


def option_values(target: Target, given: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Return the value of each option of a target; ``given``: what the settings say, or None for the examples.

    Raises ``ConfigurationError`` for an option that is unknown, of another type, or not said where it has no default.
    """
    if given is None:
        return {
            name: option.example if option.default is None else option.default
            for name, option in target.options.items()
        }
    for name in given:
        if name not in target.options:
            known = nearest(name, target.options) if target.options else ": it has none"
            raise ConfigurationError(f"target.options.{name}: the target {target.name} has no such option{known}")
    return {name: _value(name, option, given) for name, option in target.options.items()}


def _value(name: str, option: TargetOption, given: Mapping[str, Any]) -> Any:  # noqa: ANN401 - of the option's kind
    if name not in given:
        if option.default is None:
            raise ConfigurationError(f"target.options.{name} is not set: {option.meaning}")
        return option.default
    value = given[name]
    if option.kind == "zone" and isinstance(value, str):
        return _zone(name, value)
    if not _is_taken(option, value):
        listed = f" of {', '.join(option.words)}" if option.words else ""
        raise ConfigurationError(f"target.options.{name}: expected {WHAT[option.kind]}{listed}")
    return value


def _zone(name: str, value: str) -> str:
    try:
        return cron.zone(value)[0].key
    except cron.ZoneError as error:
        raise ConfigurationError(f"target.options.{name}: {error}{near(value, cron.zone_names())}") from None


def _is_taken(option: TargetOption, value: object) -> bool:
    """Whether a value is of the kind of an option other than a zone."""
    match option.kind:
        case "flag":
            return isinstance(value, bool)
        case "text":
            return isinstance(value, str) and bool(value) and _are_known([value], option)
        case "lists":
            lists = [*value.values()] if isinstance(value, dict) else []
            return bool(lists) and all(isinstance(words, list) and _are_known(words, option) for words in lists)
        case _:
            return False


def _are_known(words: Sequence[Any], option: TargetOption) -> bool:
    return all(isinstance(word, str) and (not option.words or word in option.words) for word in words)


def substituted(tree: Any, values: Mapping[str, Any], missing: list[str]) -> Any:  # noqa: ANN401 - a tree of TOML
    """Return a tree of TOML with the values of options in the places where they are named, or with what they tell.

    A case of a choice that names an option of lists, and a word (``{ if = "jobClass", option = "job_classes", has =
    "Stateful" }``), becomes one case for each name: the value is whether its list has the word. ``missing`` gets the
    names that are no options.
    """
    if isinstance(tree, list):
        return [case for entry in tree for case in _cases(entry, values, missing)]
    if not isinstance(tree, dict):
        return tree
    if tree.keys() == {OPTION} and isinstance(tree[OPTION], str):
        return _found(tree[OPTION], values, missing, "")
    if tree.keys() == {OPTION, IS} and isinstance(tree[OPTION], str):
        return _found(tree[OPTION], values, missing, "") == tree[IS]
    return {key: substituted(value, values, missing) for key, value in tree.items()}


def _cases(entry: Any, values: Mapping[str, Any], missing: list[str]) -> list[Any]:  # noqa: ANN401 - as above
    if not isinstance(entry, dict) or entry.keys() != {"if", OPTION, HAS} or not isinstance(entry[OPTION], str):
        return [substituted(entry, values, missing)]
    lists = _found(entry[OPTION], values, missing, {})
    if not isinstance(lists, dict):
        missing.append(entry[OPTION])
        return []
    named = {"if": entry["if"], OPTION: entry[OPTION]}
    return [{**named, "equals": name, "value": entry[HAS] in words} for name, words in lists.items()]


def _found(name: str, values: Mapping[str, Any], missing: list[str], otherwise: object) -> Any:  # noqa: ANN401 - as above
    if name not in values:
        missing.append(name)
    return values.get(name, otherwise)
