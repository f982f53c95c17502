"""The notes that profiles and the loader make about loaded documents: what each is, and the rule that settles it."""

from typing import Final

import msgspec


class Ruling(msgspec.Struct, frozen=True):
    """A kind of note in words."""

    title: str
    policy: str


_KEPT = "loaded as it is; the original stays in the residue"

RULINGS: Final[dict[str, Ruling]] = {
    "alias": Ruling("an older spelling of a value", "the column holds the present word, the residue the original"),
    "clamped-priority": Ruling("a priority outside 0 to 100", "moved to the nearest bound, the residue keeps it"),
    "decreasing-stats": Ruling("statistics that decrease", _KEPT),
    "duplicate-name": Ruling("a name that another schedule of the tenant has too", "loaded as it is; both keep it"),
    "empty-window": Ruling(
        "an end that is not after its start", "the trigger is disabled; the residue keeps the times"
    ),
    "finished-before-started": Ruling("a run that ends before it begins", "loaded as it is, without a duration"),
    "id-mismatch": Ruling("an id that differs from _id", "the row is found by _id; the residue keeps the id"),
    "mapped-zone": Ruling("a Windows name of a time zone", "mapped by the published table; the residue keeps it"),
    "negative-stats": Ruling("statistics below zero", _KEPT),
    "orphan": Ruling(
        "a reference to a document that is not there", "the column stays null; the residue keeps the text"
    ),
    "tenant-defaulted": Ruling("a document without a tenant", "the configured default tenant was taken"),
    "tenant-from-selector": Ruling("a tenant that stands in the selector only", "taken from there"),
    "unevaluable-cron": Ruling(
        "a cron text that no dialect can evaluate", "the schedule is loaded without a trigger; the residue keeps it"
    ),
    "unknown-cause": Ruling("a cause of a run that is not in the list of known ones", "the text is kept"),
    "unknown-schema-version": Ruling("a version of the document's schema that is not known", _KEPT),
    "unknown-zone": Ruling(
        "a time zone that is not known", "the schedule is loaded without a trigger; the residue keeps it"
    ),
    "unusable-reference": Ruling(
        "a reference that is no usable id", "the column stays null; the residue keeps the original"
    ),
    "unusable-interval": Ruling(
        "an interval that cannot be read", "the schedule is loaded without a trigger; the residue keeps it"
    ),
}


def ruling(kind: str) -> Ruling:
    """Return the words for a kind of note; a kind without an entry keeps its own name."""
    return RULINGS.get(kind, Ruling(kind.replace("-", " "), ""))
