"""Rules of binding and reclaiming: each code is reported in its state, and not in similar ones."""

from __future__ import annotations

import json
import shlex
from typing import Any, Final

import pytest
from msgspec.structs import replace

from rbdagent.catalog import CATALOG
from rbdagent.commands import lines_of
from rbdagent.model import (
    ContainerState,
    CSINode,
    CsiSource,
    DriverPod,
    EntityAddress,
    Finding,
    ImageSpec,
    InTreeRbdSource,
    KubeEvent,
    Lease,
    ObjectRef,
    OtherSource,
    PersistentVolume,
    PersistentVolumeClaim,
    Requirement,
    Severity,
    Snapshot,
    StorageClass,
    Target,
    TargetKind,
)
from rbdagent.report.snapshot import dump_snapshot, load_snapshot
from rbdagent.rules import finalizers, provisioner, pv_reclaim, pvc_lost, pvc_pending
from tests.support.snapshots import (
    DRIVER,
    LIBRBD_COOKIE,
    LONG_AGO,
    NOW,
    PV,
    UNSEEN,
    attachment,
    claim,
    codes,
    event,
    found,
    mirror_daemon,
    pod,
    remote_watcher,
    said,
    target,
    turned,
    unmapped,
    volume,
    waiting_pod,
    watcher,
    world,
)

Table = dict[str, Snapshot]

FAMILY: Final = frozenset(
    entry.code
    for family in (finalizers, provisioner, pv_reclaim, pvc_lost, pvc_pending)
    for entry in family.ENTRIES
)
GI: Final = 1024**3
SECONDS_AGO: Final = "2026-11-21T02:59:50Z"
A_MINUTE_AGO: Final = "2026-11-21T02:58:50Z"
FIVE_MINUTES_AGO: Final = "2026-11-21T02:55:00Z"
HALF_AN_HOUR_AGO: Final = "2026-11-21T02:30:00Z"
ELSEWHERE: Final = "volumes.example.org"
BY_CLAIM: Final = target(
    given="pvc/default/data", kind=TargetKind.CLAIM, namespace="default", name="data"
)
BY_POD: Final = target(
    given="pod/default/web-1", kind=TargetKind.POD, namespace="default", name="web-1"
)
OURS: Final = ObjectRef(namespace="default", name="data", uid="claim-uid")
OURS_BY_NAME: Final = replace(OURS, uid=None)
OF_OLD: Final = replace(OURS, uid="old-uid")
THEIRS: Final = ObjectRef(namespace="other", name="theirs", uid="their-uid")
STRANGER: Final = EntityAddress(ip="192.0.2.7", nonce=5)
CONTROLLERS: Final = Lease(
    namespace="kube-system", name="kube-controller-manager", holder="m1", renewed_at=NOW
)
DEAD_CONTROLLERS: Final = replace(CONTROLLERS, renewed_at=FIVE_MINUTES_AGO)
LEADS: Final = Lease(namespace="csi", name="rbd-csi-ceph-com", holder="prov-0", renewed_at=NOW)
PROVISIONER: Final = DriverPod(
    ref=ObjectRef(namespace="csi", name="prov-0"),
    node_name="worker-1",
    phase="Running",
    ready=True,
    images=("registry.k8s.io/sig-storage/csi-provisioner:v5.3.0", "quay.io/cephcsi/cephcsi:v3.13"),
    serves=(DRIVER,),
)
OLD_PROVISIONER: Final = DriverPod(
    ref=ObjectRef(namespace="kube-system", name="rbd-provisioner-0"),
    node_name="worker-1",
    phase="Running",
    ready=True,
    images=("quay.io/external_storage/rbd-provisioner:v2.1.1-k8s1.11",),
)

RBD: Final = StorageClass(name="rbd", provisioner=DRIVER)
WAITING: Final = StorageClass(name="rbd", provisioner=DRIVER, binding_mode="WaitForFirstConsumer")
NONE_MADE: Final = StorageClass(name="rbd", provisioner="kubernetes.io/no-provisioner")
IN_TREE: Final = StorageClass(name="rbd", provisioner="kubernetes.io/rbd")
LOCAL: Final = replace(NONE_MADE, binding_mode="WaitForFirstConsumer")


def wanting(**fields: Any) -> PersistentVolumeClaim:  # noqa: ANN401 - as the builders
    """Return a pending claim that was handed to its provisioner long ago."""
    pending = {
        "phase": "Pending",
        "volume_name": None,
        "created_at": LONG_AGO,
        "requested_bytes": GI,
        "provisioner": DRIVER,
    }
    return claim(**(pending | fields))


def free(name: str = "pv-free", **fields: Any) -> PersistentVolume:  # noqa: ANN401
    """Return a PV that is Available and fits ``wanting()``."""
    available = {
        "name": name,
        "uid": name,
        "phase": "Available",
        "claim": None,
        "capacity_bytes": GI,
        "created_at": LONG_AGO,
        "provisioner": None,
        "reclaim_policy": "Retain",
        "source": CsiSource(driver=DRIVER, volume_handle=name),
    }
    return volume(**(available | fields))


def life(
    *volumes: PersistentVolume,
    claims: tuple[PersistentVolumeClaim, ...] | None = None,
    **in_kube: Any,  # noqa: ANN401
) -> Snapshot:
    """Build a snapshot of `diagnose` for a claim: all sources are observed, all controllers run."""
    asked: dict[str, Any] = {
        "persistent_volumes": volumes,
        "claims": (wanting(),) if claims is None else claims,
        "storage_classes": (RBD,),
        "drivers": (DRIVER,),
        "workloads": (),
        "leases": (CONTROLLERS, LEADS),
        "driver_pods": (PROVISIONER,),
        "version": "v1.36.3",
    }
    rest = {field: in_kube.pop(field) for field in ("target", "of_image") if field in in_kube}
    return unmapped(in_kube=asked | in_kube, **({"target": BY_CLAIM} | rest))


def pending(**fields: Any) -> Snapshot:  # noqa: ANN401
    """Build the same snapshot with a claim that differs from ``wanting()``."""
    return life(claims=(wanting(**fields),))


def of_volume(**fields: Any) -> Snapshot:  # noqa: ANN401
    """Build a snapshot of a Released PV, by default without its claim."""
    released = {"phase": "Released", "phase_since": LONG_AGO, **fields}
    claims = released.pop("claims", ())
    in_kube = released.pop("in_kube", {})
    of_image = released.pop("of_image", {})
    return life(volume(**released), claims=claims, target=target(), of_image=of_image, **in_kube)


def to_claim(message: str, reason: str = "ProvisioningFailed", **fields: Any) -> KubeEvent:  # noqa: ANN401
    """Return an event on the claim, sent by its provisioner."""
    of_claim = {
        "kind": "PersistentVolumeClaim",
        "subject": OURS,
        "reason": reason,
        "reporter": f"{DRIVER}_prov-0_1",
    }
    return event(message, **(of_claim | fields))


def failing(error: str, **fields: Any) -> Snapshot:  # noqa: ANN401
    """Build a snapshot of a claim whose provisioner fails with an error."""
    told = to_claim(f'failed to provision volume with StorageClass "rbd": {error}')
    claims = (wanting(**fields.pop("claim", {})),)
    return life(claims=claims, events=(told,), **fields)


