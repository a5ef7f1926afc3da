"""rbdagent without its imports: a process that has imported everything forks for each command.

On an emulated processor the imports of a command take three times as long as its answer. Here they
run once. A client requests a command by a connection to a socket: a line of JSON (the arguments),
with the descriptors for its stdin, stdout and stderr. Two lines of JSON come back: its pid, and its
exit status.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import pkgutil
import signal
import socket
import sys

import rbdagent
from rbdagent.__main__ import main as program

_STDIO = 3
_NOT_IMPORTED = frozenset({"rbdagent.__main__", "rbdagent.cli.mcp_server"})
"""No node serves tools, and their SDK takes an emulated processor more than a minute to import."""


def main() -> None:
    """Import everything, then serve indefinitely at the path in the argument."""
    path = sys.argv[1]
    import_all()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
        # The socket appears once the process answers.
        server.bind(f"{path}.new")
        server.listen(64)
        os.rename(f"{path}.new", path)
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        while True:
            connection, _ = server.accept()
            if os.fork() == 0:
                server.close()
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                _serve(connection)
            connection.close()


def import_all() -> None:
    """Import all of rbdagent, and everything that it imports on demand."""
    for module in pkgutil.walk_packages(rbdagent.__path__, "rbdagent."):
        if module.name not in _NOT_IMPORTED:
            importlib.import_module(module.name)
    for name in ("prometheus_client", "pycurl", "rados", "rbd", "yaml"):
        importlib.import_module(name)
    # Memory that is shared with forks stays shared.
    gc.freeze()


def _serve(connection: socket.socket) -> None:
    """Run one command in a new session, and report its exit status."""
    arguments, descriptors, _, _ = socket.recv_fds(connection, 1 << 16, _STDIO)
    pid = os.fork()
    if pid == 0:
        connection.close()
        os.setsid()
        for number, descriptor in enumerate(descriptors):
            os.dup2(descriptor, number)
            os.close(descriptor)
        sys.argv = ["rbdagent", *json.loads(arguments)]
        program()
    connection.sendall(json.dumps(pid).encode() + b"\n")
    _, status = os.waitpid(pid, 0)
    connection.sendall(json.dumps(os.waitstatus_to_exitcode(status)).encode() + b"\n")
    os._exit(0)


if __name__ == "__main__":
    main()
