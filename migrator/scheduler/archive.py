"""Archive of the runs that retention removes: compressed files of JSON lines, each checked before its rows go.

A file is one batch of one tenant. It is written under a temporary name, flushed, read back, compared with the rows, and
only then gets its name; the rows are deleted after that. So what ends in between leaves rows that are archived again by
the next call, and never an archive that holds less than what was deleted. No file is ever overwritten.

Each line is one run with the lines of its log (``ArchivedRun``). A column that is null has no member. A JSON column is
the JSON value itself; all other columns are texts, numbers and truth values, times as RFC 3339 in UTC.
"""

import gzip
import itertools
import os
import zlib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any, BinaryIO, Final, Literal, TypeVar
from urllib.parse import quote
from uuid import UUID

import msgspec

from migrator.errors import ArchiveError, OvertakenError, StoreError, UsageError
from migrator.files import flush_folder, open_private
from migrator.records import ExecutionLog, Record, Run
from migrator.store.protocols import Session
from migrator.values.copy_format import column_types

FORMAT: Final = 1
SUFFIX: Final = ".jsonl.gz"
UNFINISHED: Final = ".partial"
"""End of the name of a file that is being written, or that a killed process left."""
_LONGEST_TENANT: Final = 100
"""Characters of a tenant in the name of a file; a longer one is cut, and its digest follows."""
_RUNS_AT_ONCE: Final = 100
"""The lines of so many runs are in memory at the same time."""

R = TypeVar("R", bound=Record)


class ArchivedRun(msgspec.Struct, frozen=True, kw_only=True):
    """One line of an archive."""

    run: Run
    logs: tuple[ExecutionLog, ...]
    """In time order."""


class ArchiveFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file that was written and checked."""

    path: str
    runs: int
    logs: int
    """Lines of the logs of these runs."""


class _ArchiveLine(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    format: Literal[1]
    run: dict[str, msgspec.Raw]
    logs: tuple[dict[str, msgspec.Raw], ...]


class _Content:
    """Count, ids and digest of what a file holds."""

    def __init__(self) -> None:
        self.ids: list[UUID] = []
        self.logs = 0
        self.digest = sha256()

    def add(self, one: ArchivedRun, line: bytes) -> None:
        self.ids.append(one.run.id)
        self.logs += len(one.logs)
        self.digest.update(line)

    def difference(self, other: "_Content") -> str | None:
        """Say how another file differs; None: it does not."""
        if (len(self.ids), self.logs) != (len(other.ids), other.logs):
            expected = f"{len(self.ids):,} runs with {self.logs:,} lines"
            return f"it holds {len(other.ids):,} runs with {other.logs:,} lines, expected {expected}"
        if self.ids != other.ids:
            return "it holds other runs"
        if self.digest.digest() != other.digest.digest():
            return "it holds other values"
        return None


def check_folder(folder: Path) -> None:
    """Raise ``UsageError`` unless files can be made in this folder.

    The folder itself is not made: it may be a volume that is not mounted.
    """
    try:
        is_folder = folder.is_dir()
    except (OSError, ValueError):  # a name that the file system does not take
        is_folder = False
    if not is_folder:
        raise UsageError(f"archive: {folder} is not a folder; make it first")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise UsageError(f"archive: no right to write into the folder {folder}")


def write_archive(folder: Path, session: Session, runs: Sequence[Run]) -> ArchiveFile:
    """Write runs with their logs into a new file (0600), and check it.

    The session must hold the runs (``Runs.held``). Raises ``ArchiveError``, and leaves no file that is
    not whole; the caller must not delete the runs then.
    """
    path, temporary = None, None
    try:
        path, temporary, raw = _create(folder, session.tenant, session.now)
        with raw:
            written = _write(raw, session, runs)
            raw.flush()
            os.fsync(raw.fileno())
        _check(temporary, written, runs)
        temporary.rename(path)
        temporary = None
        flush_folder(folder)
    except OvertakenError:
        raise
    except (ArchiveError, OSError, StoreError) as error:
        why = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise ArchiveError(f"cannot archive runs in {path or folder}: {why}; they were not removed") from error
    finally:
        if temporary is not None:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
    return ArchiveFile(path=str(path), runs=len(written.ids), logs=written.logs)


def read_archive(path: Path) -> Iterator[ArchivedRun]:
    """Yield the runs of a file; raises ``ArchiveError`` if it is missing, cut off, damaged, or none of this format."""
    number = 0
    try:
        with gzip.open(path, "rb") as lines:
            for line in lines:
                number += 1
                yield _decoded(line)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ArchiveError(f"{path} is damaged after line {number:,}: {error}") from error
    except OSError as error:
        raise ArchiveError(f"{path} cannot be read: {(error.strerror or type(error).__name__).lower()}") from error
    except msgspec.MsgspecError as error:
        raise ArchiveError(f"{path}: line {number:,} is not a run: {error}") from error


def _create(folder: Path, tenant: str, now: datetime) -> tuple[Path, Path, BinaryIO]:
    """Return the name that a file will have, its temporary name, and the file, which nobody else can make meanwhile."""
    of_tenant = quote(tenant, safe="")
    if len(of_tenant) > _LONGEST_TENANT:
        of_tenant = f"{of_tenant[:_LONGEST_TENANT]}~{sha256(tenant.encode()).hexdigest()[:16]}"
    stem = f"runs-{of_tenant}-{now.astimezone(UTC):%Y%m%dT%H%M%S.%fZ}"
    for number in itertools.count(1):
        path = folder / f"{stem}{SUFFIX if number == 1 else f'-{number}{SUFFIX}'}"
        temporary = folder / f".{path.name}{UNFINISHED}"
        try:
            raw = open_private(temporary, exclusive=True)
        except FileExistsError:
            continue
        if not path.exists():
            return path, temporary, raw
        raw.close()
        temporary.unlink()
    raise AssertionError  # the numbers do not end


def _write(raw: BinaryIO, session: Session, runs: Sequence[Run]) -> _Content:
    written = _Content()
    with gzip.GzipFile(filename="", fileobj=raw, mode="wb", mtime=0) as file:
        for first in range(0, len(runs), _RUNS_AT_ONCE):
            some = runs[first : first + _RUNS_AT_ONCE]
            logs: dict[UUID | None, list[ExecutionLog]] = defaultdict(list)
            for one in session.execution_logs.of_runs([run.id for run in some]):
                logs[one.run_id].append(one)
            for run in some:
                archived = ArchivedRun(run=run, logs=tuple(logs[run.id]))
                line = _encoded(archived)
                file.write(line)
                written.add(archived, line)
    return written


def _check(path: Path, written: _Content, runs: Sequence[Run]) -> None:
    """Raise ``ArchiveError`` unless the file holds these runs, and reads back as what was written."""
    content = _Content()
    for run, line in itertools.zip_longest(runs, read_archive(path)):
        if line is not None:
            content.add(line, _encoded(line))
            if run is not None and line.run.id == run.id and line.run != run:
                raise ArchiveError("the file does not read back as it was written: a run has other values")
    if why := written.difference(content):
        raise ArchiveError(f"the file does not read back as it was written: {why}")


def _encoded(one: ArchivedRun) -> bytes:
    members = {"format": FORMAT, "run": _members(one.run), "logs": [*map(_members, one.logs)]}
    return msgspec.json.encode(members) + b"\n"


def _members(row: Record) -> Mapping[str, object]:
    return {name: _member(value) for name in row.__struct_fields__ if (value := getattr(row, name)) is not None}


def _member(value: object) -> object:
    if isinstance(value, bytes):
        return msgspec.Raw(value)
    return value.astimezone(UTC) if isinstance(value, datetime) else value


def _decoded(line: bytes) -> ArchivedRun:
    members = msgspec.json.decode(line, type=_ArchiveLine)
    return ArchivedRun(run=_row(Run, members.run), logs=tuple(_row(ExecutionLog, one) for one in members.logs))


def _row(record: type[R], members: Mapping[str, msgspec.Raw]) -> R:
    """Return a row of its members; raises ``msgspec.ValidationError``."""
    decoders = _decoders(record)
    if unknown := members.keys() - decoders.keys():
        raise msgspec.ValidationError(f"{record.table} has no column {', '.join(sorted(unknown))}")
    values = {name: bytes(raw) if (one := decoders[name]) is None else one.decode(raw) for name, raw in members.items()}
    try:
        return record(**values)
    except TypeError as error:
        raise msgspec.ValidationError(f"{record.table}: {error}") from None


@cache
def _decoders(record: type[Record]) -> Mapping[str, msgspec.json.Decoder[Any] | None]:
    """Return column → what reads it; None: a JSON column, whose value stays text."""
    fields = {field.name: field.type for field in msgspec.structs.fields(record)}
    kinds = column_types(record)
    return {name: None if kinds[name] == "jsonb" else msgspec.json.Decoder(kind) for name, kind in fields.items()}
