"""Zones by name, and the changes of their clocks against the database's own files."""

import itertools
import struct
from datetime import UTC, datetime
from importlib import resources
from zoneinfo import ZoneInfo

import pytest
import tzdata  # type: ignore[import-untyped]  # the package ships no types
from tzlocal.windows_tz import win_tz

from migrator.cron import ZoneError, database_version, next_fire, timeline, zone

ALL = resources.files("tzdata").joinpath("zones").read_text(encoding="ascii").split()


def recorded(name: str) -> list[tuple[int, int, int]]:
    """Read (instant, offset before, offset after) of every change since 1970 from a zone's file (RFC 8536)."""
    data = resources.files("tzdata").joinpath("zoneinfo", *name.split("/")).read_bytes()
    place = 0
    for width in (4, 8):
        counts = struct.unpack(">6l", data[place + 20 : place + 44])
        isut, isstd, leap, times, types, letters = counts
        start = place + 44
        place = start + times * width + times + types * 6 + letters + leap * (width + 4) + isstd + isut
    instants = struct.unpack(f">{times}q", data[start : start + 8 * times])
    kinds = data[start + 8 * times : start + 9 * times]
    table = start + 9 * times
    offsets = [struct.unpack(">l", data[table + 6 * kind : table + 6 * kind + 4])[0] for kind in range(types)]
    found = []
    for at in range(1, times):
        before, after = offsets[kinds[at - 1]], offsets[kinds[at]]
        if instants[at] >= 0 and before != after:
            found.append((instants[at], before, after))
    return found


def test_every_name_of_the_database_is_known_and_not_mapped() -> None:
    for name in ALL:
        place, mapped = zone(name)
        assert place.key == name
        assert not mapped


def test_names_in_another_case_are_mapped() -> None:
    place, mapped = zone("europe/vienna")
    assert (place.key, mapped) == ("Europe/Vienna", True)
    assert zone(" UTC ")[1]


@pytest.mark.parametrize(
    ("windows", "iana"),
    [
        ("W. Europe Standard Time", "Europe/Berlin"),
        ("Eastern Standard Time", "America/New_York"),
        ("Central Europe Standard Time", "Europe/Budapest"),
        ("UTC-11", "Etc/GMT+11"),
        ("Lord Howe Standard Time", "Australia/Lord_Howe"),
        ("Jordan Standard Time", "Asia/Amman"),
    ],
)
def test_windows_names_are_mapped_by_the_cldr_table(windows: str, iana: str) -> None:
    for name in (windows, windows.upper()):
        place, mapped = zone(name)
        assert (place.key, mapped) == (iana, True)


def test_every_zone_of_the_windows_table_exists() -> None:
    assert len(win_tz) > 130
    for iana in win_tz.values():
        assert zone(iana) == (zone(iana)[0], False)


@pytest.mark.parametrize("name", ["", " ", "Europe", "Europe/Berlin/", "/etc/localtime", "..", "GMT+25", "\x00", "é"])
def test_anything_else_is_no_zone(name: str) -> None:
    with pytest.raises(ZoneError) as caught:
        zone(name)
    assert str(caught.value) == "time zone: expected a name of the IANA database or a Windows zone name"


def test_zones_come_from_the_pinned_package() -> None:
    """The answers of ``zoneinfo`` depend on the host's files first; ours must not."""
    for name in ("Europe/Berlin", "America/Havana", "Africa/Casablanca"):
        changes = recorded(name)
        place, _ = zone(name)
        assert isinstance(place, ZoneInfo)
        for instant, before, after in changes:
            for moment, offset in ((instant - 1, before), (instant, after)):
                found = datetime.fromtimestamp(moment, place).utcoffset()
                assert found is not None
                assert found.total_seconds() == offset
    assert database_version() == tzdata.IANA_VERSION


def test_no_zone_changes_twice_within_the_probes() -> None:
    """The timeline would not see a change and the change back between two of its looks."""
    closest = min(
        later[0] - earlier[0]
        for name in ALL
        for changes in [recorded(name)]
        for earlier, later in itertools.pairwise(changes)
    )
    assert closest > timeline._PROBE


@pytest.mark.parametrize(
    "name",
    [
        "America/New_York",
        "Africa/Casablanca",
        "Asia/Gaza",
        "Pacific/Apia",
        "America/Argentina/Tucuman",
        "Asia/Kathmandu",
        "Europe/Dublin",
        "Africa/Monrovia",
        "Australia/Lord_Howe",
        "Asia/Tehran",
        "America/Noronha",
        "America/Boa_Vista",
        "America/Recife",
        "UTC",
    ],
)
def test_the_timeline_has_every_change(name: str) -> None:
    found = [
        (stretch.start, stretch.before, stretch.offset)
        for year in range(1970, 2038)
        for stretch in timeline.stretches(name, year)
        if stretch.before != stretch.offset
    ]
    until = int(datetime(2037, 1, 1, tzinfo=UTC).timestamp())
    expected = [change for change in recorded(name) if change[0] < until]
    assert [change for change in found if change[0] < until][: len(expected)] == expected


def test_stretches_follow_each_other_without_a_hole() -> None:
    for name in ("America/New_York", "UTC"):
        whole = [stretch for year in range(2020, 2031) for stretch in timeline.stretches(name, year)]
        for earlier, later in itertools.pairwise(whole):
            assert (earlier.end, earlier.offset, earlier.after) == (later.start, later.before, later.offset)


@pytest.mark.parametrize("name", ["UTC", "America/New_York", "Pacific/Apia"])
def test_the_ends_of_time_are_no_errors(name: str) -> None:
    first, last = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
    assert next_fire("cronos", "0 0 * * *", name, last) is None
    assert next_fire("cronos", "0 0 * * *", name, first) is not None
