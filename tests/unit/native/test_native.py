"""Which codec runs: the environment decides, and a package of another version is refused."""

import sys
from collections.abc import Iterator
from types import ModuleType

import pytest

from migrator import __version__, native
from migrator.errors import UsageError


@pytest.fixture(autouse=True)
def asked_anew(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv(native.VARIABLE, raising=False)
    native.module.cache_clear()
    yield
    native.module.cache_clear()


def installed(monkeypatch: pytest.MonkeyPatch, version: str | None) -> ModuleType | None:
    """Stand in for the package; None: it is not installed."""
    package = None if version is None else ModuleType("migrator_speedups")
    if package is not None:
        vars(package)["__version__"] = version
    monkeypatch.setitem(sys.modules, "migrator_speedups", package)
    return package


def test_a_package_of_the_same_version_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    package = installed(monkeypatch, __version__)
    assert native.module() is package
    assert native.name() == "native"
    assert native.description() == f"native {__version__}"


def test_without_the_package_the_python_codec_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, None)
    assert native.module() is None
    assert native.name() == native.description() == "python"


def test_the_environment_switches_it_off(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, __version__)
    monkeypatch.setenv(native.VARIABLE, "python")
    assert native.name() == "python"


def test_a_package_that_is_demanded_must_be_there(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, None)
    monkeypatch.setenv(native.VARIABLE, "native")
    with pytest.raises(UsageError, match="which is not installed"):
        native.module()


def test_a_package_of_another_version_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, "0.0.1")
    with pytest.raises(UsageError, match=r"migrator_speedups is of version 0\.0\.1"):
        native.module()


def test_another_word_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(native.VARIABLE, "C")
    with pytest.raises(UsageError, match="neither python nor native"):
        native.module()
