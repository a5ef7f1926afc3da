"""RBD77x: one image, and machines that are not nodes of this cluster."""

from __future__ import annotations

from typing import Any, Final

import pytest
from msgspec.structs import replace

from rbdagent.commands import lines_of
from rbdagent.model import (
    DeviceNumber,
    EntityAddress,
    ImageSpec,
    ServiceAddress,
    Severity,
    Snapshot,
)
from tests.support.rule_tables import (
    NOTHING_ELSE,
    Quiet,
    Said,
    attached,
    quiet_rows,
    said_rows,
    stage,
    told,
    trouble,
)
from tests.support.snapshots import (
    FSID,
    HANDLE,
    LIBRBD_COOKIE,
    PV,
    SPEC,
    UNSEEN,
    claim,
    codes,
    found,
    mapping,
    node,
    pod,
    remote_watcher,
    said,
    unmapped,
    volume,
    waiting_pod,
    watcher,
    world,
)

NONE: Final = NOTHING_ELSE
STRANGER: Final = watcher(address=EntityAddress(ip="192.0.2.7", nonce=5), client=77)
METADATA: Final = (
    ("csi.ceph.com/cluster/name", "east"),
    ("csi.storage.k8s.io/pv/name", "pvc-of-east"),
    ("csi.storage.k8s.io/pvc/name", "data"),
    ("csi.storage.k8s.io/pvc/namespace", "shop"),
)
RWX: Final = {
    "persistent_volumes": (volume(access_modes=("ReadWriteMany",), volume_mode="Block"),),
    "claims": (claim(access_modes=("ReadWriteMany",), volume_mode="Block"),),
}
ROX: Final = {
    "persistent_volumes": (volume(access_modes=("ReadOnlyMany",)),),
    "claims": (claim(access_modes=("ReadOnlyMany",)),),
}
BEING_USED: Final = told(stage(f"rbd image {SPEC} is still being used"))
WAITS: Final = {
    "pods": (waiting_pod(),),
    "attachments": attached("worker-2"),
    "events": (BEING_USED,),
}
NEIGHBOUR: Final = mapping(
    device="/dev/rbd1",
    device_id=1,
    number=DeviceNumber(major=252, minor=16),
    spec=ImageSpec(pool="k8s", name="csi-vol-other"),
    image_id="2222",
)
"""Another volume: it shows the address from which worker-1 reaches Ceph."""


def outside(**parts: Any) -> Snapshot:  # noqa: ANN401 - as the builders
    """Build a snapshot on worker-1, which reaches Ceph from its own address; a stranger watches."""
    of_image = {"watchers": (STRANGER,), "metadata": (), **parts.pop("of_image", {})}
    on_node = {"mappings": (NEIGHBOUR,), **parts.pop("on_node", {})}
    return unmapped(of_image=of_image, on_node=on_node, **parts)


MADE_ELSEWHERE: Final = outside(of_image={"metadata": METADATA}, on_node={"mappings": ()})
"""The addresses from which nodes of this cluster reach Ceph were not observed."""

SAID: Final[Said] = {
    "RBD771": {
        "a pod waits for it": (outside(in_kube=WAITS), {"RBD402"}),
        "nobody waits for it yet": (outside(), NONE),
    },
    "RBD772": {
        "made by another cluster": (unmapped(of_image={"metadata": METADATA}), NONE),
        "and mapped by nobody knows whom": (MADE_ELSEWHERE, {"RBD119"}),
    },
    "RBD773": {
        "raw block for many": (outside(in_kube=RWX), NONE),
        "read by many": (outside(in_kube=ROX), NONE),
    },
    "RBD774": {
        "both write": (
            world(
                of_image={"watchers": (watcher(), STRANGER)},
                in_kube={"pods": (pod(),), "attachments": attached("worker-1")},
            ),
            NONE,
        ),
        "by the watch of another node of this cluster": (
            outside(
                of_image={"watchers": (remote_watcher(), STRANGER)},
                in_kube={
                    "pods": (pod(node="worker-2"),),
                    "attachments": attached("worker-2"),
                },
            ),
            NONE,
        ),
    },
}


@pytest.mark.parametrize(("code", "seen", "beside"), said_rows(SAID))
def test_code_is_reported_and_only_the_expected_others(
    code: str, seen: Snapshot, beside: set[str]
) -> None:
    finding = found(seen, code)
    assert finding.remedy
    assert finding.recovery is not None or finding.severity is Severity.INFO
    assert "None" not in finding.message
    assert trouble(seen) - {code} == beside


