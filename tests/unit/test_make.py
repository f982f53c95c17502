"""`make` makes its environment with a Python that fits, once, and knows which ends of the demo are good ones."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# Takes the place of an interpreter: {fits} answers the question about versions, the rest is written down.
PYTHON = """#!/bin/bash
case "$*" in
*version_info*) exit {fits} ;;
--version) echo "Python {name}" ;;
*" venv "*) mkdir -p .venv/bin; cp "$0" .venv/bin/python; echo "{name} $*" >> calls ;;
*) echo "$*" >> calls ;;
esac
"""


def script(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A folder with the Makefile and nothing it could run."""
    for name in ("Makefile", "requirements.lock", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    for name in ("python3", "python3.11", "python3.12", "python3.13"):
        script(tmp_path / "bin" / name, PYTHON.format(fits=1, name=name))
    return tmp_path


def make(checkout: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": f"{checkout / 'bin'}:{os.environ['PATH']}"}
    return subprocess.run(
        ["make", *arguments], cwd=checkout, env=environment, capture_output=True, text=True, check=False
    )


def calls(checkout: Path) -> list[str]:
    log = checkout / "calls"
    return log.read_text().splitlines() if log.exists() else []


@pytest.mark.parametrize(("status", "end"), [(0, 0), (8, 0), (1, 2), (4, 2), (9, 2), (12, 2), (16, 2)])
def test_the_demo_may_set_documents_aside_and_nothing_else(checkout: Path, status: int, end: int) -> None:
    script(checkout / ".venv" / "bin" / "migrator", f'#!/bin/bash\n[ "$1" = demo ] && exit {status}\n')
    (checkout / ".venv" / ".installed").touch()
    done = make(checkout, "demo")
    assert done.returncode == end
    if end:
        assert f"Error {status}" in done.stderr


@pytest.mark.parametrize("machine", ["Darwin arm64", "Linux aarch64"])
def test_where_the_servers_do_not_exist_it_says_so(checkout: Path, machine: str) -> None:
    script(checkout / "bin" / "uname", f'#!/bin/bash\necho "{machine}"\n')
    for program in ("migrator", "pytest", "ruff"):
        script(checkout / ".venv" / "bin" / program, "#!/bin/bash\n")
    (checkout / ".venv" / ".installed").touch()
    for target in ("demo", "test"):
        done = make(checkout, target)
        assert done.returncode == 2
        assert f"{target} starts servers that exist for Linux on x86-64 only, this is {machine}" in done.stderr
    assert make(checkout, "lint").returncode == 0


def test_the_newest_python_that_fits_is_taken_and_only_once(checkout: Path) -> None:
    script(checkout / "bin" / "python3.12", PYTHON.format(fits=0, name="python3.12"))
    script(checkout / "bin" / "python3.11", PYTHON.format(fits=0, name="python3.11"))
    first = make(checkout, ".venv/.installed")
    assert first.returncode == 0, first.stderr
    made = calls(checkout)
    assert made[0].startswith("python3.12 -m venv")
    assert "--require-hashes -r requirements.lock" in made[1]
    assert "--no-deps" in made[2]
    make(checkout, ".venv/.installed")
    assert calls(checkout) == made


def test_another_lock_is_installed_into_the_same_environment(checkout: Path) -> None:
    script(checkout / "bin" / "python3.12", PYTHON.format(fits=0, name="python3.12"))
    make(checkout, ".venv/.installed")
    made = calls(checkout)
    later = (checkout / ".venv" / ".installed").stat().st_mtime + 10
    os.utime(checkout / "requirements.lock", (later, later))
    make(checkout, ".venv/.installed")
    assert calls(checkout)[len(made) :] == made[1:]


def test_without_a_python_that_fits_it_says_so(checkout: Path) -> None:
    done = make(checkout, "demo")
    assert done.returncode == 2
    assert "no Python 3.11, 3.12 or 3.13" in done.stderr
    assert calls(checkout) == []


def test_help_names_every_target(checkout: Path) -> None:
    said = make(checkout).stdout
    phony = next(line for line in (ROOT / "Makefile").read_text().splitlines() if line.startswith(".PHONY:"))
    assert {line.split()[1] for line in said.splitlines()} == set(phony.split()[1:])
