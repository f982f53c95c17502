"""Random changes to a scheduler's documents: as an application, a person and a clumsy script would make them."""

import random
from collections.abc import Sequence
from typing import Any

from bson import ObjectId
from bson.raw_bson import RawBSONDocument
from pymongo.database import Database
from pymongo.errors import DuplicateKeyError

Document = dict[str, Any]

WRONG: Sequence[Any] = (None, 7, "", "elsewhere", [], {"a": {"b": 1}}, "\0", True)
"""Values that most fields do not take."""


class Workload:
    """Changes documents of a database; the same seed makes the same changes of the same documents."""

    def __init__(self, database: Database[Any], seed: int) -> None:
        self.database = database
        self.dice = random.Random(seed)
        self.done = 0
        self._removed: list[tuple[str, Document]] = []
        self._ids = {name: self._all(name) for name in self._names()}

    def _all(self, name: str) -> list[Any]:
        return [one["_id"] for one in self.database[name].find({}, {"_id": 1}).sort("_id")]

    def _names(self) -> list[str]:
        return sorted(name for name in self.database.list_collection_names() if not name.startswith("system."))

    def run(self, changes: int) -> None:
        """Make some changes."""
        kinds = [self._insert, self._update, self._update, self._update, self._replace, self._delete, self._restore]
        for _ in range(changes):
            self.dice.choice(kinds)()
            self.done += 1

    def _pick(self) -> tuple[str, Any]:
        name = self.dice.choice([name for name, ids in self._ids.items() if ids])
        return name, self.dice.choice(self._ids[name])

    def _some(self) -> tuple[str, Document] | None:
        name, key = self._pick()
        try:
            found = self.database[name].find_one({"_id": key})
        except Exception:  # noqa: BLE001 - planted documents that the driver cannot decode
            return None
        return None if found is None else (name, found)

    def _insert(self) -> None:
        picked = self._some()
        if picked is not None:
            name, document = picked
            self._put(name, {**document, "_id": self._new_id(document["_id"])})

    def _new_id(self, like: Any) -> Any:  # noqa: ANN401 - any BSON value
        text = f"{self.dice.getrandbits(128):032x}"
        if isinstance(like, str):
            head, bar, _ = like.rpartition("_")
            return f"{head}{bar}{text}"
        return ObjectId(text[:24])

    def _put(self, name: str, document: Document) -> None:
        try:
            self.database[name].insert_one(document)
        except DuplicateKeyError:
            return
        self._ids[name].append(document["_id"])

    def _update(self) -> None:
        picked, other = self._some(), self._some()
        if picked is None:
            return
        name, document = picked
        fields = [field for field in document if field != "_id"]
        if not fields:
            return
        field = self.dice.choice(fields)
        like = other[1].get(field) if other is not None and other[0] == name else None
        choice = self.dice.random()
        if choice < 0.15:
            change: Document = {"$unset": {field: ""}}
        elif choice < 0.3:
            change = {"$set": {field: self.dice.choice(WRONG)}}
        elif choice < 0.5:
            change = {"$set": {"note": self.dice.random()}}
        else:
            change = {"$set": {field: document[field] if like is None else like}}
        self._try(name, document["_id"], change)

    def _try(self, name: str, key: Any, change: Document) -> None:  # noqa: ANN401 - any BSON value
        try:
            self.database[name].update_one({"_id": key}, change)
        except DuplicateKeyError:
            return

    def _replace(self) -> None:
        picked = self._some()
        if picked is None:
            return
        name, document = picked
        key = self.dice.choice(self._ids[name])
        self.database[name].replace_one({"_id": key}, {field: document[field] for field in document if field != "_id"})

    def _delete(self) -> None:
        picked = self._some()
        if picked is None:
            return
        name, document = picked
        self.database[name].delete_one({"_id": document["_id"]})
        self._removed.append((name, document))

    def _restore(self) -> None:
        if self._removed:
            name, document = self._removed.pop(self.dice.randrange(len(self._removed)))
            self._put(name, document)

    def drop(self, name: str) -> None:
        """Drop a collection, and put some of its documents back into it."""
        kept = [RawBSONDocument(one.raw) for one in self._raw(name)]
        self.database[name].drop()
        if kept:
            self.database[name].insert_many(self.dice.sample(kept, len(kept) // 2))

    def swap(self, name: str) -> None:
        """Put another collection in the place of one, as a restore does: made beside it, and renamed over it."""
        kept = [RawBSONDocument(one.raw) for one in self._raw(name)]
        beside = self.database["beside"]
        beside.insert_many(self.dice.sample(kept, len(kept) // 2))
        beside.rename(name, dropTarget=True)

    def _raw(self, name: str) -> list[Any]:
        from bson.raw_bson import DEFAULT_RAW_BSON_OPTIONS  # noqa: PLC0415 - only here

        return list(self.database[name].with_options(codec_options=DEFAULT_RAW_BSON_OPTIONS).find())
