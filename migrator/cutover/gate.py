"""What a condition of the switch is found to be."""

import msgspec


class Gate(msgspec.Struct, frozen=True, kw_only=True):
    """One condition of the switch."""

    name: str
    passed: bool | None
    """None: it cannot be told, which does not hold up the switch."""
    words: str
