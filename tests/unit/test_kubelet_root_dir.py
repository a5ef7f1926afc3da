"""The node plugin and kubelet use different directories: the other nodes decide what to change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from rbdagent.model import CSINode
from rbdagent.parse.recognised import Recognised
from tests.support.quoted_messages import QUOTES
from tests.support.rows import each_row
from tests.support.rule_tables import listing, mounting
from tests.support.snapshots import DRIVER, UNSEEN, found, node, unmapped, waiting_pod

if TYPE_CHECKING:
    from rbdagent.model import Snapshot

NO_PATH: Final = QUOTES[Recognised.NO_STAGING_PATH][0].text
ALL: Final = "deploy the node plugin with it (kubeletDir of the Helm chart"
ONE: Final = "if only this node has it there, drain the node and set --root-dir of its kubelet back"
BACK: Final = "Drain the node, and set --root-dir of its kubelet back to the directory of the other"


def unregistered(*nodes: CSINode, **in_kube: Any) -> Snapshot:  # noqa: ANN401 - as the builders
    """Build a snapshot of a node whose kubelet has another directory, and lacks the driver."""
    parts = {
        "pods": (waiting_pod(node="worker-1"),),
        "csi_nodes": (CSINode(node_name="worker-1"), *nodes),
        **in_kube,
    }
    return unmapped(of_kubelet={"roots": ("/data/kubelet",)}, in_kube=parts)


def registered(*drivers: str) -> CSINode:
    return CSINode(node_name="worker-2", drivers=drivers)


BOTH: Final = {
    "a path, several nodes": mounting(NO_PATH),
    "a path, nodes unseen": mounting(NO_PATH, nodes=UNSEEN),
    "no driver, another node has none either": unregistered(registered("x.example.org")),
    "no driver, other nodes unseen": unregistered(),
}


@each_row("name", BOTH)
def test_setting_of_all_nodes_is_changed_only_if_all_nodes_need_it(name: str) -> None:
    remedy = str(found(BOTH[name], "RBD731").remedy)
    assert remedy.startswith("If all nodes have the directory of kubelet there,")
    assert ALL in remedy
    assert ONE in remedy
    assert "A symbolic link there does not help" in remedy


ALONE: Final = {
    "a path": mounting(NO_PATH, nodes=(listing("worker-2"),)),
    "no driver": unregistered(nodes=(node(),)),
}


@each_row("name", ALONE)
def test_only_node_has_the_setting_for_itself(name: str) -> None:
    remedy = str(found(ALONE[name], "RBD731").remedy)
    assert remedy.startswith("Deploy the node plugin with the directory of kubelet: kubeletDir")
    assert "--root-dir" not in remedy


def test_directory_of_the_nodes_with_the_driver_is_kept() -> None:
    remedy = str(found(unregistered(registered(DRIVER)), "RBD731").remedy)
    assert remedy.startswith(BACK)
    assert "kubeletDir" not in remedy