def to_volume(message: str, **fields: Any) -> KubeEvent:  # noqa: ANN401
    of_pv = {
        "kind": "PersistentVolume",
        "subject": ObjectRef(namespace="", name=PV, uid="pv-uid"),
        "reason": "VolumeFailedDelete",
        "reporter": f"{DRIVER}_prov-0_1",
    }
    return event(message, **(of_pv | fields))


BEING_USED: Final = to_volume("rpc error: code = Internal desc = rbd csi-vol-x is still being used")
NO_SECRET: Final = to_volume('error getting secret s in namespace gone: secrets "s" not found')
WITHOUT_LABELS: Final = (
    "error generating accessibility requirements: no topology key found for node worker-1"
)
"""Error of external-provisioner 6.3 with a real ceph-csi without --domainlabels (ceph-csi#4777)."""
BEGUN: Final = to_claim("External provisioner is provisioning volume", "Provisioning")
BOUND: Final = {"bind_completed": True, "created_at": LONG_AGO}
LOST: Final = {"phase": "Lost", **BOUND}
FOREIGN: Final = {"watchers": (watcher(address=STRANGER, cookie=LIBRBD_COOKIE),)}
SELECTOR: Final = (Requirement(key="tier", operator="In", values=("gold",)),)
HERE: Final = {"pods": (waiting_pod(node=None),)}


def deleted(**fields: Any) -> PersistentVolumeClaim:  # noqa: ANN401
    protected = {"deleting_since": LONG_AGO, "finalizers": ("kubernetes.io/pvc-protection",)}
    return claim(**(BOUND | protected | fields))


def deleted_volume(*finalizers: str, **fields: Any) -> Snapshot:  # noqa: ANN401
    gone = {"deleting_since": LONG_AGO, "finalizers": finalizers, "phase": "Released"}
    return of_volume(**(gone | {"reclaim_policy": "Retain"} | fields))


