"""The documents that real libraries wrote (``tests/fixtures_data``)."""

from pathlib import Path
from typing import Any

from bson import json_util

DATA = Path(__file__).parent / "fixtures_data"


def real_documents(name: str) -> list[dict[str, Any]]:
    """Return the documents of a file, ``folder/collection``, as the driver decodes them."""
    lines = (DATA / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    return [json_util.loads(line, json_options=json_util.CANONICAL_JSON_OPTIONS) for line in lines]
