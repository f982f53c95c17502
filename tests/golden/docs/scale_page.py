"""How long a copy and a parity check take on a machine with more cores: the first table of ``docs/scale.md``.

Computed in proportion to the documents and to the cores, where a size was not measured or a machine was not there.
"""

import json
from pathlib import Path
from typing import Any, Final, NamedTuple

from migrator.report.wording import milliseconds
from tests.golden.docs.checks_page import END

RESULT: Final = Path(__file__).resolve().parents[3] / "benchmarks" / "results" / "runs-50000-growth.json"
BEGIN: Final = (
    "<!-- made from benchmarks/results/runs-50000-growth.json: UPDATE_GOLDEN=1 pytest tests/unit/test_docs.py -->"
)
CORES: Final = (2, 8, 32)
_COMMANDS: Final = {"backfill": "copy", "parity": "parity check"}


class Row(NamedTuple):
    """So many documents, and the measured size whose duration per document is theirs."""

    documents: int
    like: int
    cached: bool
    """Whether mongod's cache holds the collection."""


ROWS: Final = (
    Row(1_000_000, 500_000, cached=True),
    Row(10_000_000, 500_000, cached=True),
    Row(10_000_000, 10_000_000, cached=False),
    Row(100_000_000, 10_000_000, cached=False),
)


class Measured(NamedTuple):
    """How long a command took."""

    documents: int
    cores: int
    wall: float
    """Seconds."""

    def wall_of(self, documents: int, cores: int) -> float:
        """Return the seconds that so many documents take on so many cores, if as large a share of these is busy."""
        return self.wall * documents / self.documents * self.cores / cores


def measured(result: dict[str, Any]) -> dict[tuple[int, str], Measured]:
    """Return how long each size took with each command, in the one round of this measurement."""
    cores = int(result["versions"]["cores"])
    by_size = {}
    for part in result["parts"]:
        for line in part["lines"]:
            (run,) = line["runs"]
            by_size[part["documents"], line["name"]] = Measured(part["documents"], cores, run["wall"])
    return by_size


def table(result: dict[str, Any]) -> str:
    """Return the table; measured durations are set in bold."""
    known = measured(result)
    lines = ["| documents | in mongod's cache | | " + " | ".join(f"{cores} cores" for cores in CORES) + " |"]
    lines.append("|---" * (3 + len(CORES)) + "|")
    for row in ROWS:
        for name, title in _COMMANDS.items():
            cells = [_cell(known[row.like, name], row, cores) for cores in CORES]
            cached = "yes" if row.cached else "no"
            lines.append(f"| {row.documents:,} | {cached} | {title} | {' | '.join(cells)} |")
    return "\n".join(lines)


def page_part(path: Path = RESULT) -> str:
    """Return the part of the page between its marks."""
    return f"{BEGIN}\n\n{table(json.loads(path.read_text(encoding='utf-8')))}\n\n{END}"


def _cell(known: Measured, row: Row, cores: int) -> str:
    text = milliseconds(round(known.wall_of(row.documents, cores)) * 1_000)
    return f"**{text}**" if (row.documents, cores) == (known.documents, known.cores) else text
