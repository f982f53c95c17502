"""What can be wrong with a cron text or a time zone."""

from typing import Final

from migrator.errors import ConfigurationError, UsageError


class CronError(UsageError):
    """The cron text cannot be evaluated by its dialect.

    The message names the field and what was expected, never the text.
    """


class ZoneError(CronError):
    """The time zone is neither a name of the IANA database nor a Windows name known to the CLDR table."""


class UnavailableError(ConfigurationError):
    """The dialect is known, and the library that evaluates it is not installed.

    No ``CronError``: nothing is known about the line, so that nobody may take it for one that is wrong.
    """


SEED: Final = (
    "expected a number in place of H, which is filled in from a seed that the line does not hold;"
    " write the number that the seed gives"
)
"""Why such a field is refused."""
