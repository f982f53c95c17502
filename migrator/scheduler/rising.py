"""Ids that sort in the order in which they were made (UUID version 7, RFC 9562 section 6.2, method 3)."""

import secrets
import threading
import time
from typing import Final
from uuid import UUID

_TICKS: Final = 4096
"""A millisecond is divided by the 12 bits that follow it."""


class RisingIds:
    """Makes ids; each is greater than those made before, also of one tick, and when the clock is put back."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last = 0

    def take(self) -> UUID:
        """Return the next id."""
        with self._lock:
            self._last = max(self._last + 1, time.time_ns() * _TICKS // 1_000_000)
            milliseconds, part = divmod(self._last, _TICKS)
        return UUID(int=milliseconds << 80 | 7 << 76 | part << 64 | 2 << 62 | secrets.randbits(62))
