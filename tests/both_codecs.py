"""Documents through both codecs: what the native one takes must be what the Python one makes of it."""

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from migrator.pipeline.references import UncheckedResolver
from migrator.pipeline.transform import ReadBatch, transform_documents
from migrator.records import EMPTY
from migrator.sources.mapping.native_plan import NativeReader
from migrator.sources.profile import Collection, Context
from migrator.values.copy_format import codec
from tests import native_codec


class Compared(NamedTuple):
    """What became of a batch."""

    plain: list[int]
    """Positions of the documents that the native codec took."""
    handed: list[int]
    clean: list[int]
    """Positions of the documents that the Python codec carries without a finding and without a remainder."""
    remainders: dict[int, bytes]
    """Of the documents that the native codec took: position to remainder, where there is one."""


def native_reader(collection: Collection, context: Context) -> NativeReader:
    """Return the native codec of a collection that must have one."""
    native_codec.needed()
    assert collection.native is not None
    found: NativeReader | None = collection.native(context)
    assert found is not None
    return found


def compare(collection: Collection, context: Context, raws: Sequence[bytes]) -> Compared:
    """Read a batch with both codecs; fail where they disagree about a document that the native one took."""
    native_reader(collection, context)
    batch = b"".join(raws)
    read_once = ReadBatch(collection, context, UncheckedResolver(), batch)  # what it takes may differ the second time
    read: Any = read_once._rows
    taken: dict[int, list[bytes]] = {}
    for table in read.tables:
        for index, document in enumerate(table.positions()):
            taken.setdefault(document, []).append(table.row_bytes(index))
    assert sorted([*taken, *read.handed]) == list(range(len(raws)))
    remainders, counted = dict(read.remainders), Counter[tuple[str, str, str]]()
    assert len(remainders) == len(read.remainders)
    clean: list[int] = []
    whole = 0
    for position, document in enumerate(transform_documents(collection, context, UncheckedResolver(), batch)):
        assert read.raw(position) == document.raw == raws[position]
        if document.serialized and not document.notes and document.remainder == b"{}" and not document.links:
            clean.append(position)
        if position not in taken:
            continue
        assert document.serialized, document
        assert not document.notes, document
        assert not document.links, document
        assert document.remainder == remainders.get(position, EMPTY), document
        counted.update(document.counted)
        whole += document.clean
        for expected, row in zip(document.serialized, taken[position], strict=True):
            kind = codec(type(expected.record))
            assert kind.equal((expected.head, expected.tail), row), kind.differing((expected.head, expected.tail), row)
    assert read_once.counts() == (len(taken), whole, counted)
    return Compared(sorted(taken), list(read.handed), clean, remainders)
