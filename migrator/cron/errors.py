"""What can be wrong with a cron text or a time zone."""

from migrator.errors import UsageError


class CronError(UsageError):
    """The cron text cannot be evaluated by its dialect.

    The message names the field and what was expected, never the text.
    """


class ZoneError(CronError):
    """The time zone is neither a name of the IANA database nor a Windows name known to the CLDR table."""
