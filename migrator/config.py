"""Settings: ``config.toml``, then the environment, into one frozen struct that says where it looked.

Every key may be overridden by ``MIGRATOR_<SECTION>__<KEY>``. Secrets come by reference (``uri_env``, ``uri_file``, a
libpq service) and are never echoed: whatever is printed goes through ``migrator.redaction``.
"""

import difflib
import os
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, timedelta
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Final, Literal, get_args, get_type_hints

import msgspec
from msgspec import Meta, Struct, field

from migrator.argument_types import checked
from migrator.durations import EXPECTED, LEAST, MOST, NONE, check_range, format_duration, parse_duration
from migrator.errors import ConfigurationError
from migrator.files import MissingError, UnreadableError, read_text, readable_by_all
from migrator.redaction import HIDDEN, redact_address, redact_all, redact_whole
from migrator.telemetry import is_utf8

DEFAULT_PATH = "config.toml"
PREFIX = "MIGRATOR_"
MOST_SECRET: Final = 65_536
"""Bytes that a file with an address may have: an address is one line."""
LARGEST = 2**31 - 1
"""The largest number that every driver and every calculation of time takes."""
IDENTIFIER = r"^[a-z_][a-z0-9_]{0,62}$"

LONGEST_WAIT: Final = timedelta(days=24)
"""The longest that sockets and both servers wait: they count milliseconds in 32 bits."""
YEAR: Final = timedelta(days=365)

Positive = Annotated[int, Meta(ge=1)]


def _range(least: timedelta, most: timedelta) -> Meta:
    return Meta(extra={"least": least, "most": most})


Wait = Annotated[timedelta, _range(LEAST, LONGEST_WAIT)]
WaitOrNone = Annotated[timedelta, _range(NONE, LONGEST_WAIT)]
Role = Annotated[str, Meta(pattern=IDENTIFIER)]


class Section(Struct, frozen=True, forbid_unknown_fields=True):
    """A section of the settings; its ``repr`` holds no secret, for it ends up in logs and in the messages of tests."""

    def __repr__(self) -> str:
        """Return the class with the settings that are no default, redacted."""
        default = type(self)()
        changed = {
            name: value for name in self.__struct_fields__ if (value := getattr(self, name)) != getattr(default, name)
        }
        keys = ", ".join(f"{name}={shown_value(name, value)!r}" for name, value in changed.items())
        return f"{type(self).__name__}({keys})"


class SourceSettings(Section, frozen=True, forbid_unknown_fields=True):
    """``[source]``: which scheduler, and what its documents do not say."""

    profile: str = "stellaops"
    """A shipped source, the name of an installed one (entry point ``migrator.sources``), or ``package.module:NAME``."""
    mapping: str | None = None
    """Path of a mapping file, which takes the place of ``profile``."""
    uri: str | None = None
    """Where the tables are, for a source in PostgreSQL; or one of the next two. Unset: the source is that of
    ``[mongo]``."""
    uri_env: str | None = None
    """Name of the environment variable that holds the URI."""
    uri_file: str | None = None
    """Path of the file that holds the URI."""
    default_tenant: str | None = None
    """Tenant of documents without one; unset: they go to quarantine."""
    zone: str | None = None
    """Time zone (IANA or Windows name) in which the source wrote times without an offset, and evaluated cron lines
    that name none; unset: such a document goes to quarantine if its meaning depends on the zone."""
    carry_expired_locks: bool = False
    collections: dict[str, str] = field(default_factory=dict)
    """Collection names that differ from the profile's: ``{agendaJobs = "jobs"}``."""

    @property
    def in_postgres(self) -> bool:
        """Whether the source is tables of PostgreSQL."""
        return not self.uri == self.uri_env == self.uri_file is None


