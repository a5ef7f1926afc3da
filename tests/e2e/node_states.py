"""States of real kubelets and krbd, each caused by an action of a user or by an accident.

Each state uses its own names, and nothing that other volumes of the lab need. The failures are
real: each text comes from the program that fails, with either driver.
"""

from __future__ import annotations

import uuid
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final

from tests.e2e.life import Asked
from tests.lab.clients import librbd_client
from tests.lab.csi import FAR_CLUSTER_ID, FAR_USER
from tests.lab.lab import POOL
from tests.lab.processes import wait_until
from tests.lab.workloads import (
    DRIVER,
    collection,
    deployment,
    multi_attach_words,
    pod,
    pod_spec,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.e2e.scene import Scene
    from tests.lab.api import Json

ONE, OTHER = "worker-1", "worker-2"
_NAMESPACE: Final = "default"
_EVENT_S: Final = 300.0
_SLOW_S: Final = 15.0
"""Pause between two snapshots for a finding that appears after a minute: each takes seconds."""
_IN_USE: Final = "is still being used"


def _with_event(
    scene: Scene,
    node: str,
    words: str,
    **settings: Any,  # noqa: ANN401 - pod()'s own
) -> Asked:
    """Start a pod with the scene's claim; return it as target once its events have these words."""
    name = scene.start_pod(node, **settings)
    wait_until(
        lambda: any(words in event["message"] for event in scene.workloads.events(name)),
        timeout_s=_EVENT_S,
        what=f"an event of {name} with {words!r}",
        interval_s=1,
    )
    return Asked(f"pod/{_NAMESPACE}/{name}", node)


def _run(scene: Scene, node: str, **settings: Any) -> str:  # noqa: ANN401 - pod()'s own
    """Start a pod with the scene's claim, wait until it runs, and return its name."""
    return scene.run_pod(node, timeout_s=_EVENT_S, **settings)


def _running(scene: Scene, name: str) -> None:
    scene.workloads.wait_running(name, timeout_s=_EVENT_S)


# --------------------------------------------------------------------------------------------------
# Still being used
# --------------------------------------------------------------------------------------------------


def held_by_an_orphan(scene: Scene) -> Asked:
    """Unstage left the mapping behind and kubelet has no record of it; the next node is refused."""
    volume = scene.claim()
    handle = scene.handle(volume)
    old = _run(scene, ONE)
    scene.lab.set_fault(ONE, "NodeUnstage.unmap", "skip", volume=handle)
    scene.workloads.delete("Pod", old)
    scene.wait_detached(volume, ONE)
    scene.lab.clear_fault(ONE, "NodeUnstage.unmap", volume=handle)
    return _with_event(scene, OTHER, _IN_USE)._replace(node=ONE, there=True)


def held_by_a_stranger(scene: Scene) -> Asked:
    """A program outside the cluster has the image open."""
    image = scene.image_of(scene.claim())
    stranger = ExitStack()
    stranger.enter_context(librbd_client(scene.lab, image, scene.name))
    scene.undo(stranger.close)
    return _with_event(scene, OTHER, _IN_USE)


# --------------------------------------------------------------------------------------------------
# Mapping
# --------------------------------------------------------------------------------------------------


def key_of_somebody_else(scene: Scene) -> Asked:
    """The secret has the user's name, and another user's key."""
    secret = scene.secret(user="csi", key=scene.lab.ceph.key_of("rbdagent"))
    scene.volume_by_hand(source={"nodeStageSecretRef": secret})
    return _with_event(scene, ONE, "rados: ret=-13")


def features_that_krbd_lacks(scene: Scene) -> Asked:
    """The image has the journaling feature."""
    image = scene.image(scene.name, features="layering,exclusive-lock,journaling")
    scene.volume_by_hand(image=image)
    return _with_event(scene, OTHER, "unsupported krbd Feature")


def monitors_out_of_reach(scene: Scene) -> Asked:
    """ceph-csi's configuration names an address that no machine has."""
    secret = scene.secret(user=FAR_USER, key=scene.lab.ceph.key_of("csi"))
    scene.volume_by_hand(
        attributes={"clusterID": FAR_CLUSTER_ID}, source={"nodeStageSecretRef": secret}
    )
    return _with_event(scene, OTHER, "rados: ret=-110")


def cluster_that_is_not_configured(scene: Scene) -> Asked:
    """A PV of another Ceph cluster: config.json has no such clusterID."""
    scene.volume_by_hand(attributes={"clusterID": "ceph-of-old"})
    return _with_event(scene, ONE, "missing configuration")


def image_missing(scene: Scene) -> Asked:
    scene.volume_by_hand(image=f"{scene.name}-gone")
    return _with_event(scene, OTHER, "not found")


def secret_missing(scene: Scene) -> Asked:
    ref = {"name": f"{scene.name}-secret", "namespace": _NAMESPACE}
    scene.volume_by_hand(source={"nodeStageSecretRef": ref})
    return _with_event(scene, ONE, "failed to find the secret")


# --------------------------------------------------------------------------------------------------
# Mounting
# --------------------------------------------------------------------------------------------------


def image_too_small_for_its_file_system(scene: Scene) -> Asked:
    """mkfs.xfs fails in 8 MiB: its error is in ceph-csi's log, kubelet shows an exit status."""
    scene.volume_by_hand(source={"fsType": "xfs"})
    return _with_event(scene, OTHER, "exit status 1")


def file_system_damaged(scene: Scene) -> Asked:
    """The root directory is gone and the superblock records an error: fsck -a cannot repair it."""
    image = scene.image(scene.name, damage=("clri <2>", "set_super_value state 2"))
    scene.volume_by_hand(image=image)
    return _with_event(scene, ONE, "could not correct")


def another_file_system(scene: Scene) -> Asked:
    """The image has ext4, and the PV asks for xfs."""
    scene.volume_by_hand(image=scene.image(scene.name, formatted=True), source={"fsType": "xfs"})
    return _with_event(scene, OTHER, "wrong fs type")


def empty_and_only_to_be_read(scene: Scene) -> Asked:
    scene.volume_by_hand(accessModes=["ReadOnlyMany"])
    return _with_event(scene, ONE, "unformatted disk", read_only=True)


def files_for_many_nodes(scene: Scene) -> Asked:
    scene.volume_by_hand(accessModes=["ReadWriteMany"])
    return _with_event(scene, OTHER, "RWX access mode")


def device_used_as_a_directory(scene: Scene) -> Asked:
    scene.claim(volume_mode="Block")
    return _with_event(scene, ONE, "has volumeMode Block")


def directory_used_as_a_device(scene: Scene) -> Asked:
    scene.claim()
    return _with_event(scene, OTHER, "has volumeMode Filesystem", block=True)


def outside_of_its_affinity(scene: Scene) -> Asked:
    """A pod that was bound to its node without the scheduler."""
    term = {"key": "kubernetes.io/hostname", "operator": "In", "values": ["worker-9"]}
    affinity = {"required": {"nodeSelectorTerms": [{"matchExpressions": [term]}]}}
    scene.volume_by_hand(nodeAffinity=affinity)
    return _with_event(scene, ONE, "NodeAffinity check failed")


def plugin_of_old(scene: Scene) -> Asked:
    """A PV of Kubernetes' own RBD plugin, which was removed in 1.31."""
    image = scene.image(scene.name)
    source = {"monitors": [scene.lab.ceph.monitor], "pool": POOL, "image": image}
    scene.volume_by_hand(image=image, rbd=source)
    return _with_event(scene, OTHER, "no volume plugin matched")


def driver_missing_on_its_node(scene: Scene) -> Asked:
    """The driver is installed, but its node plugin runs on other nodes only."""
    driver = f"second.{DRIVER}"
    _create(scene, "CSIDriver", driver, {"spec": {"attachRequired": False}})
    scene.volume_by_hand(source={"driver": driver})
    return _with_event(scene, ONE, "not found in the list")


def driver_that_nobody_installed(scene: Scene) -> Asked:
    """YAML of a cluster with Rook, whose driver is not installed here."""
    scene.volume_by_hand(source={"driver": f"rook-ceph.{DRIVER}"})
    return Asked(f"pod/{_NAMESPACE}/{scene.start_pod(OTHER)}", OTHER)


def restored_and_misbound(scene: Scene) -> Asked:
    """The PV names the claim of another cluster by its uid."""
    scene.volume_by_hand()
    path = f"{collection('PersistentVolume')}/{scene.name}"
    api = scene.lab.control_plane.api
    api.patch(path, {"spec": {"claimRef": {"uid": str(uuid.uuid4())}}})
    wait_until(lambda: _phase(scene) == "Lost", timeout_s=60, what=f"claim {scene.name} to be Lost")
    return _with_event(scene, ONE, "PVC is not bound")


def _phase(scene: Scene) -> str:
    found = scene.workloads.find("PersistentVolumeClaim", scene.name)
    return "" if found is None else str(found["status"].get("phase"))


# --------------------------------------------------------------------------------------------------
# Leaving
# --------------------------------------------------------------------------------------------------


def kept_by_another_pod(scene: Scene) -> Asked:
    """A pod with a hostPath into kubelet's directory has its own bind mount of the volume."""
    volume = scene.claim()
    old = _run(scene, ONE)
    keeper = pod(f"{scene.name}-keeper", node=ONE, claims=[])
    spec = keeper["spec"]
    spec["volumes"] = [{"name": "kept", "hostPath": {"path": scene.mount_of(old, volume)}}]
    spec["containers"][0]["volumeMounts"] = [{"name": "kept", "mountPath": "/kept"}]
    scene.add(keeper)
    _running(scene, keeper["metadata"]["name"])
    scene.workloads.delete("Pod", old)
    return _with_event(scene, OTHER, multi_attach_words())._replace(
        node=ONE, there=True, pause_s=_SLOW_S
    )


def process_that_cannot_be_killed(scene: Scene) -> Asked:
    """Its write hangs: the file system is frozen, as under a snapshot that never ended."""
    volume = scene.claim()
    writes = ("/bin/sh", "-c", "while :; do date >/data/now; sleep 0.2; done")
    name = _run(scene, OTHER, command=writes)
    mount, vm = scene.mount_of(name, volume), scene.lab.nodes[OTHER]
    vm.run(["fsfreeze", "--freeze", mount])
    scene.undo(lambda: vm.run(["fsfreeze", "--unfreeze", mount]))
    scene.workloads.delete("Pod", name, wait=False)
    return Asked(f"pod/{_NAMESPACE}/{name}", OTHER, pause_s=_SLOW_S)


def pod_kept_by_a_finalizer(scene: Scene) -> Asked:
    scene.claim()
    name = _run(scene, ONE)
    scene.keep_terminating(name)
    return Asked(f"pod/{_NAMESPACE}/{name}", ONE, pause_s=_SLOW_S)


def turned_read_only(scene: Scene) -> Asked:
    """The kernel remounts read-only like this after an I/O error, with errors=remount-ro."""
    volume = scene.claim()
    name = _run(scene, OTHER)
    scene.lab.nodes[OTHER].run(["mount", "-o", "remount,ro", scene.mount_of(name, volume)])
    return Asked(f"pvc/{_NAMESPACE}/{scene.name}", OTHER, there=True)


# --------------------------------------------------------------------------------------------------
# Rivals
# --------------------------------------------------------------------------------------------------


def rolling_update_with_surge(scene: Scene) -> Asked:
    scene.claim()
    _deploy(scene, pod_spec(node=ONE, claims=[scene.name]))
    old = scene.workloads.wait_pod_of(scene.name, ONE)
    _running(scene, old)
    _deploy(scene, pod_spec(node=OTHER, claims=[scene.name]))
    return _waiting_pod_of(scene)


def replicas_with_one_claim(scene: Scene) -> Asked:
    """Two replicas; the lab does here what the scheduler does: it sets the node of each."""
    scene.claim()
    spec = pod_spec(node=ONE, claims=[scene.name])
    del spec["nodeName"]
    _deploy(scene, spec, replicas=2)

    def both() -> list[str] | None:
        found = [name for name in _pods(scene) if name.startswith(f"{scene.name}-")]
        return found if len(found) == 2 else None

    first, second = wait_until(both, timeout_s=60, what=f"two pods of {scene.name}")
    _bind(scene, first, ONE)
    _running(scene, first)
    _bind(scene, second, OTHER)
    return Asked(f"pvc/{_NAMESPACE}/{scene.name}", OTHER, pause_s=_SLOW_S)


def second_pod_of_a_volume_for_one(scene: Scene) -> Asked:
    """ReadWriteOncePod, and both pods are on one node."""
    scene.claim(access_mode="ReadWriteOncePod")
    _run(scene, ONE)
    return _with_event(scene, ONE, "ReadWriteOncePod", suffix="-second")


def pod_of_somebody_else(scene: Scene) -> Asked:
    scene.claim()
    _run(scene, OTHER)
    return _with_event(scene, ONE, multi_attach_words())._replace(pause_s=_SLOW_S)


def _deploy(scene: Scene, template: Json, *, replicas: int = 1) -> None:
    made = deployment(scene.name, template=template)
    made["spec"]["replicas"] = replicas
    scene.workloads.apply(made)
    scene.undo(lambda: scene.workloads.delete("Deployment", scene.name, wait=False))


def _waiting_pod_of(scene: Scene) -> Asked:
    name = scene.workloads.wait_pod_of(scene.name, OTHER)
    return Asked(f"pod/{_NAMESPACE}/{name}", OTHER, pause_s=_SLOW_S)


def _pods(scene: Scene) -> list[str]:
    found = scene.lab.control_plane.api.items(collection("Pod"))
    return [str(pod["metadata"]["name"]) for pod in found]


def _bind(scene: Scene, name: str, node: str) -> None:
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": name},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }
    scene.lab.control_plane.api.create(f"{collection('Pod')}/{name}/binding", binding)


def _create(scene: Scene, kind: str, name: str, fields: Json) -> None:
    api = scene.lab.control_plane.api
    api.create(collection(kind), {"metadata": {"name": name}, **fields})
    scene.undo(lambda: api.delete(f"{collection(kind)}/{name}"))


STATES: Final[tuple[Callable[[Scene], Asked], ...]] = (
    # A state whose finding appears only after a minute begins first.
    kept_by_another_pod,
    rolling_update_with_surge,
    process_that_cannot_be_killed,
    pod_kept_by_a_finalizer,
    pod_of_somebody_else,
    replicas_with_one_claim,
    held_by_an_orphan,
    features_that_krbd_lacks,
    key_of_somebody_else,
    monitors_out_of_reach,
    cluster_that_is_not_configured,
    image_missing,
    secret_missing,
    image_too_small_for_its_file_system,
    file_system_damaged,
    another_file_system,
    empty_and_only_to_be_read,
    files_for_many_nodes,
    device_used_as_a_directory,
    directory_used_as_a_device,
    outside_of_its_affinity,
    plugin_of_old,
    driver_missing_on_its_node,
    driver_that_nobody_installed,
    restored_and_misbound,
    turned_read_only,
    held_by_a_stranger,
    second_pod_of_a_volume_for_one,
)
