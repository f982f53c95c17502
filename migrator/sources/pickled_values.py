"""What the records of a pickle say: times, zones, lengths of time, and their form in JSON.

Everything is computed from the arguments that the pickle holds; nothing of it is called. A value that does not say what
it should raises ``Rejected``.
"""

import math
from base64 import b64encode
from datetime import UTC, datetime, timedelta, timezone
from typing import Any, Final

import msgspec

from migrator import cron
from migrator.cron import ZoneError
from migrator.sources.pickles import Global, Made, PickledDict
from migrator.sources.profile import Rejected
from migrator.values.times import format_iso

MARK: Final = "$python"
"""Key of a JSON object that stands for a value which JSON lacks: the name of its class."""

_DATETIME_BYTES: Final = 10
_HOUR: Final = timedelta(hours=1)
_INT64: Final = 2**63
_DAY: Final = 24 * 60
_EAST, _WEST = 14, -12
"""Hours for which the database has a zone of a fixed offset (``Etc/GMT-14`` to ``Etc/GMT+12``)."""


class Zone(msgspec.Struct, frozen=True):
    """A zone as a pickle names it: by a name, or by the distance from UTC."""

    name: str | None
    offset: timedelta | None = None

    def key(self) -> tuple[str, bool]:
        """Return the name in the IANA database, and whether it is another than the pickle's.

        Raises ``ZoneError`` for a name that is unknown, and for an offset for which the database has no zone.
        """
        if self.name is not None:
            found, mapped = cron.zone(self.name)
            return found.key, mapped
        offset = self.offset or timedelta()
        hours, rest = divmod(offset, _HOUR)
        if not hours and not rest:
            return "UTC", False
        if rest or not _WEST <= hours <= _EAST:
            raise ZoneError("time zone: expected whole hours")
        return f"Etc/GMT{-hours:+d}", True

    def text(self) -> str:
        """Return the name, else the offset as ISO 8601 writes it."""
        return self.name if self.name is not None else offset_text(self.offset or timedelta())


def offset_text(offset: timedelta) -> str:
    """Return a distance from UTC as ``+05:30``."""
    return datetime(2000, 1, 1, tzinfo=timezone(offset)).isoformat()[19:]


def text_of(value: str, path: str) -> str:
    """Return a text; one with half a surrogate pair, which Python holds and no database does, is rejected."""
    try:
        value.encode()
    except UnicodeEncodeError:
        raise Rejected("wrong-type", path, "text that UTF-8 can hold") from None
    return value


def zone_of(value: object, path: str) -> Zone:
    """Return the zone that a record stands for."""
    match value:
        case Made(name="datetime.timezone", arguments=(offset, *_)):
            return _offset(length_of(offset, path), path)
        case Made(name="zoneinfo.ZoneInfo._unpickle" | "zoneinfo.ZoneInfo" | "pytz._p", arguments=(str() as name, *_)):
            return Zone(text_of(name, path))
        case Made(name="pytz._UTC" | "dateutil.tz.tz.tzutc"):
            return Zone("UTC")
        case Made(name="pytz.FixedOffset" | "pytz._FixedOffset", arguments=(int() as minutes,)) if abs(minutes) < _DAY:
            return _offset(timedelta(minutes=minutes), path)
        case Made(name="dateutil.tz.tz.tzoffset", state=PickledDict() as state):
            return _offset(length_of(state.named().get("_offset"), path), path)
    raise Rejected("wrong-type", path, "a time zone of zoneinfo, pytz, dateutil or datetime")


def _offset(offset: timedelta, path: str) -> Zone:
    if abs(offset) >= timedelta(days=1):
        raise Rejected("out-of-range", path, "a distance from UTC of less than a day")
    return Zone(None, offset)


def length_of(value: object, path: str) -> timedelta:
    """Return the length of time that a record stands for."""
    match value:
        case Made(name="datetime.timedelta", arguments=(int() as days, int() as seconds, int() as microseconds)):
            try:
                return timedelta(days, seconds, microseconds)
            except OverflowError:
                raise Rejected("out-of-range", path, "a length of time that Python can hold") from None
    raise Rejected("wrong-type", path, "a timedelta")


def local_of(value: object, path: str) -> tuple[datetime, Made | None]:
    """Return a date and time as the clock of its zone shows it (with ``fold``), and its zone if it has one."""
    if type(value) is Made and value.name == "datetime.datetime" and len(value.arguments) in (1, 2):
        packed, *rest = value.arguments
        place = rest[0] if rest else None
        if isinstance(packed, bytes | str) and (place is None or isinstance(place, Made)):
            return _unpacked(packed, path), place
    raise Rejected("wrong-type", path, "a datetime")


