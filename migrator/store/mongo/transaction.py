"""MongoDB transactions: one of a session, and those that are begun again; the driver's errors as the store's."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TypeAlias, TypeVar
from weakref import WeakKeyDictionary

import bson
from bson.codec_options import CodecOptions
from bson.errors import BSONError
from bson.raw_bson import RawBSONDocument
from pymongo import MongoClient, ReadPreference, ReplaceOne, ReturnDocument, UpdateOne
from pymongo.client_session import ClientSession
from pymongo.command_cursor import CommandCursor
from pymongo.cursor import Cursor
from pymongo.errors import BulkWriteError, OperationFailure, PyMongoError
from pymongo.read_concern import ReadConcern
from pymongo.write_concern import WriteConcern

from migrator.connections.mongo import MongoDatabase, translate_errors
from migrator.errors import MigratorError, OvertakenError, UnreachableError, UsageError
from migrator.sources.profile import Document
from migrator.store.conflicts import is_overtaken, repeat
from migrator.store.mongo.epoch import require_here


class _RawDocument(RawBSONDocument):
    """A document that stays BSON, also within a reply of which the driver moves the labels into its error.

    While the primary changes, a reply may have both an outcome and an error. The driver calls ``update`` on the error,
    which its own class of raw documents lacks (``pymongo.helpers_shared._check_command_response`` of 4.20).
    """

    __slots__ = ("_added",)

    def update(self, more: Mapping[str, Any]) -> None:
        """Let ``[]`` and ``get`` give these members, in place of its own."""
        self._added = dict(more)

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401 - any BSON value
        """Return a member."""
        added: dict[str, Any] = getattr(self, "_added", {})
        return added[name] if name in added else super().__getitem__(name)


WHAT = "the source"
_RAW: CodecOptions[RawBSONDocument] = CodecOptions(document_class=_RawDocument)
Change: TypeAlias = UpdateOne | ReplaceOne[Document]
_DUPLICATE = 11000
_TOO_LARGE = frozenset({10334, 17280, 17419, 17420})
"""BSONObjectTooLarge, KeyTooLong, and a document that an update makes too large: no other attempt may pass."""
_INDEXES: WeakKeyDictionary[MongoClient[Document], set[tuple[str, str, str]]] = WeakKeyDictionary()
"""Indexes that are known to be there: database, collection, name."""
_OVERTAKEN = frozenset({24, 112, 246, 251})
"""LockTimeout, WriteConflict, SnapshotUnavailable, NoSuchTransaction."""
_NOT_READY = frozenset({24, 246})
"""Of these, the codes that say nothing of another session: a collection is created, or gets an index."""
_ATTEMPTS = 14
"""Two seconds on average: a collection that is created reaches the snapshots of a busy server late."""
Result = TypeVar("Result")
Found = TypeVar("Found", bound=Mapping[str, Any])


class Transaction:
    """What the repositories ask of the driver. MongoDB ends a transaction at the first error, so it stays ended.

    ``start`` starts the transaction of ``session``; ``begin`` calls it. A transaction whose first statement is a read
    that the server refuses for the moment (a collection was created after the snapshot was taken) is begun again:
    nobody has seen anything of it yet. If ``start`` is omitted, the caller has started the transaction, and repeats it.
    """

    def __init__(
        self, database: MongoDatabase, session: ClientSession, start: Callable[[], None] | None = None
    ) -> None:
        self.database, self._session, self._start = database, session, start
        self._used = start is None
        self._ended: MigratorError | None = None
        self._mine: set[tuple[str, bytes]] = set()

    def begin(self) -> None:
        """Start the transaction."""
        if self._start is not None:
            self._retry_from_start(self._start)

    def find(
        self,
        name: str,
        where: Mapping[str, Any],
        *,
        sort: Sequence[tuple[str, int]] = (),
        limit: int | None = None,
        hint: str | None = None,
        batch: int | None = None,
    ) -> Iterator[bytes]:
        """Yield the documents of a collection as BSON; ``hint`` names the index to be used.

        ``batch``: how many the server sends at once; if omitted, 101 and then as many as 16 MB hold.
        """
        for document in self._found(self._raw(name), where, None, sort, limit, hint, batch):
            yield document.raw

    def project(
        self,
        name: str,
        where: Mapping[str, Any],
        fields: Sequence[str],
        *,
        sort: Sequence[tuple[str, int]] = (),
        limit: int | None = None,
        hint: str | None = None,
    ) -> Iterator[Document]:
        """Yield some fields of the documents."""
        return self._found(self.database[name], where, dict.fromkeys(fields, 1), sort, limit, hint)

    def distinct(self, name: str, field: str, where: Mapping[str, Any]) -> list[Any]:
        """Return the values that a field has in the documents that match."""
        with self._translating():
            return self.database[name].distinct(field, where, session=self._session)

    def aggregate(self, name: str, pipeline: Sequence[Mapping[str, Any]], hint: str | None = None) -> list[Document]:
        """Return the documents that a pipeline yields; ``hint`` names the index to be used."""
        return self._aggregated(self.database[name], pipeline, hint)

    def aggregate_raw(
        self, name: str, pipeline: Sequence[Mapping[str, Any]], hint: str | None = None
    ) -> list[RawBSONDocument]:
        """Return the same; what is not looked at stays BSON."""
        return self._aggregated(self._raw(name), pipeline, hint)

    def insert(self, name: str, documents: Sequence[Document]) -> None:
        """Insert; ``OvertakenError``, and the end of the transaction, if another session took a key that was free."""
        with self._translating():
            self.database[name].insert_many(documents, session=self._session)
        self._mine |= {_place(name, one["_id"]) for one in documents}

    def replace(self, name: str, document: Document) -> None:
        """Replace the document of this ``_id``."""
        with self._translating():
            self.database[name].replace_one({"_id": document["_id"]}, document, session=self._session)
        self._mine.add(_place(name, document["_id"]))

    def may_write(self, name: str, raw: bytes) -> bool:
        """Whether nobody else is writing this document, or has done so since this transaction read it.

        It is tried out in a transaction of its own, which is undone: a conflict here would end this one. Who begins to
        write it between this and this transaction's own write is not seen.
        """
        key = RawBSONDocument(raw)["_id"]
        if _place(name, key) in self._mine:
            return True
        with translate_errors(WHAT), self.database.client.start_session() as session:
            session.start_transaction(ReadConcern("snapshot"))
            try:
                found = self._raw(name).find_one({"_id": key}, session=session)
                if found is None or found.raw != raw:
                    return False
                self.database[name].update_one({"_id": key}, {"$set": {"~": 1}}, session=session)
            except OperationFailure as error:
                if error.code in _OVERTAKEN:
                    return False
                raise
            finally:
                session.abort_transaction()
        return True

    def change(
        self,
        name: str,
        where: Mapping[str, Any],
        update: Mapping[str, Any] | Sequence[Mapping[str, Any]],
        hint: str | None = None,
    ) -> None:
        """Update all that match."""
        with self._translating():
            self.database[name].update_many(where, update, hint=self._hint(name, hint), session=self._session)

    def write(self, name: str, changes: Sequence[Change]) -> None:
        """Make many changes at once, each of one document."""
        with self._translating():
            self.database[name].bulk_write(changes, session=self._session)

    def take(
        self, name: str, where: Mapping[str, Any], update: Sequence[Mapping[str, Any]], *, upsert: bool = False
    ) -> Document | None:
        """Update the one that matches, and return it as it is then; none where there is none."""
        with self._translating():
            document: Document | None = self.database[name].find_one_and_update(
                where, update, upsert=upsert, return_document=ReturnDocument.AFTER, session=self._session
            )
            return document

    def take_alone(
        self,
        name: str,
        where: Mapping[str, Any],
        update: Sequence[Mapping[str, Any]],
        sort: Sequence[tuple[str, int]],
    ) -> bytes | None:
        """Update the first that matches, outside of any transaction, for a majority; return it as it is then."""
        with self._translating():
            raw = self._raw(name, WriteConcern("majority")).find_one_and_update(
                where, update, sort=sort, return_document=ReturnDocument.AFTER
            )
            return None if raw is None else bytes(raw.raw)

    def delete(self, name: str, where: Mapping[str, Any]) -> int:
        """Delete all that match; return how many."""
        with self._translating():
            return self.database[name].delete_many(where, session=self._session).deleted_count

    def commit(self) -> None:
        """Make all of it last; raises what ended the transaction, where something did."""
        if self._ended is not None:
            raise self._ended
        with self._translating():
            # A commit that is sent twice is done once: it is the same transaction.
            repeat(self._session.commit_transaction, _labelled("UnknownTransactionCommitResult"), attempts=3, longest=0)

    def abort(self) -> None:
        """Undo all of it."""
        with suppress(PyMongoError):
            self._session.abort_transaction()

    def _raw(self, name: str, write_concern: WriteConcern | None = None) -> Any:  # noqa: ANN401 - a collection whose documents stay BSON
        return self.database.get_collection(name, codec_options=_RAW, write_concern=write_concern)

    def _found(
        self,
        collection: Any,  # noqa: ANN401 - as of ``_raw``
        where: Mapping[str, Any],
        shown: Mapping[str, int] | None,
        sort: Sequence[tuple[str, int]],
        limit: int | None,
        hint: str | None,
        batch: int | None = None,
    ) -> Iterator[Any]:
        options: dict[str, Any] = {
            "limit": limit or 0,
            "hint": self._hint(collection.name, hint),
            "batch_size": batch or 0,
        }
        with self._translating():
            yield from self._first(
                lambda: collection.find(where, shown, sort=list(sort) or None, session=self._session, **options)
            )

    def _aggregated(self, collection: Any, pipeline: Sequence[Mapping[str, Any]], hint: str | None) -> list[Any]:  # noqa: ANN401 - as of ``_raw``
        hint = self._hint(collection.name, hint)
        options: dict[str, Any] = {} if hint is None else {"hint": hint}
        with self._translating():
            return list(self._first(lambda: collection.aggregate(pipeline, session=self._session, **options)))

    def _hint(self, name: str, hint: str | None) -> str | None:
        """Return the hint if there is such an index; opening a store makes none, and the server refuses the query then.

        It is asked outside of the transaction, which a refused query would end. What is there is asked for once.
        """
        if hint is None:
            return None
        known = _INDEXES.setdefault(self.database.client, set())
        if (self.database.name, name, hint) not in known:
            found = self.database[name].index_information()
            known |= {(self.database.name, name, index) for index in found}
        return hint if (self.database.name, name, hint) in known else None

    def _first(self, read: Callable[[], Cursor[Found] | CommandCursor[Found]]) -> Iterator[Found]:
        """Yield the documents of a read. A read that is the first statement is tried again with its transaction."""

        def opened() -> tuple[Cursor[Found] | CommandCursor[Found], Found | None]:
            if not self._used and self._start is not None and not self._session.in_transaction:
                self._start()
            cursor = read()
            try:
                return cursor, next(cursor, None)
            except BaseException:
                cursor.close()
                raise

        cursor, first = opened() if self._used else self._retry_from_start(opened)
        self._used = True
        with cursor:
            if first is not None:
                yield first
                yield from cursor

    def _retry_from_start(self, act: Callable[[], Result]) -> Result:
        """Return the answer of ``act``; after a transient error, abort the transaction and call ``act`` again."""

        def once() -> Result:
            try:
                return act()
            except OperationFailure as error:
                if _may_begin_again(error):
                    self.abort()
                raise

        return repeat(
            once,
            lambda error: isinstance(error, OperationFailure) and _may_begin_again(error),
            attempts=_ATTEMPTS,
            longest=_LONGEST_WAIT,
        )

    @contextmanager
    def _translating(self) -> Iterator[None]:
        if self._ended is not None:
            raise self._ended
        try:
            with translate_errors(WHAT):
                yield
                self._used = True
        except (BSONError, OverflowError, UnicodeEncodeError, RecursionError) as error:
            # ``validation`` refuses such values first; the driver has sent nothing.
            raise UsageError(f"{WHAT}: a value has no place in a document: {type(error).__name__}") from error
        except UnreachableError as error:
            if isinstance(error.__cause__, OperationFailure) and error.__cause__.code in _TOO_LARGE:
                self._ended = UsageError(f"{WHAT} cannot hold a value: {error}")
                raise self._ended from error.__cause__
            self._ended = _overtaken(error.__cause__) or error
            raise self._ended from error.__cause__


def _place(name: str, key: object) -> tuple[str, bytes]:
    """Return the key of a document; ``_id``s need not be hashable."""
    return name, bson.encode({"_id": key})


def _labelled(label: str) -> Callable[[BaseException | None], bool]:
    """Return the function that tells whether the driver has put a label on an error."""
    return lambda error: isinstance(error, PyMongoError) and error.has_error_label(label)


_may_begin_again = _labelled("TransientTransactionError")


def _overtaken(error: BaseException | None) -> OvertakenError | None:
    """Return the store's error for a transaction that lost against another one."""
    if isinstance(error, BulkWriteError):
        codes = {one.get("code") for one in (error.details or {}).get("writeErrors", ())}
    else:
        codes = {error.code} if isinstance(error, OperationFailure) else set()
    if _DUPLICATE in codes:
        return OvertakenError("another session took the same key at the same moment")
    if codes & _OVERTAKEN:
        return OvertakenError("another session wrote the same at the same moment")
    return None


