"""What Celery stores in each serializer is read as plain data, and written as Kombu writes it; nothing else is read."""

import importlib
import json
import pickle
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import msgpack
import pytest
import yaml
from kombu.serialization import dumps, registry

from migrator.errors import ConfigurationError
from migrator.sources.mapping.converters import serializers
from migrator.sources.mapping.converters.serializers import JSON, MESSAGEPACK, PICKLE, YAML, Serializer

BY_NAME = {"json": JSON, "pickle": PICKLE, "msgpack": MESSAGEPACK, "yaml": YAML}
loads: Any = registry.loads
write: Any = dumps
PLAIN: list[Any] = [
    *(None, True, 5, 127, 128, -33, 2**32, -(2**63), 1.5, 1e16, float("inf"), "", "é\U0001f600", "x" * 300),
    *([], {}, [1, [2, {"a": "b"}]], {"b": [None], "a": "1"}, "null", "2026-01-02", "5", "- a"),
]
CHILDREN = [(("child", (("parent", None), None)), None), (("group", None), [(("member", None), None)])]
NOW = datetime(2026, 1, 2, 3, 4, 5, 678)  # noqa: DTZ001 - Celery stores such times too
TIMES = [NOW, NOW.replace(tzinfo=UTC), NOW.replace(tzinfo=ZoneInfo("Europe/Vienna")), NOW.date(), NOW.time()]


@pytest.fixture(autouse=True)
def _with_every_serializer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_disabled_content_types", set())


@pytest.mark.parametrize("name", BY_NAME)
def test_plain_data_is_written_as_kombu_writes_it_and_comes_back(name: str) -> None:
    for value in PLAIN:
        content_type, encoding, payload = write(value, serializer=name)
        written = payload.encode() if isinstance(payload, str) else payload
        serializer = BY_NAME[name]
        assert serializers.in_order(serializer.load(written)) == serializers.in_order(value)
        own = serializer.dump(value)
        if name != "pickle":  # Kombu's has a memo
            assert own == written
        again = loads(own.decode() if serializer.is_text else own, content_type, encoding)
        assert serializers.in_order(again) == serializers.in_order(value)


@pytest.mark.parametrize("name", BY_NAME)
def test_what_celery_stores_beside_a_result_tells_its_serializer(name: str) -> None:
    for value in (CHILDREN, [], {}, (1, "a"), {"at": "now"}, None):
        payload = write(value, serializer=name)[2]
        data = payload.encode() if isinstance(payload, str) else payload
        found = serializers.of_bytes(data)
        if data not in (b"[]\n", b"{}\n"):  # which is JSON too, and says the same
            assert found is BY_NAME[name], data
        assert found.load(data) == json.loads(json.dumps(value))


@pytest.mark.parametrize("value", [*TIMES, Decimal("1.50"), UUID(int=7), b"\xff"])
@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_a_pickle_of_data_is_read_without_being_loaded(value: object, protocol: int) -> None:
    assert PICKLE.load(pickle.dumps({"a": (value, value)}, protocol)) == {"a": [value, value]}


HOSTILE: list[tuple[str, bytes]] = [
    ("a call", pickle.dumps(Path())),
    ("a class", pickle.dumps(Path)),
    ("a set", pickle.dumps({1})),
    ("a key that is no text", pickle.dumps({1: 2})),
    ("a list that is in itself", b"\x80\x04]\x94h\x00a."),
    ("a time of no year", b"\x80\x04cdatetime\ndatetime\nC\x0a\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x85R."),
    ("a UUID without a number", b"\x80\x04cuuid\nUUID\n)\x81}b."),
    ("a truncated one", pickle.dumps([1])[:-1]),
    ("MessagePack with a key that is no text", b"\x81\x01\x02"),
    ("MessagePack of another type", b"\xd4\x05a"),
    ("MessagePack with a time", b"\xd6\xff\0\0\0\0"),
    ("MessagePack that goes on", b"\x01\x01"),
    ("a merge key", b"- &a {x: 1}\n- <<: *a\n"),
    ("YAML in itself", b"&a [*a]\n"),
    ("YAML of an object", b"!!python/object/apply:os.system ['true']\n"),
    (
        "YAML that is a billion values",
        "".join(
            f"- &l{level} [{','.join([f'*l{level - 1}' if level else 'x'] * 9)}]\n" for level in range(10)
        ).encode(),
    ),
    ("compressed", b"\0celery-compressed\0application/x-gzip\0..."),
    ("nothing", b""),
]


@pytest.mark.parametrize("data", [pytest.param(data, id=name) for name, data in HOSTILE])
def test_what_is_no_plain_data_is_not_read(data: bytes) -> None:
    with pytest.raises(serializers.UNREADABLE):
        serializers.of_bytes(data).load(data)


def test_a_place_of_the_memo_takes_no_memory() -> None:
    assert PICKLE.load(b"\x80\x04Nr\xff\xff\xff\x7f.") is None


def test_a_result_in_messagepack_is_no_text() -> None:
    values = [*range(-40, 300), True, None, *("x" * size for size in range(300)), *(b"x" * size for size in range(300))]
    texts = [value for value in values if serializers.is_text(msgpack.packb(value))]
    assert texts == list(range(48, 58)), "a digit of JSON"
    for value in PLAIN:
        assert serializers.is_text(JSON.dump(value))
        assert serializers.is_text(yaml.safe_dump(value, allow_unicode=True).encode())


def test_the_result_of_a_document_tells_its_serializer() -> None:
    results: dict[Any, Serializer | None] = {
        "5": JSON,
        "[]\n": YAML,
        "5\n...\n": YAML,
        None: JSON,
        b"\x80": MESSAGEPACK,
        b"\x80\x04K\x05.": PICKLE,
        b"\x91\x05": MESSAGEPACK,
        b"\0celery-compressed\0application/x-gzip\0...": None,
    }
    for result, expected in results.items():
        assert serializers.of_document(result) is expected


def test_without_pyyaml_its_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_name: str) -> None:
        raise ImportError

    serializers._yaml.cache_clear()
    monkeypatch.setattr(serializers, "import_module", refuse)
    try:
        assert serializers.of_bytes(b"[1]") is JSON
        with pytest.raises(ConfigurationError, match=r"pip install 'scheduler-migrator\[yaml\]'"):
            serializers.of_bytes(b"- 1\n")
    finally:
        serializers._yaml.cache_clear()
        importlib.invalidate_caches()
