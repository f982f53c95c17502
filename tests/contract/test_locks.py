"""Locks: one holder at a time, a fence that rises, and nothing that an old holder can do."""

from collections.abc import Callable
from datetime import timedelta
from threading import Barrier, Thread
from typing import Any
from uuid import uuid4

import pytest

from migrator.errors import LostLockError, UsageError
from migrator.records import Lock
from migrator.store.locks import LockHandle, Locks
from migrator.store.protocols import Store
from migrator.values.identity import lock_id
from tests.contract.rows import MILLISECOND, NOW, SECOND, entry, fresh

TTL = timedelta(seconds=30)
HOUR = timedelta(hours=1)
OVER = NOW + TTL


def taken(locks: Locks, tenant: str, resource: str = "r", now: Any = NOW, **given: Any) -> LockHandle:  # noqa: ANN401 - as acquire
    handle = locks.acquire(tenant, resource, **{"ttl": TTL, "now": now} | given)
    assert handle is not None
    return handle


@pytest.mark.proves("0-T2.8.2", "0-T2.8.3")
def test_one_holds_a_lock_and_another_is_turned_away(locks: Locks, tenant: str) -> None:
    assert locks.holder(tenant, "r", NOW) is None
    one = taken(locks, tenant, holder="one")
    assert (one.key, one.fence) == (f"{tenant}/r", 1)
    assert locks.acquire(tenant, "r", ttl=TTL, holder="two", now=NOW) is None
    assert locks.holder(tenant, "r", NOW) == ("one", 1)
    assert one.release(now=NOW)


@pytest.mark.proves("0-T2.8.2")
def test_a_lock_is_not_re_entrant(locks: Locks, tenant: str) -> None:
    one = taken(locks, tenant, holder="me")
    assert locks.acquire(tenant, "r", ttl=TTL, holder="me", now=NOW) is None
    assert one.release(now=NOW)
    assert taken(locks, tenant, holder="me").release(now=NOW)


@pytest.mark.proves("0-T2.8.2", "0-X2")
def test_other_resources_and_other_tenants_are_other_locks(locks: Locks, tenant: str) -> None:
    name = fresh()
    handles = [taken(locks, whose, what) for whose, what in ((tenant, name), (tenant, name.upper()), (fresh(), name))]
    handles += [taken(locks, "*", name), taken(locks, tenant, f"{name}/part"), taken(locks, tenant, f"{name} größe")]
    assert [each.fence for each in handles] == [1] * 6
    assert len({each.key for each in handles}) == 6
    assert all(each.release(now=NOW) for each in handles)


@pytest.mark.proves("0-T2.8.5", "3-B3")
def test_a_release_frees_the_lock_once_and_the_fence_goes_on(locks: Locks, tenant: str) -> None:
    fences = []
    for _ in range(3):
        one = taken(locks, tenant)
        fences.append(one.fence)
        assert one.release(now=NOW)
        assert not one.release(now=NOW)
        assert not one.renew(now=NOW)
        assert locks.holder(tenant, "r", NOW) is None
    assert fences == [1, 2, 3]


@pytest.mark.proves("0-T2.8.4")
@pytest.mark.parametrize("steps", [-1, 0, 1])
def test_a_lock_is_over_from_its_very_instant_on(steps: int, locks: Locks, tenant: str) -> None:
    one, now = taken(locks, tenant, holder="one"), OVER + MILLISECOND * steps
    assert (locks.holder(tenant, "r", now) is None) == (steps >= 0)
    two = locks.acquire(tenant, "r", ttl=TTL, holder="two", now=now)
    assert (two is not None) == (steps >= 0)
    if two is not None:
        assert two.fence == 2
        assert locks.holder(tenant, "r", now) == ("two", 2)
        assert two.release(now=now)
    assert one.release(now=now) == (steps < 0)


@pytest.mark.proves("0-T2.8.4")
def test_a_renewal_extends_from_now_by_the_first_ttl_or_another(locks: Locks, tenant: str) -> None:
    one = taken(locks, tenant)
    assert one.renew(now=NOW + 10 * SECOND)
    assert locks.holder(tenant, "r", OVER + 9 * SECOND) is not None
    assert locks.holder(tenant, "r", OVER + 10 * SECOND) is None
    assert one.renew(HOUR, now=NOW + 11 * SECOND)
    assert locks.holder(tenant, "r", NOW + HOUR) is not None
    assert one.renew(SECOND, now=NOW + 12 * SECOND)
    assert locks.holder(tenant, "r", NOW + 13 * SECOND) is None
    assert one.fence == 1


