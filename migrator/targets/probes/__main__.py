"""Started by path, in the library's interpreter: makes the package importable as ``probes``, and nothing else.

The folder above stays out of the path: its folders have the names of libraries, and would be taken for one that is
missing.
"""

import importlib
import importlib.util
import sys
from pathlib import Path

if __name__ == "__main__":
    here = Path(__file__).resolve().parent
    spec = importlib.util.spec_from_file_location(
        "probes", here / "__init__.py", submodule_search_locations=[str(here)]
    )
    assert spec is not None  # noqa: S101 - of a file with the suffix of Python
    assert spec.loader is not None  # noqa: S101 - as above
    sys.modules["probes"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules["probes"])
    sys.exit(importlib.import_module("probes.dialogue").main())
