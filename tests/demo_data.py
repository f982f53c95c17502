"""A quarter of the demo's smallest data with all its planted faults, for tests that copy everything again and again."""

from itertools import chain
from typing import Any

from pymongo.database import Database

from migrator.testing.demo import SEED, faulty_documents
from migrator.testing.demo.plan import Counts, Plan
from migrator.testing.demo.seed import COLLECTIONS, insert

COUNTS = Counts(100, 2_500, 150, 650, 375, 250, 300, 350, 15, 3, 250, 100)


def seed_quarter(database: Database[Any]) -> None:
    """Write the documents into an empty database."""
    plan, faulty = Plan(seed=SEED, counts=COUNTS), faulty_documents(SEED)
    for name, documents in COLLECTIONS.items():
        insert(database[name], chain(documents(plan), (one.raw for one in faulty if one.collection == name)))
