"""The prepared process: import what the reading verbs need, and fork a child for each request.

It has one thread, so that a fork copies no lock that another thread holds. It ends with the agent,
and some minutes after the last answer.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import os
import pkgutil
import select
import signal
import socket
import struct
import sys
import time
from typing import TYPE_CHECKING, Final, NamedTuple, NoReturn

import rbdagent
from rbdagent.prepared import protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

_NOT_FOR_READING: Final = (
    "rbdagent.agent",
    "rbdagent.unmap",
    "rbdagent.prepared",
    "rbdagent.cli.agent",
    "rbdagent.cli.unmap",
    "rbdagent.cli.mcp",
    "rbdagent.cli.check",
    "rbdagent.preflight",
    "rbdagent.collect.kube.access_review",
    # structlog imports asyncio: 11 MiB. Only an agent, and --debug, write a log.
    "rbdagent.log",
)
_MOST_CHILDREN: Final = 8
_HANDSHAKE_S: Final = 1.0
_PR_SET_PDEATHSIG: Final = 1
_INTERRUPTS: Final = (signal.SIGINT,)
_CREDENTIALS: Final = struct.Struct("3i")
_DESCRIPTORS: Final = 4
_BACKLOG: Final = 8


class _Child(NamedTuple):
    """A child that runs a command."""

    pid: int
    pidfd: int
    link: socket.socket


def main(arguments: Sequence[str]) -> None:
    """Import, listen and answer.

    Args:
        arguments: the directory of the sockets; the seconds without a question after which this
            process ends; the descriptor of a pipe that only the agent has open for writing.
    """
    directory, idle_s, lifeline = arguments[0], float(arguments[1]), int(arguments[2])
    prepare()
    path = f"{directory}/{protocol.ANSWERS}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        listening.bind(path)
        listening.listen(_BACKLOG)
        try:
            _Server(listening, lifeline, idle_s).run()
        finally:
            # The agent starts the next one only after this one has ended.
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)


def prepare() -> None:
    """Import all that the reading verbs import, librados and librbd too."""
    for module in pkgutil.walk_packages(rbdagent.__path__, "rbdagent."):
        if not module.name.startswith(_NOT_FOR_READING):
            _import(module.name)
    from rbdagent.collect.ceph.connection import rbd_module
    from rbdagent.errors import SourceError

    # The child reports a library that is missing.
    with contextlib.suppress(SourceError):
        rbd_module()
    gc.collect()
    # A child must not visit, and so copy, the pages of the modules.
    gc.freeze()


def _import(name: str) -> None:
    # A library that is not installed is reported where a verb needs it.
    with contextlib.suppress(ImportError):
        importlib.import_module(name)


class _Server:
    """Accepts requests, and waits for its children."""

    def __init__(self, listening: socket.socket, lifeline: int, idle_s: float) -> None:
        self._listening = listening
        self._lifeline = lifeline
        self._idle_s = idle_s
        self._children: dict[int, _Child] = {}
        """By the descriptor of the child, and by that of its socket."""
        self._identity = protocol.identity()
        self._poll = select.poll()
        for descriptor in (listening.fileno(), lifeline):
            self._poll.register(descriptor, select.POLLIN)

    def run(self) -> None:
        """Answer until the agent ends, or no question comes."""
        last = time.monotonic()
        while self._children or time.monotonic() - last < self._idle_s:
            for descriptor, _ in self._poll.poll(1000 * self._idle_s):
                last = time.monotonic()
                if descriptor == self._lifeline:
                    return self._end()
                if descriptor == self._listening.fileno():
                    self._accept()
                elif (child := self._children.get(descriptor)) is not None:
                    self._serve(child, has_ended=descriptor == child.pidfd)
        return None

    def _end(self) -> None:
        for child in {*self._children.values()}:
            _kill(child)

    def _accept(self) -> None:
        link, _ = self._listening.accept()
        link.settimeout(_HANDSHAKE_S)
        descriptors: list[int] = []
        try:
            request = _taken(link, self._identity)
            if request is None or len(self._children) >= 2 * _MOST_CHILDREN:
                link.close()
                return
            link.sendall(protocol.TAKEN)
            go, received, _, _ = socket.recv_fds(link, 1, _DESCRIPTORS)
            descriptors += received
            if go == protocol.GO and len(descriptors) == _DESCRIPTORS:
                self._fork(link, request, descriptors)
            else:
                link.close()
        except (OSError, ValueError):
            link.close()
        finally:
            for descriptor in descriptors:
                os.close(descriptor)

    def _fork(
        self, link: socket.socket, request: protocol.Request, descriptors: Sequence[int]
    ) -> None:
        parent = os.getpid()
        # An interrupt that comes before the child can handle it waits for that.
        signal.pthread_sigmask(signal.SIG_BLOCK, _INTERRUPTS)
        try:
            pid = os.fork()
            if pid == 0:
                _become(request, descriptors, parent)
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _INTERRUPTS)
        # The child sets it too: whichever is first, it is set before a kill.
        with contextlib.suppress(OSError):
            os.setpgid(pid, pid)
        child = _Child(pid, os.pidfd_open(pid), link)
        for descriptor in (child.pidfd, link.fileno()):
            self._children[descriptor] = child
            self._poll.register(descriptor, select.POLLIN)

    def _serve(self, child: _Child, *, has_ended: bool) -> None:
        """Report the end of a child, or pass on what the program sends."""
        if has_ended:
            self._report(child)
            return
        try:
            is_interrupt = child.link.recv(1) == protocol.INTERRUPT
        except OSError:
            is_interrupt = False
        if is_interrupt:
            os.kill(child.pid, signal.SIGINT)
            return
        # The program has ended. Its child writes nothing more.
        _kill(child)
        self._poll.unregister(child.link.fileno())

    def _report(self, child: _Child) -> None:
        # Processes that the child started end when their pipes close, unless they are stuck. Until
        # the child is reaped, no other process can have its number.
        _kill(child)
        _, status = os.waitpid(child.pid, 0)
        if os.WIFSIGNALED(status):
            reply = protocol.KILLED + bytes([os.WTERMSIG(status)])
        else:
            reply = protocol.EXITED + bytes([os.WEXITSTATUS(status)])
        with contextlib.suppress(OSError):
            child.link.sendall(reply)
        for descriptor in (child.pidfd, child.link.fileno()):
            del self._children[descriptor]
            with contextlib.suppress(KeyError):
                self._poll.unregister(descriptor)
        os.close(child.pidfd)
        child.link.close()


def _kill(child: _Child) -> None:
    """Kill a child and the processes that it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)


