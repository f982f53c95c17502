"""Pickled jobs of APScheduler through both codecs: what the native one has learned of some holds for the others."""

import pickle
import random
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Any, Final
from zoneinfo import ZoneInfo

import pytest
from apscheduler.triggers.cron import CronTrigger
from apscheduler.triggers.date import DateTrigger
from apscheduler.triggers.interval import IntervalTrigger

from migrator.constraints import LONGEST_KEY
from migrator.pipeline.transform import decode_document
from migrator.sources.apscheduler import native_jobs
from migrator.sources.profile import Rejected
from migrator.values import document as documents
from tests import native_codec
from tests.agenda_documents import CONTEXT
from tests.apscheduler_documents import COLLECTION, Jobs, document, real, state
from tests.both_codecs import Compared, compare
from tests.cron_lines import DEEP

LORD_HOWE: Final = ZoneInfo("Australia/Lord_Howe")
VIENNA: Final = ZoneInfo("Europe/Vienna")


@pytest.fixture(autouse=True)
def fresh_codec() -> Iterator[None]:
    """Let no test meet what another one has taught."""
    native_codec.needed()
    native_jobs.reader.cache_clear()
    yield
    native_jobs.reader.cache_clear()


def job(number: int, protocol: int = 5, seconds: float | None = None, **members: Any) -> bytes:  # noqa: ANN401 - members of any type
    """Return a job's document, with an id and a next run of its own."""
    key = members.get("id", f"job-{number}")
    due = datetime(2026, 11, 22, 12, tzinfo=UTC) + timedelta(seconds=number)
    held = state(**{"id": key, "next_run_time": due} | members)
    moment = held["next_run_time"]
    stated = (None if moment is None else moment.timestamp()) if seconds is None else seconds
    return documents.encode(document(pickle.dumps(held, protocol), key, stated))


def compared(*raws: bytes) -> Compared:
    return compare(COLLECTION, CONTEXT, raws)


@pytest.mark.parametrize("protocol", range(6))
def test_jobs_that_differ_in_values_alone_are_plain_from_the_second_on(protocol: int) -> None:
    raws = [
        job(number, protocol, args=(f"to-{number}", number, [number, {"a": f"\u00fc{number}"}]), name=f"job {number}")
        for number in range(6)
    ]
    assert compared(*raws).plain == ([1, 2, 3, 4, 5] if protocol >= 4 else [])


@pytest.mark.parametrize("version", ["3.6.3", "3.11.3"])
def test_what_the_library_wrote(version: str) -> None:
    """What stands in one document alone is learned of the second copy of it."""
    raws = [documents.encode(found) for found in real(version).values()]
    found = compared(*raws, *raws)
    second = {position - len(raws) for position in found.plain if position >= len(raws)}
    keys = list(real(version))
    assert {"and-of-crons", "cron-in-the-gap", "cron-position", "cron-window", "interval-window", "paused"} <= {
        keys[position] for position in second
    }


@pytest.mark.parametrize("seed", range(40 if not DEEP else 2_000))
def test_jobs_that_are_alike(seed: int) -> None:
    compared(*Jobs(random.Random(seed)).alike(10))


def test_most_jobs_that_are_alike_are_plain() -> None:
    plain = clean = 0
    for seed in range(60):
        found = compared(*Jobs(random.Random(seed)).alike(10))
        plain, clean = plain + len(found.plain), clean + len(found.clean)
    assert clean > plain > clean / 2


@pytest.mark.parametrize(
    ("members", "is_plain"),
    [
        ({"name": ""}, True),
        ({"name": 'a"\\\n\x7f\u20ac'}, True),
        ({"name": "x" * LONGEST_KEY}, True),
        ({"name": "x" * (LONGEST_KEY + 1)}, False),
        ({"name": "a\0"}, False),
        ({"name": "\ud800"}, False),
        ({"args": ("\0",)}, False),
        ({"args": ("\ud800",)}, False),
        ({"args": ("\ue0001\ue001",)}, True),
        ({"args": ("x" * 300,)}, True),
        ({"args": (0,)}, False),
        ({"args": (None,)}, False),
        ({"seconds": 1795348805.5}, False),
        ({"seconds": 1795348805.0000001}, True),
        ({"seconds": 4e18}, False),
        ({"seconds": float("nan")}, False),
        ({"next_run_time": None}, False),
        ({"func": "acme_jobs:other"}, False),
        ({"trigger": CronTrigger(hour=6, timezone=UTC)}, False),
        ({"misfire_grace_time": 2}, False),
    ],
)
def test_what_may_differ(members: dict[str, Any], is_plain: bool) -> None:  # noqa: FBT001 - a parameter
    """A value in a hole is copied if a column can hold it; a value elsewhere makes another kind of job."""
    others = [job(number, args=("a",)) for number in range(3)]
    assert (3 in compared(*others, job(5, **({"args": ("a",)} | members))).plain) is is_plain


