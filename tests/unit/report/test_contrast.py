"""The colours of the page, light, dark and on paper: text can be read by people who see little contrast (WCAG AA)."""

import re
from pathlib import Path

import pytest

from migrator import report

CSS = (Path(report.__file__).parent / "templates" / "style.css").read_text()
NAMES = ("light", "dark", "paper")
PALETTES = dict(zip(NAMES, re.findall(r":root \{(.*?)\}", CSS, re.DOTALL), strict=True))
TEXT = ("ink", "soft", "link", "ok", "bad", "ask", "none", "quarantined")
LEAST = 4.5
LEAST_OF_DRAWINGS = 3.0


def colours(name: str) -> dict[str, str]:
    found = dict(re.findall(r"--([a-z-]+): (#[0-9a-f]+)", PALETTES[name]))
    return {
        one: value if len(value) == 7 else "#" + "".join(2 * digit for digit in value[1:])
        for one, value in found.items()
    }


def light(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (one / 12.92 if one <= 0.04045 else ((one + 0.055) / 1.055) ** 2.4 for one in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    low, high = sorted((light(one), light(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("name", NAMES)
def test_text_can_be_read_on_its_ground(name: str) -> None:
    found = colours(name)
    weak = {
        (text, ground): round(contrast(found[text], found[ground]), 2)
        for text in TEXT
        for ground in ("paper", "panel")
        if contrast(found[text], found[ground]) < LEAST
    }
    assert weak == {}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("status", ["ok", "bad", "ask", "none"])
def test_signs_can_be_seen_on_their_squares(name: str, status: str) -> None:
    found = colours(name)
    assert contrast(found[status], found[f"{status}-soft"]) >= LEAST_OF_DRAWINGS


def test_black_on_white_is_the_most_there_is() -> None:
    assert round(contrast("#000000", "#ffffff"), 1) == 21.0
