"""What went wrong when a server does not start, in words that say what to do."""

import errno
import platform
import re
from pathlib import Path

from migrator.embedded.account import Account
from migrator.errors import ConfigurationError, MigratorError, UnreachableError, install_extra

OWN_SERVERS = "or give the addresses of your own servers in the configuration (mongo.uri, postgres.dsn)"
EXTRA = install_extra("embedded")

# what to install for the libraries that the wheels leave to the system: Debian's package, Fedora's package
PACKAGES = {
    "libcurl.so.4": "libcurl4 (Debian, Ubuntu) or libcurl (Fedora, RHEL)",
    "liblzma.so.5": "liblzma5 (Debian, Ubuntu) or xz-libs (Fedora, RHEL)",
    "libz.so.1": "zlib1g (Debian, Ubuntu) or zlib (Fedora, RHEL)",
    "libgcc_s.so.1": "libgcc-s1 (Debian, Ubuntu) or libgcc (Fedora, RHEL)",
    "libresolv.so.2": "libc6 (Debian, Ubuntu) or glibc (Fedora, RHEL)",
    "libssl.so.1.1": f"the extra again: {EXTRA}",
    "libcrypto.so.1.1": f"the extra again: {EXTRA}",
}

_MISSING = re.compile(r"error while loading shared libraries: ([^:\s]+): cannot open shared object file")
_OLD_LIBC = re.compile(r"version `(GLIBC_[0-9.]+)' not found")


def check_platform() -> None:
    """Refuse where the wheels' programs cannot run at all; raises ConfigurationError."""
    system, machine = platform.system(), platform.machine()
    if (system, machine) != ("Linux", "x86_64"):
        raise ConfigurationError(
            f"embedded servers exist for Linux on x86_64 only, this is {system} on {machine}; give the addresses "
            "of your own servers in the configuration (mongo.uri, postgres.dsn)"
        )


def extra_missing(distribution: str) -> ConfigurationError:
    """Return the error for a wheel that is not installed, or not complete."""
    return ConfigurationError(f"embedded servers need the package {distribution}: {EXTRA}, {OWN_SERVERS}")


def cannot_start(program: str | Path, text: str, number: int, account: Account | None) -> MigratorError:
    """Return the error for a program the system would not even start."""
    name = Path(program).name
    if number == errno.ENOEXEC:
        return ConfigurationError(f"{name} was built for another architecture than {platform.machine()}; {OWN_SERVERS}")
    if number == errno.ENOENT:
        return ConfigurationError(f"{program} does not exist, or the system lacks its loader; {OWN_SERVERS}")
    if number in {errno.EACCES, errno.EPERM}:
        who = account.name if account else "this user"
        return ConfigurationError(
            f"{name} cannot be started as {who}: {text}; if temporary directories are mounted noexec, set TMPDIR to "
            f"one that is not, {OWN_SERVERS}"
        )
    return UnreachableError(f"{name} cannot be started: {text}")


def ended(name: str, status: int, log: str) -> MigratorError:
    """Return the error for a program that started and ended before it was ready."""
    if missing := _MISSING.search(log):
        library = missing[1]
        package = PACKAGES.get(library, "the package that holds it")
        return UnreachableError(f"{name} needs the system library {library}: install {package}, {OWN_SERVERS}")
    if old := _OLD_LIBC.search(log):
        return ConfigurationError(f"{name} needs a newer C library ({old[1]}) than this system has; {OWN_SERVERS}")
    if "No space left on device" in log:
        return UnreachableError(f"{name} did not start: no space left for its directory; free some or set TMPDIR")
    lines = [line for line in log.splitlines() if line.strip()]
    said = "; ".join(lines[-3:])[-600:] or "it said nothing"
    return UnreachableError(f"{name} did not start (status {status}): {said}")
