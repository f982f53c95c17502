"""``migrator schema``: what it prints, and its exit status."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from migrator.__main__ import main
from migrator.schema import revisions
from tests.consent import consenting
from tests.schema_rows import connect, insert

PRODUCT, TOOL = ([one.id for one in revisions.known_revisions(branch)] for branch in revisions.BRANCHES)
Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Call:
    """Call the command as a shell would, with a DSN in the environment; return status, output and errors."""
    monkeypatch.chdir(tmp_path)

    def run(dsn: str, *words: str) -> tuple[int, str, str]:
        monkeypatch.setenv("MIGRATOR_POSTGRES__DSN", dsn)
        monkeypatch.setattr(sys, "argv", ["migrator", *consenting(["schema", *words])])
        with pytest.raises(SystemExit) as end:
            main()
        said = capsys.readouterr()
        return int(end.value.code or 0), said.out, said.err

    return run


def test_upgrade_says_what_it_applied_and_that_nothing_was_compared(call: Call, postgres_dsn: str) -> None:
    status, out, _ = call(postgres_dsn, "upgrade")
    lines = out.splitlines()
    assert status == 0
    assert lines[0] == "applied 0001 (scheduler): Create what runs and when: handlers, schedules, triggers"
    assert lines[-2:] == [
        f"{len(PRODUCT) + len(TOOL)} revisions applied",
        "nothing compared: run migrator schema check",
    ]
    status, out, _ = call(postgres_dsn, "upgrade")
    assert (status, out.splitlines()) == (0, ["nothing to apply", "nothing compared: run migrator schema check"])


def test_current_says_what_an_upgrade_would_apply(call: Call, scheduler_dsn: str) -> None:
    call(scheduler_dsn, "downgrade", "0004")
    status, out, _ = call(scheduler_dsn, "current")
    missing = ", ".join(PRODUCT[PRODUCT.index("0004") + 1 :])
    assert (status, out.splitlines()[:2]) == (
        0,
        [f"scheduler: 0004, to apply: {missing}", f"migration: {TOOL[-1]} (newest)"],
    )
    assert call(scheduler_dsn, "downgrade")[2].startswith("migrator: rows would be lost (migration.decisions: 1)")
    call(scheduler_dsn, "downgrade", "--discard-rows")
    _, out, _ = call(scheduler_dsn, "current")
    assert out.startswith("scheduler: nothing applied, to apply: 0001, 0002")


def test_downgrade_refuses_to_lose_rows_until_told(call: Call, scheduler_dsn: str) -> None:
    with connect(scheduler_dsn) as connection:
        insert(connection, "graph_jobs")
    status, out, err = call(scheduler_dsn, "downgrade")
    assert (status, out) == (2, "")
    assert err == (
        "migrator: rows would be lost (scheduler.graph_jobs: 1); call again with --discard-rows to lose them\n"
    )
    status, out, _ = call(scheduler_dsn, "downgrade", "0005", "--discard-rows")
    assert status == 0
    undone = len(PRODUCT) - PRODUCT.index("0005") - 1
    assert out.splitlines()[undone:] == [f"{undone} revisions undone", "nothing compared: run migrator schema check"]


def test_check_is_0_when_equal_and_1_when_not(call: Call, scheduler_dsn: str) -> None:
    status, out, _ = call(scheduler_dsn, "check")
    assert (status, out) == (0, "the live catalogue is equal to the declared one\n")
    with connect(scheduler_dsn) as connection:
        connection.execute("ALTER TABLE scheduler.runs DROP CONSTRAINT ck_runs_duration_ms")
    status, out, _ = call(scheduler_dsn, "check")
    assert (status, out.splitlines()) == (
        1,
        [
            "scheduler.runs constraint ck_runs_duration_ms: missing",
            "  expected: CHECK (duration_ms >= 0)",
            "  found:    nothing",
            "1 difference",
        ],
    )


def test_check_of_a_database_without_schema_names_what_to_call(call: Call, postgres_dsn: str) -> None:
    status, out, _ = call(postgres_dsn, "check")
    assert status == 1
    assert out.splitlines()[0] == (f"scheduler: to apply: {', '.join(PRODUCT)}; call migrator schema upgrade")
    assert out.splitlines()[-1] == "not at the newest revision"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("upgrade",), {"applied": []}),
        (("downgrade", PRODUCT[-1]), {"undone": []}),
        (("current",), {"schemas": [("scheduler", PRODUCT[-1]), ("migration", TOOL[-1])]}),
        (
            ("check",),
            {
                "additions": [],
                "differences": [],
                "revoked_by_the_fence": 0,
                "schemas": [("scheduler", PRODUCT[-1]), ("migration", TOOL[-1])],
            },
        ),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_json_is_one_document(words: tuple[str, ...], expected: dict[str, Any], call: Call, scheduler_dsn: str) -> None:
    status, out, _ = call(scheduler_dsn, *words, "--json")
    found = json.loads(out)
    if "schemas" in found:
        found["schemas"] = [(one["branch"], one["revision"]) for one in found["schemas"]]
    assert (status, found) == (0, expected)


def test_trouble_has_its_exit_status(call: Call, scheduler_dsn: str) -> None:
    server = scheduler_dsn.rpartition("/")[0]
    password = scheduler_dsn.split(":")[2].partition("@")[0]
    cases = {
        scheduler_dsn.replace(password, "wrong"): (16, "refuses the user or the password"),
        f"{server}/absent": (16, "create the database first"),
        "postgresql://127.0.0.1:1/none": (16, "cannot be reached"),
        "nonsense": (2, "is not a PostgreSQL DSN"),
    }
    for dsn, (expected, words) in cases.items():
        for command in ("upgrade", "downgrade", "current", "check"):
            status, out, err = call(dsn, command)
            assert (status, out) == (expected, ""), command
            assert words in err
            assert password not in err
    assert call(scheduler_dsn, "downgrade", "0999")[0] == 2
    assert call(scheduler_dsn, "sideways")[0] == 2


def test_role_names_are_the_configuration_s(call: Call, scheduler_dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MIGRATOR_POSTGRES__SERVICE_ROLE", "scheduler_dispatcher")
    monkeypatch.setenv("MIGRATOR_POSTGRES__DISPATCHER_ROLE", "scheduler_service")
    status, out, _ = call(scheduler_dsn, "check")
    assert status == 1
    assert "scheduler.runs policy tenant_read: changed" in out
