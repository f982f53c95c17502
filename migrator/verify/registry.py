"""Every check of this version, made from the modules of ``checks``."""

from typing import Final

from migrator.report.areas import AREAS
from migrator.verify.check import CheckSpec
from migrator.verify.checks import (
    behaviour,
    cutover,
    ledger,
    library,
    load,
    parity,
    performance,
    schema,
    semantics,
    sensitivity,
)


def every_check() -> tuple[CheckSpec, ...]:
    """Return the checks area by area, in the order of the report; the last one plants mutations for the others."""
    specs = (
        *schema.CHECKS,
        *parity.CHECKS,
        *ledger.CHECKS,
        *parity.COLUMN_CHECKS,
        *semantics.CHECKS,
        *library.CHECKS,
        *behaviour.CHECKS,
        *cutover.CHECKS,
        *performance.CHECKS,
        *load.CHECKS,
    )
    return *specs, *sensitivity.checks([spec for spec in specs if AREAS[spec.area].mutations is not None])


EVERY_CHECK: Final = every_check()
