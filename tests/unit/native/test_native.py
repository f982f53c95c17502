"""Which codec runs: the environment decides, and a package of another version is refused."""

import json
import sys
from collections.abc import Iterator
from hashlib import sha256
from types import ModuleType

import msgspec
import pytest

from migrator import __version__, native
from migrator.errors import UsageError
from migrator.sources.mapping import native_plan


@pytest.fixture(autouse=True)
def asked_anew(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv(native.VARIABLE, raising=False)
    native.module.cache_clear()
    yield
    native.module.cache_clear()


def installed(
    monkeypatch: pytest.MonkeyPatch, version: str | None, interface: int | None = native.INTERFACE
) -> ModuleType | None:
    """Stand in for the package; no version: it is not installed, no interface: it has no number."""
    rows = ModuleType("migrator_speedups.rows")
    if interface is not None:
        vars(rows)["INTERFACE"] = interface
    monkeypatch.setitem(sys.modules, "migrator_speedups.rows", rows)
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


@pytest.mark.parametrize("interface", [None, native.INTERFACE + 1])
def test_a_package_that_takes_other_plans_is_refused(monkeypatch: pytest.MonkeyPatch, interface: int | None) -> None:
    installed(monkeypatch, __version__, interface)
    with pytest.raises(
        UsageError, match=f"takes plans of interface {interface or 0}, the tool makes those of {native.INTERFACE}"
    ):
        native.module()
    native.module.cache_clear()
    monkeypatch.setenv(native.VARIABLE, "python")
    assert native.module() is None


def test_what_a_plan_may_say_changes_with_the_number_of_the_interface() -> None:
    """A codec that was compiled before the change would end in an AttributeError, or ignore the new member."""
    structs = sorted(
        (name, kind)
        for name, kind in vars(native_plan).items()
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct) and kind.__module__ == native_plan.__name__
    )
    members = [
        (name, [(field.name, str(field.type)) for field in msgspec.structs.fields(kind)]) for name, kind in structs
    ]
    operations = sorted(pytest.importorskip("migrator_speedups.rows").OPERATIONS)
    shape = sha256(json.dumps([members, operations]).encode()).hexdigest()[:16]
    assert (native.INTERFACE, shape) == (13, "d7589638f3fc9855"), (
        "raise INTERFACE in native.py and in rows.pyx, and note both here"
    )


def test_another_word_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(native.VARIABLE, "C")
    with pytest.raises(UsageError, match="neither python nor native"):
        native.module()
