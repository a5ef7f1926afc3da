"""rbdagent without its imports: a process that has done them, and forks for each command.

On an emulated processor the imports of one answer take three times what the answer takes. Here
they are done once. A command is told by a connection to a socket: a line of JSON (the arguments),
with the descriptors that shall be its stdin, stdout and stderr. Two lines of JSON come back: its
pid, and how it ended.
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


def main() -> None:
    """Import everything, then serve for ever at the path that is the argument."""
    path = sys.argv[1]
    import_all()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
        # It appears once it answers.
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
    """Import all of rbdagent, and what it imports when it is needed."""
    for module in pkgutil.walk_packages(rbdagent.__path__, "rbdagent."):
        if module.name != "rbdagent.__main__":
            importlib.import_module(module.name)
    for name in ("prometheus_client", "pycurl", "rados", "rbd", "structlog", "yaml"):
        importlib.import_module(name)
    # What is shared with the forked stays shared.
    gc.freeze()


def _serve(connection: socket.socket) -> None:
    """Run one command in a session of its own, and tell how it ended."""
    told, descriptors, _, _ = socket.recv_fds(connection, 1 << 16, _STDIO)
    pid = os.fork()
    if pid == 0:
        connection.close()
        os.setsid()
        for number, each in enumerate(descriptors):
            os.dup2(each, number)
            os.close(each)
        sys.argv = ["rbdagent", *json.loads(told)]
        program()
    connection.sendall(json.dumps(pid).encode() + b"\n")
    _, status = os.waitpid(pid, 0)
    connection.sendall(json.dumps(os.waitstatus_to_exitcode(status)).encode() + b"\n")
    os._exit(0)


if __name__ == "__main__":
    main()
