"""What systemd is told of the service: sd_notify(3), a datagram to a socket that it names.

Whoever was not started by systemd has nobody to tell, and nothing is sent.
"""

from __future__ import annotations

import contextlib
import socket
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rbdagent.agent.loop import Seen

_PATIENCE_S: Final = 1.0
"""systemd reads at once, or hangs itself: then the agent does not wait for it."""


class ServiceManager:
    """systemd, where it started this process and waits to hear of it."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        """Find out who listens.

        Args:
            environment: ``NOTIFY_SOCKET`` is the path of a socket, or ``@`` and an abstract name;
                with ``WATCHDOG_USEC`` the heart's beat is waited for.
        """
        address = environment.get("NOTIFY_SOCKET", "")
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        self._is_watched = "WATCHDOG_USEC" in environment
        self._is_ready = False

    def alive(self) -> None:
        """Say that the loop came one step further; nobody but the loop may say so."""
        if self._is_watched:
            self._say("WATCHDOG=1")

    def looked(self, seen: Seen) -> None:
        """Say what the last look showed; the first one makes the service ready."""
        ready = () if self._is_ready else ("READY=1",)
        self._is_ready = True
        self._say(*ready, f"STATUS={_status(seen)}")

    def stopping(self) -> None:
        """Say that the end has begun."""
        self._say("STOPPING=1")

    def _say(self, *lines: str) -> None:
        if not self._address:
            return
        with (
            contextlib.suppress(OSError),
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as to,
        ):
            to.settimeout(_PATIENCE_S)
            to.sendto("\n".join(lines).encode(), self._address)


def _status(seen: Seen) -> str:
    """Give one line, as ``systemctl status`` shows it: ``3 mapped: 2 InUse, 1 Orphaned``."""
    verdicts = seen.verdicts
    told = ", ".join(f"{count} {verdict}" for verdict, count in sorted(verdicts.items()))
    unseen = ", ".join(seen.snapshot.sources.failed)
    mapped = f"{verdicts.total()} mapped"
    return "".join((mapped, told and f": {told}", unseen and f"; not observed: {unseen}"))
