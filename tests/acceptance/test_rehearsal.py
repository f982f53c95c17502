"""The rehearsal of the runbook, from top to bottom on the servers of ``migrator servers``, in the deep run.

Each day the tutorial makes the same way (``test_tutorial.py``), and ``integration/cutover/test_runbook.py`` executes
each command of the runbook's day.
"""

import pytest

from tests.cron_lines import DEEP
from tests.page_session import run_page

if DEEP:

    @pytest.mark.slow
    def test_the_session_of_the_page_is_a_real_one() -> None:
        run_page("runbook.md")
