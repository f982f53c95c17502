"""Which sources a database holds, told by the names of its collections and the fields of a few of their documents.

What a source is recognised by is data of its profile (``Profile.signs``). This module is pure.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias

import msgspec

from migrator.sources.profile import MONGODB, Profile

Sureness: TypeAlias = Literal["certain", "likely", "possible"]

MOST: Final = 0.5
"""Share of the looked-at documents with the fields of a source that makes a collection of its name certain."""
NEARLY_ALL: Final = 0.9
"""The same for a collection of another name."""
WORDS: Final[Mapping[Sureness, str]] = {
    "certain": "certain: collections of its names hold its documents",
    "likely": "likely: a collection of another name holds documents with its fields",
    "possible": "possible: some documents of a collection of its name have its fields",
}
_RANKS: Final = tuple(WORDS)


class RecognisedSource(msgspec.Struct, frozen=True, kw_only=True):
    """A source that a database holds, as far as can be told."""

    profile: str
    sure: Sureness
    collections: dict[str, str]
    """Collection of the profile to the one of the database that shows its signs."""
    why: tuple[str, ...]
    """For each of them, what was seen."""

    @property
    def renamed(self) -> dict[str, str]:
        """The collections whose names differ from the profile's, as ``[source] collections`` has them."""
        return {own: name for own, name in self.collections.items() if own != name}


Samples: TypeAlias = Mapping[str, Sequence[Mapping[str, Any]]]
"""Collection of the database to some of its documents."""


def recognise(profiles: Iterable[tuple[str, Profile]], samples: Samples) -> tuple[RecognisedSource, ...]:
    """Return the sources whose signs documents show, the surest first, then those with most collections."""
    own = [
        recognised
        for name, profile in profiles
        if MONGODB in profile.servers and (recognised := _by_name(name, profile, samples)) is not None
    ]
    taken = {name for one in own if one.sure == "certain" for name in one.collections.values()}
    renamed = [
        recognised
        for name, profile in profiles
        if MONGODB in profile.servers
        and name not in {one.profile for one in own}
        and (recognised := _by_fields(name, profile, samples, taken)) is not None
    ]
    return tuple(sorted([*own, *renamed], key=lambda one: (_RANKS.index(one.sure), -len(one.collections))))


def _by_name(name: str, profile: Profile, samples: Samples) -> RecognisedSource | None:
    """Return the source by the collections that have its names; None if no document of them shows its signs."""
    shares = {one: _share(fields, samples.get(one, ())) for one, fields in profile.signs.items()}
    shown = {one: share for one, share in shares.items() if share > 0}
    if not shown:
        return None
    return RecognisedSource(
        profile=name,
        sure="certain" if max(shown.values()) >= MOST else "possible",
        collections={one: one for one in shown},
        why=tuple(_why(one, one, profile, shown[one]) for one in shown),
    )


def _by_fields(name: str, profile: Profile, samples: Samples, taken: set[str]) -> RecognisedSource | None:
    """Return the source by collections of other names; None if none nearly always shows its signs."""
    called: dict[str, str] = {}
    why: list[str] = []
    for own, fields in profile.signs.items():
        if len(fields) == 1:
            continue  # a single field says too little without the name
        free = [one for one in samples if one not in taken and one not in called.values()]
        shares = {one: _share(fields, samples[one]) for one in free}
        best = max(shares, key=lambda one: (shares[one], len(samples[one])), default="")
        if best and shares[best] >= NEARLY_ALL:
            called[own] = best
            why.append(_why(own, best, profile, shares[best]))
    if not called:
        return None
    return RecognisedSource(profile=name, sure="likely", collections=called, why=tuple(why))


def _share(fields: Sequence[str], documents: Sequence[Mapping[str, Any]]) -> float:
    """Return the share of the documents that have all of the fields; 0 if there are none."""
    return sum(all(field in one for field in fields) for one in documents) / len(documents) if documents else 0.0


def _why(own: str, name: str, profile: Profile, share: float) -> str:
    called = name if own == name else f"{name} (the profile calls it {own})"
    return f"{called}: {share:.0%} of the documents that were looked at have {', '.join(profile.signs[own])}"
