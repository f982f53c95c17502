"""However a pickle is changed, it becomes plain data or is refused; a trigger fires when the library would fire it."""

import contextlib
import pickle
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any
from zoneinfo import ZoneInfo

from apscheduler.triggers.combining import AndTrigger, OrTrigger
from apscheduler.triggers.cron import CronTrigger
from apscheduler.triggers.interval import IntervalTrigger
from hypothesis import HealthCheck, assume, given, reject, settings
from hypothesis import strategies as st

from migrator.sources.pickles import Global, Made, PickledDict, PickleRefusedError, read, read_opcodes
from migrator.sources.profile import Rejected
from tests.apscheduler_documents import document, real, state, travel
from tests.strategies_bson import keys, values
from tests.unit.sources.apscheduler import test_version_4 as version_4
from tests.unit.sources.apscheduler.test_jobs import of_the_library, of_the_target

settings.register_profile("apscheduler", deadline=None, max_examples=200, suppress_health_check=[HealthCheck.too_slow])
PROFILE_OF_TESTS = settings.get_profile("apscheduler")

PICKLES = [bytes(found["job_state"]) for name in ("3.11.3", "3.10.4-pytz-protocol-0") for found in real(name).values()]
PLAIN = (type(None), bool, int, float, str, bytes, bytearray, list, tuple, Global, Made, PickledDict)


@st.composite
def changed(draw: st.DrawFn) -> bytes:
    """Draw a pickle of the library with some bytes replaced, removed, repeated or added."""
    data = bytearray(draw(st.sampled_from(PICKLES)))
    for _ in range(draw(st.integers(1, 6))):
        at = draw(st.integers(0, max(len(data) - 1, 0)))
        match draw(st.sampled_from(["replace", "opcode", "remove", "insert", "repeat"])):
            case "replace":
                data[at : at + 1] = draw(st.binary(min_size=1, max_size=1))
            case "opcode":
                data[at : at + 1] = draw(
                    st.sampled_from([bytes([one]) for one in b"(.0123FGIJKLMNPQRSTUVX]abcdeghijloqrstu}"])
                )
            case "remove":
                del data[at : at + draw(st.integers(1, 20))]
            case "insert":
                data[at:at] = draw(st.binary(max_size=8))
            case _:
                end = at + draw(st.integers(1, 40))
                data[at:at] = data[at:end]
    return bytes(data)


@settings(PROFILE_OF_TESTS)
@given(changed())
def test_a_changed_pickle_is_plain_data_or_refused(data: bytes) -> None:
    try:
        found = read(data)
    except PickleRefusedError:
        return
    assert type(found) in PLAIN


def read_by(reader: Callable[[bytes], Any], data: bytes) -> Any:  # noqa: ANN401 - any plain data
    """Return the answer of a reader for a pickle, in terms that can be compared."""
    try:
        return exact(reader(data))
    except PickleRefusedError as refused:
        return refused.expected


def exact(value: Any) -> Any:  # noqa: ANN401 - any plain data
    """Return plain data with its types."""
    if isinstance(value, PickledDict):
        return ("table", exact(value.pairs))
    if isinstance(value, Made):
        return ("made", value.name, *map(exact, (value.arguments, value.state, value.items, value.pairs)))
    if isinstance(value, Global):
        return ("global", value.name)
    if isinstance(value, list | tuple):
        return (type(value).__name__, [exact(one) for one in value])
    return (type(value).__name__, repr(value))


@settings(PROFILE_OF_TESTS, max_examples=400)
@given(changed(), st.sampled_from(PICKLES))
def test_both_readers_make_the_same(data: bytes, other: bytes) -> None:
    """Of a changed pickle, and of one that may share a trigger with it."""
    for one in (data, other):
        assert read_by(read, one) == read_by(read_opcodes, one)


@settings(PROFILE_OF_TESTS)
@given(st.binary(max_size=200))
def test_any_bytes_are_plain_data_or_refused(data: bytes) -> None:
    try:
        assert type(read(b"\x80\x04" + data)) in PLAIN
    except PickleRefusedError:
        return


@settings(PROFILE_OF_TESTS)
@given(changed(), st.floats(0, 4e9) | st.none())
def test_a_document_around_it_comes_back_or_is_quarantined(data: bytes, next_run_time: float | None) -> None:
    path = "job_state"
    try:
        travel(document(data, next_run_time=next_run_time))
    except Rejected as rejected:
        path = rejected.path
    assert path.startswith("job_state")


def ranges(least: int, most: int) -> st.SearchStrategy[str]:
    """Draw an expression of a field."""
    one = st.integers(least, most)
    pairs = st.tuples(one, one).map(sorted)
    return st.one_of(
        st.just("*"),
        one.map(str),
        st.integers(1, most - least).map(lambda step: f"*/{step}"),
        pairs.map(lambda pair: f"{pair[0]}-{pair[1]}"),
        st.lists(one, min_size=1, max_size=3).map(lambda found: ",".join(map(str, found))),
    )