OWN_OTHER_NETWORK: Final = {
    "its own address is not in its Node either": outside(
        in_kube={"nodes": (node(internal_ips=("10.1.0.1",)), node("worker-2"))}
    ),
    "not every Node was observed": outside(in_kube={"nodes_complete": False}),
    "Nodes were not observed": outside(in_kube={"nodes": UNSEEN}),
    "a pod runs here without a watch of its own": outside(
        in_kube={"pods": (pod(node="worker-2"),)}
    ),
    "it is attached here, and no watch shows it": outside(
        in_kube={"attachments": attached("worker-2")}
    ),
}
"""Snapshots in which the stranger may be a node of this cluster."""

QUIET: Final[Quiet] = {
    "RBD771": {
        **OWN_OTHER_NETWORK,
        "the image alone tells of another cluster": MADE_ELSEWHERE,
        "it only passed by": outside(of_image={"watchers": (), "transient_watchers": (STRANGER,)}),
        "a program, not a mapping": outside(
            of_image={"watchers": (replace(STRANGER, cookie=LIBRBD_COOKIE),)}
        ),
        "a node of this cluster": outside(of_image={"watchers": (remote_watcher(),)}),
        "no PV is known": outside(in_kube={"persistent_volumes": (), "claims": ()}),
        "a daemon of Ceph": outside(
            in_ceph={"services": (ServiceAddress(kind="mgr", name="x", address=STRANGER.address),)}
        ),
    },
    "RBD772": {
        "its own": unmapped(),
        "only the cluster's name is there": unmapped(of_image={"metadata": (METADATA[0],)}),
        "PVs were not all observed": unmapped(
            of_image={"metadata": METADATA}, in_kube={"volumes_complete": False}
        ),
        "the metadata were not observed": unmapped(of_image={"metadata": UNSEEN}),
    },
    "RBD773": {"for one node": outside()},
    "RBD774": {
        "nobody here uses it": outside(),
        "raw block for many": world(
            of_image={"watchers": (watcher(), STRANGER)}, in_kube={"pods": (pod(),), **RWX}
        ),
    },
}


@pytest.mark.parametrize(("code", "seen"), quiet_rows(QUIET))
def test_similar_state_is_reported_without_the_code(code: str, seen: Snapshot) -> None:
    assert code not in codes(seen)


@pytest.mark.parametrize("name", OWN_OTHER_NETWORK)
def test_client_that_may_be_a_cluster_node_is_reported_as_rbd119(name: str) -> None:
    assert "RBD119" in codes(OWN_OTHER_NETWORK[name])


def test_stranger_is_named_by_cluster_client_and_address() -> None:
    finding = found(outside(of_image={"metadata": METADATA}), "RBD771")
    assert f"image {SPEC} in Ceph cluster {FSID}" in finding.evidence
    assert "watched by client.77 192.0.2.7:0/5, which no Node lists" in finding.evidence
    assert "ceph-csi wrote into the image: cluster east" in finding.evidence
    assert "ceph-csi wrote into the image: PV pvc-of-east, claim shop/data" in finding.evidence


def test_client_on_a_possible_second_network_is_not_a_stranger() -> None:
    finding = found(MADE_ELSEWHERE, "RBD772")
    assert finding.severity is Severity.INFO
    assert "mapped by client.77 at 192.0.2.7:0/5: that may be another" in finding.message
    assert "or a node of this one by the address of its second network" in finding.message
    known = outside(of_image={"metadata": METADATA})
    for seen in (known, unmapped(of_image={"metadata": METADATA})):
        assert "second network" not in found(seen, "RBD772").message


def test_commands_keep_the_data_first_and_then_find_the_other_pv() -> None:
    commands = lines_of(found(outside(), "RBD771").commands)
    retain = '{"spec":{"persistentVolumeReclaimPolicy":"Retain"}}'
    assert commands[0] == f"kubectl patch pv {PV} --type merge -p '{retain}'"
    assert SPEC.name in commands[1]
    assert HANDLE in commands[2]
    assert all(line.endswith("# in the other cluster") for line in commands[1:3])
    kept = outside(in_kube={"persistent_volumes": (volume(reclaim_policy="Retain"),)})
    assert not any("patch" in line for line in lines_of(found(kept, "RBD771").commands))


def test_waiting_pod_makes_the_finding_an_error() -> None:
    assert found(outside(), "RBD771").severity is Severity.WARNING
    finding = found(outside(in_kube=WAITS), "RBD771")
    assert finding.severity is Severity.ERROR
    assert "default/web-1 waits for it" in finding.message
    assert said(outside(in_kube=WAITS)).findings[0].code == "RBD771"
