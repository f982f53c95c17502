"""Where a residue is stored: in ``extra`` of the owner row, or under one reserved key inside its ``payload``.

The owner row is the first of a document's rows. Graph jobs and their events keep exactly the columns of their plan,
have no ``extra``, and use the payload functions. A residue is the JSON text that ``values.residue.difference`` writes.

A source document may have a key named like the reserved one. No escape is needed: ``encode`` of a profile always leaves
the reserved key out, so such a document is never clean, its own key lands in the residue, and the residue takes the
key's place.
"""

import msgspec

from migrator.records.base import EMPTY, Record

RESIDUE_KEY = "$residue"
"""The top-level key of a payload that holds its residue; a profile's ``encode`` must leave it out of the document."""


class _Reserved(msgspec.Struct):
    """Only the residue of a payload; everything else is passed over."""

    residue: msgspec.Raw = msgspec.field(name=RESIDUE_KEY, default_factory=msgspec.Raw)


_MEMBERS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_RESERVED = msgspec.json.Decoder(_Reserved)
_SORTED = msgspec.json.Encoder(order="deterministic")


def attach_extra(rows: tuple[Record, ...], residue: bytes) -> tuple[Record, ...]:
    """Return the rows with ``residue`` in ``extra`` of the first one."""
    return (msgspec.structs.replace(rows[0], extra=residue), *rows[1:])


def residue_of(rows: tuple[Record, ...]) -> bytes:
    """Return the residue in ``extra`` of the first row."""
    residue: bytes = rows[0].extra  # type: ignore[attr-defined] # only records that have it come here
    return residue


def attach_payload(rows: tuple[Record, ...], residue: bytes) -> tuple[Record, ...]:
    """Return the rows with ``residue`` under the reserved key of the first one's ``payload``.

    An empty residue removes the key. The other members keep their text byte for byte, so that a
    payload compares equal however its residue got there.
    """
    payload: bytes = rows[0].payload  # type: ignore[attr-defined] # only records that have it come here
    members = _MEMBERS.decode(payload)
    members.pop(RESIDUE_KEY, None)
    if residue != EMPTY:
        members[RESIDUE_KEY] = msgspec.Raw(residue)
    return (msgspec.structs.replace(rows[0], payload=_SORTED.encode(members)), *rows[1:])


def residue_of_payload(rows: tuple[Record, ...]) -> bytes:
    """Return the residue under the reserved key of the first row's ``payload``, or that of a clean document."""
    payload: bytes = rows[0].payload  # type: ignore[attr-defined] # only records that have it come here
    return bytes(_RESERVED.decode(payload).residue) or EMPTY
