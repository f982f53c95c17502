"""For how long a switch holds up the writers, and how long the rest of it takes.

``python benchmarks/cutover.py --documents 100000,1000000 --changed 1000``

Servers of its own, MongoDB with passwords, since a fence needs them. Copied, followed, compared; then so many documents
are changed and followed, and the switch is made: behind the fence only they are compared.
The pause is from before the fence until PostgreSQL is open, by the target's clock. Events a second and the delay of the
tail: ``benchmarks/tail.py``.
"""

import argparse
import json
import os
import platform
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent


def _main() -> int:
    sys.path.insert(0, str(ROOT.parent))
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--documents", default="100000,1000000", help="sizes, with commas between them")
    parser.add_argument("--changed", type=int, default=1_000, help="documents changed since the comparison")
    parser.add_argument("--results", type=Path, default=ROOT / "results")
    chosen = parser.parse_args()
    lines = [measure(int(size), chosen.changed) for size in chosen.documents.split(",")]
    found = {"machine": machine(), "lines": lines}
    from benchmarks.harness import record  # noqa: PLC0415 - needs the path above

    record.write(chosen.results, "cutover", found, markdown)
    return 0


def measure(documents: int, changed: int) -> dict[str, Any]:
    """Fill, copy, follow, compare, change, switch; return one line of the table (seconds, documents)."""
    from pymongo import MongoClient  # noqa: PLC0415 - needs the path above

    from benchmarks.harness.source import DATASETS, fill  # noqa: PLC0415 - as above
    from migrator.config import MongoSettings, PostgresSettings, Settings  # noqa: PLC0415 - as above
    from migrator.cutover import cutover  # noqa: PLC0415 - as above
    from migrator.cutover.gates import GateOptions  # noqa: PLC0415 - as above
    from migrator.parity.recorded_check import check_and_record  # noqa: PLC0415 - as above
    from migrator.pipeline.backfill import backfill  # noqa: PLC0415 - as above
    from migrator.pipeline.plan import Scope  # noqa: PLC0415 - as above
    from migrator.pipeline.tail.loop import Tail  # noqa: PLC0415 - as above
    from migrator.schema.revisions import upgrade  # noqa: PLC0415 - as above
    from migrator.testing.servers.mongo import MongoServer  # noqa: PLC0415 - as above
    from migrator.testing.servers.postgres import PostgresServer  # noqa: PLC0415 - as above

    with (
        tempfile.TemporaryDirectory() as folder,
        MongoServer(auth=True, cache_gb=1.0) as mongo,
        PostgresServer() as postgres,
        MongoClient[Any](mongo.uri) as client,
    ):
        database = client["source"]
        fill(database, DATASETS["runs"], documents)
        dsn = postgres.create_database("target")
        upgrade(dsn)
        config = Path(folder) / "config.toml"
        config.write_text(
            f"[mongo]\nuri = {json.dumps(mongo.uri)}\ndatabase = 'source'\n[postgres]\ndsn = {json.dumps(dsn)}\n"
            f"[persistence]\nscheduler = 'mongo'\n[cutover]\nbackup_directory = {json.dumps(folder + '/backups')}\n"
        )
        settings = Settings(
            mongo=MongoSettings(uri=mongo.uri, database="source"),
            postgres=PostgresSettings(dsn=dsn),
        )
        os.chdir(folder)
        copied = _seconds(lambda: backfill(settings, Scope()))
        with Tail(settings) as tail:
            tail.run("caught-up")
        compared_in = _seconds(lambda: check_and_record(settings))
        some = [one["_id"] for one in database["runs"].find({}, {"_id": 1}).limit(changed)]
        database["runs"].update_many({"_id": {"$in": some}}, {"$inc": {"stats.completed": 1}})
        with Tail(settings) as tail:  # it runs beside the source until the switch
            tail.run("caught-up")
        began = time.monotonic()
        done = cutover.run(settings, GateOptions(config=config, quarantined=0))
        whole = time.monotonic() - began
        os.chdir(ROOT)
    return {
        "documents": documents,
        "changed": changed,
        "copy_s": round(copied, 1),
        "comparison_s": round(compared_in, 1),
        "pause_s": round(done.pause_s, 2),
        "compared_behind_the_fence": done.compared,
        "switch_s": round(whole, 1),
    }


def machine() -> dict[str, Any]:
    """Return the conditions on which the figures depend."""
    return {
        "cores": os.cpu_count(),
        "load before": round(os.getloadavg()[0], 1),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "servers": "mongod 6.0.27 with authentication and journal, PostgreSQL 18",
    }


def markdown(found: dict[str, Any]) -> str:
    """Return the table."""
    lines = [
        "# The switch",
        "",
        "Seconds. Machine: " + ", ".join(f"{name} {value}" for name, value in found["machine"].items()) + ".",
        "",
        "| documents | changed since the comparison | copy | comparison | **write pause** | whole switch |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    lines += [
        f"| {one['documents']:,} | {one['changed']:,} | {one['copy_s']} | {one['comparison_s']} | {one['pause_s']} |"
        f" {one['switch_s']} |"
        for one in found["lines"]
    ]
    return "\n".join([*lines, ""])


def _seconds(work: Any) -> float:  # noqa: ANN401 - anything that can be called
    began = time.monotonic()
    work()
    return time.monotonic() - began


if __name__ == "__main__":
    sys.exit(_main())