class TargetSettings(Section, frozen=True, forbid_unknown_fields=True):
    """``[target]``: where the rows go."""

    name: str = "scheduler"
    """``scheduler``: the tool's own schema. Otherwise a native target: a shipped one, the name of an installed one
    (entry point ``migrator.targets``), or ``package.module:NAME``."""
    schema: str | None = None
    """Of a native target: the schema of the library's tables; unset: the library's own default."""
    tables: dict[str, str] = field(default_factory=dict)
    """Of a native target: names of tables that differ from the library's defaults: ``{apscheduler_jobs = "jobs"}``."""
    interpreter: str | None = None
    """Of a native target: the program that has the library, a ``python`` or a ``node``; unset: the tool's own Python,
    or the ``node`` of the path."""
    packages: str | None = None
    """Of a native target whose library is in JavaScript: the folder whose ``node_modules`` hold it."""
    options: dict[str, Any] = field(default_factory=dict)
    """Of a native target: what it asks (``migrator target show NAME``): ``{scheduler_name = "main"}``."""

    @property
    def is_native(self) -> bool:
        """Whether the target is tables that a library has made."""
        return self.name != "scheduler"


class MongoSettings(Section, frozen=True, forbid_unknown_fields=True):
    """``[mongo]``: the server of MongoDB."""

    uri: str | None = None
    """Where the server is; or one of the next two."""
    uri_env: str | None = None
    """Name of the environment variable that holds the URI."""
    uri_file: str | None = None
    """Path of the file that holds the URI."""
    database: str | None = None
    """Name of the database; unset: the one named in the URI."""
    timeout: Wait = timedelta(seconds=10)
    """How long to look for a server before it counts as unreachable."""


class PostgresSettings(Section, frozen=True, forbid_unknown_fields=True):
    """``[postgres]``: the server of PostgreSQL."""

    dsn: str | None = None
    """A URI, libpq's ``key=value`` form, or a libpq service (``service=target``); or one of the next two."""
    dsn_env: str | None = None
    """Name of the environment variable that holds the DSN."""
    dsn_file: str | None = None
    """Path of the file that holds the DSN."""
    timeout: Annotated[timedelta, _range(timedelta(seconds=1), LONGEST_WAIT)] = timedelta(seconds=10)
    """How long to wait for a connection."""
    pool_size: Annotated[int, Meta(ge=1, le=1_000)] = 10
    """Connections that the threads of a store share for the calls of a tenant; as many others claim and finish runs."""
    migration_role: Role = "scheduler_migration"
    """Owner of the tables; the user of the DSN is a member, or the owner."""
    service_role: Role = "scheduler_service"
    """What a session of one tenant acts as: it sees that tenant's rows and those of ``*``."""
    dispatcher_role: Role = "scheduler_dispatcher"
    """What fires, claims and locks across tenants acts as."""


class PersistenceSettings(Section, frozen=True, forbid_unknown_fields=True):
    """``[persistence]``: which database the application uses; the cutover changes it."""

    scheduler: Literal["mongo", "postgres"] = "mongo"
    """The database that the scheduler's data is read from and written to."""
    shadow: Literal["off", "read"] = "off"
    """``read``: repeat every read on the other database, and log what differs."""
    copy: Literal["refused", "may be changed"] = "refused"
    """Whether a PostgreSQL that is a copy, which no cutover has made active, may be written to."""


class CopySettings(Section, frozen=True, forbid_unknown_fields=True):
    """``[copy]``: how the copy and the comparison are cut and spread."""

    workers: Annotated[int, Meta(ge=0, le=256)] = 0
    """Worker processes; 0: one per processor that this process may use."""
    executor: Literal["local", "dask"] = "local"
    dask_scheduler: str | None = None
    """Address of a Dask scheduler; unset: a cluster of this machine is started."""
    chunk_documents: Annotated[int, Meta(ge=1, le=1_000_000)] = 20_000
    chunk_bytes: Annotated[int, Meta(ge=1_024)] = 16_777_216
    """A chunk holds about so many bytes of documents; the smaller of the two bounds counts."""
    patience: Wait = timedelta(minutes=5)
    """How long a server that goes away during the copy, or a table that somebody else has locked, is waited for."""
    max_rate: Annotated[int, Meta(ge=0)] = 0
    """Documents of the source that all workers together read in a second, on average; 0: no limit."""
    max_replication_lag: WaitOrNone = NONE
    """Lag of the source's slowest secondary (or standby) beyond which no chunk is begun; zero: no limit."""
    max_source_load: Annotated[int, Meta(ge=0)] = 0
    """Active clients and queued operations of the source's server beyond which no chunk is begun; 0: no limit."""
    history: str = "all"
    """Which finished documents are copied: ``all``, ``none``, or those that finished within a duration before the first
    plan."""


