"""Summaries are added up in SQL: by the same rule of what counts as in Python, whatever stats hold."""

import msgspec

from migrator.store.transitions import TOTALS
from migrator.values import jsonb
from tests.store_postgres import NOW, opened, run, schedule

COUNTS: dict[bytes, int | None] = {
    # a member of stats → what it counts
    b"5": 5,
    b"-3": -3,
    b"1e3": 1000,
    b"1e22": 10**22,
    b'"5"': 0,
    b"true": 0,
    b"1.5": 0,
    b"100.0": 0,
    b'"x"': 0,
    b"[1]": 0,
    b"{}": 0,
    b"null": None,
}


def test_what_is_no_whole_number_counts_for_nothing(any_scheduler_dsn: str) -> None:
    one = schedule()
    stats = [b'{"deltas":' + member + b"}" for member in COUNTS] + [b"{}", b"7", b"[]", None]
    with opened(any_scheduler_dsn) as store, store.session("a", now=NOW) as session:
        session.schedules.upsert(one)
        for text in stats:
            session.runs.create(run(schedule_id=one.id, stats=text, state="completed"))
        found = session.run_summaries.recompute(one.id, recent=len(stats))
    counters = msgspec.json.decode(found.counters or b"")
    assert counters[TOTALS["deltas"]] == 2**63 - 1  # 10**22 is more than a sum holds on both backends
    assert (counters["total"], counters["completed"], counters["lastRunNumber"]) == (len(stats), len(stats), len(stats))
    told = sorted(str(entry.get("deltas")) for entry in jsonb.decode(found.recent or b""))
    assert told == sorted([*map(str, COUNTS.values()), *["None"] * 4])
