"""Canonical Extended JSON that is injective: user keys that begin with ``$`` are told from the markers of types.

Standard Extended JSON turns a member document ``{"$oid": ...}`` into an ObjectId when read back. Here every
user key that begins with ``$`` is written with one ``$`` more, and one is taken away on reading. Key order is
kept. Everything else is ``bson.json_util``'s canonical form.
"""

from collections.abc import Mapping

from bson import json_util
from bson.code import Code
from bson.codec_options import DatetimeConversion
from bson.dbref import DBRef

from migrator.values.document import Value

_OPTIONS = json_util.CANONICAL_JSON_OPTIONS.with_options(
    tz_aware=False, datetime_conversion=DatetimeConversion.DATETIME_AUTO
)


def dumps(value: Value) -> str:
    """Return the text of a BSON value: ASCII only, so without NUL."""
    return json_util.dumps(_escaped(value), json_options=_OPTIONS)


def loads(text: str) -> Value:
    """Return the value of a text made by ``dumps``; raises ``ValueError`` or ``TypeError`` for others."""
    return json_util.loads(text, json_options=_OPTIONS, object_pairs_hook=_member_document)


def _escaped(value: Value) -> Value:
    if isinstance(value, DBRef):
        value = value.as_doc()
    if isinstance(value, Mapping):
        return {"$" + key if key.startswith("$") else key: _escaped(member) for key, member in value.items()}
    if isinstance(value, list | tuple):
        return [_escaped(item) for item in value]
    if isinstance(value, Code) and value.scope is not None:
        return Code(str(value), _escaped(value.scope))
    return value


def _member_document(pairs: Value) -> Value:
    found = json_util.object_pairs_hook(pairs, _OPTIONS)
    if isinstance(found, dict):
        return {key.removeprefix("$") if key.startswith("$$") else key: value for key, value in found.items()}
    return found
