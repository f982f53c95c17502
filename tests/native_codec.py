"""The native codec for tests of what it does: built where a C compiler is, and absent elsewhere."""

from types import ModuleType

import pytest

from migrator import native


def needed() -> ModuleType:
    """Return the package; without it the test says that it was not run."""
    package = native.module()
    if package is None:
        pytest.skip("not run: the native codec is not built here, or switched off")
    return package
