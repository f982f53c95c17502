"""The tools that are measured, and how each is called."""

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

HERE = Path(__file__).resolve().parent.parent
PROGRAMS = HERE / "programs"
REQUIREMENTS = {"sling": ["sling-linux-amd64==1.4.11"], "dlt": ["dlt[postgres]==1.31.0", "pymongo>=4.20,<5"]}
"""Peers, each with an environment of its own."""
SLING = "lib/python3.*/site-packages/sling_linux_amd64/bin/sling-linux-amd64"


class Job(msgspec.Struct, frozen=True):
    """What to move, and from where to where."""

    uri: str
    database: str
    collection: str
    dsn: str
    work: Path
    """A folder for what the tools leave behind."""
    floor: Path
    """The folder of finished rows."""


class Call(msgspec.Struct, frozen=True):
    """A command with its environment; ``accepted`` are its good exit statuses."""

    argv: list[str]
    environment: dict[str, str]
    accepted: tuple[int, ...] = (0,)


class Tool(msgspec.Struct, frozen=True):
    """One line of the table."""

    name: str
    title: str
    call: Callable[[Job], Call]
    counted: str
    """The table whose rows are counted afterwards; ``{}`` is the collection."""
    follows: str | None = None
    """The tool whose result this one starts from; otherwise it starts from an empty table."""


def _program(name: str, *more: Callable[[Job], str]) -> Callable[[Job], Call]:
    def call(job: Job) -> Call:
        extra = [one(job) for one in more]
        program = str(PROGRAMS / name)
        return Call([sys.executable, program, job.uri, job.database, job.collection, job.dsn, *extra], {})

    return call


def _migrator(*words: str) -> Callable[[Job], Call]:
    def call(job: Job) -> Call:
        environment = {
            "MIGRATOR_MONGO__URI": job.uri,
            "MIGRATOR_MONGO__DATABASE": job.database,
            "MIGRATOR_POSTGRES__DSN": job.dsn,
            "MIGRATOR_SOURCE__PROFILE": "stellaops",
        }
        return Call([sys.executable, "-m", "migrator", *words], environment)

    return call


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
    python = str(job.work / "dlt" / "bin" / "python")
    state = job.work / "dlt-state"
    environment = {
        "RUNTIME__DLTHUB_TELEMETRY": "false",
        "DLT_DATA_DIR": str(state),
        "DLT_PROJECT_DIR": str(state),
        "HOME": str(state),
    }
    arguments = [job.uri, job.database, job.collection, job.dsn, str(state)]
    return Call([python, str(PROGRAMS / "dlt_load.py"), *arguments], environment)


TOOLS: Mapping[str, Tool] = {
    tool.name: tool
    for tool in (
        Tool(
            "floor",
            "floor: raw read + COPY of finished bytes, 2 connections",
            _program("floor.py", lambda job: str(job.floor)),
            "scheduler.{}",
        ),
        Tool("backfill", "migrator backfill, first load", _migrator("backfill"), "scheduler.{}"),
        Tool("rerun", "migrator backfill, nothing changed", _migrator("backfill"), "scheduler.{}", follows="backfill"),
        Tool("changed", "migrator backfill, 1 % changed", _migrator("backfill"), "scheduler.{}", follows="rerun"),
        Tool("parity", "migrator parity, both links", _migrator("parity"), "scheduler.{}", follows="changed"),
        Tool("script", "hand-written script, one COPY", _program("script.py"), "scheduler.{}"),
        Tool("sling", "Sling 1.4.11, full-refresh, flatten 1, own table", _sling, "sling_peer.{}"),
        Tool("dlt", "dlt, default settings, own tables", _dlt, "dlt_peer.{}"),
    )
}


def install(name: str, work: Path) -> str | None:
    """Make the peer's environment unless it is there; return why that cannot be done, None when it is."""
    folder = work / name
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
