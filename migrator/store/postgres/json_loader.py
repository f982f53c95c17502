"""Reading jsonb as records hold it."""

from typing import Any

import psycopg
from psycopg.adapt import Buffer, Loader
from psycopg.pq import Format

from migrator.records.base import EMPTY
from migrator.values.jsonb import canonicalise


class _Text(Loader):
    format = Format.TEXT

    def load(self, data: Buffer) -> bytes:
        return _canonical(bytes(data))


class _Binary(Loader):
    format = Format.BINARY

    def load(self, data: Buffer) -> bytes:
        return _canonical(bytes(data[1:]))


def _canonical(text: bytes) -> bytes:
    return EMPTY if text == EMPTY else canonicalise(text)  # most rows have no residue


def load_json(connection: psycopg.Connection[Any]) -> None:
    """Let a connection give jsonb as canonical bytes."""
    connection.adapters.register_loader("jsonb", _Text)
    connection.adapters.register_loader("jsonb", _Binary)
