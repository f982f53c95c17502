"""Words of Agenda and its forks that are not field names."""

from collections.abc import Mapping
from typing import Final

from migrator import states

NAME: Final = "agenda"

JOBS: Final = "agendaJobs"
"""Default name of the collection of Agenda 4, 5 and 6 and of hokify's fork."""
PULSE_JOBS: Final = "pulseJobs"
LOGS: Final = "agenda_logs"

CRON_DIALECT: Final = "agenda"
"""The library cron-parser: five or six fields."""
AT_DIALECT: Final = "agenda-at"
"""The library date.js: a time of day in words (``3:30pm``)."""

JOB_TYPES: Final[Mapping[str, str]] = {word: word for word in ("normal", "single", "once")}
"""``once`` is what a job gets that a program makes without the library's own functions (4, 5, Pulse)."""
BACKOFFS: Final[Mapping[str, str]] = {word: word for word in states.RETRY_STRATEGIES}
LEVELS: Final[Mapping[str, str]] = {word: word for word in states.LOG_LEVELS}
"""Agenda's four levels are among the target's six, under the same names."""
