"""Asks a library what it finds in its store: starts a probe in the library's interpreter, and reads its lines.

The probes are in ``probes``; ``probes/dialogue.py`` says what they read and print. The process gets the request, with
the address of the database, on standard input. It ends with this call, at the end of its time, and, by its own alarm,
if this process is killed.
"""

import json
import os
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias
from urllib.parse import quote, urlencode

import msgspec
from psycopg.conninfo import conninfo_to_dict

from migrator.config import TargetSettings
from migrator.errors import MigratorError

Do: TypeAlias = Literal["prepare", "entries", "fires", "work"]
Line: TypeAlias = dict[str, Any]

PROBES: Final = Path(__file__).parent / "probes"
LIMIT: Final = timedelta(minutes=10)
LONGEST_LINE: Final = 64 * 1024 * 1024
"""Bytes: a document of 16 MB, its bytes as hexadecimal digits, twice."""
_NOT_COMPILED: Final = (b"compilation failed", b"jdk.compiler")
"""What Java prints where a class of the library is missing, or a compiler: the probe is started from its source."""
_TAIL: Final = 20
"""Lines of standard error that are kept."""
_GRACE: Final = 5
"""Seconds between the time limit and the process's own alarm."""
_TELLING: Final = frozenset({"OperationalError", "ServerSelectionTimeoutError", "ConfigurationError", "InvalidURI"})
"""Errors of drivers whose words are about the server; those of others may quote what is stored."""


class LibraryError(MigratorError):
    """The library could not do what it was asked for; nothing is known about the data."""


class LibraryMissingError(LibraryError):
    """The library is not installed in the interpreter; the message ends with the command that installs it."""


class InstalledLibrary(msgspec.Struct, frozen=True, kw_only=True):
    """A library that can be asked."""

    probe: str
    """The module in ``probes``."""
    requirements: tuple[str, ...]
    """What pip, npm or apt installs for it, with its drivers."""
    makes: str
    """How the library makes its tables without the tool, in words."""
    program: Literal["python", "node", "java"] = "python"
    """What executes the probe."""
    jars: tuple[str, ...] = ()
    """Of a library in Java: its jars, as Debian names them."""


class PostgresStore(msgspec.Struct, frozen=True, tag_field="kind", tag="postgresql"):
    """The tables of the library in PostgreSQL."""

    dsn: str
    schema: str = ""
    """The library's own if empty."""
    tables: dict[str, str] = {}
    """The library's own name of a table → its name here, where they differ."""


class MongoStore(msgspec.Struct, frozen=True, tag_field="kind", tag="mongodb"):
    """The collections of the library in MongoDB."""

    uri: str
    database: str
    collections: dict[str, str] = {}
    """The library's own name of a collection → its name here, where they differ."""


class LibraryRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What a library is asked for; see ``probes/dialogue.py``."""

    do: Do
    store: PostgresStore | MongoStore
    options: dict[str, Any] = {}
    now: datetime | None = None
    windows: Sequence[tuple[datetime, datetime]] = ()
    limit: int = 1000
    entry_seconds: float = 5
    scratch: bool = False
    """Whether the store may be written to: ``prepare`` and ``work`` need it."""


_POSTGRES: Final = "psycopg[binary]>=3.2"
_ALCHEMY: Final = "sqlalchemy>=2,<2.2"
_MONGO_BEAT: Final = "celerybeat-mongo>=0.2,<0.3"
_JARS: Final = "/usr/share/java"
_READ_BY_JAVA: Final = "java.base/*;org.quartz.**;!*"
"""Classes of objects that Java may read from what is stored: none of others is loaded."""
_STARTED_OFTEN: Final = ("-XX:+IgnoreUnrecognizedVMOptions", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""Options of Java for a process that lives for seconds: its start takes half the computing."""
LIBRARIES: Final[Mapping[str, InstalledLibrary]] = {
    "quartz": InstalledLibrary(
        probe="Quartz",
        program="java",
        requirements=("libquartz2-java", "libpostgresql-jdbc-java", "default-jdk-headless"),
        jars=("quartz2", "postgresql", "c3p0", "slf4j-api", "slf4j-nop"),
        makes="its script tables_postgres.sql makes them, and drops those that exist: for an empty database alone",
    ),
    "apscheduler": InstalledLibrary(
        probe="apscheduler3",
        requirements=("apscheduler>=3.11,<4", _ALCHEMY, _POSTGRES, "pymongo"),
        makes="SQLAlchemyJobStore makes its table when the application's scheduler is started with it",
    ),
    "celery-results": InstalledLibrary(
        probe="celery_results",
        requirements=("celery>=5.7,<5.8", _ALCHEMY, _POSTGRES, "pymongo"),
        makes="the database backend makes its tables when a worker stores its first result",
    ),
    "celery-results-5-6": InstalledLibrary(
        probe="celery_results",
        requirements=("celery>=5.6,<5.7", _ALCHEMY, _POSTGRES, "pymongo"),
        makes="the database backend makes its tables when a worker stores its first result",
    ),
    "agenda": InstalledLibrary(
        probe="agenda",
        requirements=("agenda@6", "@agendajs/postgres-backend@3", "@agendajs/mongo-backend@4"),
        makes="PostgresBackend makes its tables when the application is started with it",
        program="node",
    ),
    "shedlock": InstalledLibrary(
        probe="shedlock",
        requirements=(_POSTGRES,),
        makes="ShedLock makes no table: its manual has the statement",
    ),
    "sqlalchemy-celery-beat": InstalledLibrary(
        probe="beat_sqlalchemy",
        requirements=("sqlalchemy-celery-beat>=0.9,<0.10", _POSTGRES, _MONGO_BEAT),
        makes="its DatabaseScheduler makes its tables when celery beat is started with it",
    ),
    "django-celery-beat": InstalledLibrary(
        probe="beat_django",
        requirements=("django-celery-beat>=2.9,<2.10", _POSTGRES, _MONGO_BEAT),
        makes="python manage.py migrate django_celery_beat makes its tables",
    ),
    "apscheduler4": InstalledLibrary(
        probe="apscheduler4",
        requirements=("apscheduler==4.0.0a6", "sniffio", "sqlalchemy[asyncio]>=2,<2.2", _POSTGRES, "pymongo"),
        makes="SQLAlchemyDataStore makes its tables when the application's scheduler is started with it",
    ),
    "pgmq": InstalledLibrary(
        probe="pgmq_queues",
        requirements=("pgmq>=1.1,<2", _POSTGRES),
        makes="pgmq.create makes a queue, in a database with the extension or with what install_pgmq_from_sql makes",
    ),
    "procrastinate": InstalledLibrary(
        probe="procrastinate_jobs",
        requirements=("procrastinate>=3.10,<3.11", _POSTGRES),
        makes="procrastinate schema --apply makes its tables",
    ),
}
"""Target → its library."""


class Interpreter(msgspec.Struct, frozen=True):
    """What executes a probe."""

    program: Path | None = None
    """A ``python`` or a ``node``; None: this Python, or the ``node`` of the path."""
    packages: Path | None = None
    """The folder whose ``node_modules`` hold a library in JavaScript; None: the folder of this process."""

    def command(self, target: str) -> list[str]:
        """Return the command that starts the probe of a target."""
        library = LIBRARIES[target]
        if library.program == "node":
            return [str(self.program or "node"), str(PROBES / f"{library.probe}.mjs")]
        if library.program == "java":
            jars = [str(self.packages / "*")] if self.packages else [f"{_JARS}/{name}.jar" for name in library.jars]
            java = [str(self.program or "java"), *_STARTED_OFTEN, f"-Djdk.serialFilter={_READ_BY_JAVA}"]
            java += ["-cp", ":".join(jars)]
            return [*java, str(PROBES / f"{library.probe}.java")]
        return [str(self.program or sys.executable), "-I", str(PROBES / "__main__.py")]

    def install_command(self, target: str) -> str:
        """Return the command that installs the library of a target."""
        library = LIBRARIES[target]
        wanted = " ".join(f"'{requirement}'" for requirement in library.requirements)
        if library.program == "node":
            return f"npm install --prefix {self.packages or Path.cwd()} {wanted}"
        if library.program == "java":
            return f"apt install {' '.join(library.requirements)}"
        return f"{self.program or sys.executable} -m pip install {wanted}"

    def remedy(self, target: str) -> str:
        """Return the remedy, in words, where the program itself cannot be started."""
        named = "name another one as target.interpreter"
        if LIBRARIES[target].program == "java":
            return f"call {self.install_command(target)}, or {named}"
        if LIBRARIES[target].program == "node":
            return f"install Node.js, or {named}, and call {self.install_command(target)}"
        wanted = " ".join(f"'{requirement}'" for requirement in LIBRARIES[target].requirements)
        return f"name as target.interpreter a Python that exists, for which pip install {wanted} was called"


