"""Real-shaped data of the ``stellaops`` profile, and the faults planted in it.

Deterministic: a size and a seed always give the same bytes. ``seed`` writes a database, ``planted`` is the manifest of
what is wrong in it, with what the tool must make of each.
"""

from migrator.testing.demo.faults import FaultyDocument, faulty_documents
from migrator.testing.demo.plan import Plan, Size
from migrator.testing.demo.seed import COLLECTIONS, SEED, insert, plan_of, seed

__all__ = ["COLLECTIONS", "SEED", "FaultyDocument", "Plan", "Size", "faulty_documents", "insert", "plan_of", "seed"]
