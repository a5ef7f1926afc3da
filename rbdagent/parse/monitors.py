"""Parser of the lists of monitors that ceph-csi and Rook keep in a ConfigMap."""

from __future__ import annotations

import ipaddress
import re
from typing import Final

import msgspec
from msgspec import Struct

from rbdagent.errors import ParseError
from rbdagent.parse.excerpt import printable, shortened

_MOST_BYTES: Final = 1 << 20
"""Limit of the API server for a ConfigMap (MaxSecretSize, pkg/apis/core/validation)."""
_MOST_MONITORS: Final = 64
_MOST_IDS: Final = 10
_ADDRESS: Final = re.compile(
    r"(?:v[12]:)?(?:\[(?P<six>[0-9A-Fa-f:.]{2,45})\]|[0-9A-Za-z][0-9A-Za-z.-]{0,252})"
    r"(?::[0-9]{1,5})?(?:/0)?"
)
"""An IP address or a host name. No character that separates options or addresses of Ceph."""
_FORM: Final = "IP:PORT, IPv6 in brackets, or [v2:IP:PORT,v1:IP:PORT]"


class _Cluster(Struct, frozen=True):
    """Holds a cluster of the JSON list, without its other fields."""

    clusterID: str = ""  # noqa: N815 - the name in JSON
    monitors: tuple[str, ...] | None = None


def parse_monitor_list(text: str, *, cluster_id: str, where: str) -> tuple[str, ...]:
    """Read the monitors of a cluster, as the option mon_host accepts them.

    Two forms are known. A JSON list of clusters with ``clusterID`` and ``monitors`` is what
    ceph-csi reads; the first cluster with the id counts (readClusterInfo, ceph-csi
    internal/util/csiconfig.go). An administrator or ceph-csi's chart writes it, the
    ceph-csi-operator for each ClientProfile (csiClusterInfoRecord, internal/controller/
    clientprofile_controller.go, v1.0.4), which Rook uses since 1.18, or Rook itself
    (SaveClusterConfig, pkg/operator/ceph/csi/cluster_config.go, v1.19.10). ``data`` of
    rook-ceph-mon-endpoints is ``a=10.0.0.1:6789,b=10.0.0.2:6789`` and has no id
    (FlattenMonEndpoints and ParseMonEndpoints, Rook pkg/operator/ceph/controller).

    Raises:
        ParseError: it has neither form, no monitors of the cluster, or something that is not an
            address. An address is never dropped: the rest of the list may be of another cluster.
    """
    if len(text) > _MOST_BYTES:
        raise _unreadable("a list of monitors", where, f"{len(text)} characters", "at most 1 MiB")
    is_json = text.lstrip().startswith("[")
    monitors = _of_cluster(text, cluster_id, where) if is_json else _of_endpoints(text)
    if not 0 < len(monitors) <= _MOST_MONITORS:
        found = f"{len(monitors)} entries"
        raise _unreadable("a list of monitors", where, found, f"1 to {_MOST_MONITORS}")
    for monitor in monitors:
        if not _is_monitor(monitor):
            raise _unreadable("a monitor", where, monitor, _FORM)
    return monitors


def _of_cluster(text: str, cluster_id: str, where: str) -> tuple[str, ...]:
    try:
        clusters = msgspec.json.decode(text, type=tuple[_Cluster, ...])
    except (ValueError, RecursionError):
        expected = "a JSON list of objects with clusterID and monitors"
        raise _unreadable("a list of monitors", where, text, expected) from None
    for cluster in clusters:
        if cluster.clusterID == cluster_id:
            return cluster.monitors or ()
    known = ", ".join(cluster.clusterID for cluster in clusters[:_MOST_IDS])
    expected = f"a cluster with clusterID {cluster_id}"
    raise _unreadable("the clusters", where, known, expected)


def _of_endpoints(text: str) -> tuple[str, ...]:
    entries = text.strip().split(",", _MOST_MONITORS)
    return tuple(entry.partition("=")[2].strip() for entry in entries)


def _is_monitor(text: str) -> bool:
    """Return whether a text is an address, or several addresses of one monitor in brackets."""
    if text.startswith("[v") and text.endswith("]"):
        addresses = text[1:-1].split(",", _MOST_MONITORS)
        return all(address[:1] == "v" and _is_address(address) for address in addresses)
    return _is_address(text)


def _is_address(text: str) -> bool:
    match = _ADDRESS.fullmatch(text)
    if match is None:
        return False
    try:
        return match["six"] is None or bool(ipaddress.IPv6Address(match["six"]))
    except ValueError:
        return False


def _unreadable(what: str, where: str, text: str, expected: str) -> ParseError:
    return ParseError(what=what, where=where, text=shortened(printable(text)), expected=expected)
