"""A small process between an owner and its server: runs one command until the command ends or the owner does.

Why a process of its own. The kernel's parent-death signal fires when the *thread* that forked ends, not its process,
and an owner may start servers from any thread. This process has one thread, so for its child the two are the same: the
server gets the signal exactly when the guardian is gone. The guardian itself watches the owner by its parent's pid,
which no thread, fork or inherited pipe can disturb. It also adopts what the server leaves behind (backends of a killed
postmaster) and ends that too.

Run as a script, by path, on the standard library alone: ``guardian.py <order as JSON>``. Standard output: one JSON
line, ``{"pid": n}`` or ``{"error": text, "errno": n}``. Standard input: each byte is the number of a signal for the
server; end of input counts as the end of the owner. Exit status: that of the command, 128 + n when signal n ended it.
"""

import contextlib
import ctypes
import json
import os
import resource
import select
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
TICK = 0.1  # seconds between two looks at the owner
GRACE = 5.0  # seconds a server has to end by itself once its owner is gone
OPEN_FILES = 64_000  # what mongod asks for


def become(uid: int, gid: int) -> None:
    """Give up root for good; the server and all it writes belong to that account."""
    os.setgroups([])
    os.setgid(gid)
    os.setuid(uid)


def spawn(order: dict[str, Any], libc: ctypes.CDLL) -> subprocess.Popen[bytes]:
    """Start the command so that it gets the death signal when this process ends."""
    guardian = os.getpid()

    def prepare() -> None:
        libc.prctl(PR_SET_PDEATHSIG, order["death_signal"], 0, 0, 0)
        if os.getppid() != guardian:  # ended before the line above: the signal would never come
            os._exit(1)

    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES if hard == resource.RLIM_INFINITY else min(OPEN_FILES, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    os.umask(0o077)
    with Path(order["log"]).open("wb") as log:
        return subprocess.Popen(
            order["argv"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=order["cwd"],
            env=order["env"],
            preexec_fn=prepare,  # noqa: PLW1509 - this process has a single thread
            start_new_session=True,
        )


def watch(server: subprocess.Popen[bytes], owner: int) -> bool:
    """Pass signals on until the server ends (True) or the owner does (False)."""
    child_read, child_write = os.pipe()
    os.set_blocking(child_write, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)  # a handler must exist for the wake-up to be written
    signal.set_wakeup_fd(child_write)
    while server.poll() is None:
        readable, _, _ = select.select([0, child_read], [], [], TICK)
        if os.getppid() != owner:
            return False
        if child_read in readable:
            os.read(child_read, 4096)
        if 0 in readable:
            wanted = os.read(0, 64)
            if not wanted:
                return False
            for number in wanted:
                server.send_signal(number)
    return True


def end(server: subprocess.Popen[bytes], death_signal: int) -> None:
    """End the server: with its death signal first, by force when it does not listen."""
    server.send_signal(signal.SIGCONT)
    server.send_signal(death_signal)
    try:
        server.wait(GRACE)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()


def adopted() -> list[int]:
    """Return the processes whose parent is now this one."""
    here = str(os.getpid())
    children = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                # the name in parentheses may hold spaces; state and parent follow the last one
                if (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()[1] == here:
                    children.append(int(entry.name))
    return children


def sweep() -> None:
    """End the processes that the server did not end."""
    while orphans := adopted():
        for pid in orphans:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for pid in orphans:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)


def main() -> int:
    """Carry out the order given on the command line."""
    order = json.loads(sys.argv[1])
    libc = ctypes.CDLL(None)
    try:
        if order["account"]:
            become(*order["account"])
        libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        server = spawn(order, libc)
    except OSError as error:
        print(json.dumps({"error": str(error), "errno": error.errno}), flush=True)  # noqa: T201 - the protocol
        return 127
    except subprocess.SubprocessError as error:
        print(json.dumps({"error": str(error), "errno": 0}), flush=True)  # noqa: T201 - the protocol
        return 127
    with contextlib.suppress(BrokenPipeError):
        print(json.dumps({"pid": server.pid}), flush=True)  # noqa: T201 - the protocol
    ended = watch(server, order["owner"])
    if not ended:
        end(server, order["death_signal"])
    sweep()
    if not ended and order["remove"]:
        shutil.rmtree(order["remove"], ignore_errors=True)
    status = server.returncode
    return status if status >= 0 else 128 - status


if __name__ == "__main__":
    sys.exit(main())
