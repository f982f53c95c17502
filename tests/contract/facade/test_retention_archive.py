"""Retention with an archive: what is removed is in a file that was checked, and what cannot be archived stays."""

import errno
import gzip
import os
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from msgspec import structs

from migrator.config import SchedulerSettings
from migrator.errors import ArchiveError
from migrator.records import ExecutionLog, Record, Run
from migrator.scheduler import archive, retention
from migrator.scheduler.archive import ArchivedRun, read_archive
from migrator.scheduler.retention import Removal, RetentionRule
from migrator.store.protocols import RunQuery, Store
from migrator.values.copy_format import column_types
from migrator.verify.behaviour.harness import DAY
from tests.contract.rows import NOW, SECOND, line, run, schedule

EVERYTHING = RetentionRule(keep=0, young=timedelta(0))
VALUES: dict[str, Any] = {
    "attempt": 1,
    "state": "error",
    "cause": "manual",
    "started_at": NOW - DAY,
    "finished_at": NOW - DAY + SECOND,
    "fence": 2**53 + 1,
    "worker_id": "w",
    "result": b'{"a":[1,1.5,null],"b":"line\\nline"}',
    "reason": b'{"manual":"why"}',
    "error": "caf\u00e9 \U0001f600",
    "error_detail": "",
    "trace_id": "t",
    "triggered_by": "ann",
    "metadata": b'{"n":9007199254740993}',
}


def fill(store: Store, tenant: str, count: int = 5) -> list[ArchivedRun]:
    """Write old runs, with one line more each in their logs than the one before."""
    with store.session(tenant, now=NOW) as session:
        of = session.schedules.upsert(schedule(tenant))
        for n in range(count):
            at = NOW - DAY * (n + 1)
            row = session.runs.create(run(tenant, **VALUES | {"schedule_id": of.id, "created_at": at}))
            context = b'{"step":%d}' % n
            session.execution_logs.append(
                [
                    line(tenant, run_id=row.id, logged_at=at + SECOND * m, message=f"{m}\n", context=context)
                    for m in range(n)
                ]
            )
    return stored(store, tenant)


def stored(store: Store, tenant: str) -> list[ArchivedRun]:
    with store.session(tenant, now=NOW) as session:
        rows = session.runs.list(RunQuery(limit=1000, descending=False)).runs
        return [ArchivedRun(run=row, logs=tuple(session.execution_logs.of_run(row.id))) for row in rows]


def apply(store: Store, tenant: str, folder: Path, **rule: int) -> Removal:
    given = RetentionRule(keep=0, young=timedelta(0), **rule)
    return retention.apply(store, tenant, given, archive=folder, now=NOW)


def archived(removed: Removal) -> list[ArchivedRun]:
    return [one for file in removed.archives for one in read_archive(Path(file.path))]


def test_what_is_removed_is_in_the_archive_with_every_column(at_work: Store, tenant: str, tmp_path: Path) -> None:
    before = fill(at_work, tenant)
    removed = apply(at_work, tenant, tmp_path, batch=2)
    assert archived(removed) == before
    assert [(file.runs, file.logs) for file in removed.archives] == [(2, 7), (2, 3), (1, 0)]
    assert stored(at_work, tenant) == []
    files = sorted(tmp_path.iterdir())
    assert sorted(Path(file.path) for file in removed.archives) == files
    assert {file.stat().st_mode & 0o777 for file in files} == {0o600}
    names = [f"runs-{tenant}-20251102T080000.250000Z{end}.jsonl.gz" for end in ("", "-2", "-3")]
    assert [Path(file.path).name for file in removed.archives] == names
    with at_work.session(tenant, now=NOW) as session:
        entries = session.audit.list(10, action=retention.REMOVED)
    assert sum(names[1].encode() in (entry.metadata or b"") for entry in entries) == 1


