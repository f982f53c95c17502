"""The harness: starts both servers, fills MongoDB, runs every tool in turn, round by round, and writes one table."""

import argparse
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pymongo import MongoClient
from pymongo.database import Database

from benchmarks.harness import source, target
from benchmarks.harness.commits import commit
from benchmarks.harness.measure import Measurement, measure
from benchmarks.harness.result import Line, Part, Result, missed, versions, write
from benchmarks.harness.source import DATASETS
from benchmarks.harness.tools import HERE, REQUIREMENTS, TOOLS, Job, Tool, install
from migrator.testing.servers.mongo import MongoServer
from migrator.testing.servers.postgres import PostgresServer

BESIDE = ("floor", "backfill")
"""What is measured of a further collection."""
GROWING = ("backfill", "parity")
"""What is measured of a further number of documents."""


def main() -> int:
    """Measure as the command line asks; returns 1 when a tool failed, or a ratio misses what it must reach."""
    options = _options()
    chosen = [tool for tool in TOOLS.values() if (tool.name in options.only if options.only else tool.is_usual)]
    if options.before is not None and not options.only:
        chosen.append(TOOLS["before"])
    missing = {
        tool.name: why for tool in chosen if tool.name in REQUIREMENTS and (why := install(tool.name, options.work))
    }
    for name, why in missing.items():
        print(f"{name}: {why}")
    chosen = [tool for tool in chosen if tool.name not in missing]
    plan: list[tuple[str, int, Sequence[Tool]]] = [(options.collection, options.documents, chosen)]
    plan += [(name, documents, [TOOLS[one] for one in BESIDE]) for name, documents in options.beside]
    plan += [(name, documents, [TOOLS[tool] for tool in GROWING]) for name, documents in options.growth]
    with (
        MongoServer(cache_gb=options.cache_gb) as mongo,
        PostgresServer(version=options.postgres) as postgres,
        MongoClient[dict[str, Any]](mongo.uri) as client,
        TemporaryDirectory(dir=_made(options.work)) as scratch,
    ):
        target.make_templates(postgres)
        benches = [
            _Bench(options, mongo, postgres, client[f"benchmark{number}"], Path(scratch) / str(number), *one)
            for number, one in enumerate(plan)
        ]
        for number in range(options.rounds):
            for bench in benches:
                bench.measure(number)
        result = Result(
            rounds=options.rounds,
            versions=versions(mongo.uri, postgres.dsn(), options.work)
            | {"GB of mongod's cache": f"{options.cache_gb:g}", "commit": commit()},
            parts=[bench.part for bench in benches],
            missing=missing,
        )
    print(write(result, options.results, options.suffix))
    failed = [line for part in result.parts for line in part.lines if line.trouble is not None]
    return 1 if failed or missed(result) else 0


