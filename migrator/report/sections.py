"""The sections that areas fill, in the order of design §7; an area is never passed over in silence."""

from typing import Final

import msgspec

from migrator.result import Area, Check, Result


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """A section of the report that one or more areas fill."""

    anchor: str
    short: str
    title: str
    lead: str = ""
    areas: tuple[str, ...]


AREA_SECTIONS: Final = (
    Plan(
        anchor="meaning",
        short="Meaning",
        title="What it means: next fires and histories",
        lead="Rows may be equal and still mean something else: when does each trigger fire next, do histories add up.",
        areas=("meaning",),
    ),
    Plan(
        anchor="transitions",
        short="State machines",
        title="State machines as exercised",
        areas=("transitions",),
    ),
    Plan(
        anchor="behaviour",
        short="Behaviour",
        title="The scheduler at work",
        lead="The scheduler is driven through its facade in a scratch tenant of its own, which is removed afterwards.",
        areas=("crud", "triggers", "workers", "execution", "isolation"),
    ),
    Plan(anchor="locking", short="Locking", title="Locking under contention", areas=("locking",)),
    Plan(anchor="timings", short="Timings", title="Timings", areas=("performance",)),
    Plan(anchor="cutover", short="Cutover", title="Cutover readiness and the way back", areas=("cutover",)),
    Plan(
        anchor="sensitivity",
        short="Strength",
        title="How strong this verification is",
        lead="Faults of every class are planted in a copy; one that no check sees, this report could not show.",
        areas=("sensitivity",),
    ),
)
"""Areas of the data (schema, parity) fill the sections before these."""


class Section(msgspec.Struct, frozen=True):
    """A section with its areas: name, the area (none: the result does not know it), its checks."""

    anchor: str
    short: str
    title: str
    lead: str
    areas: list[tuple[str, Area | None, list[Check]]]


def sections_of(result: Result) -> list[Section]:
    """Return every section with its areas and their checks."""
    areas = {area.name: area for area in result.evidence.areas}
    checks = result.evidence.checks
    return [
        Section(
            plan.anchor,
            plan.short,
            plan.title,
            plan.lead,
            [(name, areas.get(name), [check for check in checks if check.area == name]) for name in plan.areas],
        )
        for plan in AREA_SECTIONS
    ]
