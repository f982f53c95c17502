"""What a small copy and its parity check cost: processor time of whole processes, and of each step of the command.

``python benchmarks/start.py --documents 1000 --rounds 5``

Starts both servers, and in each round copies ``runs`` into an empty target and compares it. Processor time and not wall
time is counted: it is much the same on a machine that does other work meanwhile. To ``results/start.md`` and ``.json``.
"""

import argparse
import json
import os
import statistics
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent
COLLECTION: Final = "runs"
WHOLE: Final = "whole command"
REMAINDER: Final = "worker processes, end of the interpreter"

Costs = dict[str, dict[str, list[float]]]
"""Command → step → milliseconds of processor time of the client, by round."""


def _main() -> int:
    sys.path.insert(0, str(ROOT.parent))
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # each process would compile the whole package anew
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--documents", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--results", type=Path, default=ROOT / "results")
    chosen = parser.parse_args()
    from benchmarks.harness import record  # noqa: PLC0415 - needs the path above
    from benchmarks.harness.commits import commit  # noqa: PLC0415 - as above

    before = record.load()
    costs = measured(chosen.documents, chosen.rounds)
    result = {
        "commit": commit(),
        "command": f"python benchmarks/start.py --documents {chosen.documents} --rounds {chosen.rounds}",
        "machine": record.machine(before, "pymongo", "psycopg", "scheduler-migrator-speedups"),
        "documents": chosen.documents,
        "milliseconds": costs,
    }
    record.write(chosen.results, "start", result, markdown)
    return 0


def measured(documents: int, rounds: int) -> Costs:
    """Return the costs of the steps of both commands; every command is run twice, once as a user would."""
    from pymongo import MongoClient  # noqa: PLC0415 - needs the path above, as all of these

    from benchmarks.harness import source, target  # noqa: PLC0415 - as above
    from benchmarks.harness.measure import Measurement, measure  # noqa: PLC0415 - as above
    from benchmarks.harness.tools import PROGRAMS, settings_of  # noqa: PLC0415 - as above
    from migrator.testing.servers.mongo import MongoServer  # noqa: PLC0415 - as above
    from migrator.testing.servers.postgres import PostgresServer  # noqa: PLC0415 - as above

    costs: Costs = {}
    with (
        MongoServer(cache_gb=0.5) as mongo,
        PostgresServer(version=18) as postgres,
        MongoClient[dict[str, Any]](mongo.uri) as client,
        TemporaryDirectory() as scratch,
    ):
        target.make_templates(postgres)
        database = client["benchmark"]
        source.fill(database, source.DATASETS[COLLECTION], documents)
        steps = Path(scratch) / "steps.json"

        def run(dsn: str, *words: str) -> Measurement:
            environment = settings_of(mongo.uri, database.name, dsn, "stellaops")
            taken = measure([sys.executable, *words], environment=environment, servers={}, log=Path(scratch) / "log")
            if taken.status:
                raise SystemExit(f"{words[-1]}: exit status {taken.status}: {taken.output[-400:]}")
            return taken

        for _ in range(rounds):
            whole, by_step = (target.fresh(postgres, target.TEMPLATE) for _ in range(2))
            for command in ("backfill", "parity"):
                taken = {WHOLE: run(whole, "-m", "migrator", command).client_cpu}
                process = run(by_step, str(PROGRAMS / "start.py"), str(steps), command).client_cpu
                spent: dict[str, float] = json.loads(steps.read_text())
                taken |= spent | {REMAINDER: process - sum(spent.values())}
                of_command = costs.setdefault(command, {step: [] for step in taken})
                for step, seconds in taken.items():
                    of_command[step].append(round(seconds * 1000, 1))
            target.drop(postgres, whole)
            target.drop(postgres, by_step)
    return costs


def markdown(result: dict[str, Any]) -> str:
    """Return the tables."""
    lines = [
        "# The time of a small copy",
        "",
        f"`{result['command']}` at commit {result['commit']}. Machine: "
        + ", ".join(f"{name} {held}" for name, held in result["machine"].items())
        + ".",
        f"Milliseconds of the client's processor time for {result['documents']:,} documents of `{COLLECTION}` and",
        "their schedules, medians of the rounds (least to most). The steps are those of a second process.",
    ]
    for command, steps in result["milliseconds"].items():
        lines += ["", f"| `migrator {command}` | ms |", "| --- | ---: |"]
        lines += [
            f"| {step} | {statistics.median(spent):.0f} ({min(spent):.0f} to {max(spent):.0f}) |"
            for step, spent in steps.items()
        ]
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    sys.exit(_main())