class TailSettings(Section, frozen=True, forbid_unknown_fields=True):
    """``[tail]``: how the changes of the source are applied."""

    workers: Annotated[int, Meta(ge=1, le=64)] = 1
    """Processes that write rows; 1: the tail's own alone."""


class SchedulerSettings(Section, frozen=True, forbid_unknown_fields=True):
    """``[scheduler]``: a worker process."""

    enabled: bool = True
    handlers: str | None = None
    """Where the handlers are: ``module:name`` of a registry, or of a mapping of names to functions."""
    queues: list[str] = field(default_factory=list)
    """Work only for schedules that name one of these queues; empty: whatever their queue."""
    executors: list[str] = field(default_factory=list)
    """Ids by which applications claim runs that they execute themselves (``Scheduler.claim``). The leader ends those of
    their runs whose lease is over."""
    poll: Wait = timedelta(seconds=10)
    batch: Annotated[int, Meta(ge=1, le=10_000)] = 100
    concurrency: Annotated[int, Meta(ge=1, le=10_000)] = 10
    """Runs that one process works on at the same time."""
    lease: Wait = timedelta(minutes=5)
    heartbeat: Wait = timedelta(seconds=10)
    dead_after: Wait = timedelta(minutes=1)
    leader_ttl: Wait = timedelta(seconds=30)
    sweep_every: Wait = timedelta(minutes=1)
    metrics_every: Wait = timedelta(seconds=30)
    stop_within: WaitOrNone = timedelta(seconds=30)
    """How long a process that stops waits for its runs before it gives them back."""
    retention_keep: Annotated[int, Meta(ge=0)] = 100
    """Newest runs of a schedule that are kept whatever their age."""
    retention_age: Annotated[timedelta, _range(NONE, MOST)] = timedelta(days=30)
    """Runs that are younger are kept whatever their number."""
    retention_every: WaitOrNone = timedelta(0)
    """How often the leader looks for old runs; zero: never."""
    retention_from: date | None = None
    """The first day (UTC) on which the leader removes them; unset: it only says what it would remove."""
    retention_archive: str | None = None
    """Folder of the files into which runs are written before they are removed; unset: they are not archived."""
    audit: bool = True


class CutoverSettings(Section, frozen=True, forbid_unknown_fields=True):
    """``[cutover]``: the cutover, and the rollback."""

    environment: str = ""
    """What this installation is called, in the journal of the cutover and in the report.

    If empty, it is called by the target's database and host (``migrator.connections.identity``).
    """
    max_pause: Wait = timedelta(seconds=30)
    """A cutover that would hold up the writers for longer is taken back."""
    overdue: Literal["fire_once", "skip", "keep"] = "fire_once"
    """What becomes of triggers that are overdue at the cutover; keep: as each trigger's own misfire policy says."""
    on_unwritable: Literal["warn", "refuse"] = "warn"
    """What becomes of a schedule that is made or changed while a rollback is open, and that the source cannot state."""
    parity_check_max_age: Annotated[timedelta, _range(LEAST, MOST)] = timedelta(days=1)
    """How old the last complete comparison may be; only what changed since is compared under the fence."""
    max_quarantined_percent: Annotated[int, Meta(ge=0, le=100)] = 10
    """How many documents of one collection may be in quarantine, in percent; 100: even all of them."""
    max_lag: Wait = timedelta(seconds=30)
    max_clock_skew: WaitOrNone = timedelta(seconds=5)
    stability: Annotated[timedelta, _range(NONE, YEAR)] = timedelta(days=1)
    """How long both sides must have run at the same time without an error, where a parallel run is recorded."""
    slot_tolerance: Annotated[timedelta, _range(LEAST, timedelta(hours=1))] = timedelta(seconds=30)
    """How far from a slot a run of the old side may have begun in a parallel run, if it does not name the slot."""
    window: Annotated[timedelta, _range(NONE, YEAR)] = timedelta(days=2)
    """How long the rollback stays open, unless somebody decides to close it earlier."""
    confirm_within: WaitOrNone = NONE
    """To a library's tables: when `cutover status` says that nobody has confirmed the application; zero: never."""
    fence: Literal["any", "write-block", "roles", "collections"] = "any"
    """Which fence stops the writers of MongoDB: one of a whole server or database, as its rights allow; or, for a
    cutover of a group of collections, one that holds the collections of the source alone."""
    tolerated_writers: list[str] = field(default_factory=list)
    """Users of MongoDB (name@database) that the fence does not stop, and that are known not to write."""
    rehearsals: Annotated[int, Meta(ge=0, le=100)] = 0
    """How many complete rehearsals with equal result the cutover requires; 0: none."""
    rehearsal_config: str = "rehearsal.toml"
    """The configuration of the servers on which `cutover rehearse` makes them; relative to the configuration file."""
    backup_directory: str = "backups"
    backup: bool = True
    """Export MongoDB at the cutover, so that rollback level 3 is possible."""


