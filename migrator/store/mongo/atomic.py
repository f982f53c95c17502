"""Transactions that are begun again: what belongs to no session, and may be done anew as a whole."""

from collections.abc import Callable
from typing import TypeVar

from pymongo import ReadPreference
from pymongo.errors import PyMongoError
from pymongo.read_concern import ReadConcern
from pymongo.write_concern import WriteConcern

from migrator.errors import ConflictError, MigratorError
from migrator.store.mongo.client import Source, speaking_of
from migrator.store.mongo.epoch import require_here
from migrator.store.mongo.transaction import WHAT, Transaction, pause

Result = TypeVar("Result")

_AGAIN = 8
_LONGEST_WAIT = 1.0
_ATTEMPTS = 200


class Overtaken(Exception):  # noqa: N818 - an outcome, which the caller takes into account
    """Another session wrote the same documents at the same moment; nothing of this one is kept."""


def atomically(database: Source, act: Callable[[Transaction], Result]) -> Result:
    """Return what ``act`` makes of a transaction that lasts; raises ``Overtaken``.

    Where the server says that the transaction may be begun again (its primary stepped down, the connection broke before
    the end) it is, after a while: ``act`` may be called several times, and only the last one counts.
    """
    for attempt in range(_AGAIN):
        try:
            return _once(database, act)
        except MigratorError as error:
            cause = error.__cause__
            if not isinstance(cause, PyMongoError):
                raise
            if isinstance(error, ConflictError):
                raise Overtaken from error
            if attempt == _AGAIN - 1 or not cause.has_error_label("TransientTransactionError"):
                raise
        pause(attempt, longest=_LONGEST_WAIT)
    raise AssertionError  # the last attempt returns or raises


def insistently(database: Source, act: Callable[[Transaction], Result]) -> Result:
    """Do the same until nobody overtakes; raises ``ConflictError`` where that never happens."""
    for attempt in range(_ATTEMPTS):
        try:
            return atomically(database, act)
        except Overtaken:
            pause(attempt)
    raise ConflictError("other sessions write the same all the time")


def _once(database: Source, act: Callable[[Transaction], Result]) -> Result:
    with speaking_of(WHAT), database.client.start_session() as session:
        session.start_transaction(ReadConcern("snapshot"), WriteConcern("majority"), ReadPreference.PRIMARY)
        transaction = Transaction(database, session)
        try:
            require_here(database, session)
            result = act(transaction)
            transaction.commit()
        except BaseException:
            transaction.abort()
            raise
        return result
