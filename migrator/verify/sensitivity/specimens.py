"""Documents made for the purpose, where the sample lacks what a corruption needs: the demo's, trouble included.

They show what the verification sees, not what the data holds; the report says which classes were shown on them.
"""

from collections.abc import Iterator
from itertools import islice
from typing import Final

import bson

from migrator.embedded.demo import SEED, planted
from migrator.embedded.demo.contents import COLLECTIONS
from migrator.embedded.demo.plan import Counts, Plan
from migrator.verify.sensitivity.scratch import Scratch, filled

PROFILE: Final = "stellaops"
"""The profile whose documents they are."""
_COUNTS: Final = Counts(30, 60, 10, 30, 20, 20, 20, 30, 5, 3, 20, 40)
_MOST: Final = 60


def write_specimens(place: Scratch) -> int:
    """Write the specimens into the scratch source; return how many."""
    plan = Plan(seed=SEED, counts=_COUNTS, triggers=True)
    total = 0
    for name, documents in COLLECTIONS.items():
        raws = [*islice(documents(plan), _MOST), *(item.raw for item in planted(SEED) if item.collection == name)]
        total += filled(place.source, name, raws)
    return total + filled(place.source, "handlers", _handlers())


def _handlers() -> Iterator[bytes]:
    for number in range(3):
        yield bson.encode(
            {
                "_id": f"handler-{number}",
                "tenantId": "acme",
                "name": f"scan-{number}",
                "handlerType": "function",
                "handlerPath": "acme.tasks.scan",
            }
        )
