"""``config show`` and ``config check``."""

import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from migrator.cli import cli
from migrator.config import known_keys
from migrator.errors import ConfigurationError, UsageError

SECRET = "hunter2"


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in [one for one in os.environ if one.startswith("MIGRATOR_")]:
        monkeypatch.delenv(name)
    path = tmp_path / "own.toml"
    path.write_text(
        f'[mongo]\nuri = "mongodb://me:{SECRET}@host/db"\n[postgres]\ndsn_env = "TARGET"\n[copy]\nworkers = 3\n'
    )
    path.chmod(0o600)
    return path


def call(file: Path, *arguments: str, **environment: str) -> Result:
    return CliRunner(env=environment).invoke(cli, ["config", *arguments, "--config", str(file)])


def test_every_setting_is_shown_with_its_origin_and_without_credentials(file: Path) -> None:
    shown = call(
        file,
        "show",
        MIGRATOR_COPY__WORKERS="5",
        MIGRATOR_CUTOVER__ENVIRONMENT="staging",
        MIGRATOR_SCHEDULER__POLL="1h30m",
    )
    lines = shown.stdout.splitlines()
    assert len(lines) == sum(map(len, known_keys().values()))
    assert 'mongo.uri = "mongodb://***@host/db"  # ' + str(file) in lines
    assert "copy.workers = 5  # MIGRATOR_COPY__WORKERS" in lines
    assert 'scheduler.poll = "90m"  # MIGRATOR_SCHEDULER__POLL' in lines
    assert 'cutover.window = "2d"  # default' in lines
    assert 'cutover.environment = "staging"  # MIGRATOR_CUTOVER__ENVIRONMENT' in lines
    assert 'source.profile = "stellaops"  # default' in lines
    assert "source.zone = (not set)  # default" in lines
    assert SECRET not in shown.output


MONGODB = (
    f"mongodb://me:{SECRET}@host/db?tls=true&tlsCertificateKeyFilePassword={SECRET}"
    f"&authMechanismProperties=AWS_SESSION_TOKEN:{SECRET}&proxyPassword={SECRET}&replicaSet=rs0&unheard={SECRET}"
)


@pytest.mark.parametrize(
    ("key", "value", "shown"),
    [
        (
            "mongo.uri",
            MONGODB,
            (
                "mongodb://***@host/db?tls=true&tlsCertificateKeyFilePassword=***"
                "&authMechanismProperties=***&proxyPassword=***&replicaSet=rs0&***"
            ),
        ),
        ("postgres.dsn", f"host=h password='{SECRET} and {SECRET}' dbname=d", "host=h password=*** dbname=d"),
        ("postgres.dsn", f"host=h password='{SECRET}\\' {SECRET}' dbname=d", "host=h password=*** dbname=d"),
        ("postgres.dsn", f"host=h password={SECRET} {SECRET}", "***"),
        (
            "postgres.dsn",
            f"postgresql://h/d?sslmode=require&password={SECRET}",
            "postgresql://h/d?sslmode=require&password=***",
        ),
        ("postgres.dsn_env", f"postgresql://me:{SECRET}@h", "***"),
        ("mongo.uri_file", f"mongodb://me:{SECRET}@h", "***"),
        ("copy.dask_scheduler", f"tls://me:{SECRET}@h:8786", "tls://***@h:8786"),
        ("hooks.parity_ended", ["/opt/notify", "--token", SECRET], ["/opt/notify", "***"]),
        ("hooks.parity_ended", ["/opt/notify"], ["/opt/notify"]),
    ],
)
def test_a_setting_is_shown_without_its_secrets(key: str, value: object, shown: object, file: Path) -> None:
    section, _, name = key.partition(".")
    file.write_text(f"[{section}]\n{name} = {json.dumps(value)}\n")
    found = call(file, "show", "--json")
    assert {one["key"]: one["value"] for one in json.loads(found.stdout)}[key] == shown
    assert f"{key} = {json.dumps(shown)}  # {file}" in call(file, "show").stdout.splitlines()
    assert SECRET not in found.output


def test_only_what_is_not_a_default_is_shown_on_request_also_as_json(file: Path) -> None:
    found = json.loads(call(file, "show", "--changed", "--json").stdout)
    assert {(one["key"], one["origin"]) for one in found} == {
        ("mongo.uri", str(file)),
        ("postgres.dsn_env", str(file)),
        ("copy.workers", str(file)),
    }


def test_a_check_resolves_references_and_loads_the_source(file: Path) -> None:
    found = call(file, "check", TARGET="dbname=x", MIGRATOR_PERSISTENCE__SCHEDULER="mongo")
    assert found.exit_code == 0
    assert found.stdout.splitlines()[0] == f"ok  configuration: {file}"
    assert "ok  postgres.dsn: can be resolved" in found.stdout
    assert "MIGRATOR_PERSISTENCE__SCHEDULER is set, so a cutover is refused" in found.stdout


@pytest.mark.parametrize(
    ("more", "error", "words"),
    [
        ("", ConfigurationError, "names the environment variable TARGET, which is not set"),
        ('[source]\nprofile = "stelaops"\n', UsageError, "stelaops"),
        ('[scheduler]\nlease = "15s"\n', ConfigurationError, "must be at least twice scheduler.heartbeat (10s)"),
        ("[cutover]\nenvironmnt = 1\n", ConfigurationError, "environmnt"),
    ],
)
def test_a_mistake_is_one_sentence(
    file: Path, more: str, error: type[Exception], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TARGET", raising=False)
    file.write_text(file.read_text() + more)
    done = call(file, "check")
    assert isinstance(done.exception, error)
    assert words in str(done.exception)
    assert "\n" not in str(done.exception)


@pytest.mark.parametrize(
    "words",
    [
        ["--config", "{}", "config", "show", "--json"],
        ["config", "show", "--json", "--config", "{}"],
        ["--config", "no such file", "config", "show", "--json", "--config={}"],
    ],
    ids=["before", "after", "both"],
)
def test_the_file_is_named_before_the_command_or_after_it(words: list[str], file: Path) -> None:
    done = CliRunner().invoke(cli, [word.format(file) for word in words])
    assert done.exit_code == 0, done.output
    expected = CliRunner().invoke(cli, ["config", "show", "--json", "--config", str(file)])
    assert done.output == expected.output


def test_a_command_that_takes_no_configuration_says_so() -> None:
    done = CliRunner().invoke(cli, ["--config", "x.toml", "report", "render", "--help"])
    assert done.exit_code == 0
    done = CliRunner().invoke(cli, ["--config", "x.toml", "report", "render", "x"])
    assert done.exit_code == 2
    assert "No such option '--config'" in done.output
