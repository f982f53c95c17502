"""The settings: what the example says, what the environment overrides, what is refused, and what is never shown."""

import ast
import re
import subprocess
import sys
import tomllib
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from migrator import config
from migrator.config import (
    MongoSettings,
    PostgresSettings,
    Settings,
    effective_settings,
    known_keys,
    load_settings,
    load_with_exposed_files,
    mongo_uri,
    postgres_dsn,
    settings_tree,
)
from migrator.durations import NONE, parse_duration
from migrator.errors import ConfigurationError
from migrator.redaction import redact

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "config.example.toml"
SECRET = "correct-horse"


def example() -> dict[str, dict[str, tuple[bool, str]]]:
    """Return section → key → whether it is active, and its value as written."""
    found: dict[str, dict[str, tuple[bool, str]]] = {}
    section = ""
    for line in EXAMPLE.read_text().splitlines():
        if head := re.fullmatch(r"\[(\w+)\]", line):
            section = head[1]
            found[section] = {}
        elif key := re.fullmatch(r"(# )?(\w+) = (.+)", line):
            assert key[2] not in found[section], f"{section}.{key[2]} is shown twice"
            found[section][key[2]] = (key[1] is None, key[3])
    return found


def defaults() -> dict[str, dict[str, Any]]:
    return {
        section: {key: getattr(getattr(Settings(), section), key) for key in keys}
        for section, keys in known_keys().items()
    }


def written(tmp_path: Path, text: str) -> str:
    path = tmp_path / "config.toml"
    path.write_text(text)
    path.chmod(0o600)
    return str(path)


# The example


@pytest.mark.proves("0-T2.10.3")
def test_every_key_is_in_the_example_and_every_key_of_the_example_exists() -> None:
    assert {section: tuple(keys) for section, keys in example().items()} == known_keys()


def test_the_example_is_the_defaults() -> None:
    assert load_settings(str(EXAMPLE), {}) == Settings()
    active = {(section, key) for section, keys in example().items() for key, (on, _) in keys.items() if on}
    assert active == {
        (section, key) for section, keys in defaults().items() for key, value in keys.items() if value is not None
    }


def test_every_value_of_the_example_is_legal(tmp_path: Path) -> None:
    for section, keys in example().items():
        for key, (_, value) in keys.items():
            found = load_settings(written(tmp_path, f"[{section}]\n{key} = {value}\n"), {})
            shown = tomllib.loads(f"v = {value}")["v"]
            meant = getattr(getattr(found, section), key)
            assert meant == (parse_duration(shown, least=NONE) if isinstance(meant, timedelta) else shown)


def test_every_key_of_the_example_has_a_comment() -> None:
    blocks = [block.splitlines() for block in EXAMPLE.read_text().split("\n\n")]
    silent = []
    for block in blocks:
        keys = [line for line in block if re.match(r"(# )?\w+ = ", line)]
        if keys and not (block[0].startswith("# ") and block[0] not in keys):
            silent.append(keys)
    assert silent == []


@pytest.mark.proves("0-T2.10.3")
def test_every_key_is_read_somewhere() -> None:
    """A documented key that nothing reads would be a promise: it is read from its section, or from settings."""
    read: dict[str, set[str]] = {}
    for path in (ROOT / "migrator").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                whose = getattr(node.value, "attr", getattr(node.value, "id", ""))
                own = path.name == "config.py" and whose == "self"
                read.setdefault(node.attr, set()).add("own" if own else whose)
    settings = {"own", "settings", "_settings"}
    assert not [
        f"{section}.{key}"
        for section, keys in known_keys().items()
        for key in keys
        if not read.get(key, set()) & {section, *settings}
    ]


