"""How quick the scheduler's operations are with many triggers and several processes, on both backends side by side.

``python benchmarks/scheduler.py --triggers 10000,100000,1000000 --instances 1,5,10``
``python benchmarks/scheduler.py --triggers 10000 --instances 1 --backends postgres``
``python benchmarks/scheduler.py --triggers 10000 --explicit 10000 --backlog 1000000 --instances 1,10 --claims-only``

Servers of its own, filled in bulk. Each instance is a process with its store, as ``migrator scheduler run`` has one;
all begin an operation at the same time. Due poll: finds and fires ten triggers. Stale cleanup: finds and ends a hundred
runs. Dispatch: a due poll and a claim. Overhead: one run claimed and finished. Throughput: runs claimed and completed a
second, all of them waiting at the beginning, PostgreSQL with every index. CPU time of a call: of the processes that
call, and of the server meanwhile; what holds on a machine with more cores.
Migration: how long ``backfill`` takes for these jobs. The table goes to ``results/`` as Markdown and JSON.
The exit status is 1 where PostgreSQL misses a ceiling.
"""

import argparse
import os
import platform
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent
JOBS, TOGETHER = 10_000, 10
"""Triggers and processes for which the ceilings of the crawler's scheduler are stated."""


class Ceiling(NamedTuple):
    """At most so many milliseconds in 95 of 100 calls on PostgreSQL, with ``JOBS`` triggers or more."""

    capability: str
    """Row of docs/capabilities.md that states it."""
    operation: str
    """How the name of the operation begins."""
    milliseconds: float
    instances: int
    """Processes at the same time; a measurement with others is not judged."""


CEILINGS = (
    Ceiling("3-P2", "due poll", 100.0, TOGETHER),
    Ceiling("3-P3", "lock", 10.0, TOGETHER),
    Ceiling("3-P4", "stale cleanup", 1000.0, TOGETHER),
    Ceiling("2-X15", "dispatch", 100.0, 1),
    Ceiling("2-X15", "overhead", 50.0, 1),
    Ceiling("2-X15", "get", 20.0, 1),
    Ceiling("2-X15", "list", 20.0, 1),
    Ceiling("2-X15", "history", 20.0, 1),
)
CLAIM_P99, CLAIM_AT = 10.0, 1_000_000
"""Ours: milliseconds, and at how many triggers, or queued runs."""
CLAIM_P99_OF: dict[int, float] = {1: CLAIM_P99, TOGETHER: 50.0}
"""Processes to the milliseconds that 99 of 100 claims of one run keep to, on each backend."""
CLAIMED_ONE = "claim, batch 1"
THROUGHPUT = {10: (6_000, 8_000), 100: (12_000, 15_000)}
"""Batch → runs a second that must be reached, and that are aimed at, on two cores."""
MIGRATION_S = 30
PACKAGES = ("scheduler-migrator", "pymongo", "psycopg", "msgspec")


def _main() -> int:
    sys.path.insert(0, str(ROOT.parent))
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--triggers", default="10000", help="sizes, with commas between them")
    parser.add_argument("--instances", default="1,5,10", help="processes, with commas between them")
    parser.add_argument("--backends", default="postgres,mongo")
    parser.add_argument("--calls", type=int, default=200, help="calls of each operation, all processes together")
    parser.add_argument("--seconds", type=float, default=3.0, help="for the calls of one operation, at most")
    parser.add_argument("--explicit", type=int, default=0, help="schedules that state a priority of their own")
    parser.add_argument("--backlog", type=int, default=0, help="queued runs, at least so many")
    parser.add_argument("--claims-only", action="store_true", help="no poll, lock, cleanup, throughput, migration")
    parser.add_argument("--drain", type=int, default=20_000, help="runs that the throughput is measured with; 0: not")
    parser.add_argument("--workers", type=int, default=2, help="processes of the throughput")
    parser.add_argument("--results", type=Path, default=ROOT / "results")
    chosen = parser.parse_args()
    result = measure(
        sizes=[int(one) for one in chosen.triggers.split(",")],
        instances=[int(one) for one in chosen.instances.split(",")],
        backends=chosen.backends.split(","),
        calls=chosen.calls,
        seconds=chosen.seconds,
        claims_only=chosen.claims_only,
        explicit=chosen.explicit,
        backlog=chosen.backlog,
        drain=0 if chosen.claims_only else chosen.drain,
        workers=chosen.workers,
    )
    from benchmarks.harness import record  # noqa: PLC0415 - needs the path above

    record.write(chosen.results, "scheduler", result, markdown)
    missed = [line for lines in judged(result).values() for line in lines]
    for said, met in claims_judged(result):
        print(f"{'met' if met else 'missed'}: {said}")
        missed += [] if met else [said]
    for line in missed:
        print(f"missed: {line}", file=sys.stderr)
    return 1 if missed else 0


