"""README's support matrices: what ``migrator source list --json`` and ``target list --json`` say."""

import json
import os
import re
from pathlib import Path

from click.testing import CliRunner

from migrator.cli import cli
from migrator.sources import NAMES

README = Path(__file__).resolve().parents[3] / "README.md"
HEAD = ("| source | versions | documents | tail | cutover | rollback |", "|---|---|---|---|---|---|")
OWN = "| [your own](docs/new-source.md), described in a mapping file |"
MODELLED = re.compile(r":? ?modelled(?: on public documents)?:? ?")
TARGETS_HEAD = ("| target | tables of | versions | takes |", "|---|---|---|---|")
OWN_TABLES = (
    "| [tables of your own](docs/targets.md#tables-of-your-own) | you | any | any collection, by a mapping file |"
)
FIRST_LINES = 10


def sources() -> list[dict[str, object]]:
    called = CliRunner().invoke(cli, ["source", "list", "--json"], catch_exceptions=False)
    listed: list[dict[str, object]] = json.loads(called.output)
    return [one for one in listed if one["name"] in NAMES]


def row(one: dict[str, object]) -> str:
    versions = MODELLED.sub("", str(one["documents"])) or "-"
    seen = "modelled" if MODELLED.search(str(one["documents"])) else "real" if one["documents"] else "-"
    to_library = "native" if one["native_cutover"] else "no"
    answers = ["yes" if one["tail"] else "no"]
    answers += ["yes" if one[key] else to_library for key in ("cutover", "rollback")]
    return "| " + " | ".join([f"`{one['name']}`", versions, seen, *answers]) + " |"


def test_the_support_matrix_is_what_the_sources_say() -> None:
    rows = [row(one) for one in sources()]
    own = [line for line in README.read_text(encoding="utf-8").splitlines() if line.startswith(OWN)]
    assert len(own) == 1
    hold("source", (*HEAD, *rows, *own))


def test_the_matrix_of_targets_is_what_the_targets_say() -> None:
    called = CliRunner().invoke(cli, ["target", "list", "--json"], catch_exceptions=False)
    rows = []
    for target in json.loads(called.output):
        sources_of = ", ".join(one if " " in one else f"`{one}`" for one in target["sources"])
        rows.append(f"| `{target['name']}` | {target['title']} | {target['versions'] or 'any'} | {sources_of} |")
    hold("target", (*TARGETS_HEAD, *rows, OWN_TABLES))


def hold(first: str, lines: tuple[str, ...]) -> None:
    """Hold the table whose head begins with a word to its lines."""
    text, expected = README.read_text(encoding="utf-8"), "\n".join(lines) + "\n"
    [table] = re.findall(rf"^\| {first} \|.*\n(?:\|.*\n)+", text, flags=re.MULTILINE)
    if os.environ.get("UPDATE_GOLDEN"):
        README.write_text(text.replace(table, expected), encoding="utf-8")
        table = expected
    assert table == expected, "README.md is not current; UPDATE_GOLDEN=1 writes it anew"


def test_every_source_can_be_shown_without_settings_of_its_own() -> None:
    for name in NAMES:
        called = CliRunner().invoke(cli, ["source", "show", name], catch_exceptions=False)
        assert called.exit_code == 0, (name, called.output)
        assert "cutover" in called.output, name


def test_the_support_matrix_begins_at_the_top() -> None:
    lines = README.read_text(encoding="utf-8").splitlines()
    assert HEAD[0] in lines[:FIRST_LINES]
    assert "MongoDB 6.0" in README.read_text(encoding="utf-8")
