r"""Plain JSON text for jsonb columns, and what PostgreSQL makes of it.

``encode`` writes sorted keys and no white space. jsonb keeps numbers as decimals: ``1.0`` and ``1`` stay
apart in the text, but ``-0.0`` comes back as ``0.0``, and a double written with an exponent comes back with
all its digits, so as an integer when it has no fraction (``1e22``). ``decode`` gives what comes back, whether
it reads what was written or what PostgreSQL returned.

Texts are compared with ``same``, or by bytes after ``canonicalise`` on both sides. ``encode`` already writes
the canonical text of every value without a negative zero and without a double from 1e16 on, which jsonb turns
into an integer.
"""

import re
from decimal import Decimal

import msgspec

from migrator.values.document import Value
from migrator.values.plain import plain, plain_tree

_write = msgspec.json.Encoder(order="sorted", enc_hook=plain).encode

# msgspec writes dates itself, in a spelling that is not ours, so its output is searched for one. A text of
# the same shape merely takes the slower way to the same result; the canonical spelling (+00:00) does not
# match.
_maybe_date = re.compile(rb'T\d\d:\d\d:\d\d(?:\.\d{6})?(?:Z|[+-](?!00:00)\d\d:\d\d)?"').search
_NUL = b"\\u0000"
_BACKSLASH = ord("\\")
_T = ord("T")
_DOUBLE_DIGITS = 15


def encode(value: Value) -> bytes:
    """Return the JSON text of a BSON value, as an application would write it.

    Lossy, deterministic and accepted by PostgreSQL: NaN and infinities become null, NUL becomes U+FFFD, for
    the other types see ``plain.plain``.
    """
    text = _write(value)
    # Looking for one byte first is ten times as fast as for several.
    if (_BACKSLASH in text and _NUL in text) or (_T in text and _maybe_date(text)):
        return _write(plain_tree(value))
    return text


def decode(text: bytes | str) -> Value:
    """Return the value as it stands in a jsonb column after the text was stored; raises ``msgspec.DecodeError``."""
    return _read(text)


def canonicalise(text: bytes | str) -> bytes:
    """Return the one text for all spellings of what is the same value in jsonb (1 and 1.0 differ)."""
    return _write(_read_exactly(text))


def same(left: bytes | str, right: bytes | str) -> bool:
    """Tell whether two JSON texts are the same value in jsonb, 1 and 1.0 told apart."""
    return left == right or canonicalise(left) == canonicalise(right)


def _number(text: str) -> float | int:
    """Read a number with a fraction or an exponent as jsonb would return it."""
    mantissa, _, exponent = text.lower().partition("e")
    if not exponent:
        return float(text) + 0.0  # jsonb has no negative zero
    fraction = mantissa.partition(".")[2]
    return float(text) + 0.0 if len(fraction) > int(exponent) else int(Decimal(text))


def _exact_number(text: str) -> Value:
    number = _number(text)
    if len(text) > _DOUBLE_DIGITS and Decimal(text) != Decimal(repr(number)):
        # Never from BSON: someone else wrote it. Kept, so that it cannot pass for the double next to it.
        return msgspec.Raw(text.encode())
    return number


_read = msgspec.json.Decoder(float_hook=_number).decode
_read_exactly = msgspec.json.Decoder(float_hook=_exact_number).decode
