"""Both sides of a parallel run: the window of stability, and which waivers stand."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from migrator.cutover.parallel import stable_since, standing_waivers
from migrator.schema import decisions
from migrator.schema.decisions import RecordedDecision

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
ONE, OTHER = UUID(int=1), UUID(int=2)


@pytest.mark.proves("4-P3")
def test_an_error_begins_the_window_anew() -> None:
    hours = [NOON + timedelta(hours=number) for number in (-5, 3, 20)]
    assert stable_since(NOON, []) == NOON
    assert stable_since(NOON, hours[:1]) == NOON
    assert stable_since(NOON, hours) == hours[2]


def decision(kind: str, schedule: UUID | None = None, who: str = "ann") -> RecordedDecision:
    detail = {} if schedule is None else {"schedule": str(schedule), "tenant": "a", "name": f"job {schedule.int}"}
    return RecordedDecision(kind=kind, who=who, reason="yearly", at=NOON, tool_version="1", detail=detail)


def test_a_waiver_stands_until_it_is_withdrawn_or_the_parallel_run_ends() -> None:
    waived = [decision(decisions.WAIVED, ONE), decision(decisions.WAIVED, OTHER), decision(decisions.REPAIR)]
    assert [one.words for one in standing_waivers(waived)] == ["job 1 (ann: yearly)", "job 2 (ann: yearly)"]
    again = [*waived, decision(decisions.WAIVED, ONE, "bob"), decision(decisions.PARALLEL_BEGUN)]
    assert [one.who for one in standing_waivers(again)] == ["bob", "ann"]
    left = standing_waivers([*waived, decision(decisions.WAIVER_WITHDRAWN, ONE)])
    assert [one.schedule_id for one in left] == [OTHER]
    for end in (decisions.PARALLEL_ENDED, decisions.CUTOVER):
        assert standing_waivers([*waived, decision(end)]) == ()
