"""The tools that are measured, and how each is called."""

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal

import msgspec

HERE = Path(__file__).resolve().parent.parent
PROGRAMS = HERE / "programs"
_DLT = ["dlt[postgres]==1.31.0", "pymongo>=4.20,<5"]
REQUIREMENTS = {"sling": ["sling-linux-amd64==1.4.11"], "dlt": _DLT, "dlt-tuned": _DLT}
"""Peers, each with an environment of its own; both ways of calling dlt share one."""
SLING = "lib/python3.*/site-packages/sling_linux_amd64/bin/sling-linux-amd64"


class Job(msgspec.Struct, frozen=True):
    """What to move, and from where to where."""

    uri: str
    database: str
    collection: str
    profile: str
    target: str
    dsn: str
    work: Path
    """A folder for what the tools leave behind."""
    floor: Path
    """The folder of finished rows."""
    before: Path | None = None
    """A checkout of an earlier version with its environment."""


class Call(msgspec.Struct, frozen=True):
    """A command with its environment."""

    argv: list[str]
    environment: dict[str, str]
    before: tuple[str, ...] = ()
    """A command that is called first and not measured."""


class Tool(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the table."""

    name: str
    title: str
    call: Callable[[Job], Call]
    counted: str = "{table}"
    """The table whose rows are counted afterwards."""
    follows: str | None = None
    """The tool whose result this one starts from; otherwise it starts from an empty table."""
    starts: Literal["schema", "schedules", "nothing"] = "schema"
    """What is in the database before, if it follows no other tool."""
    is_usual: bool = True
    """Measured unless ``--only`` names others."""
    any_source: bool = True
    """Knows more than the collections of ``stellaops``."""


def _program(name: str, *more: Callable[[Job], str]) -> Callable[[Job], Call]:
    def call(job: Job) -> Call:
        extra = [one(job) for one in more]
        program = str(PROGRAMS / name)
        return Call([sys.executable, program, job.uri, job.database, job.collection, job.dsn, *extra], {})

    return call


def settings_of(uri: str, database: str, dsn: str, profile: str, target: str = "scheduler") -> dict[str, str]:
    """Return the settings of the tool as variables of the environment."""
    return {
        "MIGRATOR_MONGO__URI": uri,
        "MIGRATOR_MONGO__DATABASE": database,
        "MIGRATOR_POSTGRES__DSN": dsn,
        "MIGRATOR_SOURCE__PROFILE": profile,
        "MIGRATOR_SOURCE__DEFAULT_TENANT": "benchmark",
        "MIGRATOR_SOURCE__ZONE": "UTC",
        "MIGRATOR_TARGET__NAME": target,
    }


def _migrator(*words: str, **environment: str) -> Callable[[Job], Call]:
    def call(job: Job) -> Call:
        settings = settings_of(job.uri, job.database, job.dsn, job.profile, job.target)
        return Call([sys.executable, "-m", "migrator", *words], settings | environment)

    return call


def _before(job: Job) -> Call:
    """Return the copy of an earlier version, into a schema of its own making."""
    if job.before is None:
        raise ValueError("--before names no checkout")
    program = str(job.before / ".venv" / "bin" / "migrator")
    settings = settings_of(job.uri, job.database, job.dsn, job.profile, job.target)
    return Call([program, "backfill"], settings, before=(program, "schema", "upgrade"))


def _sling(job: Job) -> Call:
    binary = next((job.work / "sling").glob(SLING))
    uri = job.uri.replace("/?", f"/{job.database}?")
    environment = {
        "PEER_MONGO": uri,
        "PEER_POSTGRES": job.dsn + "?sslmode=disable",
        "SLING_HOME_DIR": str(job.work / "sling-home"),
        "SLING_DISABLE_TELEMETRY": "TRUE",
    }
    stream = ["--src-conn", "PEER_MONGO", "--src-stream", f"{job.database}.{job.collection}"]
    options = ["--src-options", '{"flatten": 1}', "--mode", "full-refresh"]
    target = ["--tgt-conn", "PEER_POSTGRES", "--tgt-object", f"sling_peer.{job.collection}"]
    return Call([str(binary), "run", *stream, *options, *target], environment)


def _dlt(job: Job) -> Call:
    return _dlt_call(job, "default", {})


def _dlt_tuned(job: Job) -> Call:
    """No child tables, files of CSV for COPY, two processes that normalize, no compression."""
    tuned = {"NORMALIZE__WORKERS": "2", "DATA_WRITER__DISABLE_COMPRESSION": "true"}
    tuned["NORMALIZE__DATA_WRITER__DISABLE_COMPRESSION"] = "true"
    return _dlt_call(job, "tuned", tuned)


def _dlt_call(job: Job, how: str, tuned: Mapping[str, str]) -> Call:
    python = str(job.work / "dlt" / "bin" / "python")
    state = job.work / f"dlt-state-{how}"
    environment = {
        **tuned,
        "RUNTIME__DLTHUB_TELEMETRY": "false",
        "DLT_DATA_DIR": str(state),
        "DLT_PROJECT_DIR": str(state),
        "HOME": str(state),
    }
    arguments = [job.uri, job.database, job.collection, job.dsn, str(state), how]
    return Call([python, str(PROGRAMS / "dlt_load.py"), *arguments], environment)


SCALES = (1, 2, 4)
"""Worker processes with which either executor is measured."""
_PYTHON = {"MIGRATOR_CODEC": "python"}


def _scaled(executor: str, workers: int) -> Tool:
    environment = {"MIGRATOR_COPY__EXECUTOR": executor, "MIGRATOR_COPY__WORKERS": str(workers)}
    title = f"migrator backfill, executor {executor}, {workers} worker{'s' if workers > 1 else ''}"
    return Tool(name=f"{executor}-{workers}", title=title, call=_migrator("backfill", **environment), is_usual=False)


TOOLS: Mapping[str, Tool] = {
    tool.name: tool
    for tool in (
        Tool(
            name="floor",
            title="floor: raw read + COPY of finished bytes, 2 connections",
            call=_program("floor.py", lambda job: str(job.floor)),
            starts="schedules",
        ),
        Tool(name="backfill", title="migrator backfill, first load", call=_migrator("backfill")),
        Tool(name="rerun", title="migrator backfill, nothing changed", call=_migrator("backfill"), follows="backfill"),
        Tool(name="changed", title="migrator backfill, 1 % changed", call=_migrator("backfill"), follows="rerun"),
        Tool(name="parity", title="migrator parity, both links", call=_migrator("parity"), follows="changed"),
        Tool(name="python", title="migrator backfill, Python codec", call=_migrator("backfill", **_PYTHON)),
        Tool(
            name="python-parity",
            title="migrator parity, Python codec",
            call=_migrator("parity", **_PYTHON),
            follows="python",
        ),
        Tool(
            name="before",
            title="migrator backfill, an earlier version",
            call=_before,
            starts="nothing",
            is_usual=False,
        ),
        Tool(
            name="script",
            title="hand-written script, one COPY",
            call=_program("script.py"),
            starts="schedules",
            any_source=False,
        ),
        Tool(
            name="sling",
            title="Sling 1.4.11, full-refresh, flatten 1, own table",
            call=_sling,
            counted="sling_peer.{collection}",
        ),
        Tool(name="dlt", title="dlt, default settings, own tables", call=_dlt, counted="dlt_peer.{collection}"),
        Tool(
            name="dlt-tuned",
            title="dlt, no child tables, CSV, 2 workers, own table",
            call=_dlt_tuned,
            counted="dlt_peer.{collection}",
        ),
        *(_scaled(executor, workers) for executor in ("local", "dask") for workers in SCALES),
    )
}


def install(name: str, work: Path) -> str | None:
    """Make the peer's environment unless it is there; return why that cannot be done, None when it is."""
    folder = work / name.partition("-")[0]
    if (folder / "ready").exists():
        return None
    folder.parent.mkdir(parents=True, exist_ok=True)
    commands = (
        [sys.executable, "-m", "venv", "--clear", str(folder)],
        [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", *REQUIREMENTS[name]],
    )
    for command in commands:
        done = subprocess.run(command, capture_output=True, text=True, env=os.environ, check=False)
        if done.returncode:
            last = done.stderr.strip().splitlines()[-1:] or ["no reason given"]
            return f"cannot be installed here: {last[0]}"
    (folder / "ready").touch()
    return None
