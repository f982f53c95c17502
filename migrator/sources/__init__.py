"""Source profiles: how each scheduler spells its documents."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from migrator import cron
from migrator.config import SourceSettings, TargetSettings, near, nearest
from migrator.errors import ConfigurationError
from migrator.sources.profile import MONGODB, POSTGRESQL, Context, Profile
from migrator.targets import load_target
from migrator.targets.model import SCHEDULER

_MAPPINGS = Path(__file__).parent / "mappings"
"""Mapping files that are shipped, each named after its source."""
_IN_PYTHON = ("stellaops", "agenda", "apscheduler", "apscheduler4", "orchestrator", "crawler", "support-center")
"""Shipped sources that are packages in this one, each with a ``PROFILE``."""
NAMES = (*_IN_PYTHON, *sorted(path.stem for path in _MAPPINGS.glob("*.toml")))
"""Every shipped source."""

_native_profiles: dict[tuple[Path, str], Profile] = {}
"""Shipped mapping file to a native target, and options, to its profile: every connection of a process needs it, and
a forked worker has those of its parent."""

GROUP = "migrator.sources"
"""Entry points by which an installed package offers a source of its own."""


def load_profile(name: str) -> Profile:
    """Return the profile of this name, or at ``package.module:NAME``; it is imported only now.

    Raises ``ConfigurationError`` for an unknown name, with the nearest one, and for what is no profile.
    """
    if name in _IN_PYTHON:
        shipped: Profile = import_module(f"{__name__}.{name.replace('-', '_')}").PROFILE
        return shipped
    if name in NAMES:
        return _of_file(shipped_mapping(name))
    installed = {point.name: point.value for point in entry_points(group=GROUP)}
    place = installed.get(name, name)
    if ":" not in place:
        raise ConfigurationError(f"unknown source profile {name!r}{nearest(name, (*NAMES, *sorted(installed)))}")
    module, _, attribute = place.partition(":")
    try:
        profile = getattr(import_module(module), attribute)
    except Exception as error:  # noqa: BLE001 - a module may raise whatever it likes, and a name be one of no module
        raise ConfigurationError(f"source profile {place}: cannot be imported: {type(error).__name__}") from None
    if not isinstance(profile, Profile):
        raise ConfigurationError(f"source profile {place}: expected a migrator.sources.profile.Profile")
    return profile


def _configured(settings: SourceSettings, target: TargetSettings) -> Profile:
    if settings.mapping is None:
        if target.is_native:
            return native_profile(settings.profile, target.name, target.options)
        return load_profile(settings.profile)
    profile = _of_file(Path(settings.mapping), NAMES, target.name, target.options)
    named = load_target(target.name).name if ":" in target.name else target.name
    if profile.target != named:
        raise ConfigurationError(
            f"the mapping {settings.mapping} feeds the tables of the target {profile.target}: set target.name to it"
        )
    return profile


def _of_file(
    path: Path, taken: Sequence[str] = (), target: str = SCHEDULER, options: Mapping[str, Any] | None = None
) -> Profile:
    """Return the profile of a mapping file; what reads one is imported only now."""
    profile: Profile = import_module(f"{__name__}.mapping.file").load_mapping(path, taken, target, options)
    return profile


def shipped_mapping(name: str) -> Path:
    """Return the path of the mapping file of a shipped source; a source that is written in Python has none there."""
    return _MAPPINGS / f"{name}.toml"


def installed_sources() -> Iterator[tuple[str, Profile]]:
    """Yield name and profile of the shipped sources, then of those that installed packages bring."""
    for name in dict.fromkeys((*NAMES, *sorted(point.name for point in entry_points(group=GROUP)))):
        yield name, load_profile(name)


def comparable_in_parallel() -> tuple[str, ...]:
    """Return the profiles whose parallel run can be compared (`Profile.slots`)."""
    return tuple(name for name in NAMES if load_profile(name).slots)


def described_profile(source: str) -> Profile:
    """Return the profile of a name, at ``package.module:NAME``, or of a mapping file, whose path ends with ``.toml``.

    Raises ``ConfigurationError`` if there is none.
    """
    return _of_file(Path(source), NAMES) if source.endswith(".toml") else load_profile(source)


def native_profile(source: str, target: str, options: Mapping[str, Any] | None = None) -> Profile:
    """Return the profile that moves a shipped source to a native target.

    ``options``: what is said of the target's options; None: their examples. Raises ``ConfigurationError`` for an
    unknown target, for one that takes no documents of the source, and for options that it does not take.
    """
    described = load_target(target)
    path = described.mappings.get(source)
    if path is None:
        installed = [point.name for point in entry_points(group=GROUP)]
        if source not in (*NAMES, *installed) and ":" not in source:
            raise ConfigurationError(f"unknown source profile {source!r}{nearest(source, (*NAMES, *installed))}")
        known = ", ".join(described.mappings) or "no shipped source"
        raise ConfigurationError(
            f"the target {target} takes documents of {known}, and none of {source}: write a mapping file for its tables"
        )
    key = (path, repr(options))
    if key not in _native_profiles:
        _native_profiles[key] = _of_file(path, target=target, options=options)
    return _native_profiles[key]


def profile_of(settings: SourceSettings, target: TargetSettings | None = None) -> Profile:
    """Return the configured profile, or that of the configured mapping file, for the configured target.

    Raises ``ConfigurationError`` for an unknown profile or zone, and for names in ``source.collections`` that the
    profile does not have, that MongoDB does not take, or that two collections share.
    """
    if settings.zone is not None:
        _zone_of(settings.zone)
    profile = _configured(settings, target or TargetSettings())
    server = POSTGRESQL if settings.in_postgres else MONGODB
    if server not in profile.servers:
        remedy = "remove source.uri" if settings.in_postgres else "set source.uri, uri_env or uri_file"
        place = {MONGODB: "collections of MongoDB", POSTGRESQL: "tables of PostgreSQL"}[profile.servers[0]]
        raise ConfigurationError(f"source profile {profile.name} reads {place}: {remedy}")
    _check_names([one.name for one in profile.collections], settings.collections, profile.name)
    return profile


def context_of(settings: SourceSettings, as_of: datetime) -> Context:
    """Return the input of decode besides the document, as of an instant (aware, UTC).

    Raises ``ConfigurationError`` for a ``source.zone`` that does not exist.
    """
    return Context(
        as_of=as_of,
        default_tenant=settings.default_tenant,
        zone=None if settings.zone is None else _zone_of(settings.zone),
        carry_expired_locks=settings.carry_expired_locks,
    )


def _zone_of(name: str) -> str:
    try:
        return cron.zone(name)[0].key
    except cron.ZoneError as error:
        raise ConfigurationError(f"source.zone: {error}{near(name, cron.zone_names())}") from None


COLLECTION_NAME = (
    "the name of a collection of MongoDB: not empty, without $ and NUL, no dot at either end, and none of the server's"
    " own (system.*)"
)


def is_collection_name(name: str) -> bool:
    """Whether MongoDB takes a text as the name of a collection that is not its own."""
    return (
        bool(name)
        and "$" not in name
        and "\0" not in name
        and not name.startswith((".", "system."))
        and name[-1] != "."
    )


def _check_names(known: Iterable[str], names: Mapping[str, str], profile: str) -> None:
    known = list(known)
    for collection, name in names.items():
        where = f"source.collections.{collection}"
        if collection not in known:
            hint = nearest(collection, known)
            raise ConfigurationError(f"{where}: profile {profile} has no collection of this name{hint}")
        if not is_collection_name(name):
            raise ConfigurationError(f"{where}: expected {COLLECTION_NAME}")
    taken: dict[str, str] = {}
    for collection in known:
        name = names.get(collection, collection)
        if name in taken:
            raise ConfigurationError(
                f"source.collections.{collection if collection in names else taken[name]}: {taken[name]} and"
                f" {collection} would both be read from one collection of the source; name another one"
            )
        taken[name] = collection
