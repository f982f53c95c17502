"""Real-shaped data of the ``stellaops`` profile, and the trouble planted in it.

Deterministic: a size and a seed always give the same bytes. ``seed`` writes a database, ``planted`` is the manifest of
what is wrong in it, with what the tool must make of each.
"""

from migrator.embedded.demo.contents import COLLECTIONS, plan_of
from migrator.embedded.demo.plan import Plan, Size
from migrator.embedded.demo.planted import Planted, planted
from migrator.embedded.demo.seed import SEED, insert, seed

__all__ = ["COLLECTIONS", "SEED", "Plan", "Planted", "Size", "insert", "plan_of", "planted", "seed"]
