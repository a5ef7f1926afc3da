"""States of volumes that real controllers can be brought into without any node.

Each is made by what a user would type, in names of its own: claims, PVs and classes of one never
fit another's.
"""

# ruff: noqa: ANN401 - a field of an object may be anything

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Final

from tests.lab.api import ApiError
from tests.lab.clients import librbd_client
from tests.lab.csi import WAITS_FOR_POD, static_volume
from tests.lab.lab import POOL
from tests.lab.processes import wait_until
from tests.lab.workloads import claim, collection, pod

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import ExitStack

    from tests.lab.api import Json
    from tests.lab.lab import Lab

ELSEWHERE: Final = "volumes.example.org"
"""A provisioner that does not run."""
NODE: Final = "played-1"
"""A Node object without a kubelet."""
_BOUND: Final = {"pv.kubernetes.io/bind-completed": "yes"}
_SELECTED: Final = "volume.kubernetes.io/selected-node"


class Making:
    """What makes one state, with its names."""

    def __init__(self, lab: Lab, name: str, undo: ExitStack) -> None:
        self.lab = lab
        self.name = name
        self.undo = undo
        self.api = lab.control_plane.api
        self.target = f"pvc/default/{name}"

    # Objects --------------------------------------------------------------------------------------

    def storage_class(self, provisioner: str, *, waits: bool = False) -> str:
        """Make the state's own class, and give its name."""
        self.create(
            {
                "apiVersion": "storage.k8s.io/v1",
                "kind": "StorageClass",
                "metadata": {"name": self.name},
                "provisioner": provisioner,
                "volumeBindingMode": "WaitForFirstConsumer" if waits else "Immediate",
            }
        )
        return self.name

    def claim(
        self, *, suffix: str = "", annotations: dict[str, str] | None = None, **fields: Any
    ) -> Json:
        """Make a claim; without a class it is of the state's own name, so that nobody makes one."""
        made = claim(f"{self.name}{suffix}", **{"storage_class": self.name, **fields})
        made["metadata"]["annotations"] = annotations or {}
        return self.create(made)

    def volume(self, suffix: str = "", **spec: Any) -> Json:
        """Make a static PV of the state's own class, whose image is there."""
        name = f"{self.name}{suffix}"
        if not spec.get("rbd"):
            self.lab.ceph.create_image(f"{POOL}/{name}", size="8M")
        made = static_volume(name, pool=POOL, image=name)
        made["spec"] |= {"storageClassName": self.name, **spec}
        if "rbd" in spec:
            del made["spec"]["csi"]
        return self.create(made)

    def bound(self, **spec: Any) -> tuple[Json, Json]:
        """Make a PV and a claim that are bound to each other."""
        self.volume(**spec)
        self.claim()
        self.wait("PersistentVolumeClaim", self.name, "Bound")
        return self.get("PersistentVolume", self.name), self.get("PersistentVolumeClaim", self.name)

    def pod(self, node: str = "", suffix: str = "") -> Json:
        """Make a pod with the claim; nobody runs it, and nobody schedules it."""
        made = pod(f"{self.name}{suffix}", node=node, claims=[self.name])
        if not node:
            del made["spec"]["nodeName"]
        return self.create(made)

    def create(self, made: Json) -> Json:
        """Create an object, and remove it in the end."""
        meta = made["metadata"]
        path = collection(made["kind"], meta.get("namespace", "default"))
        self.undo.callback(self._remove, f"{path}/{meta['name']}")
        return self.api.create(path, made)

    def _remove(self, path: str) -> None:
        with contextlib.suppress(ApiError):
            self.api.delete(path, gracePeriodSeconds=0)
            self.api.patch(path, {"metadata": {"finalizers": None}})

    def get(self, kind: str, name: str) -> Json:
        return self.api.get(f"{collection(kind)}/{name}")

    def patch(self, kind: str, name: str, body: Json) -> None:
        self.api.patch(f"{collection(kind)}/{name}", body)

    def delete(self, kind: str, name: str) -> None:
        self.api.delete(f"{collection(kind)}/{name}")

    def wait(self, kind: str, name: str, phase: str) -> None:
        """Wait for the phase of a claim or PV."""
        wait_until(
            lambda: self.get(kind, name)["status"].get("phase") == phase,
            timeout_s=60,
            what=f"{kind} {name} to be {phase}",
        )

    def of_volume(self) -> None:
        """Have the PV of the state's name be what is asked about."""
        self.target = f"pv/{self.name}"


