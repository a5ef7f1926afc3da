"""Rows of the rules on PVs and claims, by code: reported, or not."""

from __future__ import annotations

from typing import Any, Final

from msgspec.structs import replace

from rbdagent.model import (
    ContainerState,
    CSINode,
    CsiSource,
    DriverPod,
    ImageSpec,
    InTreeRbdSource,
    KubeEvent,
    Lease,
    ObjectRef,
    PersistentVolume,
    PersistentVolumeClaim,
    Requirement,
    Snapshot,
    StorageClass,
    Target,
    TargetKind,
)
from tests.support.rule_tables import BY_POD, Table, listing
from tests.support.snapshots import (
    DRIVER,
    LIBRBD_COOKIE,
    LONG_AGO,
    NOW,
    PV,
    STRANGER_ADDRESS,
    UNSEEN,
    attachment,
    claim,
    event,
    pod,
    remote_watcher,
    target,
    unmapped,
    volume,
    waiting_pod,
    watcher,
    world,
)

GI: Final = 1024**3
SECONDS_AGO: Final = "2026-11-21T02:59:50Z"
A_MINUTE_AGO: Final = "2026-11-21T02:58:50Z"
FIVE_MINUTES_AGO: Final = "2026-11-21T02:55:00Z"
HALF_AN_HOUR_AGO: Final = "2026-11-21T02:30:00Z"
ELSEWHERE: Final = "volumes.example.org"
BY_CLAIM: Final = target(
    argument="pvc/default/data", kind=TargetKind.CLAIM, namespace="default", name="data"
)
OURS: Final = ObjectRef(namespace="default", name="data", uid="claim-uid")
OURS_BY_NAME: Final = replace(OURS, uid=None)
OF_OLD: Final = replace(OURS, uid="old-uid")
THEIRS: Final = ObjectRef(namespace="other", name="theirs", uid="their-uid")
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
    failed = to_claim(f'failed to provision volume with StorageClass "rbd": {error}')
    claims = (wanting(**fields.pop("claim", {})),)
    return life(claims=claims, events=(failed,), **fields)


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
POPULATED: Final = "Assuming an external populator will provision the volume"
BEGUN: Final = to_claim("External provisioner is provisioning volume", "Provisioning")
BOUND: Final = {"bind_completed": True, "created_at": LONG_AGO}
LOST: Final = {"phase": "Lost", **BOUND}
FOREIGN: Final = {"watchers": (watcher(address=STRANGER_ADDRESS, cookie=LIBRBD_COOKIE),)}
SELECTOR: Final = (Requirement(key="tier", operator="In", values=("gold",)),)


def deleted(**fields: Any) -> PersistentVolumeClaim:  # noqa: ANN401
    protected = {"deleting_since": LONG_AGO, "finalizers": ("kubernetes.io/pvc-protection",)}
    return claim(**(BOUND | protected | fields))


def deleted_volume(*finalizers: str, **fields: Any) -> Snapshot:  # noqa: ANN401
    gone = {"deleting_since": LONG_AGO, "finalizers": finalizers, "phase": "Released"}
    return of_volume(**(gone | {"reclaim_policy": "Retain"} | fields))


