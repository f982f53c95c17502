"""The names of BSON types, as MongoDB's ``$type`` spells them."""

from datetime import date, datetime
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

from bson.binary import Binary
from bson.code import Code
from bson.datetime_ms import DatetimeMS
from bson.dbref import DBRef
from bson.decimal128 import Decimal128
from bson.int64 import Int64
from bson.max_key import MaxKey
from bson.min_key import MinKey
from bson.objectid import ObjectId
from bson.regex import Regex
from bson.timestamp import Timestamp

NAMES: Final[dict[type, str]] = {
    str: "string",
    int: "int",
    Int64: "long",
    float: "double",
    bool: "bool",
    type(None): "null",
    datetime: "date",
    DatetimeMS: "date",
    ObjectId: "objectId",
    Decimal128: "decimal",
    Binary: "binData",
    bytes: "binData",
    dict: "object",
    list: "array",
    Regex: "regex",
    Timestamp: "timestamp",
    Code: "javascript",
    DBRef: "dbPointer",
    MinKey: "minKey",
    MaxKey: "maxKey",
}


_OF_COLUMNS: Final[dict[type, str]] = {UUID: "uuid", tuple: "array", Decimal: "numeric", date: "date"}
"""Values of columns that BSON has no type for, as PostgreSQL calls them."""


def type_name(value: Any) -> str:  # noqa: ANN401 - any BSON value, or one of a column
    """Return the BSON type of a decoded value, or the PostgreSQL type of a column's value that BSON does not have."""
    for kind in type(value).__mro__:
        name = NAMES.get(kind) or _OF_COLUMNS.get(kind)
        if name is not None:
            return name
    return "unknown"
