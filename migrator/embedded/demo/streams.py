"""The demo's own randomness: the same seed gives the same bytes, on every machine and in every version of Python.

Only ``Random.random`` is used, because it is the one method whose sequence Python promises to keep. Every collection
draws from a stream of its own, so that a change to one collection leaves the others as they were. Ids are hashes of
what they name, so that a child can name its parent without having seen it.
"""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from random import Random
from typing import TypeVar

T = TypeVar("T")

EPOCH = datetime(2025, 5, 1, tzinfo=UTC)
"""Where the demo's time begins; instants are milliseconds after it."""
DAYS = 184
"""The time that the demo's data spans."""
SPAN = DAYS * 86_400_000

_DATES = [(EPOCH + timedelta(days=day)).strftime("%Y-%m-%dT") for day in range(DAYS + 400)]
_CLOCK = [f"{hour:02}:{minute:02}:{second:02}" for hour in range(24) for minute in range(60) for second in range(60)]
_FRACTIONS = ["+00:00", *(f".{thousandth:03}".rstrip("0") + "+00:00" for thousandth in range(1, 1000))]


class Stream:
    """A named sequence of choices."""

    def __init__(self, seed: int, name: str) -> None:
        self.random = Random(f"{seed}/{name}").random  # noqa: S311 - demo data, not secrets

    def below(self, limit: int) -> int:
        """Return an int in ``range(limit)``."""
        return int(self.random() * limit)

    def between(self, low: int, high: int) -> int:
        """Return an int from ``low`` to ``high``, both included."""
        return low + int(self.random() * (high - low + 1))

    def pick(self, choices: Sequence[T]) -> T:
        """Return one of the choices, each as likely as the others."""
        return choices[int(self.random() * len(choices))]

    def chance(self, share: float) -> bool:
        """Return true in about ``share`` of the calls."""
        return self.random() < share

    def digits(self, length: int) -> str:
        """Return ``length`` hexadecimal digits, at most 12."""
        return f"{int(self.random() * (1 << 4 * length)):0{length}x}"


def hexadecimal(seed: int, kind: str, index: int) -> str:
    """Return the 32 hexadecimal digits of the id of the ``index``-th thing of its kind."""
    return blake2b(f"{seed}/{kind}/{index}".encode(), digest_size=16).hexdigest()


def digest(seed: int, kind: str, index: int) -> str:
    """Return what stands for the SHA-256 digest of an image or an SBOM."""
    return "sha256:" + blake2b(f"{seed}/{kind}/{index}".encode(), digest_size=32).hexdigest()


def stamp(instant: int) -> str:
    """Return an instant as the scheduler writes it: ISO 8601, ``+00:00``, no trailing zeros in the fraction."""
    return _DATES[instant // 86_400_000] + _CLOCK[instant // 1000 % 86_400] + _FRACTIONS[instant % 1000]


def moment(instant: int) -> datetime:
    """Return an instant as a BSON date's value: naive, UTC."""
    return (EPOCH + timedelta(milliseconds=instant)).replace(tzinfo=None)
