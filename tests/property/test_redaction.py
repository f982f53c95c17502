"""Redaction: no piece of a generated secret leaves the process, wherever the secret stands and whatever it holds."""

import io
import json
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from migrator.config import CopySettings, HookSettings, MongoSettings, PostgresSettings, Settings, shown_value
from migrator.connections.mongo import open_source
from migrator.connections.postgres import open_login
from migrator.errors import ConfigurationError, MigratorError
from migrator.redaction import redact, redact_address, redact_all, redact_json, redact_line
from migrator.telemetry import VisibleStream
from tests.bad_input.calling import call

FIRST, LAST = "hunter2q", "x9zulu"
"""Both ends of every secret: what is between them may not let either of them through."""
ODD = " '\"@/:?#%&=;,\\()[]{}.-_~!$^|<>é"

ADDRESSES = {
    "login": "mongodb://u:{secret}@h:27017/db?replicaSet=rs0",
    "service": "mongodb+srv://u:{secret}@h/db",
    "PostgreSQL": "postgresql://u:{secret}@h/x?sslmode=require",
    "path": "mongodb:/u:{secret}@h",
    "key file": "mongodb://h/?tlsCertificateKeyFilePassword={secret}",
    "proxy": "mongodb://h/?proxyPassword={secret}&tls=true",
    "session token": "mongodb://h/?authMechanismProperties=AWS_SESSION_TOKEN:{secret}&tls=true",
    "option": "postgresql://h/d?password={secret}&sslmode=require",
    "DSN": "host=h password={secret} dbname=d",
    "quoted DSN": "host=h password='{quoted}' dbname=d",
    "quoted badly": "host=h password = '{secret}' dbname=d",
    "key of a DSN": "host=h sslpassword='{quoted}'",
}
secrets = st.text(ODD, max_size=4).map(lambda odd: f"{FIRST}{odd}{LAST}")
places = st.sampled_from(sorted(ADDRESSES))


def address(place: str, secret: str) -> str:
    quoted = secret.replace("\\", r"\\").replace("'", r"\'")
    return ADDRESSES[place].replace("{secret}", secret).replace("{quoted}", quoted)


def assert_hidden(text: str) -> None:
    assert FIRST not in text, text
    assert LAST not in text, text


@given(places, secrets)
def test_a_sentence_that_quotes_an_address(place: str, secret: str) -> None:
    for sentence in (
        f"cannot read {address(place, secret)}: no such file",
        f"unknown key mongo.{address(place, secret)} in config.toml; known: uri",
        address(place, secret),
    ):
        assert_hidden(redact(sentence))
        assert redact(redact(sentence)) == redact(sentence)
        assert_hidden(redact_line(sentence))
        assert_hidden(str(ConfigurationError(sentence)))
        assert_hidden(repr(ConfigurationError(sentence)))


@given(places, secrets)
def test_a_document_keeps_its_form(place: str, secret: str) -> None:
    value = {"a": [address(place, secret), 1.50], "mail": "a@b", address(place, secret): None}
    assert_hidden(json.dumps(redact_all(value)))
    for text in (json.dumps(value), json.dumps(value, ensure_ascii=False, indent=2)):
        hidden = redact_json(text)
        assert_hidden(hidden)
        assert json.loads(hidden) == redact_all(value)
    assert_hidden(redact_line(f"payload: {json.dumps(value)}"))


@given(places, secrets)
def test_settings(place: str, secret: str) -> None:
    given_address = address(place, secret)
    configured = Settings(
        mongo=MongoSettings(uri=given_address, uri_env=given_address, uri_file=given_address),
        postgres=PostgresSettings(dsn=given_address, dsn_env=given_address, dsn_file=given_address),
        hooks=HookSettings(parity_ended=["curl", "-H", secret], cutover_ended=[given_address]),
    )
    assert_hidden(repr(configured))
    assert_hidden(redact_address(given_address))
    for key in ("uri", "uri_env", "uri_file", "dsn", "dsn_env", "dsn_file", "mapping", "retention_archive"):
        assert_hidden(str(shown_value(key, given_address)))


