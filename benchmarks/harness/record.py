"""What a benchmark notes of the machine, and the files of its result."""

import json
import os
import platform
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any


def machine(load_before: float, *packages: str, **further: str) -> dict[str, object]:
    """Return the facts of the machine; ``packages``: distributions whose versions are noted too."""
    return {
        "cores": os.cpu_count(),
        "load before": load_before,
        "load after": load(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        **{package: version(package) for package in packages},
        **further,
    }


def load() -> float:
    """Return the load of the machine in the last minute."""
    return round(os.getloadavg()[0], 1)


def write(folder: Path, name: str, result: dict[str, Any], markdown: Callable[[dict[str, Any]], str]) -> None:
    """Write ``name.json`` and ``name.md``, and print the latter."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.json").write_text(json.dumps(result, indent=2) + "\n")
    text = markdown(result)
    (folder / f"{name}.md").write_text(text)
    print(text)