@pytest.mark.proves("0-T2.8.4", "4-L6")
@pytest.mark.parametrize("steps", [-1, 0])
def test_a_renewal_comes_too_late_from_the_very_instant_on_and_the_lock_stays_lost(
    steps: int, locks: Locks, tenant: str
) -> None:
    one = taken(locks, tenant)
    assert one.renew(now=OVER + MILLISECOND * steps) == (steps < 0)
    assert one.renew(now=NOW) == (steps < 0)
    assert one.release(now=NOW) == (steps < 0)
    assert taken(locks, tenant, now=OVER + HOUR).fence == 2


@pytest.mark.proves("0-T2.8.4", "0-T2.8.5", "3-B3", "4-L6")
def test_an_old_holder_neither_renews_nor_releases_what_another_took(locks: Locks, tenant: str) -> None:
    one = taken(locks, tenant, holder="same")
    two = taken(locks, tenant, now=OVER, holder="same")
    for _ in range(2):
        assert not one.renew(now=OVER)
        assert not one.release(now=OVER)
    assert locks.holder(tenant, "r", OVER) == ("same", two.fence)
    assert two.renew(now=OVER + SECOND)
    assert two.release(now=OVER + SECOND)


def test_what_was_released_late_is_free_all_the_same(locks: Locks, tenant: str) -> None:
    one = taken(locks, tenant)
    assert not one.release(now=OVER)
    assert locks.holder(tenant, "r", OVER) is None
    assert taken(locks, tenant, now=OVER).fence == 2


@pytest.mark.proves("0-T2.8.4")
def test_a_holder_trusts_its_lock_until_it_gives_it_back_or_loses_it(locks: Locks, tenant: str) -> None:
    one = taken(locks, tenant, ttl=HOUR)
    assert one.trusted
    assert one.renew(now=NOW)
    assert one.trusted
    assert one.release(now=NOW)
    assert not one.trusted
    two = taken(locks, tenant, ttl=HOUR)
    assert not two.renew(now=NOW + HOUR)
    assert not two.trusted


REFUSED: dict[str, dict[str, Any]] = {
    "a negative timeout": {"timeout": -SECOND},
    "a ttl of zero": {"ttl": timedelta(0)},
    "a negative ttl": {"ttl": -TTL},
    "no tenant": {"tenant": ""},
    "no resource": {"resource": ""},
    "a slash in the tenant": {"tenant": "a/b"},
    "a time and a timeout": {"now": NOW, "timeout": SECOND},
    "a time and a wait for ever": {"now": NOW, "timeout": None},
    "a time without zone": {"now": NOW.replace(tzinfo=None)},
}


@pytest.mark.proves("0-T2.8.3")
@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_asked_for_is_refused(what: str, locks: Locks, tenant: str) -> None:
    asked: dict[str, Any] = {"tenant": tenant, "resource": "r", "ttl": TTL} | REFUSED[what]
    with pytest.raises(UsageError):
        locks.acquire(**asked)
    assert locks.holder(tenant, "r", NOW) is None


@pytest.mark.parametrize(("tenant_", "resource"), [("", "r"), ("a", ""), ("a/b", "r")])
def test_there_is_no_holder_of_what_is_no_lock(tenant_: str, resource: str, locks: Locks) -> None:
    with pytest.raises(UsageError):
        locks.holder(tenant_, resource, NOW)


def test_a_renewal_by_nothing_is_refused_and_the_lock_kept(locks: Locks, tenant: str) -> None:
    one = taken(locks, tenant)
    for ttl in (timedelta(0), -TTL):
        with pytest.raises(UsageError):
            one.renew(ttl, now=NOW)
    with pytest.raises(UsageError):
        one.renew(now=NOW.replace(tzinfo=None))
    assert one.renew(now=NOW)
    assert one.release(now=NOW)


@pytest.mark.proves("0-T2.8.3")
def test_a_wait_that_is_in_vain_ends_and_leaves_nothing_held(locks: Locks, tenant: str) -> None:
    one = taken(locks, tenant, now=None, ttl=HOUR, holder="one")
    assert locks.acquire(tenant, "r", ttl=HOUR, timeout=timedelta(milliseconds=20), holder="two") is None
    assert locks.holder(tenant, "r") == ("one", 1)
    assert one.release()
    assert locks.holder(tenant, "r") is None
    assert taken(locks, tenant, now=None).fence == 2


@pytest.mark.proves("0-T2.8.3")
@pytest.mark.parametrize("timeout", [timedelta(minutes=5), None])
def test_who_waits_has_the_lock_when_it_is_given_back(timeout: timedelta | None, locks: Locks, tenant: str) -> None:
    one, started, had = taken(locks, tenant, now=None, ttl=HOUR), Barrier(2), list[LockHandle | None]()

    def wait() -> None:
        started.wait()
        had.append(locks.acquire(tenant, "r", ttl=HOUR, timeout=timeout, holder="two"))

    thread = Thread(target=wait)
    thread.start()
    started.wait()
    assert one.release()
    thread.join()
    (two,) = had
    assert two is not None
    assert (two.fence, locks.holder(tenant, "r")) == (2, ("two", 2))
    assert two.release()


