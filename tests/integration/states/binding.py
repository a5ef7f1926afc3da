"""States of claims and PVs that the PV controller, provisioners and PV/PVC protection cause."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final

from tests.integration.states.making import ELSEWHERE, HERE, NODE
from tests.lab.clients import librbd_client
from tests.lab.csi import WAITS_FOR_POD
from tests.lab.lab import POOL
from tests.lab.played import stamp
from tests.lab.workloads import claim, collection, pod_spec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.integration.states.making import Making
    from tests.lab.api import Json

_BOUND: Final = {"pv.kubernetes.io/bind-completed": "yes"}
_SELECTED: Final = "volume.kubernetes.io/selected-node"

# --------------------------------------------------------------------------------------------------
# Pending
# --------------------------------------------------------------------------------------------------


def no_class(making: Making) -> None:
    """A claim with an empty class name, and no PV that matches it."""
    making.claim(storage_class="", size="7Ti")


def claim_without_class(making: Making) -> None:
    """A claim without a class name, in a cluster without a default class."""
    made = claim(making.name, size="7Ti")
    del made["spec"]["storageClassName"]
    making.create(made)


def class_missing(making: Making) -> None:
    making.claim()


def class_of_a_removed_plugin(making: Making) -> None:
    """Kubernetes 1.31 removed the in-tree RBD plugin."""
    making.claim(storage_class=making.storage_class("kubernetes.io/rbd"))


def class_that_makes_none(making: Making) -> None:
    making.claim(storage_class=making.storage_class("kubernetes.io/no-provisioner"))


def nothing_fits(making: Making) -> None:
    """Six PVs that the claim cannot use, each for a different reason."""
    making.storage_class("kubernetes.io/no-provisioner")
    against: dict[str, Json] = {
        "-small": {"capacity": {"storage": "8Mi"}},
        "-mode": {"volumeMode": "Block"},
        "-access": {"accessModes": ["ReadOnlyMany"]},
        "-kept": {"claimRef": {"namespace": "default", "name": "another-claim"}},
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


def provisioner_too_old(making: Making) -> None:
    """Kubernetes sets no selfLink since 1.20; the provisioners of external-storage need it."""
    _provisioner(making, "ceph.com/rbd", "quay.io/external_storage/rbd-provisioner:v2.1.1-k8s1.11")
    making.claim(storage_class=making.storage_class("ceph.com/rbd"))


def provisioner_down(making: Making) -> None:
    """The pod of the provisioner exists, but its container crashes repeatedly."""
    name = f"{making.name}.example.org"
    pod_name = _provisioner(making, name, "registry.k8s.io/sig-storage/csi-provisioner:v5")
    making.nodes.crashes(pod_name)
    making.claim(storage_class=making.storage_class(name))


def provisioner_says_nothing(making: Making) -> None:
    """The pod of the provisioner is ready but reports nothing about the claim."""
    name = f"{making.name}.example.org"
    _provisioner(making, name, "registry.k8s.io/sig-storage/csi-provisioner:v5")
    making.claim(storage_class=making.storage_class(name))


def _provisioner(making: Making, name: str, image: str) -> str:
    """Make a pod that serves a provisioner's name; return the name of the pod."""
    container = {
        "name": "provisioner",
        "image": image,
        "env": [{"name": "PROVISIONER_NAME", "value": name}],
    }
    spec = pod_spec(node=HERE, claims=[]) | {"containers": [container]}
    meta = {"name": f"{making.name}-0", "labels": {"app": "rbd-provisioner"}}
    made = making.create({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})
    making.nodes.runs(made["metadata"]["name"])
    return str(made["metadata"]["name"])


def pool_missing(making: Making) -> None:
    making.claim(storage_class="rbd-no-pool")


def files_for_many_writers(making: Making) -> None:
    making.claim(storage_class="rbd", access_mode="ReadWriteMany")


def first_pod_missing(making: Making) -> None:
    making.claim(storage_class=WAITS_FOR_POD)


def first_pod_without_node(making: Making) -> None:
    making.claim(storage_class=WAITS_FOR_POD)
    made = making.pod()
    making.unschedulable(
        made["metadata"]["name"], "0/1 nodes are available: 1 Insufficient memory."
    )


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
    """YAML of a bound claim from which volumeName was removed."""
    making.claim(annotations=_BOUND)
    making.wait("PersistentVolumeClaim", making.name, "Lost")


def lost_its_volume(making: Making) -> None:
    """The PV of a bound claim was deleted by force."""
    making.bound()
    making.delete("PersistentVolume", making.name)
    making.patch("PersistentVolume", making.name, {"metadata": {"finalizers": None}})
    making.wait("PersistentVolumeClaim", making.name, "Lost")


def misbound_after_a_restore(making: Making) -> None:
    """Both objects were exported with `kubectl get -o yaml` and applied in another cluster."""
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