class _Bench:
    """One collection with its documents, in servers that all of them share."""

    def __init__(
        self,
        options: argparse.Namespace,
        mongo: MongoServer,
        postgres: PostgresServer,
        database: Database[Any],
        scratch: Path,
        collection: str,
        documents: int,
        chosen: Sequence[Tool],
    ) -> None:
        self._options = options
        self._mongo = mongo
        self._postgres = postgres
        self._database = database
        self._scratch = scratch
        self._dataset = dataset = DATASETS[collection]
        self._chosen = [tool for tool in chosen if tool.any_source or self._dataset.profile == "stellaops"]
        scratch.mkdir()
        mean = source.fill(database, dataset, documents)
        lines = [Line(name=tool.name, title=tool.title) for tool in self._chosen]
        self.part = Part(collection=collection, documents=documents, mean_bytes=mean, lines=lines)
        if dataset.is_native:
            template = target.make_native(postgres, mongo.uri, database, dataset)
            self._templates = {"schema": template, "schedules": template}
        else:
            prepared = target.make_prepared(postgres, database)
            self._templates = {"schema": target.TEMPLATE, "nothing": target.EMPTY, "schedules": prepared}
        if any(tool.name == "floor" for tool in self._chosen):
            start = self._templates["schedules" if dataset.profile == "stellaops" else "schema"]
            target.prepare_floor(postgres, mongo.uri, database, dataset, start, scratch / "floor")

    def measure(self, number: int) -> None:
        """Run every tool once; one unmeasured read warms MongoDB's cache first."""
        for _ in self._database[self._dataset.collection].find_raw_batches():
            pass
        lines = {line.name: line for line in self.part.lines}
        self._round(lines, number)

    def _round(self, lines: Mapping[str, Line], number: int) -> None:
        dsn: str | None = None
        changed = False
        for tool in self._chosen:
            if tool.follows is None or dsn is None:
                if dsn is not None:
                    target.drop(self._postgres, dsn)
                dsn = target.fresh(self._postgres, self._templates[tool.starts])
            if tool.name == "changed":
                source.change(self._database, self._dataset, 1)
                changed = True
            self._one(tool, lines[tool.name], dsn, number)
            if changed and tool.name != "changed":
                source.change(self._database, self._dataset, -1)
                changed = False
        if changed:
            source.change(self._database, self._dataset, -1)
        if dsn is not None:
            target.drop(self._postgres, dsn)

    def _one(self, tool: Tool, line: Line, dsn: str, number: int) -> None:
        job = Job(
            uri=self._mongo.uri,
            database=self._database.name,
            collection=self._dataset.collection,
            profile=self._dataset.profile,
            target=self._dataset.target,
            dsn=dsn,
            work=self._options.work,
            floor=self._scratch / "floor",
            before=self._options.before,
        )
        call = tool.call(job)
        log = self._scratch / f"{tool.name}-{number}.log"
        servers = {"postgres": self._postgres.pid or 0, "mongod": self._mongo.pid or 0}
        if call.before:
            subprocess.run(call.before, env=os.environ | call.environment, check=True, stdout=subprocess.DEVNULL)
        taken = measure(call.argv, environment=call.environment, servers=servers, log=log)
        line.runs.append(taken)
        counted = tool.counted.format(collection=self._dataset.collection, table=self._dataset.counted)
        trouble = self._trouble(counted, taken, dsn)
        said = trouble or f"{self.part.documents / taken.wall:,.0f} documents/s"
        print(f"round {number + 1}: {self.part.title}: {tool.name}: {said}", flush=True)
        line.trouble = line.trouble or trouble
        if line.trouble is None:
            line.target_bytes = target.size_of(dsn, counted.partition(".")[0])

    def _trouble(self, counted: str, taken: Measurement, dsn: str) -> str | None:
        """Return why a run does not count: it failed, or moved another number of documents."""
        if taken.status != self._dataset.status:
            return f"exit status {taken.status}: {' '.join(taken.output[-400:].split())}"
        rows = target.count_rows(dsn, counted)
        expected = self._dataset.rows(self.part.documents)
        if rows != expected:
            return f"moved {rows} of {expected} documents"
        return None


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="measures the copy beside its limits and its peers")
    parser.add_argument("--collection", choices=DATASETS, default="runs")
    parser.add_argument("--documents", type=int, default=50_000)
    parser.add_argument(
        "--beside",
        type=_parts,
        default=(),
        help="further collections with their floor and backfill, as impact_snapshots:20000,agendaJobs:100000",
    )
    parser.add_argument(
        "--growth",
        type=_growth,
        default=(),
        help="numbers of documents for backfill and parity alone, as 500000,runs-large:20000; runs if no name is given",
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--postgres", type=int, default=18, help="major version of the server")
    parser.add_argument("--cache-gb", type=float, default=2.0, help="cache of mongod")
    parser.add_argument("--only", type=_names, default=(), help=f"tools by name, with commas: {', '.join(TOOLS)}")
    parser.add_argument("--before", type=Path, help="checkout of an earlier version, with its .venv: tool before")
    parser.add_argument("--work", type=Path, default=HERE / ".work", help="folder for the peers' environments")
    parser.add_argument("--results", type=Path, default=HERE / "results", help="folder for the results")
    parser.add_argument("--suffix", default="", help="end of the results' names")
    return parser.parse_args()


def _names(text: str) -> tuple[str, ...]:
    names = tuple(text.split(","))
    unknown = [name for name in names if name not in TOOLS]
    if unknown:
        raise argparse.ArgumentTypeError(f"unknown: {', '.join(unknown)}; known are {', '.join(TOOLS)}")
    return names


def _growth(text: str) -> tuple[tuple[str, int], ...]:
    return _parts(",".join(part if ":" in part else f"runs:{part.replace('_', '')}" for part in text.split(",")))


def _parts(text: str) -> tuple[tuple[str, int], ...]:
    found = tuple((name, int(documents)) for name, _, documents in (one.partition(":") for one in text.split(",")))
    unknown = [name for name, _ in found if name not in DATASETS]
    if unknown:
        raise argparse.ArgumentTypeError(f"unknown: {', '.join(unknown)}; known are {', '.join(DATASETS)}")
    return found


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder.resolve()