class HookSettings(Section, frozen=True, forbid_unknown_fields=True):
    """``[hooks]``: commands that are called at named points, as lists of words; empty: none is called."""

    timeout: Wait = timedelta(minutes=1)
    """How long a hook may take; then it is ended, and has failed."""
    environment: list[str] = field(default_factory=list)
    """Names of variables that hooks get although they hold a login; without it they get none of those."""
    backfill_started: list[str] = field(default_factory=list)
    backfill_ended: list[str] = field(default_factory=list)
    parity_ended: list[str] = field(default_factory=list)
    cutover_before_fence: list[str] = field(default_factory=list)
    cutover_fenced: list[str] = field(default_factory=list)
    cutover_opened: list[str] = field(default_factory=list)
    cutover_ended: list[str] = field(default_factory=list)
    cutover_failed: list[str] = field(default_factory=list)
    rollback_ended: list[str] = field(default_factory=list)


class ReportSettings(Section, frozen=True, forbid_unknown_fields=True):
    """``[report]``: where reports go, and how much they list."""

    directory: str = "reports"
    max_differences: Positive = 1_000
    """Differences listed one by one; beyond that they are counted."""


class EmbeddedSettings(Section, frozen=True, forbid_unknown_fields=True):
    """``[embedded]``: binaries of the demo's servers; unset: those inside the wheels."""

    mongod: str | None = None
    postgres_bin: str | None = None
    postgres_version: Literal[15, 16, 18] = 18


class Settings(Struct, frozen=True, forbid_unknown_fields=True):
    """All settings, one struct per section of ``config.toml``; defaults are those of ``config.example.toml``."""

    source: SourceSettings = field(default_factory=SourceSettings)
    target: TargetSettings = field(default_factory=TargetSettings)
    mongo: MongoSettings = field(default_factory=MongoSettings)
    postgres: PostgresSettings = field(default_factory=PostgresSettings)
    persistence: PersistenceSettings = field(default_factory=PersistenceSettings)
    scheduler: SchedulerSettings = field(default_factory=SchedulerSettings)
    copy: CopySettings = field(default_factory=CopySettings)
    tail: TailSettings = field(default_factory=TailSettings)
    cutover: CutoverSettings = field(default_factory=CutoverSettings)
    hooks: HookSettings = field(default_factory=HookSettings)
    report: ReportSettings = field(default_factory=ReportSettings)
    embedded: EmbeddedSettings = field(default_factory=EmbeddedSettings)


_ADDRESSES: Final = (("mongo", "uri"), ("source", "uri"), ("postgres", "dsn"))
"""Section and key of each server's address; ``<key>_env`` and ``<key>_file`` say where it is instead."""


