"""What makes a position useless: each of these calls for a comparison with repair, never for a silent restart."""

from migrator.errors import MigratorError


class AlarmError(MigratorError):
    """The position in the change stream cannot be trusted; what was missed must be found by comparison."""


class PositionLostError(AlarmError):
    """The source's oplog does not reach back to the position any more, or none was taken."""


class PositionBackwardsError(AlarmError):
    """The source handed out a position before the one that was saved: it was restored from a backup, or is another."""


class PositionFrozenError(AlarmError):
    """The source moves on, and the position does not."""
