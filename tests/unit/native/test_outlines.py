"""Documents with an outline through both codecs: jobs of Agenda, asked about once for all that are alike."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import product
from typing import Any, Final

import bson
import msgspec
import pytest
from bson.datetime_ms import DatetimeMS
from bson.objectid import ObjectId

from migrator.sources import agenda
from migrator.sources.agenda import PROFILE, jobs
from migrator.sources.mapping.outlines import Outline, native_of
from migrator.sources.profile import Collection
from migrator.values import document as documents
from tests import native_codec
from tests.agenda_documents import CONTEXT, NOON, REAL, SECOND, created_4, every_4, hokify, job_6, real
from tests.both_codecs import Compared, compare, native_reader

RAN: Final = {"lockedAt": None, "lastRunAt": NOON, "lastFinishedAt": NOON + SECOND}


@pytest.fixture(autouse=True)
def _needs_the_codec() -> None:
    native_codec.needed()


def collection(outline: Outline = agenda._OUTLINE, name: str = agenda.JOBS) -> Collection:
    """Return a collection of jobs whose codec has not learned anything."""
    kept = PROFILE.by_name()[name]
    return msgspec.structs.replace(kept, native=native_of(kept, outline))


def key(number: int) -> ObjectId:
    return ObjectId(f"65a0{number:020x}")


def compared(*jobs_alike: dict[str, Any], of: Collection | None = None) -> Compared:
    """Compare jobs, each with an id of its own."""
    raws = [documents.encode(job | {"_id": key(number)}) for number, job in enumerate(jobs_alike)]
    return compare(collection() if of is None else of, CONTEXT, raws)


def repeated(*jobs_alike: dict[str, Any]) -> list[int]:
    """Return the numbers of the jobs that are plain when all of them came twice before."""
    found = compared(*jobs_alike * 3)
    return [position - 2 * len(jobs_alike) for position in found.plain if position >= 2 * len(jobs_alike)]


def test_jobs_that_differ_in_holes_alone_are_plain_from_the_second_on() -> None:
    jobs_alike = [
        every_4(
            name=f"job \u00fc{number}",
            data={"to": f"a{number}", "n": [number, 2.5, None, True, {"x": 5_000_000_000}]},
            lastModifiedBy=f"worker-{number}",
            nextRunAt=NOON + timedelta(days=1, seconds=number),
            lockedAt=None,
            lastRunAt=NOON - timedelta(seconds=number + 1),
            lastFinishedAt=NOON + timedelta(milliseconds=number),
        )
        for number in range(9)
    ]
    assert compared(*jobs_alike).plain == [1, 2, 3, 4, 5, 6, 7, 8]


@pytest.mark.parametrize(("folder", "name"), [one for one in REAL if one[1] != agenda.LOGS])
def test_jobs_that_the_libraries_wrote(folder: str, name: str) -> None:
    raws = real(folder, name)
    found = compare(collection(name=name), CONTEXT, raws * 3)
    last = range(2 * len(raws), 3 * len(raws))
    assert set(last) & set(found.clean) <= set(found.plain)


TIMES: Final = (None, NOON, NOON + SECOND, NOON + 2 * SECOND)


@pytest.mark.parametrize(
    ("locked", "ran", "finished", "failed"), list(product(TIMES[:2], TIMES[:3], TIMES[:3], TIMES[:3]))
)
def test_the_order_of_the_times_is_part_of_the_outline(
    locked: datetime | None, ran: datetime | None, finished: datetime | None, failed: datetime | None
) -> None:
    """What was learned of one order is no answer about another one with the same fields."""
    given = {"lockedAt": locked, "lastRunAt": ran, "lastFinishedAt": finished, "failedAt": failed}
    shuffled = dict(zip(given, (ran, failed, locked, finished), strict=True))
    others = {name: None if at is None else TIMES[3 - TIMES.index(at)] for name, at in given.items()}
    for made in (created_4, every_4, hokify, job_6):
        compared(*[made(**times) for times in (given, given, given, others, shuffled, given, others, shuffled)])


def test_a_time_that_is_text_is_compared_by_the_python_codec() -> None:
    """Its place among the times is not in the outline: a job that failed after it is no job that failed before it."""
    text = "2040-01-02T03:04:05+00:00"
    early = [every_4(nextRunAt=None, failedAt=NOON + number * SECOND, lastFinishedAt=text) for number in range(4)]
    late = every_4(nextRunAt=None, failedAt=datetime(2050, 1, 2), lastFinishedAt=text)  # noqa: DTZ001 - as BSON is decoded
    assert compared(*early, late).plain == []


def test_a_date_that_is_a_number_is_for_the_python_codec() -> None:
    assert repeated(every_4(startDate=1_795_176_000_000, endDate=NOON)) == []


@pytest.mark.parametrize(
    ("changes", "is_plain"),
    [
        ({"name": 'a"\\\n\x7f\u20ac\U0001f600'}, True),
        ({"name": ""}, False),  # part of the outline, and with the id in a column
        ({"name": "x" * 1_000}, True),
        ({"name": "x" * 1_001}, False),
        ({"name": "a\0"}, False),
        ({"name": bson.Code("a")}, False),
        ({"lastModifiedBy": "\0"}, False),
        ({"lastModifiedBy": None}, True),
        ({"data": {"a": NOON}}, False),
        ({"data": {"a": "\0"}}, False),
        ({"data": {"a": float("nan")}}, False),
        ({"data": {"b": 1, "a": {"d": 1, "c": 2}}}, True),
        ({"data": [1, "a", []]}, True),
        ({"data": []}, True),
        ({"data": None}, True),
        ({"data": "text"}, True),
        ({"data": {"$ref": "a", "$id": 1}}, False),
        ({"data": bson.Int64(5)}, True),  # the remainder keeps the type
        ({"nextRunAt": DatetimeMS(253_402_300_800_000)}, False),
        ({"nextRunAt": DatetimeMS(-62_135_596_800_001)}, False),
        ({"nextRunAt": datetime(9999, 12, 31, 23, 59, 59, 999_000)}, True),  # noqa: DTZ001 - as BSON is decoded
        ({"nextRunAt": datetime(1, 1, 1)}, True),  # noqa: DTZ001 - as above
        ({"lockedAt": datetime(9999, 12, 31, 23, 49, 59, 999_000)}, True),  # noqa: DTZ001 - as above
        ({"lockedAt": datetime(9999, 12, 31, 23, 50)}, False),  # noqa: DTZ001 - its lease would end in the year 10000
        ({"priority": 200}, False),  # a finding
        ({"priority": float("nan")}, False),
        ({"type": "other"}, False),
        ({"repeatInterval": "5 minutes", "repeatTimezone": "Nowhere/At_All"}, False),
        ({"repeatInterval": "never"}, False),
        ({"startDate": NOON, "endDate": NOON}, False),
        ({"startDate": NOON, "endDate": NOON + SECOND}, True),
        ({"failReason": "a\0"}, True),  # the remainder keeps it
        ({"failReason": "a\0", "failedAt": NOON + SECOND, **RAN}, False),
        ({"failReason": "x" * 1_100}, False),
        ({"unknown": 5, "other": None}, True),
        ({"unknown": "a\0"}, True),
        ({"result": {"a": NOON}}, True),
        ({"debounceStartedAt": NOON + SECOND / 2}, True),
        ({"failCount": 2.0, "failedAt": NOON + SECOND, **RAN}, True),
        ({"progress": 50, **RAN}, True),
    ],
)
def test_what_a_job_may_hold(changes: dict[str, Any], is_plain: bool) -> None:  # noqa: FBT001 - a parameter
    """The others, which the codec has learned before, say nothing about it."""
    for made in (every_4, job_6):
        others = [made(nextRunAt=NOON + number * SECOND) for number in range(3)]
        changed = [made(**changes)] * 3
        found = compared(*others, *changed, *others)
        assert (5 in found.plain) == is_plain, made
        assert {7, 8} <= set(found.plain)


@pytest.mark.parametrize("given", ["text", 5, {"a": 1}, b"0123456789ab", None])
def test_a_job_whose_id_is_no_object_id_is_for_the_python_codec(given: Any) -> None:  # noqa: ANN401 - any BSON value
    others = [documents.encode(every_4(_id=key(number))) for number in range(3)]
    found = compare(collection(), CONTEXT, [*others, documents.encode(every_4(_id=given))])
    assert found.plain == [1, 2]


def test_a_field_that_is_there_twice() -> None:
    whole = documents.encode(every_4())
    twice = [element_of(whole, name) for name in ("name", "data", "nextRunAt", "priority")]
    raws = [framed(whole[4:-1] + element) for element in twice]
    assert compare(collection(), CONTEXT, [whole, whole, *raws * 3]).plain == [1]


def element_of(raw: bytes, name: str) -> bytes:
    return bson.encode({name: documents.decode(raw)[name]})[4:-1]


def framed(elements: bytes) -> bytes:
    return (len(elements) + 5).to_bytes(4, "little") + elements + b"\0"


@pytest.mark.parametrize("name", ["repeatTimezone", "repeatInterval", "type"])
def test_a_text_that_a_rule_looks_at_is_no_hole_though_it_is_declared(name: str) -> None:
    """The declaration is not trusted: a mark in its place says something else, and there is no answer."""
    wrong = msgspec.structs.replace(agenda._OUTLINE, texts=(*agenda._OUTLINE.texts, name))
    values = {"repeatTimezone": "Europe/Vienna", "repeatInterval": "5 minutes", "type": "single"}
    job = every_4(repeatTimezone=None, **RAN) | {name: values[name]}
    assert compared(job, job, job).plain == [1, 2]
    assert compared(job, job, job, of=collection(wrong)).plain == []


def test_a_time_that_is_shifted_by_what_nobody_declared_has_no_answer() -> None:
    wrong = msgspec.structs.replace(agenda._OUTLINE, shifts=())
    job = every_4(lockedAt=NOON)
    assert compared(job, job).plain == [1]
    assert compared(job, job, of=collection(wrong)).plain == []
    assert timedelta(minutes=10) == jobs.LOCK_LIFETIME


class Asked:
    """A codec of jobs that counts how often the Python codec is asked."""

    def __init__(self, of: Collection) -> None:
        self.times = 0
        reader = native_reader(of, CONTEXT)
        self._learn = reader.plan.outline.learn  # type: ignore[union-attr] # it has one
        outline = msgspec.structs.replace(reader.plan.outline, learn=self.learn)  # type: ignore[type-var] # as above
        self._codec = type(reader.codec)(msgspec.structs.replace(reader.plan, outline=outline))

    def learn(self, raw: bytes, present: Sequence[int]) -> tuple[Any, ...] | None:
        self.times += 1
        return self._learn(raw, tuple(present))

    def plain(self, *raws: bytes) -> int:
        return int(self._codec.read(b"".join(raws)).plain)


def test_an_outline_that_comes_once_is_not_asked_for() -> None:
    asked = Asked(collection())
    assert asked.plain(*[documents.encode(every_4(failReason=f"reason {number}")) for number in range(5_000)]) == 0
    assert asked.times == 0


def test_answers_that_save_nothing_are_not_asked_for_without_end() -> None:
    asked = Asked(collection())
    pairs = [documents.encode(every_4(failReason=f"reason {number // 2}", priority=200)) for number in range(1_000)]
    assert asked.plain(*pairs) == 0
    assert asked.times == 64
    saved = [documents.encode(every_4(failReason=f"reason {number // 2}")) for number in range(1_000)]
    other = Asked(collection())
    assert 64 < other.plain(*saved) == other.times < 100


def test_answers_that_are_used_are_kept_while_others_come_once() -> None:
    asked = Asked(collection())
    common = documents.encode(every_4())
    asked.plain(common)
    for number in range(6_000):
        assert asked.plain(common, documents.encode(every_4(failReason=f"reason {number}"))) == 1
    assert asked.times == 1
