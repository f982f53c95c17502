"""What may be a handler, how a run finds its own, and what becomes of what it returns."""

import sys
from collections.abc import Callable
from threading import Event
from typing import Any
from uuid import UUID

import pytest

from migrator.errors import UsageError
from migrator.records import Run
from migrator.scheduler.completion import Outcome, storable_text
from migrator.scheduler.executor import InProcessExecutor, failure_outcome
from migrator.scheduler.handlers import Context, ExternalSystem, Registry, load_registry
from migrator.store.queue import Claim, handler_of
from migrator.values import jsonb
from tests.unit.scheduler.lifetime import START, schedule

RUN = Run(id=UUID(int=7), tenant_id="acme", state="running", created_at=START, started_at=START, fence=1, worker_id="w")


class Heard:
    """Reports, as they come in."""

    def __init__(self) -> None:
        self.outcomes: list[Outcome] = []
        self.lines: list[tuple[str, str]] = []
        self.came = Event()

    def ended(self, claim: Claim, outcome: Outcome) -> None:
        assert claim.run is RUN
        self.outcomes.append(outcome)
        self.came.set()

    def said(self, claim: Claim, level: str, message: str) -> None:
        assert claim.run is RUN
        self.lines.append((level, message))


def outcome_of(function: Callable[..., Any], payload: Any = None, **columns: Any) -> Outcome:  # noqa: ANN401 - JSON; columns
    registry, heard = Registry(), Heard()
    registry.register("job", function)
    of = schedule(handler_name="job", payload=None if payload is None else jsonb.encode(payload), **columns)
    InProcessExecutor(registry).submit(Claim(run=RUN, schedule=of), heard)
    assert heard.came.wait(240)
    return heard.outcomes[0]


@pytest.mark.proves("2-X4")
@pytest.mark.parametrize(
    "kind", ["function", "agent", "workflow", "job_creator", "celery_task", "async_function", None]
)
def test_a_handler_of_every_type_is_found_by_its_name(kind: str | None) -> None:
    def job(*, days: int) -> dict[str, int]:
        return {"days": days}

    async def later(*, days: int) -> dict[str, int]:
        return {"days": days}

    ended = outcome_of(later if kind == "async_function" else job, {"days": 7}, handler_type=kind)
    assert ended == Outcome(state="completed", result=b'{"days":7}')


@pytest.mark.proves("2-X4")
def test_a_run_whose_handler_is_unknown_or_not_named_fails_for_good_and_says_why() -> None:
    for of, why in (
        (schedule(handler_name="x"), "unknown handler: x"),
        (schedule(), "names none"),
        (None, "names none"),
    ):
        heard = Heard()
        InProcessExecutor(Registry()).submit(Claim(run=RUN, schedule=of), heard)
        (ended,) = heard.outcomes
        assert (ended.state, ended.final) == ("error", True)
        assert why in (ended.error or "")


def test_a_stellaops_schedule_is_run_by_the_handler_of_its_mode() -> None:
    assert handler_of(schedule(mode="analysis-only")) == "analysis-only"
    assert handler_of(schedule(mode="analysis-only", handler_name="own")) == "own"


@pytest.mark.proves("4-C2")
@pytest.mark.parametrize("parameter", ["self", "cls", "db", "session", "request"])
def test_a_handler_that_cannot_stand_alone_is_refused_when_it_is_registered(parameter: str) -> None:
    made: dict[str, Any] = {}
    exec(f"def job({parameter}, days=7): pass\nasync def later(*, {parameter}): pass", made)
    for function in (made["job"], made["later"]):
        with pytest.raises(UsageError, match=parameter):
            Registry().register("job", function)


