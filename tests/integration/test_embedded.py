"""Servers of one's own: they start, they are what they claim to be, they go when their owner goes."""

import psycopg
from pymongo.database import Database

from migrator.embedded.postgres import PostgresServer


def test_every_postgres_answers_with_its_version(any_postgres: PostgresServer, any_postgres_dsn: str) -> None:
    with psycopg.connect(any_postgres_dsn) as connection:
        assert connection.info.server_version // 10_000 == any_postgres.version


def test_mongo_answers(mongo_database: Database[dict[str, object]]) -> None:
    assert mongo_database.client.server_info()["version"] == "6.0.27"