REPORTED: Final[dict[str, Table]] = {
    "RBD403": {
        "pending, and classes were not requested (41)": unmapped(
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
        "Bound still, and Lost in the next snapshot": life(
            volume(claim=OF_OLD), claims=(claim(**BOUND),)
        ),
        "a dead claim of another name": life(volume(claim=THEIRS), claims=(claim(**LOST),)),
        "asked by its PV": life(
            volume(claim=OF_OLD, phase="Released"), claims=(claim(**LOST),), target=target()
        ),
    },
    "RBD405": {
        "Retain (42)": of_volume(reclaim_policy="Retain"),
        "its claim was not queried": unmapped(
            in_kube={
                "persistent_volumes": (volume(phase="Released", reclaim_policy="Retain"),),
                "claims": (),
            }
        ),
    },
    "RBD406": {
        "claim lives (43)": of_volume(claims=(claim(**BOUND),)),
        "and is requested": life(volume(phase="Released"), claims=(claim(**BOUND),)),
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
        "it runs, and reports nothing": life(),
        "it failed long ago, and has stopped": life(
            events=(to_claim("no", last_seen=HALF_AN_HOUR_AGO),)
        ),
        "it was not searched": life(leases=UNSEEN, driver_pods=UNSEEN),
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
    "RBD636": {
        "Bound, and its claim is gone": of_volume(phase="Bound"),
        "with Retain": of_volume(phase="Bound", reclaim_policy="Retain"),
        "a server that does not date the phase": of_volume(phase="Bound", phase_since=None),
        "the PV controller runs": of_volume(phase="Bound", in_kube={"leases": (CONTROLLERS,)}),
        "the PV is to be deleted too": of_volume(phase="Bound", deleting_since=NOW),
    },
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
        "begun, and never ended": life(events=(replace(BEGUN, last_seen=HALF_AN_HOUR_AGO),)),
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
    "RBD628": {
        "nothing fills it": life(
            claims=(wanting(populated_from="Thing.example.org absent"),),
            events=(to_claim(POPULATED, type="Normal", reason="Provisioning"),),
        ),
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
            target=Target(argument="pv/pv-old", kind=TargetKind.PERSISTENT_VOLUME, name="pv-old"),
        ),
    },
    "RBD640": {
        "just now": of_volume(phase_since=SECONDS_AGO),
        "events were refused": of_volume(in_kube={"events": UNSEEN}),
        "an attachment may keep it": of_volume(
            deleting_since=HALF_AN_HOUR_AGO, in_kube={"attachments": UNSEEN}
        ),
        "its claim may exist": of_volume(claims=UNSEEN),
    },
    "RBD641": {
        "an orphan holds it (42)": world(
            in_kube={"persistent_volumes": (volume(phase="Released"),), "claims": ()}
        ),
        "a client outside the cluster": of_volume(
            of_image=FOREIGN, in_kube={"events": (BEING_USED,)}
        ),
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
NOT_REPORTED: Final[dict[str, Table]] = {
    "RBD403": {
        "classes were requested": life(),
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
        "a claim of its name wants it: the finding is about the claim": life(
            volume(claim=OF_OLD, phase="Released", reclaim_policy="Retain"),
            claims=(wanting(volume_name=PV),),
            target=target(),
        ),
    },
    "RBD636": {
        "the claim exists": life(volume(), claims=(claim(**BOUND),), target=target()),
        "the claim is going away": life(volume(), claims=(deleted(),), target=target()),
        "the claims were refused": of_volume(phase="Bound", claims=UNSEEN),
        "the claim was not requested": unmapped(
            in_kube={"persistent_volumes": (volume(),), "claims": ()},
            target=target(kind=TargetKind.DEVICE),
        ),
        "an image whose PV has another name": unmapped(
            in_kube={"persistent_volumes": (volume(),), "claims": ()},
            target=target(kind=TargetKind.IMAGE),
        ),
        "it was bound just now": of_volume(phase="Bound", phase_since=SECONDS_AGO),
        "it is released": of_volume(),
        "it is reserved by name": of_volume(phase="Bound", claim=OURS_BY_NAME),
        "it has no claim": of_volume(phase="Bound", claim=None),
        "the PV controller is down (RBD627)": of_volume(
            phase="Bound", in_kube={"leases": (DEAD_CONTROLLERS,)}
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
        "it fails with an error": failing("no"),
    },
    "RBD607": {
        "the event is older than the class": life(
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
        "its claim was not queried: a device": world(
            in_kube={
                "persistent_volumes": (volume(phase="Available", claim=OURS_BY_NAME),),
                "claims": (),
            },
            target=target(argument="/dev/rbd0", kind=TargetKind.DEVICE, name="/dev/rbd0"),
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
    "RBD628": {"the driver creates it": life(events=(BEGUN,))},
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
        "its PV was not requested": unmapped(
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
        "a transient watch": of_volume(
            of_image={"transient_watchers": (remote_watcher(cookie=LIBRBD_COOKIE),)}
        ),
    },
    "RBD643": {
        "two minutes old (4)": of_volume(phase_since="2026-11-21T02:58:00Z"),
        "events were refused (26)": of_volume(in_kube={"events": UNSEEN}),
        "an attachment may keep it": of_volume(
            deleting_since=HALF_AN_HOUR_AGO, in_kube={"attachments": UNSEEN}
        ),
        "its claim may exist": of_volume(claims=UNSEEN),
        "Retain": of_volume(reclaim_policy="Retain"),
    },
    "RBD644": {
        "its claim is bound to nothing yet": of_volume(
            phase="Bound", claims=(wanting(volume_name=None),)
        ),
        "the uid has another name: no claim has both": life(
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
INFO_ONLY: Final[dict[str, Table]] = {
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
    "RBD633": {"a retained one": REPORTED["RBD633"]["retained"]},
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
        "the kernel still has its file system for a moment (4)": world(
            mapped={"kernel_traces": ("/sys/fs/ext4/rbd0",)},
            in_kube={
                "attachments": (attachment(created_at=A_MINUTE_AGO),),
                "persistent_volumes": (volume(phase="Released", phase_since=A_MINUTE_AGO),),
                "claims": (),
                "nodes": (listing("worker-1"),),
                "events": (BEING_USED,),
            },
        ),
    },
}
"""States that are legitimate, or may be transient: reported with severity INFO only."""