SAID: Final[dict[str, Table]] = {
    "RBD403": {
        "pending, and classes were not asked for (41)": unmapped(
            in_kube={"persistent_volumes": (), "claims": (wanting(),)}, target=BY_CLAIM
        ),
        "Lost, and PVs were refused": life(claims=(claim(**LOST),), persistent_volumes=UNSEEN),
    },
    "RBD404": {
        "misbound (40)": life(volume(claim=OF_OLD), claims=(claim(**LOST),)),
        "as an older look saw it": unmapped(
            in_kube={
                "persistent_volumes": (volume(claim=OF_OLD),),
                "claims": (claim(phase="Lost"),),
            },
            target=BY_CLAIM,
        ),
        "its uid was stripped, which does not help": life(
            volume(claim=OURS_BY_NAME, phase="Available"), claims=(claim(**LOST),)
        ),
        "Bound still, and Lost at the next look": life(
            volume(claim=OF_OLD), claims=(claim(**BOUND),)
        ),
        "a dead claim of another name": life(volume(claim=THEIRS), claims=(claim(**LOST),)),
        "asked by its PV": life(
            volume(claim=OF_OLD, phase="Released"), claims=(claim(**LOST),), target=target()
        ),
    },
    "RBD405": {
        "Retain (42)": of_volume(reclaim_policy="Retain"),
        "nobody asked for its claim": unmapped(
            in_kube={
                "persistent_volumes": (volume(phase="Released", reclaim_policy="Retain"),),
                "claims": (),
            }
        ),
    },
    "RBD406": {
        "claim lives (43)": of_volume(claims=(claim(**BOUND),)),
        "and is asked for": life(volume(phase="Released"), claims=(claim(**BOUND),)),
    },
    "RBD601": {"no such class": pending(storage_class="fast", provisioner=None)},
    "RBD602": {
        'storageClassName ""': pending(storage_class="", provisioner=None),
        "no-provisioner": life(
            free(capacity_bytes=1),
            storage_classes=(NONE_MADE,),
            claims=(wanting(provisioner=None),),
        ),
    },
    "RBD603": {"no pod": life(claims=(wanting(provisioner=None),), storage_classes=(WAITING,))},
    "RBD604": {
        "unschedulable": life(
            claims=(wanting(provisioner=None),),
            storage_classes=(WAITING,),
            pods=(waiting_pod(node=None, unschedulable="0/2 nodes: Insufficient memory"),),
        ),
        "asked by its pod": life(
            claims=(wanting(provisioner=None),),
            storage_classes=(WAITING,),
            pods=(waiting_pod(node=None, unschedulable="0/2 nodes: Insufficient memory"),),
            target=BY_POD,
        ),
    },
    "RBD605": {
        "asked just now": pending(created_at=SECONDS_AGO),
        "begun two minutes ago": life(events=(BEGUN,)),
    },
    "RBD606": {
        "it runs, and says nothing": life(),
        "begun, and never ended": life(events=(replace(BEGUN, last_seen=HALF_AN_HOUR_AGO),)),
        "it failed long ago, and has stopped": life(
            events=(to_claim("no", last_seen=HALF_AN_HOUR_AGO),)
        ),
        "nobody could look for it": life(leases=UNSEEN, driver_pods=UNSEEN),
        "it has no lease": life(leases=(CONTROLLERS,), driver_pods=()),
    },
    "RBD607": {
        "secret": failing('error getting secret s in namespace n: secrets "s" not found'),
        "key": failing("connecting failed: rados: ret=-13, Permission denied"),
        "feature": failing(
            "rpc error: code = InvalidArgument desc = feature journaling requires rbd-nbd for "
            "mounter"
        ),
        "monitors": failing("connecting failed: rados: ret=-110, Connection timed out"),
        "cluster": failing('missing configuration for cluster ID "x"'),
        "pool": failing("rpc error: code = NotFound desc = pool not found: pool (x) not found"),
        "no topology labels": failing(WITHOUT_LABELS),
        "something new": failing("rpc error: code = Internal desc = out of luck"),
        "combined": life(
            events=(
                to_claim(
                    "(combined from similar events): failed to provision volume with StorageClass "
                    '"rbd": no'
                ),
            )
        ),
    },
    "RBD608": {
        "external-storage": life(
            claims=(wanting(provisioner="ceph.com/rbd"),),
            storage_classes=(replace(RBD, provisioner="ceph.com/rbd"),),
            driver_pods=(OLD_PROVISIONER,),
            leases=(CONTROLLERS,),
        ),
        "an old sidecar": life(
            driver_pods=(replace(PROVISIONER, images=("quay.io/k8scsi/csi-provisioner:v1.3.0",)),)
        ),
        "should it come into an event": life(
            events=(to_claim("selfLink was empty, can't make reference"),)
        ),
        "even where nothing else was asked": unmapped(
            in_kube={
                "persistent_volumes": (),
                "claims": (wanting(),),
                "events": (to_claim("selfLink was empty, can't make reference"),),
            },
            target=BY_CLAIM,
        ),
    },
    "RBD609": {
        "volumeName": pending(volume_name="gone"),
        "who-holds knows as well": unmapped(
            in_kube={"persistent_volumes": (), "claims": (wanting(volume_name="gone"),)},
            target=BY_CLAIM,
        ),
    },
    "RBD610": {
        "too small": life(free(capacity_bytes=1), claims=(wanting(volume_name="pv-free"),)),
        "class": life(free(storage_class=""), claims=(wanting(volume_name="pv-free"),)),
        "attributes": life(free(attributes_class="slow"), claims=(wanting(volume_name="pv-free"),)),
        "mode": life(free(volume_mode="Block"), claims=(wanting(volume_name="pv-free"),)),
        "access": life(
            free(access_modes=("ReadOnlyMany",)), claims=(wanting(volume_name="pv-free"),)
        ),
        "deleted": life(free(deleting_since=NOW), claims=(wanting(volume_name="pv-free"),)),
    },
    "RBD611": {"never made": of_volume(phase="Available", claim=OURS_BY_NAME)},
    "RBD612": {
        "in-tree and Delete": of_volume(
            phase="Failed",
            reason="no volume plugin matched",
            source=InTreeRbdSource(spec=ImageSpec(pool="k8s", name="x")),
        )
    },
    "RBD613": {
        "a pod runs": life(volume(), claims=(deleted(),), pods=(pod(),)),
        "a pod has ended": life(volume(), claims=(deleted(),), pods=(pod(phase="Succeeded"),)),
        "deleted just now": life(
            volume(), claims=(deleted(deleting_since=SECONDS_AGO),), pods=(pod(),)
        ),
    },
    "RBD614": {
        "Retain": deleted_volume("kubernetes.io/pv-protection", phase="Bound", claims=(claim(),)),
        "Delete": deleted_volume(
            "kubernetes.io/pv-protection",
            "external-provisioner.volume.kubernetes.io/finalizer",
            phase="Bound",
            reclaim_policy="Delete",
            claims=(claim(),),
        ),
    },
    "RBD615": {
        "no default": pending(storage_class=None, provisioner=None),
        "a default that came later": life(
            claims=(wanting(storage_class=None, provisioner=None),),
            storage_classes=(replace(RBD, is_default=True),),
            version="v1.25.4",
        ),
    },
    "RBD616": {
        "kubernetes.io/rbd": life(storage_classes=(IN_TREE,)),
        "by the event": life(
            storage_classes=(IN_TREE,),
            version=UNSEEN,
            events=(
                to_claim(
                    "no volume plugin matched name: kubernetes.io/rbd",
                    reporter="persistentvolume-controller",
                ),
            ),
        ),
    },
    "RBD617": {
        "never installed": life(
            claims=(wanting(provisioner=ELSEWHERE),),
            storage_classes=(replace(RBD, provisioner=ELSEWHERE),),
            driver_pods=(),
        )
    },
    "RBD618": {
        "its lease has lapsed": life(
            leases=(replace(LEADS, renewed_at=FIVE_MINUTES_AGO),), driver_pods=UNSEEN
        ),
        "not ready": life(driver_pods=(replace(PROVISIONER, ready=False),), leases=()),
        "its lease as it once was written": life(
            leases=(replace(LEADS, name=DRIVER, renewed_at=FIVE_MINUTES_AGO),), driver_pods=()
        ),
    },
    "RBD619": {
        "a time limit": failing(
            "rpc error: code = DeadlineExceeded desc = context deadline exceeded"
        ),
        "its own lock": failing(
            "rpc error: code = Aborted desc = an operation with the given Volume ID pvc-1 already "
            "exists"
        ),
    },
    "RBD620": {
        "selector": failing("claim Selector is not supported", claim={"selector": SELECTOR})
    },
    "RBD621": {
        "RWX": failing(
            "rpc error: code = InvalidArgument desc = multi node access modes are only supported "
            "on rbd `block` type volumes",
            claim={"access_modes": ("ReadWriteMany",)},
        )
    },
    "RBD622": {
        "the node is gone": life(
            claims=(wanting(selected_node="long-gone"),), storage_classes=(WAITING,)
        ),
        "the driver is not there": failing(
            "error generating accessibility requirements: no topology key found on CSINode n",
            claim={"selected_node": "worker-2"},
            storage_classes=(WAITING,),
            csi_nodes=(CSINode(node_name="worker-2"),),
        ),
        "the driver is not there, as version 6 has it": failing(
            WITHOUT_LABELS,
            claim={"selected_node": "worker-1"},
            storage_classes=(WAITING,),
            csi_nodes=(CSINode(node_name="worker-1"),),
        ),
    },
    "RBD623": {
        "nodeName by hand": life(
            claims=(wanting(provisioner=None),), storage_classes=(WAITING,), pods=(waiting_pod(),)
        ),
        "and PVs by hand": life(
            free(),
            claims=(wanting(provisioner=None),),
            storage_classes=(LOCAL,),
            pods=(waiting_pod(),),
        ),
    },
    "RBD624": {
        "an older claim of its name": life(
            volume(claim=OF_OLD, phase="Released", reclaim_policy="Retain"),
            claims=(wanting(volume_name=PV),),
        ),
        "another, which lives": life(
            volume(claim=THEIRS),
            claims=(wanting(volume_name=PV), claim(ref=THEIRS, **BOUND)),
        ),
        "another, which is gone": life(
            volume(claim=THEIRS, phase="Released", reclaim_policy="Retain"),
            claims=(wanting(volume_name=PV),),
        ),
        "asked by its PV": life(
            volume(claim=OF_OLD, phase="Released", reclaim_policy="Retain"),
            claims=(wanting(volume_name=PV),),
            target=target(),
        ),
    },
    "RBD625": {
        "too small": life(free(claim=OURS_BY_NAME, capacity_bytes=1)),
        "Block, and its uid is ours": life(
            free(claim=OURS, volume_mode="Block", phase="Released", reclaim_policy="Delete")
        ),
    },
    "RBD626": {
        "one fits": life(free(), claims=(wanting(provisioner=None),), storage_classes=(NONE_MADE,)),
        "one is kept": life(free(claim=OURS_BY_NAME, storage_class="other", labels=())),
        "by name, whatever its labels": life(
            free(), claims=(wanting(volume_name="pv-free", selector=SELECTOR),)
        ),
        "Lost, and its PV is free again": life(
            volume(claim=None, phase="Available"), claims=(claim(**LOST),)
        ),
        "Lost, and its PV carries its uid": life(volume(), claims=(claim(**LOST),)),
    },
    "RBD627": {
        "PVs without a phase": of_volume(phase="Pending", claim=None, created_at=LONG_AGO),
        "a claim that the PV controller ignores": pending(provisioner=None),
    },
    "RBD630": {"no volumeName": life(claims=(claim(volume_name=None, **LOST),))},
    "RBD631": {
        "its PV is gone": life(claims=(claim(**LOST),)),
        "about to be Lost": life(claims=(claim(**BOUND),)),
        "who-holds knows as well": unmapped(
            in_kube={"persistent_volumes": (), "claims": (claim(phase="Lost"),)}, target=BY_CLAIM
        ),
    },
    "RBD632": {
        "copied": life(volume(claim=THEIRS), claims=(claim(**LOST), claim(ref=THEIRS, **BOUND)))
    },
    "RBD633": {
        "kept by name": life(volume(), free(claim=OURS_BY_NAME), claims=(claim(**BOUND),)),
        "retained": life(
            volume(),
            free(claim=OF_OLD, phase="Released"),
            claims=(claim(**BOUND),),
        ),
        "asked by the older one": life(
            volume(),
            volume(name="pv-old", claim=OURS_BY_NAME, phase="Available", reclaim_policy="Retain"),
            claims=(claim(**BOUND),),
            target=Target(given="pv/pv-old", kind=TargetKind.PERSISTENT_VOLUME, name="pv-old"),
        ),
    },
    "RBD640": {
        "just now": of_volume(phase_since=SECONDS_AGO),
        "events were refused": of_volume(in_kube={"events": UNSEEN}),
    },
    "RBD641": {
        "an orphan holds it (42)": world(
            in_kube={"persistent_volumes": (volume(phase="Released"),), "claims": ()}
        ),
        "somebody outside": of_volume(of_image=FOREIGN, in_kube={"events": (BEING_USED,)}),
        "by the event alone": of_volume(in_kube={"events": (BEING_USED,)}),
    },
    "RBD642": {"its secret is gone": of_volume(in_kube={"events": (NO_SECRET,)})},
    "RBD643": {
        "silence": of_volume(),
        "marked as another's": of_volume(provisioner=ELSEWHERE, phase_since=A_MINUTE_AGO),
        "it failed long ago": of_volume(
            in_kube={"events": (replace(NO_SECRET, last_seen=HALF_AN_HOUR_AGO),)}
        ),
        "not installed": of_volume(phase_since=A_MINUTE_AGO, in_kube={"drivers": ()}),
    },
    "RBD644": {
        "two for one claim": life(
            volume(reclaim_policy="Delete"),
            volume(name="pv-other", uid="o"),
            claims=(claim(volume_name="pv-other", **BOUND),),
            target=target(),
        )
    },
    "RBD650": {
        "a clone": life(
            volume(),
            claims=(deleted(finalizers=("provisioner.storage.kubernetes.io/cloning-protection",)),),
        ),
        "a snapshot": life(
            volume(),
            claims=(
                deleted(finalizers=("snapshot.storage.kubernetes.io/pvc-as-source-protection",)),
            ),
        ),
    },
    "RBD651": {
        "attached": deleted_volume(
            "external-attacher/rbd-csi-ceph-com", in_kube={"attachments": (attachment(),)}
        )
    },
    "RBD652": {
        "a claim's": life(volume(), claims=(deleted(finalizers=("backup.example.org/hold",)),)),
        "a PV's": deleted_volume("backup.example.org/hold"),
    },
    "RBD653": {
        "pvc-protection": life(volume(), claims=(deleted(),)),
        "pv-protection": deleted_volume("kubernetes.io/pv-protection"),
        "the attacher's": deleted_volume("external-attacher/rbd-csi-ceph-com"),
        "the provisioner's, with Retain": deleted_volume(
            "external-provisioner.volume.kubernetes.io/finalizer"
        ),
    },
    "RBD654": {
        "a finished pod": life(
            volume(),
            claims=(claim(**BOUND),),
            pods=(
                pod(
                    deleting_since=LONG_AGO,
                    finalizers=("example.org/hold",),
                    containers=(ContainerState(name="c", state="terminated"),),
                ),
            ),
        )
    },
}
"""Each snapshot leads to its code, and to no other code of the family."""


