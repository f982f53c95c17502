"""Dialects whose library is not installed."""

import sys

import pytest

from migrator.cron import dialects


def without(dialect: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the library of a dialect be missing for the rest of a test."""
    for name in [name for name in sys.modules if name.partition(".")[0] == dialect]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, dialect, None)
    monkeypatch.delitem(sys.modules, f"migrator.cron.{dialect}", raising=False)
    monkeypatch.setattr(dialects, "parse", dialects.parse.__wrapped__)  # without the lines that were parsed before
