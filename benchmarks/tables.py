"""How long the copy and the parity check of jobs take that another system keeps in tables of PostgreSQL.

``python benchmarks/tables.py --jobs 10000 --rounds 3``

The tables of ``crawler`` are made from its DDL and filled with so many jobs, each with one execution. Each round copies
them into a new target and compares them, each as a whole process of ``migrator``, from start to exit.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent
DDL = ROOT.parent / "tests" / "fixtures_data" / "tables" / "crawler.sql"

CAPABILITY = "3-A23"
CEILING_JOBS = 10_000
CEILING_S = 30.0
"""What the documents of ``crawler`` grant its own migration of 10,000 jobs: 10 to 30 seconds."""

JOBS = """
    INSERT INTO jobs (id, source_id, source_name, url, schedule_enabled, status, interval_minutes, interval_type,
        next_run_at, metadata, created_at, updated_at)
    SELECT md5('job' || n)::uuid, 'source-' || n %% 100, 'Source ' || n %% 100, 'https://example.com/' || n, true,
        'scheduled', 5 + n %% 60, 'minutes', timestamptz '2026-11-22 12:00Z' + n * interval '1 second',
        jsonb_build_object('depth', n %% 5), timestamptz '2026-01-01 00:00Z' + n * interval '1 minute',
        timestamptz '2026-11-01 00:00Z' + n * interval '1 second'
    FROM generate_series(1, %(jobs)s) n
"""
EXECUTIONS = """
    INSERT INTO job_executions (id, job_id, execution_number, status, started_at, completed_at, duration_ms,
        items_crawled, items_indexed)
    SELECT md5('execution' || n)::uuid, md5('job' || n)::uuid, 1, 'completed',
        timestamptz '2026-11-22 11:00Z' + n * interval '1 second',
        timestamptz '2026-11-22 11:00Z' + n * interval '1 second' + interval '2500 milliseconds', 2500, n %% 40, n %% 30
    FROM generate_series(1, %(jobs)s) n
"""


def _main() -> int:
    sys.path.insert(0, str(ROOT.parent))
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--jobs", type=int, default=CEILING_JOBS)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--results", type=Path, default=ROOT / "results")
    chosen = parser.parse_args()
    before = round(os.getloadavg()[0], 1)
    rounds = measure(chosen.jobs, chosen.rounds)
    from benchmarks.harness import record  # noqa: PLC0415 - needs the path above
    from benchmarks.harness.commits import commit  # noqa: PLC0415 - as above

    found = {
        "commit": commit(),
        "machine": {
            "cores": os.cpu_count(),
            "load before": before,
            "system": f"{platform.system()} {platform.machine()}",
            "python": platform.python_version(),
            "servers": "PostgreSQL 18 with fsync, source and target in one server",
        },
        "jobs": chosen.jobs,
        "rounds": rounds,
        "median": {name: statistics.median(one[name] for one in rounds) for name in ("backfill_s", "parity_s")},
    }
    record.write(chosen.results, "tables", found, markdown)
    for missed in judged(found):
        print(missed)
    return 1 if judged(found) else 0


def measure(jobs: int, rounds: int) -> list[dict[str, float]]:
    """Fill the tables, then copy and compare them in each round; return the seconds of each."""
    import psycopg  # noqa: PLC0415 - only where it is measured

    from migrator.testing.servers.postgres import PostgresServer  # noqa: PLC0415 - needs the path above

    with tempfile.TemporaryDirectory() as folder, PostgresServer() as postgres:
        source = postgres.create_database("source")
        with psycopg.connect(source, autocommit=True) as connection:
            connection.execute(DDL.read_bytes())
            connection.execute("ALTER TABLE jobs DISABLE TRIGGER USER")
            connection.execute(JOBS, {"jobs": jobs})
            connection.execute(EXECUTIONS, {"jobs": jobs})
            connection.execute("ANALYZE")
        found = []
        for number in range(rounds):
            target = postgres.create_database(f"target{number}")
            config = Path(folder) / f"{number}.toml"
            config.touch(mode=0o600)  # it holds a password
            config.write_text(
                f"[source]\nprofile = 'crawler'\nuri = {json.dumps(source)}\ndefault_tenant = 'acme'\nzone = 'UTC'\n"
                f"[postgres]\ndsn = {json.dumps(target)}\n"
            )
            _run("schema", "upgrade", config=config)
            found.append({"backfill_s": _run("backfill", config=config), "parity_s": _run("parity", config=config)})
    return found


def _run(*command: str, config: Path) -> float:
    """Run a command of the tool; return its seconds. Raises ``CalledProcessError`` unless it ends with status 0."""
    began = time.monotonic()
    subprocess.run(
        [sys.executable, "-m", "migrator", *command, "--config", str(config)],
        cwd=ROOT.parent,
        check=True,
        stdout=subprocess.DEVNULL,
    )
    return round(time.monotonic() - began, 2)


def judged(found: dict[str, Any]) -> list[str]:
    """Return a message if the ceiling is missed: by the slowest copy of 10,000 jobs or more, each a whole process."""
    if found["jobs"] < CEILING_JOBS or not found["rounds"]:
        return [f"{CAPABILITY}: measured with {found['jobs']} jobs, not with {CEILING_JOBS}"]
    slowest = max(one["backfill_s"] for one in found["rounds"])
    if slowest <= CEILING_S:
        return []
    return [f"{CAPABILITY}: a copy took {slowest} s, more than {CEILING_S} s"]


def markdown(found: dict[str, Any]) -> str:
    """Return the table."""
    lines = [
        "# Jobs in tables of PostgreSQL",
        "",
        f"`crawler`, {found['jobs']:,} jobs with one execution each; seconds of whole processes. Machine: "
        + ", ".join(f"{name} {value}" for name, value in found["machine"].items())
        + ".",
        "",
        "| round | backfill | parity check |",
        "| --- | --- | --- |",
    ]
    lines += [
        f"| {number} | {one['backfill_s']} | {one['parity_s']} |" for number, one in enumerate(found["rounds"], 1)
    ]
    lines.append(f"| median | {found['median']['backfill_s']} | {found['median']['parity_s']} |")
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    sys.exit(_main())
