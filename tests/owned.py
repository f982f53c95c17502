"""Long-lived processes of a test, which must not outlive it: also when it is killed."""

from typing import Final

OWNED: Final = ("setpriv", "--pdeathsig", "KILL", "--")
"""Before a command (util-linux): it is killed when the thread that started it ends."""