FIELDS = {
    "year": st.sampled_from(["*", "2026-2030", "2027"]),
    "month": st.one_of(ranges(1, 12), st.sampled_from(["mar,oct", "jan-apr"])),
    "day": st.one_of(ranges(1, 31), st.sampled_from(["last", "last sun", "2nd fri,last"])),
    "week": ranges(1, 53),
    "day_of_week": st.one_of(ranges(0, 6), st.sampled_from(["sun", "mon-fri,sun"])),
    "hour": ranges(0, 23),
    "minute": ranges(0, 59),
    "second": ranges(0, 59),
}
ZONES = st.sampled_from(["UTC", "Europe/Vienna", "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe"]).map(
    ZoneInfo
)
NIGHTS = st.sampled_from(
    [datetime(2027, month, day, 20, tzinfo=UTC) for month, day in ((3, 13), (3, 27), (10, 2), (10, 30))]
)


@st.composite
def crons(draw: st.DrawFn) -> CronTrigger:
    """Draw a cron trigger that the library takes."""
    names = draw(st.lists(st.sampled_from(sorted(FIELDS)), max_size=3, unique=True))
    bounds = {}
    if draw(st.booleans()):
        bounds["start_date"] = draw(NIGHTS) + timedelta(
            hours=draw(st.integers(-30, 30)), microseconds=draw(st.integers(0, 5))
        )
    try:
        return CronTrigger(**{name: draw(FIELDS[name]) for name in names}, timezone=draw(ZONES), **bounds)
    except ValueError:
        reject()


@st.composite
def intervals(draw: st.DrawFn) -> IntervalTrigger:
    """Draw an interval of whole milliseconds."""
    length = draw(st.integers(1, 10**7))
    return IntervalTrigger(seconds=length, start_date=draw(NIGHTS), timezone=draw(ZONES))


@settings(PROFILE_OF_TESTS, max_examples=100)
@given(st.one_of(crons(), intervals()), NIGHTS, st.integers(0, pickle.HIGHEST_PROTOCOL))
def test_a_trigger_fires_when_the_library_would(trigger: Any, now: datetime, protocol: int) -> None:  # noqa: ANN401 - the library has no types
    ours = travel(document(pickle.dumps(state(trigger=trigger), protocol))).trigger
    assert ours is not None
    if isinstance(trigger, CronTrigger):
        trigger.end_date = now + timedelta(days=3 * 365)
    fires = list(islice(of_the_library(trigger, now), 8))
    assert [fire for fire in islice(of_the_target(ours, now), 8) if fire <= now + timedelta(days=3 * 365)] == fires


@settings(PROFILE_OF_TESTS, max_examples=50)
@given(st.lists(crons(), min_size=1, max_size=3), st.sampled_from(["and", "or"]), NIGHTS)
def test_a_combination_fires_when_the_library_would_fire_it_first(
    members: list[CronTrigger], word: str, now: datetime
) -> None:
    kind = AndTrigger if word == "and" else OrTrigger
    ours = travel(document(pickle.dumps(state(trigger=kind(members))))).trigger
    assume(ours is not None)
    assert ours is not None
    end = now + timedelta(days=2)
    for member in members:
        member.end_date = end
    theirs = kind(members).get_next_fire_time(None, now)
    first = next(of_the_target(ours, now), None)
    assert (first if first is not None and first <= end else None) == theirs


DOCUMENTS_4 = [*version_4.documents_of("json"), *version_4.documents_of("pickle")]
likely = st.one_of(
    st.sampled_from(
        [None, True, 0, 1.5, -1.0, 1e300, 2**40, "", "text", "all", {}, {"base64": "AA=="}, [1], b"", b"[1]"]
    ),
    st.binary(max_size=20),
    values(),
)


@st.composite
def changed_4(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
    """Draw a document of version 4 with fields dropped, replaced or added, and bytes of its values changed."""
    collection, base = draw(st.sampled_from(DOCUMENTS_4))
    document = dict(base)
    for _ in range(draw(st.integers(1, 4))):
        name = draw(st.sampled_from([one for one in base if one != "_id"]))
        match draw(st.sampled_from(["drop", "likely", "add", "bytes"])):
            case "drop":
                document.pop(name, None)
            case "likely":
                document[name] = draw(likely)
            case "add":
                document[draw(keys())] = draw(likely)
            case _ if isinstance(document.get(name), bytes):
                data = bytearray(document[name])
                at = draw(st.integers(0, len(data)))
                data[at : at + draw(st.integers(0, 3))] = draw(st.binary(max_size=3))
                document[name] = bytes(data)
    return collection, document


@settings(PROFILE_OF_TESTS)
@given(changed_4())
def test_a_changed_document_of_version_4_comes_back_or_is_quarantined(case: tuple[str, dict[str, Any]]) -> None:
    collection, document = case
    with contextlib.suppress(Rejected):
        version_4.travel(collection, document)
