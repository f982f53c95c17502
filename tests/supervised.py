"""Processes and servers under a supervisor, commands under an operator, and whom a seed lets be killed.

What a supervisor does is done by a thread: a process that ended is started again, a server too, on the same port and
the same data. What an operator does is done by `operate`: a command is called until it has done what it is for.
"""

import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, Literal, TypeAlias, TypeVar

import msgspec

from migrator.config import load_settings
from migrator.errors import MigratorError, UnreachableError
from migrator.exit_status import QUARANTINE, TOOL_FAILED
from migrator.pipeline import status
from migrator.testing.servers.mongo import MongoServer
from migrator.testing.servers.postgres import PostgresServer
from tests.consent import consenting
from tests.cutting_over import Scene
from tests.owned import OWNED

Found = TypeVar("Found")
Victim: TypeAlias = Literal["itself", "mongod", "postgres"]

PATIENCE_S: Final = 180
LOOKS_EVERY_S: Final = 0.7
CALLS: Final = 12
"""How often an operator calls a command before giving up."""
ENDS: Final = {"scheduler": (0, TOOL_FAILED), "tail": (0, QUARANTINE)}
"""Status of what is stopped, where it is not 0 alone: declared dead just then; in the middle of what refers to more."""
GOOD: Final[dict[tuple[str, ...], tuple[int, ...]]] = {("backfill",): (0, 8), ("parity",): (0, 4)}
"""Status of success, where it is not 0 alone: documents that change while they are copied are left to the tail (8),
and counts and sums of a source that is written to are not compared (4), while every document is."""


class Fate(msgspec.Struct, frozen=True):
    """Who is killed when a command passes a point so many times."""

    victim: Victim
    point: str
    passing: int = 1


class Watched(msgspec.Struct, frozen=True):
    """A process, and how it is started again."""

    command: list[str]
    environment: dict[str, str]
    process: subprocess.Popen[bytes]


