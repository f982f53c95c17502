"""The demo's data in a real MongoDB."""

from typing import Any

import pytest
from bson import CodecOptions
from bson.raw_bson import RawBSONDocument
from pymongo.database import Database

from migrator.errors import RefusedError
from migrator.testing.demo import COLLECTIONS, Size, faulty_documents, plan_of, seed

SEED = 5


def stored(database: Database[Any], name: str) -> set[bytes]:
    options: CodecOptions[RawBSONDocument] = CodecOptions(document_class=RawBSONDocument)
    return {document.raw for document in database.get_collection(name, codec_options=options).find()}


def test_every_document_arrives_as_it_was_made_the_spoilt_ones_too(mongo_database: Database[Any]) -> None:
    written = seed(mongo_database, Size.SMALL, SEED)
    plan = plan_of(Size.SMALL, SEED)
    trouble = faulty_documents(SEED)
    assert written.keys() == set(mongo_database.list_collection_names()) == COLLECTIONS.keys() - {"triggers"}
    for name, count in written.items():
        made = [*COLLECTIONS[name](plan), *(item.raw for item in trouble if item.collection == name)]
        assert count == len(made) == mongo_database[name].count_documents({})
        assert stored(mongo_database, name) == set(made), name


def test_a_database_that_holds_anything_is_refused_and_left_alone(mongo_database: Database[Any]) -> None:
    mongo_database["somebody"].insert_one({"_id": 1})
    with pytest.raises(RefusedError, match="not empty: it has somebody"):
        seed(mongo_database, Size.SMALL, SEED)
    assert mongo_database.list_collection_names() == ["somebody"]
