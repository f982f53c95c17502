"""Handlers for tests of whole scheduler processes: what they did stands in files of the folder named in the payload."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from migrator.scheduler.handlers import Context, Registry

registry = Registry()


@registry.handler("note")
def note(*, folder: str, context: Context) -> dict[str, int]:
    """Note that a slot was worked on."""
    _write(folder, "done", context)
    return {"attempt": context.attempt}


@registry.handler("hold")
def hold(*, folder: str, context: Context) -> str:
    """Work until the file ``go`` is there, or the run is taken away."""
    _write(folder, "begun", context)
    while not (Path(folder) / "go").exists():
        if context.wait(0.01):
            _write(folder, "told", context)
            return "told to stop"
    _write(folder, "done", context)
    return "went on"


@registry.handler("hold-once")
def hold_once(*, folder: str, context: Context) -> str:
    """Hold at the first attempt; a repetition is done at once."""
    if context.attempt > 1:
        _write(folder, "done", context)
        return "repeated"
    return hold(folder=folder, context=context)


@registry.handler("fail-once")
async def fail_once(*, folder: str, context: Context) -> str:
    """Fail at the first attempt."""
    if context.attempt == 1:
        raise ValueError("not yet")
    _write(folder, "done", context)
    return "repeated"


@registry.handler("tests.scheduled_work:tick")
def tick(
    *,
    folder: str = "",
    job: str = "",
    args: Sequence[object] = (),
    kwargs: Mapping[str, str] | None = None,
    context: Context | None = None,
) -> None:
    """Note a call: by APScheduler, with its keywords, or by a process here, with the payload of the copied job."""
    assert not args
    told = kwargs or {"folder": folder, "job": job}
    with (Path(told["folder"]) / ("old" if context is None else "new")).open("a") as file:
        file.write(f"{told['job']} {'' if context is None else context.scheduled_at}\n")


def _write(folder: str, name: str, context: Context) -> None:
    with (Path(folder) / name).open("a") as file:
        file.write(f"{context.run_id} {context.scheduled_at} {context.attempt}\n")


def lines(folder: Path, name: str) -> list[str]:
    """Return the notes under a name."""
    file = folder / name
    return file.read_text().splitlines() if file.exists() else []
