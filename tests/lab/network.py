"""The lab's network: a namespace with one bridge, and a tap on it for every VM."""

from __future__ import annotations

import contextlib
import ctypes
import os
import random
import socket
import subprocess
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from tests.lab.addresses import HOST, IPV4, Family
from tests.lab.errors import LabError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ADDRESS = IPV4.machine(HOST)
"""The address of Ceph and the API server in a network with IPv4."""

_FREE = (20_000, 32_768)
_BRIDGE = "br0"
_MACHINE = "-m"
"""Between the name of the lab's namespace and the number of one of its machines."""
_CLONE_NEWNET = 0x40000000
_NAME_LENGTH = 15  # IFNAMSIZ - 1


def free_port() -> int:
    """Return a port of loopback without a listener, which no connection gets as its own port.

    The kernel assigns those from 32768 on to connections (ip_local_port_range).
    """
    while True:
        port = random.randrange(*_FREE)
        with socket.socket() as taken, contextlib.suppress(OSError):
            taken.bind(("127.0.0.1", port))
            return port


class Network:
    """A named network namespace (``ip netns``); programs in it listen on the bridge.

    Nothing of it touches the machine's own network: two labs can use the same addresses.

    Args:
        netns: name of the namespace.
        families: of the machines' addresses.
    """

    def __init__(self, netns: str, *, families: Sequence[Family] = (IPV4,)) -> None:
        self.netns = netns
        self.families = tuple(families)

    def addresses(self, number: int) -> list[str]:
        """Return the addresses of a machine as ``ip addr add`` takes them, one of each family."""
        return [f"{family.machine(number)}/{family.prefix_length}" for family in self.families]

    def create(self) -> None:
        """Create the namespace and the bridge."""
        _ip("netns", "add", self.netns)
        self._inside("link", "set", "lo", "up")
        self._inside("link", "add", _BRIDGE, "type", "bridge")
        for address in self.addresses(HOST):
            self._add_address(address)
        self._inside("link", "set", _BRIDGE, "up")

    def remove(self) -> None:
        """Remove the namespace with all its content; no error if it does not exist."""
        for path in Path("/run/netns").glob(f"{self.netns}*"):
            if path.name == self.netns or path.name.startswith(f"{self.netns}{_MACHINE}"):
                _ip("netns", "delete", path.name)

    def add_tap(self, machine: str) -> str:
        """Add a tap for ``machine`` to the bridge and return its name; a second call is no error.

        Raises:
            LabError: the name is too long for the kernel.
        """
        tap = f"tap-{machine}"
        if len(tap) > _NAME_LENGTH:
            raise LabError(f"{machine}: {tap} is longer than {_NAME_LENGTH} letters")
        if tap not in self._links():
            self._inside("tuntap", "add", "dev", tap, "mode", "tap")
            self._inside("link", "set", tap, "master", _BRIDGE)
        self._inside("link", "set", tap, "up")
        return tap

    def add_cable(self, name: str, *, plugged: bool = True) -> str:
        """Add a cable, and return the name of its far end; a second call is no error.

        The near end is ``tap-NAME``, on the bridge, or ``ctl-NAME`` without it.
        """
        near, far = (f"tap-{name}", f"nic-{name}") if plugged else (f"ctl-{name}", f"ctn-{name}")
        if near not in self._links():
            self._inside("link", "add", near, "type", "veth", "peer", "name", far)
            if plugged:
                self._inside("link", "set", near, "master", _BRIDGE)
        for end in (near, far):
            self._inside("link", "set", end, "up")
        return far

    def lead_alone(self, address: str, *, through: str, own: str) -> None:
        """Route one address through the near end of a cable that is not on the bridge."""
        self._inside("addr", "replace", f"{own}/32", "dev", f"ctl-{through}")
        self._inside("route", "replace", address, "dev", f"ctl-{through}", "src", own)

    def add_machine(self, address: str) -> str:
        """Create a machine that is no VM, and return the name of its namespace, on the bridge.

        Its connections come from ``address``, an IPv4 address.
        """
        number = address.rpartition(".")[2]
        machine = f"{self.netns}{_MACHINE}{number}"
        cable = f"wire-{number}"
        _ip("netns", "add", machine)
        self._inside("link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", machine)
        self._inside("link", "set", cable, "master", _BRIDGE, "up")
        _ip("-n", machine, "addr", "add", f"{address}/{IPV4.prefix_length}", "dev", "eth0")
        _ip("-n", machine, "link", "set", "eth0", "up")
        return machine

    def serve(self, address: str) -> None:
        """Add another address to the bridge, to which the machines send traffic."""
        self._add_address(address)

    def _add_address(self, address: str) -> None:
        # Without duplicate address detection, during which a new IPv6 address cannot be used.
        detection = ("nodad",) if ":" in address else ()
        self._inside("addr", "add", address, "dev", _BRIDGE, *detection)

    def lead(self, subnet: str, *, via: str) -> None:
        """Route the traffic for a machine's pods to that machine."""
        self._inside("route", "replace", subnet, "via", via)

    def cut(self, machine: str) -> None:
        """Disconnect ``machine``: from now on neither side receives packets of the other."""
        self._inside("link", "set", f"tap-{machine}", "down")

    def mend(self, machine: str) -> None:
        """Connect ``machine`` again."""
        self._inside("link", "set", f"tap-{machine}", "up")

    def connect(self, address: str, port: int, *, timeout_s: float) -> socket.socket:
        """Connect to a TCP port inside the namespace.

        A socket belongs permanently to the namespace of the thread that made it. This thread
        therefore enters the namespace, makes the socket and leaves it at once.
        """
        with self._entered():
            made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            made.settimeout(timeout_s)
            made.connect((address, port))
        except OSError:
            made.close()
            raise
        return made

    @contextlib.contextmanager
    def _entered(self) -> Iterator[None]:
        """Move the calling thread, and no other, into the namespace during the block.

        os.setns exists from Python 3.12 on; Debian 12 has 3.11.
        """
        own = os.open(f"/proc/self/task/{threading.get_native_id()}/ns/net", os.O_RDONLY)
        try:
            inside = os.open(f"/run/netns/{self.netns}", os.O_RDONLY)
            try:
                _setns(inside)
            finally:
                os.close(inside)
            try:
                yield
            finally:
                _setns(own)
        finally:
            os.close(own)

    def _links(self) -> set[str]:
        # "3: tap-worker-1: <...": the second field, without what may follow an @.
        lines = self._inside("-o", "link", "show").splitlines()
        return {line.split(":")[1].strip().partition("@")[0] for line in lines}

    def _inside(self, *args: str) -> str:
        return _ip("-n", self.netns, *args)


def _setns(handle: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(handle, _CLONE_NEWNET) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _ip(*args: str) -> str:
    done = subprocess.run(["ip", *args], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise LabError(f"ip {' '.join(args)}: {done.stderr.strip()}")
    return done.stdout