@checked
def load_settings(
    source: str | Path | Mapping[str, Mapping[str, Any]] | None = None, environment: Mapping[str, str] | None = None
) -> Settings:
    """Read the settings, then the environment, and check every key.

    ``source``: the path of a configuration file, or its sections as a mapping; if omitted: ``config.toml``, if it
    exists. A variable ``MIGRATOR_<SECTION>__<KEY>`` of ``environment`` (if omitted: that of the process) has
    precedence. Raises ``ConfigurationError``, a ``UsageError``, with the key, where it stands, and what was expected.
    """
    return load_with_exposed_files(source, environment)[0]


def load_with_exposed_files(
    source: str | Path | Mapping[str, Mapping[str, Any]] | None = None, environment: Mapping[str, str] | None = None
) -> tuple[Settings, list[Path]]:
    """Return the settings as ``load_settings`` does, and the files of secrets that every user of this machine may read.

    These are the files named by ``uri_file`` and ``dsn_file``, and the configuration file if it holds a password.
    """
    environment = os.environ if environment is None else environment
    file: Path | str
    if isinstance(source, Mapping):
        file = "the given sections"
        tree: dict[str, Any] = {
            name: dict(keys) if isinstance(keys, Mapping) else keys for name, keys in source.items()
        }
    else:
        file = Path(source or DEFAULT_PATH)
        tree = _read(file, required=source is not None)
    _refuse_unknown(tree, f"in {file}")
    inline = [tree.get(section, {}).get(key) for section, key in _ADDRESSES]
    _overlay_environment(tree, environment)
    for section, keys in tree.items():
        for key, value in keys.items():
            try:
                keys[key] = _usable(section, key, value)
            except ValueError as error:
                place = _place(f"{section}.{key}", file, environment)
                raise ConfigurationError(f"setting at {section}.{key}: {error}; {place}") from None
    try:
        settings = msgspec.convert(tree, Settings)
    except msgspec.ValidationError as error:
        expected, _, where = str(error).partition(" - at `$.")
        where = where.rstrip("`")
        expected = _one_of(where) if expected.startswith("Invalid enum value") else lowered(expected)
        raise ConfigurationError(f"setting at {where}: {expected}; {_place(where, file, environment)}") from None
    files = (settings.mongo.uri_file, settings.source.uri_file, settings.postgres.dsn_file)
    held = [Path(one) for one in files if one is not None]
    if isinstance(file, Path) and any(isinstance(one, str) and _holds_password(one) for one in inline):
        held.append(file)
    return settings, [one for one in held if readable_by_all(one)]


_KEYS_OF_ADDRESSES: Final = frozenset({"uri", "dsn", "dask_scheduler"})
_REFERENCES: Final = ("uri_env", "uri_file", "dsn_env", "dsn_file")
_NAME_OF_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")


def shown_value(key: str, value: Any) -> Any:  # noqa: ANN401 - a setting of any type
    """Return the value of a setting as it may be shown: an address without its secrets, a hook without its arguments.

    A reference is shown if it is one, and hidden if it holds an address.
    """
    if key in _KEYS_OF_ADDRESSES and isinstance(value, str):
        return redact_address(value)
    if key.endswith("_env") and isinstance(value, str):
        return value if _NAME_OF_VARIABLE.fullmatch(value) else HIDDEN
    if key in _REFERENCES and isinstance(value, str):
        return redact_whole(value)
    if key in HookSettings.__struct_fields__ and key != "environment" and isinstance(value, list):
        return [*map(redact_whole, value[:1]), *([HIDDEN] if value[1:] else [])]
    return redact_all(value)


class EffectiveSetting(Struct, frozen=True):
    """One setting as it is in force, and where it comes from; credentials are taken out."""

    key: str
    """``section.key``."""
    value: Any
    """None: not set."""
    origin: str
    """``default``, the path of the configuration file, or the name of the environment variable."""


