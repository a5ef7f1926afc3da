"""The guest's end of the control channel: runs commands, returns their exit code and output.

One connection is one command. A request is a line of JSON, then as many bytes for the command's
stdin as it announces; an answer is a line of JSON, then stdout, then stderr. Output goes to files
in memory, not pipes: a daemon that the command leaves running does not delay the answer.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from typing import BinaryIO, TypedDict

PORT = 2222
_WARM = "/run/lab/warm"
_WARM_PROGRAM = "rbdagent, warm"
"""As a command's program: the process that listens there runs the command (warm.py)."""
_LISTEN_ANYWHERE = 15  # IP_FREEBIND: the address may come later than this program


class Request(TypedDict):
    """The first line of a connection."""

    argv: list[str]
    stdin: int
    """The number of bytes that follow."""
    timeout_s: float


def main() -> None:
    """Serve indefinitely, each connection in a separate process."""
    address = sys.argv[1]
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.setsockopt(socket.IPPROTO_IP, _LISTEN_ANYWHERE, 1)
        server.bind((address, PORT))
        server.listen(64)
        # No parent waits for a connection's process.
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        while True:
            connection, _ = server.accept()
            with connection:
                if os.fork() == 0:
                    server.close()
                    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                    with contextlib.suppress(OSError):
                        _serve(connection)
                    os._exit(0)


def _serve(connection: socket.socket) -> None:
    with connection.makefile("rwb") as stream:
        request: Request = json.loads(stream.readline())
        given = stream.read(request["stdin"])
        with _memory("stdin") as stdin, _memory("stdout") as stdout, _memory("stderr") as stderr:
            stdin.write(given)
            stdin.seek(0)
            exit_code = _run(request, stdin, stdout, stderr)
            out, err = _content(stdout), _content(stderr)
        head = {"exit_code": exit_code, "stdout": len(out), "stderr": len(err)}
        stream.write(json.dumps(head).encode() + b"\n" + out + err)


def _run(request: Request, stdin: BinaryIO, out: BinaryIO, err: BinaryIO) -> int | None:
    """Return the command's exit code as a shell would; None after its timeout."""
    if request["argv"][0] == _WARM_PROGRAM:
        return _run_warm(request, stdin, out, err)
    try:
        child = subprocess.Popen(
            request["argv"],
            stdin=stdin,
            stdout=out,
            stderr=err,
            cwd="/",
            start_new_session=True,
        )
    except OSError as error:
        err.write(f"{error}\n".encode())
        return 127 if isinstance(error, FileNotFoundError) else 126
    try:
        code = child.wait(timeout=request["timeout_s"])
    except subprocess.TimeoutExpired:
        # Without a wait: in an uninterruptible sleep not even KILL ends it.
        os.killpg(child.pid, signal.SIGKILL)
        return None
    return code if code >= 0 else 128 - code


def _run_warm(request: Request, stdin: BinaryIO, out: BinaryIO, err: BinaryIO) -> int | None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as warm:
        try:
            warm.connect(_WARM)
        except OSError as error:
            err.write(f"{_WARM}: {error}\n".encode())
            return 127
        arguments = json.dumps(request["argv"][1:]).encode()
        socket.send_fds(warm, [arguments], [stream.fileno() for stream in (stdin, out, err)])
        with warm.makefile("rb") as answers:
            pid = json.loads(answers.readline())
            warm.settimeout(request["timeout_s"])
            try:
                code: int = json.loads(answers.readline())
            except TimeoutError:
                os.killpg(pid, signal.SIGKILL)
                return None
    return code if code >= 0 else 128 - code


def _memory(name: str) -> BinaryIO:
    return open(os.memfd_create(name), "w+b", buffering=0)


def _content(file: BinaryIO) -> bytes:
    file.seek(0)
    return file.read()


main()