# The environment


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("MIGRATOR_MONGO__URI", "mongodb://elsewhere", "mongodb://elsewhere"),
        ("MIGRATOR_MONGO__TIMEOUT", "250ms", timedelta(milliseconds=250)),
        ("MIGRATOR_CUTOVER__WINDOW", "0s", timedelta(0)),
        ("MIGRATOR_SOURCE__CARRY_EXPIRED_LOCKS", "true", True),
        ("MIGRATOR_SOURCE__DEFAULT_TENANT", "007", "007"),
        ("MIGRATOR_SOURCE__COLLECTIONS", '{agendaJobs = "jobs"}', {"agendaJobs": "jobs"}),
        ("MIGRATOR_EMBEDDED__POSTGRES_VERSION", "16", 16),
        ("MIGRATOR_PERSISTENCE__SCHEDULER", "postgres", "postgres"),
    ],
)
def test_the_environment_overrides_the_file(name: str, text: str, expected: object, tmp_path: Path) -> None:
    section, _, key = name.removeprefix(config.PREFIX).lower().partition("__")
    file = written(tmp_path, '[mongo]\nuri = "mongodb://file"\ntimeout = "9s"\n')
    assert getattr(getattr(load_settings(file, {name: text}), section), key) == expected


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("MIGRATOR_MONGO__URI", "mongodb://caf\udce9", "mongo.uri: expected text in UTF-8"),
        ("MIGRATOR_MONGO__DATABASE", "caf\udce9", "mongo.database: expected text in UTF-8"),
        ("MIGRATOR_SOURCE__COLLECTIONS", '{a = "\udcff"}', "source.collections: expected text in UTF-8"),
        ("MIGRATOR_SOURCE__COLLECTIONS", '{"\\u0000" = "a"}', "source.collections: expected text without the charac"),
        ("MIGRATOR_SCHEDULER__QUEUES", '["a", "\\u0000"]', "scheduler.queues: expected text without the character NUL"),
        ("MIGRATOR_COPY__CHUNK_BYTES", str(10**30), "copy.chunk_bytes: expected a number of at most 2147483647"),
        ("MIGRATOR_MONGO__TIMEOUT", f"{10**30}s", 'mongo.timeout: expected a duration of at most "24d"'),
        ("MIGRATOR_SCHEDULER__LEASE", f"{10**18}ms", 'scheduler.lease: expected a duration of at most "24d"'),
        ("MIGRATOR_COPY__WORKERS", "inf", "copy.workers: expected a number of at most 2147483647"),
    ],
)
def test_what_no_driver_could_take_is_refused(name: str, text: str, expected: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=f"setting at {expected}"):
        load_settings(written(tmp_path, ""), {name: text})


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"mongodb://caf\xe9", "cannot be read: .*: expected text in UTF-8"),
        (b"a\0b", "expected text without the character NUL"),
    ],
)
def test_a_file_with_an_address_that_is_no_text_is_refused(content: bytes, why: str, tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_bytes(content)
    with pytest.raises(ConfigurationError, match=f"mongo.uri.*{why}"):
        mongo_uri(Settings(mongo=MongoSettings(uri_file=str(file))), {})
    with pytest.raises(ConfigurationError, match=f"postgres.dsn.*{why}"):
        postgres_dsn(Settings(postgres=PostgresSettings(dsn_file=str(file))), {})


def test_a_variable_with_an_address_that_is_no_text_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"mongo\.uri: expected text in UTF-8"):
        mongo_uri(Settings(mongo=MongoSettings(uri_env="X")), {"X": "mongodb://\udcff"})
    with pytest.raises(ConfigurationError, match=r"postgres\.dsn: expected text in UTF-8"):
        postgres_dsn(Settings(postgres=PostgresSettings(dsn_env="X")), {"X": "postgresql://\udcff"})


