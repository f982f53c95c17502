"""A server that cannot run here says what is missing, and what to install or which setting to give instead."""

import os
import platform
import tempfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest

from migrator.errors import ConfigurationError, UnreachableError
from migrator.testing.servers import binaries, directory, server
from migrator.testing.servers.directory import PrivateDirectory
from migrator.testing.servers.mongo import MongoServer
from migrator.testing.servers.postgres import PostgresServer

ADDRESSES = r"mongo\.uri, postgres\.dsn"


@pytest.fixture(autouse=True)
def base(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The only place for private directories; a start that fails must leave nothing in it."""
    with tempfile.TemporaryDirectory(prefix="test-trouble-") as folder:
        path = Path(folder)
        path.chmod(0o1777)
        monkeypatch.setattr(tempfile, "tempdir", folder)
        yield path
        assert list(path.glob(f"{directory.PREFIX}*")) == []


def patched(source: Path, target: Path, at: bytes | int, new: bytes) -> Path:
    """Copy a program with some of its bytes replaced."""
    content = bytearray(source.read_bytes())
    place = content.index(at) if isinstance(at, bytes) else at
    content[place : place + len(new)] = new
    target.write_bytes(content)
    target.chmod(0o755)
    return target


def test_a_missing_library_is_named(base: Path) -> None:
    needed = b"libcurl.so.4\0"
    broken = patched(binaries.mongod(), base / "mongod", needed, b"libcurl.so.9\0")
    with pytest.raises(UnreachableError, match=rf"mongod needs the system library libcurl\.so\.9: .*{ADDRESSES}"):
        MongoServer(binary=broken)


@pytest.mark.parametrize(
    ("library", "package"), [("libcurl.so.4", "libcurl4"), ("liblzma.so.5", "liblzma5"), ("libssl.so.1.1", "embedded")]
)
def test_and_so_is_the_package_that_holds_it(library: str, package: str) -> None:
    said = (
        f"/tmp/x/mongod: error while loading shared libraries: {library}: cannot open shared object file: No such file"
    )
    assert package in str(server.start_failure("mongod", 127, said))


def test_a_system_that_is_too_old() -> None:
    said = "mongod: /lib/x86_64-linux-gnu/libc.so.6: version `GLIBC_2.25' not found (required by mongod)"
    assert "newer C library (GLIBC_2.25)" in str(server.start_failure("mongod", 1, said))


def test_openssl_is_taken_from_the_wheel_where_the_system_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binaries, "SYSTEM_LIBRARIES", ())
    with MongoServer(fast=True, cache_gb=0.25) as mongo:
        maps = Path(f"/proc/{mongo.pid}/maps").read_text()
        assert "libssl-" in maps
        assert len({line.split()[-1] for line in maps.splitlines() if "libcrypto" in line and ".so.1.1" in line}) == 1


def test_openssl_is_taken_from_the_system_where_it_has_one(base: Path) -> None:
    for name in binaries.OPENSSL:
        (base / name).touch()
    private = PrivateDirectory.create(directory.unprivileged())
    assert binaries.openssl_environment(private, system=(base,)) == {}
    assert binaries.openssl_environment(private, system=(base / "nothing",)).keys() == {"LD_LIBRARY_PATH"}
    private.remove()


def test_another_architecture(base: Path) -> None:
    arm = (183).to_bytes(2, "little")
    initdb = binaries.postgres(16) / "bin" / "initdb"
    (base / "bin").mkdir()
    patched(initdb, base / "bin" / "initdb", 18, arm)
    with pytest.raises(ConfigurationError, match=rf"initdb was built for another architecture.*{ADDRESSES}"):
        PostgresServer(bin_dir=base / "bin")


def test_a_program_that_is_not_there(base: Path) -> None:
    with pytest.raises(ConfigurationError, match="does not exist"):
        MongoServer(binary=base / "mongod")


def test_a_program_that_may_not_be_started(base: Path) -> None:
    (base / "mongod").write_text("")
    with pytest.raises(ConfigurationError, match=r"cannot be started as .*TMPDIR"):
        MongoServer(binary=base / "mongod")


def test_a_server_that_ends_at_once_is_quoted() -> None:
    with pytest.raises(UnreachableError, match=r"postgres did not start \(status 1\): .*no_such_setting"):
        PostgresServer(fast=True, settings={"no_such_setting": "1"})


def test_the_extra_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(name: str) -> metadata.Distribution:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "distribution", nothing)
    for start in (MongoServer, PostgresServer):
        with pytest.raises(ConfigurationError, match=rf"pip install 'scheduler-migrator\[embedded\]'.*{ADDRESSES}"):
            start()


def test_another_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    with pytest.raises(ConfigurationError, match=rf"Linux on x86_64 only, this is Linux on aarch64.*{ADDRESSES}"):
        MongoServer()


def test_a_version_that_is_not_there() -> None:
    with pytest.raises(ConfigurationError, match="no PostgreSQL 9 here"):
        PostgresServer(version=9)


def test_a_private_temporary_directory_is_passed_over(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    closed = base / "closed"
    closed.mkdir(mode=0o700)
    monkeypatch.setattr(tempfile, "tempdir", str(closed))
    who = directory.unprivileged()
    private = PrivateDirectory.create(who)
    assert (private.path.parent == closed) == (who is None)
    private.remove()


def test_programs_are_copied_where_the_account_cannot_read_them(base: Path) -> None:
    closed = base / "closed"
    closed.mkdir(mode=0o700)
    (closed / "program").touch(mode=0o755)
    (base / "program").touch(mode=0o755)
    who = directory.unprivileged()
    private = PrivateDirectory.create(who)
    assert private.bring(base / "program", "first") == base / "program"
    brought = private.bring(closed / "program", "second")
    assert brought == (private.path / "second" if who else closed / "program")
    if who:
        assert brought.stat().st_uid == who.uid
    private.remove()


def test_a_copy_that_cannot_be_made(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directory, "may_read", lambda *_: False)
    who = directory.unprivileged() or directory.Account("me", os.geteuid(), os.getegid())
    private = PrivateDirectory.create(who)
    with pytest.raises(UnreachableError, match=r"no directory for a server in .*: no such file.*TMPDIR"):
        private.bring(base / "nothing", "copy")
    private.remove()


def test_servers_run_from_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directory, "may_read", lambda *_: False)
    monkeypatch.setattr(binaries, "SYSTEM_LIBRARIES", ())
    with MongoServer(fast=True, cache_gb=0.25) as mongo, PostgresServer(fast=True) as postgres:
        if directory.unprivileged():
            for server in (mongo, postgres):
                program = Path(f"/proc/{server.pid}/exe").readlink()
                assert program.is_relative_to(server._directory.path)


def test_a_directory_without_a_lock_is_removed_once_it_is_old(base: Path) -> None:
    fresh, old = base / f"{directory.PREFIX}fresh", base / f"{directory.PREFIX}old"
    fresh.mkdir()
    old.mkdir()
    os.utime(old, (0, 0))
    assert directory.remove_abandoned(base, directory.unprivileged()) == [old]
    fresh.rmdir()
