"""The areas of verification and the sections of the report, in its order, and what a call may say of an area."""

from collections.abc import Container, Iterable
from typing import Final, Literal, TypeAlias

import msgspec

from migrator.config import nearest
from migrator.errors import UsageError

MutationKind: TypeAlias = Literal["data", "schema", "behaviour"]
"""``data``: rows, documents, the ledger; ``schema``: objects of the schema; ``behaviour``: what the scheduler does."""


class Section(msgspec.Struct, frozen=True):
    """A section of the report that one or more areas fill."""

    anchor: str
    short: str
    """Its name in the table of contents."""
    title: str
    lead: str = ""


SECTIONS: Final = (
    Section("cutover", "Cutover", "Cutover and rollback"),
    Section(
        "semantics",
        "Semantics",
        "Semantics: next fires and histories",
        "Equal rows may still mean something else. These checks compute next fires and test histories.",
    ),
    Section(
        "library",
        "Library",
        "The library on its own tables",
        "The library reads, computes and executes a scratch copy of its tables, which is removed afterwards.",
    ),
    Section("transitions", "State machines", "State machines as exercised"),
    Section(
        "behaviour",
        "Behaviour",
        "Behaviour of the scheduler",
        "Scenarios drive the scheduler through its client, in a scratch tenant that is removed afterwards.",
    ),
    Section("locking", "Locking", "Locking under contention"),
    Section("timings", "Timings", "Timings"),
    Section(
        "sensitivity",
        "Strength",
        "How strong this verification is",
        "Faults of every class are planted in a copy. What no check detects there, this report cannot show.",
    ),
)
"""In the order of the report. The areas of the data without a section fill the sections before these."""


class AreaSpec(msgspec.Struct, frozen=True, kw_only=True):
    """An area, before it is checked: what its checks have in common."""

    title: str
    section: str = ""
    """Anchor of its section."""
    mutations: MutationKind | None = None
    """The mutations that its checks must detect: a column of ``docs/verifiers.md`` for each check."""
    of_data: bool = False
    """Whether a failed check means that the two sides are not equal."""
    acceptable: bool = True
    """Whether an option may declare its failures acceptable; not where they are a difference in the data, or a leak."""
    writes: bool = False
    """Whether its checks write, if only into scratch tenants and databases."""
    needs_source: bool = False
    """Whether all of its checks compare with a source."""
    of: Literal["scheduler", "library", "both"] = "scheduler"
    """What its checks are about: the tool's own scheduler, of which a native target has none; a library, which the
    schema ``scheduler`` has none of; or what every target has."""
    on_request: bool = False
    """Whether it is checked only when asked for. Without it the verdict on the data is the same."""


def _behaviour(title: str, section: str = "behaviour", *, acceptable: bool = True) -> AreaSpec:
    """Return an area whose checks drive the scheduler in scratch tenants."""
    return AreaSpec(title=title, section=section, mutations="behaviour", acceptable=acceptable, writes=True)


AREAS: Final[dict[str, AreaSpec]] = {
    "schema": AreaSpec(title="The target's schema", mutations="schema", of_data=True, acceptable=False),
    "parity": AreaSpec(
        title="Every document and its rows are equal",
        mutations="data",
        of_data=True,
        acceptable=False,
        needs_source=True,
        of="both",
    ),
    "semantics": AreaSpec(
        title="Semantics: next fires and histories",
        section="semantics",
        mutations="data",
        of_data=True,
        acceptable=False,
    ),
    "library": AreaSpec(
        title="What the library says of its tables",
        section="library",
        of_data=True,
        acceptable=False,
        writes=True,
        of="library",
    ),
    "crud": _behaviour("Reading and writing through the client"),
    "transitions": _behaviour("State machines", "transitions"),
    "triggers": _behaviour("When triggers fire"),
    "locking": _behaviour("Locks under contention", "locking"),
    "workers": _behaviour("Workers and their heartbeats"),
    "execution": _behaviour("Execution of due schedules"),
    "isolation": _behaviour("Isolation of tenants", acceptable=False),
    "cutover": AreaSpec(title="Cutover and rollback", section="cutover", writes=True, of="both"),
    "performance": AreaSpec(title="Times and their ceilings", section="timings", writes=True),
    "sensitivity": AreaSpec(title="How strong this verification is", section="sensitivity", on_request=True),
}
"""By name. An area without checks is reported as not checked by this version."""

ACCEPT_PREFIX: Final = "no-"
"""``--fail-on no-AREA`` narrows, ``--fail-on AREA`` widens."""


def area_of(check: str) -> str:
    """Return the area in the id of a check; of an area, its own name."""
    return check.partition(".")[0]


def is_of_data(area: str) -> bool:
    """Whether a failed check of an area, which a result names, means that the two sides are not equal."""
    return area in AREAS and AREAS[area].of_data


def require_known(names: Iterable[str], option: str, checks: Container[str] = ()) -> None:
    """Refuse an area that does not exist; raises ``UsageError`` with the nearest name.

    ``checks``: ids of checks that may be named in place of an area.
    """
    for name in names:
        if name not in AREAS and name not in checks:
            gap = "" if option.endswith(ACCEPT_PREFIX) else " "
            area = area_of(name)
            if "." in name and area in AREAS:
                raise UsageError(f"{option}{gap}{name}: no such check; --only {area} --dry-run lists those of the area")
            raise UsageError(f"{option}{gap}{name}: no such area{nearest(name, AREAS)}")


def split_fail_on(fail_on: Iterable[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Split the values of ``--fail-on``: areas whose warnings fail too, and areas whose failures are accepted.

    Raises ``UsageError`` for an unknown area, for one that is in both, and for one whose failures nobody may accept.
    """
    given = list(dict.fromkeys(fail_on))
    narrowed = tuple(name.removeprefix(ACCEPT_PREFIX) for name in given if name.startswith(ACCEPT_PREFIX))
    widened = tuple(name for name in given if not name.startswith(ACCEPT_PREFIX))
    require_known(widened, "--fail-on")
    require_known(narrowed, f"--fail-on {ACCEPT_PREFIX}")
    for name in narrowed:
        if not AREAS[name].acceptable:
            raise UsageError(
                f"--fail-on {ACCEPT_PREFIX}{name}: a difference found there is never acceptable; --skip {name} leaves"
                " the area unverified"
            )
        if name in widened:
            raise UsageError(f"--fail-on {name} and {ACCEPT_PREFIX}{name} contradict each other")
    return widened, narrowed
