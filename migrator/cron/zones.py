"""Time zones by name, read from the pinned ``tzdata`` package only, so that fire times do not depend on the host.

A name in another case than the database writes it, and a Windows name (``tzlocal`` has the table, that of Unicode
CLDR), are resolved and marked as mapped: the caller keeps the original.
"""

from functools import cache, lru_cache
from importlib import resources
from zoneinfo import ZoneInfo

import tzdata  # type: ignore[import-untyped]  # the package ships no types
from tzlocal.windows_tz import win_tz

from migrator.cron.expression import ZoneError


def zone(name: str) -> tuple[ZoneInfo, bool]:
    """Return the zone of that name, and whether the name had to be mapped.

    Raises ``ZoneError`` for a name that neither the IANA database nor the CLDR table of Windows names knows. Offsets
    (``+02:00``) are not names: they say nothing about daylight saving time.
    """
    key = resolve(name)
    return _load(key), key != name


def database_version() -> str:
    """Return the release of the IANA database in use, such as ``2026f``."""
    release: str = tzdata.IANA_VERSION
    return release


@lru_cache(maxsize=1024)
def resolve(name: str) -> str:
    """Return the IANA name for a zone name in any case, or for a Windows name; raises ``ZoneError``."""
    names = _names()
    iana_name = names.get(name.strip().casefold()) or _windows().get(name.strip().casefold())
    if iana_name is None:
        raise ZoneError("time zone: expected a name of the IANA database or a Windows zone name")
    return iana_name


@cache
def zone_names() -> tuple[str, ...]:
    """Return the names that a person means: those of the IANA database with a place, ``UTC``, and the Windows names.

    Others (``EST``, ``Etc/GMT+5``) are offsets or former names, to which nobody should be led.
    """
    places = (name for name in _names().values() if "/" in name and not name.startswith("Etc/"))
    return ("UTC", *places, *win_tz)


@cache
def _names() -> dict[str, str]:
    listed = resources.files("tzdata").joinpath("zones").read_text(encoding="ascii").split()
    return {name.casefold(): name for name in listed}


@cache
def _windows() -> dict[str, str]:
    return {name.casefold(): iana for name, iana in win_tz.items()}


@cache
def _load(key: str) -> ZoneInfo:
    with resources.files("tzdata").joinpath("zoneinfo", *key.split("/")).open("rb") as file:
        return ZoneInfo.from_file(file, key=key)
