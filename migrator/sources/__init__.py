"""Source profiles: how each scheduler spells its documents."""

from difflib import get_close_matches
from importlib import import_module
from typing import TYPE_CHECKING

from migrator.errors import ConfigurationError

if TYPE_CHECKING:
    from migrator.sources.profile import Profile

NAMES = ("stellaops", "agenda")
"""Every profile; each is a module of this package that has ``PROFILE``."""


def load_profile(name: str) -> "Profile":
    """Return the profile of this name; it is imported only now.

    Raises ``ConfigurationError`` for an unknown name, with the nearest one.
    """
    if name not in NAMES:
        nearest = get_close_matches(name, NAMES, n=1)
        hint = f"did you mean {nearest[0]}?" if nearest else "known are " + ", ".join(NAMES)
        raise ConfigurationError(f"unknown source profile {name!r}; {hint}")
    module = import_module(f"{__name__}.{name}")
    found: Profile = module.PROFILE
    return found


def comparable_in_parallel() -> tuple[str, ...]:
    """Return the profiles whose parallel run can be compared (`Profile.names_slots`)."""
    return tuple(name for name in NAMES if load_profile(name).names_slots)