def test_a_dry_run_writes_no_file_and_nothing_old_makes_none(at_work: Store, tenant: str, tmp_path: Path) -> None:
    before = fill(at_work, tenant)
    planned = retention.apply(at_work, tenant, EVERYTHING, dry_run=True, archive=tmp_path, now=NOW)
    assert (planned.total, planned.archives) == (5, ())
    kept = retention.apply(at_work, tenant, RetentionRule(), archive=tmp_path, now=NOW)
    assert (kept.total, kept.archives) == (0, ())
    assert [*tmp_path.iterdir()] == []
    assert stored(at_work, tenant) == before


Fault = Callable[[Path], object]


def full(_path: Path) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def rewritten(change: Callable[[bytes], bytes]) -> Fault:
    """Return a fault that changes what the file holds, and leaves it a whole file."""

    def fault(path: Path) -> None:
        path.write_bytes(gzip.compress(change(gzip.decompress(path.read_bytes()))))

    return fault


FAULTS: dict[str, tuple[Fault, str]] = {
    "full disk": (full, "No space left on device"),
    "cut off": (lambda path: os.truncate(path, path.stat().st_size - 12), "is damaged after line"),
    "empty": (lambda path: os.truncate(path, 0), "holds 0 runs with 0 lines, expected 5 runs with 10 lines"),
    "a run is missing": (rewritten(lambda text: text.split(b"\n", 1)[1]), "holds 4 runs"),
    "a run is there twice": (rewritten(lambda text: text + text.split(b"\n", 1)[0] + b"\n"), "holds 6 runs"),
    "the order": (rewritten(lambda text: b"".join(reversed(text.splitlines(keepends=True)))), "other runs"),
    "a column": (rewritten(lambda text: text.replace(b'"ann"', b'"bob"', 1)), "a run has other values"),
    "a line of a log": (rewritten(lambda text: text.replace(b'"info"', b'"warn"', 1)), "other values"),
    "a column is missing": (rewritten(lambda text: text.replace(b'"attempt":1,', b"", 1)), "a run has other values"),
    "no run": (rewritten(lambda text: text + b"{}\n"), "line 6 is not a run"),
    "no column": (rewritten(lambda text: text.replace(b'"cause"', b'"corse"', 1)), "runs has no column corse"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_what_cannot_be_archived_stays(
    at_work: Store, tenant: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    before = fill(at_work, tenant)
    fault, words = FAULTS[name]
    with monkeypatch.context() as planted:
        planted.setattr(os, "fsync", lambda _: fault(next(tmp_path.iterdir())))
        with pytest.raises(ArchiveError, match=words) as said:
            apply(at_work, tenant, tmp_path)
    assert "they were not removed" in str(said.value)
    assert stored(at_work, tenant) == before
    assert [*tmp_path.iterdir()] == []  # no file that is not whole
    assert archived(apply(at_work, tenant, tmp_path)) == before


def test_a_folder_that_is_missing_or_takes_no_file(at_work: Store, tenant: str, tmp_path: Path) -> None:
    before = fill(at_work, tenant, 1)
    (tmp_path / "file").write_text("")
    for folder, words in ((tmp_path / "none", "No such file"), (tmp_path / "file", "Not a directory")):
        with pytest.raises(ArchiveError, match=words):
            apply(at_work, tenant, folder)
    assert stored(at_work, tenant) == before


def test_what_ends_before_the_rows_are_removed_is_archived_again(
    at_work: Store, tenant: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = fill(at_work, tenant)
    with at_work.session(tenant, now=NOW) as session:
        runs = type(session.runs)

    def ends(*_arguments: object) -> int:
        raise KeyboardInterrupt

    with monkeypatch.context() as planted:
        planted.setattr(runs, "remove", ends)
        with pytest.raises(KeyboardInterrupt):
            apply(at_work, tenant, tmp_path)
    assert stored(at_work, tenant) == before
    (first,) = tmp_path.iterdir()
    content = first.read_bytes()
    removed = apply(at_work, tenant, tmp_path)
    assert [*read_archive(first)] == archived(removed) == before
    assert first.read_bytes() == content  # another file: none is overwritten
    assert len([*tmp_path.iterdir()]) == 2


def test_the_leader_goes_on_without_removing(
    at_work: Store, tenant: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """All tenants: the other tests' rows are there too, so only this tenant's are old enough."""
    old = NOW - DAY * 36_000
    with at_work.session(tenant, now=NOW) as session:
        session.runs.create(run(tenant, state="completed", created_at=old))
    before = stored(at_work, tenant)
    own = SchedulerSettings(retention_keep=0, retention_age=DAY * 35_000, retention_from=old.date())
    said = retention.carry_out(structs.replace(own, retention_archive=str(tmp_path / "none")), at_work)
    assert said == "retention stopped; runs that are not archived stay"
    assert "No such file or directory; they were not removed" in capsys.readouterr().err
    assert stored(at_work, tenant) == before
    said = retention.carry_out(structs.replace(own, retention_archive=str(tmp_path)), at_work)
    assert said.startswith("retention removed 1 runs")
    (file,) = tmp_path.iterdir()
    assert [*read_archive(file)] == before


class OneSession:
    """What an archive asks of a session: the lines of logs."""

    def __init__(self, tenant: str, logs: list[ExecutionLog]) -> None:
        self.tenant, self.now, self.execution_logs, self._logs = tenant, NOW, self, logs

    def of_runs(self, _ids: object) -> list[ExecutionLog]:
        return self._logs


def full_row(record: type[Record]) -> Any:  # noqa: ANN401 - a row of any record
    """Return a row without null, each column with a value of its own."""
    values: dict[str, Any] = {}
    for number, (name, kind) in enumerate(column_types(record).items()):
        values[name] = {
            "uuid": uuid4(),
            "text": f'{name} \u2028\n"{number}',
            "timestamptz": NOW + timedelta(microseconds=number + 1),
            "jsonb": b'{"%d":[1.0,12345678901234567890,"\\u0001"]}' % number,
        }.get(
            kind, 2**15 - 1 - number if kind == "int2" else 2**31 - 1 - number if kind == "int4" else 2**63 - 1 - number
        )
    return record(**values)


def test_every_column_is_read_back_with_its_type(tmp_path: Path) -> None:
    row, log = full_row(Run), full_row(ExecutionLog)
    assert None not in {getattr(row, name) for name in row.__struct_fields__}
    log = ExecutionLog(**{name: getattr(log, name) for name in log.__struct_fields__} | {"run_id": row.id})
    bare = Run(id=uuid4(), tenant_id="t", state="error", created_at=NOW, result=b"null", stats=None)
    session: Any = OneSession("t", [log])
    written = archive.write_archive(tmp_path, session, [row, bare])
    expected = [ArchivedRun(run=row, logs=(log,)), ArchivedRun(run=bare, logs=())]
    assert [*read_archive(Path(written.path))] == expected  # JSON null is not a column that is null
    assert {type(getattr(one.run, name)) for one in expected for name in ("result", "extra")} == {bytes}


@pytest.mark.parametrize("tenant", ["../x", "a/b", ".", "T\u00e4st 1", "x" * 300, "%"])
def test_a_tenant_never_leads_out_of_the_folder(tmp_path: Path, tenant: str) -> None:
    session: Any = OneSession(tenant, [])
    written = archive.write_archive(tmp_path, session, [run(tenant)])
    (file,) = tmp_path.iterdir()
    assert Path(written.path) == file
    assert [one.run.tenant_id for one in read_archive(file)] == [tenant]


def test_an_archive_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ArchiveError, match=r"gone\.jsonl\.gz cannot be read: no such file or directory"):
        next(read_archive(tmp_path / "gone.jsonl.gz"))
