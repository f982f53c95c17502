"""When a leader may act: only while it may be sure that it leads."""

from datetime import timedelta

from migrator.scheduler.leadership import Leadership
from migrator.testing.memory.store import MemoryStore

TTL = timedelta(seconds=30)


class Handle:
    """A lock that is held as long as the test says."""

    key, fence, trusted = "*/scheduler-leader", 7, True

    def renew(self, ttl: timedelta | None = None, *, now: object = None) -> bool:  # noqa: ARG002 - the protocol's
        return self.trusted

    def release(self, *, now: object = None) -> bool:  # noqa: ARG002 - the protocol's
        return self.trusted


def test_a_leader_whose_lock_cannot_be_trusted_any_more_has_no_term_before_it_learns_that() -> None:
    store, handle = MemoryStore(), Handle()
    leadership = Leadership(store, ttl=TTL, holder="me")
    leadership._handle = handle
    assert leadership.term == 7
    handle.trusted = False  # the local window is over, and nobody has stood for election since
    assert leadership.term is None
    assert leadership.acquire() is None
    assert leadership._handle is None
