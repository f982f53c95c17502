"""Commands that ask before they begin get ``--yes``: a test has no terminal. How they ask is tested with one.

Commands that write the report of the cutover at their end get ``--no-report``, unless a test asks for it with
``--report``: hundreds of them would take minutes.
"""

import itertools
from collections.abc import Sequence
from typing import Final

ASKING: Final = (
    ("cutover", "run"),
    ("rollback", "run"),
    ("schema", "downgrade"),
    ("quarantine", "drop"),
    ("cutover", "release-source"),
    ("cutover", "clean-copy"),
    ("cutover", "rehearse"),
)


REPORTING: Final = (("cutover", "run"), ("rollback", "run"), ("cutover", "finish"))


def consenting(arguments: Sequence[str]) -> list[str]:
    """Return the arguments of ``migrator``, with ``--yes`` if the command asks, and without a report."""
    asks = tuple(arguments[:2]) in ASKING or (arguments[0] == "parity" and _applies(arguments))
    reports = tuple(arguments[:2]) in REPORTING and "--report" not in arguments
    added = {"--yes": asks, "--no-report": reports}
    return [*arguments, *(option for option, wanted in added.items() if wanted and option not in arguments)]


def _applies(arguments: Sequence[str]) -> bool:
    return any(pair == ("--repair", "apply") for pair in itertools.pairwise(arguments))