def test_an_id_that_is_not_the_document_s_is_a_finding() -> None:
    others = [job(number) for number in range(3)]
    held = state(id="other", next_run_time=datetime(2026, 11, 22, 12, tzinfo=UTC))
    odd = documents.encode(document(pickle.dumps(held), "job-4", held["next_run_time"].timestamp()))
    assert compared(*others, odd).plain == [1, 2]


def test_a_text_to_which_the_pickle_refers_again() -> None:
    def job_of(number: int) -> bytes:
        key = f"job-{number}"
        return job(number, id=key, name=key, args=(key, [key]), kwargs={"to": key})

    assert compared(*map(job_of, range(5))).plain == [1, 2, 3, 4]


def test_a_text_that_is_a_key_elsewhere_is_no_hole() -> None:
    def job_of(number: int) -> bytes:
        text = f"text-{number % 2}"
        return job(number, args=(text,), kwargs={text: number})

    assert compared(*map(job_of, range(8))).plain == [2, 3, 4, 5, 6, 7]


def test_a_list_that_is_there_twice() -> None:
    def job_of(number: int) -> bytes:
        same = [number, f"a{number}"]
        return job(number, args=(same, same), kwargs={"again": same})

    assert compared(*map(job_of, range(5))).plain == [1, 2, 3, 4]


def test_the_hour_in_which_a_zone_changes_its_offset_is_for_the_python_codec() -> None:
    """Lord Howe's clock goes back half an hour, within one of its hours; Vienna's by a whole one."""
    end = datetime(2026, 4, 4, 15, tzinfo=UTC)
    moments = [(end + timedelta(minutes=10 * number)).astimezone(LORD_HOWE) for number in range(-12, 12)]
    found = compared(*(job(number, next_run_time=moment) for number, moment in enumerate(moments)))
    changing = {number for number, moment in enumerate(moments) if (moment.hour, moment.fold) == (1, 1)}
    assert len(changing) == 3
    assert {*found.plain} == {*range(1, len(moments))} - changing
    end = datetime(2026, 10, 25, 1, tzinfo=UTC)
    moments = [(end + timedelta(minutes=10 * number)).astimezone(VIENNA) for number in range(-12, 12)]
    assert any(moment.fold for moment in moments)
    found = compared(*(job(number, next_run_time=moment) for number, moment in enumerate(moments)))
    assert found.plain == [*range(1, len(moments))]


@pytest.mark.parametrize("fold", [0, 1])
def test_the_other_hour_of_the_same_name_is_another_instant(fold: int) -> None:
    twice = datetime(2026, 10, 25, 2, 30, tzinfo=VIENNA, fold=fold)
    others = [job(number, next_run_time=twice.replace(fold=number % 2)) for number in range(4)]
    odd = job(5, next_run_time=twice, seconds=twice.replace(fold=1 - fold).timestamp())
    assert compared(*others, odd).plain == [1, 2, 3]


def dated(number: int, trigger: Any, **members: Any) -> bytes:  # noqa: ANN401 - of the library, and members of any type
    due = trigger.get_next_fire_time(None, datetime(2026, 11, 1, tzinfo=UTC) + timedelta(seconds=number))
    return job(number, trigger=trigger, **({"next_run_time": due} | members))


@pytest.mark.parametrize("zone", [UTC, VIENNA, timezone(timedelta(hours=5, minutes=30))])
@pytest.mark.parametrize("kind", ["date", "interval", "cron"])
def test_a_time_of_a_trigger_is_copied(kind: str, zone: tzinfo) -> None:
    """Each job has a trigger of its own: it fires once, or begins or ends at a time of its own."""

    def trigger(number: int) -> Any:  # noqa: ANN401 - of the library
        moment = datetime(2026, 12, 1, 10, tzinfo=zone) + timedelta(days=number, seconds=77, microseconds=number)
        if kind == "date":
            return DateTrigger(moment, timezone=zone)
        if kind == "interval":
            return IntervalTrigger(minutes=5, start_date=moment, timezone=zone)
        return CronTrigger(hour=3, end_date=moment, timezone=zone)

    assert compared(*(dated(number, trigger(number)) for number in range(8))).plain == [*range(1, 8)]
    paused = [dated(number, trigger(number), next_run_time=None) for number in range(8)]
    assert compared(*paused).plain == [*range(1, 8)]
    later = (
        [dated(number, trigger(number), next_run_time=trigger(number + 3).run_date) for number in range(8)]
        if (kind == "date")
        else []
    )
    assert compared(*later).plain == [*range(1, len(later))]