@given(secrets)
def test_the_address_of_a_dask_scheduler(secret: str) -> None:
    assert_hidden(repr(Settings(copy=CopySettings(dask_scheduler=f"tls://u:{secret}@h:8786"))))
    assert_hidden(redact(f"copy.dask_scheduler: tls://u:{quote(secret, safe='')}@h:8786 is no address"))


@given(places, secrets)
def test_whatever_is_written_on_standard_error(place: str, secret: str) -> None:
    below = io.StringIO()
    stream = VisibleStream(below, redacting=True)
    stream.write(f"Traceback\n  {address(place, secret)}\nlast\n")
    stream.write(json.dumps({"event": address(place, secret), "mail": "a@b"}) + "\n")
    assert_hidden(below.getvalue())
    first, _, last, line, end = below.getvalue().split("\n")
    assert (first, last, end) == ("Traceback", "last", "")
    assert json.loads(line)["mail"] == "a@b"


def _nobody(text: str) -> str:
    """Return an address with the port of no server."""
    for host, other in (("@h", "@127.0.0.1:9"), ("//h/", "//127.0.0.1:9/"), ("host=h", "host=127.0.0.1 port=9")):
        text = text.replace(host, other)
    return text


@settings(max_examples=60, deadline=None)
@given(st.sampled_from([place for place in ADDRESSES if ADDRESSES[place].startswith("mongodb:")]), secrets)
def test_what_the_driver_of_mongodb_quotes(place: str, secret: str) -> None:
    mongo = MongoSettings(uri=_nobody(address(place, secret)), database="x", timeout=timedelta(milliseconds=1))
    with pytest.raises(MigratorError) as refused:
        open_source(Settings(mongo=mongo))
    assert_hidden(str(refused.value))


@settings(max_examples=60, deadline=None)
@given(places, secrets)
def test_what_libpq_quotes(place: str, secret: str) -> None:
    target = PostgresSettings(dsn=_nobody(address(place, secret)), timeout=timedelta(seconds=1))
    with pytest.raises(MigratorError) as refused:
        open_login(Settings(postgres=target))
    assert_hidden(str(refused.value))


@settings(max_examples=25, deadline=None)
@given(places, secrets, st.sampled_from([[], ["--json"], ["--log-format", "json"]]))
def test_the_command_line(place: str, secret: str, form: list[str]) -> None:
    written = address(place, secret)
    with TemporaryDirectory() as folder:
        file = Path(folder) / "config.toml"
        quoted = json.dumps(written, ensure_ascii=False)
        file.write_text(
            f"[mongo]\nuri = {quoted}\n[postgres]\ndsn = {quoted}\n[hooks]\nparity_ended = [{quoted}, {quoted}]\n",
            encoding="utf-8",
        )
        for arguments in (
            ["config", "show", "--config", str(file)],
            ["config", "check", "--config", str(file)],
            ["status", "--config", written],
            ["source", "check", f"{written}.toml", "--config", str(file)],
            ["status", f"--nonsense={written}"],
            ["status", written],
            ["backfill", "--workers", written, "--config", str(file)],
        ):
            assert_hidden(call([*arguments, *form], {"MIGRATOR_COPY__WORKERS": written}).text)
            assert_hidden(call([*arguments, *form], {}).text)


@pytest.mark.parametrize(
    "text",
    [
        "the source cannot be reached: db:27017 (mongodb://db:27017/x?replicaSet=rs0)",
        "the target refuses the user or the password of postgres.dsn",
        "mongo.uri_file cannot be read: /run/secrets/token: no such file or directory",
        "https://example.org/a told ops@example.org",
        "host=db user=anna dbname=x",
    ],
)
def test_what_holds_no_secret_stays(text: str) -> None:
    assert redact(text) == text


@pytest.mark.parametrize("place", sorted(ADDRESSES))
def test_the_judge_sees_what_is_not_hidden(place: str) -> None:
    with pytest.raises(AssertionError):
        assert_hidden(address(place, FIRST + LAST))
