"""What two parts of the codec are worth: compiled reading where there is no native codec, and the native JSON writer.

``python benchmarks/codec.py --documents 20000 --rounds 7``

No server is started. Documents of the demo go through each way once a round, in turn, so that a slow minute of the
machine hits all of them; the processor time of this process counts.

``compiled``, ``loop``: the Python codec, with the functions that ``migrator/sources/mapping/compiled.py`` compiles, and
with loops in their place. ``native``: the native codec. ``json-text``, ``json-python``: the documents and arrays inside
the same documents, to the text of jsonb and back to BSON, by ``json_text.pyx`` and as Python does it.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import msgspec

ROOT: Final = Path(__file__).resolve().parent
COLLECTIONS: Final = ("runs", "impact_snapshots")
JSON_KINDS: Final = (0x03, 0x04)
"""The BSON types of documents and arrays."""


def _main() -> int:
    sys.path.insert(0, str(ROOT.parent))
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--documents", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--results", type=Path, default=ROOT / "results")
    chosen = parser.parse_args()
    from benchmarks.harness import record  # noqa: PLC0415 - needs the path above
    from benchmarks.harness.commits import commit  # noqa: PLC0415 - as above

    before = record.load()
    ways = {name: ways_of(name, chosen.documents // (1 if name == "runs" else 50)) for name in COLLECTIONS}
    rounds: dict[str, dict[str, list[float]]] = {name: {way: [] for way in made[1]} for name, made in ways.items()}
    for number in range(chosen.rounds + 1):
        for name, (count, functions) in ways.items():
            for way, function in functions.items():
                began = time.process_time()
                function()
                if number:  # the first round warms up
                    rounds[name][way].append(round((time.process_time() - began) * 1e6 / count, 2))
    found = {
        "commit": commit(),
        "machine": record.machine(before, "pymongo", "msgspec", "scheduler-migrator-speedups"),
        "documents": {name: count for name, (count, _) in ways.items()},
        "microseconds": rounds,
    }
    record.write(chosen.results, "codec", found, markdown)
    return 0


def ways_of(name: str, documents: int) -> tuple[int, dict[str, Callable[[], object]]]:
    """Return how many documents there are, and each way with the function that takes all of them through it."""
    from benchmarks.harness.source import demo_documents  # noqa: PLC0415 - needs the path above
    from migrator.pipeline.references import UncheckedResolver  # noqa: PLC0415 - as above
    from migrator.pipeline.transform import transform_documents  # noqa: PLC0415 - as above
    from migrator.sources.mapping import compiled  # noqa: PLC0415 - as above
    from migrator.sources.mapping.codec import collection_of  # noqa: PLC0415 - as above
    from migrator.sources.profile import Context  # noqa: PLC0415 - as above
    from migrator.sources.store_documents import MAPPING  # noqa: PLC0415 - as above

    raws = list(demo_documents(name, documents))
    batch, context = b"".join(raws), Context(as_of=datetime(2026, 11, 20, 12, tzinfo=UTC))
    mapped = next(one for one in MAPPING.collections if one.name == name)
    collection = collection_of(MAPPING, mapped)
    with patch.multiple(compiled, filling=_filling_loop, writing=_writing_loop):
        looping = collection_of(MAPPING, mapped)

    def rows(kind: Any) -> list[Any]:  # noqa: ANN401 - a collection
        return list(transform_documents(kind, context, UncheckedResolver(), batch))

    made, again = ([(one.serialized, one.remainder) for one in rows(kind)] for kind in (collection, looping))
    if made != again:
        raise SystemExit(f"{name}: the loops read or write something else than the compiled functions")
    if collection.native is None or (reader := collection.native(context)) is None:
        raise SystemExit("the native codec is not built here, or switched off")
    values = list(_json_values(raws))
    ways: dict[str, Callable[[], object]] = {
        "compiled": lambda: rows(collection),
        "loop": lambda: rows(looping),
        "native": lambda: reader.codec.read(batch),
        "json-text": lambda: _by_json_text(values),
        "json-python": lambda: _by_python(values),
    }
    return len(raws), ways


def _filling_loop(places: Sequence[Any]) -> Callable[[Any, Any], None]:
    """Return the function of ``compiled.filling``, written as a loop over the fields."""
    listed = [(index, *place) for index, place in enumerate(places) if place is not None]

    def fill(found: Any, reading: Any) -> None:  # noqa: ANN401 - a struct, and what was read so far
        values, columns = msgspec.structs.astuple(found), reading.columns
        for index, table, column, convert in listed:
            value = values[index]
            if value is not None and convert is not None:
                value = convert(value, reading)
            if value is not None:
                columns[table][column] = value

    return fill


def _writing_loop(entries: Sequence[Any]) -> Callable[[Sequence[Any], dict[str, Any]], None]:
    """Return the function of ``compiled.writing``, written as a loop over the fields."""
    from migrator.sources.mapping.compiled import NULL  # noqa: PLC0415 - needs the path above

    listed = [(path[:-1], path[-1], write, is_null) for path, write, is_null in entries]

    def fill(values: Sequence[Any], document: dict[str, Any]) -> None:
        for (parents, name, write, is_null), held in zip(listed, values, strict=True):
            value = held if held is None or write is None else write(held)
            if value is not None or is_null:
                place = document
                for parent in parents:
                    place = place.setdefault(parent, {})
                place[name] = None if value is NULL else value

    return fill


def _json_values(raws: Sequence[bytes]) -> Iterator[tuple[int, bytes]]:
    """Yield BSON type and bytes of the documents and arrays at the first level."""
    from migrator.values import document as documents  # noqa: PLC0415 - needs the path above

    for raw in raws:
        for value in documents.decode(raw).values():
            element = documents.encode({"": value})
            if element[4] in JSON_KINDS:
                yield element[4], element[6:-1]


def _by_json_text(values: Sequence[tuple[int, bytes]]) -> None:
    from migrator_speedups import json_text  # noqa: PLC0415 - built where a compiler is

    for kind, raw in values:
        text = json_text.json_of(kind, raw)
        if text is None or json_text.bson_of(text, kind, raw) is None:
            raise SystemExit("a value of the demo is not plain")


def _by_python(values: Sequence[tuple[int, bytes]]) -> None:
    from migrator.values import document as documents  # noqa: PLC0415 - needs the path above
    from migrator.values import jsonb  # noqa: PLC0415 - as above

    for kind, raw in values:
        element = (len(raw) + 7).to_bytes(4, "little") + bytes((kind, 0)) + raw + b"\0"
        documents.encode({"": jsonb.decode(jsonb.encode(documents.decode(element)[""]))})


def markdown(found: dict[str, Any]) -> str:
    """Return the table: medians, and what one way costs in terms of another."""
    lines = [
        "# Parts of the codec",
        "",
        f"Commit {found['commit']}. Machine: "
        + ", ".join(f"{name} {it}" for name, it in found["machine"].items())
        + ".",
        "Microseconds of processor time per document, median of the rounds (least to most).",
        "",
        "| documents | way | microseconds |",
        "| --- | --- | ---: |",
    ]
    ratios = []
    for name, ways in found["microseconds"].items():
        label = f"{found['documents'][name]:,} {name}"
        lines += [
            f"| {label} | {way} | {statistics.median(taken):.2f} ({min(taken)} to {max(taken)}) |"
            for way, taken in ways.items()
        ]
        for slow, quick in (("loop", "compiled"), ("compiled", "native"), ("json-python", "json-text")):
            pairs = [one / other for one, other in zip(ways[slow], ways[quick], strict=True)]
            ratios.append(f"- {name}: {slow} takes {statistics.median(pairs):.2f} times as long as {quick}")
    return "\n".join([*lines, "", *ratios, ""])


if __name__ == "__main__":
    sys.exit(_main())
