"""The native codec, which is a distribution of its own and may be absent: one place decides whether it is used.

``MIGRATOR_CODEC=python`` in the environment switches it off, ``MIGRATOR_CODEC=native`` demands it.
"""

import os
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Final, Literal

from migrator import __version__
from migrator.errors import UsageError, install_extra

VARIABLE: Final = "MIGRATOR_CODEC"
PYTHON: Final = "python"
NATIVE: Final = "native"
INTERFACE: Final = 13
"""Of the modules and of the plans that ``native_plan`` makes: the number of ``migrator_speedups.rows.INTERFACE``.

Both are raised when a plan gets another member or operation, or the package another module or other parameters, because
sources of one version differ while it is made.
"""


@cache
def module() -> ModuleType | None:
    """Return the package of the native codec; None where the Python codec does all work.

    Raises ``UsageError`` if the environment demands the native codec and it is absent, or if it is of another version
    or takes other plans.
    """
    wanted = os.environ.get(VARIABLE, "")
    if wanted not in ("", PYTHON, NATIVE):
        raise UsageError(f"{VARIABLE} is neither {PYTHON} nor {NATIVE}")
    if wanted == PYTHON:
        return None
    try:
        speedups = import_module("migrator_speedups")
    except ImportError:
        if wanted == NATIVE:
            raise UsageError(
                f"{VARIABLE} demands the native codec, which is not installed: {install_extra('speedups')}"
            ) from None
        return None
    if speedups.__version__ != __version__:
        raise UsageError(
            f"migrator_speedups is of version {speedups.__version__}, migrator of {__version__}: install the"
            " same version,"
            f" or set {VARIABLE}={PYTHON}"
        )
    interface = getattr(import_module("migrator_speedups.rows"), "INTERFACE", 0)
    if interface != INTERFACE:
        raise UsageError(
            f"migrator_speedups was compiled from other sources of version {__version__} (it takes plans of interface"
            f" {interface}, the tool makes those of {INTERFACE}): compile it anew from the sources of this migrator,"
            f" or set {VARIABLE}={PYTHON}"
        )
    return speedups


def name() -> Literal["native", "python"]:
    """Return which codec runs."""
    return PYTHON if module() is None else NATIVE


def description() -> str:
    """Return which codec runs, the native one with its version."""
    found = module()
    return PYTHON if found is None else f"{NATIVE} {found.__version__}"
