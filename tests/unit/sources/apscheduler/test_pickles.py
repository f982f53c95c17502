"""The inert reader of pickles: plain data or a refusal, nothing executed, bounded work."""

import collections
import contextlib
import io
import os
import pickle
import pickletools
import struct
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from migrator.sources import pickles
from migrator.sources.pickles import (
    Global,
    ImportRefusedError,
    Made,
    PickledDict,
    PickleRefusedError,
    read,
    read_opcodes,
)
from tests import native_codec
from tests.apscheduler_documents import FILES, real, state

PROTOCOLS = range(pickle.HIGHEST_PROTOCOL + 1)


def shown(value: Any) -> Any:  # noqa: ANN401 - any plain data
    """Return the answer of a reader in terms that can be compared."""
    if isinstance(value, PickledDict):
        return {"table": [(shown(key), shown(member)) for key, member in value.pairs]}
    if isinstance(value, Made):
        parts = (value.arguments, value.state, value.items, value.pairs)
        return {"made": value.name, "of": [shown(part) for part in parts]}
    if isinstance(value, Global):
        return {"global": value.name}
    return type(value)(shown(one) for one in value) if isinstance(value, list | tuple) else value


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_plain_data_is_read_as_it_was_written(protocol: int) -> None:
    data: list[Any] = [
        None,
        True,
        False,
        0,
        -1,
        255,
        2**31,
        -(2**40),
        2**100,
        1.5,
        "ü",
        "\ud800",
        "a\0b",
        (),
        (1,),
        (1, 2, 3, 4),
        [],
    ]
    assert read(pickle.dumps(data, protocol)) == data
    assert shown(read(pickle.dumps({"a": {1: [2]}}, protocol))) == {"table": [("a", {"table": [(1, [2])]})]}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_data_classes_become_records(protocol: int) -> None:
    found = read(pickle.dumps([{1}, frozenset([2]), b"\x00\xff", timedelta(1), datetime, Decimal("1.5")], protocol))
    assert sorted(map(type, found[2:]), key=str) == [bytes, Global, Made, Made]
    assert found[2] == b"\x00\xff"
    assert [found[at].name for at in (0, 1)] == ["builtins.set", "builtins.frozenset"]
    assert found[3].arguments == (1, 0, 0)
    assert found[4].name == "datetime.datetime"
    assert shown(found[5]) == {"made": "decimal.Decimal", "of": [("1.5",), None, [], []]}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_zones_become_records(protocol: int) -> None:
    found = read(pickle.dumps([ZoneInfo("Europe/Vienna"), UTC, datetime(2026, 1, 1, tzinfo=UTC)], protocol))
    assert (found[0].name, found[0].arguments[0]) == (pickles.UNPICKLE, "Europe/Vienna")
    assert found[1].name == "datetime.timezone"
    assert len(found[2].arguments[0]) == 10


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_containers_keep_their_members(protocol: int) -> None:
    found = read(pickle.dumps([collections.OrderedDict(a=1), collections.deque([1, 2])], protocol))
    assert "a" in str(shown(found[0]))
    assert shown(found[1])["of"][2] == [1, 2] or [1, 2] in shown(found[1])["of"][0]


@pytest.mark.parametrize("name", FILES)
def test_what_the_library_wrote_is_read(name: str) -> None:
    for key, found in real(name).items():
        if key == "bound-method":
            with pytest.raises(ImportRefusedError, match=r"not \w+\.Mailer"):
                read(bytes(found["job_state"]))
        else:
            state = read(bytes(found["job_state"]))
            assert isinstance(state, PickledDict)
            assert state.named()["id"] == key


class Canary:
    """Makes a file when it is unpickled."""

    def __init__(self, path: Path, call: Any, *arguments: Any) -> None:  # noqa: ANN401 - any callable
        self.path, self.call, self.arguments = path, call, arguments

    def __reduce__(self) -> Any:  # noqa: ANN401 - what pickle asks for
        return self.call, self.arguments


def hostile(path: Path) -> dict[str, bytes]:
    """Return pickles that make a file when they are unpickled."""
    touch = f"open({str(path)!r}, 'w').close()"
    found = {}
    for protocol in PROTOCOLS:
        found[f"exec {protocol}"] = pickle.dumps({"func": Canary(path, exec, touch)}, protocol)
        found[f"system {protocol}"] = pickle.dumps(Canary(path, os.system, f"touch {path}"), protocol)
        found[f"getattr {protocol}"] = pickle.dumps(Canary(path, getattr, os.system, "__call__"), protocol)
        found[f"import {protocol}"] = pickle.dumps(Canary(path, __import__, "os"), protocol)
    found["INST"] = b"(S'touch " + str(path).encode() + b"'\nios\nsystem\n."
    found["OBJ"] = b"(cos\nsystem\nS'touch " + str(path).encode() + b"'\no."
    found["getattr of a zone"] = b"cbuiltins\ngetattr\n(czoneinfo\nZoneInfo\nS'from_file'\ntR."
    found["getattr of os"] = b"cbuiltins\ngetattr\n(cos\nsystem\nS'_unpickle'\ntR."
    found["stacked"] = b"\x80\x04\x8c\x05posix\x94\x8c\x06system\x94\x93."
    found["dotted name"] = b"\x80\x04\x8c\x08datetime\x8c\x17datetime.__subclasses__\x93."
    found["dotted module"] = b"\x80\x04\x8c\x00\x8c\x09datetime.\x93."
    return found


