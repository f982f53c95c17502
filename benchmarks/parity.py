"""Where the time of a parity check goes: processor time of the client and of both servers, by stage.

``python benchmarks/parity.py --documents 60000 --rounds 3``

Starts both servers, copies ``runs``, and measures in each round whole processes (first load, the same again with
nothing changed, parity check), then the stages of the comparison one by one in this process. Processor time and not
wall time is counted: it is much the same on a machine that does other work meanwhile. To ``results/parity.md`` and
``.json``.
"""

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent
COLLECTION: Final = "runs"
COMMANDS: Final = {
    "first load": ("backfill",),
    "nothing changed": ("backfill",),
    "parity check": ("parity",),
}
PARTS: Final = ("client", "mongod", "postgres")

Costs = dict[str, dict[str, list[float]]]
"""What was measured → part → microseconds of processor time per document, by round."""


def _main() -> int:
    sys.path.insert(0, str(ROOT.parent))
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # each process would compile the whole package anew
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--documents", type=int, default=60_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--results", type=Path, default=ROOT / "results")
    chosen = parser.parse_args()
    from benchmarks.harness import record  # noqa: PLC0415 - needs the path above
    from benchmarks.harness.commits import commit  # noqa: PLC0415 - as above

    before = record.load()
    whole, stages = measured(chosen.documents, chosen.rounds)
    found = {
        "commit": commit(),
        "command": f"python benchmarks/parity.py --documents {chosen.documents} --rounds {chosen.rounds}",
        "machine": record.machine(before, "pymongo", "psycopg", "scheduler-migrator-speedups"),
        "documents": chosen.documents,
        "processes": whole,
        "stages": stages,
    }
    record.write(chosen.results, "parity", found, markdown)
    return 0


def measured(documents: int, rounds: int) -> tuple[Costs, Costs]:
    """Return the costs of whole processes, and those of the stages."""
    from pymongo import MongoClient  # noqa: PLC0415 - needs the path above, as all of these

    from benchmarks.harness import source, target  # noqa: PLC0415 - as above
    from benchmarks.harness.measure import measure  # noqa: PLC0415 - as above
    from benchmarks.harness.tools import settings_of  # noqa: PLC0415 - as above
    from migrator.testing.servers.mongo import MongoServer  # noqa: PLC0415 - as above
    from migrator.testing.servers.postgres import PostgresServer  # noqa: PLC0415 - as above

    whole: Costs = {name: {part: [] for part in PARTS} for name in COMMANDS}
    stages: Costs = {}
    with (
        MongoServer(cache_gb=1.0) as mongo,
        PostgresServer(version=18) as postgres,
        MongoClient[dict[str, Any]](mongo.uri) as client,
        TemporaryDirectory() as scratch,
    ):
        target.make_templates(postgres)
        database = client["benchmark"]
        source.fill(database, source.DATASETS[COLLECTION], documents)
        servers = {"mongod": mongo.pid or 0, "postgres": postgres.pid or 0}
        for _ in range(rounds):
            for _ in database[COLLECTION].find_raw_batches():
                pass  # warms MongoDB's cache
            dsn = target.fresh(postgres, target.TEMPLATE)
            environment = settings_of(mongo.uri, database.name, dsn, "stellaops")
            for name, words in COMMANDS.items():
                argv = [sys.executable, "-m", "migrator", *words]
                log = Path(scratch) / "log"
                taken = measure(argv, environment=environment, servers=servers, log=log)
                if taken.status:
                    raise SystemExit(f"{name}: exit status {taken.status}: {taken.output[-400:]}")
                for part, seconds in {"client": taken.client_cpu, **taken.server_cpu}.items():
                    whole[name][part].append(round(seconds * 1e6 / documents, 1))
            for name, costs in stage_costs(environment, servers, documents):
                of_stage = stages.setdefault(name, {part: [] for part in PARTS})
                for part, cost in costs.items():
                    of_stage[part].append(cost)
            target.drop(postgres, dsn)
    return whole, stages


