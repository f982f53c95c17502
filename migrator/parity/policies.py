"""The notes that profiles and the loader make about loaded documents: what each means, and the policy that applies."""

from typing import Final

import msgspec

from migrator.result import NAMED_LOSS
from migrator.sources.profile import ROUNDED


class SourcePolicy(msgspec.Struct, frozen=True):
    """A kind of note in words."""

    title: str
    policy: str


_KEPT = "loaded as it is; the remainder keeps the original"

POLICIES: Final[dict[str, SourcePolicy]] = {
    "alias": SourcePolicy(
        "an older spelling of a value", "the column has the present word; the remainder keeps the original"
    ),
    "clamped": SourcePolicy(
        "a number outside the bounds of its column", "the nearest bound is stored; the remainder keeps the original"
    ),
    NAMED_LOSS: SourcePolicy("a value that the tables of the target cannot hold; the remainder keeps it", ""),
    ROUNDED: SourcePolicy(
        "a number with more digits than its column keeps",
        "the nearest number is stored; the remainder keeps the original",
    ),
    "clamped-priority": SourcePolicy(
        "a priority outside 0 to 100", "the nearest bound is stored; the remainder keeps the original"
    ),
    "decreasing-stats": SourcePolicy("statistics that decrease", _KEPT),
    "duplicate-name": SourcePolicy(
        "a name that another schedule of the tenant has too", "loaded as it is; both keep it"
    ),
    "empty-window": SourcePolicy(
        "an end that is not after its start", "the trigger is disabled; the remainder keeps the times"
    ),
    "finished-before-started": SourcePolicy("a run that ends before it begins", "loaded as it is, without a duration"),
    "id-mismatch": SourcePolicy("an id that differs from _id", "the row is found by _id; the remainder keeps the id"),
    "jitter-dropped": SourcePolicy(
        "a trigger that fires up to some seconds later, at random",
        "it fires on time; the trigger's source_spec says it",
    ),
    "mapped-zone": SourcePolicy(
        "a Windows name of a time zone", "mapped by the published table; the remainder keeps it"
    ),
    "negative-stats": SourcePolicy("statistics below zero", _KEPT),
    "next-run-mismatch": SourcePolicy(
        "a next run that differs inside and outside of the pickle",
        "the one outside is stored, as the scheduler reads it",
    ),
    "no-next-fire": SourcePolicy(
        "a trigger that fires and has no next fire", "the trigger is loaded without a next fire"
    ),
    "no-trigger": SourcePolicy(
        "a document without anything that makes it fire", "the schedule is loaded without a trigger"
    ),
    "orphan": SourcePolicy(
        "a dangling reference: the document does not exist", "the column is null; the remainder keeps the text"
    ),
    "tenant-defaulted": SourcePolicy("a document without a tenant", "the configured default tenant is used"),
    "tenant-from-selector": SourcePolicy("a tenant that only the selector has", "the selector's tenant is used"),
    "unevaluable-cron": SourcePolicy(
        "a cron text that no dialect can evaluate", "the schedule is loaded without a trigger; the remainder keeps it"
    ),
    "unevaluable-trigger": SourcePolicy(
        "a kind of trigger that the target cannot evaluate",
        "the schedule is loaded without a trigger; its metadata say it",
    ),
    "unknown-cause": SourcePolicy("a cause of a run that is not in the list of known ones", "the text is kept"),
    "unknown-schema-version": SourcePolicy("a version of the document's schema that is not known", _KEPT),
    "unknown-word": SourcePolicy("a word that the mapping does not list", "the text is kept"),
    "unknown-zone": SourcePolicy(
        "an unknown time zone", "the schedule is loaded without a trigger; the remainder keeps it"
    ),
    "unreadable-result": SourcePolicy(
        "a result in a pickle that is not read", "the run is loaded without it; its metadata keep the bytes"
    ),
    "unusable-reference": SourcePolicy(
        "a reference that is no usable id", "the column is null; the remainder keeps the original"
    ),
    "unusable-interval": SourcePolicy(
        "an interval that cannot be read", "the schedule is loaded without a trigger; the remainder keeps it"
    ),
}


def policy_of(kind: str) -> SourcePolicy:
    """Return the policy for a kind of note; a kind without an entry keeps its own name, and has no policy text."""
    return POLICIES.get(kind, SourcePolicy(kind.replace("-", " "), ""))
