"""What people install is complete: built from this tree, the wheel works in an environment of its own.

The environment holds the distributions that the wheel declares, directly or through another one, and nothing else.
They are links to what is installed here, so that no registry is asked; ``pip check`` says that nothing is missing.
"""

import json
import os
import re
import subprocess
import sys
import venv
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import click
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from pymongo.database import Database

from migrator import __version__
from migrator.cli import cli
from migrator.errors import install_extra
from migrator.exit_status import DIFFERENT, UNVERIFIED, USAGE
from tests import native_codec
from tests.copying import settings_for, write_config
from tests.cron_lines import DEEP
from tests.ordinary_user import ordinary_folder
from tests.stellaops_documents import CANONICAL, fresh

ROOT = Path(__file__).resolve().parents[2]
PIP = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
BASE = ""
"""No extra."""


@dataclass
class Installed:
    """The wheel in an environment with what it declares."""

    folder: Path

    def run(self, *arguments: str, program: str = "migrator", **settings: str) -> subprocess.CompletedProcess[str]:
        outside = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "MIGRATOR"))}
        return subprocess.run(
            [self.folder / "bin" / program, *arguments],
            capture_output=True,
            text=True,
            cwd=self.folder.parent,
            env={**outside, **settings},
            check=False,
        )


def declared(requirements: Iterable[str], extras: Iterable[str]) -> set[str]:
    """Return the names of the distributions that the requirements ask for, directly or through others."""
    found: set[str] = set()
    seen: set[tuple[str, str]] = set()
    waiting = [(Requirement(text), extra) for text in requirements for extra in {BASE, *extras}]
    while waiting:
        wanted, extra = waiting.pop()
        if wanted.marker is not None and not wanted.marker.evaluate({"extra": extra}):
            continue
        name = canonicalize_name(wanted.name)
        found.add(name)
        new = {(name, one) for one in (BASE, *wanted.extras)} - seen
        seen |= new
        waiting += [(Requirement(text), one) for _, one in new for text in metadata.requires(name) or ()]
    return found


def link(name: str, site: Path) -> None:
    """Put the modules and the metadata of an installed distribution into another environment."""
    distribution = metadata.distribution(name)
    for top in {file.parts[0] for file in distribution.files or ()} - {"..", "__pycache__"}:
        (site / top).symlink_to(Path(str(distribution.locate_file(top))))


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    build = [*PIP, "wheel", "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", str(folder), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True, text=True)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path) -> Iterator[Callable[[str], Installed]]:
    """Yield what makes the environment with one extra alone, or with none; each is made once.

    They lie where the embedded servers' user may enter.
    """
    made: dict[str, Installed] = {}

    def install(extra: str) -> Installed:
        if extra not in made:
            folder = parent / (extra or "base")
            venv.create(folder)
            pip = [*PIP, "--python", str(folder / "bin" / "python")]
            subprocess.run([*pip, "install", "--no-deps", "--no-index", str(wheel)], check=True)
            (site,) = folder.glob("lib/python*/site-packages")
            (own,) = metadata.distributions(path=[str(site)])
            for name in declared(own.requires or (), {extra}):
                link(name, site)
            subprocess.run([*pip, "check"], check=True, stdout=subprocess.DEVNULL)
            made[extra] = Installed(folder)
        return made[extra]

    with ordinary_folder() as parent:
        yield install


@pytest.fixture(scope="module")
def alone(installed: Callable[[str], Installed]) -> Installed:
    """The wheel without any extra."""
    return installed(BASE)


@pytest.fixture
def config(mongo_database: Database[Any], postgres_dsn: str, tmp_path: Path) -> Path:
    """A configuration for one document of each collection, and an empty database to copy them into."""
    for collection in CANONICAL:
        mongo_database[collection].insert_one(fresh(collection))
    return write_config(tmp_path, settings_for(mongo_database, postgres_dsn))


@pytest.mark.proves("0-O1")
def test_holds_what_the_code_reads_beside_its_modules(wheel: Path) -> None:
    names = ZipFile(wheel).namelist()
    revisions = {f"migrator/_alembic/versions/{path.name}" for path in (ROOT / "alembic" / "versions").glob("*.py")}
    assert revisions
    assert revisions <= set(names)
    beside = {path.relative_to(ROOT) for path in (ROOT / "migrator").rglob("*") if path.is_file()}
    data = {str(path) for path in beside if path.suffix not in {".py", ".pyc"}}
    assert data <= set(names)
    assert any(name.endswith("/licenses/LICENSE") for name in names)


