"""What holds for every document of a collection, so that an aggregate need not ask it of each.

The rows say what is expected of all documents: columns that are empty in every row, columns that are filled in every
row, times that are dates, or texts of one form. The parity check, which reads each document anyway, counts what the
fields of its documents hold. It does so apart from both codecs: no plan and no profile says how a field is read. What
does not hold for all is computed document by document.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from importlib import import_module
from typing import Any, Final, Literal, Protocol

import msgspec
from bson.datetime_ms import DatetimeMS

from migrator import native
from migrator.values import document as documents

REGULAR_TIME: Final = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,9}\+00:00|\+00:00|\.[0-9]{3}Z)"
)
"""Texts of which the first in the order of bytes is also the first in time, in whole milliseconds.

"+" is less than "." and than each digit, so a shorter fraction comes first; "Z" is greater, so it has one length.
MongoDB reads no text of this form as the time of another day or minute: it takes neither 30 February nor 24:00.
"""


class Uniformity(msgspec.Struct, frozen=True):
    """Fields at the top of a document, by what all documents have in common."""

    empty: frozenset[str] = frozenset()
    """There is no value in any document."""
    filled: frozenset[str] = frozenset()
    """There is a value in every document."""
    times: frozenset[str] = frozenset()
    """Each value is a date, or each is a text of ``REGULAR_TIME``: the first is the first in time too."""


NOTHING: Final = Uniformity()


class FieldCounts(msgspec.Struct, frozen=True):
    """What the fields of some documents hold."""

    documents: int = 0
    irregular: int = 0
    """Documents with a field that stands twice, or that are no BSON."""
    fields: Mapping[str, tuple[int, int, int]] = {}
    """Field → values (neither null nor undefined), dates, texts of ``REGULAR_TIME``; the last of times alone."""

    def __add__(self, other: "FieldCounts") -> "FieldCounts":
        """Return the counts of both; they are of the same fields, unless either counts no document."""
        both = {
            name: (values + more[0], dates + more[1], texts + more[2])
            for name, (values, dates, texts) in self.fields.items()
            for more in [other.fields.get(name, (0, 0, 0))]
        }
        return FieldCounts(
            documents=self.documents + other.documents,
            irregular=self.irregular + other.irregular,
            fields={**other.fields, **both},
        )


def confirmed(expected: Uniformity, counts: FieldCounts) -> Uniformity:
    """Return the part of what is expected that holds for all documents that were counted."""
    if counts.irregular or not counts.fields:
        return NOTHING
    fields = counts.fields
    return Uniformity(
        empty=frozenset(name for name in expected.empty if fields[name][0] == 0),
        filled=frozenset(name for name in expected.filled if fields[name][0] == counts.documents),
        times=frozenset(name for name in expected.times if fields[name][0] in fields[name][1:]),
    )


class FieldCounter:
    """Counts the fields of the documents that it is given."""

    def __init__(self, fields: Mapping[str, bool]) -> None:
        """``fields``: name of a field at the top of the documents → whether it is a time."""
        self._names = tuple(fields)
        named = [(name.encode(), is_time) for name, is_time in fields.items()]
        speedups: Any = None if native.module() is None else import_module("migrator_speedups.field_counts")
        self._counter: _Counter = _PythonCounter(named) if speedups is None else speedups.FieldCounter(named)

    def add(self, batch: bytes) -> None:
        """Count documents that stand one after the other."""
        self._counter.add(batch, 1)

    def leave_out(self, raw: bytes) -> None:
        """Count a document no more."""
        self._counter.add(raw, -1)

    def counts(self) -> FieldCounts:
        """Return the counts of the documents that were added and not left out."""
        counted = self._counter
        return FieldCounts(counted.documents, counted.irregular, dict(zip(self._names, counted.counts(), strict=True)))


class _Counter(Protocol):
    documents: int
    irregular: int

    def add(self, documents: bytes, sign: Literal[1, -1]) -> None: ...

    def counts(self) -> Sequence[tuple[int, int, int]]: ...


class _PythonCounter:
    """Counts as ``migrator_speedups.field_counts`` does, but for fields that stand twice: BSON is decoded."""

    def __init__(self, fields: Iterable[tuple[bytes, bool]]) -> None:
        self._fields = [(name.decode(), is_time, [0, 0, 0]) for name, is_time in fields]
        self.documents = self.irregular = 0

    def add(self, batch: bytes, sign: Literal[1, -1]) -> None:
        for content in documents.decode_all(documents.split(batch)):
            self.documents += sign
            if isinstance(content, documents.Undecodable):
                self.irregular += sign
                continue
            for name, is_time, counts in self._fields:
                value = content.get(name)
                if value is None:
                    continue
                counts[0] += sign
                if isinstance(value, datetime | DatetimeMS):
                    counts[1] += sign
                elif is_time and isinstance(value, str) and REGULAR_TIME.fullmatch(value):
                    counts[2] += sign

    def counts(self) -> Sequence[tuple[int, int, int]]:
        return [(values, dates, texts) for _, _, (values, dates, texts) in self._fields]