def test_the_rest_of_the_environment_is_not_looked_at(tmp_path: Path) -> None:
    environment = {"MIGRATOR_TRACEBACK": "1", "MIGRATOR_MONGO_URI": "mongodb://other", "MONGO__URI": "mongodb://other"}
    assert load_settings(written(tmp_path, ""), environment) == Settings()


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("MIGRATOR_MONGODB__URI", "x", "unknown section [mongodb] in the environment; did you mean mongo?"),
        ("MIGRATOR_MONGO__URL", "x", "unknown key mongo.url in the environment; did you mean uri?"),
        ("MIGRATOR_COPY__WORKERS", "many", "setting at copy.workers: expected `int`, got `str`"),
        ("MIGRATOR_COPY__EXECUTOR", "cloud", "setting at copy.executor: expected one of local, dask; it is in"),
    ],
)
def test_a_wrong_variable_is_refused_by_name(name: str, text: str, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load_settings(written(tmp_path, ""), {name: text})
    assert str(caught.value).startswith(sentence)


# What is refused


def test_settings_are_built_of_sections_and_checked_like_a_file() -> None:
    sections: dict[str, dict[str, Any]] = {"postgres": {"dsn": "service=a"}, "scheduler": {"poll": "50ms"}}
    found = load_settings(sections, {"MIGRATOR_SCHEDULER__POLL": "70ms"})
    assert (found.postgres.dsn, found.scheduler.poll) == ("service=a", timedelta(milliseconds=70))
    assert sections["scheduler"] == {"poll": "50ms"}
    for wrong, words in (
        ({"mong": {}}, "unknown section [mong] in the given sections; did you mean mongo?"),
        ({"mongo": 3}, "mongo in the given sections must be a section, not a value"),
        (
            {"scheduler": {"poll": timedelta(0)}},
            'setting at scheduler.poll: expected a duration of at least "1ms"; it is in the given sections',
        ),
    ):
        with pytest.raises(ConfigurationError) as caught:
            load_settings(cast("Any", wrong), {})
        assert str(caught.value).startswith(words)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[mong]\nuri = 'x'\n", "unknown section [mong] in {file}; did you mean mongo?"),
        ("[copy]\nworker = 2\n", "unknown key copy.worker in {file}; did you mean workers?"),
        ("[scheduler]\npoll_ms = 2\n", "unknown key scheduler.poll_ms in {file}; did you mean poll?"),
        ("[cutover]\nwindow_hours = 2\n", "unknown key cutover.window_hours in {file}; did you mean window?"),
        (
            "[report]\nzzz = 2\n",
            "unknown key report.zzz in {file}; known: directory, max_differences",
        ),
        ("mongo = 3\n", "mongo in {file} must be a section, not a value"),
        ("[copy\n", "{file} is not TOML: "),
        (
            "[copy]\nworkers = 257\n",
            "setting at copy.workers: expected `int` <= 256; it is in {file}",
        ),
        (
            "[embedded]\npostgres_version = 17\n",
            "setting at embedded.postgres_version: expected one of 15, 16, 18; it is in {file}",
        ),
        ("[postgres]\nservice_role = 'a b'\n", "setting at postgres.service_role: expected `str` matching regex"),
    ],
)
def test_a_wrong_file_is_refused_with_the_place(text: str, sentence: str, tmp_path: Path) -> None:
    file = written(tmp_path, text)
    with pytest.raises(ConfigurationError) as caught:
        load_settings(file, {})
    assert str(caught.value).startswith(sentence.format(file=file))
    assert not str(caught.value).endswith(".")


DURATION = 'expected a duration with its unit, such as "500ms", "30s", "5m", "2h" or "7d"'


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("30", f"{DURATION}, not a number alone"),
        ("0", f"{DURATION}, not a number alone"),
        ("-30", f"{DURATION}, not a number alone"),
        ("0.5", f"{DURATION}, not a number alone"),
        ("inf", DURATION),
        ("1000000000000", DURATION),
        ("true", DURATION),
        ("[]", DURATION),
        ("2026-01-01", DURATION),
        ("02:00:00", DURATION),
        ('"30"', f"{DURATION}; a number alone is in no unit"),
        ('"-30s"', f"{DURATION}, not a negative one"),
        ('"5min"', f'{DURATION}, not "min"'),
        ('"0s"', 'expected a duration of at least "1ms"'),
        ('"25d"', 'expected a duration of at most "24d"'),
    ],
)
def test_a_duration_in_the_file_is_text_with_its_unit(value: str, why: str, tmp_path: Path) -> None:
    file = written(tmp_path, f"[copy]\npatience = {value}\n")
    with pytest.raises(ConfigurationError) as caught:
        load_settings(file, {"MIGRATOR_MONGO__TIMEOUT": "1s"})
    assert str(caught.value) == f"setting at copy.patience: {why}; it is in {file}"


