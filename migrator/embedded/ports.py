"""Free ports on loopback.

Nothing can reserve a port for another process, so a server that finds its port taken is started again on another one
(`server`). Ports below the range from which the kernel serves outgoing connections are preferred: there a stopped
server finds its port free again.
"""

import random
import socket
from pathlib import Path

LOWEST = 28_100  # above MongoDB's own ports
RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")


def free_port() -> int:
    """Return a port of 127.0.0.1 that nobody listens on at this moment."""
    try:
        highest = int(RANGE.read_text().split()[0])
    except OSError:
        highest = 32_768
    for _ in range(50):
        port = random.randrange(LOWEST, max(highest, LOWEST + 1))  # noqa: S311 - not a secret
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