@pytest.mark.proves("4-C2")
def test_methods_positional_parameters_and_what_cannot_be_called_are_refused() -> None:
    class Jobs:
        def job(self) -> None: ...

    def positional(first: int, /) -> None: ...

    def several(*args: int) -> None: ...

    for function in (Jobs().job, positional, several, 7):
        with pytest.raises(UsageError):
            Registry().register("job", function)  # type: ignore[arg-type] # one is no function
    registry = Registry()
    registry.register("job", several_keywords)
    registry.register("job", several_keywords)
    with pytest.raises(UsageError, match="two handlers"):
        registry.register("job", outcome_of)
    with pytest.raises(UsageError, match="name"):
        registry.register("", several_keywords)
    with pytest.raises(UsageError, match="run here"):
        registry.send_with("function", ExternalSystem())


def several_keywords(**named: object) -> int:
    return len(named)


@pytest.mark.proves("4-C3")
def test_what_a_handler_raises_is_recorded_with_its_traceback() -> None:
    def job() -> None:
        raise ValueError("no \0 route")

    ended = outcome_of(job)
    assert (ended.state, ended.error) == ("error", "ValueError: no \ufffd route")
    assert "in job" in (ended.error_detail or "")
    assert not ended.final

    def leave() -> None:
        sys.exit(3)

    assert outcome_of(leave).error == "SystemExit: 3"


def test_a_handler_that_does_not_take_its_arguments_is_not_called_and_not_retried() -> None:
    called: list[int] = []

    def job(*, days: int) -> None:
        called.append(days)
        raise TypeError("its own")

    for payload, missing in (({}, "missing a required argument: 'days'"), ({"days": 1, "hours": 2}, "'hours'")):
        ended = outcome_of(job, payload)
        assert (ended.state, ended.final, called) == ("error", True, [])
        assert (ended.error or "").startswith("the handler does not take the arguments of the run: ")
        assert (ended.error or "").endswith(missing)
    own = outcome_of(job, {"days": 1})
    assert (own.error, own.final, called) == ("TypeError: its own", False, [1])


def test_a_result_that_is_no_json_or_too_large_is_an_error() -> None:
    assert "no JSON" in (outcome_of(lambda: {1: object()}).error or "")
    assert "larger" in (outcome_of(lambda: "x" * 5_000_000).error or "")
    assert outcome_of(lambda: None) == Outcome(state="completed")


def test_a_payload_that_is_no_object_is_one_keyword() -> None:
    assert outcome_of(lambda payload: payload, [1, 2]).result == b"[1,2]"
    assert outcome_of(several_keywords).result == b"0"


@pytest.mark.proves("3-C6")
def test_a_handler_learns_that_its_run_is_cancelled() -> None:
    registry, heard, begun = Registry(), Heard(), Event()

    @registry.handler("job")
    def job(*, context: Context) -> bool:
        context.log("begun")
        begun.set()
        return context.wait(240)

    executor = InProcessExecutor(registry)
    executor.submit(Claim(run=RUN, schedule=schedule(handler_name="job")), heard)
    assert begun.wait(240)
    assert heard.outcomes == []
    executor.cancel(RUN.id)
    assert heard.came.wait(240)
    assert heard.outcomes == [Outcome(state="completed", result=b"true")]
    assert heard.lines == [("info", "begun")]


def test_a_log_line_has_a_level_that_is_known() -> None:
    with pytest.raises(UsageError, match="shout"):
        Context(RUN, None, lambda *_: None).log("x", "shout")


def test_words_are_cut_at_their_beginning_and_made_storable() -> None:
    assert storable_text("abc", 3) == "abc"
    assert storable_text("abcd", 3) == "…cd"
    assert storable_text("\ud800", 3) == "?"
    assert failure_outcome(ValueError("x")).error == "ValueError: x"


def test_handlers_are_loaded_from_a_module() -> None:
    for path in ("", "no-colon", "no.such.module:x", "json:nothing", "json:dumps"):
        with pytest.raises(UsageError):
            load_registry(path)
    with pytest.raises(UsageError, match=r"the module json of the handlers .* has no nothing$"):
        load_registry("json:nothing")
    with pytest.raises(UsageError, match="neither a registry nor a mapping"):
        load_registry("json:dumps")
    assert load_registry("tests.scheduled_work:registry").names == (
        "fail-once",
        "hold",
        "hold-once",
        "note",
        "tests.scheduled_work:tick",
    )
