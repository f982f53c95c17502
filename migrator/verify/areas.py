"""The areas of verification in the order of the report, and what a call may say of them."""

from collections.abc import Container, Iterable
from typing import Final

from migrator.config import nearest
from migrator.errors import UsageError

AREAS: Final[dict[str, str]] = {
    "schema": "The target's schema",
    "parity": "Every document and its rows are equal",
    "semantics": "Semantics: next fires and histories",
    "crud": "Reading and writing through the client",
    "transitions": "State machines",
    "triggers": "When triggers fire",
    "locking": "Locks under contention",
    "workers": "Workers and their heartbeats",
    "execution": "Execution of due schedules",
    "isolation": "Isolation of tenants",
    "cutover": "Cutover and rollback",
    "performance": "Times and their ceilings",
    "sensitivity": "How strong this verification is",
}
"""Name → title. An area without checks is reported as not checked by this version."""

BEHAVIOUR_AREAS: Final = ("crud", "transitions", "triggers", "locking", "workers", "execution", "isolation")
"""Those that drive the scheduler in scratch tenants; they write, and remove what they wrote."""

WRITING_AREAS: Final = (*BEHAVIOUR_AREAS, "cutover", "performance")
"""Those that write at all, if only into scratch tenants and databases."""

DATA_AREAS: Final = ("schema", "parity", "semantics", "isolation")
"""What these find is a difference in the data or a leak; no option declares it acceptable."""

ACCEPT_PREFIX: Final = "no-"
"""``--fail-on no-AREA`` narrows, ``--fail-on AREA`` widens."""


def require_known(names: Iterable[str], option: str, checks: Container[str] = ()) -> None:
    """Refuse an area that does not exist; raises ``UsageError`` with the nearest name.

    ``checks``: ids of checks that may be named in place of an area.
    """
    for name in names:
        if name not in AREAS and name not in checks:
            gap = "" if option.endswith(ACCEPT_PREFIX) else " "
            area = name.partition(".")[0]
            if "." in name and area in AREAS:
                raise UsageError(f"{option}{gap}{name}: no such check; --only {area} --dry-run lists those of the area")
            raise UsageError(f"{option}{gap}{name}: no such area{nearest(name, AREAS)}")


def split_fail_on(fail_on: Iterable[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Split the values of ``--fail-on``: areas whose warnings fail too, and areas whose failures are accepted.

    Raises ``UsageError`` for an unknown area, for one that is in both, and for one of the data.
    """
    given = list(dict.fromkeys(fail_on))
    narrowed = tuple(name.removeprefix(ACCEPT_PREFIX) for name in given if name.startswith(ACCEPT_PREFIX))
    widened = tuple(name for name in given if not name.startswith(ACCEPT_PREFIX))
    require_known(widened, "--fail-on")
    require_known(narrowed, f"--fail-on {ACCEPT_PREFIX}")
    for name in narrowed:
        if name in DATA_AREAS:
            raise UsageError(
                f"--fail-on {ACCEPT_PREFIX}{name}: a difference found there is never acceptable; --skip {name} leaves"
                " the area unverified"
            )
        if name in widened:
            raise UsageError(f"--fail-on {name} and {ACCEPT_PREFIX}{name} contradict each other")
    return widened, narrowed
