"""The floor: what no tool can be faster than that reads the same ranges and fills the same tables.

Two processes; each takes a range of ``_id``, reads its raw documents and forgets them, and writes the finished bytes
of its rows, which were rendered before. Usage: floor.py <mongo uri> <database> <collection> <dsn> <folder>.
The folder holds ``ranges.json`` and one file of rows for each range and table.
"""

import sys
from concurrent.futures import ProcessPoolExecutor
from itertools import repeat
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import psycopg
from bson import json_util
from pymongo import MongoClient

CONNECTIONS = 2
PIECE = 1024 * 1024


def load(uri: str, database: str, name: str, dsn: str, folder: str, numbers: list[int]) -> None:
    """Read and write these ranges, one after the other."""
    plan = json_util.loads((Path(folder) / "ranges.json").read_text())
    with MongoClient[dict[str, Any]](uri) as client, psycopg.connect(dsn) as connection:
        collection = client[database][name]
        for number in numbers:
            low, high = plan["ranges"][number]
            cursor = collection.find_raw_batches({}, batch_size=2000).hint("_id_").min([("_id", low)])
            if high is not None:
                cursor = cursor.max([("_id", high)])
            for _ in cursor:
                pass
            for table, columns in plan["tables"].items():
                statement = f"COPY {table} ({', '.join(columns)}) FROM STDIN (FORMAT BINARY)"
                with (
                    (Path(folder) / f"{table}-{number}.rows").open("rb") as file,
                    connection.cursor() as rows,
                    rows.copy(statement.encode()) as copy,
                ):
                    while piece := file.read(PIECE):
                        copy.write(piece)
            connection.commit()


def main(uri: str, database: str, name: str, dsn: str, folder: str) -> None:
    """Share the ranges between the processes."""
    ranges = len(json_util.loads((Path(folder) / "ranges.json").read_text())["ranges"])
    shares = [list(range(place, ranges, CONNECTIONS)) for place in range(CONNECTIONS)]
    with ProcessPoolExecutor(CONNECTIONS, mp_context=get_context("fork")) as pool:
        constants = (repeat(value) for value in (uri, database, name, dsn, folder))
        list(pool.map(load, *constants, shares))


if __name__ == "__main__":
    main(*sys.argv[1:])