QUIET: Final[dict[str, Table]] = {
    "RBD403": {
        "classes were asked for": life(),
        "bound (13): a larger PV with more modes": life(
            volume(capacity_bytes=9 * GI, access_modes=("ReadWriteOnce", "ReadOnlyMany")),
            claims=(claim(requested_bytes=GI, **BOUND),),
        ),
        "bound (14): classes that differ": life(
            volume(storage_class="other"), claims=(claim(**BOUND),)
        ),
        "being deleted": life(claims=(wanting(deleting_since=NOW, finalizers=("x",)),)),
    },
    "RBD404": {
        "bound": life(volume(), claims=(claim(**BOUND),)),
        "pending and never bound: there the PV is taken": life(
            volume(claim=OF_OLD), claims=(wanting(volume_name=PV),)
        ),
        "going away (31)": life(
            volume(claim=OF_OLD), claims=(claim(**LOST, deleting_since=NOW, finalizers=()),)
        ),
    },
    "RBD405": {
        "bound": life(volume(), claims=(claim(**BOUND),), target=target()),
        "a claim of its name wants it: that is said of the claim": life(
            volume(claim=OF_OLD, phase="Released", reclaim_policy="Retain"),
            claims=(wanting(volume_name=PV),),
            target=target(),
        ),
    },
    "RBD406": {
        "another claim of its name lives": life(
            volume(claim=OF_OLD, phase="Released", reclaim_policy="Retain"),
            claims=(claim(volume_name="pv-new", **BOUND),),
            target=target(),
        )
    },
    "RBD601": {
        "a PV of such a class fits": life(
            free(storage_class="none"), claims=(wanting(storage_class="none", provisioner=None),)
        ),
        "classes were refused": life(
            claims=(wanting(storage_class="none"),), storage_classes=UNSEEN
        ),
    },
    "RBD602": {
        "a PV without a class fits, and nil is none (12)": life(
            free(storage_class=""), claims=(wanting(storage_class=None, provisioner=None),)
        ),
        "its class has a provisioner": life(free(capacity_bytes=1)),
    },
    "RBD604": {
        "the pod is done": life(
            claims=(wanting(provisioner=None),),
            storage_classes=(WAITING,),
            pods=(pod(node=None, phase="Succeeded"),),
        )
    },
    "RBD606": {
        "asked just now": pending(created_at=SECONDS_AGO),
        "its class was made just now": life(
            storage_classes=(replace(RBD, created_at=SECONDS_AGO),)
        ),
        "its first pod came just now": life(
            claims=(wanting(selected_node="worker-2"),),
            storage_classes=(WAITING,),
            pods=(waiting_pod(node=None, created_at=SECONDS_AGO),),
        ),
        "an old claim that was handed over just now": life(
            events=(
                to_claim(
                    "Waiting for a volume to be created either by the external provisioner",
                    "ExternalProvisioning",
                    first_seen=SECONDS_AGO,
                    reporter="persistentvolume-controller",
                ),
            )
        ),
        "it fails, and says so": failing("no"),
    },
    "RBD607": {
        "the PV controller said so before the class was made": life(
            events=(
                to_claim(
                    'storageclass.storage.k8s.io "rbd" not found',
                    reporter="persistentvolume-controller",
                ),
            )
        ),
        "it has made it since": life(
            events=(
                to_claim("no", last_seen=FIVE_MINUTES_AGO),
                to_claim("Successfully provisioned volume", "ProvisioningSucceeded"),
            )
        ),
        "of a claim of that name that is gone": life(
            events=(to_claim("no", subject=OF_OLD),),
        ),
    },
    "RBD608": {
        "a new sidecar": life(),
        "csi-provisioner 1.4": life(
            driver_pods=(replace(PROVISIONER, images=("quay.io/k8scsi/csi-provisioner:v1.4.0",)),)
        ),
        "Kubernetes before 1.20": life(
            driver_pods=(replace(PROVISIONER, images=("quay.io/k8scsi/csi-provisioner:v1.3.0",)),),
            version="v1.19.16",
        ),
        "another's old provisioner": life(driver_pods=(PROVISIONER, OLD_PROVISIONER)),
    },
    "RBD609": {
        "PVs were refused": life(claims=(wanting(volume_name="pv-x"),), persistent_volumes=UNSEEN),
        "asked by another PV, and never by its name": unmapped(
            in_kube={
                "persistent_volumes": (volume(claim=OF_OLD, phase="Released"),),
                "claims": (wanting(volume_name="pv-x"),),
            }
        ),
    },
    "RBD611": {
        "a claim of that name is there": of_volume(
            phase="Available", claim=OURS_BY_NAME, claims=(claim(volume_name="x", **BOUND),)
        ),
        "nobody asked for its claim: a device": world(
            in_kube={
                "persistent_volumes": (volume(phase="Available", claim=OURS_BY_NAME),),
                "claims": (),
            },
            target=target(given="/dev/rbd0", kind=TargetKind.DEVICE, name="/dev/rbd0"),
        ),
        "claims were refused": of_volume(phase="Available", claim=OURS_BY_NAME, claims=UNSEEN),
    },
    "RBD613": {
        "not being deleted (10)": life(
            volume(),
            claims=(claim(finalizers=("kubernetes.io/pvc-protection",), **BOUND),),
            pods=(pod(),),
        ),
        "a pod that has no node": life(
            volume(), claims=(deleted(),), pods=(waiting_pod(node=None),)
        ),
    },
    "RBD614": {
        "not being deleted (10)": life(
            volume(finalizers=("kubernetes.io/pv-protection",)),
            claims=(claim(**BOUND),),
            target=target(),
        )
    },
    "RBD616": {
        "before 1.31": life(storage_classes=(IN_TREE,), version="v1.30.2"),
        "a driver has taken over (16)": life(
            claims=(wanting(provisioner="ebs.csi.aws.com"),),
            storage_classes=(replace(RBD, provisioner="kubernetes.io/aws-ebs"),),
        ),
    },
    "RBD617": {
        "leases were refused": life(
            claims=(wanting(provisioner=ELSEWHERE),),
            storage_classes=(replace(RBD, provisioner=ELSEWHERE),),
            leases=UNSEEN,
        ),
        "it has a lease": life(drivers=()),
    },
    "RBD618": {
        "a pod is ready, and the lease is from before": life(
            leases=(replace(LEADS, renewed_at=LONG_AGO),)
        ),
        "a clock that is off a little": life(
            leases=(replace(LEADS, renewed_at="2026-11-21T02:59:20Z"),), driver_pods=UNSEEN
        ),
    },
    "RBD619": {
        "a clone takes minutes (1)": life(
            claims=(wanting(has_data_source=True),),
            events=(
                to_claim(
                    "rpc error: code = Aborted desc = an operation with the given Volume ID x "
                    "already exists",
                    first_seen=FIVE_MINUTES_AGO,
                ),
            ),
        )
    },
    "RBD622": {
        "the node is there": life(
            claims=(wanting(selected_node="worker-2"),), storage_classes=(WAITING,)
        ),
        "nodes were refused": life(
            claims=(wanting(selected_node="worker-9"),), storage_classes=(WAITING,), nodes=UNSEEN
        ),
        "bound since (34)": life(volume(), claims=(claim(selected_node="long-gone", **BOUND),)),
        "chosen just now": life(
            claims=(wanting(selected_node="worker-9", created_at=SECONDS_AGO),),
            storage_classes=(WAITING,),
        ),
    },
    "RBD623": {
        "another pod waits for the scheduler": life(
            claims=(wanting(provisioner=None),),
            storage_classes=(WAITING,),
            pods=(waiting_pod(), waiting_pod("b", None)),
        ),
        "it is being deleted": life(
            claims=(wanting(provisioner=None),),
            storage_classes=(WAITING,),
            pods=(waiting_pod(deleting_since=NOW),),
        ),
    },
    "RBD625": {
        "bound already": life(volume(), claims=(claim(requested_bytes=9 * GI, **BOUND),)),
    },
    "RBD627": {
        "a PV made just now (3)": of_volume(
            phase="Pending", claim=None, created_at=SECONDS_AGO, phase_since=None
        ),
        "a lease that lapsed, and nothing to do": life(
            volume(), claims=(claim(**BOUND),), leases=(DEAD_CONTROLLERS,)
        ),
        "a lease that lapsed, and a PV that is to be had": life(
            volume(phase="Available", claim=None),
            claims=(),
            leases=(DEAD_CONTROLLERS,),
            target=target(),
        ),
        "no lease at all": life(leases=()),
        "a class that waits": life(claims=(wanting(provisioner=None),), storage_classes=(WAITING,)),
        "the scheduler has chosen, perhaps just now": life(
            claims=(wanting(provisioner=None, selected_node="worker-2"),),
            storage_classes=(WAITING,),
        ),
        "its class was made just now": life(
            claims=(wanting(provisioner=None),),
            storage_classes=(replace(RBD, created_at=SECONDS_AGO),),
        ),
    },
    "RBD631": {
        "its PV was never asked for": unmapped(
            in_kube={
                "persistent_volumes": (volume(claim=OURS, phase="Released"),),
                "claims": (claim(volume_name="pv-x", **LOST),),
            }
        ),
        "PVs were refused": life(claims=(claim(**LOST),), persistent_volumes=UNSEEN),
    },
    "RBD632": {
        "the other claim is gone": life(volume(claim=THEIRS), claims=(claim(**LOST),)),
        "the other claim of that name is a new one": life(
            volume(claim=THEIRS),
            claims=(claim(**LOST), claim(ref=replace(THEIRS, uid="new"), **BOUND)),
        ),
    },
    "RBD633": {
        "another namespace": life(
            volume(),
            free(claim=replace(OURS_BY_NAME, namespace="other")),
            claims=(claim(**BOUND),),
        )
    },
    "RBD641": {
        "passed by": of_volume(of_image={"transient_watchers": (remote_watcher(),)}),
    },
    "RBD643": {
        "two minutes old (4)": of_volume(phase_since="2026-11-21T02:58:00Z"),
        "events were refused (26)": of_volume(in_kube={"events": UNSEEN}),
        "Retain": of_volume(reclaim_policy="Retain"),
    },
    "RBD644": {
        "its claim is bound to nothing yet": of_volume(
            phase="Bound", claims=(wanting(volume_name=None),)
        ),
        "the uid stands under another name: no claim has both": life(
            volume(claim=replace(OURS, name="copied")),
            volume(name="pv-other", uid="o"),
            claims=(claim(volume_name="pv-other", **BOUND),),
            target=target(),
        ),
    },
    "RBD651": {"not being deleted (10)": of_volume(finalizers=("external-attacher/x",))},
    "RBD653": {
        "pods of the namespace were not all seen": life(
            volume(), claims=(deleted(),), pods_scope="node/worker-1"
        ),
        "deleted just now": life(volume(), claims=(deleted(deleting_since=SECONDS_AGO),)),
        "attachments were not all seen": deleted_volume(
            "external-attacher/x", in_kube={"attachments_complete": False}
        ),
    },
    "RBD654": {
        "within its grace (7)": life(
            volume(),
            claims=(claim(**BOUND),),
            pods=(
                pod(
                    deleting_since=NOW,
                    finalizers=("x",),
                    containers=(ContainerState(name="c", state="terminated"),),
                ),
            ),
        ),
        "a container runs": life(
            volume(),
            claims=(claim(**BOUND),),
            pods=(
                pod(
                    deleting_since=LONG_AGO,
                    finalizers=("x",),
                    containers=(ContainerState(name="c", state="running"),),
                ),
            ),
        ),
    },
}
"""Similar states without the code; a number in a name is that of a false alarm considered."""


