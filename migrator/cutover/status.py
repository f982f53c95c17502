"""Whether the last cutover, or its rollback, needs a person, and which commands lead on from where it stands."""

import shlex
from collections.abc import Iterator

import msgspec

from migrator.config import Settings
from migrator.connections.postgres import Connection, open_target, translate_errors
from migrator.cutover import journal, outbox, rollback
from migrator.cutover.cutover import POINT_OF_NO_RETURN, REVERSE_STOPPED
from migrator.cutover.journal import Journal
from migrator.pipeline import locks
from migrator.sources import profile_of

RUN = "migrator cutover run"
ABORT = "migrator cutover abort"
FINISH = "migrator cutover finish"
CLOSE_EARLY = "migrator cutover finish --now --who WHO --reason WHY"
ROLLBACK = "migrator rollback run"
RESTORE = "migrator rollback run --level 3"
TAIL = "migrator tail"


class Attention(msgspec.Struct, frozen=True, kw_only=True):
    """A state that is not left by itself."""

    words: str
    commands: tuple[str, ...] = ()
    """The first leads on; each other one is for when those before it fail again. None: another process works on it."""


def attention(settings: Settings, config: str | None = None) -> Attention | None:
    """Return what the last cutover needs of a person; none: nothing. ``config`` is named in the commands."""
    with open_target(settings, autocommit=True) as target, translate_errors("the target"):
        found = _find(target, settings)
    if found is None or config is None:
        return found
    named = tuple(f"{one} --config {shlex.quote(config)}" for one in found.commands)
    return msgspec.structs.replace(found, commands=named)


def attention_lines(found: Attention) -> Iterator[str]:
    """Yield it for people."""
    yield f"NOT FINISHED: {found.words}"
    for number, one in enumerate(found.commands):
        yield f"{'next' if number == 0 else 'or, if that fails again'}: {one}"


def _find(target: Connection, settings: Settings) -> Attention | None:
    last = journal.latest(target)
    if last is None:
        return None
    book = Journal(target, last)
    level = rollback.unfinished_level(book)
    works = locks.is_held(target, journal.LOCK)
    if level is not None:
        return _of_rollback(book, level, works=works)
    if last.state == "running":
        return _of_cutover(book, works=works)
    if last.state == "switched":
        return _of_reverse_sync(target, settings, last)
    if last.state == "finished" and not book.done("finish") and not works:
        return Attention(words=f"finishing was interrupted{_failed_step(book)}", commands=(FINISH,))
    return None


def _of_rollback(book: Journal, level: int, *, works: bool) -> Attention:
    if works:
        return Attention(words=f"a rollback of level {level} is under way in another process")
    words = f"a rollback of level {level} was interrupted{_failed_step(book)}"
    return Attention(words=words, commands=(f"{ROLLBACK} --level {level}",))


def _of_cutover(book: Journal, *, works: bool) -> Attention:
    if works:
        return Attention(words="a cutover is under way in another process")
    if not book.done(POINT_OF_NO_RETURN):
        words = f"a cutover was interrupted before its point of no return{_failed_step(book)}: writers may be refused"
        return Attention(words=words, commands=(ABORT,))
    words = f"a cutover was interrupted after its point of no return{_failed_step(book)}: writers may be refused"
    return Attention(words=words, commands=(RUN, ROLLBACK, RESTORE))


def _of_reverse_sync(target: Connection, settings: Settings, last: journal.Cutover) -> Attention | None:
    """Tell whether the reverse sync stands still: its notes are older than a tail may be behind."""
    count, oldest_s = outbox.backlog(target)
    why = last.detail.get(REVERSE_STOPPED, "")
    if not count or (not why and oldest_s <= settings.cutover.max_lag_s):
        return None
    words = f"the reverse sync does not carry what is written: {count:,} notes, the oldest {oldest_s:,.0f} s old"
    leads_on = (TAIL,) if profile_of(settings.source).reverse_sync else ()
    return Attention(words=f"{words}{f'; {why}' if why else ''}", commands=(*leads_on, RESTORE, CLOSE_EARLY))


def _failed_step(book: Journal) -> str:
    """Return the step that failed, and why, as a clause; empty where none says so."""
    for one in reversed(book.steps()):
        if one.state == "running":
            why = one.detail.get(journal.FAILED)
            return f" in step {one.step}" + (f" ({why})" if why else "")
    return ""
