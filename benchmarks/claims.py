"""Where the time of a claim on MongoDB goes, command by command; ``python benchmarks/claims.py --help``.

One process claims one run a call. The driver reports each command with the time from the request to the reply. What is
left of a call is Python: the driver before and after its commands, and the store.
"""

import argparse
import statistics
import sys
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

from pymongo import monitoring


class _Commands(monitoring.CommandListener):
    """Counts commands and their milliseconds while ``counting``."""

    def __init__(self) -> None:
        self.counting = False
        self.calls: Counter[str] = Counter()
        self.milliseconds: defaultdict[str, float] = defaultdict(float)
        self._names: dict[int, str] = {}

    def started(self, event: monitoring.CommandStartedEvent) -> None:
        collection = event.command.get(event.command_name)
        of = f" {collection}" if isinstance(collection, str) else ""
        self._names[event.request_id] = f"{event.command_name}{of}"

    def succeeded(self, event: monitoring.CommandSucceededEvent) -> None:
        name = self._names.pop(event.request_id)
        if self.counting:
            self.calls[name] += 1
            self.milliseconds[name] += event.duration_micros / 1000

    def failed(self, event: monitoring.CommandFailedEvent) -> None:
        self._names.pop(event.request_id)


def _main() -> int:
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--schedules", type=int, default=10_000, help="each states a priority of its own")
    parser.add_argument("--backlog", type=int, default=1_000_000, help="queued runs")
    parser.add_argument("--calls", type=int, default=1_000)
    chosen = parser.parse_args()
    print(_profile(chosen.schedules, chosen.backlog, chosen.calls))
    return 0


def _profile(schedules: int, backlog: int, calls: int) -> str:
    from benchmarks.harness import scheduling  # noqa: PLC0415 - needs the path above
    from migrator.config import MongoSettings, PersistenceSettings, Settings, SourceSettings  # noqa: PLC0415 - as above
    from migrator.store import open_scheduler_store  # noqa: PLC0415 - as above
    from migrator.testing.servers.mongo import MongoServer  # noqa: PLC0415 - as above
    from migrator.verify.timing import RowCounts  # noqa: PLC0415 - as above

    commands = _Commands()
    monitoring.register(commands)
    amount = RowCounts(schedules=schedules, due=0, explicit=schedules, waiting=backlog, stale=0)
    with MongoServer() as server:
        settings = Settings(
            source=SourceSettings(default_tenant=scheduling.TENANT),
            mongo=MongoSettings(uri=server.uri, database="bench"),
            persistence=PersistenceSettings(scheduler="mongo"),
        )
        scheduling.fill_mongo(settings, scheduling.TENANT, amount)
        with open_scheduler_store(settings) as store:
            for _ in range(50):
                store.queue.claim("w", 1, scheduling.LEASE)
            commands.counting = True
            cpu, took = time.process_time(), list[float]()
            for _ in range(calls):
                began = time.perf_counter()
                claimed = store.queue.claim("w", 1, scheduling.LEASE)
                took.append((time.perf_counter() - began) * 1000)
                assert claimed, "a backlog that ends measures nothing"
            cpu = (time.process_time() - cpu) * 1000
            commands.counting = False
    return _table(commands, took, cpu)


def _table(commands: _Commands, took: list[float], cpu: float) -> str:
    calls, lines = len(took), ["| command | calls for each claim | ms for each claim |", "|---|---|---|"]
    for name, milliseconds in sorted(commands.milliseconds.items(), key=lambda one: -one[1]):
        lines.append(f"| {name} | {commands.calls[name] / calls:.1f} | {milliseconds / calls:.2f} |")
    mean, all_commands = statistics.fmean(took), sum(commands.milliseconds.values()) / calls
    lines.append(f"| Python outside of commands | | {mean - all_commands:.2f} |")
    ordered: list[Any] = sorted(took)
    lines.append("")
    lines.append(
        f"{calls} claims: mean {mean:.2f} ms, median {statistics.median(took):.2f} ms,"
        f" 99th percentile {ordered[int(0.99 * calls)]:.2f} ms; CPU of this process {cpu / calls:.2f} ms a claim"
    )
    return "\n".join(lines)


if __name__ == "__main__":
    raise SystemExit(_main())