@pytest.fixture(scope="module")
def canary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("canary") / "sang"


def test_the_canary_sings_where_pickles_are_executed(canary: Path) -> None:
    pickle.loads(hostile(canary)["exec 5"])
    assert canary.exists()
    canary.unlink()


@pytest.mark.proves("5-S3")
def test_nothing_is_executed(canary: Path) -> None:
    for name, data in hostile(canary).items():
        with pytest.raises(ImportRefusedError) as refused:
            read(data)
        assert "only imports of" in str(refused.value) or "getattr" in str(refused.value), name
        assert not canary.exists(), name


def test_a_refusal_names_the_import_and_no_other_text() -> None:
    with pytest.raises(ImportRefusedError, match=r"data classes, not posix\.system$"):
        read(pickle.dumps(os.system))
    for name in ("<b>", "a b", "é", "x" * 200, "1a"):
        text = f"builtins {name}".encode()
        with pytest.raises(PickleRefusedError) as refused:
            read(b"\x80\x04" + b"".join(b"\x8c" + bytes([len(part)]) + part for part in text.split(b" ", 1)) + b"\x93.")
        assert name not in str(refused.value)


OF_THE_PROGRAM = {
    "PERSID": b"Pone\n.",
    "BINPERSID": b"\x80\x02K\x01Q.",
    "EXT1": b"\x80\x02\x82\x01.",
    "EXT2": b"\x80\x02\x83\x01\x00.",
    "EXT4": b"\x80\x02\x84\x01\x00\x00\x00.",
    "NEXT_BUFFER": b"\x80\x05\x97.",
    "READONLY_BUFFER": b"\x80\x05\x97\x98.",
}


@pytest.mark.parametrize("name", OF_THE_PROGRAM)
def test_what_only_the_program_knows_is_refused(name: str) -> None:
    assert name in {opcode.name for opcode in pickletools.opcodes}
    with pytest.raises(PickleRefusedError, match="no persistent id, no extension code"):
        read(OF_THE_PROGRAM[name])


def test_every_opcode_is_known_to_the_reader() -> None:
    known = {*pickles._STEPS}
    assert {opcode.name for opcode in pickletools.opcodes} == known | set(OF_THE_PROGRAM)
    assert known.isdisjoint(OF_THE_PROGRAM)
    refused = {code for code, (_, step) in pickles._OPERATIONS.items() if step is pickles._Machine.refuse}
    assert refused == {one.code.encode("latin-1") for one in pickletools.opcodes if one.name in OF_THE_PROGRAM}