def claimed_twice(making: Making) -> None:
    """The YAML of a bound claim was applied under another name."""
    making.bound()
    making.claim(suffix="-copy", annotations=_BOUND, volume_name=making.name)
    making.wait("PersistentVolumeClaim", f"{making.name}-copy", "Lost")
    making.target = f"pvc/default/{making.name}-copy"


# --------------------------------------------------------------------------------------------------
# Phases of a PV
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
    """The claim was deleted and created again: the name is the same, the uid differs."""
    released_and_retained(making)
    making.claim(volume_name=making.name)
    making.target = f"pvc/default/{making.name}"


def deleted_while_watched(making: Making) -> None:
    """The reclaim policy is Delete, and a program outside the cluster has the image open."""
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
    """An in-tree PV with reclaim policy Delete: Kubernetes 1.31 and later cannot delete it."""
    source = {"monitors": ["10.77.0.1:6789"], "pool": POOL, "image": making.name}
    making.lab.ceph.create_image(f"{POOL}/{making.name}", size="8M")
    making.bound(rbd=source, persistentVolumeReclaimPolicy="Delete")
    making.delete("PersistentVolumeClaim", making.name)
    making.wait("PersistentVolume", making.name, "Failed")
    making.of_volume()


def released_though_claimed(making: Making) -> None:
    """A bound PV is Released.

    Older PV controllers wrote this phase at the wrong moment; the current one corrects it at its
    next sync.
    """
    making.bound(persistentVolumeReclaimPolicy="Delete")
    making.of_volume()

    @contextlib.contextmanager
    def wrongly() -> Iterator[None]:
        path = f"{collection('PersistentVolume')}/{making.name}/status"
        with making.lab.control_plane.controller_manager_stopped():
            # The status dates the change an hour back, so that it does not count as recent.
            wrong = {"phase": "Released", "lastPhaseTransitionTime": stamp(3600)}
            making.api.patch(path, {"status": wrong})
            yield
        making.wait("PersistentVolume", making.name, "Bound")

    making.while_asked = wrongly


def bound_to_a_gone_claim(making: Making) -> None:
    """The claim of a bound PV is gone, and the PV controller has not released the PV.

    Its cache may keep a deleted claim (kubernetes#124224). Here it does not run at that moment; its
    Lease is still fresh.
    """
    making.bound(persistentVolumeReclaimPolicy="Delete")
    making.of_volume()

    @contextlib.contextmanager
    def without_claim() -> Iterator[None]:
        with making.lab.control_plane.controller_manager_stopped():
            making.delete("PersistentVolumeClaim", making.name)
            # The PVC protection controller, which removes it, has stopped too.
            making.patch("PersistentVolumeClaim", making.name, {"metadata": {"finalizers": None}})
            path = f"{collection('PersistentVolume')}/{making.name}/status"
            making.api.patch(path, {"status": {"lastPhaseTransitionTime": stamp(3600)}})
            yield
        making.wait("PersistentVolume", making.name, "Released")

    making.while_asked = without_claim


# --------------------------------------------------------------------------------------------------
# Finalizers
# --------------------------------------------------------------------------------------------------


def claim_kept_by_a_pod(making: Making) -> None:
    making.bound()
    making.waiting(HERE, "")
    making.delete("PersistentVolumeClaim", making.name)


def claim_kept_by_a_strange_finalizer(making: Making) -> None:
    making.bound()
    finalizers = ["backup.example.org/hold"]
    making.patch("PersistentVolumeClaim", making.name, {"metadata": {"finalizers": finalizers}})
    making.delete("PersistentVolumeClaim", making.name)


def claim_is_being_cloned(making: Making) -> None:
    """The claim has the finalizer that external-provisioner sets while it makes a clone."""
    making.bound()
    finalizers = ["provisioner.storage.kubernetes.io/cloning-protection"]
    making.patch("PersistentVolumeClaim", making.name, {"metadata": {"finalizers": finalizers}})
    making.delete("PersistentVolumeClaim", making.name)


def volume_deleted_before_its_claim(making: Making) -> None:
    making.bound()
    making.delete("PersistentVolume", making.name)
    making.of_volume()


STATES: Final[tuple[Callable[[Making], None], ...]] = (
    no_class,
    claim_without_class,
    class_missing,
    class_of_a_removed_plugin,
    class_that_makes_none,
    nothing_fits,
    selector_with_a_provisioner,
    provisioner_silent,
    provisioner_too_old,
    provisioner_down,
    provisioner_says_nothing,
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
    claimed_twice,
    kept_for_nobody,
    released_and_retained,
    released_and_wanted_again,
    deleted_while_watched,
    deleted_by_nobody,
    reclaim_failed,
    claim_kept_by_a_pod,
    claim_kept_by_a_strange_finalizer,
    claim_is_being_cloned,
    volume_deleted_before_its_claim,
)
