"""The harness: starts both servers, fills MongoDB, runs every tool in turn, round by round, and writes one table."""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pymongo import MongoClient
from pymongo.database import Database

from benchmarks.harness import source, target
from benchmarks.harness.measure import Measurement, measure
from benchmarks.harness.result import Line, Result, versions, write
from benchmarks.harness.tools import HERE, REQUIREMENTS, TOOLS, Job, Tool, install
from migrator.embedded.mongo import MongoServer
from migrator.embedded.postgres import PostgresServer

CACHE_GB = 2.0


def main() -> int:
    """Measure as the command line asks; returns 1 when a tool failed or moved another number of documents."""
    options = _options()
    chosen = [tool for tool in TOOLS.values() if not options.only or tool.name in options.only]
    missing = {
        tool.name: why for tool in chosen if tool.name in REQUIREMENTS and (why := install(tool.name, options.work))
    }
    for name, why in missing.items():
        print(f"{name}: {why}")
    chosen = [tool for tool in chosen if tool.name not in missing]
    with (
        MongoServer(cache_gb=CACHE_GB) as mongo,
        PostgresServer(version=options.postgres) as postgres,
        MongoClient[dict[str, Any]](mongo.uri) as client,
        TemporaryDirectory(dir=_made(options.work)) as scratch,
    ):
        bench = _Bench(options, mongo, postgres, client["benchmark"], Path(scratch))
        lines = bench.measure(chosen)
        result = Result(
            documents=options.documents,
            collection=options.collection,
            mean_bytes=bench.mean_bytes,
            rounds=options.rounds,
            versions=versions(mongo.uri, postgres.dsn(), options.work),
            lines=lines,
            missing=missing,
        )
    print(write(result, options.results))
    return 0 if all(line.trouble is None for line in lines) else 1


class _Bench:
    """The servers with the data in them."""

    def __init__(
        self,
        options: argparse.Namespace,
        mongo: MongoServer,
        postgres: PostgresServer,
        database: Database[Any],
        scratch: Path,
    ) -> None:
        self._options = options
        self._mongo = mongo
        self._postgres = postgres
        self._database = database
        self._scratch = scratch
        self.mean_bytes = source.fill(database, options.collection, options.documents)
        target.make_template(postgres, database)

    def measure(self, chosen: Sequence[Tool]) -> list[Line]:
        """Run every tool once in each round; one unmeasured read warms MongoDB's cache first."""
        name = self._options.collection
        if any(tool.name == "floor" for tool in chosen):
            target.prepare_floor(self._postgres, self._mongo.uri, self._database, name, self._scratch / "floor")
        for _ in self._database[name].find_raw_batches():
            pass
        lines = {tool.name: Line(name=tool.name, title=tool.title) for tool in chosen}
        for number in range(self._options.rounds):
            self._round(chosen, lines, number)
        return list(lines.values())

    def _round(self, chosen: Sequence[Tool], lines: Mapping[str, Line], number: int) -> None:
        dsn: str | None = None
        changed = False
        for tool in chosen:
            if tool.follows is None or dsn is None:
                if dsn is not None:
                    target.drop(self._postgres, dsn)
                dsn = target.fresh(self._postgres, with_schedules=tool.name in ("floor", "script"))
            if tool.name == "changed":
                source.change(self._database, self._options.collection, 1)
                changed = True
            self._one(tool, lines[tool.name], dsn, number)
            if changed and tool.name in ("parity", "script"):
                source.change(self._database, self._options.collection, -1)
                changed = False
        if changed:
            source.change(self._database, self._options.collection, -1)
        if dsn is not None:
            target.drop(self._postgres, dsn)

    def _one(self, tool: Tool, line: Line, dsn: str, number: int) -> None:
        name = self._options.collection
        job = Job(
            uri=self._mongo.uri,
            database=self._database.name,
            collection=name,
            dsn=dsn,
            work=self._options.work,
            floor=self._scratch / "floor",
        )
        call = tool.call(job)
        log = self._scratch / f"{tool.name}-{number}.log"
        servers = {"postgres": self._postgres.pid or 0, "mongod": self._mongo.pid or 0}
        taken = measure(call.argv, environment=call.environment, servers=servers, log=log)
        line.runs.append(taken)
        trouble = self._trouble(tool, taken, call.accepted, dsn)
        said = trouble or f"{self._options.documents / taken.wall:,.0f} documents/s"
        print(f"round {number + 1}: {tool.name}: {said}", flush=True)
        line.trouble = line.trouble or trouble
        if line.trouble is None:
            line.target_bytes = target.size_of(dsn, tool.counted.partition(".")[0])

    def _trouble(self, tool: Tool, taken: Measurement, accepted: tuple[int, ...], dsn: str) -> str | None:
        """Return why a run does not count: it failed, or moved another number of documents."""
        if taken.status not in accepted:
            return f"exit status {taken.status}: {' '.join(taken.output[-400:].split())}"
        rows = target.count_rows(dsn, tool.counted.format(self._options.collection))
        if rows != self._options.documents:
            return f"moved {rows} of {self._options.documents} documents"
        return None


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="measures the copy beside its limits and its peers")
    parser.add_argument("--collection", choices=("runs", "impact_snapshots"), default="runs")
    parser.add_argument("--documents", type=int, default=50_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--postgres", type=int, default=18, help="major version of the server")
    parser.add_argument("--only", type=_names, default=(), help=f"tools by name, with commas: {', '.join(TOOLS)}")
    parser.add_argument("--work", type=Path, default=HERE / ".work", help="folder for the peers' environments")
    parser.add_argument("--results", type=Path, default=HERE / "results", help="folder for the results")
    return parser.parse_args()


def _names(text: str) -> tuple[str, ...]:
    names = tuple(text.split(","))
    unknown = [name for name in names if name not in TOOLS]
    if unknown:
        raise argparse.ArgumentTypeError(f"unknown: {', '.join(unknown)}; known are {', '.join(TOOLS)}")
    return names


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder.resolve()