@pytest.mark.parametrize(
    ("key", "text", "why"),
    [
        ("patience", "300", f"{DURATION}; a number alone is in no unit"),
        ("patience", "5 minutes", DURATION),
        ("chunk_bytes", "1", "expected `int` >= 1024"),
    ],
)
def test_a_wrong_variable_is_named_though_the_file_has_the_key_too(
    key: str, text: str, why: str, tmp_path: Path
) -> None:
    file = written(tmp_path, '[copy]\npatience = "1s"\nchunk_bytes = 2000\n')
    variable = f"MIGRATOR_COPY__{key.upper()}"
    with pytest.raises(ConfigurationError) as caught:
        load_settings(file, {variable: text})
    assert str(caught.value) == f"setting at copy.{key}: {why}; it is in {variable}"


def test_the_time_limit_of_a_connection_to_postgresql_is_in_seconds_as_that_of_libpq() -> None:
    with pytest.raises(ConfigurationError, match=r'postgres\.timeout: expected a duration of at least "1s"'):
        load_settings({"postgres": {"timeout": "500ms"}}, {})


def test_no_key_names_a_unit_and_every_length_of_time_has_limits() -> None:
    values = defaults()
    names = [key for keys in values.values() for key in keys]
    assert not [name for name in names if re.search(r"_(ms|s|seconds|minutes|hours|days)$", name)]
    lengths = [(section, key) for section, keys in values.items() for key in keys if isinstance(keys[key], timedelta)]
    assert len(lengths) >= 21
    for section, key in lengths:
        with pytest.raises(ConfigurationError, match=f"setting at {section}.{key}: expected a duration of at most"):
            load_settings({section: {key: timedelta(days=40_000)}}, {})


def test_settings_written_as_sections_are_read_back() -> None:
    given = {"scheduler": {"poll": "1h30m", "retention_from": "2026-12-01"}, "copy": {"patience": "1500ms"}}
    settings = load_settings(given, {})
    tree = settings_tree(settings)
    assert (tree["scheduler"]["poll"], tree["copy"]["patience"], tree["cutover"]["window"]) == ("90m", "1500ms", "2d")
    assert load_settings(tree, {}) == settings


def test_a_file_that_is_named_must_exist_and_the_usual_one_need_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert load_settings(None, {}) == Settings()
    with pytest.raises(ConfigurationError, match=r"^no configuration file absent\.toml; config\.example\.toml shows"):
        load_settings("absent.toml", {})
    (tmp_path / "config.toml").write_bytes(b"\xff")
    with pytest.raises(ConfigurationError, match=r"^cannot read config\.toml: expected text in UTF-8; byte 0 is not$"):
        load_settings(None, {})


def test_the_usual_file_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path, "[copy]\nworkers = 3\n")
    monkeypatch.chdir(tmp_path)
    assert load_settings(None, {}).copy.workers == 3


# References to secrets

SIDES = {"mongo.uri": mongo_uri, "postgres.dsn": postgres_dsn}


def settings_with(name: str, **values: str) -> Settings:
    section, _, key = name.partition(".")
    return msgspec.convert({section: {key + suffix: value for suffix, value in values.items()}}, Settings)


