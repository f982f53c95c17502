"""The tail as a whole: take events, bring documents up to date, save the position, all in one transaction."""

import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Literal, Self, TypeAlias

import msgspec
import psycopg
from bson.timestamp import Timestamp
from pymongo.errors import PyMongoError

from migrator.config import Settings
from migrator.connections.mongo import committed_time
from migrator.connections.mongo import translate_errors as speaking_of_source
from migrator.connections.postgres import open_target, translate_errors
from migrator.errors import UnreachableError
from migrator.pipeline.sessions import Sessions, is_transient, naming_holders, reason_of, waited_out
from migrator.pipeline.tail import positions
from migrator.pipeline.tail.alarms import AlarmError
from migrator.pipeline.tail.figures import write_metrics
from migrator.pipeline.tail.lag import FROZEN_S
from migrator.pipeline.tail.session import TailSession
from migrator.sources import profile_of
from migrator.telemetry import say, waiting

Until: TypeAlias = Timestamp | Literal["caught-up"] | None
"""A cluster time; everything the source has committed by now; or never."""

SAY_EVERY_S = 10.0
METRICS_EVERY_S = 1.0


class Followed(msgspec.Struct, frozen=True, kw_only=True):
    """What a call of the tail did."""

    reached: bool
    """It came to where it was to end; false when it was stopped."""
    applied: bool
    """Rows are up to date with the position; false while a copy is unfinished."""
    reason: str
    """Why rows are not; empty where they are."""
    position: Timestamp
    events: int
    documents: int
    written: int
    removed: int
    owed: int
    """Documents that are still to be read again."""
    quarantined: int


class Tail:
    """Follows the source from where it stood; another one of the same target is refused.

    ``run`` may be called again and again on one object, which keeps its connections and the lock between calls.
    """

    def __init__(self, settings: Settings, *, metrics_file: Path | None = None, frozen_s: float = FROZEN_S) -> None:
        self._settings = settings
        self._metrics_file = metrics_file
        self._frozen_s = frozen_s
        self._session: TailSession | None = None
        self._said = self._measured = time.monotonic()
        self._waits_for = ""

    def __enter__(self) -> Self:
        """Nothing is opened yet: ``run`` does that."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the connections, and with them the lock."""
        self.close()

    def close(self) -> None:
        """Close the connections, and with them the lock."""
        if self._session is not None:
            self._session.close()
            self._session = None

    def run(self, until: Until = None, stop: threading.Event | None = None) -> Followed:
        """Follow until a point is reached, or until ``stop`` is set; what is done is kept at any moment.

        Transient failures of either server are waited out for ``copy.patience_s``. Raises ``RefusedError`` (nothing
        copied, no replica set, another tail, other conditions), ``AlarmError`` when the position cannot be trusted
        (written down; ``parity --repair apply`` settles it), ``UnreachableError`` when a server stays away.
        """
        stop = threading.Event() if stop is None else stop
        with translate_errors("the target"), speaking_of_source("the source"), naming_holders(self._settings):
            session = self._opened()  # what fails at the start is not waited for
            goal = committed_time(session.sessions.source) if until == "caught-up" else until
            begun = session.totals()
            while True:
                done = waited_out(self._settings, lambda: self._attempt(goal, stop))
                if done is not None:
                    return self._result(*begun, reached=done)

    @property
    def following(self) -> bool:
        """Whether this object holds the lock of the tail."""
        return self._session is not None

    def position(self) -> positions.Position | None:
        """Return the saved position; None before the first call of ``run``."""
        found = standing(self._settings)
        return None if found is None else found.position

    def lag(self) -> int:
        """Return how many seconds the saved position is behind the source, by the source's clock."""
        with translate_errors("the target"), speaking_of_source("the source"), naming_holders(self._settings):
            session = self._opened()
            return max(0, committed_time(session.sessions.source).time - session.position.time.time)

    def _opened(self) -> TailSession:
        if self._session is None:
            with ExitStack() as on_error:
                sessions = Sessions(self._settings)
                on_error.callback(sessions.close)
                self._session = TailSession(sessions, frozen_s=self._frozen_s)
                on_error.pop_all()
        return self._session

    def _attempt(self, goal: Timestamp | None, stop: threading.Event) -> bool | None:
        """Follow with one set of connections; None when it broke after it had moved on, for another one."""
        session = self._opened()
        moved = False
        try:
            while not stop.is_set():
                session.step(final=goal)
                moved = True
                self._tell(session)
                if goal is not None and session.at(goal):
                    return True
        except AlarmError as alarm:
            session.raise_alarm(str(alarm))
            self.close()
            raise
        except (psycopg.Error, PyMongoError, UnreachableError) as error:
            self.close()
            if moved and is_transient(error):
                waiting(reason_of(error))
                return None
            raise
        except BaseException:
            self.close()
            raise
        return False

    def _tell(self, session: TailSession) -> None:
        """Say where it stands, now and then; say at once why rows are not brought up to date."""
        if session.reason != self._waits_for:
            self._waits_for = session.reason
            if session.reason:
                waiting(session.reason)
        now = time.monotonic()
        if now - self._said >= SAY_EVERY_S:
            self._said = now
            say(session.line())
        if self._metrics_file is not None and now - self._measured >= METRICS_EVERY_S:
            self._measured = now
            write_metrics(self._metrics_file, session.figures())

    def _result(self, events: int, documents: int, written: int, removed: int, *, reached: bool) -> Followed:
        session = self._opened()
        now = session.totals()
        if self._metrics_file is not None:
            write_metrics(self._metrics_file, session.figures())
        return Followed(
            reached=reached,
            applied=not session.reason,
            reason=session.reason,
            position=session.position.time,
            events=now[0] - events,
            documents=now[1] - documents,
            written=now[2] - written,
            removed=now[3] - removed,
            owed=session.owed(),
            quarantined=session.quarantined(),
        )


def standing(settings: Settings) -> positions.Standing | None:
    """Return where the tail of a target stands; None where it never ran."""
    with open_target(settings, autocommit=True) as target, translate_errors("the target"):
        return positions.standing(target, profile_of(settings.source).name)
