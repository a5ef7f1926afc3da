"""Events that wake the loop: a kernel event, or a change in the Kubernetes API.

Kernel uevents report every rbd and nbd device that is added, removed or changed. ``poll`` on the
host's mountinfo reports every change of the mounts (proc(5), since Linux 2.6.30). The periodic
resync covers missed events.
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
"""NETLINK_KOBJECT_UEVENT: multicast group 1 has the events of the kernel, group 2 those of udev."""
_BUFFER: Final = 1 << 20
_MESSAGE: Final = 8192
_SETTLE_S: Final = 0.2
"""A mount or a map causes several events; the loop observes once, after the last event."""
_LONGEST_SETTLE_S: Final = 1.0
_DEVICE: Final = re.compile(rb"\0DEVNAME=(?:rbd|nbd)\d+(?:p\d+)?(?:\0|$)")


class Wake:
    """Waits for a change, a timeout, or the end of the agent."""

    def __init__(self, procfs: Path) -> None:
        """Open the event sources; :attr:`deaf` names those that cannot be opened.

        Args:
            procfs: the host's /proc; process 1 in it has the host's mounts.
        """
        self.deaf: tuple[str, ...] = ()
        self._poll = select.poll()
        self._end_read, self._end_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._poll.register(self._end_read, select.POLLIN)
        self._change_read, self._change_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._poll.register(self._change_read, select.POLLIN)
        self._uevents = self._open_uevents()
        self._mounts = self._open_mountinfo(procfs / "1" / "mountinfo")

    def _open_uevents(self) -> socket.socket | None:
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

    def _open_mountinfo(self, path: Path) -> int | None:
        try:
            opened = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            self.deaf += (f"{path}: {error.strerror}",)
            return None
        self._poll.register(opened, select.POLLPRI)
        return opened

    def end(self) -> None:
        """End every wait, also later ones; a signal handler may call this."""
        with contextlib.suppress(OSError):
            os.write(self._end_write, b"!")

    def tell(self) -> None:
        """Report a change that no kernel event shows; any thread may call this."""
        # A full pipe already wakes the loop.
        with contextlib.suppress(BlockingIOError):
            os.write(self._change_write, b"!")

    def wait_for_end(self) -> None:
        """Wait until :meth:`end` is called; any thread may call this while another one waits."""
        select.select([self._end_read], [], [])

    def rest(self, seconds: float) -> bool:
        """Sleep while changes collect; return whether :meth:`end` was called."""
        return bool(select.select([self._end_read], [], [], seconds)[0])

    def wait(self, seconds: float) -> str:
        """Wait, and return why the wait ended: ``change``, ``time`` or ``end``.

        A change before the call ends the wait immediately.
        """
        deadline = time.monotonic() + seconds
        while True:
            left = max(deadline - time.monotonic(), 0.0)
            why = self._once(left)
            if why == "end":
                return why
            if why == "change":
                return self._wait_until_quiet()
            if not left:
                return "time"

    def _wait_until_quiet(self) -> str:
        """Wait until no event has arrived for a short time, up to a limit."""
        latest = time.monotonic() + _LONGEST_SETTLE_S
        while time.monotonic() < latest:
            why = self._once(_SETTLE_S)
            if why != "change":
                return "end" if why == "end" else "change"
        return "change"

    def _once(self, seconds: float) -> str:
        """Poll once; return ``nothing`` for events of other kinds of devices."""
        changed = False
        for descriptor, _ in self._poll.poll(seconds * 1000):
            if descriptor == self._end_read:
                return "end"
            if descriptor == self._change_read:
                os.read(self._change_read, _MESSAGE)
                changed = True
            elif self._uevents is not None and descriptor == self._uevents.fileno():
                changed |= self._read_uevents(self._uevents)
            else:
                # mountinfo: poll resets the event. Nothing needs to be read.
                changed = True
        return "change" if changed else "nothing"

    def _read_uevents(self, uevents: socket.socket) -> bool:
        is_relevant = False
        while True:
            try:
                message, (sender, _) = uevents.recvfrom(_MESSAGE)
            except BlockingIOError:
                return is_relevant
            except OSError:
                # ENOBUFS: events were lost. One of them may have been for an rbd or nbd device.
                return True
            # Port 0 is the kernel. Other processes may also send to this socket.
            is_relevant |= sender == 0 and _DEVICE.search(message) is not None


_NETLINK_KOBJECT_UEVENT: Final = 15
"""From linux/netlink.h; the module socket does not define it."""