def interpreter_of(settings: TargetSettings) -> Interpreter:
    """Return the configured interpreter."""
    return Interpreter(
        Path(settings.interpreter) if settings.interpreter else None,
        Path(settings.packages).absolute() if settings.packages else None,
    )


@contextmanager
def ask(
    target: str, request: LibraryRequest, *, interpreter: Interpreter | None = None, limit: timedelta = LIMIT
) -> Iterator[Iterator[Line]]:
    """Lend the lines of a probe's answer, as they come; the process ends with the context.

    The last line has the kind ``done``. Reading on raises ``LibraryMissingError`` where the library is not installed,
    and ``LibraryError`` where it fails, where the answer is not whole, or where ``limit`` has passed.
    """
    interpreter = interpreter or Interpreter()
    command = interpreter.command(target)
    content = msgspec.to_builtins(request, str_keys=True)
    content |= {"library": LIBRARIES[target].probe, "seconds": int(limit.total_seconds()) + _GRACE}
    if LIBRARIES[target].program == "java" and isinstance(request.store, PostgresStore):
        content["store"]["dsn"] = _uri(request.store.dsn)
    if LIBRARIES[target].program == "node":
        content["options"] = {"packages": str(interpreter.packages or Path.cwd()), **content["options"]}
    try:
        process = subprocess.Popen(  # noqa: S603 - an interpreter that the operator names, without a shell
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "TZ": "UTC"},
            start_new_session=True,
        )
    except OSError as error:
        raise LibraryMissingError(
            f"{target}: {command[0]} cannot be started: {error.strerror or error}; {interpreter.remedy(target)}"
        ) from None
    running = _Process(process, target, interpreter, limit)
    try:
        running.send(json.dumps(content).encode())
        yield running.lines()
    finally:
        running.end()


def _uri(dsn: str) -> str:
    """Return an address that was given in any of libpq's forms as a URI."""
    given = conninfo_to_dict(dsn)
    login, place = (
        sep.join(quote(str(given.pop(name, "")), safe="") for name in names).rstrip(":")
        for sep, names in ((":", ("user", "password")), (":", ("host", "port")))
    )
    database = quote(str(given.pop("dbname", "")), safe="")
    rest = urlencode({name: value for name, value in given.items() if value is not None}, quote_via=quote)
    return f"postgresql://{login}@{place}/{database}" + f"?{rest}" * bool(rest)


