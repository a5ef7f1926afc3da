"""What the program and the prepared process send each other, over a Unix socket.

The program sends the magic, the length of the request, and the request. The process sends `TAKEN`,
or closes the socket. The program sends `GO` with its standard streams and its directory: before
that, copies of the streams in a socket that is not read would make a reader of the output wait. At
the end, the process sends `EXITED` or `KILLED`, with a number. `INTERRUPT` means that the user
pressed Ctrl-C.

Each command of the program imports this module first, so it imports nothing that costs time.
"""

from __future__ import annotations

import os
import sys

import rbdagent

READING = frozenset(
    {"diagnose", "drain-check", "explain", "images", "list", "snapshot", "who-holds"}
)
"""The verbs that the prepared process answers: they write nothing but their output."""
STATE_DIR = "/var/lib/rbdagent"
"""Default of --state-dir; only root may enter its subdirectory."""
DIRECTORY = "prepared"
ANSWERS = "answers.sock"
"""The socket of the prepared process."""
WAKE = "wake.sock"
"""The socket of the agent: a connection to it starts the prepared process."""
MAGIC = b"rbdagent"
TAKEN, GO, INTERRUPT, EXITED, KILLED = b"T", b"G", b"I", b"E", b"K"
INTERRUPTED = 130
"""The exit code of a command after Ctrl-C: 128 and the number of SIGINT, as shells have it."""
LENGTH = 4
LONGEST = 4 << 20
"""Maximum length of a request: execve(2) accepts 6 MiB of arguments and environment in total, of
which the largest environments of a shell use a hundredth."""
_RIGHTS = (b"CapEff:", b"NoNewPrivs:", b"Seccomp:")
_NAMESPACES = ("cgroup", "ipc", "mnt", "net", "pid", "user", "uts")


def directory() -> str:
    """Return the directory of the sockets."""
    return f"{os.environ.get('RBDAGENT_STATE_DIR') or STATE_DIR}/{DIRECTORY}"


def identity() -> list[bytes]:
    """Return what two processes must have in common, so that their answers are equal.

    The program, its Python, the namespaces, the root directory and the rights.

    Raises:
        OSError: procfs is not mounted, or does not show this process.
    """
    root = os.stat("/")
    with open("/proc/self/status", "rb") as status:
        rights = [line for line in status if line.startswith(_RIGHTS)]
    return [
        rbdagent.__version__.encode(),
        os.fsencode(os.path.dirname(rbdagent.__file__)),
        sys.version.encode(),
        sys.getfilesystemencoding().encode(),
        b"%d %d" % (root.st_dev, root.st_ino),
        *(b"%d" % os.stat(f"/proc/self/ns/{name}").st_ino for name in _NAMESPACES),
        *rights,
    ]


class Request:
    """A command line and its surroundings."""

    def __init__(
        self,
        identity: list[bytes],
        arguments: list[str],
        environment: dict[bytes, bytes],
        encodings: list[str],
    ) -> None:
        """Take the parts.

        Args:
            identity: of the process that sends the request.
            arguments: the words after the name of the program.
            environment: all variables.
            encodings: encoding and error handler of each standard stream.
        """
        self.identity = identity
        self.arguments = arguments
        self.environment = environment
        self.encodings = encodings

    def packed(self) -> bytes:
        """Return the request as bytes; no part of it can contain a zero byte."""
        lists = (
            self.identity,
            [os.fsencode(word) for word in self.arguments],
            [b"=".join(item) for item in self.environment.items()],
            [word.encode() for word in self.encodings],
        )
        parts = [part for one in lists for part in (b"%d" % len(one), *one)]
        return b"\0".join(parts)


def unpacked(packed: bytes) -> Request:
    """Return a request.

    Raises:
        ValueError: these bytes are no request.
    """
    parts = iter(packed.split(b"\0"))
    try:
        known, arguments, environment, encodings = (
            [next(parts) for _ in range(int(next(parts)))] for _ in range(4)
        )
    except (StopIteration, RuntimeError):
        raise ValueError("an incomplete request") from None
    return Request(
        known,
        [os.fsdecode(word) for word in arguments],
        dict(item.partition(b"=")[::2] for item in environment),
        [word.decode() for word in encodings],
    )
