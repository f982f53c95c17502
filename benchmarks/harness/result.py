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
_MICRO = 1_000_000
_COLUMNS = (
    "documents/s",
    "seconds",
    "backfill ÷ this",
    "client CPU µs/document",
    "PostgreSQL CPU µs/document",
    "mongod CPU µs/document",
    "peak MB, all processes",
    "peak MB, largest process",
    "target MB",
)


class Target(msgspec.Struct, frozen=True):
    """A ratio of documents a second, and what it must reach and should reach."""

    title: str
    tool: str
    other: str
    must: float
    aim: float
    collections: tuple[str, ...] = ("runs",)


LEAST = 10_000
"""Documents with which a figure says something; with fewer, the start of the processes is all that is measured."""
_JOBS = ("impact_snapshots", "agendaJobs", "jobs", "agendaJobs-native", "jobs-native")
TARGETS = (
    Target("backfill ÷ floor", "backfill", "floor", 0.80, 0.90),
    Target("backfill ÷ hand-written script", "backfill", "script", 1.5, 1.8),
    Target("backfill ÷ Sling full refresh", "backfill", "sling", 3, 3.5),
    Target("backfill ÷ dlt default", "backfill", "dlt", 12, 16),
    Target("backfill ÷ dlt tuned", "backfill", "dlt-tuned", 5, 7),
    Target("re-run with nothing changed ÷ first load", "rerun", "backfill", 1.3, 2),
    Target("complete parity check ÷ backfill", "parity", "backfill", 1.25, 1.6),
    Target("Python codec ÷ an earlier version", "python", "before", 1.0, 1.3),
    Target("backfill ÷ floor", "backfill", "floor", 0.6, 0.8, _JOBS),
)
MEMORY_MUST, MEMORY_AIM = 128, 96
"""Megabytes of the largest process, whatever the number of documents."""
FLAT = 1.1
"""The most that the largest process may take with many documents, of what it takes with few."""
COST_FROM, COST_TO = 500_000, 2_000_000
COST_MUST, COST_AIM = 4.4, 4.1
"""How many times as long so many more documents take."""
_PACKAGES = ("scheduler-migrator", "scheduler-migrator-speedups", "pymongo", "psycopg", "msgspec")


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


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """One collection with so many documents, and every tool that moved them."""

    collection: str
    documents: int
    mean_bytes: int
    lines: list[Line]

    @property
    def title(self) -> str:
        """Return how many documents of what."""
        return f"{self.documents:,} documents of `{self.collection}`"

    def good(self) -> dict[str, Line]:
        """Return the tools whose figures count."""
        return {line.name: line for line in self.lines if line.trouble is None and line.runs}


class Judged(msgspec.Struct, frozen=True, kw_only=True):
    """A figure beside what it must reach."""

    title: str
    where: str
    measured: float
    must: float
    aim: float
    is_met: bool
    is_judged: bool
    """Whether there were documents enough to say so."""

    @property
    def verdict(self) -> str:
        """Return the word of the table for it; empty where it is met."""
        if not self.is_judged:
            return "too few documents"
        return "" if self.is_met else "missed"


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """One measurement of all tools, round by round; the first part gives the result its name."""

    rounds: int
    versions: dict[str, str]
    parts: list[Part]
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


def write(result: Result, folder: Path, suffix: str = "") -> str:
    """Write ``<collection>-<documents>.json`` and ``.md``; return the Markdown."""
    folder.mkdir(parents=True, exist_ok=True)
    stem = f"{result.parts[0].collection}-{result.parts[0].documents}" + (f"-{suffix}" if suffix else "")
    plain = msgspec.to_builtins(result)
    for part in plain["parts"]:
        for line in part["lines"]:
            for run in line["runs"]:
                del run["output"]  # names of this machine
    (folder / f"{stem}.json").write_text(json.dumps(plain, indent=1) + "\n")
    text = render(result)
    (folder / f"{stem}.md").write_text(text)
    return text


def render(result: Result) -> str:
    """Return the tables; ratios are documents a second, those of the backfill over the tool's."""
    head = (
        f"# {result.parts[0].title}\n\n"
        f"Whole processes, wall clock; medians of {result.rounds}, interleaved.\n"
        + ", ".join(f"{name} {text}" for name, text in result.versions.items())
        + ".\n"
    )
    tables = [_table(part) for part in result.parts]
    notes = [
        f"- {part.title}: {line.title}: {line.trouble}" for part in result.parts for line in part.lines if line.trouble
    ]
    notes += [f"- {name} {why}" for name, why in result.missing.items()]
    return "\n".join([head, *tables, *_against_targets(result), *([*notes, ""] if notes else [])])


