"""``benchmarks/codec.py`` compares ways that read and write the same, and says how they compare."""

import pytest

from benchmarks.codec import COLLECTIONS, markdown, ways_of
from tests import native_codec


@pytest.mark.parametrize("name", COLLECTIONS)
def test_the_loops_read_and_write_what_the_compiled_functions_do(name: str) -> None:
    """Each way takes all documents; ``ways_of`` ends with a message where two of them differ."""
    native_codec.needed()
    count, ways = ways_of(name, 3)
    assert count == 3
    assert {*ways} == {"compiled", "loop", "native", "json-text", "json-python"}
    for way in ways.values():
        way()


def test_ratios_are_those_of_the_same_round() -> None:
    ways = {"compiled": [2.0, 4.0], "loop": [3.0, 6.0], "native": [1.0, 1.0], "json-text": [1.0, 2.0]}
    found = {
        "commit": "c",
        "machine": {"cores": 2},
        "documents": {"runs": 5},
        "microseconds": {"runs": {**ways, "json-python": [4.0, 8.0]}},
    }
    text = markdown(found)
    assert "- runs: loop takes 1.50 times as long as compiled" in text
    assert "- runs: json-python takes 4.00 times as long as json-text" in text