# --------------------------------------------------------------------------------------------------
# Pending
# --------------------------------------------------------------------------------------------------


def no_class(making: Making) -> None:
    """A claim that names no class on purpose, and no PV for it."""
    making.claim(storage_class="", size="7Ti")


def class_missing(making: Making) -> None:
    making.claim()


def class_of_a_removed_plugin(making: Making) -> None:
    """In-tree RBD left Kubernetes with 1.31."""
    making.claim(storage_class=making.storage_class("kubernetes.io/rbd"))


def class_that_makes_none(making: Making) -> None:
    making.claim(storage_class=making.storage_class("kubernetes.io/no-provisioner"))


def nothing_fits(making: Making) -> None:
    """Six PVs of the claim's class, each with one thing against it."""
    making.storage_class("kubernetes.io/no-provisioner")
    against: dict[str, Json] = {
        "-small": {"capacity": {"storage": "8Mi"}},
        "-mode": {"volumeMode": "Block"},
        "-access": {"accessModes": ["ReadOnlyMany"]},
        "-kept": {"claimRef": {"namespace": "default", "name": "somebody-else"}},
        "-label": {},
        "-class": {"storageClassName": "another-class"},
    }
    for suffix, spec in against.items():
        making.volume(suffix, **spec)
    made = claim(making.name, storage_class=making.name)
    made["spec"]["selector"] = {"matchLabels": {"tier": "gold"}}
    making.create(made)


def selector_with_a_provisioner(making: Making) -> None:
    made = claim(making.name, storage_class="rbd")
    made["spec"]["selector"] = {"matchLabels": {"tier": "gold"}}
    making.create(made)


def provisioner_silent(making: Making) -> None:
    making.claim(storage_class=making.storage_class(ELSEWHERE))


def pool_missing(making: Making) -> None:
    making.claim(storage_class="rbd-no-pool")


def files_for_many_writers(making: Making) -> None:
    making.claim(storage_class="rbd", access_mode="ReadWriteMany")


def first_pod_missing(making: Making) -> None:
    making.claim(storage_class=WAITS_FOR_POD)


def first_pod_without_node(making: Making) -> None:
    making.claim(storage_class=WAITS_FOR_POD)
    made = making.pod()
    condition = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "0/1 nodes are available: 1 Insufficient memory.",
    }
    # The one word that the scheduler would have said.
    path = f"{collection('Pod')}/{made['metadata']['name']}/status"
    making.api.patch(path, {"status": {"conditions": [condition]}})


def first_pod_past_the_scheduler(making: Making) -> None:
    making.claim(storage_class=WAITS_FOR_POD)
    making.pod(NODE)


def selected_node_gone(making: Making) -> None:
    storage_class = making.storage_class(ELSEWHERE, waits=True)
    making.claim(storage_class=storage_class, annotations={_SELECTED: "long-gone"})


def named_volume_missing(making: Making) -> None:
    making.claim(volume_name="no-such-volume")


def named_volume_taken(making: Making) -> None:
    making.bound()
    making.claim(suffix="-second", volume_name=making.name)
    making.target = f"pvc/default/{making.name}-second"


def named_volume_too_small(making: Making) -> None:
    making.volume(capacity={"storage": "8Mi"})
    making.claim(volume_name=making.name)


def kept_volume_does_not_fit(making: Making) -> None:
    making.volume(
        capacity={"storage": "8Mi"}, claimRef={"namespace": "default", "name": making.name}
    )
    making.claim()


# --------------------------------------------------------------------------------------------------
# Lost
# --------------------------------------------------------------------------------------------------


def lost_its_volume_name(making: Making) -> None:
    """YAML of a bound claim that somebody took volumeName out of."""
    making.claim(annotations=_BOUND)
    making.wait("PersistentVolumeClaim", making.name, "Lost")


def lost_its_volume(making: Making) -> None:
    """A PV that was deleted by force."""
    making.bound()
    making.delete("PersistentVolume", making.name)
    making.patch("PersistentVolume", making.name, {"metadata": {"finalizers": None}})
    making.wait("PersistentVolumeClaim", making.name, "Lost")


def misbound_after_a_restore(making: Making) -> None:
    """`kubectl get -o yaml` of both in one cluster, `kubectl apply` in another one."""
    old = "11111111-2222-3333-4444-555555555555"
    ref = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "namespace": "default",
        "name": making.name,
        "uid": old,
    }
    making.volume(claimRef=ref)
    making.claim(annotations=_BOUND, volume_name=making.name)
    making.wait("PersistentVolumeClaim", making.name, "Lost")


