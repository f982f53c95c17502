"""Commands that are killed when they pass a fault point."""

import signal
from pathlib import Path
from typing import Protocol

from tests.copying import kill, start

FAULTS = Path(__file__).parent / "faults"


class CommandScene(Protocol):
    """Where a command is called."""

    folder: Path
    config: Path


def killed_at(point: str, scene: CommandScene, *arguments: str) -> bool:
    """Run a command that is killed when it passes a point; tell whether it was."""
    tally = scene.folder / "tally"
    tally.unlink(missing_ok=True)
    process = start(
        *arguments,
        "--config",
        str(scene.config),
        environment={
            "MIGRATOR_FAULT_POINTS": "listener:passed",
            "PYTHONPATH": str(FAULTS),
            "KILL_AT": point,
            "KILL_COUNT": "1",
            "KILL_TALLY": str(tally),
        },
    )
    try:
        said = "".join(process.communicate(timeout=300))
    finally:
        kill(process)
    assert process.returncode in {-signal.SIGKILL, 0}, said
    return process.returncode < 0
