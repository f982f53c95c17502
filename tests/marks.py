"""Cases of a test whose names begin with the capabilities that they show: ``1-S9 graph jobs in a status``."""

import re
from collections.abc import Iterable
from typing import Any

import pytest

CAPABILITY = re.compile(r"\d-[A-Z][\w.]*")


def proving(names: Iterable[str]) -> list[Any]:
    """Return a parameter per name, marked with each capability that the name begins with."""
    return [pytest.param(name, marks=[pytest.mark.proves(*ids)] if (ids := _leading(name)) else []) for name in names]


def _leading(name: str) -> list[str]:
    found = []
    for word in name.split():
        if not CAPABILITY.fullmatch(word):
            break
        found.append(word)
    return found