BROKEN = {
    "nothing": b"",
    "no end": b"\x80\x04N",
    "text": b"hello",
    "two values": b"NN.",
    "an open mark": b"(N.",
    "nothing on the stack": b".",
    "no mark": b"t.",
    "append to a number": b"K\x01K\x02a.",
    "a member of a list": b"]K\x01K\x02s.",
    "odd members": b"}(K\x01u.",
    "an unknown memo": b"h\x05.",
    "state of a list": b"]}b.",
    "a call of a text": b"X\x01\x00\x00\x00a)R.",
    "a call without a tuple": b"cdatetime\ndatetime\n]R.",
    "a global of numbers": b"\x80\x04K\x01K\x02\x93.",
    "encode of numbers": b"c_codecs\nencode\n(K\x01K\x02tR.",
    "encode beyond latin-1": b"c_codecs\nencode\n(X\x03\x00\x00\x00\xe2\x82\xacX\x06\x00\x00\x00latin1tR.",
    "a reconstruction of nothing": b"ccopy_reg\n_reconstructor\n(tR.",
    "arguments by name": b"\x80\x04\x8c\x08datetime\x8c\x08datetime\x93)}\x8c\x01aK\x01s\x92.",
    "an object of nothing": b"(o.",
    "a negative length": b"\x8b\xff\xff\xff\xff.",
    "a length beyond the end": b"\x8e\xff\xff\xff\xff\xff\xff\xff\x7f.",
    "digits that are none": b"Ix\n.",
    "bytes after the end": b"N.N",
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_pickle_is_refused(name: str) -> None:
    with pytest.raises(PickleRefusedError) as refused:
        read(BROKEN[name])
    assert not isinstance(refused.value, ImportRefusedError)


def test_a_pickle_may_not_be_cut_anywhere() -> None:
    data = bytes(real("3.11.3")["cron-window"]["job_state"])
    for end in range(len(data)):
        with pytest.raises(PickleRefusedError):
            read(data[:end])


def laughs() -> bytes:
    """Return a small pickle of ten lists, each of which holds the one before it ten times."""
    held: Any = "ha"
    for _ in range(10):
        held = [held] * 10
    return pickle.dumps(held)


def circle() -> bytes:
    held: list[Any] = []
    held.append(held)
    return pickle.dumps(held)


def repeated_text() -> bytes:
    return pickle.dumps(["x" * 1_000_000] * 1_000)


def texts_made(call: bytes, length: int = 1_000_000) -> bytes:
    """Return a small pickle that makes a text of a million characters again and again, and throws it away."""
    text = b"X" + struct.pack("<I", length) + b"x" * length + b"q\x000"
    return text + call + b"q\x010" + b"U\x06latin1q\x020" + b"h\x01h\x00h\x02\x86R0" * 1_000 + b"N."


LARGE: dict[str, tuple[Callable[[], bytes], str]] = {
    "50 MB": (lambda: pickle.dumps(b"\0" * 50_000_000), "at most 16777216 bytes"),
    "10,000 deep": (lambda: b"]" * 10_000 + b"a" * 9_999 + b".", "at most 100 values inside each other"),
    "10,000 tuples deep": (lambda: b")" + b"\x85" * 10_000 + b".", "at most 100 values inside each other"),
    "10,000 records deep": (
        lambda: b"cbuiltins\nset\nq\x000" + b"h\x00" * 10_001 + b")R" + b"\x85R" * 10_000 + b".",
        "at most 100 values inside each other",
    ),
    "lists of themselves": (circle, "at most 100 values inside each other"),
    "a billion laughs": (laughs, "at most 500000 values"),
    "a text a thousand times": (repeated_text, "characters"),
    "a text encoded a thousand times": (lambda: texts_made(b"c_codecs\nencode\n"), "characters"),
    "an array of bytes a thousand times": (lambda: texts_made(b"cbuiltins\nbytearray\n"), "characters"),
    "opcodes": (lambda: b"N0" * 500_001 + b"N.", "at most 500000 opcodes"),
    "a million marks": (lambda: b"(" * 500_001 + b".", "at most 500000 opcodes"),
    "an integer": (lambda: b"\x80\x02\x8b" + struct.pack("<i", 1_000_000) + b"\x7f" * 1_000_000 + b".", "8192 bits"),
    "digits": (lambda: b"L" + b"9" * 100_000 + b"L\n.", "a whole pickle"),
}


@pytest.mark.parametrize("name", LARGE)
def test_work_is_bounded(name: str) -> None:
    make, sentence = LARGE[name]
    with pytest.raises(PickleRefusedError, match=sentence):
        read(make())


def test_the_lists_hold_what_the_pickler_writes() -> None:
    """A frame, a memo and a shared value are no matter of content."""
    shared = ["once"]
    stream = io.BytesIO()
    pickle.Pickler(stream, 4).dump([shared, shared])
    found = read(stream.getvalue())
    assert found == [["once"], ["once"]]
    assert found[0] is found[1]


def test_pickles_with_one_trigger_share_what_it_makes() -> None:
    native_codec.needed()
    first, second = (read(pickle.dumps(state(id=key, name=key))).named() for key in ("a", "b"))
    assert (first["id"], second["id"]) == ("a", "b")
    assert first["trigger"] is second["trigger"]


def test_texts_from_before_a_trigger_tell_triggers_apart() -> None:
    """The pickler writes a text once: the key ``version`` of the trigger is that of the job."""
    whole = pickle.dumps(state())
    for word in ("version", "Version"):
        changed = whole.replace(b"\x8c\x07version", b"\x8c\x07" + word.encode(), 1)
        found = dict(read(changed).pairs)["trigger"].state.named()
        assert found[word] == 2
        assert shown(read(changed)) == shown(read_opcodes(changed))


@pytest.mark.parametrize("change", [b"}b", b"K\x01a", b"K\x01K\x02s", b"(K\x01e", b"(K\x01K\x02u"])
def test_a_pickle_that_changes_a_trigger_changes_no_other(change: bytes) -> None:
    whole = pickle.dumps(state())
    before = shown(read(whole))
    for place in range(whole.count(b"\x94")):
        recalled = whole[:-1] + b"h" + bytes([place]) + change + b"\x86."
        for reader in (read, read_opcodes):
            with contextlib.suppress(PickleRefusedError):
                reader(recalled)
    assert shown(read(whole)) == before