def effective_settings(
    source: str | None = None, environment: Mapping[str, str] | None = None
) -> list[EffectiveSetting]:
    """Return every setting with its origin, in the order of ``config.example.toml``; raises as ``load_settings``."""
    environment = os.environ if environment is None else environment
    settings = load_settings(source, environment)
    file = Path(source or DEFAULT_PATH)
    tree = _read(file, required=source is not None)
    effective, values = [], settings_tree(settings)
    replaced = {
        (section, name) for section, key in _ADDRESSES if _replaced(section, key, environment) for name in _said(key)
    }
    for section, keys in known_keys().items():
        for key in keys:
            variable = _variable(section, key)
            stated = key in tree.get(section, {}) and (section, key) not in replaced
            origin = variable if variable in environment else str(file) if stated else "default"
            effective.append(EffectiveSetting(f"{section}.{key}", shown_value(key, values[section][key]), origin))
    return effective


def settings_tree(settings: Settings) -> dict[str, dict[str, Any]]:
    """Return the settings as the sections of a configuration file, which ``load_settings`` takes; durations as text."""
    tree: dict[str, dict[str, Any]] = msgspec.to_builtins(settings, builtin_types=(timedelta,))
    for section, key in _duration_limits():
        tree[section][key] = format_duration(tree[section][key])
    return tree


def mongo_uri(settings: Settings, environment: Mapping[str, str] | None = None) -> str:
    """Return the source's URI, its reference resolved; raise ``ConfigurationError`` where there is none."""
    mongo = settings.mongo
    return _unambiguous("mongo.uri", _resolve("mongo.uri", mongo.uri, mongo.uri_env, mongo.uri_file, environment))


def source_uri(settings: Settings, environment: Mapping[str, str] | None = None) -> str:
    """Return the URI of a source in PostgreSQL, its reference resolved; raises ``ConfigurationError``."""
    source = settings.source
    uri = _resolve("source.uri", source.uri, source.uri_env, source.uri_file, environment)
    return _unambiguous("source.uri", uri)


def postgres_dsn(settings: Settings, environment: Mapping[str, str] | None = None) -> str:
    """Return the target's DSN, its reference resolved; raise ``ConfigurationError`` where there is none."""
    postgres = settings.postgres
    dsn = _resolve("postgres.dsn", postgres.dsn, postgres.dsn_env, postgres.dsn_file, environment)
    return _unambiguous("postgres.dsn", dsn)


def names_source(settings: Settings) -> bool:
    """Whether the settings say where a source is."""
    mongo = settings.mongo
    return settings.source.in_postgres or any(one is not None for one in (mongo.uri, mongo.uri_env, mongo.uri_file))


def _holds_password(text: str) -> bool:
    authority = text.partition("://")[2].partition("@")
    return bool(authority[1] and ":" in authority[0]) or re.search(r"(?i)\bpassword\s*=", text) is not None


@cache
def known_keys() -> Mapping[str, tuple[str, ...]]:
    """Return section → its keys, in order."""
    return MappingProxyType(
        {section.name: section.type.__struct_fields__ for section in msgspec.structs.fields(Settings)}
    )


def _read(file: Path, *, required: bool) -> dict[str, Any]:
    try:
        return parse_toml(read_text(file))
    except MissingError:
        if required:
            raise ConfigurationError(f"no configuration file {file}; config.example.toml shows every key") from None
        return {}
    except UnreadableError as error:
        raise ConfigurationError(f"cannot read {file}: {error}") from None
    except ValueError as error:
        raise ConfigurationError(f"{file} is not TOML: {error}") from None