NO_TROUBLE: Final[dict[str, Table]] = {
    "RBD405": {"kept on purpose (5)": of_volume(reclaim_policy="Retain")},
    "RBD601": {"the claim is young (1)": pending(storage_class="x", created_at=SECONDS_AGO)},
    "RBD603": {
        "waits for months (2)": life(
            claims=(wanting(provisioner=None, created_at="2025-01-01T00:00:00Z"),),
            storage_classes=(WAITING,),
        )
    },
    "RBD604": {
        "scheduling gates (35)": life(
            claims=(wanting(provisioner=None),),
            storage_classes=(WAITING,),
            pods=(
                waiting_pod(
                    node=None,
                    unschedulable="Scheduling is blocked due to non-empty scheduling gates",
                ),
            ),
        ),
        "the pod is young": life(
            claims=(wanting(provisioner=None),),
            storage_classes=(WAITING,),
            pods=(waiting_pod(node=None, created_at=SECONDS_AGO),),
        ),
    },
    "RBD605": {"young": pending(created_at=SECONDS_AGO)},
    "RBD607": {"the claim is young": failing("no", claim={"created_at": SECONDS_AGO})},
    "RBD611": {"reserved (6)": of_volume(phase="Available", claim=OURS_BY_NAME)},
    "RBD613": {"protection at work (9)": life(volume(), claims=(deleted(),), pods=(pod(),))},
    "RBD626": {
        "made just now (3)": life(free(created_at=SECONDS_AGO), claims=(wanting(),)),
    },
    "RBD633": {"a retained one": SAID["RBD633"]["retained"]},
    "RBD640": {"just now (4)": of_volume(phase_since=SECONDS_AGO)},
    "RBD641": {
        "the last pod's node is at its unstage (4)": world(
            in_kube={
                "attachments": (attachment(created_at=A_MINUTE_AGO),),
                "persistent_volumes": (volume(phase="Released", phase_since=A_MINUTE_AGO),),
                "claims": (),
                "events": (BEING_USED,),
            },
        ),
    },
}
"""States that are legitimate, or may be transient: reported with severity INFO only."""


