"""The table: medians of the rounds, ratios to the backfill, as JSON and as Markdown."""

import json
import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median

import msgspec
import psycopg
from pymongo import MongoClient

from benchmarks.harness.measure import Measurement

_MEGA = 1_000_000
_COLUMNS = (
    "documents/s",
    "seconds",
    "backfill ÷ this",
    "client CPU s",
    "PostgreSQL CPU s",
    "mongod CPU s",
    "peak MB, all processes",
    "peak MB, largest process",
    "target MB",
)
_TARGETS = (
    ("backfill ÷ Sling full-refresh", "backfill", "sling", 1.5, 2.4),
    ("backfill ÷ hand-written script", "backfill", "script", 1.4, 2.0),
    ("backfill ÷ dlt default", "backfill", "dlt", 8.0, 13.0),
    ("backfill ÷ floor", "backfill", "floor", 0.55, 0.75),
    ("re-run with nothing changed ÷ first load", "rerun", "backfill", 1.0, 1.3),
    ("complete parity ÷ backfill", "parity", "backfill", 0.8, 1.5),
)
"""Ratios of documents a second: title, tool, the tool it is compared with, what must be reached, what is aimed at."""
_PACKAGES = ("scheduler-migrator", "pymongo", "psycopg", "msgspec")


class Line(msgspec.Struct, kw_only=True):
    """One tool, all its rounds."""

    name: str
    title: str
    runs: list[Measurement] = []
    trouble: str | None = None
    """Why its figures do not count."""
    target_bytes: int = 0
    """What its tables take, with indexes."""

    def middle(self, field: str) -> float:
        """Return the median of a field."""
        return float(median(getattr(run, field) for run in self.runs))

    def server(self, name: str) -> float:
        """Return the median of a server's CPU seconds."""
        return median(run.server_cpu[name] for run in self.runs)


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """One measurement of all tools on one set of documents."""

    documents: int
    collection: str
    mean_bytes: int
    rounds: int
    versions: dict[str, str]
    lines: list[Line]
    missing: dict[str, str]
    """Tools that could not be installed, and why."""


def versions(uri: str, dsn: str, work: Path) -> dict[str, str]:
    """Return the versions of everything that matters, and the machine."""
    with MongoClient[dict[str, object]](uri) as client:
        mongod = client.server_info()["version"]
    with psycopg.connect(dsn) as connection:
        postgres = connection.info.parameter_status("server_version") or ""
    found = {"CPython": platform.python_version(), "mongod": str(mongod), "PostgreSQL": postgres}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    dlt = work / "dlt" / "bin" / "python"
    if dlt.exists():
        told = [str(dlt), "-c", "import importlib.metadata as m; print(m.version('dlt'))"]
        found["dlt"] = subprocess.run(told, capture_output=True, text=True, check=False).stdout.strip()
    found["cores"] = str(len(os.sched_getaffinity(0)))
    found["processor"] = _processor()
    return found


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def write(result: Result, folder: Path) -> str:
    """Write ``<collection>-<documents>.json`` and ``.md``; return the Markdown."""
    folder.mkdir(parents=True, exist_ok=True)
    stem = f"{result.collection}-{result.documents}"
    plain = msgspec.to_builtins(result)
    for line in plain["lines"]:
        for run in line["runs"]:
            del run["output"]  # names of this machine
    (folder / f"{stem}.json").write_text(json.dumps(plain, indent=1) + "\n")
    text = render(result)
    (folder / f"{stem}.md").write_text(text)
    return text


def render(result: Result) -> str:
    """Return the table; ratios are documents a second, those of the backfill over the tool's."""
    good = {line.name: line for line in result.lines if line.trouble is None and line.runs}
    backfill = good.get("backfill")
    head = (
        f"# {result.documents:,} documents of `{result.collection}`, {result.mean_bytes:,} bytes each\n\n"
        f"Whole processes, wall clock; medians of {result.rounds}, interleaved.\n"
        + ", ".join(f"{name} {text}" for name, text in result.versions.items())
        + ".\n\n"
    )
    table = [
        f"| | {' | '.join(_COLUMNS)} |",
        "|---" * (len(_COLUMNS) + 1) + "|",
    ]
    for line in good.values():
        wall = line.middle("wall")
        ratio = f"{wall / backfill.middle('wall'):.2f}" if backfill else ""
        table.append(
            f"| {line.title} | {result.documents / wall:,.0f} | {wall:.2f} | {ratio} | {line.middle('client_cpu'):.2f}"
            f" | {line.server('postgres'):.2f} | {line.server('mongod'):.2f} | {line.middle('peak_tree') / _MEGA:.0f}"
            f" | {line.middle('peak_process') / _MEGA:.0f} | {line.target_bytes / _MEGA:.0f} |"
        )
    table += _against_targets(good)
    notes = [f"- {line.title}: {line.trouble}" for line in result.lines if line.trouble]
    notes += [f"- {name} {why}" for name, why in result.missing.items()]
    return head + "\n".join(table) + "\n" + ("\n" + "\n".join(notes) + "\n" if notes else "")


def _against_targets(good: dict[str, Line]) -> list[str]:
    """Return the ratios that were agreed on, as far as both sides were measured."""
    rows = [
        f"| {title} | {good[other].middle('wall') / good[tool].middle('wall'):.2f} | {must} | {aim} |"
        for title, tool, other, must, aim in _TARGETS
        if tool in good and other in good
    ]
    return ["", "| ratio of documents/s | measured | must | aim |", "|---|---|---|---|", *rows] if rows else []
