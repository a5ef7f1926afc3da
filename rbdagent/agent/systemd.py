"""Notifications to systemd: sd_notify(3), a datagram to the socket that systemd names.

Nothing is sent if systemd did not start the process.
"""

from __future__ import annotations

import contextlib
import socket
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rbdagent.agent.cycle import CycleResult

_TIMEOUT_S: Final = 1.0
"""systemd reads immediately. If systemd hangs, the agent does not wait any longer."""


class ServiceManager:
    """The connection to systemd, if systemd started this process and expects notifications."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        """Read the address of systemd's socket.

        Args:
            environment: ``NOTIFY_SOCKET`` is the path of a socket, or ``@`` and an abstract name.
                If ``WATCHDOG_USEC`` is set, systemd expects watchdog notifications.
        """
        address = environment.get("NOTIFY_SOCKET", "")
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        self._is_watched = "WATCHDOG_USEC" in environment
        self._is_ready = False

    def alive(self) -> None:
        """Send the watchdog notification; only the loop may call this, after it made progress."""
        if self._is_watched:
            self._send("WATCHDOG=1")

    def send_status(self, result: CycleResult) -> None:
        """Send the status after a cycle; after the first cycle, the service is ready."""
        ready = () if self._is_ready else ("READY=1",)
        self._is_ready = True
        self._send(*ready, f"STATUS={_status(result)}")

    def stopping(self) -> None:
        """Send the notification that the service is stopping."""
        self._send("STOPPING=1")

    def _send(self, *lines: str) -> None:
        if not self._address:
            return
        with (
            contextlib.suppress(OSError),
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as to,
        ):
            to.settimeout(_TIMEOUT_S)
            to.sendto("\n".join(lines).encode(), self._address)


def _status(result: CycleResult) -> str:
    """Return a line for ``systemctl status``: ``3 mapped: 2 InUse, 1 Orphaned``."""
    verdicts = result.verdicts
    counts = ", ".join(f"{count} {verdict}" for verdict, count in sorted(verdicts.items()))
    unseen = ", ".join(result.snapshot.sources.failed)
    mapped = f"{verdicts.total()} mapped"
    return "".join((mapped, counts and f": {counts}", unseen and f"; not observed: {unseen}"))