def _unpacked(packed: bytes | str, path: str) -> datetime:
    """Read the ten bytes in which Python stores a date and time; Python 2 wrote them as text."""
    try:
        held = packed.encode("latin-1") if isinstance(packed, str) else packed
        if len(held) != _DATETIME_BYTES:
            raise Rejected("wrong-type", path, "a datetime")
        high, low, month, day, hour, minute, second = held[:7]
        return datetime(  # noqa: DTZ001 - its zone is a value of its own
            high << 8 | low, month & 0x7F, day, hour, minute, second, int.from_bytes(held[7:], "big"), fold=month >> 7
        )
    except ValueError:
        raise Rejected("bad-date", path, "a time in the years 1 to 9999") from None


def instant_of(value: object, path: str) -> datetime:
    """Return the instant (aware, UTC) of a date and time that names its zone."""
    moment, place = local_of(value, path)
    if place is None:
        raise Rejected("bad-date", path, "a time that names its zone")
    if type(place.meaning) is not Zone:
        offset = _stated_offset(place)
        place.meaning = zone_of(place, path) if offset is None else Zone(None, offset)
    zone: Zone = place.meaning
    try:
        if zone.offset is not None:
            return moment.replace(tzinfo=UTC, fold=0) - zone.offset
        return moment.replace(tzinfo=cron.zone(zone.name or "UTC")[0]).astimezone(UTC)
    except ZoneError:
        raise Rejected("bad-date", path, "a time in a zone of the IANA database") from None
    except OverflowError:
        raise Rejected("bad-date", path, "a time in the years 1 to 9999") from None


def _stated_offset(place: Made) -> timedelta | None:
    """Return the distance from UTC that pytz states beside the name of the zone, in seconds."""
    match place:
        case Made(name="pytz._p", arguments=(_, int() as seconds, int(), str())) if abs(seconds) < _DAY * 60:
            return timedelta(seconds=seconds)
    return None


def plain(value: object) -> Any:  # noqa: ANN401, PLR0911 - JSON; one line for each class
    """Return a value of a pickle as JSON: as it is where JSON has it, else an object that names its class.

    A tuple is a list, as Python's own JSON writes it.
    """
    match value:
        case None | bool():
            return value
        case str():
            return value.encode("utf-8", "replace").decode()
        case int():
            fits = -_INT64 <= value < _INT64
            return value if fits else {MARK: "int", "value": str(value)}
        case float():
            return value if math.isfinite(value) else {MARK: "float", "value": str(value)}
        case bytes() | bytearray():
            return {MARK: type(value).__name__, "base64": b64encode(value).decode()}
        case list() | tuple():
            return [plain(one) for one in value]
        case PickledDict():
            return _plain_table(value)
        case Made():
            return _plain_record(value)
        case Global():
            return {MARK: "class", "name": value.name}
    raise TypeError(f"{type(value).__name__} is no value of a pickle")


def _plain_table(table: PickledDict) -> Any:  # noqa: ANN401 - JSON
    if all(isinstance(key, str) and key != MARK for key, _ in table.pairs):
        return {plain(key): plain(member) for key, member in table.pairs}
    return {MARK: "dict", "items": plain(table.pairs)}


_SINGLE: Final = frozenset({"builtins.set", "builtins.frozenset"})


def _plain_record(made: Made) -> Any:  # noqa: ANN401 - JSON
    name = made.name.removeprefix("builtins.")
    if made.name == "datetime.datetime":
        try:
            return {MARK: name, "value": _iso(made)}
        except Rejected:
            pass  # it is shown as it stands
    if made.name in _SINGLE:
        items = made.items or (made.arguments[0] if made.arguments else [])
        return {MARK: name, "items": plain(items)}
    if made.name == "datetime.timedelta":
        try:
            return {MARK: name, "seconds": length_of(made, "").total_seconds()}
        except Rejected:
            pass
    parts = {"arguments": made.arguments, "state": made.state, "items": made.items, "pairs": made.pairs}
    return {MARK: name} | {key: plain(part) for key, part in parts.items() if part not in (None, (), [])}


def _iso(made: Made) -> str:
    moment, place = local_of(made, "")
    return moment.isoformat() if place is None else format_iso(instant_of(made, ""))