def cases(*tables: dict[str, Table]) -> list[Any]:
    return [
        pytest.param(code, seen, id=f"{code}: {name}")
        for table in tables
        for code, seens in table.items()
        for name, seen in seens.items()
    ]


def of_family(seen: Snapshot) -> set[str]:
    return codes(seen) & FAMILY


@pytest.mark.parametrize(("code", "seen"), cases(SAID))
def test_state_is_reported_with_its_code_only(code: str, seen: Snapshot) -> None:
    told = found(seen, code)
    assert of_family(seen) == {code}
    assert told.message
    assert told.remedy
    assert "None" not in told.message


@pytest.mark.parametrize(("code", "seen"), cases(QUIET))
def test_similar_state_is_reported_without_the_code(code: str, seen: Snapshot) -> None:
    assert code not in codes(seen)


@pytest.mark.parametrize(("code", "seen"), cases(NO_TROUBLE))
def test_legitimate_or_transient_state_is_info_only(code: str, seen: Snapshot) -> None:
    told = [finding for finding in said(seen).findings if finding.code in FAMILY]
    assert [(finding.code, finding.severity) for finding in told] == [(code, Severity.INFO)]


LESS: Final = frozenset({"RBD403", "RBD606", "RBD640"})
"""Codes that are reported if something was not observed."""
OF_THE_REST: Final = {
    "claims": {"RBD405", "RBD643"},
    "pods": {"RBD603"},
    "csi_nodes": {"RBD607"},
}
"""Codes that are also true, and are left out if more was observed."""


@pytest.mark.parametrize(
    "kind",
    [
        *("persistent_volumes", "claims", "pods", "nodes", "csi_nodes", "attachments", "events"),
        *("storage_classes", "drivers", "leases", "driver_pods", "version"),
    ],
)
def test_unobserved_objects_lead_to_no_unrelated_code(kind: str) -> None:
    for code, table in SAID.items():
        for name, seen in table.items():
            assert seen.kubernetes is not None
            blind = replace(seen, kubernetes=replace(seen.kubernetes, **{kind: UNSEEN}))
            more = of_family(blind) - {code} - LESS - OF_THE_REST.get(kind, set())
            assert more == set(), (code, name)


def test_order_of_objects_does_not_change_the_codes() -> None:
    for table in SAID.values():
        for seen in table.values():
            assert of_family(turned(seen)) == of_family(seen)


def test_snapshot_is_equal_after_dump_and_load() -> None:
    for table in SAID.values():
        for seen in table.values():
            assert load_snapshot(dump_snapshot(seen), where="a test") == seen


def test_no_code_is_reported_without_the_api() -> None:
    for table in SAID.values():
        for seen in table.values():
            assert of_family(replace(seen, kubernetes=None)) == set()


def test_every_code_of_the_family_has_a_table() -> None:
    assert SAID.keys() == FAMILY
    assert QUIET.keys() | NO_TROUBLE.keys() <= FAMILY


@pytest.mark.parametrize("code", sorted(FAMILY))
def test_every_problem_code_has_a_recovery_and_a_step(code: str) -> None:
    entry = CATALOG[code]
    if entry.severity is not Severity.INFO:
        assert entry.recovery is not None
        assert entry.step is not None


# --------------------------------------------------------------------------------------------------
# Commands
# --------------------------------------------------------------------------------------------------

FORBIDDEN: Final = ("finalizers", "--force", "--grace-period", "delete pv", "delete pvc", "unmap")


@pytest.mark.parametrize(("code", "seen"), cases(SAID, NO_TROUBLE))
def test_commands_parse_and_remove_nothing_by_force(code: str, seen: Snapshot) -> None:
    for line in lines_of(found(seen, code).commands):
        words = shlex.split(line)
        assert words[0] in {"kubectl", "rbdagent", "ceph"}
        assert "None" not in line
        assert not any(word in line for word in FORBIDDEN)
        if "-p" in words:
            json.loads(words[words.index("-p") + 1])


def patched(command: str, reference: dict[str, str] | None) -> dict[str, str] | None:
    """Apply the JSON patch of a command to a claimRef; a failed `test` raises AssertionError."""
    words = shlex.split(command)
    spec: dict[str, Any] = {} if reference is None else {"claimRef": dict(reference)}
    for operation in json.loads(words[words.index("-p") + 1]):
        *path, last = operation["path"].removeprefix("/spec/").split("/")
        inside = spec[path[0]] if path else spec
        if operation["op"] == "test":
            assert inside[last] == operation["value"]
        elif operation["op"] == "add":
            inside[last] = operation["value"]
        else:
            del inside[last]
    return spec.get("claimRef")


