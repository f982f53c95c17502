"""A shop that confirms each order by mail. It keeps its orders, and its jobs, in PostgreSQL or in MongoDB.

Which of the two says ``[persistence] scheduler``. ``python shop.py ann@example.org`` places an order;
``migrator scheduler run --handlers jobs:registry`` executes its jobs.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import psycopg
from bson import ObjectId
from pymongo import MongoClient

from jobs import confirmation, install
from migrator import Scheduler, Settings, Store, load_settings, open_store, prepare

TENANT = "shop"


class Shop(Protocol):
    """What the rest of the application sees of either database."""

    def place_order(self, customer: str) -> str:
        """Store an order, and queue the mail that confirms it; return the number of the order."""

    def orders(self) -> list[str]:
        """Return the numbers of all orders."""


class PostgresShop:
    """Orders in PostgreSQL: an order and its job are one transaction."""

    def __init__(self, connection: psycopg.Connection, scheduler: Scheduler) -> None:
        """Create the table of the shop, if it is not there."""
        self._connection, self._scheduler = connection, scheduler
        connection.execute("CREATE TABLE IF NOT EXISTS orders (id serial PRIMARY KEY, customer text NOT NULL)")
        connection.commit()

    def place_order(self, customer: str) -> str:
        """Store an order and queue its mail: both, or neither."""
        with self._connection.transaction():
            row = self._connection.execute(
                "INSERT INTO orders (customer) VALUES (%s) RETURNING id::text", (customer,)
            ).fetchone()
            assert row is not None
            order: str = row[0]
            self._scheduler.using(self._connection).schedule_once(confirmation(order, customer))
        return order

    def orders(self) -> list[str]:
        """Return the numbers of all orders."""
        return [order for (order,) in self._connection.execute("SELECT id::text FROM orders ORDER BY id")]


class MongoShop:
    """Orders in MongoDB: first the order, then its job, then the mark that it is queued.

    If the shop dies before the job, ``repair`` queues it. If it dies before the mark, and the job has ended by the next
    start, the mail is sent again: MongoDB has no transaction here that holds both.
    """

    def __init__(self, client: MongoClient[dict[str, Any]], database: str, scheduler: Scheduler) -> None:
        """Use the database of the scheduler."""
        self._orders, self._scheduler = client[database]["orders"], scheduler

    def place_order(self, customer: str) -> str:
        """Store an order, then queue its mail."""
        identity = self._orders.insert_one({"customer": customer}).inserted_id
        self._queue(identity, customer)
        return str(identity)

    def repair(self) -> None:
        """Queue the mails of orders that have none."""
        for document in self._orders.find({"queued": None}):
            if self._scheduler.get_by_name(f"confirm {document['_id']}") is None:
                self._queue(document["_id"], document["customer"])

    def orders(self) -> list[str]:
        """Return the numbers of all orders."""
        return [str(document["_id"]) for document in self._orders.find().sort("_id")]

    def _queue(self, identity: ObjectId, customer: str) -> None:
        self._scheduler.schedule_once(confirmation(str(identity), customer))
        self._orders.update_one({"_id": identity}, {"$set": {"queued": True}})


@contextmanager
def open_shop(settings: Settings, store: Store) -> Iterator[Shop]:
    """Open the shop in the database that ``[persistence] scheduler`` names."""
    scheduler = Scheduler(store, TENANT)
    install(scheduler)
    if settings.persistence.scheduler == "postgres":
        with psycopg.connect(settings.postgres.dsn or "") as connection:
            yield PostgresShop(connection, scheduler)
    else:
        with MongoClient[dict[str, Any]](settings.mongo.uri) as client:
            shop = MongoShop(client, settings.mongo.database or "shop", scheduler)
            shop.repair()
            yield shop


if __name__ == "__main__":
    own = load_settings()
    with open_store(own) as opened:
        prepare(opened)
        with open_shop(own, opened) as place:
            print("order", place.place_order(sys.argv[1]))
