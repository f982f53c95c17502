"""The rehearsal of the runbook, from top to bottom on the servers of ``migrator servers``."""

import pytest

from tests.page_session import run_page


@pytest.mark.slow
def test_the_session_of_the_page_is_a_real_one() -> None:
    run_page("runbook.md")
