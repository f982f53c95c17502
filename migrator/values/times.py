"""Instants: ISO-8601 text, BSON dates and aware datetimes.

One rule for what a column cannot hold: fractions are cut to microseconds, never rounded (PostgreSQL
would round the seventh digit of a .NET time, up to the next second). A time that does not name its offset is
refused, never guessed.
"""

import re
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final

import msgspec

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_NAIVE_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001 - what decoded BSON dates are counted from

# datetime.fromisoformat reads this form alone, and cuts what follows the microseconds.
_utc = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}T(?:[01][0-9]|2[0-3]):[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,9})?\+00:00"
).fullmatch
_iso = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2}T(?:[01][0-9]|2[0-3]):[0-9]{2}:[0-9]{2})"
    r"(?:\.([0-9]{1,9}))?(?:(Z)|([+-][0-9]{2}):?([0-9]{2})?)"
).fullmatch

_rfc3339 = msgspec.json.Encoder().encode  # an order of magnitude faster than isoformat


def parse_iso(text: str) -> datetime:
    """Return the instant, aware and in UTC, cut to microseconds.

    Accepted: ``2025-11-02T08:00:00``, one to nine fraction digits, then ``Z``, ``+00:00`` or another offset
    (``+01:00``, ``+0100``, ``+01``). Raises ``ValueError`` for a text without an offset, an impossible date,
    and one outside years 1-9999 in UTC.
    """
    if _utc(text):
        return datetime.fromisoformat(text)
    match = _iso(text)
    if match is None:
        raise ValueError("not an ISO-8601 date and time with an offset")
    head, fraction, zulu, hours, minutes = match.groups()
    micros = (fraction or "")[:6].ljust(6, "0")
    offset = "+00:00" if zulu else f"{hours}:{minutes or '00'}"
    try:
        return datetime.fromisoformat(f"{head}.{micros}{offset}").astimezone(UTC)
    except OverflowError as error:
        raise ValueError("outside years 1 to 9999 in UTC") from error


def format_iso(instant: datetime) -> str:
    """Return the canonical spelling, ``2025-11-02T08:00:00.5+00:00``: UTC, trailing zeros of the fraction dropped.

    Raises ``ValueError`` for a naive datetime.
    """
    if instant.tzinfo is not UTC:
        if instant.tzinfo is None:
            raise ValueError("a time without an offset")
        instant = instant.astimezone(UTC)
    text = _rfc3339(instant)[1:-2].decode()  # without the quotes and the Z
    return f"{text.rstrip('0') if instant.microsecond else text}+00:00"


def format_javascript(instant: datetime) -> str:
    """Return the text that JavaScript's ``toISOString`` gives: UTC, cut to milliseconds, ``Z``."""
    return f"{instant.astimezone(UTC).replace(tzinfo=None).isoformat(timespec='milliseconds')}Z"


def from_bson(moment: datetime) -> datetime:
    """Return the aware instant of a decoded BSON date (naive, UTC); raises ``ValueError`` for anything else."""
    if type(moment) is not datetime or moment.tzinfo is not None:
        raise ValueError("not a decoded BSON date within years 1 to 9999")
    return _EPOCH + (moment - _NAIVE_EPOCH)  # ten times as fast as replace(tzinfo=...)


def to_bson(instant: datetime) -> datetime:
    """Return the naive UTC datetime that BSON gives back, cut to milliseconds; ``ValueError`` for naive."""
    if instant.tzinfo is None:
        raise ValueError("a time without an offset")
    moment = _NAIVE_EPOCH + (instant - _EPOCH)
    rest = moment.microsecond % 1000
    return moment - timedelta(microseconds=rest) if rest else moment


def instant_of(wall: datetime, zone: tzinfo) -> datetime:
    """Return the first instant at which a clock in the zone shows the time of ``wall`` (given as if in UTC), or later.

    For a time that the clock skips that is the end of the gap. Raises ``OverflowError`` outside years 1-9999.
    """
    instant = wall.replace(tzinfo=zone).astimezone(UTC)
    if wall_clock(instant, zone) == wall:
        return instant
    before = wall.replace(tzinfo=zone, fold=1).astimezone(UTC)
    while instant - before > _MICROSECOND:
        middle = before + (instant - before) // 2
        before, instant = (middle, instant) if wall_clock(middle, zone) < wall else (before, middle)
    return instant


def wall_clock(instant: datetime, zone: tzinfo) -> datetime:
    """Return the local time of a zone at an instant, as if it were a time in UTC."""
    return instant.astimezone(zone).replace(tzinfo=UTC, fold=0)
