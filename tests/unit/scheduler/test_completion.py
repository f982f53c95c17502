"""Delays of retries: the series, its cap, and numbers that would overflow."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migrator.records import Run
from migrator.scheduler import completion
from tests.unit.scheduler.lifetime import START, schedule
from tests.unit.scheduler.test_handlers import RUN

SECOND = timedelta(seconds=1)


@pytest.mark.proves("2-X1", "3-C3")
def test_the_delay_doubles_up_to_an_hour() -> None:
    of = schedule(retry_delay_ms=60_000, retry_strategy="exponential", retry_cap_ms=3_600_000)
    series = [completion.retry_delay(of, number) // SECOND for number in range(1, 9)]
    assert series == [60, 120, 240, 480, 960, 1920, 3600, 3600]
    assert [completion.retry_delay(schedule(), number) // SECOND for number in range(1, 9)] == series


def test_a_fixed_delay_stays_and_has_no_cap() -> None:
    of = schedule(retry_delay_ms=7_200_000, retry_strategy="fixed", retry_cap_ms=1_000)
    assert {completion.retry_delay(of, number) for number in (1, 2, 50)} == {timedelta(hours=2)}


@given(
    st.none() | st.integers(-(2**63), 2**63 - 1),
    st.none() | st.integers(-(2**63), 2**63 - 1),
    st.sampled_from([None, "exponential", "fixed"]),
    st.sampled_from([-1, 0, 1, 2, 11, 12, 62, 63, 64, 10**6]),
)
def test_no_number_overflows(base: int | None, cap: int | None, strategy: str | None, number: int) -> None:
    of = schedule(retry_delay_ms=base, retry_cap_ms=cap, retry_strategy=strategy)
    found = completion.retry_delay(of, number)
    assert timedelta(0) <= found
    assert START + found
    if strategy != "fixed":
        assert found <= completion.retry_delay(of, number + 1)
        assert found <= timedelta(milliseconds=max(3_600_000 if cap is None else min(cap, 10**14), 0))


@pytest.mark.proves("4-C5")
@pytest.mark.parametrize(
    ("most", "attempt", "may"),
    [(None, 1, False), (0, 1, False), (1, 1, True), (1, 2, False), (3, 3, True), (1, None, True)],
)
def test_a_run_is_repeated_so_often_and_no_more(most: int | None, attempt: int | None, *, may: bool) -> None:
    run = Run(id=RUN.id, tenant_id="acme", state="running", created_at=START, attempt=attempt)
    assert completion.may_retry(schedule(max_retries=most), run) is may


def test_a_schedule_that_is_gone_or_cancelled_repeats_nothing() -> None:
    assert not completion.may_retry(None, RUN)
    assert not completion.may_retry(schedule(max_retries=3, status="cancelled"), RUN)
    assert not completion.may_retry(schedule(max_retries=3, deleted_at=START), RUN)


def test_a_retry_without_a_slot_has_an_id_of_its_own_and_the_same_each_time() -> None:
    again = completion.retry_of(schedule(), RUN, START)
    assert (again.retry_of, again.attempt, again.scheduled_at) == (RUN.id, 2, None)
    assert again == completion.retry_of(schedule(), RUN, START)
    assert again.id != RUN.id
