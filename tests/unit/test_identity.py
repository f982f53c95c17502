"""What an installation is called, and the digest of its settings."""

import pytest

from migrator.config import CutoverSettings, MongoSettings, PostgresSettings, Settings
from migrator.connections.identity import environment_name, settings_digest


def settings(dsn: str | None = None, **more: object) -> Settings:
    return Settings(postgres=PostgresSettings(dsn=dsn), **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("dsn", "name"),
    [
        ("postgresql://tool:secret@db.example.org:5433/scheduler", "scheduler@db.example.org"),
        ("host=/var/run/postgresql dbname=jobs", "jobs@this machine"),
        ("service=production", "service production"),
        ("user=only", "only@this machine"),
        (None, "not named"),
        ("no dsn", "not named"),
    ],
)
def test_an_environment_is_called_by_database_and_host(dsn: str | None, name: str) -> None:
    assert environment_name(settings(dsn)) == name


def test_a_name_that_was_given_counts() -> None:
    assert environment_name(settings("dbname=jobs", cutover=CutoverSettings(environment="production"))) == "production"


def test_the_digest_is_of_the_settings_and_not_of_their_secrets() -> None:
    def digest(password: str, host: str = "h") -> str:
        uri = f"mongodb://tool:{password}@{host}/db"
        return settings_digest(settings(f"host={host} password={password}", mongo=MongoSettings(uri=uri)))

    assert digest("one") == digest("two")
    assert digest("one") != digest("one", "other")
    assert len(digest("one")) == 64
