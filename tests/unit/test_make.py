"""`make` makes its environment with a Python that fits, once, and knows which ends of the demo are good ones.

The native codec is built where something can compile it, and nothing fails where nothing can.
"""

import importlib.util
import os
import shutil
import subprocess
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]

# Takes the place of an interpreter: {fits} answers the question about versions, {compiled} is what becomes of the
# native codec, the rest is written down.
PYTHON = """#!/bin/bash
case "$*" in
*version_info*) exit {fits} ;;
--version) echo "Python {name}" ;;
*.ci/speedups*) echo "$*" >> calls; exit {compiled} ;;
*" venv "*) mkdir -p .venv/bin; cp "$0" .venv/bin/python; echo "{name} $*" >> calls ;;
*) echo "$*" >> calls ;;
esac
"""

COSTS = "--costs=build/costs-of-tests.txt"


def script(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A folder with the Makefile and nothing it could run."""
    for name in ("Makefile", "requirements.lock", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    shutil.copytree(ROOT / "speedups", tmp_path / "speedups", ignore=shutil.ignore_patterns("build", "*.egg-info"))
    script(tmp_path / ".ci" / "speedups", "")
    for name in ("python3", "python3.11", "python3.12", "python3.13"):
        script(tmp_path / "bin" / name, interpreter(name, fits=1))
    return tmp_path


def interpreter(name: str, fits: int = 0, compiled: int = 0) -> str:
    return PYTHON.format(name=name, fits=fits, compiled=compiled)


def stamps(checkout: Path) -> None:
    """Let `make` find a complete environment."""
    for name in (".installed", ".speedups"):
        (checkout / ".venv" / name).touch()


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
    stamps(checkout)
    done = make(checkout, "demo")
    assert done.returncode == end
    if end:
        assert f"Error {status}" in done.stderr


@pytest.mark.parametrize("machine", ["Darwin arm64", "Linux aarch64"])
def test_where_the_servers_do_not_exist_it_says_so(checkout: Path, machine: str) -> None:
    script(checkout / "bin" / "uname", f'#!/bin/bash\necho "{machine}"\n')
    for program in ("migrator", "pytest", "ruff"):
        script(checkout / ".venv" / "bin" / program, "#!/bin/bash\n")
    stamps(checkout)
    for target in ("demo", "test"):
        done = make(checkout, target)
        assert done.returncode == 2
        assert f"{target} starts servers that exist for Linux on x86-64 only, this is {machine}" in done.stderr
    assert make(checkout, "lint").returncode == 0


def test_the_newest_python_that_fits_is_taken_and_only_once(checkout: Path) -> None:
    script(checkout / "bin" / "python3.12", interpreter("python3.12"))
    script(checkout / "bin" / "python3.11", interpreter("python3.11"))
    first = make(checkout, ".venv/.installed")
    assert first.returncode == 0, first.stderr
    made = calls(checkout)
    assert made[0].startswith("python3.12 -m venv")
    assert "--require-hashes -r requirements.lock" in made[1]
    assert "--no-deps" in made[2]
    make(checkout, ".venv/.installed")
    assert calls(checkout) == made


def test_another_lock_is_installed_into_the_same_environment(checkout: Path) -> None:
    script(checkout / "bin" / "python3.12", interpreter("python3.12"))
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


def test_the_native_codec_is_built_once_and_again_when_a_source_of_it_changed(checkout: Path) -> None:
    script(checkout / "bin" / "python3.12", interpreter("python3.12"))
    assert make(checkout, ".venv/.speedups").returncode == 0
    made = calls(checkout)
    assert made[-1] == ".ci/speedups"
    make(checkout, ".venv/.speedups")
    assert calls(checkout) == made
    for name in ("setup.py", "pyproject.toml", "migrator_speedups/rows.pyx", "migrator_speedups/__init__.py"):
        later = (checkout / ".venv" / ".speedups").stat().st_mtime + 10
        os.utime(checkout / "speedups" / name, (later, later))
        make(checkout, ".venv/.speedups")
        assert calls(checkout) == [*made, ".ci/speedups"], name
        made = calls(checkout)
        os.utime(checkout / ".venv" / ".speedups", (later, later))


def test_where_nothing_compiles_the_demo_runs_and_the_next_call_tries_again(checkout: Path) -> None:
    script(checkout / "bin" / "python3.12", interpreter("python3.12", compiled=3))
    make(checkout, ".venv/.installed")
    script(checkout / ".venv" / "bin" / "migrator", '#!/bin/bash\necho "moved"\n')
    for times in (1, 2):
        done = make(checkout, "demo")
        assert (done.returncode, done.stdout) == (0, "moved\n")
        assert calls(checkout).count(".ci/speedups") == times


def test_sources_that_cannot_be_compiled_are_an_error(checkout: Path) -> None:
    script(checkout / "bin" / "python3.12", interpreter("python3.12", compiled=1))
    assert make(checkout, "demo").returncode == 2
    assert not (checkout / ".venv" / ".speedups").exists()


@pytest.mark.parametrize(
    ("built", "arguments", "expected"),
    [
        (True, (), [f"codec= {COSTS}", "codec=python -m codec tests/integration"]),
        (True, ("ARGS=tests/unit",), [f"codec= {COSTS} tests/unit"]),
        (False, (), [f"codec= {COSTS}"]),
    ],
    ids=["both codecs", "some tests", "nothing compiles"],
)
def test_the_tests_that_read_documents_run_with_both_codecs(
    checkout: Path, *, built: bool, arguments: tuple[str, ...], expected: list[str]
) -> None:
    script(checkout / "bin" / "python3.12", interpreter("python3.12", compiled=0 if built else 3))
    make(checkout, ".venv/.installed")
    script(checkout / ".venv" / "bin" / "pytest", '#!/bin/bash\necho "codec=${MIGRATOR_CODEC:-} ${*:4}" >> tests-run\n')
    done = make(checkout, "test", *arguments)
    assert done.returncode == 0, done.stderr
    assert (checkout / "tests-run").read_text().splitlines() == expected
    assert ("ran with the Python codec alone" in done.stderr) == (not built)


@pytest.fixture
def builder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    """The program that builds the native codec; what it tells pip is written down instead."""
    loader = SourceFileLoader("build_speedups", str(ROOT / ".ci" / "speedups"))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    loader.exec_module(module)
    script(tmp_path / "pip", f'#!/bin/bash\necho "$*" >> {tmp_path / "calls"}\n')
    monkeypatch.setattr(module, "PIP", [str(tmp_path / "pip")])
    monkeypatch.setattr(module, "SOURCES", tmp_path / "speedups")
    return module


@pytest.mark.parametrize(("variable", "value"), [("CC", "false"), ("CC", "no-such-compiler"), ("PATH", "")])
def test_without_a_compiler_one_line_says_so_and_an_older_native_codec_goes(
    builder: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    variable: str,
    value: str,
) -> None:
    monkeypatch.delenv("CC", raising=False)
    pip = Path("/bin/bash").resolve()
    monkeypatch.setattr(builder, "PIP", [str(pip), str(tmp_path / "pip")])
    monkeypatch.setenv(variable, value)
    assert builder.main() == 3
    said = capsys.readouterr()
    assert (said.out, said.err.count("\n")) == ("", 1)
    assert "no C compiler with Python's headers here" in said.err
    assert calls(tmp_path) == ["uninstall --yes scheduler-migrator-speedups"]
    assert builder.main(str(tmp_path)) == 3
    assert len(calls(tmp_path)) == 1, "a wheel that cannot be made changes no environment"


def test_with_a_compiler_it_is_installed_without_an_index(
    builder: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(builder, "can_compile", lambda _folder: True)
    sources = str(tmp_path / "speedups")
    options = f"--no-deps --no-index --no-build-isolation {sources}"
    assert (builder.main(), builder.main("dist")) == (0, 0)
    assert calls(tmp_path) == [f"install --force-reinstall {options}", f"wheel --wheel-dir dist {options}"]


def test_help_names_every_target(checkout: Path) -> None:
    said = make(checkout).stdout
    phony = next(line for line in (ROOT / "Makefile").read_text().splitlines() if line.startswith(".PHONY:"))
    assert {line.split()[1] for line in said.splitlines()} == set(phony.split()[1:])
