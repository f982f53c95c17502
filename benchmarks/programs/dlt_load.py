"""What a user of dlt runs: a resource over the collection, default settings, into PostgreSQL.

The loop is that of dlt's verified MongoDB source (slices of 10 000 documents, values converted in place). Runs in
dlt's own environment. Usage: dlt_load.py <mongo uri> <database> <collection> <dsn> <folder for its state> <how>, where
``tuned`` makes no child tables and loads CSV.
"""

# The type checker does not see that environment.
# mypy: disable-error-code="import-not-found,untyped-decorator"

import sys
from collections.abc import Iterator
from itertools import islice
from typing import Any

import dlt
from bson import Decimal128, ObjectId
from dlt.common.utils import map_nested_in_place
from pymongo import MongoClient

SLICE = 10_000


def convert(value: Any) -> Any:  # noqa: ANN401 - whatever BSON holds
    """Return a value that dlt can write."""
    return str(value) if isinstance(value, (ObjectId, Decimal128)) else value


def main(uri: str, database: str, name: str, dsn: str, folder: str, how: str) -> None:
    """Load one collection."""
    is_tuned = how == "tuned"
    nesting = {"max_table_nesting": 0} if is_tuned else {}

    @dlt.resource(name=name, primary_key="_id", write_disposition="append", **nesting)
    def documents() -> Iterator[list[Any]]:
        with MongoClient[dict[str, Any]](uri) as client:
            cursor = client[database][name].find()
            while part := list(islice(cursor, SLICE)):
                yield map_nested_in_place(convert, part)

    pipeline = dlt.pipeline(
        pipeline_name="benchmark",
        destination=dlt.destinations.postgres(dsn),
        dataset_name="dlt_peer",
        pipelines_dir=folder,
    )
    pipeline.run(documents(), **({"loader_file_format": "csv"} if is_tuned else {}))


if __name__ == "__main__":
    main(*sys.argv[1:])
