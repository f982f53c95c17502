"""How many documents a chunk has, and which columns a copy analyzes."""

import pytest

from migrator.config import TargetSettings
from migrator.pipeline.plan import SMALLEST_SHARED, shared_evenly
from migrator.pipeline.target import NativeTables
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
