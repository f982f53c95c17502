"""What is wrong in the demo's data, and what must become of each document.

The manifest is the same for every size, so that a reader of the report can follow every single one of them.
"""

from migrator.embedded.demo.planted.identity import ids
from migrator.embedded.demo.planted.item import DEFAULT_SEED, Nursery, Planted
from migrator.embedded.demo.planted.raw import huge_document, raw_documents
from migrator.embedded.demo.planted.references import references
from migrator.embedded.demo.planted.spellings import spellings
from migrator.embedded.demo.planted.times import times
from migrator.embedded.demo.planted.values import values

__all__ = ["Planted", "planted"]


def planted(seed: int = DEFAULT_SEED, *, huge: bool = False) -> tuple[Planted, ...]:
    """Return every planted document; ``huge`` adds one close to MongoDB's limit of 16 MB."""
    nursery = Nursery(seed)
    makers = (references, times, values, spellings, ids, raw_documents)
    items = [item for maker in makers for item in maker(nursery)]
    if huge:
        items.append(huge_document(nursery))
    return tuple(items)