def test_holds_nothing_else(wheel: Path) -> None:
    names = ZipFile(wheel).namelist()
    assert {name.split("/")[0].split("-")[0] for name in names} == {"migrator", "scheduler_migrator"}


def test_is_the_one_that_the_page_about_installing_names(wheel: Path, alone: Installed) -> None:
    page = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
    speedups = f"scheduler_migrator_speedups-{__version__}-*.whl"
    assert set(re.findall(r"dist/(\S+?\.whl)", page)) == {wheel.name, speedups}
    assert f"```text\n{alone.run('--version').stdout}```" in page


@pytest.mark.proves("0-T2.1.2")
def test_is_what_runs(alone: Installed) -> None:
    said = alone.run("-c", "import migrator; print(migrator.__file__)", program="python").stdout
    assert Path(said.strip()).is_relative_to(alone.folder)


@pytest.mark.proves("0-T2.1.2")
def test_nothing_is_there_that_is_not_declared(alone: Installed) -> None:
    for module in ("pytest", "distributed", "cryptography", "psycopg2", "croniter", "migrator_speedups"):
        assert "ModuleNotFoundError" in alone.run("-c", f"import {module}", program="python").stderr, module


def commands() -> list[tuple[str, ...]]:
    """Return every command and every command within one, as words."""

    def within(group: click.Command, words: tuple[str, ...]) -> list[tuple[str, ...]]:
        if not isinstance(group, click.Group):
            return [words]
        context = click.Context(group)
        names = [(name, group.get_command(context, name)) for name in group.list_commands(context)]
        return [words, *(found for name, one in names if one is not None for found in within(one, (*words, name)))]

    return within(cli, ())


HELP = """
import json, sys
from click.testing import CliRunner
from migrator.cli import cli
called = {words: CliRunner().invoke(cli, [*words.split(), "--help"]) for words in json.loads(sys.argv[1])}
print(json.dumps({words: [done.exit_code, done.stderr, done.stdout[:6]] for words, done in called.items()}))
"""
"""Every command in one process: what is not installed cannot be loaded by one command for another."""


@pytest.mark.proves("0-O1", "0-T2.1.1")
def test_every_command_helps(alone: Installed) -> None:
    words = [" ".join(command) for command in commands()]
    assert len(words) > 60
    done = alone.run("-c", HELP, json.dumps(words), program="python")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout) == {command: [0, "", "Usage:"] for command in words}
    assert alone.run("--help").stdout.startswith("Usage:")


TESTED_ELSEWHERE = ("crud", "performance", "transitions", "triggers")
"""Areas that take long, and import nothing that the registry of checks, which the command loads, does not import."""


@pytest.mark.proves("0-O1", "0-T2.1.1", "0-T2.1.2")
def test_moves_and_verifies_between_real_servers(alone: Installed, config: Path) -> None:
    """What a move begins with, command by command."""

    def call(*command: str) -> subprocess.CompletedProcess[str]:
        done = alone.run(*command, "--config", str(config))
        assert "Traceback" not in done.stderr
        return done

    upgrade = call("schema", "upgrade")
    assert upgrade.returncode == 0, upgrade.stderr
    check = call("schema", "check")
    assert check.returncode == 0, check.stdout + check.stderr
    doctor = call("doctor")
    assert (doctor.returncode, doctor.stderr) == (DIFFERENT, ""), doctor.stdout + doctor.stderr
    wrong = [line.partition(":")[0] for line in doctor.stdout.splitlines() if not line.startswith("ok")]
    assert wrong == ["NO  writers of the source"]  # the server of the tests asks nobody for a password
    backfill = call("backfill")
    assert backfill.returncode == 0, backfill.stderr
    verify = call("verify", *(word for area in TESTED_ELSEWHERE for word in ("--skip", area)))
    assert verify.returncode & ~UNVERIFIED == 0, verify.stdout + verify.stderr
    plan = call("cutover", "plan")
    assert plan.stderr == ""
    assert plan.returncode in {DIFFERENT, UNVERIFIED}, plan.stdout
    assert "\nnot ready, because of tail, fence" in plan.stdout


def keys(folder: Path) -> tuple[Path, Path]:
    """Return a new private key and its public half."""
    private = Ed25519PrivateKey.generate()
    pem = serialization.Encoding.PEM
    one, other = folder / "private.pem", folder / "public.pem"
    one.write_bytes(
        private.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()),
    )
    other.write_bytes(private.public_key().public_bytes(pem, serialization.PublicFormat.SubjectPublicKeyInfo))
    return one, other


