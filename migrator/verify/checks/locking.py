"""Area locking: exclusion, fences, leadership."""

from migrator.verify.behaviour import locking
from migrator.verify.behaviour.behave import Script, behave
from migrator.verify.check import CheckSpec

CHECKS = (
    CheckSpec(
        id=locking.CHECK,
        title=f"{locking.PROCESSES} processes that want one lock have it one after the other, and one of them leads",
        requirements=("0-T2.11.4", "0-R1", "4-V5"),
        limits=(
            "On MongoDB the lock of a killed process is taken by a later clock: nothing tells of its end before.",
            "The processes run on one machine; clocks that disagree are not tried.",
        ),
        run=behave(Script("processes in contention", locking.contention), tables=("locks",)),
    ),
    CheckSpec(
        id="locking.fences",
        title="Who lost a lock, or the leadership, can do nothing with it any more",
        requirements=("0-T2.11.4",),
        run=behave(
            Script("fences", locking.fences),
            Script("leadership", locking.leadership),
            tables=("locks",),
        ),
    ),
)
