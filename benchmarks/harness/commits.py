"""The commit at which figures were measured, and how many commits of the measured code have passed since."""

import subprocess
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
RESULTS: Final = "benchmarks/results"
MEASURED: Final[dict[str, tuple[str, ...]]] = {
    "scheduler": ("migrator/scheduler", "migrator/store", "migrator/connections"),
    "tables": ("migrator/pipeline", "migrator/parity", "migrator/sources", "migrator/values", "speedups"),
}
"""Result → the folders whose code it measures."""


def commit() -> str:
    """Return the commit of the checkout, marked if files but results differ from it; "unknown" outside of git."""
    described = _git("describe", "--always")
    changed = _git("status", "--porcelain", "--untracked-files=no", "--", ".", f":!{RESULTS}")
    return f"{described}-dirty" if described and changed else described or "unknown"


def passed(since: str, result: str) -> str:
    """Return the number of later commits that changed the code which a result measures.

    "unknown" in a clone without the commit, and outside of git.
    """
    if not since or _git("cat-file", "-t", f"{since}^{{commit}}") != "commit":
        return "unknown"
    return _git("rev-list", "--count", f"{since}..HEAD", "--", *MEASURED[result]) or "unknown"


def _git(*arguments: str) -> str:
    """Return the output of git; empty where it fails or is not installed."""
    try:
        done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
