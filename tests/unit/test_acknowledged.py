"""The judge of acknowledged operations sees each fault, and nothing where there is none."""

from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from uuid import UUID, uuid4

import msgspec
import pytest

from migrator.records import Run
from tests.acknowledged import Answer, Operation, Seen, as_of, faults

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SCHEDULE = uuid4()


def asked(number: int, kind: str, answer: Answer = "done", value: str = "", run: UUID | None = None) -> Operation:
    return Operation(tenant="t", number=number, kind=kind, schedule=SCHEDULE, value=value, answer=answer, run=run)


def made(**columns: object) -> Run:
    run = Run(id=uuid4(), tenant_id="t", schedule_id=SCHEDULE, attempt=1, state="completed", created_at=NOW)
    return msgspec.structs.replace(run, **columns)


FIRST = made()
TOLD = [
    asked(1, "create", value="one"),
    asked(2, "update", value="two"),
    asked(3, "pause", "refused"),
    asked(4, "run", run=FIRST.id),
    asked(5, "update", "lost", "three"),
]


def looked() -> Seen:
    return Seen(Counter({"t 1": 1, "t 2": 1, "t 4": 1}), {SCHEDULE: ("live", "two")}, [FIRST])


def found(seen: Seen) -> list[str]:
    return faults(TOLD, {"t": seen}, ended=True)


def test_what_is_as_it_was_told_is_no_fault() -> None:
    assert found(looked()) == []
    seen = looked()
    seen.entries["t 5"] += 1
    seen.schedules[SCHEDULE] = ("live", "three")
    seen.runs[:] = [msgspec.structs.replace(FIRST, state="error"), made(retry_of=FIRST.id)]
    assert found(seen) == [], "what nobody heard of may have been done, and a lost run is repeated"


PLANTED: dict[str, Callable[[Seen], object]] = {
    "create t 1: 0 times": lambda seen: seen.entries.pop("t 1"),
    "update t 2: 2 times": lambda seen: seen.entries.update(["t 2"]),
    "pause t 3: 1 times": lambda seen: seen.entries.update(["t 3"]),
    "update t 5: 2 times": lambda seen: seen.entries.update(["t 5", "t 5"]),
    "is ('absent', '')": lambda seen: seen.schedules.clear(),
    "is ('live', 'one')": lambda seen: seen.schedules.update({SCHEDULE: ("live", "one")}),
    "is ('paused', 'two')": lambda seen: seen.schedules.update({SCHEDULE: ("paused", "two")}),
    "0 runs, asked for 1 to 1": lambda seen: seen.runs.clear(),
    "2 runs, asked for 1 to 1": lambda seen: seen.runs.append(made()),
    "is not there": lambda seen: seen.runs.__setitem__(0, made()),
    "0 times completed": lambda seen: seen.runs.__setitem__(0, msgspec.structs.replace(FIRST, state="queued")),
    "2 times completed": lambda seen: seen.runs.append(made(retry_of=FIRST.id)),
}


@pytest.mark.parametrize("words", PLANTED)
def test_every_fault_is_seen(words: str) -> None:
    seen = looked()
    PLANTED[words](seen)
    assert any(words in fault for fault in found(seen))


def test_what_was_answered_after_the_first_look_is_open() -> None:
    before = [asked(1, "create", "lost", "one")]
    assert [one.answer for one in as_of(before, TOLD)] == ["lost"] * len(TOLD)
