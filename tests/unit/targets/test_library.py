"""A library is asked by a process, of which everything may go wrong."""

import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from migrator.targets import library
from migrator.targets.library import (
    Interpreter,
    LibraryError,
    LibraryMissingError,
    LibraryRequest,
    MongoStore,
    PostgresStore,
    answer,
    ask,
)

STORE = PostgresStore("postgresql://somebody:secret@127.0.0.1:1/none")
REQUEST = LibraryRequest(do="entries", store=STORE)


@pytest.fixture
def probe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The program that is started in the place of the probes."""
    monkeypatch.setattr(library, "PROBES", tmp_path)
    return tmp_path / "__main__.py"


def test_the_request_is_read_from_standard_input_and_the_lines_are_returned(probe: Path) -> None:
    probe.write_text(
        "import json, sys, os\n"
        "request = json.load(sys.stdin)\n"
        "print(json.dumps({'kind': 'entry', 'request': request, 'argv': sys.argv[1:], 'zone': os.environ['TZ']}))\n"
        "print(json.dumps({'kind': 'done'}))\n"
        "print('what follows is not read')\n"
    )
    windows = [(datetime(2027, 1, 1, tzinfo=UTC), datetime(2028, 1, 1, tzinfo=UTC))]
    request = LibraryRequest(do="fires", store=MongoStore("mongodb://h", "d", {"jobs": "j"}), windows=windows)
    entry, done = answer("apscheduler", request, limit=timedelta(seconds=60))
    assert done == {"kind": "done"}
    assert (entry["argv"], entry["zone"]) == ([], "UTC")
    assert entry["request"] == {
        "library": "apscheduler3",
        "do": "fires",
        "store": {"kind": "mongodb", "uri": "mongodb://h", "database": "d", "collections": {"jobs": "j"}},
        "options": {},
        "now": None,
        "windows": [["2027-01-01T00:00:00Z", "2028-01-01T00:00:00Z"]],
        "limit": 1000,
        "entry_seconds": 5,
        "scratch": False,
        "seconds": 65,
    }


@pytest.mark.parametrize(
    ("program", "words"),
    [
        ('print(\'{"kind": "entry"}\')', "the answer ended early, with exit status 0"),
        ("import sys; sys.exit(7)", "the answer ended early, with exit status 7"),
        ("raise ValueError('somebody@example.org')", "the answer ended early, with exit status 1: ValueError"),
        ("import os; os.kill(os.getpid(), 9)", "the answer ended early, with exit status -9"),
        ("print('no JSON')", "the probe printed a line that is not JSON"),
        ("print('[1]')", "the probe printed a line that is not one of its own"),
        ("print('{\"kind\": \"done\"', end='')", "the answer ended early, with exit status 0"),
        ("while True: print('x' * 1000, end='')", "the library's answer has a line longer than 5000 bytes"),
        ("import time; time.sleep(60)", "the library did not answer within 0.5 s"),
        ('import sys; sys.stdin.close(); print(\'{"kind": "no", "words": "w"}\')', "w"),
        (
            'print(\'{"kind": "broken", "error": "DataError", "words": "a value"}\')',
            "the library failed with DataError",
        ),
        (
            'print(\'{"kind": "broken", "error": "OperationalError", "words": "password=secret"}\')',
            "the library failed with OperationalError: password=***",
        ),
    ],
)
def test_an_answer_that_is_not_whole_is_an_error(
    program: str, words: str, probe: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(library, "LONGEST_LINE", 5000)
    probe.write_text(program)
    limit = timedelta(seconds=0.5 if "sleep" in program else 60)
    with pytest.raises(LibraryError) as raised:
        answer("apscheduler", REQUEST, limit=limit)
    assert str(raised.value) == f"apscheduler: {words}"


def test_the_process_ends_with_the_context(probe: Path, tmp_path: Path) -> None:
    alive = tmp_path / "alive"
    probe.write_text(
        "import signal, sys, time\n"
        'print(\'{"kind": "entry"}\', flush=True)\n'
        f"time.sleep(60); open({str(alive)!r}, 'w')\n"
    )
    with ask("apscheduler", REQUEST) as lines:
        assert next(lines) == {"kind": "entry"}
    assert not alive.exists()


def test_a_library_that_is_missing_is_told_with_the_command_that_installs_it(tmp_path: Path) -> None:
    with pytest.raises(LibraryMissingError, match="cannot be started: No such file or directory"):
        answer("apscheduler", REQUEST, interpreter=Interpreter(tmp_path / "python"))
    bare = Path(getattr(sys, "_base_executable", sys.executable))
    with pytest.raises(LibraryMissingError) as raised:
        answer("apscheduler", REQUEST, interpreter=Interpreter(bare))
    assert str(raised.value).endswith(Interpreter(bare).install_command("apscheduler"))
    assert Interpreter(bare).install_command("apscheduler").startswith(f"{bare} -m pip install 'apscheduler>=3.11,<4' ")


def test_a_server_that_does_not_answer_is_told_without_the_password() -> None:
    with pytest.raises(LibraryError, match=r"^apscheduler: the library failed with OperationalError: ") as raised:
        answer("apscheduler", REQUEST)
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize("do", ["prepare", "work"])
def test_what_writes_is_refused_unless_the_tables_are_scratch(do: library.Do) -> None:
    with pytest.raises(LibraryError, match=f"{do} writes, and the request does not say that the tables are scratch"):
        answer("apscheduler", LibraryRequest(do=do, store=STORE))


@pytest.mark.parametrize(
    ("dsn", "uri"),
    [
        ("postgresql://a:b@h:5/d", "postgresql://a:b@h:5/d"),
        ("host=h dbname=d", "postgresql://@h/d"),
        (
            "host=h port=5 user='a b' password='p@:/?' dbname=d sslmode=require",
            "postgresql://a%20b:p%40%3A%2F%3F@h:5/d?sslmode=require",
        ),
    ],
)
def test_java_gets_the_address_as_a_uri(dsn: str, uri: str) -> None:
    assert library._uri(dsn) == uri
