"""How a schedule ends that nothing will fire any more."""

from uuid import UUID

import pytest

from migrator.scheduler.completion import end_schedule
from migrator.store.protocols import Store
from tests.contract.rows import NOW, changed, run, schedule, trigger
from tests.contract.working import put, schedule_of


@pytest.mark.parametrize(("first", "second"), [("f", "0"), ("0", "f")])
@pytest.mark.parametrize(("states", "end"), [(("error", "completed"), "completed"), (("completed", "error"), "failed")])
def test_the_repetition_decides_also_when_it_was_made_in_the_millisecond_of_what_it_repeats(
    first: str, second: str, states: tuple[str, str], end: str, at_work: Store, tenant: str
) -> None:
    of = schedule(tenant, status="running")
    once = trigger(of, kind="one_time", run_at=NOW, next_fire_at=None)
    runs = [
        changed(run(tenant, schedule_id=of.id, state=state, created_at=NOW, finished_at=NOW), id=_id(of.id, letter))
        for letter, state in zip((first, second), states, strict=True)
    ]
    put(at_work, of, once, *runs)
    with at_work.session(tenant, now=NOW) as session:
        assert end_schedule(session, of.id) == end
    assert schedule_of(at_work, of).status == end


@pytest.mark.parametrize("state", ["planning", "queued", "running"])
def test_a_schedule_does_not_end_while_a_run_of_it_is_live(state: str, at_work: Store, tenant: str) -> None:
    of = schedule(tenant, status="running")
    once = trigger(of, kind="one_time", run_at=NOW, next_fire_at=None)
    ended, live = run(tenant, schedule_id=of.id, state="completed"), run(tenant, schedule_id=of.id, state=state)
    put(at_work, of, once, ended, live)
    with at_work.session(tenant, now=NOW) as session:
        assert end_schedule(session, of.id) is None
    assert schedule_of(at_work, of).status == "running"


def _id(like: UUID, letter: str) -> UUID:
    """Return an id that sorts as its first digit says."""
    return UUID(hex=letter + like.hex[1:])