def judged(result: dict[str, Any]) -> dict[str, list[str]]:
    """Return, by capability that the result measures, the ceilings that it misses; nothing else than PostgreSQL's.

    A capability whose operations were not measured with ``JOBS`` triggers and the stated processes is left out.
    """
    found: dict[str, list[str]] = {}
    for one in CEILINGS:
        for line in result["lines"]:
            if line["backend"] != "postgres" or line["triggers"] < JOBS or line["instances"] != one.instances:
                continue
            if line["operation"].startswith(one.operation):
                missed = found.setdefault(one.capability, [])
                if line["p95"] > one.milliseconds:
                    missed.append(
                        f"{one.capability}: {line['operation']}: {line['p95']} ms at {line['triggers']} triggers and"
                        f" {one.instances} processes, at most {one.milliseconds}"
                    )
    for line in result["throughput"]:
        if line["triggers"] >= JOBS:
            missed = found.setdefault("3-P1", [])
            must = THROUGHPUT[line["batch"]][0]
            if line["runs/s"] < must:
                missed.append(f"3-P1: {line['runs/s']} runs/s in batches of {line['batch']}, at least {must}")
    return found


def claims_judged(result: dict[str, Any]) -> list[tuple[str, bool]]:
    """Return, for each measurement of claims of one run from a backlog of ``CLAIM_AT``, its words and if it is met."""
    found = []
    for line in result["lines"]:
        most = CLAIM_P99_OF.get(line["instances"])
        if most is not None and line["operation"] == CLAIMED_ONE and line.get("backlog", 0) >= CLAIM_AT:
            words = (
                f"{line['operation']}: {line['p99']} ms at the 99th percentile on {line['backend']} with"
                f" {line['instances']} processes, {line['backlog']:,} queued runs and {line['explicit']:,} explicit"
                f" priorities, at most {most:.0f}"
            )
            found.append((words, line["p99"] <= most))
    return found


def measure(
    *,
    sizes: list[int],
    instances: list[int],
    backends: list[str],
    calls: int,
    seconds: float,
    claims_only: bool,
    explicit: int = 0,
    backlog: int = 0,
    drain: int,
    workers: int,
) -> dict[str, Any]:
    """Measure every size on every backend with every number of instances."""
    from migrator.config import MongoSettings, PersistenceSettings, PostgresSettings, Settings, SourceSettings  # noqa: PLC0415 - needs the path above
    from migrator.schema.revisions import upgrade  # noqa: PLC0415 - as above
    from migrator.testing.servers.mongo import MongoServer  # noqa: PLC0415 - as above
    from migrator.testing.servers.postgres import PostgresServer  # noqa: PLC0415 - as above

    began = os.getloadavg()[0]
    found: dict[str, Any] = {"lines": [], "throughput": [], "migration": [], "filled": []}
    with PostgresServer() as postgres, MongoServer() as mongo:
        for size in sizes:
            for backend in backends:
                dsn = postgres.create_database(f"{backend}_{size}")
                upgrade(dsn)
                settings = Settings(
                    source=SourceSettings(default_tenant="t"),
                    mongo=MongoSettings(uri=mongo.uri, database=f"bench_{size}"),
                    postgres=PostgresSettings(dsn=dsn),
                    persistence=PersistenceSettings(scheduler=backend),  # type: ignore[arg-type] # one of its words
                )
                _one(
                    found,
                    settings,
                    size,
                    instances,
                    calls,
                    seconds=seconds,
                    claims_only=claims_only,
                    waiting=(explicit, backlog),
                    server=(postgres.pid if backend == "postgres" else mongo.pid) or 0,
                )
                if backend == "postgres" and drain:
                    found["throughput"] += [_throughput(settings, size, one, drain, workers) for one in THROUGHPUT]
                postgres.drop_database(f"{backend}_{size}")
        found["versions"] = {
            "CPython": platform.python_version(),
            "PostgreSQL": str(postgres.version),
            "mongod": _mongod(mongo.uri),
            **{name: version(name) for name in PACKAGES},
        }
    from benchmarks.harness.commits import commit  # noqa: PLC0415 - needs the path above

    found["commit"] = commit()
    found["machine"] = {
        "cores": len(os.sched_getaffinity(0)),
        "memory GB": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
        "load before": round(began, 1),
        "load after": round(os.getloadavg()[0], 1),
        "system": f"{platform.system()} {platform.machine()}",
    }
    return found