@pytest.mark.parametrize("name", SIDES)
def test_a_secret_may_stand_in_the_file_in_a_variable_or_in_a_file_of_its_own(name: str, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(f" {SECRET}\n")
    resolve = SIDES[name]
    assert resolve(settings_with(name, **{"": SECRET}), {}) == SECRET
    assert resolve(settings_with(name, _env="NAMED"), {"NAMED": SECRET}) == SECRET
    assert resolve(settings_with(name, _file=str(tmp_path / "secret")), {}) == SECRET


@pytest.mark.parametrize("said", ["", "_env", "_file"])
@pytest.mark.parametrize("variable", ["", "_env", "_file"])
@pytest.mark.parametrize("name", SIDES)
def test_a_variable_replaces_whatever_the_file_says_of_an_address(
    name: str, variable: str, said: str, tmp_path: Path
) -> None:
    section, _, key = name.partition(".")
    (tmp_path / "secret").write_text(SECRET)
    values = {"": SECRET, "_env": "NAMED", "_file": str(tmp_path / "secret")}
    file = tmp_path / "config.toml"
    file.write_text(f"[{section}]\n{key}{said} = 'of the file'\n")
    environment = {"NAMED": SECRET, f"MIGRATOR_{section.upper()}__{key.upper()}{variable.upper()}": values[variable]}
    assert SIDES[name](load_settings(file, environment), environment) == SECRET
    origins = {one.key: one.origin for one in effective_settings(str(file), environment)}
    assert str(file) not in origins.values(), "nothing of the file is in force"
    twice = environment | {f"MIGRATOR_{section.upper()}__{key.upper()}{other}": "x" for other in ("", "_ENV")}
    with pytest.raises(ConfigurationError, match=f"{name} is given more than once"):
        SIDES[name](load_settings(str(file), twice), twice)


@pytest.mark.parametrize("name", SIDES)
def test_a_secret_that_cannot_be_found_says_where_was_looked(name: str) -> None:
    section, _, key = name.partition(".")
    resolve = SIDES[name]
    cases = {
        f"{name}_env names the environment variable NAMED, which is not set": {"_env": "NAMED"},
        f"{name}_file cannot be read: absent: no such file or directory": {"_file": "absent"},
        f"{name} is not set; looked in [{section}] of the configuration file and in "
        f"MIGRATOR_{section.upper()}__{key.upper()}, {name}_env, {name}_file": {},
        f"{name} is given more than once; keep one of {name}, {name}_env, {name}_file": {"": "a", "_env": "b"},
    }
    for sentence, values in cases.items():
        with pytest.raises(ConfigurationError) as caught:
            resolve(settings_with(name, **values), {})
        assert str(caught.value) == sentence


@pytest.mark.parametrize(
    "text",
    [
        f"cannot connect to mongodb://anna:{SECRET}@db:27017/x?replicaSet=r",
        f"mongodb+srv://anna:{SECRET}@db/x",
        f"postgresql://anna:{SECRET}@db/x and postgres://anna:{SECRET}@db/x",
        f"host=db user=anna password={SECRET} dbname=x",
        f"host=db password = '{SECRET} and more' dbname=x",
        f"sslpassword={SECRET}",
        f"PASSWORD: {SECRET}",
    ],
)
def test_credentials_are_taken_out_of_what_is_said(text: str) -> None:
    said = redact(text)
    assert SECRET not in said
    assert "and more" not in said
    assert "***" in said


def test_what_is_no_credential_stays() -> None:
    text = "the source cannot be reached: db:27017 (mongodb://db:27017/x?replicaSet=rs0)"
    assert redact(text) == text


@pytest.mark.parametrize(
    ("command", "sections"),
    [
        ("inspect", {"mongo": f'uri = "mongodb://anna:{SECRET}@127.0.0.1:9/x"\ntimeout = "100ms"'}),
        ("inspect", {"mongo": f'uri = "mongodb://anna:{SECRET}@127.0.0.1:port/x"'}),
        ("inspect", {"mongo": f'uri = "mongodb://anna:{SECRET}@127.0.0.1:9/x?nonsense=1"\ntimeout = "100ms"'}),
        ("status", {"postgres": f'dsn = "postgresql://anna:{SECRET}@127.0.0.1:9/x"'}),
        ("status", {"postgres": f'dsn = "host=127.0.0.1 port=9 password={SECRET}"'}),
        ("status", {"postgres": f'dsn = "host=127.0.0.1 port=9 passwort={SECRET}"'}),
    ],
)
def test_no_command_echoes_a_secret(command: str, sections: dict[str, str], tmp_path: Path) -> None:
    file = written(tmp_path, "".join(f"[{name}]\n{text}\n" for name, text in sections.items()))
    done = subprocess.run(
        [sys.executable, "-m", "migrator", command, "--config", file], capture_output=True, text=True, check=False
    )
    assert done.returncode in (2, 16), done.stderr
    assert done.stdout == ""
    assert done.stderr.startswith("migrator: ")
    assert len(done.stderr.splitlines()) == 1, "one line, and no warning of a library"
    assert SECRET not in done.stderr


AMBIGUOUS = [
    "postgresql://u:p@hunter2@host/x",
    "postgresql://u:hunter2/p@host/x",
    "postgres://u:1234/hunter2@host/x",
    "mongodb://u:p@hunter2@host/x",
    "mongodb+srv://u:hunter2/p@host/",
]


@pytest.mark.parametrize("uri", AMBIGUOUS)
def test_a_uri_that_a_driver_would_split_inside_the_password_is_refused_without_it(uri: str) -> None:
    for name, call, settings in (
        ("mongo.uri", mongo_uri, Settings(mongo=MongoSettings(uri=uri))),
        ("postgres.dsn", postgres_dsn, Settings(postgres=PostgresSettings(dsn=uri))),
    ):
        with pytest.raises(ConfigurationError) as refused:
            call(settings)
        assert str(refused.value) == (
            f"{name} holds an @ or a / that belongs to a user, a password or a database and is not percent-encoded:"
            " write @ as %40 and / as %2F"
        )


@pytest.mark.parametrize(
    "uri",
    [
        "postgresql://u:p%40hunter2%2F@host/x",
        "postgresql://host/x?user=me@server",
        "postgresql:///x?host=/var/run/@socket",
        "host=h user=u@h password=a/b@c",
        "service=target",
        "mongodb://u:p@one:1,two:2/x?appName=a@b",
        "mongodb://host/?replicaSet=rs0",
    ],
)
def test_other_uris_are_left_alone(uri: str) -> None:
    assert postgres_dsn(Settings(postgres=PostgresSettings(dsn=uri))) == uri
    assert mongo_uri(Settings(mongo=MongoSettings(uri=uri))) == uri


def test_a_secret_file_that_everybody_may_read_is_told(tmp_path: Path) -> None:
    secret = tmp_path / "uri"
    secret.write_text("mongodb://u:hunter2@h/")
    file = tmp_path / "config.toml"
    for text, mode, told in (
        (f"[mongo]\nuri_file = {str(secret)!r}\n", 0o644, [secret]),
        (f"[mongo]\nuri_file = {str(secret)!r}\n", 0o640, []),
        ('[mongo]\nuri = "mongodb://u:hunter2@h/"\n', 0o644, [file]),
        ('[postgres]\ndsn = "host=h password=hunter2"\n', 0o644, [file]),
        ('[mongo]\nuri = "mongodb://h/"\n', 0o644, []),
        ('[mongo]\nuri_env = "URI"\n', 0o644, []),
    ):
        file.write_text(text)
        file.chmod(mode)
        secret.chmod(mode)
        assert load_with_exposed_files(str(file), {})[1] == told, text


def test_a_value_of_the_environment_with_more_than_one_line_is_refused() -> None:
    for text in ("4\nchunk_documents = 7", "4\n[mongo]\nuri = 'x'"):
        with pytest.raises(ConfigurationError, match=r"copy\.workers: the value has more than one line"):
            load_settings(environment={"MIGRATOR_COPY__WORKERS": text})
