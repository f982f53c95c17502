"""The distribution of the native codec: what belongs to it, and that it fits the tool."""

import shutil
import subprocess
import sys
import tarfile
import tomllib
from importlib import metadata
from pathlib import Path

from migrator import __version__
from tests import native_codec

ROOT = Path(__file__).resolve().parents[3]
SPEEDUPS = ROOT / "speedups"
PACKAGE = SPEEDUPS / "migrator_speedups"
OWN = tomllib.loads((SPEEDUPS / "pyproject.toml").read_text(encoding="utf-8"))
TOOL = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
MODULES = {path.stem for path in PACKAGE.glob("*.pyx")}


def test_it_is_the_extra_of_the_tool_in_the_same_version() -> None:
    assert OWN["project"]["version"] == TOOL["project"]["version"] == __version__
    assert TOOL["project"]["optional-dependencies"]["speedups"] == [f"{OWN['project']['name']}=={__version__}"]
    assert OWN["project"]["requires-python"] == TOOL["project"]["requires-python"]
    assert (SPEEDUPS / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()


def test_what_builds_it_is_locked_and_it_is_not() -> None:
    """A name that is not published could be registered by somebody else."""
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    pinned = {line.partition("==")[0] for line in lock.splitlines() if "==" in line and not line.startswith((" ", "#"))}
    assert {"cython", "setuptools"} <= pinned
    assert not {name for name in pinned if "migrator" in name}


def test_every_module_has_an_interface() -> None:
    assert MODULES
    assert {path.stem for path in PACKAGE.glob("*.pyi")} == MODULES


def test_the_wheel_holds_compiled_modules_and_their_interfaces() -> None:
    native_codec.needed()
    files = metadata.files(OWN["project"]["name"]) or []
    held = {file.name.partition(".")[0] + file.suffix for file in files if file.parts[0] == "migrator_speedups"}
    held = {name for name in held if not name.endswith(".pyc")}
    modules = {f"{name}{suffix}" for name in MODULES for suffix in (".so", ".pyi")}
    assert held == {"__init__.py", "py.typed", *modules}
    assert any(file.match("*.dist-info/licenses/LICENSE") for file in files)


def test_the_sdist_holds_all_sources_and_needs_no_compiler(tmp_path: Path) -> None:
    copied = tmp_path / "speedups"
    shutil.copytree(SPEEDUPS, copied, ignore=shutil.ignore_patterns("build", "*.egg-info", "__pycache__"))
    program = f"from setuptools import build_meta; build_meta.build_sdist({str(tmp_path)!r})"
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=copied,
        env={"PATH": "", "CC": "false"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (archive,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        names = {name.partition("/")[2] for name in opened.getnames()}
    sources = {str(path.relative_to(copied)) for path in copied.rglob("*") if path.is_file()}
    generated = {name for name in sources if ".egg-info/" in name}
    assert sources - generated - {"MANIFEST.in"} <= names
    assert not {name for name in names if name.endswith((".c", ".so"))}
