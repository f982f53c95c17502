"""How fast the tail applies changes, against how fast the source can make them, and how late it is at a given rate.

``python benchmarks/tail.py --documents 20000 --events 20000 --rates 1000,5000 --seconds 10 --workers 1,2``

Servers of its own, filled with the demo's clean runs. *Backlog*: changes that are all there before the tail begins.
*Rate*: a process of its own makes so many changes a second; the delay is from the source's writing of an event to the
commit of its rows, after each transaction. A *mix* is 20 % inserts, 65 % updates, one half of them of the last 500
documents inserted, and 15 % deletes of the oldest. CPU seconds stand beside wall-clock seconds: on a machine that does
other things as well, only those compare. Those of the tail include its workers. The process that makes the changes uses
processors too, as does the MongoDB server for them: both are in the figures of a rate.
"""

import argparse
import json
import multiprocessing
import os
import statistics
import sys
import threading
import time
from pathlib import Path
from typing import Any

SLICES = 20
"""A writer sends its changes so many times a second."""
HOT = 500
POOL = 1_000
"""Documents that inserted ones are copies of, each under an id of its own."""


def _main() -> int:
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--documents", type=int, default=20_000)
    parser.add_argument("--events", type=int, default=20_000)
    parser.add_argument("--rates", default="1000,5000")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--workers", default="1", help="settings of tail.workers, one after the other")
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    rates = [int(one) for one in chosen.rates.split(",") if one]
    results: list[dict[str, Any]] = []
    for workers in map(int, chosen.workers.split(",")):
        for result in measure(chosen.documents, chosen.events, rates, chosen.seconds, workers):
            print("  ".join(f"{name} {value}" for name, value in result.items()), flush=True)
            results.append(result)
    if chosen.json is not None:
        chosen.json.write_text(json.dumps(results, indent=2) + "\n")
    return 0


def measure(documents: int, events: int, rates: list[int], seconds: float, workers: int) -> list[dict[str, Any]]:
    """Return one line per measurement."""
    from pymongo import MongoClient  # noqa: PLC0415 - needs the path above

    from benchmarks.harness.source import DATASETS, fill  # noqa: PLC0415 - as above
    from migrator.config import (  # noqa: PLC0415 - as above
        CopySettings,
        MongoSettings,
        PostgresSettings,
        Settings,
        SourceSettings,
        TailSettings,
    )
    from migrator.pipeline.backfill import backfill  # noqa: PLC0415 - as above
    from migrator.pipeline.plan import Scope  # noqa: PLC0415 - as above
    from migrator.pipeline.tail.loop import Tail  # noqa: PLC0415 - as above
    from migrator.schema.revisions import upgrade  # noqa: PLC0415 - as above
    from migrator.testing.servers.mongo import MongoServer  # noqa: PLC0415 - as above
    from migrator.testing.servers.postgres import PostgresServer  # noqa: PLC0415 - as above

    results: list[dict[str, Any]] = []
    with MongoServer() as mongo, PostgresServer() as postgres, MongoClient[Any](mongo.uri) as client:
        database = client["source"]
        fill(database, DATASETS["runs"], documents)
        dsn = postgres.create_database("target")
        upgrade(dsn)
        settings = Settings(
            source=SourceSettings(default_tenant="t"),
            mongo=MongoSettings(uri=mongo.uri, database="source"),
            postgres=PostgresSettings(dsn=dsn),
            copy=CopySettings(workers=2),
            tail=TailSettings(workers=workers),
        )
        backfill(settings, Scope())
        servers = {"mongod": mongo, "postgres": postgres}
        with Tail(settings) as tail:
            tail.run("caught-up")
            _await_workers(tail, workers)
            for kind in ("update", "insert", "mix", "delete"):
                made = _change(mongo.uri, kind, events)
                before, cpu, began = _cpu(servers), _tail_cpu(tail), time.perf_counter()
                done = tail.run("caught-up")
                spent = time.perf_counter() - began
                after = _cpu(servers)
                results.append(
                    {
                        "what": f"backlog of {kind}" + "s" * (kind != "mix"),
                        "workers": workers,
                        "load": round(os.getloadavg()[0], 1),
                        "events": done.events,
                        "source made/s": round(done.events / made),
                        "applied/s": round(done.events / spent),
                        "tail CPU us/event": round((_tail_cpu(tail) - cpu) / max(done.events, 1) * 1e6),
                        **{
                            f"{name} CPU us/event": round((after[name] - before[name]) / max(done.events, 1) * 1e6)
                            for name in servers
                        },
                    }
                )
            results += [_at_rate(tail, mongo.uri, rate, seconds, servers) | {"workers": workers} for rate in rates]
    return results


