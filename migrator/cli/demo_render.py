"""What the demo prints and leaves behind, made from what was planted and what was found."""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from migrator.cli.demo_seed import Seeded
from migrator.embedded.demo import Planted
from migrator.values import identity

_OUTCOMES = {"loaded": "loaded", "quarantined": "set aside", "skipped": "left out"}


def seeded_lines(seeded: Seeded) -> Iterator[str]:
    """Yield what was written: collections, then the planted trouble by kind."""
    planted = Counter(item.collection for item in seeded.planted)
    yield f"{'collection':<20} {'documents':>11} {'planted':>8}"
    for name, count in seeded.documents.items():
        yield f"{name:<20} {count:>11,} {planted[name]:>8,}"
    total, trouble = sum(seeded.documents.values()), len(seeded.planted)
    yield f"{total:,} documents written into {seeded.database}, seed {seeded.seed}, {trouble} of them with trouble"
    yield from trouble_lines(seeded.planted)


def trouble_lines(items: Iterable[Planted]) -> Iterator[str]:
    """Yield one line for each kind of planted trouble."""
    kinds = Counter((item.kind, item.outcome, item.reason) for item in items)
    for (kind, outcome, reason), count in sorted(kinds.items()):
        why = f": {reason}" if reason else ""
        yield f"  {count:>3} x {kind:<28} will be {_OUTCOMES[outcome]}{why}"


def seeded_json(seeded: Seeded) -> dict[str, Any]:
    """Return the same for machines."""
    return {
        "database": seeded.database,
        "documents": seeded.documents,
        "planted": [_item(item) for item in seeded.planted],
        "seed": seeded.seed,
        "size": seeded.size,
    }


def _item(item: Planted) -> dict[str, Any]:
    return {
        "collection": item.collection,
        "kind": item.kind,
        "outcome": item.outcome,
        "reason": item.reason,
        "residue": item.residue,
        "source_id": identity.source_id(item.id),
    }


def manifest(items: Iterable[Planted]) -> str:
    """Return every planted document as Markdown, to be followed in the report beside it."""
    lines = [
        "# What was planted",
        "",
        "Residue: the columns alone do not give the document back, so its row keeps the rest.",
        "",
        "| collection | id | what is wrong | what must become of it | residue |",
        "|---|---|---|---|---|",
    ]
    for item in items:
        why = f" ({item.reason})" if item.reason else ""
        name = _cut(identity.source_id(item.id))
        residue = "yes" if item.residue else ""
        lines.append(f"| {item.collection} | `{name}` | {item.kind} | {_OUTCOMES[item.outcome]}{why} | {residue} |")
    return "\n".join(lines) + "\n"


def _cut(text: str, length: int = 80) -> str:
    text = text.replace("|", "\\|")
    return text if len(text) <= length else text[:length] + "…"
