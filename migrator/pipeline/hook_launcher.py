"""Becomes the command of a hook, after it has asked the kernel to end it together with the tool.

Why a process of its own. What asks the kernel must run in the child, between fork and exec; the tool has threads, and
Python code between the two may wait for ever for a lock that another thread held at the fork. This process has one
thread, and becomes the command: its id, its group and its environment are the command's.

Run as a script, by path, on the standard library alone: ``hook_launcher.py PARENT REPORT LOCALE WORD …``. ``PARENT``:
the process id of the tool. ``REPORT``: a pipe; it gets the number of the error if the command cannot be started, and is
closed by its start. ``LOCALE``: ``-`` if the environment has no ``LC_CTYPE``, which the interpreter may have set.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main() -> int:
    """Become the command; return only if that cannot be."""
    parent, report, locale, *command = sys.argv[1:]
    os.set_inheritable(int(report), False)  # noqa: FBT003 - the function has no name for it
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is not None:  # Linux
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != int(parent):  # ended before the line above: the signal would never come
            return 1
    if locale == "-":
        os.environ.pop("LC_CTYPE", None)
    for name in ("SIGPIPE", "SIGXFSZ"):  # the interpreter ignores them, and an exec would keep that
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_DFL)
    try:
        os.execvp(command[0], command)  # noqa: S606 - the operator's own command, without a shell
    except OSError as error:
        os.write(int(report), str(error.errno).encode())
    return 127


if __name__ == "__main__":
    sys.exit(main())