_LONGEST_WAIT = 1.0
_OVERTAKEN_ATTEMPTS = 200


def in_transaction(database: MongoDatabase, act: Callable[[Transaction], Result]) -> Result:
    """Return the answer of ``act``, in a transaction that is committed; raises ``OvertakenError``.

    If the server says that the transaction may be begun again, and no other session was first (the primary stepped
    down, the connection broke before the end, a collection is created or gets an index), ``act`` is called again after
    a pause, and only the last call counts.
    """

    def begins_again(error: Exception) -> bool:
        cause = error.__cause__
        if isinstance(error, OvertakenError):
            return isinstance(cause, OperationFailure) and cause.code in _NOT_READY
        return isinstance(error, MigratorError) and _may_begin_again(cause)

    return repeat(lambda: _once(database, act), begins_again, attempts=_ATTEMPTS, longest=_LONGEST_WAIT)


def retry_overtaken(database: MongoDatabase, act: Callable[[Transaction], Result]) -> Result:
    """Do the same, and begin again each time another session was first; raises ``OvertakenError`` after the last."""
    return repeat(lambda: in_transaction(database, act), is_overtaken, attempts=_OVERTAKEN_ATTEMPTS)


def _once(database: MongoDatabase, act: Callable[[Transaction], Result]) -> Result:
    with translate_errors(WHAT), database.client.start_session() as session:
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