class _Process:
    """A probe that runs."""

    def __init__(
        self, process: subprocess.Popen[bytes], target: str, interpreter: Interpreter, limit: timedelta
    ) -> None:
        self._process, self._target, self._interpreter, self._limit = process, target, interpreter, limit
        self._errors: deque[bytes] = deque(maxlen=_TAIL)
        self._is_late = False
        self._drain = threading.Thread(target=self._read_errors, daemon=True)
        self._drain.start()
        self._timer = threading.Timer(limit.total_seconds(), self._stop)
        self._timer.daemon = True
        self._timer.start()

    def _read_errors(self) -> None:
        assert self._process.stderr is not None  # noqa: S101 - a pipe, as it was asked for
        while piece := self._process.stderr.readline(4096):
            self._errors.append(piece)

    def _stop(self) -> None:
        self._is_late = True
        self._kill()

    def _kill(self) -> None:
        if self._process.poll() is None:
            with suppress(ProcessLookupError):  # it may end between the two
                os.killpg(self._process.pid, signal.SIGKILL)

    def send(self, content: bytes) -> None:
        """Write the request; a process that ends early tells by its lines."""
        assert self._process.stdin is not None  # noqa: S101 - as above
        with suppress(BrokenPipeError):
            self._process.stdin.write(content)
            self._process.stdin.flush()
        with suppress(BrokenPipeError):
            self._process.stdin.close()

    def lines(self) -> Iterator[Line]:
        """Return the lines up to ``done``; raises as ``ask`` says."""
        assert self._process.stdout is not None  # noqa: S101 - as above
        while text := self._process.stdout.readline(LONGEST_LINE + 1):
            line = self._decoded(text)
            self._refuse(line)
            yield line
            if line["kind"] == "done":
                return
        raise self._unfinished()

    def _decoded(self, text: bytes) -> Line:
        if len(text) > LONGEST_LINE:
            raise LibraryError(f"{self._target}: the library's answer has a line longer than {LONGEST_LINE} bytes")
        if not text.endswith(b"\n"):
            raise self._unfinished()
        try:
            line = json.loads(text)
        except ValueError:
            raise LibraryError(f"{self._target}: the probe printed a line that is not JSON") from None
        if not isinstance(line, dict) or not isinstance(line.get("kind"), str):
            raise LibraryError(f"{self._target}: the probe printed a line that is not one of its own")
        return line

    def _refuse(self, line: Line) -> None:
        if line["kind"] == "missing":
            raise LibraryMissingError(
                f"{self._target}: the module {line['module']} is not installed for"
                f" {self._interpreter.command(self._target)[0]}; call"
                f" {self._interpreter.install_command(self._target)}"
            )
        if line["kind"] == "no":
            raise LibraryError(f"{self._target}: {line['words']}")
        if line["kind"] == "broken":
            words = f": {line['words'].strip()}" if line["error"] in _TELLING else ""
            raise LibraryError(f"{self._target}: the library failed with {line['error']}{words}")

    def _unfinished(self) -> LibraryError:
        if self._is_late:
            return LibraryError(f"{self._target}: the library did not answer within {self._limit.total_seconds():g} s")
        status = self._process.wait()
        self._drain.join(1)
        if LIBRARIES[self._target].program == "java" and any(
            words in text for text in self._errors for words in _NOT_COMPILED
        ):
            return LibraryMissingError(
                f"{self._target}: the jars of the library, or the compiler of Java, are not installed for"
                f" {self._interpreter.command(self._target)[0]}; call {self._interpreter.install_command(self._target)}"
            )
        last = next((text.decode(errors="replace").strip() for text in reversed(self._errors) if text.strip()), "")
        if last.startswith("Traceback") or ":" in last:
            last = last.partition(":")[0]  # the class of the error: its words may quote what is stored
        return LibraryError(
            f"{self._target}: the answer ended early, with exit status {status}" + f": {last}" * bool(last)
        )

    def end(self) -> None:
        """End the process, and what it has started."""
        self._timer.cancel()
        self._kill()
        self._process.wait()
        self._drain.join(1)
        for stream in (self._process.stdout, self._process.stderr):
            if stream is not None:
                stream.close()


def answer(
    target: str, request: LibraryRequest, *, interpreter: Interpreter | None = None, limit: timedelta = LIMIT
) -> list[Line]:
    """Return all lines of an answer; raises as ``ask`` says."""
    with ask(target, request, interpreter=interpreter, limit=limit) as lines:
        return list(lines)


def make_tables(target: str, store: PostgresStore, interpreter: Interpreter) -> list[Line]:
    """Let the library make its tables; return the lines of its answer. Raises as ``ask`` says."""
    return answer(target, LibraryRequest(do="prepare", store=store, scratch=True), interpreter=interpreter)
