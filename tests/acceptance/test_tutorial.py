"""The tutorial, from top to bottom on the servers of ``migrator servers``; the README shows a part of it."""

import re

import pytest

from tests.acceptance.test_readme import blocks, is_like, session
from tests.page_session import run_page


@pytest.mark.slow
def test_the_session_of_the_page_is_a_real_one() -> None:
    page = run_page("tutorial.md")
    (shown_there,) = blocks("console")
    steps = session(shown_there)
    assert len(steps) >= 8, "the README shows the whole way"
    for command, shown in steps:
        if command != "echo $?":
            called = re.compile(rf"^{re.escape(command)}(?:\s+#.*)?$", re.MULTILINE)
            ((_, printed),) = [block for block in page if called.search(block[0])]
        assert is_like(f"...\n{shown}...\n", f"\n{printed}\n"), f"README: {command}\n{printed}"
