"""Calling the command line in this process, as ``python -m migrator`` would be."""

import io
import json
import os
import re
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import structlog

from migrator import __main__
from tests.bad_input.case import SECRET, Case
from tests.bad_input.places import Places

GOOD = {
    "source.default_tenant": '"tenant-default"',
    "mongo.uri": '"{mongo}"',
    "mongo.database": '"{database}"',
    "mongo.timeout": '"700ms"',
    "postgres.dsn": '"{dsn}"',
    "copy.workers": "1",
    "copy.patience": '"1s"',
}


class Answer:
    """What a call gave."""

    def __init__(self, status: int, out: bytes, err: bytes) -> None:
        self.status = status
        self.out, self.err = out.decode(), err.decode()

    @property
    def text(self) -> str:
        return self.out + self.err


def filled(text: str, places: Places, folder: Path) -> str:
    """Replace ``{name}`` by what the place is called."""
    for name in ("mongo", "database", "dsn", "pg", "pg_port", "pg_name", "mongo_port"):
        if f"{{{name}}}" in text:
            text = text.replace(f"{{{name}}}", getattr(places, name))
    return text.replace("{folder}", str(folder)).replace("{secret}", SECRET)


def configuration(case: Case, fill: Any) -> str:  # noqa: ANN401 - a function of one text
    """Return the configuration file of a case."""
    if isinstance(case.config, str):
        return str(fill(case.config))
    settings = {**GOOD, **(case.config or {})}
    sections: dict[str, list[str]] = {}
    for key, value in settings.items():
        section, _, name = key.partition(".")
        if value:
            sections.setdefault(section, []).append(f"{name} = {fill(value)}")
    return "".join(f"[{name}]\n" + "\n".join(lines) + "\n" for name, lines in sections.items())


def call(arguments: list[str], environment: Mapping[str, str]) -> Answer:
    """Call ``main``; everything that it changes in the process is put back."""
    out, err = io.BytesIO(), io.BytesIO()
    structlog.reset_defaults()
    with pytest.MonkeyPatch.context() as patch:
        for name in [one for one in os.environ if one.startswith("MIGRATOR_")]:
            patch.delenv(name)
        for name, value in environment.items():
            patch.setenv(name, value)
        patch.setattr(sys, "argv", ["migrator", *arguments])
        patch.setattr(sys, "stdout", io.TextIOWrapper(out, encoding="utf-8", write_through=True))
        patch.setattr(sys, "stderr", io.TextIOWrapper(err, encoding="utf-8", write_through=True))
        patch.setattr(threading, "excepthook", threading.excepthook)
        patch.setattr(sys, "unraisablehook", sys.unraisablehook)
        try:
            __main__.main()
        except SystemExit as end:
            status = end.code
        assert isinstance(status, int)
        return Answer(status, out.getvalue(), err.getvalue())


def judge(answer: Answer, case: Case, fill: Any) -> None:  # noqa: ANN401 - as above
    """Assert what holds for every bad input."""
    text = answer.text
    assert "Traceback" not in text, text
    assert "unforeseen" not in text, text
    assert answer.status == case.status, text
    for piece in (SECRET, SECRET.partition("-")[0]):
        assert piece not in text, text
    for words in case.words:
        assert fill(words) in text, text
    assert [one for one in text if not (one.isprintable() or one == "\n")] == []
    if case.status in (2, 16) and "doctor" not in case.arguments:
        lines = answer.err.splitlines()
        assert lines, "silent"
        assert any(one.startswith(("migrator: ", "Error: ")) for one in lines), text
        for one in lines:
            if one.startswith("migrator: "):
                assert re.fullmatch(r"migrator: [a-z-].*[^.]", one), "lower case, no full stop"
    if "--json" in case.arguments:
        json.loads(answer.out)
