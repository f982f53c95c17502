"""APScheduler's triggers: what a pickled one says, and the columns of the trigger that fires at the same times.

A cron trigger keeps its fields as the keyword arguments that it was made with; the dialect ``apscheduler`` evaluates
them, and combinations of them. What no column holds makes no trigger and a finding: an interval that is no whole number
of milliseconds, a combination with an interval or a date in it, a calendar interval, an unknown zone.
"""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import msgspec

from migrator import cron
from migrator.cron import CronError, ZoneError
from migrator.sources.pickled_values import Zone, instant_of, length_of, local_of, plain, zone_of
from migrator.sources.pickles import Made, PickledDict
from migrator.sources.profile import Note, Rejected
from migrator.values.times import format_iso

DIALECT: Final = "apscheduler"
PATH: Final = "job_state.trigger"

_PACKAGE: Final = "apscheduler.triggers."
_FIELDS: Final = ("year", "month", "day", "week", "day_of_week", "hour", "minute", "second")
_LEAST: Final[Mapping[str, str]] = MappingProxyType(
    {"month": "1", "day": "1", "hour": "0", "minute": "0", "second": "0"}
)
"""What a field holds that was left out below the least given one; ``*`` where nothing stands here."""
_MOST: Final[Mapping[str, int]] = MappingProxyType(
    {"year": 9999, "month": 12, "day": 31, "week": 53, "day_of_week": 6, "hour": 23, "minute": 59, "second": 59}
)
_WEEKDAYS: Final = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_MONTHS: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_POSITIONS: Final = ("1st", "2nd", "3rd", "4th", "5th", "last")
_MILLISECOND: Final = timedelta(milliseconds=1)
_LARGEST: Final = 2**63 - 1


class Timing(msgspec.Struct, frozen=True):
    """When a job fires. Nobody changes what it holds: jobs share it."""

    spec: dict[str, Any]
    """The trigger under the names that its arguments have, as JSON."""
    columns: dict[str, Any] | None
    """The columns of the trigger; None if no column can say when it fires."""


class _Meaning(NamedTuple):
    timing: Timing
    notes: list[Note]


def timing_of(value: object, notes: list[Note]) -> Timing:
    """Return the times of a pickled trigger; adds a note where it makes no trigger, or one that differs.

    Raises ``Rejected`` for a value that is no trigger of APScheduler 3.
    """
    if not isinstance(value, Made):
        raise Rejected("wrong-type", PATH, "a trigger of APScheduler")
    if type(value.meaning) is not _Meaning:
        found: list[Note] = []
        value.meaning = _Meaning(_timing(value.name, _state(value.state), found), found)
    notes.extend(value.meaning.notes)
    return value.meaning.timing


def _timing(name: str, state: Mapping[str, Any], notes: list[Note]) -> Timing:
    if isinstance(state.get("jitter"), int | float) and state["jitter"]:
        notes.append(Note("jitter-dropped", f"{PATH}.jitter"))
    match name.removeprefix(_PACKAGE):
        case "cron.CronTrigger":
            return _cron(state, notes)
        case "interval.IntervalTrigger":
            return _interval(state, notes)
        case "date.DateTrigger":
            return _date(state)
        case "combining.AndTrigger":
            return _combined("and", state, notes)
        case "combining.OrTrigger":
            return _combined("or", state, notes)
        case "calendarinterval.CalendarIntervalTrigger":
            notes.append(Note("unevaluable-trigger", PATH))
            return Timing({"calendar_interval": _shown(state)}, None)
    raise Rejected("wrong-type", PATH, "a trigger of APScheduler")


def _state(value: object) -> dict[str, Any]:
    """Return the members of a state; APScheduler 3.0 wrote it beside a None."""
    if type(value) is tuple and len(value) == len((None, {})):
        value = value[1]
    if not isinstance(value, PickledDict):
        raise Rejected("wrong-type", PATH, "the state of a trigger")
    return value.named()


