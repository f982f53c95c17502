"""A listener for ``MIGRATOR_FAULT_POINTS`` that passes every point, so that an interrupted command has a minute to end.

The limit of the product is for people who wait at a terminal. A command that ends in order on a machine which other
tests keep busy may take longer, and is not at fault.
"""

from migrator import interruption

vars(interruption)["LIMIT_S"] = 60


def passed(point: str) -> None:
    """Do nothing: the limit is set when this module is loaded."""
    del point
