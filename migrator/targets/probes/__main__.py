"""Started by path, in the library's interpreter: makes the package importable as ``probes``, and nothing else."""

import importlib
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.append(str(Path(__file__).resolve().parents[1]))  # last, so that it hides no package of the interpreter
    sys.exit(importlib.import_module("probes.dialogue").main())