# --------------------------------------------------------------------------------------------------
# The PV's phases
# --------------------------------------------------------------------------------------------------


def kept_for_nobody(making: Making) -> None:
    making.volume(claimRef={"namespace": "default", "name": f"{making.name}-never-made"})
    making.wait("PersistentVolume", making.name, "Available")
    making.of_volume()


def released_and_retained(making: Making) -> None:
    making.bound()
    making.delete("PersistentVolumeClaim", making.name)
    making.wait("PersistentVolume", making.name, "Released")
    making.of_volume()


def released_and_wanted_again(making: Making) -> None:
    """The claim was deleted and made anew: its name is the same, its uid is not."""
    released_and_retained(making)
    making.claim(volume_name=making.name)
    making.target = f"pvc/default/{making.name}"


def deleted_while_watched(making: Making) -> None:
    """ReclaimPolicy Delete, and a program outside the cluster has the image open."""
    making.claim(storage_class="rbd")
    making.wait("PersistentVolumeClaim", making.name, "Bound")
    name = making.get("PersistentVolumeClaim", making.name)["spec"]["volumeName"]
    image = making.get("PersistentVolume", name)["spec"]["csi"]["volumeAttributes"]["imageName"]
    making.undo.enter_context(librbd_client(making.lab, f"{POOL}/{image}", making.name))
    making.delete("PersistentVolumeClaim", making.name)
    making.wait("PersistentVolume", name, "Released")
    making.target = f"pv/{name}"


def deleted_by_nobody(making: Making) -> None:
    making.volume(persistentVolumeReclaimPolicy="Delete")
    annotation = {"pv.kubernetes.io/provisioned-by": ELSEWHERE}
    making.patch("PersistentVolume", making.name, {"metadata": {"annotations": annotation}})
    making.claim()
    making.wait("PersistentVolumeClaim", making.name, "Bound")
    making.delete("PersistentVolumeClaim", making.name)
    making.wait("PersistentVolume", making.name, "Released")
    making.of_volume()


def reclaim_failed(making: Making) -> None:
    """An in-tree PV with Delete: nothing in Kubernetes 1.31 and later can delete its image."""
    source = {"monitors": ["10.77.0.1:6789"], "pool": POOL, "image": making.name}
    making.lab.ceph.create_image(f"{POOL}/{making.name}", size="8M")
    making.bound(rbd=source, persistentVolumeReclaimPolicy="Delete")
    making.delete("PersistentVolumeClaim", making.name)
    making.wait("PersistentVolume", making.name, "Failed")
    making.of_volume()


# --------------------------------------------------------------------------------------------------
# Finalizers
# --------------------------------------------------------------------------------------------------


def claim_kept_by_a_pod(making: Making) -> None:
    making.bound()
    making.pod(NODE)
    making.delete("PersistentVolumeClaim", making.name)


def claim_kept_by_a_strange_finalizer(making: Making) -> None:
    making.bound()
    finalizers = ["backup.example.org/hold"]
    making.patch("PersistentVolumeClaim", making.name, {"metadata": {"finalizers": finalizers}})
    making.delete("PersistentVolumeClaim", making.name)


def volume_deleted_before_its_claim(making: Making) -> None:
    making.bound()
    making.delete("PersistentVolume", making.name)
    making.of_volume()


STATES: Final[tuple[Callable[[Making], None], ...]] = (
    no_class,
    class_missing,
    class_of_a_removed_plugin,
    class_that_makes_none,
    nothing_fits,
    selector_with_a_provisioner,
    provisioner_silent,
    pool_missing,
    files_for_many_writers,
    first_pod_missing,
    first_pod_without_node,
    first_pod_past_the_scheduler,
    selected_node_gone,
    named_volume_missing,
    named_volume_taken,
    named_volume_too_small,
    kept_volume_does_not_fit,
    lost_its_volume_name,
    lost_its_volume,
    misbound_after_a_restore,
    kept_for_nobody,
    released_and_retained,
    released_and_wanted_again,
    deleted_while_watched,
    deleted_by_nobody,
    reclaim_failed,
    claim_kept_by_a_pod,
    claim_kept_by_a_strange_finalizer,
    volume_deleted_before_its_claim,
)
