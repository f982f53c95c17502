"""The example of docs/scheduler.md for runs that another system executes."""

import re
from pathlib import Path
from typing import Any

import pytest

from migrator.scheduler.client import Scheduler
from migrator.scheduler.executor import InProcessExecutor
from migrator.testing.memory.store import MemoryStore
from tests.contract.rows import NOW, run, schedule
from tests.contract.scheduling.process import Process
from tests.contract.working import put, run_of

PAGE = Path(__file__).resolve().parents[3] / "docs" / "scheduler.md"
TENANT = "acme"


class At(Scheduler):
    """A client whose clock is the tests'."""

    def complete(self, *arguments: Any, **named: Any) -> bool:  # noqa: ANN401 - passed on
        return super().complete(*arguments, now=NOW, **named)

    def heartbeat(self, *arguments: Any, **named: Any) -> bool:  # noqa: ANN401 - passed on
        return super().heartbeat(*arguments, now=NOW, **named)


def test_the_example_hands_over_runs_that_its_consumer_ends() -> None:
    [text] = [one for one in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL) if "ExternalSystem" in one]
    page: dict[str, Any] = {}
    exec(text, page)
    messages: list[dict[str, Any]] = []
    withdrawn: list[str] = []

    def publish(message: dict[str, Any]) -> str:
        messages.append(message)
        return str(len(messages))

    page["registry"].send_with("workflow", page["Queue"](publish, withdrawn.append))
    store = MemoryStore()
    process = Process(store, TENANT, InProcessExecutor(page["registry"]))
    of = schedule(TENANT, handler_type="workflow", handler_name="flow", payload=b'{"days":7}', max_retries=0)
    put(store, of, *(run(TENANT, schedule_id=of.id, available_at=NOW) for _ in range(3)))
    process.turn()
    assert [message["days"] for message in messages] == [7, 7, 7]
    client = At(store, TENANT)
    page["consume"](client, messages[0], lambda: {"n": 1})
    with pytest.raises(ZeroDivisionError):
        page["consume"](client, messages[1], lambda: 1 // 0)
    page["consume"](client, {**messages[2], "fence": 0}, pytest.fail)
    assert sorted(process.states()) == ["completed", "error", "running"]
    [left] = [one for one in process.all_runs() if one.state == "running"]
    with store.session(TENANT, now=NOW) as session:
        assert session.runs.cancel(left.id, "no longer wanted") is not None
    process.turn()
    assert withdrawn == [left.external_task_id]
    assert run_of(store, TENANT, left.id).state == "cancelled"
