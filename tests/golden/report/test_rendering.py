"""The renderings of two fabricated results, byte for byte; ``UPDATE_GOLDEN=1`` writes them anew, to be reviewed."""

import os
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from migrator.report import renderer
from migrator.result import Result, decode, encode
from tests.fabricated_results import clean, troubled

HERE = Path(__file__).parent
RESULTS = {"clean": clean, "troubled": troubled}


@pytest.mark.parametrize("name", RESULTS)
@pytest.mark.parametrize("file", renderer.RENDERINGS)
def test_a_result_renders_to_the_golden_bytes(name: str, file: str) -> None:
    golden = HERE / f"{name}{Path(file).suffix}"
    rendered = renderer.RENDERINGS[file](RESULTS[name]())
    if os.environ.get("UPDATE_GOLDEN"):
        golden.write_bytes(rendered)
    assert rendered == golden.read_bytes(), f"{golden.name} is not current; UPDATE_GOLDEN=1 writes it anew"


@pytest.mark.proves("0-X3", "0-T2.11.6")
@pytest.mark.parametrize("make", RESULTS.values(), ids=RESULTS)
@pytest.mark.parametrize("rendering", renderer.RENDERINGS.values(), ids=renderer.RENDERINGS)
def test_the_same_result_always_renders_to_the_same_bytes(
    make: Callable[[], Result], rendering: Callable[[Result], bytes]
) -> None:
    read_again = decode(encode(make()))
    assert rendering(read_again) == rendering(make())


def test_the_schema_in_the_documentation_is_that_of_the_model() -> None:
    schema = HERE.parents[2] / "docs" / "result.schema.json"
    text = msgspec.json.format(msgspec.json.encode(msgspec.json.schema(Result), order="sorted"), indent=2) + b"\n"
    if os.environ.get("UPDATE_GOLDEN"):
        schema.write_bytes(text)
    assert schema.read_bytes() == text, "docs/result.schema.json is not current; UPDATE_GOLDEN=1 writes it anew"
