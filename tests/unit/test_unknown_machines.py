"""Clients whose address no Node lists: how to find their machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from rbdagent.commands import lines_of
from rbdagent.model import EntityAddress
from rbdagent.parse.kubernetes import node as parse_node
from rbdagent.parse.kubernetes import parse_object
from tests.support.rule_tables import attached, kubelet_event, stage
from tests.support.snapshots import (
    POD_PATH,
    codes,
    found,
    mount,
    node,
    pod,
    remote_watcher,
    unmapped,
    volume,
    waiting_pod,
    watcher,
    world,
)

if TYPE_CHECKING:
    from rbdagent.model import Snapshot, Watcher

STRANGER: Final = watcher(address=EntityAddress(ip="10.132.29.1", nonce=77), client=5604016)
FIND: Final = "Find the machine that has the address 10.132.29.1"


def still_used(*watchers: Watcher, **in_kube: Any) -> Snapshot:  # noqa: ANN401 - as the builders
    """Return worker-1, where ceph-csi refuses to stage the image because of its watchers."""
    parts = {
        "pods": (waiting_pod(node="worker-1"),),
        "events": (kubelet_event(stage("rbd image k8s/x is still being used")),),
        "attachments": attached("worker-1"),
        "nodes": (node("worker-1"), node("worker-2")),
        **in_kube,
    }
    return unmapped(of_image={"watchers": watchers}, in_kube=parts)


def test_search_for_an_unknown_machine_is_the_step_of_the_pod_that_waits() -> None:
    seen = still_used(STRANGER)
    refused, holder = found(seen, "RBD402"), found(seen, "RBD119")
    assert str(refused.remedy).startswith(FIND)
    assert refused.remedy == holder.remedy
    assert lines_of(refused.commands) == ("ssh worker-2 ip -br address",)
    assert refused.commands == holder.commands
    assert any("fence only this client: 10.132.29.1:0/77" in line for line in holder.evidence)


def test_client_of_a_known_node_is_looked_at_there() -> None:
    for watchers in ((remote_watcher(),), (remote_watcher(), STRANGER)):
        refused = found(still_used(*watchers), "RBD402")
        assert str(refused.remedy).startswith("See the findings about the holder")


def test_nodes_that_may_have_the_client_come_first() -> None:
    seen = still_used(STRANGER, attachments=attached("worker-2"))
    assert lines_of(found(seen, "RBD402").commands)[0].startswith("ssh worker-2 rbdagent who-holds")


def test_address_of_an_overlay_names_its_node() -> None:
    nodes = (node("worker-1"), node("worker-2", overlay_ips=("10.132.29.1",)))
    refused = found(still_used(STRANGER, nodes=nodes), "RBD402")
    assert str(refused.remedy).startswith("Observe worker-2")
    holder = found(still_used(STRANGER, nodes=nodes), "RBD119")
    assert "most likely that of worker-2" in holder.message
    assert lines_of(refused.commands)[0].startswith("ssh worker-2 rbdagent who-holds")


def test_overlay_address_of_two_nodes_names_neither() -> None:
    nodes = tuple(node(name, overlay_ips=("10.132.29.1",)) for name in ("worker-1", "worker-2"))
    assert str(found(still_used(STRANGER, nodes=nodes), "RBD402").remedy).startswith(FIND)


def test_client_in_the_overlay_of_a_node_is_not_outside_the_cluster() -> None:
    for overlay_ips, is_outside in (((), True), (("10.132.29.1",), False)):
        nodes = (node("worker-1"), node("worker-2", overlay_ips=overlay_ips))
        in_kube = {"pods": (pod(),), "nodes": nodes, "persistent_volumes": (volume(),)}
        seen = world(
            mapped={"mounts": (mount(), mount(path=POD_PATH))},
            of_image={"watchers": (watcher(), STRANGER)},
            in_kube=in_kube,
        )
        assert ("RBD774" in codes(seen)) is is_outside


CALICO: Final = {
    "projectcalico.org/IPv4Address": "10.77.0.11/24",
    "projectcalico.org/IPv4IPIPTunnelAddr": "10.244.73.64",
    "projectcalico.org/IPv6VXLANTunnelAddr": "fd00:10::40",
}
FLANNEL: Final = {
    "flannel.alpha.coreos.com/backend-type": "vxlan",
    "flannel.alpha.coreos.com/kube-subnet-manager": "true",
    "flannel.alpha.coreos.com/public-ip": "10.77.0.11",
}
SUBNETS: Final = ["10.132.29.0/24", "fd00:10:1::/64"]


def test_overlay_addresses_are_read_from_the_node_of_calico_or_flannel() -> None:
    host_gateway = {**FLANNEL, "flannel.alpha.coreos.com/backend-type": "host-gw"}
    for written, expected in (
        (CALICO, ("10.244.73.64", "fd00:10::40")),
        (FLANNEL, ("10.132.29.0", "fd00:10:1::")),
        (host_gateway, ()),
        ({}, ()),
        (None, ()),
    ):
        data = {
            "metadata": {"name": "worker-1", "annotations": written},
            "spec": {"podCIDRs": SUBNETS},
        }
        assert parse_object(parse_node, data, what="a Node").overlay_ips == expected


def test_no_command_is_printed_for_each_of_many_nodes() -> None:
    many = tuple(node(f"worker-{number}") for number in range(1, 9))
    refused = found(still_used(STRANGER, nodes=many), "RBD402")
    assert refused.commands == ()
    assert str(refused.remedy).startswith(FIND)
