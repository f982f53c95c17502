"""Losses by name: what the tables cannot hold of a document, by the words of its mapping.

The remainder keeps such a value, so that the document can be rebuilt, but the library whose tables these are does not
see it. Each is declared (``Collection.lost``), counted as a finding, and no difference.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from migrator.pipeline.references import UncheckedResolver
from migrator.pipeline.transform import transform_documents
from migrator.result import NAMED_LOSS
from migrator.sources.profile import Collection, Context


class NamedLoss(msgspec.Struct, frozen=True, order=True, kw_only=True):
    """A value that the tables cannot hold, and how many documents have it."""

    collection: str
    path: str
    reason: str
    documents: int
    sample: int
    """Of how many documents these were counted."""


def named_losses(collection: Collection, counts: Iterable[tuple[str, str, int]], sample: int) -> Iterator[NamedLoss]:
    """Yield the losses among counted findings: kind, path and number of documents."""
    for kind, path, documents in sorted(counts):
        if kind == NAMED_LOSS:
            yield NamedLoss(
                collection=collection.name,
                path=path,
                reason=collection.lost[path].reason if path in collection.lost else "",
                documents=documents,
                sample=sample,
            )


def sampled(collection: Collection, context: Context, raws: Sequence[bytes]) -> tuple[NamedLoss, ...]:
    """Return the losses in a sample of documents."""
    counts: Counter[tuple[str, str]] = Counter()
    for document in transform_documents(collection, context, UncheckedResolver(), b"".join(raws)):
        if document.serialized:
            counts.update((kind, path) for group, kind, path in document.counted if group == "finding")
    return tuple(named_losses(collection, ((*key, count) for key, count in counts.items()), len(raws)))