def _taken(link: socket.socket, identity: list[bytes]) -> protocol.Request | None:
    """Receive a request; None if another user sent it, or a process with other rights.

    Args:
        link: to the program.
        identity: of this process.

    Raises:
        OSError: the request was not received in time.
        ValueError: it is no request.
    """
    credentials = link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    _, uid, _ = _CREDENTIALS.unpack(credentials)
    if uid != os.geteuid():
        return None
    magic = _read(link, len(protocol.MAGIC))
    length = int.from_bytes(_read(link, protocol.LENGTH), "little")
    if magic != protocol.MAGIC or length > protocol.LONGEST:
        return None
    request = protocol.unpacked(_read(link, length))
    is_ours = request.identity == identity and bool(
        protocol.READING.intersection(request.arguments[:1])
    )
    return request if is_ours and _is_single_threaded() else None


def _read(link: socket.socket, length: int) -> bytes:
    received = bytearray()
    while len(received) < length:
        chunk = link.recv(length - len(received))
        if not chunk:
            raise ValueError("the request ended early")
        received += chunk
    return bytes(received)


def _is_single_threaded() -> bool:
    """Return whether a fork is safe: a library may have started a thread."""
    return len(os.listdir("/proc/self/task")) == 1


def _become(request: protocol.Request, descriptors: Sequence[int], parent: int) -> NoReturn:
    """Run the command in this child, and exit."""
    try:
        _run(request, descriptors, parent)
    except KeyboardInterrupt:
        os._exit(protocol.INTERRUPTED)
    finally:
        os._exit(1)


def _run(request: protocol.Request, descriptors: Sequence[int], parent: int) -> None:
    """Become the process that the program would have been, and run the command."""
    os.setpgid(0, 0)
    # A program that ignores SIGINT sends none; the agent may have been started with it ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        return
    *streams, directory = descriptors
    os.fchdir(directory)
    for standard, stream in enumerate(streams):
        os.dup2(stream, standard)
    os.closerange(len(streams), os.sysconf("SC_OPEN_MAX"))
    os.environb.clear()
    os.environb.update(request.environment)
    time.tzset()
    _open_streams(request.encodings)
    from rbdagent.__main__ import run_here

    signal.pthread_sigmask(signal.SIG_UNBLOCK, _INTERRUPTS)
    run_here(request.arguments)


def _open_streams(encodings: Sequence[str]) -> None:
    """Open the standard streams as Python would have opened them in the program."""
    for standard, name in enumerate(("stdin", "stdout", "stderr")):
        encoding, errors = encodings[2 * standard : 2 * standard + 2]
        opened = open(  # noqa: SIM115 - open until the child exits
            standard,
            "w" if standard else "r",
            encoding=encoding,
            errors=errors or None,
            closefd=False,
            # As Python: stderr, and a terminal, line by line.
            buffering=1 if name == "stderr" or os.isatty(standard) else -1,
        )
        setattr(sys, name, opened)
        setattr(sys, f"__{name}__", opened)


if __name__ == "__main__":
    main(sys.argv[1:])