def sign(here: Installed, config: Path) -> subprocess.CompletedProcess[str]:
    private, public = keys(config.parent)
    result = config.parent / "result.json"
    result.write_bytes((ROOT / "reports" / "sample" / "result.json").read_bytes())
    signed = here.run("report", "sign", str(result), "--key", str(private))
    if signed.returncode:
        return signed
    return here.run("report", "check", str(result), "--public-key", str(public))


def on_dask(here: Installed, config: Path) -> subprocess.CompletedProcess[str]:
    return here.run("inspect", "--config", str(config), MIGRATOR_COPY__EXECUTOR="dask")


def with_native_codec(here: Installed, _config: Path) -> subprocess.CompletedProcess[str]:
    return here.run("--version", MIGRATOR_CODEC="native")


def tried(
    here: Installed, config: Path, statement: str, *, imports: str = "", then: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run a statement in Python; an error of the tool is printed, and its exit status is that of the program."""
    script = config.parent / "tried.py"
    script.write_text(
        f"import sys\n{imports}"
        "from migrator.errors import MigratorError\n"
        "try:\n"
        f"    {statement}\n"
        "except MigratorError as error:\n"
        "    print(error, file=sys.stderr)\n"
        "    sys.exit(error.exit_status)\n"
        f"{then}"
    )
    return here.run(str(script), program="python")


def on_celery(here: Installed, config: Path) -> subprocess.CompletedProcess[str]:
    return tried(here, config, "import migrator.scheduler.celery")


def programs(here: Installed, config: Path) -> subprocess.CompletedProcess[str]:
    """Start both servers; they are the data of the extra."""
    place = ("--dir", str(config.parent / "servers"))
    try:
        return here.run("servers", "start", *place)
    finally:
        here.run("servers", "stop", "--remove", *place)


def fires(here: Installed, config: Path, call: str, expected: str) -> subprocess.CompletedProcess[str]:
    """Ask for a fire of a dialect that its own library evaluates."""
    return tried(
        here,
        config,
        f"fire = cron.next_fire({call}, 'America/New_York', datetime(2026, 10, 31, tzinfo=UTC))",
        imports="from datetime import UTC, datetime\nfrom migrator import cron\n",
        then=f"assert fire == {expected}\n",
    )


def of_yaml(here: Installed, config: Path) -> subprocess.CompletedProcess[str]:
    """Write what the document of a result holds in YAML, as Celery does."""
    return tried(
        here,
        config,
        "written = serializers.of_document('5\\n...\\n').dump(['a'])",
        imports="from migrator.sources.mapping.converters import serializers\n",
        then="assert written == b'- a\\n'\n",
    )


EXTRAS: dict[str, Callable[[Installed, Path], subprocess.CompletedProcess[str]]] = {
    "sign": sign,
    "celery": on_celery,
    "dask": on_dask,
    "speedups": with_native_codec,
    "embedded": programs,
    "yaml": of_yaml,
    "croniter": partial(fires, call="'croniter', '30 1 1 11 6'", expected="datetime(2026, 11, 1, 5, 30, tzinfo=UTC)"),
    "apscheduler": partial(
        fires, call="'apscheduler', '30 2 * * mon'", expected="datetime(2026, 11, 2, 7, 30, tzinfo=UTC)"
    ),
}


def test_every_extra_is_tried() -> None:
    own = metadata.metadata("scheduler-migrator").get_all("Provides-Extra")
    assert set(own or ()) == set(EXTRAS)


@pytest.mark.parametrize("extra", EXTRAS)
@pytest.mark.proves("0-T2.1.2")
def test_without_an_extra_what_it_guards_names_it(alone: Installed, config: Path, extra: str) -> None:
    if extra == "speedups":
        native_codec.needed()
    without = EXTRAS[extra](alone, config)
    assert (without.returncode, without.stderr.count("\n")) == (USAGE, 1), without.stderr
    assert install_extra(extra) in without.stderr


@pytest.mark.slow
@pytest.mark.parametrize("extra", EXTRAS if DEEP else ["sign"])
@pytest.mark.proves("0-T2.1.2")
def test_each_extra_alone_is_enough_for_what_it_guards(
    installed: Callable[[str], Installed], config: Path, extra: str
) -> None:
    """An environment for each extra takes long to make: one each day, the others in the deep run."""
    if extra == "speedups":
        native_codec.needed()
    done = EXTRAS[extra](installed(extra), config)
    assert done.returncode == 0, done.stdout + done.stderr
