"""The hand-written pages by themselves: their terms are explained, and what they name exists."""

import ast
import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

import migrator
import migrator.testing
from migrator.cli import cli

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
TOP = ("README.md", "SECURITY.md", "CONTRIBUTING.md")
MADE = {"api.md", "capabilities.md", "cli.md", "fields.md", "states.md", "tables.md"}
"""Pages that are made from the code."""
PAGES = [*(ROOT / name for name in TOP), *sorted(path for path in DOCS.glob("*.md") if path.name not in MADE)]
GLOSSARY = (DOCS / "glossary.md").read_text(encoding="utf-8")
TERMS = {
    "quarantine": r"quarantin",
    "remainder": r"remainder",
    "fence": r"(?<!\w)fence(?!\w)",
    "fencing-token": r"fencing token",
    "epoch": r"epoch",
    "outbox": r"outbox",
    "reverse-sync": r"reverse sync",
    "gate": r"(?<!\w)gates?(?!\w)",
    "dangling-reference": r"dangling reference",
    "parity-check": r"parity check",
    "scratch": r"scratch (?:tenant|database|copy)",
    "slot": r"(?<!\w)slots?(?!\w)",
    "chunk": r"(?<!\w)chunks?(?!\w)",
    "contested-key": r"contested key",
    "point-of-no-return": r"point of no return",
    "policy": r"written policy|\bpolicies\b",
}
"""Terms of the tool that no manual of MongoDB or PostgreSQL explains, by their anchor in the glossary."""


def prose(text: str) -> str:
    """Return a page without its headings, its code, and the parts that are made from the code."""
    text = re.sub(r"<!-- made from .*?<!-- up to here -->", "", text, flags=re.DOTALL)
    text = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"^(?:#| {4,}\S).*$", "", text, flags=re.MULTILINE)
    return re.sub(r"`[^`]*`", "", text)


def anchors(text: str) -> set[str]:
    """Return the anchors of a page: those that it states, and those of its headings, as GitHub makes them."""
    stated = set(re.findall(r'<a id="([^"]+)">', text))
    headings = re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL), re.MULTILINE)
    return stated | {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_terms_of_a_page_are_linked_to_the_glossary(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    if page.name == "glossary.md":
        assert set(TERMS) <= anchors(text)
        return
    found = prose(text)
    used = {term for term, pattern in TERMS.items() if re.search(pattern, found, re.IGNORECASE)} - {page.stem}
    missing = {term for term in used if f"glossary.md#{term})" not in text}
    assert missing == set(), "link the first use of each to its entry: [...](glossary.md#term)"


@pytest.mark.parametrize(
    "page", [*(ROOT / name for name in TOP), *sorted(DOCS.glob("*.md"))], ids=lambda page: page.name
)
def test_every_anchor_of_a_link_exists(page: Path) -> None:
    lost = []
    for target, anchor in re.findall(r"\]\(([^):#\s]*\.md|)#([^)\s]+)\)", page.read_text(encoding="utf-8")):
        other = page if target == "" else page.parent / target
        if anchor not in anchors(other.read_text(encoding="utf-8")):
            lost.append(f"{target}#{anchor}")
    assert lost == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_file_that_a_page_names_exists(page: Path) -> None:
    named = re.findall(r"`((?:migrator|tests|benchmarks|alembic|docs)/[\w./-]*)`", page.read_text(encoding="utf-8"))
    assert [one for one in named if not (ROOT / one).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_name_of_the_code_that_a_page_names_exists(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    named = set(re.findall(r"`(migrator(?:\.\w+)+)", text)) - {"migrator.example"}
    for block in re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        for node in ast.walk(ast.parse(block)):
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith("migrator"):
                named |= {f"{node.module}.{one.name}" for one in node.names}
    for name in sorted(named):
        parts = name.split(".")
        for length in range(len(parts), 0, -1):
            try:
                found = importlib.import_module(".".join(parts[:length]))
            except ModuleNotFoundError:
                continue
            for part in parts[length:]:
                assert hasattr(found, part), f"{page.name}: {name}"
                found = getattr(found, part)
            break


@pytest.mark.parametrize("page", [*PAGES, DOCS / "api.md"], ids=lambda page: page.name)
def test_the_code_of_a_page_imports_only_public_names(page: Path) -> None:
    imported = []
    for block in re.findall(r"^```python\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL):
        for node in ast.walk(ast.parse(block)):
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith("migrator"):
                imported += [(node.module, one.name) for one in node.names]
    public = {(module.__name__, name) for module in (migrator, migrator.testing) for name in module.__all__}
    assert set(imported) <= public


def commands() -> Iterator[tuple[Path, str]]:
    """Yield every command of the tool that a page shows as code, with the page; not the two lines of a signature."""
    for page in PAGES:
        text = re.sub(r"\\\n\s+", "", page.read_text(encoding="utf-8"))
        for span in re.findall(
            r"`(migrator (?!evidence|run sha)[a-z][^`]*)`|^(?:\$ | {4,})?(migrator [a-z].*)$", text, re.MULTILINE
        ):
            yield page, " ".join("".join(span).partition("#")[0].split())


@pytest.mark.parametrize(("page", "shown"), sorted(set(commands())), ids=lambda value: getattr(value, "name", value))
def test_every_command_that_a_page_shows_exists(page: Path, shown: str) -> None:
    words = re.split(r"[;&|]", shown)[0].split()[1:]
    command: click.Command = cli
    context = click.Context(cli)
    while isinstance(command, click.Group) and words:
        found = command.get_command(context, words.pop(0))
        assert found is not None, shown
        command = found
    known = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    named = {word.strip("[]()").partition("=")[0] for word in words if re.match(r"\[?--[a-z]", word)}
    assert named - known - {"--help"} == set(), f"{page.name}: {shown}"
