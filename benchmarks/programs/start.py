"""Runs one command of the tool in this process, and writes what each step of it took: ``start.py FILE COMMAND``.

Processor seconds of all threads of the process, by step, as JSON to the file. The steps of ``backfill`` end where its
functions return; what the process spends after its last line is not in the file.
"""

import json
import sys
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, Final

GROUPS: Final = {"backfill": "migrator.cli.copy", "parity": "migrator.cli.parity"}
STEPS: Final = (
    ("migrator.pipeline.executors", "profile_of", "profile"),
    ("migrator.pipeline.executors", "_WorkerPool", "fork of the workers"),
    ("migrator.pipeline.backfill", "_start", "connections, checks, plan"),
    ("migrator.pipeline.backfill", "run_chunks", "chunks"),
    ("migrator.pipeline.backfill", "_complete", "closing passes"),
    ("migrator.pipeline.backfill", "_restore_deferred", "closing passes"),
)
"""Module and name of what is called, and the step that ends when it returns."""


def _main() -> None:
    file, command = sys.argv[1:]
    spent = {"interpreter": time.process_time()}

    def end(step: str) -> None:
        spent[step] = spent.get(step, 0.0) + time.process_time() - sum(spent.values())

    def ends(step: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def called(*given: Any, **named: Any) -> Any:  # noqa: ANN401 - those of any function
            returned = call(*given, **named)
            end(step)
            return returned

        return called

    entry = import_module("migrator.__main__")
    import_module(GROUPS[command])
    end("imports")
    for module, name, step in STEPS:
        if module in sys.modules:
            setattr(sys.modules[module], name, ends(step, getattr(sys.modules[module], name)))
    sys.argv = ["migrator", command]
    try:
        entry.main()
    finally:
        end("rest of the command")
        Path(file).write_text(json.dumps(spent))


if __name__ == "__main__":
    _main()