def parse_toml(text: str) -> dict[str, Any]:
    """Return the tree of a TOML text; raise ``ValueError``, whose text says in lower case what is wrong."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(lowered(str(error))) from None
    except RecursionError:
        raise ValueError("its values lie too deep in one another") from None
    except (ValueError, OverflowError):  # of Python's own conversions, which know no line
        raise ValueError("a number or a time in it has more digits than can be read") from None


def _refuse_unknown(tree: Mapping[str, Any], where: str) -> None:
    known = known_keys()
    for section, keys in tree.items():
        if section not in known:
            raise ConfigurationError(f"unknown section [{section}] {where}{nearest(section, known)}")
        if not isinstance(keys, dict):
            raise ConfigurationError(f"{section} {where} must be a section, not a value")
        for key in keys:
            if key not in known[section]:
                raise ConfigurationError(f"unknown key {section}.{key} {where}{nearest(key, known[section])}")


def _said(key: str) -> tuple[str, ...]:
    """Return the keys that say where a server is; one of them is given."""
    return key, f"{key}_env", f"{key}_file"


def _replaced(section: str, key: str, environment: Mapping[str, str]) -> bool:
    """Whether a variable says where a server is, in place of what the sections say of it."""
    return any(_variable(section, name) in environment for name in _said(key))


def _overlay_environment(tree: dict[str, Any], environment: Mapping[str, str]) -> None:
    """Put the variables over the sections; one that says where a server is replaces all that the sections say of it."""
    for section, key in _ADDRESSES:
        if _replaced(section, key, environment):
            tree[section] = {name: value for name, value in tree.get(section, {}).items() if name not in _said(key)}
    for name in sorted(environment):
        match = re.fullmatch(PREFIX + r"([A-Z]+)__([A-Z0-9_]+)", name)
        if match is None:
            continue
        section, key = match[1].lower(), match[2].lower()
        _refuse_unknown({section: {key: None}}, "in the environment")
        tree.setdefault(section, {})[key] = _typed(section, key, environment[name])


def _typed(section: str, key: str, text: str) -> object:
    """Give an environment text the type of its key: numbers and flags are written as in TOML, all else is text."""
    default = getattr(getattr(Settings(), section), key)
    if not isinstance(default, (bool, int, dict, list)):
        return text
    try:
        tree = parse_toml(f"v = {text}")
    except ValueError:
        return text
    if tree.keys() != {"v"}:
        raise ConfigurationError(
            f"setting at {section}.{key}: the value has more than one line; it is in {_variable(section, key)}"
        )
    return tree["v"]


def _one_of(where: str) -> str:
    """Return the values that the setting at ``section.key`` may have, as an error says them."""
    section, _, key = where.partition(".")
    values = get_args(get_type_hints(get_type_hints(Settings)[section])[key])
    return f"expected one of {', '.join(str(value) for value in values)}"


def _place(where: str, file: Path | str, environment: Mapping[str, str]) -> str:
    """Return where a setting stands, ``where`` beginning with ``section.key``."""
    section, _, key = where.partition(".")
    variable = _variable(section, re.split(r"[.\[]", key)[0])
    return f"it is in {variable if variable in environment else file}"


def _variable(section: str, key: str) -> str:
    return f"{PREFIX}{section.upper()}__{key.upper()}"


def _usable(section: str, key: str, value: object) -> object:
    """Return a value of a setting, its text made a duration if it is one; raise ``ValueError`` for what is unusable."""
    limits = _duration_limits().get((section, key))
    if (section, key) == ("copy", "history"):
        history_age(value)
        return value
    wrong = _unusable(value)
    if wrong is not None:
        raise ValueError(wrong if limits is None else EXPECTED)
    if limits is None:
        return value
    if isinstance(value, str):
        return parse_duration(value, **limits)
    if isinstance(value, timedelta):  # of sections that are given in code
        check_range(value, **limits)
        return value
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    raise ValueError(f"{EXPECTED}, not a number alone" if is_number else EXPECTED)


HISTORY: Final = 'expected "all", "none", or a duration with its unit, such as "30d"'


def history_age(value: object) -> timedelta | None:
    """Return how old finished documents may be to be copied, by ``copy.history``; None: there is no limit.

    Raises ``ValueError`` for a value that the setting does not take.
    """
    if value in ("all", "none"):
        return NONE if value == "none" else None
    try:
        return parse_duration(str(value) if isinstance(value, str) else "")
    except ValueError:
        raise ValueError(HISTORY) from None


@cache
def _duration_limits() -> dict[tuple[str, str], dict[str, timedelta]]:
    """Return section and key of each setting that is a duration, with the limits of its annotation."""
    return {
        (section.name, key): annotation.__metadata__[0].extra
        for section in msgspec.structs.fields(Settings)
        for key, annotation in get_type_hints(section.type, include_extras=True).items()
        if getattr(annotation, "__origin__", None) is timedelta
    }


def _unusable(value: object) -> str | None:
    """Return the part of a setting's value that no driver could take, as words; None if there is none."""
    if isinstance(value, str):
        return _not_text(value)
    if isinstance(value, (int, float)):
        return None if abs(value) <= LARGEST else f"expected a number of at most {LARGEST}"
    if isinstance(value, dict):
        return next(filter(None, map(_unusable, (*value, *value.values()))), None)
    return next(filter(None, map(_unusable, value)), None) if isinstance(value, list) else None


