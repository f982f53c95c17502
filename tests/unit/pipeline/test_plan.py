"""How many documents a chunk has, and which columns a copy analyzes."""

import pytest

from migrator.config import CopySettings, Settings, TargetSettings
from migrator.pipeline.extract import SourceCollection
from migrator.pipeline.ledger import Chunk
from migrator.pipeline.plan import SMALLEST_SHARED, bounds_of, shared_evenly
from migrator.pipeline.target import NativeTables
from migrator.sources import stellaops
from migrator.targets import load_target


@pytest.mark.parametrize(
    ("documents", "most", "shares", "size"),
    [
        (60_000, 20_000, 2, 15_000),  # three chunks would leave one worker without work for a third of the time
        (60_001, 20_000, 2, 15_001),
        (80_000, 20_000, 2, 20_000),
        (300_000, 20_000, 2, 18_750),
        (20_001, 20_000, 3, 6_667),
        (60_000, 20_000, 1, 20_000),
        (20_000, 20_000, 2, 20_000),  # one chunk: worker processes are not started for it
        (25, 10, 2, 10),  # smaller chunks would cost more than they balance
        (20_001, 20_000, 8, 20_000),
        (0, 20_000, 2, 20_000),
    ],
)
def test_a_chunk_has_as_many_documents_as_give_each_worker_the_same_number_of_chunks(
    documents: int, most: int, shares: int, size: int
) -> None:
    assert shared_evenly(most, documents, shares) == size
    chunks = -(-documents // size)
    assert size <= most
    assert chunks % shares == 0 or size == most or size < SMALLEST_SHARED


@pytest.mark.parametrize(
    ("estimated", "documents", "known"),
    [
        (20_000, 50_000, True),
        (11_000, 50_000, True),
        (8_000, 50_000, False),  # so small that chunks cost more than they must
        (21_000, 50_000, False),  # larger than a chunk may be
        (20_000, 120_000, True),
        (20_000, 121_000, False),  # most documents came later, perhaps all into one chunk
    ],
)
def test_keys_of_a_copy_are_used_where_chunks_of_about_their_size_would_be_made(
    estimated: int, documents: int, *, known: bool
) -> None:
    settings = Settings(copy=CopySettings(workers=1, chunk_documents=20_000))
    name = stellaops.PROFILE.collections[0].name
    chunks = [_chunk("other", b"z", 5), *(_chunk(name, upper, estimated) for upper in (b"a", b"b", None))]
    source = SourceCollection(
        collection=stellaops.PROFILE.collections[0], name=name, documents=documents, average_bytes=100.0
    )
    assert bounds_of(chunks, source, settings) == ([b"a", b"b"] if known else [])


def _chunk(collection: str, upper: bytes | None, estimated: int) -> Chunk:
    return Chunk(
        collection=collection, ordinal=0, lower=None, upper=upper, estimated=estimated, average_bytes=9, mode="direct"
    )


def test_a_copy_analyzes_no_column_of_whole_documents_or_pickles() -> None:
    agenda, apscheduler = load_target("agenda"), load_target("apscheduler")
    (library, columns), _ = NativeTables(agenda, TargetSettings(name="agenda")).analyzed(
        agenda.by_name["agenda_jobs"].record
    )
    assert library.as_string(None) == '"public"."agenda_jobs"'
    assert {"id", "name", "next_run_at"} <= set(columns)
    assert not {"data", "skip_days"} & set(columns)
    (_, columns), _ = NativeTables(apscheduler, TargetSettings(name="apscheduler")).analyzed(
        apscheduler.by_name["apscheduler_jobs"].record
    )
    assert columns == ["id", "next_run_time"]
