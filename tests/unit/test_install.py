"""What the page about installing says, as far as it can be tried without an index, a builder or another system."""

import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

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


KNOWN_INSTRUCTIONS = {"FROM", "WORKDIR", "COPY", "RUN", "ENV", "USER", "ENTRYPOINT", "CMD", "ARG"}
DOWNLOADS = r"https?://|\bcurl\b|\bwget\b|\bgit\b"
INDEXES = r"--(extra-)?index-url|--trusted-host|--find-links"


def container_faults(text: str) -> set[str]:
    """Return the faults of a container file: it must hold the tool alone, for an ordinary user."""
    found = instructions(text)
    stages = [number for number, (name, _) in enumerate(found) if name == "FROM"]
    last = found[stages[-1] :]
    tried = {line.rpartition(" ")[2] for line in PROJECT["classifiers"] if "Python :: 3." in line}
    bases = {f"docker.io/library/python:{version}-slim" for version in tried}
    ran, ran_last = (" ".join(rest for name, rest in part if name == "RUN") for part in (found, last))
    copied = [one for name, rest in found if name == "COPY" and "--from" not in rest for one in rest.split()[:-1]]
    user = " ".join(rest for name, rest in last if name == "USER")
    wrong = {
        "instruction": not {name for name, _ in found} <= KNOWN_INSTRUCTIONS,
        "stages": len(stages) != 2 or "apt-get" in ran_last,
        "base image": not {found[number][1].split()[0] for number in stages} <= bases,
        "user": not (user.isdigit() and int(user) > 0 and f"--uid {user} " in ran_last),
        "shell": not all(is_list(rest) for name, rest in last if name in {"ENTRYPOINT", "CMD"}),
        "download": re.search(DOWNLOADS, ran) is not None,
        "index": re.search(INDEXES, ran) is not None,
        "extra": "[" in ran.replace("[a-z0-9._-]", ""),
        "constraints": "--constraint constraints.txt" not in ran,
        "files": not all((ROOT / one).exists() for one in copied),
        "codec": [rest for name, rest in found if name == "ARG"] != ["SPEEDUPS=no"],  # only if asked for
    }
    return {name for name, is_so in wrong.items() if is_so}


def is_list(text: str) -> bool:
    """Whether a program is named without a shell, which would take the signals."""
    try:
        return isinstance(json.loads(text), list)
    except ValueError:
        return False


def test_the_container_holds_the_tool_alone_for_an_ordinary_user() -> None:
    assert container_faults(CONTAINERFILE) == set()


@pytest.mark.parametrize(
    ("there", "planted", "named"),
    [
        ("USER 10001", "USER root", "user"),
        ("USER 10001", "", "user"),
        ("USER 10001", "USER 10002", "user"),
        ("python:3.13-slim\nRUN", "python:latest\nRUN", "base image"),
        ("WORKDIR /work", "ADD https://example.org/x /work/", "instruction"),
        ("WORKDIR /work", "RUN curl -O example.org/x", "download"),
        ("WORKDIR /work", "RUN apt-get update", "stages"),
        ("/wheels/*.whl", "/wheels/*.whl[embedded]", "extra"),
        ("--only-binary=:all:", "--extra-index-url example.org", "index"),
        ("--constraint constraints.txt", "", "constraints"),
        ('ENTRYPOINT ["migrator"]', "ENTRYPOINT migrator", "shell"),
        ("COPY speedups", "COPY absent", "files"),
        ("SPEEDUPS=no", "SPEEDUPS=yes", "codec"),
    ],
)
def test_a_fault_of_the_container_is_found(there: str, planted: str, named: str) -> None:
    assert there in CONTAINERFILE
    assert container_faults(CONTAINERFILE.replace(there, planted)) == {named}


@pytest.mark.parametrize(
    ("works", "user", "status", "said"),
    [
        (None, 10001, 0, "no builder of images works here: the image is not built"),
        ("info", 10001, 0, "docker is installed and does not work here"),
        ("pull", 10001, 0, "docker cannot get docker.io/library/python:3.13-slim here"),
        ("build", 10001, 1, ""),
        ("", 0, 1, "the image runs as root"),
        ("", 10001, 0, "docker has built the image, and it runs as user 10001"),
    ],
)
def test_the_image_is_built_where_a_builder_works(
    works: str | None, user: int, status: int, said: str, tmp_path: Path
) -> None:
    """``works``: the command of the builder that fails; None: there is no builder."""
    for tool in ("bash", "dirname", "sed", "head", "timeout"):
        (tmp_path / tool).symlink_to(shutil.which(tool) or "")
    if works is not None:
        calls = tmp_path / "docker"
        calls.write_text(
            f'#!/bin/bash\necho "$*" >> {tmp_path}/calls\n[ "$1" != "{works}" ] || exit 1\n'
            f'[ "$1 $4" != "run id" ] || echo {user}\n'
        )
        calls.chmod(0o755)
    script = [str(ROOT / ".ci" / "container")]
    done = subprocess.run(script, env={"PATH": str(tmp_path)}, capture_output=True, text=True, check=False)
    assert (done.returncode, said in done.stdout + done.stderr) == (status, True)
    if status == 0 and works == "":
        built, _, version = (tmp_path / "calls").read_text().splitlines()[2:]
        assert built == "build --file docs/Containerfile --tag localhost/migrator-ci ."
        assert version == "run --rm --entrypoint migrator localhost/migrator-ci --version"


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
