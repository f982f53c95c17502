"""What the page about installing says, as far as it can be tried without an index, a builder or another system."""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
CONTAINERFILE = (ROOT / "docs" / "Containerfile").read_text(encoding="utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

MACOS = """
import ctypes, importlib, os, platform, sys
names = ({modules})
for name in names:  # with all that they import: libraries have files of their own for each system
    importlib.import_module(name)
for name in [name for name in sys.modules if name.partition(".")[0] == "migrator"]:
    del sys.modules[name]
del os.sched_getaffinity, os.pidfd_open
class Libc:
    pass
ctypes.CDLL = lambda name: Libc()
platform.system, platform.machine = lambda: "Darwin", lambda: "arm64"
sys.platform = "darwin"
for name in names:
    importlib.import_module(name)
from migrator.config import CopySettings
from migrator.pipeline import executors
assert executors.workers(CopySettings()) == os.cpu_count()
from migrator.__main__ import main
sys.argv = ["migrator", "servers", "start"]
main()
"""

PARENT = """
import ctypes, os, sys
from migrator.pipeline import executors
class Libc:
    pass
ctypes.CDLL = lambda name: Libc()
parent = os.getpid()
read, write = os.pipe()
if os.fork():
    os.read(read, 1)
    os._exit(0)
executors.end_with_parent(parent)
print(os.getpid(), flush=True)
os.write(write, b"1")
import signal
signal.pause()
"""


def instructions(text: str) -> list[tuple[str, str]]:
    """Return the instructions of a container file with their arguments, lines that go on joined."""
    lines = re.sub(r"^#.*\n", "", text, flags=re.MULTILINE).replace("\\\n", " ").splitlines()
    return [(word, rest.strip()) for word, _, rest in (line.partition(" ") for line in lines if line.strip())]


def test_the_container_holds_the_tool_alone_for_an_ordinary_user() -> None:
    found = instructions(CONTAINERFILE)
    names = [name for name, _ in found]
    assert set(names) <= {"FROM", "WORKDIR", "COPY", "RUN", "ENV", "USER", "ENTRYPOINT", "CMD", "ARG"}
    images = [rest.split()[0] for name, rest in found if name == "FROM"]
    assert len(images) == 2, "what is needed to build stays behind"
    tried = {line.rpartition(" ")[2] for line in PROJECT["classifiers"] if "Python :: 3." in line}
    assert all(re.fullmatch(r"docker\.io/library/python:(\S+)-slim", one)[1] in tried for one in images)  # type: ignore[index]
    last = found[len(names) - 1 - names[::-1].index("FROM") :]
    (user,) = [rest for name, rest in last if name == "USER"]
    assert int(user) > 0
    assert f"--uid {user} " in " ".join(rest for name, rest in last if name == "RUN")
    for name, rest in last:
        if name in {"ENTRYPOINT", "CMD"}:
            assert isinstance(json.loads(rest), list), "the form without a shell, which would take the signals"
    copied = [rest.split()[:-1] for name, rest in found if name == "COPY" and "--from" not in rest]
    assert [one for group in copied for one in group if not (ROOT / one).exists()] == []
    assert "[" not in " ".join(rest for name, rest in found if name == "RUN").replace("[a-z0-9._-]", ""), "no extra"
    assert [rest for name, rest in found if name == "ARG"] == ["SPEEDUPS=no"], "the native codec only if asked for"


def test_the_container_takes_the_versions_of_the_lock() -> None:
    line = next(rest for name, rest in instructions(CONTAINERFILE) if name == "RUN" and "constraints" in rest)
    command = line.partition(" > ")[0]
    said = subprocess.run(["bash", "-c", command], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    pinned = {one.partition("==")[0] for one in said.split()}
    assert all(re.fullmatch(r"[a-z0-9._-]+==[\w.]+", one) for one in said.split()), said
    assert {re.split(r"[\[<>=]", one)[0] for one in PROJECT["dependencies"]} <= pinned


def test_the_page_names_every_extra_and_the_versions_that_were_tried() -> None:
    named = {one for row in re.findall(r"^\| (`\w+`(?:, `\w+`)*) \|", PAGE, re.MULTILINE) for one in row.split(", ")}
    assert {one.strip("`") for one in named} >= set(PROJECT["optional-dependencies"])
    tried = [line.rpartition(" ")[2] for line in PROJECT["classifiers"] if "Python :: 3." in line]
    assert f"| the tool | {', '.join(tried)} |" in PAGE
    assert "**not tried** | 3.14:" in PAGE


def test_the_lock_installs_all_but_the_servers_on_other_systems() -> None:
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    for requirement in PROJECT["optional-dependencies"]["embedded"]:
        name = re.split(r"[<>=]", requirement)[0]
        assert requirement.endswith("; sys_platform == 'linux' and platform_machine == 'x86_64'")
        assert re.search(
            rf'^{name}==\S+ ; sys_platform == "linux" and platform_machine == "x86_64"', lock, re.MULTILINE
        )


def test_every_module_can_be_imported_without_what_only_linux_has() -> None:
    modules = [
        ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for path in sorted((ROOT / "migrator").rglob("*.py"))
        if path.name not in {"__init__.py", "__main__.py", "guardian.py"}
    ]
    program = MACOS.format(modules=", ".join(map(repr, modules)))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stderr
    assert "embedded servers exist for Linux on x86_64 only, this is Darwin on arm64" in done.stderr


def test_a_worker_ends_with_its_parent_where_the_kernel_does_not_see_to_it() -> None:
    # standard output ends with the last process that has it: the worker
    done = subprocess.run([sys.executable, "-c", PARENT], capture_output=True, text=True, timeout=120, check=True)
    assert int(done.stdout) > 0, "the worker was there"