def _table(part: Part) -> str:
    good = part.good()
    backfill = good.get("backfill")
    table = [
        f"{part.title}, {part.mean_bytes:,} bytes each:",
        "",
        f"| | {' | '.join(_COLUMNS)} |",
        "|---" * (len(_COLUMNS) + 1) + "|",
    ]
    for line in good.values():
        wall = line.middle("wall")
        ratio = f"{wall / backfill.middle('wall'):.2f}" if backfill else ""
        each = (line.middle("client_cpu"), line.server("postgres"), line.server("mongod"))
        table.append(
            f"| {line.title} | {part.documents / wall:,.0f} | {wall:.2f} | {ratio} | "
            + " | ".join(f"{one * _MICRO / part.documents:.1f}" for one in each)
            + f" | {line.middle('peak_tree') / _MEGA:.0f} | {line.middle('peak_process') / _MEGA:.0f}"
            f" | {line.target_bytes / _MEGA:.0f} |"
        )
    return "\n".join([*table, ""])


def judged(result: Result) -> list[Judged]:
    """Return every agreed figure, as far as it was measured."""
    found = []
    for part in result.parts:
        good = part.good()
        for one in TARGETS:
            if part.collection in one.collections and one.tool in good and one.other in good:
                measured = good[one.other].middle("wall") / good[one.tool].middle("wall")
                one_of = _judge(one.title, part.title, measured, one.must, one.aim, is_most=False)
                found.append(msgspec.structs.replace(one_of, is_judged=part.documents >= LEAST))
    return found + _growth(result)


def _growth(result: Result) -> list[Judged]:
    """Return the judged figures of memory and time for more documents of one collection."""
    found = []
    for collection in dict.fromkeys(part.collection for part in result.parts):
        parts = [part for part in result.parts if part.collection == collection]
        found += _growth_of(collection, sorted(parts, key=lambda part: part.documents))
    return found


def _growth_of(collection: str, parts: list[Part]) -> list[Judged]:
    """Return the same of one collection; ``parts`` by the number of documents."""
    found = []
    for name in ("backfill", "parity"):
        measured = {part.documents: part.good()[name] for part in parts if name in part.good()}
        if len(measured) > 1 and min(measured) >= LEAST:
            for documents, line in measured.items():
                memory = line.middle("peak_process") / _MEGA
                where = f"{documents:,} documents of `{collection}`"
                title = f"{name}: peak MB of the largest process, at most"
                found.append(_judge(title, where, memory, MEMORY_MUST, MEMORY_AIM, is_most=True))
            few, many = measured[min(measured)], measured[max(measured)]
            flat = many.middle("peak_process") / few.middle("peak_process")
            where = f"from {min(measured):,} to {max(measured):,} of `{collection}`"
            found.append(_judge(f"{name}: the same memory, at most", where, flat, FLAT, FLAT, is_most=True))
        if {COST_FROM, COST_TO} <= measured.keys():
            cost = measured[COST_TO].middle("wall") / measured[COST_FROM].middle("wall")
            where = f"from {COST_FROM:,} to {COST_TO:,} of `{collection}`"
            found.append(_judge(f"{name}: times as long, at most", where, cost, COST_MUST, COST_AIM, is_most=True))
    return found


def _judge(title: str, where: str, measured: float, must: float, aim: float, *, is_most: bool) -> Judged:
    rounded = round(measured, 2)
    is_met = rounded <= must if is_most else rounded >= must
    return Judged(title=title, where=where, measured=rounded, must=must, aim=aim, is_met=is_met, is_judged=True)


def missed(result: Result) -> list[Judged]:
    """Return the figures that miss what they must reach."""
    return [one for one in judged(result) if one.is_judged and not one.is_met]


def _against_targets(result: Result) -> list[str]:
    rows = [
        f"| {one.title} | {one.where} | {one.measured:.2f} | {one.must:g} | {one.aim:g} | {one.verdict} |"
        for one in judged(result)
    ]
    head = ["| ratio of documents/s, or limit | of | measured | must | aim | |", "|---" * 6 + "|"]
    return [*head, *rows, ""] if rows else []
