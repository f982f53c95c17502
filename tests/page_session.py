"""The session of a page, run as it stands: its shell blocks in one shell, and what the page shows below each of them.

``...`` stands for what is left out, within a line or for whole lines. Standard error is not shown on a page.
"""

import contextlib
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg

from migrator.testing.servers import daemon
from tests.acceptance.test_readme import is_like, session
from tests.conftest import fresh_name
from tests.copying import run
from tests.ordinary_user import ordinary_folder

DOCS = Path(__file__).resolve().parents[1] / "docs"
WAY = ("doctor", "backfill", "tail", "parity", "verify", "cutover run", "rollback run", "cutover run", "cutover finish")
BLOCK = re.compile(r"^```sh\n(?P<commands>.*?)^```\n(?:\n```text\n(?P<shown>.*?)^```$)?", re.MULTILINE | re.DOTALL)
LIMIT_S = 480


@dataclass(frozen=True)
class Block:
    """Some lines of a shell, and what they print as the page has it."""

    commands: str
    shown: str


def blocks(page: str) -> list[Block]:
    return [Block(found["commands"], found["shown"] or "") for found in BLOCK.finditer(page)]


def of_kind(page: str, kind: str) -> str:
    """Return the first block of a kind, such as ``toml``, on the text of a page."""
    (found, *_) = re.findall(rf"^```{kind}\n(.*?)^```$", page, flags=re.MULTILINE | re.DOTALL)
    return str(found)


def replaced(text: str, *pairs: tuple[str, str]) -> str:
    """Return a text of a page with what is real here in place of what is shown; each pair must stand in it."""
    for shown, real in pairs:
        assert shown in text
        text = text.replace(shown, real)
    return text


@contextlib.contextmanager
def application_user(statements: str, name: str, dsn: str) -> Iterator[str]:
    """Let the owner of a database call the statements of a page about the application's user; yield that user's DSN.

    The user has another name than on the page: roles are those of the whole server.
    """
    user = fresh_name()
    with psycopg.connect(dsn, autocommit=True) as admin:
        admin.execute("REVOKE ALL ON SCHEMA public FROM public")
        admin.execute(replaced(statements, (f"{name} LOGIN", f"{user} LOGIN PASSWORD 'secret'"), (name, user)).encode())
        try:
            yield f"postgresql://{user}:secret@{dsn.partition('@')[2]}"
        finally:
            admin.execute(f"DROP OWNED BY {user}; DROP ROLE {user}".encode())


def run_console(page: str, folder: Path, configuration: str, statuses: Collection[int] = (0,)) -> None:
    """Write the configuration, and run the commands of a page's console block in a folder, each as the page shows it.

    Fails where one prints something else, or ends with none of these statuses.
    """
    path = folder / "config.toml"
    path.write_text(configuration, encoding="utf-8")
    path.chmod(0o600)
    for command, shown in session(of_kind(page, "console")):
        program, *arguments = shlex.split(command)
        assert program == "migrator"
        status, out, said = run(*arguments, cwd=folder)
        assert status in statuses, said
        assert is_like(shown, out), f"{command}\n{out}\n{said[-2000:]}"


def run_page(name: str) -> list[tuple[str, str]]:
    """Run a page of docs/ that shows the whole way of a migration; return each block of commands with what it printed.

    Fails where it is not as the page says.
    """
    page = blocks((DOCS / name).read_text(encoding="utf-8"))
    commands = "".join(one.commands for one in page)
    order = list(WAY) if name == "tutorial.md" else [*WAY[:3], "verify", "parity", *WAY[5:]]
    assert re.search(".*".join(f"migrator {one}" for one in order), commands, re.DOTALL), "the whole way is shown"
    with ordinary_folder() as folder:
        status = _run(page, folder)
        session = []
        for number, one in enumerate(page):
            printed = (folder / f"{number}.out").read_text()
            told = f"{one.commands}{printed}{(folder / f'{number}.err').read_text()[-2000:]}"
            assert status == 0 or (folder / f"{number + 1}.out").exists(), f"failed: {told}"
            assert is_like(one.shown, printed), told
            session.append((one.commands, printed))
    return session


def _run(page: list[Block], folder: Path) -> int:
    """Run all blocks in one shell, which ends at the first that fails; return its status."""
    program = "\n".join(
        f"{{\n{one.commands}}} >{folder}/{number}.out 2>{folder}/{number}.err || exit"
        for number, one in enumerate(page)
    )
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MIGRATOR_")}
    environment |= {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "USER": ""}  # as in a container
    environment["MIGRATOR_COPY__WORKERS"] = "1"  # a process takes longer to start than a chunk to copy
    with subprocess.Popen(["bash", "-c", program], cwd=folder, env=environment, start_new_session=True) as shell:
        try:
            return shell.wait(LIMIT_S)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(shell.pid, signal.SIGKILL)  # what the session left in the background
            for place in folder.rglob(daemon.DEFAULT_DIRECTORY):
                daemon.stop(place, remove=True)