def _await_workers(tail: Any, workers: int) -> None:  # noqa: ANN401 - a Tail
    """Wait until the workers have imported what they need: that is a cost of the start."""
    asked = tail._opened()._workers  # noqa: SLF001 - the tail itself goes on without them
    while workers > 1 and asked.ready(sys.maxsize) < workers:
        time.sleep(1 / SLICES)


def _tail_cpu(tail: Any) -> float:  # noqa: ANN401 - as above
    """Return the CPU seconds of this process and of the tail's workers."""
    pids = [one._process.pid for one in tail._opened()._workers._workers]  # noqa: SLF001 - as above
    return time.process_time() + sum(map(_cpu_of, pids))


def _cpu_of(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


def _at_rate(tail: Any, uri: str, rate: int, seconds: float, servers: dict[str, Any]) -> dict[str, Any]:  # noqa: ANN401 - as above
    delays: list[float] = []
    session = tail._opened()  # noqa: SLF001 - the delay is taken after each transaction
    commit = session._commit  # noqa: SLF001 - as above

    def timed(batch: Any) -> None:  # noqa: ANN401 - a batch
        commit(batch)
        if batch.events:
            delays.append(session.delay_ms)

    session._commit = timed  # noqa: SLF001 - as above
    stop = threading.Event()
    made = multiprocessing.get_context("spawn").Queue()
    writer: Any = multiprocessing.get_context("spawn").Process(target=_write, args=(uri, rate, seconds, made))
    writer.start()

    def watch() -> None:
        writer.join()
        stop.set()

    watcher = threading.Thread(target=watch)
    watcher.start()
    cpu, before = _tail_cpu(tail), _cpu(servers)
    done = tail.run(None, stop)
    left = time.perf_counter()
    rest = tail.run("caught-up")
    watcher.join()
    session._commit = commit  # noqa: SLF001 - as above
    ordered = sorted(delays) or [0.0]
    events, after = max(done.events + rest.events, 1), _cpu(servers)
    written, writer_cpu = made.get()
    return {
        "what": f"mix at {rate} changes/s for {seconds:.0f} s",
        "load": round(os.getloadavg()[0], 1),
        "made/s": round(written),
        "applied": done.events,
        "left at the end": rest.events,
        "drained in s": round(time.perf_counter() - left, 2),
        "delay median ms": round(statistics.median(ordered)),
        "delay p99 ms": round(ordered[int(len(ordered) * 0.99)]),
        "tail CPU us/event": round((_tail_cpu(tail) - cpu) / events * 1e6),
        **{f"{name} CPU us/event": round((after[name] - before[name]) / events * 1e6) for name in servers},
        "writer CPU us/event": round(writer_cpu / events * 1e6),
    }


class _Writer:
    """Makes changes of the runs, the same ones each time."""

    def __init__(self, runs: Any) -> None:  # noqa: ANN401 - a collection
        self._runs = runs
        self._ids = [one["_id"] for one in runs.find({}, {"_id": 1})]
        self._pool = list(runs.find({}).limit(POOL))
        self._first = 0
        """What is left of the oldest."""
        self._made = 0

    def changes(self, kind: str, count: int) -> list[Any]:
        """Return so many changes of a kind."""
        made = {"update": self._update, "insert": self._insert, "delete": self._delete, "mix": self._mixed}[kind]
        return [made() for _ in range(count)]

    def write(self, changes: list[Any]) -> None:
        """Send changes: inserts, then updates, then deletes."""
        self._runs.bulk_write(changes, ordered=False)

    def _mixed(self) -> Any:  # noqa: ANN401 - a change
        turn = (self._made * 7) % 20
        if turn < 4:  # noqa: PLR2004 - a fifth
            return self._insert()
        return self._delete() if turn < 7 else self._update(hot=turn % 2 == 0)  # noqa: PLR2004 - three of twenty

    def _insert(self) -> Any:  # noqa: ANN401 - as above
        import bson  # noqa: PLC0415 - a worker process imports what it needs
        from pymongo import InsertOne  # noqa: PLC0415 - as above

        self._made += 1
        own = f"run_{bson.ObjectId()}00000000"
        document = {**self._pool[self._made % len(self._pool)], "_id": own}
        if "id" in document:
            document["id"] = own  # as it is in every run: another one would be kept as remainder
        self._ids.append(own)
        return InsertOne(document)

    def _delete(self) -> Any:  # noqa: ANN401 - as above
        from pymongo import DeleteOne  # noqa: PLC0415 - as above

        self._made += 1
        self._first += 1
        return DeleteOne({"_id": self._ids[self._first - 1]})

    def _update(self, *, hot: bool = False) -> Any:  # noqa: ANN401 - as above
        from pymongo import UpdateOne  # noqa: PLC0415 - as above

        self._made += 1
        left = len(self._ids) - self._first
        place = -1 - self._made % HOT if hot else self._first + (self._made * 31) % left
        return UpdateOne({"_id": self._ids[place]}, {"$inc": {"stats.completed": 1}})


def _change(uri: str, kind: str, events: int) -> float:
    """Make so many changes of one kind, as fast as the source takes them; return in how many seconds."""
    from pymongo import MongoClient  # noqa: PLC0415 - a worker process imports what it needs

    with MongoClient[Any](uri) as client:
        writer = _Writer(client["source"]["runs"])
        changes = writer.changes(kind, events // 2 if kind == "delete" else events)
        began = time.perf_counter()
        for begin in range(0, len(changes), 1_000):
            writer.write(changes[begin : begin + 1_000])
        return time.perf_counter() - began


def _write(uri: str, rate: int, seconds: float, made: Any) -> None:  # noqa: ANN401 - a queue
    """Change documents at a rate; say how many a second it came to, and what CPU seconds making them took."""
    from pymongo import MongoClient  # noqa: PLC0415 - as above

    with MongoClient[Any](uri) as client:
        writer = _Writer(client["source"]["runs"])
        began, cpu = time.perf_counter(), time.process_time()
        done = 0
        while (spent := time.perf_counter() - began) < seconds:
            due = int(rate * spent) - done
            if due < rate / SLICES:
                time.sleep(1 / SLICES)
                continue
            writer.write(writer.changes("mix", due))
            done += due
        made.put((done / (time.perf_counter() - began), time.process_time() - cpu))


def _cpu(servers: dict[str, Any]) -> dict[str, float]:
    """Return the CPU seconds that each server's processes have used, ended ones included."""
    ticks = os.sysconf("SC_CLK_TCK")
    used = {}
    for name, server in servers.items():
        total = 0
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    fields = (entry / "stat").read_text().rpartition(")")[2].split()
                except OSError:
                    continue
                if int(entry.name) == server.pid or int(fields[1]) == server.pid:
                    total += sum(
                        int(one) for one in (fields[11:15] if int(entry.name) == server.pid else fields[11:13])
                    )
        used[name] = total / ticks
    return used


if __name__ == "__main__":
    raise SystemExit(_main())