def _one(
    found: dict[str, Any],
    settings: Any,  # noqa: ANN401 - Settings
    size: int,
    instances: list[int],
    calls: int,
    *,
    seconds: float,
    claims_only: bool,
    waiting: tuple[int, int],
    server: int,
) -> None:
    """Fill one backend, and measure each number of instances on it.

    ``waiting``: the schedules with a priority of their own, and the least number of queued runs.
    ``server``: its process id.
    """
    from benchmarks.harness import scheduling  # noqa: PLC0415 - needs the path
    from migrator.verify.timing import RowCounts, percentile  # noqa: PLC0415 - needs the path

    backend = settings.persistence.scheduler
    each = [max(calls // one, 1) for one in instances]
    total = sum((own + 1) * one for own, one in zip(each, instances, strict=True))
    cleanups = [max(own // 10, 1) for own in each]
    amount = RowCounts(
        schedules=size,
        due=min(size, 0 if claims_only else total * scheduling.POLLED * scheduling.POLLS),
        explicit=min(size, waiting[0]),
        waiting=max(waiting[1], total * (sum(scheduling.CLAIMS) + 1 + scheduling.SINGLE_CLAIMS)),
        stale=0 if claims_only else scheduling.CLEANED * sum(map(int.__mul__, cleanups, instances)),
    )
    began = time.perf_counter()
    fill = scheduling.fill_postgres if backend == "postgres" else scheduling.fill_mongo
    fill(settings, scheduling.TENANT, amount)
    filled = round(time.perf_counter() - began, 1)
    found["filled"].append({"backend": backend, "triggers": size, "rows": amount.rows, "seconds": filled})
    print(f"{backend}: {amount.rows:,} rows in {filled} s", file=sys.stderr)
    if backend == "mongo" and not claims_only:
        found["migration"].append(_migration(settings, size))
    for number, own, cleaned in zip(instances, each, cleanups, strict=True):
        task = scheduling.Task(
            settings=settings,
            instances=number,
            calls=own,
            cleanups=cleaned,
            seconds=seconds,
            claims_only=claims_only,
            server=server,
        )
        for operation, calls_made in scheduling.work(task).items():
            took, cpu = calls_made.took, (calls_made.client_cpu, calls_made.server_cpu)
            line = {"triggers": size, "instances": number, "backend": backend, "operation": operation}
            line |= {"calls": len(took), "explicit": amount.explicit, "backlog": amount.waiting}
            line |= {f"p{of}": round(percentile(took, of / 100), 3) for of in (50, 95, 99)}
            line |= {
                "client CPU": round(cpu[0] * 1000 / len(took), 3),
                "server CPU": round(cpu[1] * 1000 / len(took), 3),
            }
            found["lines"].append(line)
        print(f"{backend}: {size:,} triggers, {number} instances: done", file=sys.stderr)


def _throughput(settings: Any, size: int, batch: int, drain: int, workers: int) -> dict[str, Any]:  # noqa: ANN401 - Settings
    from benchmarks.harness import scheduling  # noqa: PLC0415 - needs the path
    from migrator.verify.timing import RowCounts  # noqa: PLC0415 - as above

    each = drain // workers
    amount = RowCounts(schedules=max(drain // 20, 1), waiting=each * workers + workers)
    scheduling.fill_postgres(settings, f"drain {batch}", amount)
    task = scheduling.Task(settings=settings, instances=workers, calls=0, cleanups=0, drain=each, batch=batch)
    seconds = max(scheduling.work(task)["drain"].took)
    done = each * workers
    return {"triggers": size, "batch": batch, "processes": workers, "runs": done, "runs/s": round(done / seconds)}


def _migration(settings: Any, size: int) -> dict[str, Any]:  # noqa: ANN401 - Settings
    from migrator.pipeline.backfill import backfill  # noqa: PLC0415 - needs the path
    from migrator.pipeline.plan import Scope  # noqa: PLC0415 - as above
    from migrator.pipeline.sessions import close_cached  # noqa: PLC0415 - as above

    began = time.perf_counter()
    complete = backfill(settings, Scope()).complete
    seconds = round(time.perf_counter() - began, 1)
    close_cached()
    return {"jobs": size, "seconds": seconds, "complete": complete}


def _mongod(uri: str) -> str:
    from pymongo import MongoClient  # noqa: PLC0415 - only where a server runs

    with MongoClient[Any](uri) as client:
        return str(client.server_info()["version"])


def markdown(result: dict[str, Any]) -> str:
    """Return the tables."""
    versions = ", ".join(f"{name} {one}" for name, one in result["versions"].items())
    machine = ", ".join(f"{name} {one}" for name, one in result["machine"].items())
    out = [
        "# The scheduler's operations",
        "",
        "Milliseconds: median / 95th / 99th percentile (calls); CPU, client + server.",
        f"{versions}.",
    ]
    out += [f"Machine: {machine}.", ""]
    backends = list(dict.fromkeys(line["backend"] for line in result["lines"]))
    out += _table(
        (
            "triggers",
            "instances",
            "operation",
            *(column for backend in backends for column in (backend, f"{backend}: CPU of a call")),
            "ceiling",
        ),
        _rows(result["lines"], backends),
    )
    if result["throughput"]:
        out += ["", "Runs claimed and completed on PostgreSQL, all indexes present:", ""]
        out += _table(
            ("triggers", "batch", "processes", "runs", "runs/s", "must", "aim"),
            [
                (
                    *(f"{one[name]:,}" for name in ("triggers", "batch", "processes", "runs", "runs/s")),
                    f"{must:,}",
                    f"{aim:,}",
                )
                for one in result["throughput"]
                for must, aim in [THROUGHPUT[one["batch"]]]
            ],
        )
    if result["migration"]:
        out += ["", f"Jobs migrated (`backfill`; at most {MIGRATION_S} s for 10,000):", ""]
        out += _table(("jobs", "seconds"), [(f"{one['jobs']:,}", str(one["seconds"])) for one in result["migration"]])
    out += ["", "Filled:", ""]
    out += _table(
        ("backend", "triggers", "rows", "seconds"),
        [(one["backend"], f"{one['triggers']:,}", f"{one['rows']:,}", str(one["seconds"])) for one in result["filled"]],
    )
    return "\n".join(out) + "\n"


def _rows(lines: list[dict[str, Any]], backends: list[str]) -> list[tuple[str, ...]]:
    places: dict[tuple[int, int, str], dict[str, tuple[str, str]]] = {}
    for line in lines:
        key = (line["triggers"], line["instances"], line["operation"])
        places.setdefault(key, {})[line["backend"]] = (
            f"{line['p50']:.2f} / {line['p95']:.2f} / {line['p99']:.2f} ({line['calls']})",
            f"{line['client CPU']:.2f} + {line['server CPU']:.2f}",
        )
    return [
        (
            f"{size:,}",
            str(number),
            operation,
            *(cell for backend in backends for cell in cells.get(backend, ("-", "-"))),
            _ceiling(size, operation),
        )
        for (size, number, operation), cells in places.items()
    ]


def _ceiling(size: int, operation: str) -> str:
    if operation.startswith("claim") and size >= CLAIM_AT:
        return f"99th: {CLAIM_P99:.0f}"
    return next((f"95th: {one.milliseconds:.0f}" for one in CEILINGS if operation.startswith(one.operation)), "")


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> list[str]:
    return [f"| {' | '.join(line)} |" for line in (head, ("---",) * len(head), *rows)]


if __name__ == "__main__":
    raise SystemExit(_main())