class Supervised:
    """The processes of one scene, its two servers, and the commands of its operator."""

    def __init__(self, ready: Scene, postgres: PostgresServer, seed: int) -> None:
        self.ready, self.postgres, self.dice = ready, postgres, random.Random(seed)
        self.strikes: Counter[str] = Counter()
        self._watched: dict[str, Watched] = {}
        self._guard, self._over = threading.Lock(), threading.Event()
        self._trouble: BaseException | None = None
        self._fates: list[tuple[str, Fate, Path]] = []
        self._supervisor = threading.Thread(target=self._supervise)

    def begin(self) -> None:
        """Start the supervisor."""
        self._supervisor.start()

    def follow(self, fate: Fate | None) -> None:
        """Start the tail."""
        self.start("tail", self.migrator("tail"), {}, fate)

    def start(self, name: str, command: list[str], environment: dict[str, str], fate: Fate | None = None) -> None:
        """Start a program, which is started again when it ends; what it meets, it meets once."""
        with self._guard:
            process = self._popen(command, environment | self._doom(name, fate))
            self._watched[name] = Watched(command, environment, process)

    def _anew(self, name: str, ended: Watched) -> None:
        """Start what has ended."""
        self.start(name, ended.command, ended.environment)

    def migrator(self, *arguments: str) -> list[str]:
        """Return the command line of one of our commands."""
        return [sys.executable, "-m", "migrator", *consenting(arguments), "--config", str(self.ready.config)]

    def _popen(self, command: list[str], environment: dict[str, str]) -> subprocess.Popen[bytes]:
        faults = str(Path(__file__).with_name("faults"))
        own = {"PYTHONPATH": os.pathsep.join([os.getcwd(), faults])}  # noqa: PTH109 - a text
        with self.said.open("ab") as file:
            file.write(f"\n$ {' '.join(command[2:])}\n".encode())
            file.flush()
            return subprocess.Popen(
                [*OWNED, *command],
                stdout=file,
                stderr=subprocess.STDOUT,
                env={**os.environ, **own, **environment},
                start_new_session=True,
            )

    def _doom(self, name: str, fate: Fate | None) -> dict[str, str]:
        """Return the environment in which a process meets its fate."""
        if fate is None:
            return {}
        tally = self.ready.folder / f"tally-{len(self._fates)}"
        self._fates.append((name, fate, tally))
        found = {
            "MIGRATOR_FAULT_POINTS": "listener:passed",
            "KILL_AT": fate.point,
            "KILL_COUNT": str(fate.passing),
            "KILL_TALLY": str(tally),
        }
        victim = None if fate.victim == "itself" else self._server(fate.victim).pid
        return found if victim is None else {**found, "KILL_PID": str(victim)}

    def _server(self, name: str) -> MongoServer | PostgresServer:
        return self.ready.server if name == "mongod" else self.postgres

    @property
    def said(self) -> Path:
        """Where everybody's words are."""
        return self.ready.folder / "said"

    def last_words(self) -> str:
        """Return the last that the processes have said."""
        return self.said.read_text(errors="replace")[-6_000:]

    def strike(self, what: str) -> None:
        """Kill a scheduler, a client or a server; the supervisor sees to it."""
        self.strikes[what] += 1
        if what in ("mongod", "postgres"):
            self._server(what).kill()
            return

        def one() -> bool:
            with self._guard:
                names = sorted(name for name in self._watched if name.startswith(what))
                if names:
                    _kill(self._watched[self.dice.choice(names)].process)
            return bool(names)

        self.until(one)

    def killed(self) -> str:
        """Return who was killed, and how often."""
        counts = Counter(self.strikes)
        for name, fate, tally in self._fates:
            if tally.exists() and tally.stat().st_size >= fate.passing:
                counts[name if fate.victim == "itself" else f"{fate.victim} in {name}"] += 1
        return ", ".join(f"{count} {what}" for what, count in sorted(counts.items()))

    def _supervise(self) -> None:
        try:
            while not self._over.wait(LOOKS_EVERY_S):
                for what in ("mongod", "postgres"):
                    server = self._server(what)
                    if not server.running:
                        with suppress(UnreachableError):  # killed again while it starts: the next look
                            server.restart()
                with self._guard:
                    ended = {name: one for name, one in self._watched.items() if one.process.poll() is not None}
                    for name in ended:
                        del self._watched[name]
                for name, one in ended.items():
                    self._anew(name, one)
        except BaseException as error:  # noqa: BLE001 - told to whoever waits
            self._trouble = error

    # -- an operator

    def note(self, what: str) -> None:
        """Say where the test is."""
        with self.said.open("a") as file:
            file.write(f"\n===== {time.monotonic():.1f} {what}\n")

    def operate(self, *arguments: str, fates: list[Fate] | None = None) -> str:
        """Call a command until it has done what it is for; return what it printed the last time."""
        left = list(fates or ())
        for number in range(CALLS):
            fate = left.pop(0) if left else None
            out = self.ready.folder / f"out-{arguments[0]}-{number}"
            environment = self._doom(arguments[0], fate)
            with out.open("wb") as file, self.said.open("ab") as said:
                said.write(f"\n$ {' '.join(arguments)} # {fate}\n".encode())
                said.flush()
                process = subprocess.Popen(
                    [*OWNED, *self.migrator(*arguments)],
                    stdout=file,
                    stderr=said,
                    env={**os.environ, "PYTHONPATH": str(Path(__file__).with_name("faults")), **environment},
                    start_new_session=True,
                )
                status = process.wait(timeout=PATIENCE_S)
            self.note(f"{arguments} {fate}: {status}")
            printed = out.read_text()
            left_out = re.findall(r"^[a-z_]+ +not compared: .*", printed, re.MULTILINE)  # a collection; not aggregates
            if status in GOOD.get(arguments, (0,)) and not left_out:
                return printed
            self.wait(LOOKS_EVERY_S)
            if arguments[0] == "cutover" and load_settings(str(self.ready.config)).persistence.scheduler == "mongo":
                self.caught_up()  # as the gates ask
        raise AssertionError(f"{arguments} does not come to an end: {self.last_words()}")

    def wait(self, seconds: float) -> None:
        """Let time pass; raises what the supervisor met."""
        self._over.wait(seconds)
        if self._trouble is not None:
            raise self._trouble

    def until(self, look: Callable[[], Found]) -> Found:
        """Look again and again until something is found; a server that is away is looked at later."""
        end = time.monotonic() + PATIENCE_S
        last: object = None
        while True:
            try:
                last = found = look()
                if found:
                    return found
            except MigratorError as error:
                last = error
            assert time.monotonic() < end, f"{last}: {self.last_words()}"
            self.wait(LOOKS_EVERY_S)

    def caught_up(self) -> None:
        """Wait until the tail has come up with the source: from then on a comparison beside it is exact."""

        def look() -> bool:
            stands = status.copy_status(self.ready.settings).tail
            return stands is not None and stands.follows and stands.lag_s < 3 and not stands.owed

        self.until(look)

    def dismiss(self, what: str) -> None:
        """Stop processes in good order, and for good."""
        with self._guard:
            own = [self._watched.pop(name).process for name in list(self._watched) if name.startswith(what)]
        for one in own:
            one.terminate()
        for one in own:
            assert one.wait(timeout=PATIENCE_S) in ENDS.get(what, (0,)), self.last_words()

    def close(self) -> None:
        """Kill what is left, whatever happened."""
        self._over.set()
        if self._supervisor.ident is not None:
            self._supervisor.join()
        for one in self._watched.values():
            _kill(one.process)
        for what in ("mongod", "postgres"):
            if not self._server(what).running:
                self._server(what).restart()


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End a process and all it started, at once."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
