"""Random calls on both backends in lockstep: of area crud, where it was asked for."""

from migrator.result import FAILED, PASSED, Exhibit, Finding, Tally, not_asked_for
from migrator.verify.behaviour import lockstep
from migrator.verify.check import CheckSpec, Found
from migrator.verify.context import Context

NOT_ASKED_FOR = "made only with --behaviour N --scratch-on-source"


def alike(context: Context) -> Found:
    """Make the calls, and say where the backends differ, in as few operations as it takes."""
    if not context.operations:
        return Found(outcome=not_asked_for(NOT_ASKED_FOR))
    done, refused, difference = lockstep.run(context)
    rows = (("seed", context.seed), ("operations", done), ("refused, on both", refused))
    varying = (Exhibit(kind="table", title="Random calls", columns=("what", "which"), rows=rows, rows_total=len(rows)),)
    counts = {"operations": done, "differences": int(difference is not None)}
    if difference is None:
        return Found(outcome=PASSED, counts=counts, varying=varying)
    steps = tuple(f"{word} {one} {two}" for _, word, one, two in difference.operations)
    return Found(
        outcome=FAILED,
        counts=counts,
        varying=varying,
        tallies=(
            Tally(
                severity="difference",
                cause="behaviour",
                path="lockstep",
                title="the backends answer the same calls differently",
                fix=f"call again with --behaviour {context.operations} --seed {context.seed}",
                count=1,
                keys=(f"seed {context.seed}",),
            ),
        ),
        findings=(
            Finding(
                severity="difference",
                cause="behaviour",
                key=f"seed {context.seed}",
                side="postgres against mongo",
                words=(*difference.words, "after: " + "; ".join(steps)),
            ),
        ),
        findings_total=1,
    )


CHECKS = (
    CheckSpec(
        id="crud.lockstep",
        title="Both backends answer the same to random calls",
        requirements=("0-T2.10.2",),
        limits=("Calls are made one after the other; contention is area locking.",),
        run=alike,
    ),
)