def test_a_date_that_is_not_the_next_run_of_the_document_is_a_finding() -> None:
    base = datetime(2026, 12, 1, tzinfo=UTC)
    triggers = [DateTrigger(base + timedelta(days=number)) for number in range(5)]
    odd = dated(4, triggers[4], seconds=(base + timedelta(days=3)).timestamp())
    assert compared(*(dated(number, triggers[number]) for number in range(4)), odd).plain == [1, 2, 3]


def test_a_window_of_two_times_is_for_the_python_codec_unless_it_comes_again() -> None:
    """Where the end may lie before the start, what follows is a finding."""
    base = datetime(2026, 12, 1, tzinfo=UTC)

    def window(number: int) -> IntervalTrigger:
        return IntervalTrigger(minutes=5, start_date=base, end_date=base + timedelta(days=1 + number), timezone=UTC)

    assert compared(*(dated(number, window(number)) for number in range(5))).plain == []
    assert compared(*(dated(number, window(0)) for number in range(5))).plain == [0, 1, 2, 3, 4]


def test_nothing_that_a_pickle_names_is_imported_or_called() -> None:
    """The module is one of Python's own that prints when it is imported, and that nobody imports."""
    called = b"\x8c\x04this\x94\x8c\x01d\x94\x93\x94\x8c\x04text\x94\x85\x94R\x94"
    raws = []
    for number in range(4):
        held = pickle.dumps(state(id=f"job-{number}", args=("MARK",)), 4)
        raws.append(documents.encode(document(held.replace(b"\x8c\x04MARK\x94", called), f"job-{number}")))
    assert compared(*raws).plain == []
    assert "this" not in sys.modules
    for raw in raws:
        with pytest.raises(Rejected, match="refused-import"):
            decode_document(COLLECTION, CONTEXT, raw)


def test_a_kind_of_job_is_asked_for_when_it_comes_again_and_at_most_three_times(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[bytes] = []

    def refusing(_self: object, pickled: bytes, *_: object) -> None:
        asked.append(pickled)

    monkeypatch.setattr(native_jobs._Skeletons, "_answer", refusing)
    compared(*(job(number, func=f"acme_jobs:f{number}") for number in range(50)))
    assert asked == []
    compared(*(job(number) for number in range(50)))
    assert len(asked) == 3


def test_jobs_that_no_column_can_hold_do_not_keep_others_from_being_learned() -> None:
    others = [job(number, name="\ud800") for number in range(3)]
    assert compared(*others, *(job(number) for number in range(3, 8))).plain == [3, 4, 5, 6, 7]


def changed(stream: random.Random, data: bytes) -> bytes:
    """Return a pickle with a few bytes changed, removed, or put in again elsewhere."""
    held = bytearray(data)
    for _ in range(stream.choice((0, 1, 1, 2))):
        place = stream.randrange(2, len(held))
        match stream.randrange(4):
            case 0:
                held[place] = stream.choice(b"\x94\x8cKMJh(ut}])\x85\x86\x87Rbsae\x81\x93NX\x43G\x8a.0")
            case 1:
                del held[place : place + stream.randrange(1, 4)]
            case 2:
                end = place + stream.randrange(1, 12)
                held[place:place] = held[place:end]
            case _:
                held[place : place + 2] = b"h" + bytes([stream.randrange(40)])
    return bytes(held)


def near(stream: random.Random, data: bytes) -> bytes:
    """Return a pickle with one byte changed, often within a value."""
    held = bytearray(data)
    place = stream.randrange(len(held))
    held[place] = stream.choice(b"abc01\x00\x01\x7f\x80\xff")
    return bytes(held)


@pytest.mark.parametrize("seed", range(60 if not DEEP else 5_000))
def test_changed_pickles(seed: int) -> None:
    """Pickles that are changed alike share what was learned of the first; each is what the Python codec makes of it."""
    stream = random.Random(seed)
    found = [documents.decode(raw) for raw in Jobs(stream).alike(3)]
    for _ in range(6):
        base = stream.choice(found)
        data = changed(stream, bytes(base["job_state"]))
        pickles = [data, data, *(near(stream, data) for _ in range(6)), data]
        compared(*(documents.encode(document(one, base["_id"], base["next_run_time"])) for one in pickles))
