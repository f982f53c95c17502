"""What people install is complete: built from this tree, the wheel works where no checkout is."""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from zipfile import ZipFile

import pytest

from migrator.cli import COMMANDS

ROOT = Path(__file__).resolve().parents[2]


@dataclass
class Installed:
    """The wheel, unpacked into a folder of its own."""

    wheel: Path
    folder: Path

    def run(self, *arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "PYTHONPATH": str(self.folder), **settings}
        command = [sys.executable, *arguments]
        return subprocess.run(
            command, capture_output=True, text=True, cwd=self.folder.parent, env=environment, check=False
        )


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    folder = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    build = [*pip, "wheel", "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", str(folder), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True, text=True)
    (wheel,) = folder.glob("*.whl")
    target = folder / "site"
    subprocess.run([*pip, "install", "--no-deps", "--no-index", "--target", str(target), str(wheel)], check=True)
    return Installed(wheel, target)


@pytest.mark.proves("0-O1")
def test_holds_what_the_code_reads_beside_its_modules(installed: Installed) -> None:
    names = ZipFile(installed.wheel).namelist()
    revisions = {f"migrator/_alembic/versions/{path.name}" for path in (ROOT / "alembic" / "versions").glob("*.py")}
    assert revisions
    assert revisions <= set(names)
    beside = {path.relative_to(ROOT) for path in (ROOT / "migrator").rglob("*") if path.is_file()}
    data = {str(path) for path in beside if path.suffix not in {".py", ".pyc"}}
    assert data <= set(names)
    assert any(name.endswith("/licenses/LICENSE") for name in names)


def test_holds_nothing_else(installed: Installed) -> None:
    names = ZipFile(installed.wheel).namelist()
    assert {name.split("/")[0].split("-")[0] for name in names} == {"migrator", "scheduler_migrator"}


@pytest.mark.proves("0-T2.1.2")
def test_is_what_runs(installed: Installed) -> None:
    said = installed.run("-c", "import migrator; print(migrator.__file__)").stdout
    assert Path(said.strip()).is_relative_to(installed.folder)


@pytest.mark.parametrize("command", ["", *COMMANDS])
@pytest.mark.proves("0-O1", "0-T2.1.1")
def test_every_command_helps(installed: Installed, command: str) -> None:
    done = installed.run("-m", "migrator", *command.split(), "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("Usage:")


def test_makes_the_schema(installed: Installed, postgres_dsn: str) -> None:
    upgrade = installed.run("-m", "migrator", "schema", "upgrade", MIGRATOR_POSTGRES__DSN=postgres_dsn)
    assert upgrade.returncode == 0, upgrade.stderr
    check = installed.run("-m", "migrator", "schema", "check", MIGRATOR_POSTGRES__DSN=postgres_dsn)
    assert check.returncode == 0, check.stdout + check.stderr
