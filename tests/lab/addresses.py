"""The addresses of a lab: one plan for each IP family, and the families of a network.

Standard library only: the installer uses it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

HOST: Final = 1
"""The machine that has Ceph and the API server: the network's bridge."""

_NOWHERE: Final = 250


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """The plan of one IP family; ``{}`` is the place of a machine's number."""

    machines: str
    prefix_length: int
    pods: str
    services: str
    api_service: str
    """The API server's address for pods: without a proxy, the network routes it to the bridge."""
    every_address: str
    every_network: str
    forwarding: str
    """Below /proc/sys/net: the switch that makes a node forward traffic for its pods."""

    def machine(self, number: int) -> str:
        """Return the address of a machine; its digits end with the number in either family."""
        return self.machines.format(number)

    @property
    def nowhere(self) -> str:
        """Return an address of the network that no machine has."""
        return self.machine(_NOWHERE)

    def pod_subnet(self, number: int) -> str:
        """Return the addresses of the pods of a node."""
        return self.pods.format(number)


IPV4: Final = Family(
    machines="10.77.0.{}",
    prefix_length=24,
    pods="10.78.{}.0/24",
    services="10.96.0.0/16",
    api_service="10.96.0.1",
    every_address="0.0.0.0",
    every_network="0.0.0.0/0",
    forwarding="ipv4/ip_forward",
)
IPV6: Final = Family(
    machines="fd77::{}",
    prefix_length=64,
    pods="fd78:0:0:{}::/64",
    services="fd96::/112",
    api_service="fd96::1",
    every_address="::",
    every_network="::/0",
    forwarding="ipv6/conf/all/forwarding",
)

NETWORKS: Final = {"ipv4": (IPV4,), "ipv6": (IPV6,), "dual": (IPV4, IPV6)}
"""Families of the machines' addresses by the name of the choice.

Kubernetes uses the first, Ceph the last: on a dual-stack network clients of Ceph have an IPv6
address, which the Node lists as its second.
"""


def bracketed(address: str) -> str:
    """Return an address in the form in which a port follows it."""
    return f"[{address}]" if ":" in address else address