def _shown(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return a state as JSON, without its version and what is not set."""
    found: dict[str, Any] = plain(_as_table(state))
    return {name: value for name, value in found.items() if name != "version" and value is not None}


def _as_table(state: Mapping[str, Any]) -> PickledDict:
    table = PickledDict()
    table.pairs.extend(state.items())
    return table


def _cron(state: Mapping[str, Any], notes: list[Note]) -> Timing:
    zone = zone_of(state.get("timezone"), f"{PATH}.timezone")
    keywords = keywords_of(state.get("fields"))
    spec: dict[str, Any] = {"cron": keywords, "timezone": zone.text(), **_window_spec(state)} | _jitter(state)
    line: dict[str, Any] = dict(keywords)
    if zone.name is None and _quiet_key(zone) is None:
        key, line = None, {"or": [{**line, "timezone": zone.text()}]}
    else:
        key = _known_zone(zone, notes)
        if key is None:
            return Timing(spec, None)
    text = msgspec.json.encode(line).decode()
    if not _is_evaluated(text, key, notes):
        return Timing(spec, None)
    columns = {"kind": "cron", "cron_expression": text, "cron_dialect": DIALECT, "timezone": key}
    return Timing(spec, columns | _window(state))


def _known_zone(zone: Zone, notes: list[Note]) -> str | None:
    """Return the name of a zone in the database, or None with a note."""
    try:
        key, mapped = zone.key()
    except ZoneError:
        notes.append(Note("unknown-zone", f"{PATH}.timezone"))
        return None
    if mapped:
        notes.append(Note("mapped-zone", f"{PATH}.timezone"))
    return key


def _is_evaluated(line: str, zone: str | None, notes: list[Note]) -> bool:
    try:
        cron.validate(DIALECT, line, zone)
    except CronError:
        notes.append(Note("unevaluable-cron", PATH))
        return False
    return True


def _interval(state: Mapping[str, Any], notes: list[Note]) -> Timing:
    length = length_of(state.get("interval"), f"{PATH}.interval")
    spec: dict[str, Any] = {"interval": {"seconds": length.total_seconds()}, **_window_spec(state)} | _jitter(state)
    zone = None
    if state.get("timezone") is not None:
        place = zone_of(state["timezone"], f"{PATH}.timezone")
        spec["timezone"] = place.text()
        zone = _quiet_key(place)
    milliseconds, rest = divmod(length, _MILLISECOND)
    if rest or not 0 < milliseconds <= _LARGEST:
        notes.append(Note("unusable-interval", f"{PATH}.interval"))
        return Timing(spec, None)
    columns = {"kind": "interval", "interval_ms": milliseconds, "anchor": "fixed_rate", "timezone": zone}
    return Timing(spec, columns | _window(state))


def _quiet_key(zone: Zone) -> str | None:
    """Return the name of a zone that does not decide when a trigger fires; None if the database has none."""
    try:
        return zone.key()[0]
    except ZoneError:
        return None


def _date(state: Mapping[str, Any]) -> Timing:
    moment = instant_of(state.get("run_date"), f"{PATH}.run_date")
    place = local_of(state["run_date"], PATH)[1]
    zone = zone_of(place, f"{PATH}.run_date")
    spec = {"run_date": format_iso(moment), "timezone": zone.text()}
    return Timing(spec, {"kind": "one_time", "run_at": moment, "timezone": _quiet_key(zone)})


def _combined(word: str, state: Mapping[str, Any], notes: list[Note]) -> Timing:
    """Return a combination of cron triggers, which the dialect evaluates as a whole.

    Other members decide by the last fire of the whole combination, which no rule of a calendar says.
    """
    members = state.get("triggers")
    if type(members) is not list:
        raise Rejected("wrong-type", f"{PATH}.triggers", "a list of triggers")
    spec: dict[str, Any] = {word: [_pair(member, notes) for member in members]} | _jitter(state)
    line = _line(spec)
    if line is None:
        notes.append(Note("unevaluable-trigger", PATH))
        return Timing(spec, None)
    text = msgspec.json.encode(line).decode()
    if not _is_evaluated(text, None, notes):
        return Timing(spec, None)
    return Timing(spec, {"kind": "cron", "cron_expression": text, "cron_dialect": DIALECT})


def _pair(member: object, notes: list[Note]) -> dict[str, Any]:
    """Return one of the triggers of a combination, which is stored as the name of its class and its state."""
    match member:
        case (str() as name, state):
            return _timing(name.replace(":", "."), _state(state), notes).spec
    raise Rejected("wrong-type", f"{PATH}.triggers", "the class of a trigger and its state")


def _line(spec: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return a combination as the dialect reads it, or None if it has other members than cron triggers."""
    for word in ("and", "or"):
        if word in spec:
            members = [_line(member) for member in spec[word]]
            return None if None in members else {word: members}
    if "cron" not in spec:
        return None
    beside = {name: spec[name] for name in ("timezone", "start_date", "end_date") if name in spec}
    return {**spec["cron"], **beside}


def _jitter(state: Mapping[str, Any]) -> dict[str, Any]:
    jitter = state.get("jitter")
    return {} if jitter is None else {"jitter": plain(jitter)}


def _bounds(state: Mapping[str, Any]) -> dict[str, Any]:
    bounds = {}
    for name in ("start_date", "end_date"):
        if state.get(name) is not None:
            bounds[name] = instant_of(state[name], f"{PATH}.{name}")
    return bounds


def _window_spec(state: Mapping[str, Any]) -> dict[str, str]:
    return {name: format_iso(moment) for name, moment in _bounds(state).items()}


def _window(state: Mapping[str, Any]) -> dict[str, Any]:
    bounds = _bounds(state)
    return {"start_at": bounds.get("start_date"), "end_at": bounds.get("end_date")}


def keywords_of(fields: object) -> dict[str, str]:
    """Return the keyword arguments that a cron trigger was made with; all eight fields if there were none.

    Raises ``Rejected`` for what is not the fields of a trigger.
    """
    path = f"{PATH}.fields"
    if type(fields) is not list or len(fields) != len(_FIELDS):
        raise Rejected("wrong-type", path, "the eight fields of a cron trigger")
    texts: dict[str, str] = {}
    given: dict[str, str] = {}
    for name, field in zip(_FIELDS, fields, strict=True):
        if not isinstance(field, Made) or not field.name.startswith(f"{_PACKAGE}cron.fields."):
            raise Rejected("wrong-type", path, "the eight fields of a cron trigger")
        state = _state(field.state)
        expressions = state.get("expressions")
        if state.get("name") != name or type(expressions) is not list or not expressions:
            raise Rejected("wrong-type", path, "the eight fields of a cron trigger")
        texts[name] = ",".join(_expression(one, name) for one in expressions)
        if not state.get("is_default"):
            given[name] = texts[name]
    if not given:
        return texts
    least = max(_FIELDS.index(name) for name in given)
    implied = {name: "*" if at < least else _LEAST.get(name, "*") for at, name in enumerate(_FIELDS)}
    return {name: text for name, text in texts.items() if name in given or text != implied[name]}


def _expression(value: object, field: str) -> str:
    """Return one expression of a field as it is written in a keyword argument."""
    path = f"{PATH}.fields"
    if isinstance(value, Made):
        state = _state(value.state)
        kind = value.name.removeprefix(f"{_PACKAGE}cron.expressions.")
        match kind:
            case "AllExpression":
                return "*" + _step(state)
            case "LastDayOfMonthExpression":
                return "last"
            case "WeekdayPositionExpression":
                return f"{_word(_POSITIONS, state.get('option_num'))} {_word(_WEEKDAYS, state.get('weekday'))}"
            case "RangeExpression" | "MonthRangeExpression" | "WeekdayRangeExpression":
                return _range(kind, state, field)
    raise Rejected("wrong-type", path, "expressions of cron fields")


def _range(kind: str, state: Mapping[str, Any], field: str) -> str:
    first, last = _number(state.get("first")), state.get("last")
    step = _step(state)
    if last is None:
        last, open_ended = _MOST[field], bool(step)
    else:
        last, open_ended = _number(last), False
    if first == last:
        step = ""  # the one value of the range is its first
    match kind:
        case "MonthRangeExpression":
            texts = _word(_MONTHS, first - 1), _word(_MONTHS, last - 1)
        case "WeekdayRangeExpression":
            texts = _word(_WEEKDAYS, first), _word(_WEEKDAYS, last)
        case _:
            texts = str(first), str(last)
    return (texts[0] if first == last or open_ended else "-".join(texts)) + step


def _step(state: Mapping[str, Any]) -> str:
    step = state.get("step")
    return "" if step is None else f"/{_number(step)}"


def _number(value: object) -> int:
    if type(value) is not int or value < 0:
        raise Rejected("wrong-type", f"{PATH}.fields", "whole numbers")
    return value


def _word(words: Sequence[str], at: object) -> str:
    if type(at) is not int or not 0 <= at < len(words):
        raise Rejected("out-of-range", f"{PATH}.fields", "a weekday, a month or a position")
    return words[at]
