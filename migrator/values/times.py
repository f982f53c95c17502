"""Instants: ISO-8601 text, BSON dates and aware datetimes.

One rule for what a column cannot hold: fractions are cut to microseconds, never rounded (facts: PostgreSQL
would round the seventh digit of a .NET time, up to the next second). A time that does not name its offset is
refused, never guessed.
"""

import re
from datetime import UTC, datetime
from typing import Final

_CANONICAL_LENGTH: Final = len("2025-11-02T08:00:00+00:00")
_CANONICAL = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T(?:[01][0-9]|2[0-3]):[0-9]{2}:[0-9]{2}\+00:00").fullmatch
_ISO = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2}T(?:[01][0-9]|2[0-3]):[0-9]{2}:[0-9]{2})"
    r"(?:\.([0-9]{1,9}))?(?:(Z)|([+-][0-9]{2}):?([0-9]{2})?)"
).fullmatch


def parse_iso(text: str) -> datetime:
    """Return the instant, aware and in UTC, cut to microseconds.

    Accepted: ``2025-11-02T08:00:00``, one to nine fraction digits, then ``Z``, ``+00:00`` or another offset
    (``+01:00``, ``+0100``, ``+01``). Raises ``ValueError`` for a text without an offset, an impossible date,
    and one outside years 1-9999 in UTC.
    """
    if len(text) == _CANONICAL_LENGTH and _CANONICAL(text):
        return datetime.fromisoformat(text)
    match = _ISO(text)
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
    text = instant.isoformat()
    return text[:-6].rstrip("0") + "+00:00" if instant.microsecond else text


def from_bson(moment: datetime) -> datetime:
    """Return the aware instant of a decoded BSON date (naive, UTC); raises ``ValueError`` for anything else."""
    if type(moment) is not datetime or moment.tzinfo is not None:
        raise ValueError("not a decoded BSON date within years 1 to 9999")
    return moment.replace(tzinfo=UTC)


def to_bson(instant: datetime) -> datetime:
    """Return the naive UTC datetime that BSON gives back, cut to milliseconds; ``ValueError`` for naive."""
    if instant.tzinfo is not UTC:
        if instant.tzinfo is None:
            raise ValueError("a time without an offset")
        instant = instant.astimezone(UTC)
    return instant.replace(microsecond=instant.microsecond // 1000 * 1000, tzinfo=None)
