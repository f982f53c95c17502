"""Measures the copy beside its limits and its peers; ``python benchmarks/backfill.py --help``."""

import os
import sys
from pathlib import Path


def _main() -> int:
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # each process would compile the whole package anew
    from benchmarks.harness.main import main  # noqa: PLC0415 - needs the path above

    return main()


if __name__ == "__main__":
    raise SystemExit(_main())