@pytest.mark.proves("0-T2.8.3", "0-T2.8.4")
def test_who_waits_has_the_lock_when_it_expires(locks: Locks, tenant: str) -> None:
    one = taken(locks, tenant, now=None, ttl=timedelta(milliseconds=30))
    two = locks.acquire(tenant, "r", ttl=HOUR, timeout=timedelta(minutes=5))
    assert two is not None
    assert two.fence == 2
    assert not one.renew()
    assert not one.release()
    assert two.renew()
    assert two.release()


@pytest.mark.proves("0-T2.8.6", "4-L3", "0-R1")
def test_of_contenders_one_is_inside_at_a_time(locks: Locks, tenant: str) -> None:
    contenders, rounds = 4, 5
    barrier, inside, most, fences = Barrier(contenders), [0], [0], list[int]()

    def contend() -> None:
        barrier.wait()
        for _ in range(rounds):
            handle = locks.acquire(tenant, "r", ttl=HOUR, timeout=None)
            assert handle is not None
            inside[0] += 1
            most[0] = max(most[0], inside[0])
            fences.append(handle.fence)
            inside[0] -= 1
            assert handle.release()

    threads = [Thread(target=contend) for _ in range(contenders)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1]
    assert fences == list(range(1, contenders * rounds + 1))


@pytest.mark.proves("4-L3", "0-T2.8.6")
def test_of_tries_at_the_same_time_one_succeeds(locks: Locks, tenant: str) -> None:
    barrier, had = Barrier(6), list[LockHandle]()

    def attempt() -> None:
        barrier.wait()
        handle = locks.acquire(tenant, "r", ttl=HOUR)
        if handle is not None:
            had.append(handle)

    threads = [Thread(target=attempt) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (one,) = had
    assert one.fence == 1
    assert one.release()


@pytest.mark.proves("4-L6")
def test_a_guarded_session_commits_only_under_the_fence_of_a_live_lock(
    at_work: Store, locks: Locks, tenant: str
) -> None:
    def write(fence: int, now: Any = NOW, resource: str = "r") -> bool:  # noqa: ANN401 - a time
        try:
            with at_work.session(tenant, now=now) as session:
                session.audit.append(entry(tenant))
                locks.guard(session, tenant, resource, fence)
        except LostLockError:
            return False
        return True

    one = taken(locks, tenant)
    assert write(one.fence)
    assert not write(one.fence - 1)
    assert not write(one.fence + 1)
    assert not write(one.fence, resource="other")
    assert write(one.fence, OVER - MILLISECOND)
    assert not write(one.fence, OVER)
    two = taken(locks, tenant, now=OVER)
    assert not write(one.fence, OVER)
    assert write(two.fence, OVER)
    assert two.release(now=OVER)
    assert not write(two.fence, OVER)
    with at_work.session(tenant, now=NOW) as session:
        assert len(session.audit.list(9)) == 3


@pytest.mark.proves("4-L6")
def test_a_lock_of_all_tenants_guards_a_tenant_s_session(at_work: Store, locks: Locks, tenant: str) -> None:
    name = fresh()
    one = taken(locks, "*", name)
    with at_work.session(tenant, now=NOW) as session:
        locks.guard(session, "*", name, one.fence)
    with at_work.session(tenant, now=NOW) as session, pytest.raises(LostLockError):
        locks.guard(session, "*", name, one.fence + 1)
    assert one.release(now=NOW)


@pytest.mark.proves("0-T2.8.2")
def test_the_row_tells_whose_lock_it_is(at_work: Store, locks: Locks, tenant: str, plant: Callable[..., None]) -> None:
    del at_work
    key = f"{tenant}/migrated"
    row: dict[str, Any] = {"id": uuid4(), "tenant_id": tenant, "lock_id": lock_id(key), "key": key}
    plant(Lock(**row, holder="old:7", fence=5, acquired_at=NOW - SECOND, expires_at=OVER))
    assert locks.holder(tenant, "migrated", NOW) == ("old:7", 5)
    assert locks.acquire(tenant, "migrated", ttl=TTL, now=OVER - MILLISECOND) is None
    one = taken(locks, tenant, "migrated", OVER)
    assert one.fence == 6
    assert one.release(now=OVER)
    forever = f"{tenant}/forever"
    row |= {"id": uuid4(), "lock_id": lock_id(forever), "key": forever}
    plant(Lock(**row, holder="old:8"))
    assert locks.holder(tenant, "forever", NOW) == ("old:8", 0)
    assert locks.acquire(tenant, "forever", ttl=TTL, now=NOW + timedelta(days=9000)) is None
