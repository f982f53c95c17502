"""The page in a real browser: quiet, self-contained, readable by eye, by ear, by keyboard and on paper.

Not run where Debian's chromium is not installed.
"""

import base64
import io
import re
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pypdf
import pytest

from migrator.report import renderer
from migrator.report.areas import SECTIONS
from migrator.report.integrity import read_result
from migrator.report.wording import applicable
from migrator.result import Result
from tests.browser.driver import Browser, found
from tests.fabricated_behaviour import behaviour
from tests.fabricated_cutovers import good
from tests.fabricated_results import clean, troubled

MAKERS = {"clean": clean, "troubled": troubled, "behaviour": behaviour}
EVERY_MAKER = MAKERS | {"cutover": good}
SAMPLE = Path(__file__).resolve().parents[2] / "reports" / "sample" / "result.json"
PHONE, DESK = 390, 1280
TAB = ("Tab", 9)
A4 = (595, 842)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    program = found()
    if program is None:
        pytest.skip("not run: Debian's chromium is not installed")
    with Browser(program, tmp_path_factory.mktemp("profile")) as started:
        yield started


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Addresses of the rendered results."""
    folder = tmp_path_factory.mktemp("pages")
    for name, make in EVERY_MAKER.items():
        (folder / f"{name}.html").write_bytes(renderer.html(make()))
    (folder / "sample.html").write_bytes(renderer.html(read_result(SAMPLE)))
    return {name: (folder / f"{name}.html").as_uri() for name in (*EVERY_MAKER, "sample")}


def of(make: Callable[[], Result]) -> Result:
    return make()


@pytest.mark.parametrize("name", EVERY_MAKER)
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [PHONE, DESK])
def test_nothing_is_said_asked_for_or_cut_off(
    browser: Browser, pages: dict[str, str], name: str, width: int, *, dark: bool
) -> None:
    browser.open(pages[name], width=width, dark=dark)
    assert browser.said == []
    assert browser.requested == [pages[name]]
    assert browser.ask("document.documentElement.scrollWidth") <= width
    paper = browser.ask("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, re.findall(r"\d+", paper))) < 384) == dark


def test_no_column_of_the_quarantine_table_is_scrolled_to(browser: Browser, pages: dict[str, str]) -> None:
    browser.open(pages["sample"], width=1_200)
    table = "document.getElementById('quarantine').parentElement.querySelector('#quarantine ~ .scroll')"
    assert browser.ask(f"{table}.querySelectorAll('tbody tr').length") > 5
    assert browser.ask(f"{table}.scrollWidth - {table}.clientWidth") == 0


def test_the_test_would_hear_a_page_that_is_not_quiet(browser: Browser, tmp_path: Path) -> None:
    page = tmp_path / "loud.html"
    page.write_text('<p>x<script>console.error("no"); missing()</script><img src="http://127.0.0.1:9/picture">')
    browser.open(page.as_uri())
    assert any("no" in one for one in browser.said)
    assert any("missing is not defined" in one for one in browser.said)
    assert "http://127.0.0.1:9/picture" in browser.requested


def test_the_policy_of_the_page_stops_what_somebody_puts_in(browser: Browser, tmp_path: Path) -> None:
    page = tmp_path / "altered.html"
    text = renderer.html(clean()).decode()
    page.write_text(text.replace("</main>", "<script>document.title = 'taken'</script></main>"))
    browser.open(page.as_uri())
    assert browser.ask("document.title") != "taken"
    assert any("Content Security Policy" in one for one in browser.said)


def shown(browser: Browser, name: str) -> int:
    count: int = browser.ask(
        f"[...document.querySelectorAll('[data-in={name}]')].filter(e => e.checkVisibility()).length"
    )
    return count


def output(browser: Browser, name: str) -> str:
    return str(browser.ask(f"document.querySelector('[data-filter={name}] output').textContent"))


def test_checks_are_filtered_by_typing_and_by_outcome(browser: Browser, pages: dict[str, str]) -> None:
    browser.open(pages["behaviour"])
    total = len(applicable(behaviour()))
    assert shown(browser, "check") == total
    assert output(browser, "check") == f"{total} of {total} shown"
    browser.ask("document.querySelector('[data-filter=check] input').focus()")
    browser.write("lock holds")
    assert shown(browser, "check") == 1
    assert output(browser, "check") == f"1 of {total} shown"
    assert browser.ask("document.getElementById('area-schema').checkVisibility()") is False
    browser.ask("document.querySelector('[data-filter=check] button').click()")
    assert shown(browser, "check") == total
    browser.ask(
        "{ const s = document.querySelector('[data-filter=check] select'); s.value = 'failed';"
        " s.dispatchEvent(new Event('input', {bubbles: true})); }"
    )
    assert shown(browser, "check") == 2
    assert browser.said == []


def test_findings_are_filtered(browser: Browser, pages: dict[str, str]) -> None:
    browser.open(pages["troubled"] + "?finding=run_00000000000000000000000000000007")
    assert shown(browser, "finding") == 1
    browser.open(pages["troubled"] + "?finding=nowhere")
    assert shown(browser, "finding") == 0
    assert output(browser, "finding") == "0 of 25 shown"


def test_filters_can_be_given_in_the_address(browser: Browser, pages: dict[str, str]) -> None:
    browser.open(pages["behaviour"] + "?status=failed&check=planted")
    assert shown(browser, "check") == 1
    assert browser.ask("document.querySelector('[data-filter=check] input').value") == "planted"
    browser.open(pages["behaviour"] + "?status=nonsense")
    assert shown(browser, "check") == len(applicable(behaviour()))


def test_a_link_to_a_check_leads_there_even_if_it_is_filtered_away(browser: Browser, pages: dict[str, str]) -> None:
    for query in ("", "?status=failed"):
        browser.open(f"{pages['behaviour']}{query}#check-crud.facade")
        top = browser.ask("document.getElementById('check-crud.facade').getBoundingClientRect().top")
        assert 0 <= top < 900
        assert browser.ask("document.querySelector(':target').id") == "check-crud.facade"


@pytest.mark.parametrize("name", MAKERS)
def test_everything_is_there_without_script(browser: Browser, pages: dict[str, str], name: str) -> None:
    browser.open(pages[name], script=False)
    tree = browser.tree()
    names = {one["name"] for one in tree}
    assert {section.title for section in SECTIONS} <= names
    for check in applicable(of(MAKERS[name])):
        assert check.title in names, check.id
    assert not [one for one in tree if one["role"] in ("searchbox", "combobox")], "a filter that would do nothing"


@pytest.mark.parametrize("name", MAKERS)
def test_a_screen_reader_is_told_what_things_are(browser: Browser, pages: dict[str, str], name: str) -> None:
    browser.open(pages[name])
    tree = browser.tree()
    roles = [one["role"] for one in tree]
    assert roles.count("main") == roles.count("navigation") == roles.count("contentinfo") == 1
    levels = [one["level"] for one in tree if one["role"] == "heading"]
    assert levels.count(1) == 1
    assert levels[0] == 1
    assert all(after <= before + 1 for before, after in pairwise(levels)), levels
    named = ("link", "button", "searchbox", "combobox", "image", "region", "search", "columnheader", "rowheader")
    nameless = [one for one in tree if one["role"] in named and not one["name"].strip()]
    assert nameless == []
    titles = [one["name"] for one in tree if one["role"] == "heading" and one["level"] == 2]
    assert [section.title for section in SECTIONS] == [
        title for title in titles if title in {section.title for section in SECTIONS}
    ]


def test_the_keyboard_reaches_the_report_and_its_filter(browser: Browser, pages: dict[str, str]) -> None:
    browser.open(pages["behaviour"])
    browser.press(*TAB)
    focused = "document.activeElement"
    assert browser.ask(f"{focused}.className") == "skip"
    assert browser.ask(f"{focused}.getBoundingClientRect().left") >= 0
    browser.call(
        "Input.dispatchKeyEvent", type="keyDown", key="Enter", code="Enter", windowsVirtualKeyCode=13, text="\r"
    )
    browser.call("Input.dispatchKeyEvent", type="keyUp", key="Enter", code="Enter", windowsVirtualKeyCode=13)
    assert browser.ask("location.hash") == "#content"
    assert browser.ask(f"{focused}.id") == "content"
    reached = set()
    for _ in range(120):
        browser.press(*TAB)
        reached.add(browser.ask(f"{focused}.tagName + ({focused}.getAttribute('aria-label') || '')"))
        outline = browser.ask(f"getComputedStyle({focused}).outlineStyle")
        assert outline != "none" or browser.ask(f"{focused} === document.body")
    assert {"A", "INPUT", "SELECT", "BUTTON", "DIVCoverage map"} <= reached


@pytest.mark.parametrize("name", MAKERS)
def test_the_printed_page_has_every_section_and_check(browser: Browser, pages: dict[str, str], name: str) -> None:
    browser.open(pages[name] + "?status=failed&finding=nowhere", width=PHONE, dark=True)
    answer = browser.call("Page.printToPDF", preferCSSPageSize=True, printBackground=True)
    document = pypdf.PdfReader(io.BytesIO(base64.b64decode(answer["data"])))
    assert {tuple(round(float(one)) for one in page.mediabox[2:]) for page in document.pages} == {A4}
    text = " ".join(" ".join(page.extract_text() for page in document.pages).split())
    titles = browser.ask(
        "[...document.querySelectorAll('h1, h2, h3')].map(e => e.textContent.replace(/\\s+/g, ' ').trim())"
    )
    assert len(titles) > 15
    flat = text.replace(" ", "")
    assert [title for title in titles if title.replace(" ", "") not in flat] == []
    result = of(MAKERS[name])
    assert [check.id for check in result.evidence.checks if check.id not in flat] == []
    assert result.digest in flat
    assert "Showall" not in flat, "the filter is not for paper"
    assert len(document.pages) < 20


@pytest.mark.parametrize("name", MAKERS)
def test_the_cover_is_one_page_with_the_verdict_and_the_signature(
    browser: Browser, pages: dict[str, str], name: str
) -> None:
    browser.open(pages[name], width=DESK)
    answer = browser.call("Page.printToPDF", preferCSSPageSize=True, printBackground=True)
    first, second, *_ = pypdf.PdfReader(io.BytesIO(base64.b64decode(answer["data"]))).pages
    cover = "".join(first.extract_text().split())
    for words in ("Readyforthecutover", "Whatwasproved", "Whatwasnotaskedfor", "Whatcannotbeproved", "Signature"):
        assert words in cover
    assert of(MAKERS[name]).digest in cover
    assert second.extract_text().strip().startswith("Differences by cause")