def binds(reference: dict[str, str] | None, uid: str, *, completed: bool) -> bool:
    """Return whether syncBoundClaim or syncUnboundClaim binds a PV that the claim names."""
    if reference is None:
        return True
    same = (reference["namespace"], reference["name"]) == ("default", "data")
    if completed:
        return reference.get("uid") == uid
    return same and reference.get("uid") in (None, uid)


REFERENCES: Final = {
    "same name": {"namespace": "default", "name": "data", "uid": "old-uid"},
    "stripped": {"namespace": "default", "name": "data"},
    "another name": {"namespace": "other", "name": "theirs", "uid": "their-uid"},
}


@pytest.mark.parametrize("completed", [True, False], ids=["bound once", "never bound"])
@pytest.mark.parametrize("name", REFERENCES)
def test_patch_binds_a_restored_pv_and_stripping_its_uid_does_not(
    name: str, *, completed: bool
) -> None:
    reference = REFERENCES[name]
    bound = ObjectRef(
        namespace=reference["namespace"], name=reference["name"], uid=reference.get("uid")
    )
    seen = life(
        volume(claim=bound, reclaim_policy="Retain"),
        claims=(claim(**LOST) if completed else wanting(volume_name=PV),),
    )
    if binds(reference, "claim-uid", completed=completed):
        # Never bound, and the PV names the claim: the controller binds them automatically.
        assert of_family(seen) == {"RBD626"}
        return
    (command,) = lines_of(found(seen, "RBD404" if completed else "RBD624").commands)
    assert binds(patched(command, reference), "claim-uid", completed=completed)
    if completed:
        assert not binds(REFERENCES["stripped"], "claim-uid", completed=True)


def test_misbound_volume_of_another_driver_names_no_image() -> None:
    share = volume(claim=OF_OLD, source=OtherSource(kind="nfs.csi.k8s.io"))
    told = found(life(share, claims=(claim(**LOST),)), "RBD404")
    assert "image" not in told.message + " ".join(told.evidence)
    assert not any("who-holds" in line for line in lines_of(told.commands))


def test_patch_fails_if_the_pv_names_another_claim_by_now() -> None:
    (_, command) = lines_of(found(SAID["RBD404"]["misbound (40)"], "RBD404").commands)
    with pytest.raises(AssertionError):
        patched(command, {"namespace": "default", "name": "somebody-else", "uid": "x"})


def test_first_command_sets_retain() -> None:
    for code, name in (("RBD404", "misbound (40)"), ("RBD406", "claim lives (43)")):
        assert '"Retain"' in lines_of(found(SAID[code][name], code).commands)[0]
    kept = life(volume(claim=OF_OLD, reclaim_policy="Retain"), claims=(claim(**LOST),))
    assert not any("Retain" in line for line in lines_of(found(kept, "RBD404").commands))


def test_overdue_correction_means_the_controller_does_not_work() -> None:
    told = found(SAID["RBD406"]["claim lives (43)"], "RBD406")
    assert told.severity is Severity.ERROR
    assert "does not work" in told.message
    assert str(told.recovery) == "the PV controller, within 15s, once it works again"


def restored(**parts: Any) -> Finding:  # noqa: ANN401
    seen = life(volume(claim=OF_OLD), claims=(claim(**LOST),), **parts)
    return found(seen, "RBD404")


def test_outside_client_is_named_and_no_patch_is_printed() -> None:
    told = restored(of_image=FOREIGN)
    assert any(
        "192.0.2.7" in line and "no node of this cluster lists" in line for line in told.evidence
    )
    assert lines_of(told.commands)[1:] == (f"rbdagent who-holds pv/{PV}",)


def test_watcher_on_a_cluster_node_is_not_an_outside_client() -> None:
    told = restored(of_image={"watchers": (remote_watcher(),)})
    assert any("no client outside" in line for line in told.evidence)
    assert "/spec/claimRef/uid" in lines_of(told.commands)[1]


@pytest.mark.parametrize(
    "blind", [{"of_image": {"watchers": UNSEEN}}, {"nodes": UNSEEN}], ids=["watchers", "nodes"]
)
def test_patch_follows_a_check_if_outside_clients_are_unknown(
    blind: dict[str, Any],
) -> None:
    told = restored(**blind)
    assert any("whether another cluster" in line for line in told.evidence)
    assert lines_of(told.commands)[1] == f"rbdagent who-holds pv/{PV}"
    assert "/spec/claimRef/uid" in lines_of(told.commands)[2]


def test_running_pod_with_a_lost_claim_is_reported() -> None:
    assert "still use the volume: default/web-0." in restored(pods=(pod(),)).message


def test_risk_of_a_released_pv_with_delete_is_reported() -> None:
    assert "its image is deleted" in found(SAID["RBD404"]["asked by its PV"], "RBD404").message


def test_remedy_for_a_deleted_pv_states_the_uid_of_its_claim() -> None:
    assert "uid claim-uid" in found(SAID["RBD631"]["its PV is gone"], "RBD631").remedy


def test_claim_without_volume_name_gets_the_pv_that_names_it() -> None:
    seen = life(
        volume(claim=OF_OLD, reclaim_policy="Retain"), claims=(claim(volume_name=None, **LOST),)
    )
    give, name = lines_of(found(seen, "RBD630").commands)[-2:]
    assert "/spec/claimRef/uid" in give
    assert f'"volumeName":"{PV}"' in name


# --------------------------------------------------------------------------------------------------
# Messages, evidence and commands
# --------------------------------------------------------------------------------------------------


