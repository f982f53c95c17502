"""How long a copy and a parity check take on a machine with more cores: the first table of ``docs/scale.md``.

Computed from CPU time per document, where a size was not measured or a machine was not there.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

RESULT: Final = Path(__file__).resolve().parents[1] / "results" / "runs-50000-growth.json"
BEGIN: Final = (
    "<!-- made from benchmarks/results/runs-50000-growth.json: UPDATE_GOLDEN=1 pytest tests/unit/test_docs.py -->"
)
END: Final = "<!-- up to here -->"
CORES: Final = (2, 8, 32)
_COMMANDS: Final = {"backfill": "copy", "parity": "parity check"}


class Row(NamedTuple):
    """So many documents, and the measured size whose cost per document is theirs."""

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


class Cost(NamedTuple):
    """What a measured command cost; seconds."""

    documents: int
    cores: int
    wall: float
    cpu: float
    """CPU time of the client and of both servers."""

    def wall_of(self, documents: int, cores: int) -> float:
        """Return the seconds that so many documents take on so many cores, of which as large a share is busy."""
        busy = self.cpu / (self.wall * self.cores)
        return self.cpu / self.documents * documents / (cores * busy)


def costs(result: dict[str, Any]) -> dict[tuple[int, str], Cost]:
    """Return the cost of each size with each command, in the one round of this measurement."""
    found = {}
    for part in result["parts"]:
        for line in part["lines"]:
            (run,) = line["runs"]
            cpu = run["client_cpu"] + sum(run["server_cpu"].values())
            found[part["documents"], line["name"]] = Cost(
                part["documents"], int(result["versions"]["cores"]), run["wall"], cpu
            )
    return found


def table(result: dict[str, Any]) -> str:
    """Return the table; measured durations are set in bold."""
    known = costs(result)
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


def between_marks(page: str) -> str:
    """Return the part of a page that is made, its marks included."""
    return page[page.index(BEGIN) : page.index(END) + len(END)]


def _cell(cost: Cost, row: Row, cores: int) -> str:
    text = _duration(cost.wall_of(row.documents, cores))
    return f"**{text}**" if (row.documents, cores) == (cost.documents, cost.cores) else text


def _duration(seconds: float) -> str:
    """Return a duration in two units at most."""
    steps: Sequence[tuple[str, int]] = (("h", 3600), ("min", 60), ("s", 1))
    whole = max(round(seconds), 1)
    if whole >= 3600:  # noqa: PLR2004 - an hour
        whole = round(whole / 60) * 60
    parts = []
    for unit, size in steps:
        number, whole = divmod(whole, size)
        if number:
            parts.append(f"{number} {unit}")
    return " ".join(parts)