def stage_costs(
    environment: Mapping[str, str], servers: Mapping[str, int], documents: int
) -> Iterator[tuple[str, dict[str, float]]]:
    """Yield each stage of a comparison with its cost in this process and in the servers."""
    from benchmarks.harness.measure import tree_cpu  # noqa: PLC0415 - needs the path above, as all of these
    from migrator.config import load_settings  # noqa: PLC0415 - as above
    from migrator.parity import aggregates  # noqa: PLC0415 - as above
    from migrator.parity.compare import compare_chunk  # noqa: PLC0415 - as above
    from migrator.pipeline import plan as plans  # noqa: PLC0415 - as above
    from migrator.pipeline.executors import ChunkJob  # noqa: PLC0415 - as above
    from migrator.pipeline.extract import chunk_batches  # noqa: PLC0415 - as above
    from migrator.pipeline.ledger import latest_plan  # noqa: PLC0415 - as above
    from migrator.pipeline.load import copy_out, different_documents  # noqa: PLC0415 - as above
    from migrator.pipeline.sessions import close_cached, open_sessions  # noqa: PLC0415 - as above
    from migrator.pipeline.transform import ReadBatch  # noqa: PLC0415 - as above

    def cost(work: Callable[[], object]) -> dict[str, float]:
        began, before = time.process_time(), {name: tree_cpu(pid) for name, pid in servers.items()}
        work()
        taken = {"client": time.process_time() - began}
        taken |= {name: tree_cpu(pid) - before[name] for name, pid in servers.items()}
        return {name: round(seconds * 1e6 / documents, 2) for name, seconds in taken.items()}

    settings = load_settings(environment=environment)
    with open_sessions(settings) as sessions:
        plan = latest_plan(sessions.target)
        if plan is None:
            raise SystemExit("nothing was copied")
        context, reader = plans.plan_context(plan), sessions.reader
        collection = sessions.profile.by_name()[COLLECTION]
        jobs = [
            ChunkJob(settings=settings, plan=plan, context=context, chunk=chunk, begun="benchmark")
            for one in sessions.survey()[0]
            if one.collection.name == COLLECTION
            for chunk in plans.cut(reader, one, settings, "merge")
        ]

        def raws() -> Iterator[bytes]:
            for job in jobs:
                yield from chunk_batches(sessions, job)

        def read(raw: bytes) -> ReadBatch:
            return ReadBatch(collection, context, sessions.resolver, raw)

        batches = list(raws())
        yield "read from MongoDB", cost(lambda: list(map(len, raws())))
        yield "decode by the native codec", cost(lambda: [read(raw) for raw in batches])
        decoded = [read(raw) for raw in batches]
        yield "documents for the Python codec", cost(lambda: [len(part) for one in decoded for part in one.documents()])
        yield (
            "serialize as COPY takes it",
            cost(lambda: [len(one.copied()) for batch in decoded for one in batch.rows()]),
        )
        rows = [list(batch.rows()) for batch in decoded]
        ids = [(one.record, *one.comparison().ids()) for some in rows for one in some]
        yield "read from PostgreSQL", cost(lambda: [sum(1 for _ in copy_out(sessions.target, *one)) for one in ids])
        yield (
            "read from PostgreSQL and compare",
            cost(lambda: [different_documents(sessions.target, some) for some in rows]),
        )
        yield "compare as a worker does", cost(lambda: [compare_chunk(job) for job in jobs])
        close_cached()
        job = aggregates.AggregatesJob(
            settings=settings, collection=COLLECTION, left_out=(), default_tenant=context.default_tenant
        )
        yield "aggregates of both servers", cost(lambda: aggregates.compute_aggregates(job))
        close_cached()


def markdown(found: dict[str, Any]) -> str:
    """Return the tables."""
    lines = [
        "# The time of a parity check",
        "",
        f"`{found['command']}` at commit {found['commit']}. Machine: "
        + ", ".join(f"{name} {it}" for name, it in found["machine"].items())
        + ".",
        f"Microseconds of processor time for each of {found['documents']:,} documents of `{COLLECTION}`, medians of",
        "the rounds (least to most). A whole process contains the start of its worker processes, which does not grow",
        "with the data.",
    ]
    for title, costs in (("whole process", found["processes"]), ("stage, in one process", found["stages"])):
        lines += ["", f"| {title} | client | mongod | PostgreSQL | all |", "| --- | ---: | ---: | ---: | ---: |"]
        for name, parts in costs.items():
            total = [round(sum(one), 1) for one in zip(*parts.values(), strict=True)]
            shown = " | ".join(_shown(values) for values in (*(parts[part] for part in PARTS), total))
            lines.append(f"| {name} | {shown} |")
    return "\n".join([*lines, ""])


def _shown(values: list[float]) -> str:
    return f"{statistics.median(values):.1f} ({min(values):.1f} to {max(values):.1f})"


if __name__ == "__main__":
    sys.exit(_main())