def _not_text(text: str) -> str | None:
    if "\0" in text:
        return "expected text without the character NUL"
    return None if is_utf8(text) else "expected text in UTF-8"


_COMPARED: Final = 100
"""Known names that a name is compared with, and characters of it."""


def near(name: str, known: Sequence[str]) -> str:
    """Return the end of a message about an unknown name: the nearest known one, or nothing if none is near."""
    # a comparison takes time with the square of a name's length, and each known name is compared
    close = difflib.get_close_matches(name[:_COMPARED], known, n=1)
    return f"; did you mean {close[0]}?" if close else ""


def nearest(name: str, known: Iterable[str]) -> str:
    """Return the end of a message about an unknown name: the nearest known one, else all of them."""
    listed = list(known)
    if hint := near(name, listed[:_COMPARED]):
        return hint
    further = f", … ({len(listed):,} in all)" if len(listed) > _COMPARED else ""
    return f"; known: {', '.join(listed[:_COMPARED])}{further}"


def lowered(text: str) -> str:
    """Return the text with its first letter in lower case, as errors are written."""
    return text[:1].lower() + text[1:]


def _unambiguous(name: str, uri: str) -> str:
    """Return a URI, or refuse one that a driver would split inside its password, and then quote the rest of it."""
    wrong = _not_text(uri)
    if wrong is not None:
        raise ConfigurationError(f"{name}: {wrong}")
    scheme, separator, rest = uri.partition("://")
    if not separator or re.fullmatch(r"[a-z][a-z0-9+]*", scheme) is None:
        return uri  # libpq's key=value form, or what the driver refuses by itself
    if any(not one.isprintable() for one in rest.strip()):
        raise ConfigurationError(f"{name} holds a line end or a control character: it is one line of printable text")
    place = rest.partition("?")[0]
    authority, _, path = place.partition("/")
    if authority.count("@") > 1 or ("@" not in authority and "@" in path):
        raise ConfigurationError(
            f"{name} holds an @ or a / that belongs to a user, a password or a database and is not percent-encoded:"
            " write @ as %40 and / as %2F"
        )
    return uri


def _resolve(
    name: str,
    value: str | None,
    variable: str | None,
    file: str | None,
    environment: Mapping[str, str] | None,
) -> str:
    environment = os.environ if environment is None else environment
    given = [part for part in (value, variable, file) if part is not None]
    if len(given) > 1:
        raise ConfigurationError(f"{name} is given more than once; keep one of {name}, {name}_env, {name}_file")
    if value is not None:
        return value
    if variable is not None:
        if not _NAME_OF_VARIABLE.fullmatch(variable):  # not quoted: it may be the address itself
            raise ConfigurationError(f"{name}_env: expected the name of an environment variable, such as THE_ADDRESS")
        if variable not in environment:
            raise ConfigurationError(f"{name}_env names the environment variable {variable}, which is not set")
        return environment[variable]
    if file is not None:
        if redact_whole(file) != file:
            raise ConfigurationError(
                f"{name}_file: expected the path of a file that holds the address, not the address"
            )
        try:
            return read_text(Path(file), most=MOST_SECRET).strip()
        except UnreadableError as error:
            raise ConfigurationError(f"{name}_file cannot be read: {file}: {error}") from None
    section, _, key = name.partition(".")
    raise ConfigurationError(
        f"{name} is not set; looked in [{section}] of the configuration file and in "
        f"{_variable(section, key)}, {name}_env, {name}_file"
    )
