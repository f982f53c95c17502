"""Where a library is missing, `verify` leaves its checks unverified (exit status 4), and names what installs it.

The tables are not made, because the library makes them; that they are there is another test's.
"""

import venv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pymongo.database import Database

from migrator.config import Settings, TargetSettings
from migrator.exit_status import UNVERIFIED
from migrator.report.wording import terminal_lines
from migrator.schema import native_target, revisions
from migrator.targets import SHIPPED, load_target
from migrator.targets.library import LIBRARIES, Interpreter
from migrator.targets.library_rules import RULES
from migrator.verify.request import Request
from migrator.verify.runner import verify
from tests.copying import settings_for
from tests.real_libraries import require_java

SOURCES = {
    "celery-results-5-6": "celery-results",
    "sqlalchemy-celery-beat": "celerybeat",
    "django-celery-beat": "celerybeat",
    "pgmq": "mongodb-queue",
    "procrastinate": "mongodb-queue",
}
"""Target → a source that is moved there, where it has another name."""
of_program = {
    program: [name for name, library in LIBRARIES.items() if library.program == program]
    for program in ("python", "node", "java")
}
Moved = Callable[..., Settings]


@pytest.fixture
def moved(mongo_database: Database[Any], postgres_dsn: str, monkeypatch: pytest.MonkeyPatch) -> Moved:
    """Return a function that makes the settings of a move to a target, of which nothing but the library is missing."""
    revisions.upgrade(postgres_dsn, branches=(revisions.TOOL,))
    monkeypatch.setattr(native_target, "require_tables", lambda *_: None)

    def settings(target: str, **where: Any) -> Settings:  # noqa: ANN401 - settings of the target
        asked = load_target(target).options
        options: dict[str, Any] = {name: one.example for name, one in asked.items() if one.default is None}
        named = TargetSettings(name=target, options=options, **where)
        return settings_for(mongo_database, postgres_dsn, profile=SOURCES.get(target, target), target=named)

    return settings


def reasons(settings: Settings) -> set[str]:
    """Return why the checks were not made that apply to the target; fails unless the exit status says 4 and no more."""
    result = verify(settings, Request(only=("library",)))
    assert result.exit_status() == UNVERIFIED
    applying = [
        one
        for one in result.evidence.checks
        if one.id.partition(".")[2] not in RULES[settings.target.name].inapplicable
    ]
    assert {one.outcome.status for one in applying} == {"unverified"}
    assert not any(one.errored for one in applying), "the tool has not failed"
    found = {one.outcome.reason for one in applying}
    assert all(any(reason in line for line in terminal_lines(result, "r")) for reason in found)
    return found


def test_every_target_has_a_library_and_a_program_here() -> None:
    assert {*SHIPPED} == {*LIBRARIES} == {name for names in of_program.values() for name in names}


@pytest.mark.parametrize("target", of_program["python"])
def test_a_python_without_the_library(target: str, moved: Moved, tmp_path: Path) -> None:
    venv.create(tmp_path / "bare", with_pip=False, symlinks=True)
    bare = tmp_path / "bare" / "bin" / "python"
    (reason,) = reasons(moved(target, interpreter=str(bare)))
    assert reason.startswith(f"{target}: the module ")
    assert reason.endswith(f" is not installed for {bare}; call {Interpreter(bare).install_command(target)}")


@pytest.mark.parametrize("target", of_program["node"])
def test_a_folder_without_the_library(target: str, moved: Moved, tmp_path: Path) -> None:
    (reason,) = reasons(moved(target, packages=str(tmp_path)))
    install = Interpreter(None, tmp_path).install_command(target)
    assert reason == f"{target}: the module {target} is not installed for node; call {install}"


@pytest.mark.parametrize("target", of_program["java"])
def test_a_folder_without_jars(target: str, moved: Moved, tmp_path: Path) -> None:
    require_java()
    (reason,) = reasons(moved(target, packages=str(tmp_path)))
    install = "apt install libquartz2-java libpostgresql-jdbc-java default-jdk-headless"
    of_java = "the jars of the library, or the compiler of Java, are not installed for java"
    assert reason == f"{target}: {of_java}; call {install}"


@pytest.mark.parametrize(
    ("target", "remedy"),
    [
        (
            "apscheduler",
            "name as target.interpreter a Python that exists, for which pip install 'apscheduler>=3.11,<4' ",
        ),
        ("agenda", "install Node.js, or name another one as target.interpreter, and call npm install --prefix "),
        (
            "quartz",
            "call apt install libquartz2-java libpostgresql-jdbc-java default-jdk-headless, or name another one",
        ),
    ],
)
def test_a_program_that_is_absent(target: str, remedy: str, moved: Moved, tmp_path: Path) -> None:
    absent = tmp_path / "absent"
    (reason,) = reasons(moved(target, interpreter=str(absent)))
    assert reason.startswith(f"{target}: {absent} cannot be started: No such file or directory; {remedy}")
