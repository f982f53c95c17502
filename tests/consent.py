"""Commands that ask before they begin get ``--yes``: a test has no terminal. How they ask is tested with one."""

import itertools
from collections.abc import Sequence
from typing import Final

ASKING: Final = (("cutover", "run"), ("rollback", "run"), ("schema", "downgrade"), ("quarantine", "drop"))


def consenting(arguments: Sequence[str]) -> list[str]:
    """Return the arguments of ``migrator``, with ``--yes`` if the command asks."""
    asks = tuple(arguments[:2]) in ASKING or (arguments[0] == "parity" and _applies(arguments))
    return [*arguments, "--yes"] if asks and "--yes" not in arguments else [*arguments]


def _applies(arguments: Sequence[str]) -> bool:
    return any(pair == ("--repair", "apply") for pair in itertools.pairwise(arguments))
