"""A clock that a test moves."""

from datetime import datetime, timedelta

from tests.contract.rows import NOW


class Clock:
    """Called, it tells the time: where it was set, until it is moved."""

    def __init__(self, now: datetime = NOW) -> None:
        self.now = now

    def __call__(self) -> datetime:
        return self.now

    def advance(self, by: timedelta) -> datetime:
        """Move by so much (back, too), and return the time then."""
        self.now += by
        return self.now
