"""Addresses of a Node that only its network plugin writes down, in annotations.

kubelet lists one address for each family (InternalIP). A node with a second network, or with mons
in the pod network, reaches Ceph from another one (rook#11201, rook#12254).
"""

from __future__ import annotations

from ipaddress import ip_interface
from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

_CALICO: Final = (
    "projectcalico.org/IPv4IPIPTunnelAddr",
    "projectcalico.org/IPv4VXLANTunnelAddr",
    "projectcalico.org/IPv6VXLANTunnelAddr",
    "projectcalico.org/IPv4WireguardInterfaceAddr",
)
"""Annotations of a Node (libcalico-go/lib/backend/k8s/resources/node.go)."""
_CILIUM: Final = (
    "network.cilium.io/ipv4-cilium-host",
    "network.cilium.io/ipv6-cilium-host",
    "io.cilium.network.ipv4-cilium-host",
    "io.cilium.network.ipv6-cilium-host",
)
"""The address of cilium_host, from which a node reaches pods, in the annotations of today and of
earlier versions (pkg/annotation/k8s.go). Cilium writes them if annotateK8sNode is set."""
_FLANNEL: Final = (
    ("flannel.alpha.coreos.com/backend-type", "vxlan"),
    ("flannel.alpha.coreos.com/kube-subnet-manager", "true"),
)
"""Annotations of a Node whose subnet is its podCIDR (pkg/subnet/kube of flannel). The device of the
VXLAN has the address of the subnet itself (RegisterNetwork() in pkg/backend/vxlan/vxlan.go). With
another network plugin, a podCIDR may have no meaning."""
_LISTS: Final = ("k8s.ovn.org/host-cidrs", "k8s.ovn.org/host-addresses")
"""All addresses of the node's interfaces, as a list in JSON, without those that OVN manages
(go-controller/pkg/util/node_annotations.go of ovn-kubernetes); the second until OpenShift 4.13."""
_SINGLE: Final = (
    "projectcalico.org/IPv4Address",
    "projectcalico.org/IPv6Address",
    "flannel.alpha.coreos.com/public-ip",
    "flannel.alpha.coreos.com/public-ipv6",
)
"""The address of the interface that Calico or flannel uses between nodes: it may be another one
than kubelet's. With the annotation ``-overwrite``, it may be one of a NAT in front of the node."""
_MOST: Final = 64
"""Addresses of a Node; one with more has them from something else than its interfaces."""
_LONGEST: Final = 8192


def overlay_ips(annotations: Mapping[str, object], pod_cidrs: Iterable[object]) -> tuple[str, ...]:
    """Return the addresses from which a node sends into the network of its pods.

    Args:
        annotations: those of the Node.
        pod_cidrs: ``spec.podCIDRs`` of the Node.
    """
    found = [str(annotations[name]) for name in (*_CALICO, *_CILIUM) if annotations.get(name)]
    if all(annotations.get(name) == value for name, value in _FLANNEL):
        found += [str(subnet).partition("/")[0] for subnet in pod_cidrs]
    return tuple(dict.fromkeys(found))


def interface_ips(annotations: Mapping[str, object]) -> tuple[tuple[str, str], ...]:
    """Return the addresses of a node's own interfaces, each with the annotation that lists it.

    Other values than addresses are left out, and so are those that every machine has.
    """
    found: dict[str, str] = {}
    for name, text in _written(annotations):
        address = _address(text)
        if address is not None:
            found.setdefault(address, name)
    return tuple(found.items())[:_MOST]


def _written(annotations: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    for name in _LISTS:
        value = annotations.get(name)
        for text in _list(value) if isinstance(value, str) else ():
            yield name, text
    for name in _SINGLE:
        value = annotations.get(name)
        if isinstance(value, str) and f"{name}-overwrite" not in annotations:
            yield name, value


def _list(text: str) -> list[str]:
    if len(text) > _LONGEST:
        return []
    try:
        return msgspec.json.decode(text, type=list[str])
    except (msgspec.DecodeError, UnicodeEncodeError):
        return []


def _address(text: str) -> str | None:
    """Return an address without its prefix length; None for one that identifies no node."""
    if "%" in text:
        return None  # of one link only, and its zone may be any text
    try:
        address = ip_interface(text).ip
    except ValueError:
        return None
    is_common = address.is_loopback or address.is_link_local or address.is_unspecified
    return None if is_common or address.is_multicast else str(address)
