"""Processes of the verification: each opens the store of a scratch tenant by itself, and does what a pipe tells it."""

import multiprocessing
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from multiprocessing.connection import Connection
from typing import Any, Final, cast

import msgspec

from migrator import telemetry
from migrator.config import Settings
from migrator.errors import MigratorError
from migrator.scratch import PARTS, Components, ScopedStore, TenantScope
from migrator.store import open_side
from migrator.store.protocols import Store
from migrator.verify.behaviour.scenarios import could_not_tell

ANSWER_S: Final = 120.0
_ENDED_EARLY: Final = "a process of the verification ended before it answered"


class ScratchProcessError(MigratorError):
    """A process did not do what it was told: a failure of the scheduler, not something that could not be told."""


class ScratchTask(msgspec.Struct, frozen=True, kw_only=True):
    """What a process is given, and what it does."""

    settings: Settings
    backend: str
    base: str
    components: Components

    @property
    def tenant(self) -> str:
        """The tenant that it works in."""
        return self.base + PARTS[0]

    def serve(self, store: Store, pipe: Connection) -> None:
        """Do in the process what the pipe tells; the process ends when the pipe does."""
        raise NotImplementedError


class ScratchProcess:
    """A process, and the pipe to it."""

    def __init__(self, task: ScratchTask) -> None:
        """Start it."""
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self._process = context.Process(target=_main, args=(task, theirs, telemetry.output_settings()), daemon=True)
        self._process.start()
        theirs.close()

    def send(self, word: str) -> None:
        """Give an order; raises ``ScratchProcessError`` where the process is gone."""
        try:
            self.pipe.send(word)
        except OSError:
            raise ScratchProcessError(_ENDED_EARLY) from None

    def receive(self, *, within_s: float = ANSWER_S) -> Any:  # noqa: ANN401 - whatever the order is answered by
        """Return the next answer.

        Raises ``ScratchProcessError`` where none comes, and what ended the process if it says nothing about the
        scheduler.
        """
        try:
            if not self.pipe.poll(within_s):
                raise ScratchProcessError("a process of the verification did not answer")
            answer = self.pipe.recv()
        except (EOFError, OSError):
            raise ScratchProcessError(_ENDED_EARLY) from None
        if isinstance(answer, MigratorError):
            if could_not_tell(answer):
                raise answer
            raise ScratchProcessError(f"a process of the verification ended: {type(answer).__name__}: {answer}")
        return answer

    def kill(self) -> None:
        """End it as ``kill -9`` does."""
        self._process.kill()
        self._process.join()
        self.pipe.close()


@contextmanager
def scratch_processes(
    tasks: Sequence[ScratchTask], *, ready_within_s: float = ANSWER_S
) -> Iterator[list[ScratchProcess]]:
    """Start a process for each task, yield them once each has sent that it is ready, and end all in every case."""
    started: list[ScratchProcess] = []
    try:
        for task in tasks:
            started.append(ScratchProcess(task))  # noqa: PERF401 - those that were started are ended
        for process in started:
            process.receive(within_s=ready_within_s)
        yield started
    finally:
        for process in started:
            process.kill()


def _main(task: ScratchTask, pipe: Connection, output: telemetry.OutputSettings) -> None:
    telemetry.set_output(**asdict(output))
    with suppress(EOFError, OSError, KeyboardInterrupt):
        try:
            inner = open_side(task.settings, task.backend)
            try:
                scope = TenantScope(task.base, [task.base + part for part in PARTS])
                task.serve(task.components.store(cast("Store", ScopedStore(inner, scope))), pipe)
            finally:
                inner.close()
        except MigratorError as error:
            pipe.send(error)
