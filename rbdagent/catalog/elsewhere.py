"""RBD77x: one image, two Kubernetes clusters."""

from __future__ import annotations

from typing import Final

from rbdagent.catalog.entry import Entry
from rbdagent.model import LifecycleStep, Recovery, Severity

ENTRIES: Final = (
    Entry(
        "RBD771",
        "HeldFromOutside",
        Severity.ERROR,
        "A machine that is not a node of this cluster has the image mapped.",
        cause="Another Kubernetes cluster has a PV of the same image: restored YAML, a migration "
        "that left the old side running, a copied static PV. Or the image was mapped by hand.",
        evidence="A kernel client's watch from an address of no Node, while this cluster's own "
        "nodes reach Ceph from addresses that their Nodes list.",
        risk="Neither cluster knows of the other. A delete in either cluster checks only the "
        "watchers: if the other cluster's pod is stopped for a minute, its data is deleted.",
        remedy="Set the PV to Retain here and there. In the other cluster find the PV of this "
        "image, and scale its pods down there, or here. Fence nothing unless that machine is off.",
        recovery=Recovery(
            actor="kubelet", condition="the other cluster has released the image", within_s=122
        ),
        step=LifecycleStep.STAGE,
    ),
    Entry(
        "RBD772",
        "ImageNamesAnotherVolume",
        Severity.INFO,
        "The image's ceph-csi metadata names a PV that is not in this cluster.",
        cause="Another cluster provisioned the image; or its PV was created again under another "
        "name; or the image is a clone that kept its parent's metadata.",
        evidence="The image's metadata (csi.storage.k8s.io/pv/name, csi.ceph.com/cluster/name) "
        "against this cluster's PVs. The metadata may be stale. A client that has the image mapped "
        "from an address of no Node may be a node of this cluster, on its second network.",
        risk="If the other PV exists and is deleted with its claim, the image is deleted with it.",
        remedy="Make sure that no other cluster still has a PV of this image; if one does, set "
        "both to Retain.",
        recovery=None,
    ),
    Entry(
        "RBD773",
        "SharedWithOutside",
        Severity.INFO,
        "A machine that is not a node of this cluster has the image mapped, and the PV allows "
        "that.",
        cause="ReadOnlyMany, or ReadWriteMany on a raw block device, in two clusters.",
        evidence="The watcher's address against every Node; access modes and volume mode.",
        risk="A delete in either cluster checks only the watchers.",
        remedy="Set the PV to Retain in both clusters.",
        recovery=None,
    ),
    Entry(
        "RBD774",
        "TwoClustersWrite",
        Severity.CRITICAL,
        "A pod here uses the image, and a machine outside this cluster has it mapped as well.",
        cause="As RBD771. ceph-csi's own check did not find the other client: its watch was absent "
        "for a moment, or one of the PVs is static.",
        evidence="A kernel client's watch from an address of no Node, beside a mapping of a node "
        "of this cluster that is in use; the access mode allows one node.",
        risk="Two writers on one file system destroy it.",
        remedy="Stop the pods in one cluster now: here, or in the other cluster. Then check the "
        "file system before it is used again. Set the PV to Retain here and there.",
        recovery=Recovery(note="both clusters keep writing"),
        step=LifecycleStep.USE,
    ),
)
