"""A command that the prepared process of this node's agent answers."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from rbdagent.prepared import protocol
from rbdagent.prepared.protocol import Request

if TYPE_CHECKING:
    import socket
    from collections.abc import Sequence

_WITHIN_S = 0.2
"""The time in which the prepared process accepts a request; it does nothing else."""
_STREAMS = (0, 1, 2)
_FAILED = 1


def answered(arguments: Sequence[str]) -> int | None:
    """Return the exit code of a command that the prepared process answered.

    None if this process has to run the command: another verb, another user than root, no agent, an
    agent of another version or in other namespaces.
    """
    if not protocol.READING.intersection(arguments[:1]) or "--debug" in arguments:
        return None
    directory = protocol.directory()
    try:
        # Without an agent, this is all that a command costs more.
        if os.geteuid() or os.lstat(directory).st_uid:
            return None
        request = _request(list(arguments))
    except OSError:
        return None
    import socket

    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
        link.settimeout(_WITHIN_S)
        try:
            link.connect(f"{directory}/{protocol.ANSWERS}")
        except OSError:
            _wake(f"{directory}/{protocol.WAKE}")
            return None
        try:
            return _code_of(link) if _is_taken(link, request) else None
        except KeyboardInterrupt:
            # The second Ctrl-C does not wait for the child: the closed socket ends it.
            return protocol.INTERRUPTED


def _request(arguments: list[str]) -> Request:
    """Return the request of this process.

    Raises:
        OSError: a standard stream is closed; the prepared process could not have it closed.
    """
    for stream in _STREAMS:
        os.fstat(stream)
    streams = (sys.stdin, sys.stdout, sys.stderr)
    encodings = [word for stream in streams for word in (stream.encoding, stream.errors or "")]
    return Request(protocol.identity(), arguments, dict(os.environb), encodings)


def _wake(path: str) -> None:
    """Connect to the agent: it starts the prepared process, for the next command."""
    import contextlib
    import socket

    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
        link.settimeout(0)
        link.connect(path)


def _is_taken(link: socket.socket, request: Request) -> bool:
    """Send a request; return whether the prepared process takes it.

    It begins only after `GO`, so that no command runs twice if it takes the request too late.
    """
    import socket

    directory = -1
    try:
        if _uid_of(link):
            return False
        packed = request.packed()
        length = len(packed).to_bytes(protocol.LENGTH, "little")
        link.sendall(protocol.MAGIC + length + packed)
        if link.recv(1) != protocol.TAKEN:
            return False
        directory = os.open(".", os.O_PATH | os.O_DIRECTORY)
        socket.send_fds(link, [protocol.GO], [*_STREAMS, directory])
    except OSError:
        return False
    finally:
        if directory >= 0:
            os.close(directory)
    return True


def _uid_of(link: socket.socket) -> int:
    """Return the user of the process at the other end (SO_PEERCRED: pid, uid and gid)."""
    import socket

    credentials = link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    return int.from_bytes(credentials[4:8], sys.byteorder)


def _code_of(link: socket.socket) -> int:
    """Wait for the end of the command, and return its exit code.

    Other signals than Ctrl-C end this process as they would end any: the prepared process sees the
    closed socket, and ends its child.
    """
    link.settimeout(None)
    reply = b""
    while len(reply) < 2 and (chunk := _received(link)):
        reply += chunk
    if reply[:1] == protocol.EXITED:
        return reply[1]
    if reply[:1] == protocol.KILLED:
        os.kill(os.getpid(), reply[1])
    sys.stderr.write(
        "rbdagent: the agent's process that answered this has ended: run the command again\n"
    )
    return _FAILED


def _received(link: socket.socket) -> bytes:
    try:
        return link.recv(2)
    except KeyboardInterrupt:
        # The terminal sends SIGINT to this process only.
        link.sendall(protocol.INTERRUPT)
        return link.recv(2)
    except OSError:
        return b""