def test_near_pvs_are_listed_with_their_mismatch() -> None:
    seen = life(
        free("a", capacity_bytes=GI // 2, labels=(("tier", "gold"),)),
        free("b", volume_mode="Block", labels=(("tier", "gold"),)),
        free("c", access_modes=("ReadOnlyMany",), labels=(("tier", "gold"),)),
        free("d", claim=OF_OLD, phase="Released", labels=(("tier", "gold"),)),
        free("e"),
        free("f", storage_class="other"),
        claims=(wanting(selector=SELECTOR, provisioner=None),),
        storage_classes=(NONE_MADE,),
    )
    assert found(seen, "RBD602").evidence == (
        "a has 512Mi, the claim requests 1Gi",
        "b has volumeMode Block, the claim requests Filesystem",
        "c offers ReadOnlyMany, the claim requests ReadWriteOnce",
        "e does not have the labels that the claim's selector requires (tier In gold)",
        "d still names an older claim of the same name, with another uid; is Released",
    )


@pytest.mark.parametrize(
    ("near", "hint"),
    [
        (
            {"storage_class": ""},
            """kubectl patch pv pv-free --type merge -p '{"spec":{"storageClassName":"rbd"}}'""",
        ),
        (
            {"access_modes": ("ReadOnlyMany",)},
            (
                "kubectl patch pv pv-free --type merge -p "
                """'{"spec":{"accessModes":["ReadOnlyMany","ReadWriteOnce"]}}'"""
            ),
        ),
        ({"labels": ()}, "kubectl label pv pv-free tier=gold"),
    ],
)
def test_single_near_pv_gets_a_command_that_makes_it_fit(near: dict[str, Any], hint: str) -> None:
    gold = {"labels": (("tier", "gold"),)}
    seen = life(
        free(**(gold | near)),
        claims=(wanting(selector=SELECTOR, provisioner=None),),
        storage_classes=(NONE_MADE,),
    )
    assert lines_of(found(seen, "RBD602").commands)[-1] == hint


def test_access_modes_are_not_extended_to_more_nodes() -> None:
    seen = life(free(), claims=(wanting(volume_name="pv-free", access_modes=("ReadWriteMany",)),))
    assert not any("patch" in line for line in lines_of(found(seen, "RBD610").commands))


def test_capacity_is_raised_only_if_the_image_is_larger() -> None:
    small = volume(claim=None, phase="Available", capacity_bytes=GI // 2, reclaim_policy="Retain")
    wants = (wanting(volume_name=PV),)
    true = life(small, claims=wants, of_image={"size_bytes": GI})
    assert '{"capacity":{"storage":"1Gi"}}' in lines_of(found(true, "RBD610").commands)[0]
    lie = life(small, claims=wants, of_image={"size_bytes": GI // 2})
    assert not any("patch" in line for line in lines_of(found(lie, "RBD610").commands))


def test_reserved_pv_that_does_not_fit_warns_of_an_empty_volume() -> None:
    dynamic = SAID["RBD625"]["too small"]
    assert "another, empty volume" in found(dynamic, "RBD625").message
    static = life(
        free(claim=OURS_BY_NAME, capacity_bytes=1),
        claims=(wanting(provisioner=None),),
        storage_classes=(NONE_MADE,),
    )
    assert "another, empty volume" not in found(static, "RBD625").message


def test_lapsed_controller_lease_is_reported_if_a_claim_waits() -> None:
    seen = life(
        free(),
        claims=(wanting(provisioner=None),),
        storage_classes=(NONE_MADE,),
        leases=(DEAD_CONTROLLERS,),
    )
    assert of_family(seen) == {"RBD626", "RBD627"}
    assert "kube-controller-manager runs again" in str(found(seen, "RBD626").recovery)


def test_pod_with_several_claims_waits_for_the_unbound_claim() -> None:
    other = replace(OURS, name="more", uid="more-uid")
    seen = life(
        volume(),
        claims=(claim(**BOUND), wanting(ref=other, storage_class="x")),
        pods=(waiting_pod(claims=("data", "more")),),
        target=BY_POD,
    )
    assert found(seen, "RBD601").subject == "pvc default/more"


def test_driver_with_a_similar_name_is_reported() -> None:
    seen = life(drivers=("rook-ceph.rbd.csi.ceph.com",), leases=(CONTROLLERS,), driver_pods=())
    assert "rook-ceph.rbd.csi.ceph.com" in found(seen, "RBD617").message


def test_command_reads_the_log_of_the_leading_provisioner() -> None:
    assert lines_of(found(life(), "RBD606").commands)[0] == (
        "kubectl -n csi logs prov-0 -c csi-provisioner --tail=50"
    )


def test_feature_that_only_rbd_nbd_supports_is_named() -> None:
    finding = found(SAID["RBD607"]["feature"], "RBD607")
    assert "requests the image feature journaling" in finding.message
    assert "mounter: rbd-nbd" in finding.remedy


MEANINGS: Final = {
    "failed to get connection: connecting failed: rados: ret=-2, No such file or directory": (
        "finds no monitors or no keyring"
    ),
    "rpc error: code = Internal desc = pool not found: pool (k8s) not found in Ceph cluster": (
        "the pool that its class names does not exist"
    ),
    "connecting failed: rados: ret=-108, Cannot send after transport endpoint shutdown": (
        "is on the blocklist"
    ),
    "code = ResourceExhausted desc = rbd image k8s/csi-vol-1 has 500 snapshots": (
        "its source k8s/csi-vol-1 has 500 snapshots and clones, which is the limit of ceph-csi"
    ),
}


@pytest.mark.parametrize(("text", "means"), MEANINGS.items())
def test_provisioner_error_is_explained_by_the_call_that_failed(text: str, means: str) -> None:
    failed = event(
        f'failed to provision volume with StorageClass "rbd": {text}',
        reason="ProvisioningFailed",
        subject=OURS,
        kind="PersistentVolumeClaim",
    )
    told = found(life(events=(failed,)), "RBD607")
    assert means in told.message


def test_missing_secret_is_named() -> None:
    told = found(SAID["RBD607"]["secret"], "RBD607")
    assert "the secret n/s" in told.message
    assert lines_of(told.commands) == ("kubectl -n n get secret s",)


def test_remedy_turns_off_the_topology_of_the_provisioner() -> None:
    told = found(SAID["RBD607"]["no topology labels"], "RBD607")
    assert "the node plugin on worker-1 reports none" in told.message
    assert "--feature-gates=Topology=false" in told.remedy
    assert lines_of(told.commands) == ("kubectl get csinode worker-1 -o yaml",)


def test_holder_of_a_volume_to_be_deleted_is_named() -> None:
    told = found(SAID["RBD641"]["an orphan holds it (42)"], "RBD641")
    assert "have it open: /dev/rbd0 on worker-1." in told.message
    assert "/dev/rbd0 on worker-1 has released the image" in str(told.recovery)


def test_mirror_daemons_alone_name_the_setting_that_counts_them() -> None:
    (watching,) = FOREIGN["watchers"]
    mirror = {**FOREIGN, "mirror_daemons": (mirror_daemon(watching),)}
    kube = {"persistent_volumes": (volume(phase="Released"),), "claims": ()}
    quiet = unmapped(of_image=mirror, in_kube={**kube, "events": ()})
    assert "RBD641" not in codes(quiet)
    fails = unmapped(of_image=mirror, in_kube={**kube, "events": (BEING_USED,)})
    assert "mirrorDaemonCount" in found(fails, "RBD641").message


@pytest.mark.parametrize(
    ("policy", "finalizer", "words"),
    [
        ("Retain", (), "Its image stays"),
        ("Delete", (), "left behind"),
        ("Delete", ("external-provisioner.volume.kubernetes.io/finalizer",), "deleted with it"),
    ],
)
def test_message_states_what_happens_to_the_image_of_a_deleted_pv(
    policy: str, finalizer: tuple[str, ...], words: str
) -> None:
    seen = deleted_volume(
        "kubernetes.io/pv-protection",
        *finalizer,
        phase="Bound",
        reclaim_policy=policy,
        claims=(claim(**BOUND),),
    )
    assert words in found(seen, "RBD614").message


def test_command_deletes_only_pods_that_have_ended() -> None:
    ended = found(SAID["RBD613"]["a pod has ended"], "RBD613")
    assert "kubectl -n default delete pod web-0" in lines_of(ended.commands)
    assert ended.severity is Severity.WARNING
    runs = found(SAID["RBD613"]["a pod runs"], "RBD613")
    assert not any("delete" in line for line in lines_of(runs.commands))


def test_pod_that_waits_for_a_claim_being_deleted_is_a_warning() -> None:
    seen = life(volume(), claims=(deleted(),), pods=(pod(), waiting_pod(node=None)))
    told = found(seen, "RBD613")
    assert told.severity is Severity.WARNING
    assert "default/web-1 will not start" in told.message


def test_finalizer_of_another_program_is_named() -> None:
    assert "backup.example.org/hold" in found(SAID["RBD652"]["a PV's"], "RBD652").message
