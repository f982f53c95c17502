"""Every check of this version."""

from typing import Final

from migrator.verify.check import CheckSpec
from migrator.verify.checks import behaviour, cutover, ledger, load, parity, performance, schema, semantics, sensitivity

_DATA_AND_BEHAVIOUR: Final = (
    *schema.CHECKS,
    *parity.CHECKS,
    *ledger.CHECKS,
    *parity.COLUMN_CHECKS,
    *semantics.CHECKS,
    *behaviour.CHECKS,
)
"""The checks that mutations are planted for: the others look at no row of the target."""

EVERY_CHECK: Final[tuple[CheckSpec, ...]] = (
    *_DATA_AND_BEHAVIOUR,
    *cutover.CHECKS,
    *performance.CHECKS,
    *load.CHECKS,
    *sensitivity.checks(_DATA_AND_BEHAVIOUR),
)
"""Area by area, in the order of the report."""
