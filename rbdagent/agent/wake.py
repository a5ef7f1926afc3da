"""What wakes the loop: the kernel's own word that something changed, or the API's.

Kernel uevents tell of every rbd and nbd device that comes, goes or changes; ``poll`` on the host's
mountinfo tells of every mount there (proc(5), since Linux 2.6.30). Time is only the net below.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import socket
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

_KERNEL_GROUP: Final = 1
"""Multicast group 1 of NETLINK_KOBJECT_UEVENT has the kernel's own events, 2 udev's."""
_BUFFER: Final = 1 << 20
_MESSAGE: Final = 8192
_SETTLE_S: Final = 0.2
"""A mount or a map is several events in a row: look once, after the last of them."""
_LONGEST_SETTLE_S: Final = 1.0
_DEVICE: Final = re.compile(rb"\0DEVNAME=(?:rbd|nbd)\d+(?:p\d+)?(?:\0|$)")


class Wake:
    """Waits for a change, for a time, or for the end."""

    def __init__(self, procfs: Path) -> None:
        """Listen from now on; what cannot be listened to is named by :attr:`deaf`.

        Args:
            procfs: the host's /proc: its process 1 has the host's mounts.
        """
        self.deaf: tuple[str, ...] = ()
        self._poll = select.poll()
        self._ending, self._end = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._poll.register(self._ending, select.POLLIN)
        self._told, self._tell = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._poll.register(self._told, select.POLLIN)
        self._uevents = self._listen()
        self._mounts = self._watch(procfs / "1" / "mountinfo")

    def _listen(self) -> socket.socket | None:
        try:
            made = socket.socket(
                socket.AF_NETLINK,
                socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC,
                _NETLINK_KOBJECT_UEVENT,
            )
            made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER)
            made.bind((0, _KERNEL_GROUP))
        except OSError as error:
            self.deaf += (f"kernel uevents: {error.strerror}",)
            return None
        self._poll.register(made, select.POLLIN)
        return made

    def _watch(self, path: Path) -> int | None:
        try:
            opened = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            self.deaf += (f"{path}: {error.strerror}",)
            return None
        self._poll.register(opened, select.POLLPRI)
        return opened

    def end(self) -> None:
        """Wake whoever waits, for the last time; may be called by a signal handler."""
        with contextlib.suppress(OSError):
            os.write(self._end, b"!")

    def tell(self) -> None:
        """Say that something changed which the kernel does not tell; any thread may."""
        # A full pipe has said it already.
        with contextlib.suppress(BlockingIOError):
            os.write(self._tell, b"!")

    def wait_for_end(self) -> None:
        """Wait until :meth:`end` was called; any thread may, beside the one that waits."""
        select.select([self._ending], [], [])

    def rest(self, seconds: float) -> bool:
        """Let changes gather; tell whether it is the end."""
        return bool(select.select([self._ending], [], [], seconds)[0])

    def wait(self, seconds: float) -> str:
        """Wait; give why it ended: ``change``, ``time`` or ``end``.

        What came before is a change, however short the wait.
        """
        deadline = time.monotonic() + seconds
        while True:
            left = max(deadline - time.monotonic(), 0.0)
            why = self._once(left)
            if why == "end":
                return why
            if why == "change":
                return self._settled()
            if not left:
                return "time"

    def _settled(self) -> str:
        """Wait until it has been quiet for a moment, but not for long."""
        latest = time.monotonic() + _LONGEST_SETTLE_S
        while time.monotonic() < latest:
            why = self._once(_SETTLE_S)
            if why != "change":
                return "end" if why == "end" else "change"
        return "change"

    def _once(self, seconds: float) -> str:
        """Poll once; an event that is no change of ours counts as nothing."""
        changed = False
        for descriptor, _ in self._poll.poll(seconds * 1000):
            if descriptor == self._ending:
                return "end"
            if descriptor == self._told:
                os.read(self._told, _MESSAGE)
                changed = True
            elif self._uevents is not None and descriptor == self._uevents.fileno():
                changed |= self._read_uevents(self._uevents)
            else:
                # The event is over once it was told: nothing needs to be read.
                changed = True
        return "change" if changed else "nothing"

    def _read_uevents(self, uevents: socket.socket) -> bool:
        ours = False
        while True:
            try:
                message, (sender, _) = uevents.recvfrom(_MESSAGE)
            except BlockingIOError:
                return ours
            except OSError:
                # ENOBUFS: some were lost, and any of them may have been ours.
                return True
            # Port 0 is the kernel; anybody may send to a socket.
            ours |= sender == 0 and _DEVICE.search(message) is not None


_NETLINK_KOBJECT_UEVENT: Final = 15
"""linux/netlink.h; the module socket does not name it."""
