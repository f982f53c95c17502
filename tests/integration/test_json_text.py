"""The text that the native codec writes is, byte for byte, what PostgreSQL sends back for it."""

import random

import psycopg
import pytest
from bson.int64 import Int64

from migrator.values import document, jsonb

native = pytest.importorskip("migrator_speedups.json_text", reason="the native codec is not built")

VALUES = 4_000
_CHARACTERS = [chr(code) for code in (*range(1, 0x30), 0x22, 0x5C, 0x7F, 0x80, 0xE9, 0x2028, 0xFFFD, 0xFFFF, 0x1F600)]


def _text(stream: random.Random) -> str:
    if stream.random() < 0.5:
        return "".join(stream.choices("abcdefghijklmnop é", k=stream.randrange(30)))
    return "".join(stream.choices(_CHARACTERS, k=stream.randrange(12)))


def _scalar(stream: random.Random) -> object:
    choices = (
        stream.choice((True, False, None)),
        stream.randrange(-(2**31), 2**31),
        Int64(stream.choice((-1, 1)) * stream.randrange(2**31 + 1, 2**63)),
        stream.choice((-1, 1)) * 10 ** stream.uniform(-4, 15),
        stream.choice((0.0, 5.0, 0.0001, 0.1, 123456789012345.6, 999999999999999.9)),
        _text(stream),
    )
    return stream.choice(choices)


def _value(stream: random.Random, depth: int) -> object:
    if not depth or stream.random() < 0.7:
        return _scalar(stream)
    if stream.random() < 0.3:
        return [_value(stream, depth - 1) for _ in range(stream.randrange(12))]
    keys = ["".join(stream.choices("abcé{ ", k=stream.randrange(5))) for _ in range(stream.randrange(20))]
    return {key: _value(stream, depth - 1) for key in keys}


def test_the_server_sends_the_text_back_unchanged(postgres_dsn: str) -> None:
    stream = random.Random(41)
    values = [{"": _value(stream, 4)} for _ in range(VALUES)]
    raws = [document.encode(value) for value in values]
    written = [native.json_of(0x03, raw) for raw in raws]
    assert sum(text is not None for text in written) > VALUES * 0.9
    with psycopg.connect(postgres_dsn) as connection:
        stored = connection.execute(
            "SELECT convert_to(given::jsonb::text, 'UTF8') FROM unnest(%s::text[]) WITH ORDINALITY AS t (given, place)"
            " ORDER BY place",
            [[jsonb.encode(document.decode(raw)).decode() for raw in raws]],
        ).fetchall()
    for raw, text, (sent,) in zip(raws, written, stored, strict=True):
        assert jsonb.as_sent(jsonb.encode(document.decode(raw))) == sent
        if text is not None:
            assert text == sent
            assert native.bson_of(sent, 0x03, raw) == (0x03, raw)
