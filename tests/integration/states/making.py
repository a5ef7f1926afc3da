"""Build a state of a volume with the objects that a user would create, under unique names.

The claims, PVs and classes of one state never match those of another state.
"""

# ruff: noqa: ANN401 - a field of an object may be anything

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Final

from tests.lab.api import ApiError
from tests.lab.csi import static_volume
from tests.lab.lab import POOL
from tests.lab.played import stamp
from tests.lab.processes import wait_until
from tests.lab.workloads import DRIVER, claim, collection, deployment, pod, pod_spec

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager, ExitStack

    from tests.lab.api import Json
    from tests.lab.lab import Lab
    from tests.lab.played import PlayedNodes

ELSEWHERE: Final = "volumes.example.org"
"""A provisioner that does not run."""
NODE: Final = "played-1"
"""A Node object without a kubelet."""
HERE: Final = "played-2"
THERE: Final = "played-3"
"""Nodes whose kubelets are played and report."""
LONG_S: Final = 240.0
"""Seconds since the pod got its node, so that its wait does not count as transient."""
ROOK: Final = f"rook-ceph.{DRIVER}"
"""A driver that is registered on the played nodes. Its attacher does not run."""


_NO_FINALIZERS: Final = {"metadata": {"finalizers": None}}


class Making:
    """Builder of one state and its names."""

    def __init__(self, lab: Lab, nodes: PlayedNodes, name: str, undo: ExitStack) -> None:
        self.lab = lab
        self.nodes = nodes
        self.name = name
        self.undo = undo
        self.api = lab.control_plane.api
        self.target = f"pvc/default/{name}"
        self.while_asked: Callable[[], AbstractContextManager[object]] = contextlib.nullcontext
        """Context that keeps the state during the query, if the state would not last that long."""
        self.afterwards: Callable[[], object] = lambda: None
        """The actions of the kubelets after the commands of the hint were run."""
        self.repair: Callable[[], object] | None = None
        """The action of a hint without a command; the rest of the recovery is automatic."""

    # Objects --------------------------------------------------------------------------------------

    def storage_class(self, provisioner: str, *, waits: bool = False) -> str:
        """Make the storage class of the state and return its name."""
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
        """Make a claim; its default class has the name of the state, so no driver serves it."""
        made = claim(f"{self.name}{suffix}", **{"storage_class": self.name, **fields})
        made["metadata"]["annotations"] = annotations or {}
        return self.create(made)

    def volume(self, suffix: str = "", **spec: Any) -> Json:
        """Make a static PV of the state's class; create its image unless the PV is in-tree."""
        name = f"{self.name}{suffix}"
        if not spec.get("rbd"):
            self.lab.ceph.create_image(f"{POOL}/{name}", size="8M")
        made = static_volume(name, pool=POOL, image=name)
        made["spec"] |= {"storageClassName": self.name, **spec}
        if "rbd" in spec:
            del made["spec"]["csi"]
        return self.create(made)

    def bound(self, *, mode: str = "ReadWriteOnce", **spec: Any) -> tuple[Json, Json]:
        """Make a PV and a claim that are bound to each other."""
        self.volume(accessModes=[mode], **spec)
        self.claim(access_mode=mode)
        self.wait("PersistentVolumeClaim", self.name, "Bound")
        return self.get("PersistentVolume", self.name), self.get("PersistentVolumeClaim", self.name)

    def pod(self, node: str = "", suffix: str = "", **spec: Any) -> Json:
        """Make a pod with the claim; no kubelet runs it and no scheduler binds it."""
        # The pod tolerates every taint, so that no controller evicts it.
        whatever = {"tolerations": [{"operator": "Exists"}], **spec}
        made = pod(f"{self.name}{suffix}", node=node, claims=[self.name], spec=whatever)
        if not node:
            del made["spec"]["nodeName"]
        return self.create(made)

    def deployment(self, node: str = "", **fields: Any) -> Json:
        """Make a Deployment whose pods have the claim; without a node, :meth:`place` binds them."""
        template = pod_spec(node=node, claims=[self.name])
        if not node:
            del template["nodeName"]
        made = deployment(self.name, template=template)
        made["spec"] |= fields
        return self.create(made)

    def statefulset(self, template: Json, *, templates: Sequence[Json] = ()) -> Json:
        """Make a StatefulSet of one replica; without claim templates its pod shares a claim."""
        labels = {"app": self.name}
        if not template.get("nodeName"):
            template.pop("nodeName", None)
        return self.create(
            {
                "apiVersion": "apps/v1",
                "kind": "StatefulSet",
                "metadata": {"name": self.name},
                "spec": {
                    "replicas": 1,
                    "serviceName": self.name,
                    "selector": {"matchLabels": labels},
                    "template": {"metadata": {"labels": labels}, "spec": template},
                    "volumeClaimTemplates": [
                        {"metadata": {"name": name["metadata"]["name"]}, "spec": name["spec"]}
                        for name in templates
                    ],
                },
            }
        )

    def create(self, made: Json) -> Json:
        """Create an object and remove it at the end."""
        meta = made["metadata"]
        path = collection(made["kind"], meta.get("namespace", "default"))
        self.undo.callback(self._remove, f"{path}/{meta['name']}")
        return self.api.create(path, made)

    def _remove(self, path: str) -> None:
        with contextlib.suppress(ApiError):
            self.api.delete(path, gracePeriodSeconds=0)
            self.api.patch(path, _NO_FINALIZERS)

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

    # Kubelet, attach/detach controller and scheduler ---------------------------------------------

    def pod_of_owner(self, node: str = "", *, but: str = "") -> str:
        """Wait for a pod of the state's workload that is on a node, or on none; return its name."""

        def name() -> str | None:
            return next(
                (
                    str(item["metadata"]["name"])
                    for item in self.api.items(collection("Pod"))
                    if item["metadata"].get("labels", {}).get("app") == self.name
                    and item["spec"].get("nodeName", "") == node
                    and item["metadata"]["name"] != but
                ),
                None,
            )

        return wait_until(name, timeout_s=120, what=f"a pod of {self.name} on {node or 'no node'}")

    def place(self, pod_name: str, node: str) -> None:
        """Bind a pod to a node, as the scheduler does."""
        body = {"metadata": {"name": pod_name}, "target": {"kind": "Node", "name": node}}
        self.api.create(f"{collection('Pod')}/{pod_name}/binding", body)

    def unschedulable(self, pod_name: str, why: str) -> None:
        """Set the condition that the scheduler sets if no node fits a pod."""
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": why,
        }
        path = f"{collection('Pod')}/{pod_name}/status"
        self.api.patch(path, {"status": {"conditions": [condition]}})

    def waits(self, pod_name: str, node: str) -> None:
        """Wait for a pod on a node; list its volume as in use, as kubelet does before attach."""
        wait_until(
            lambda: self.get("Pod", pod_name)["spec"].get("nodeName") == node,
            timeout_s=20,
            what=f"{pod_name} to be on {node}",
        )
        self.nodes.wants(node, self.unique_name())

    def unique_name(self) -> str:
        """Return the volume's name in a node's status."""
        source = self.get("PersistentVolume", self.name)["spec"]["csi"]
        return f"kubernetes.io/csi/{source['driver']}^{source['volumeHandle']}"

    def starts(self, pod_name: str, node: str) -> None:
        """Report a pod as running: the controller attaches its volume, map and mount are played."""
        self.waits(pod_name, node)
        self.attachment(node)
        self.nodes.watches(node, self.name)
        self.nodes.runs(pod_name)

    def running(self, node: str, suffix: str = "", **spec: Any) -> str:
        """Make a pod that runs; return its name."""
        name = str(self.pod(node, suffix, **spec)["metadata"]["name"])
        self.starts(name, node)
        return name

    def waiting(self, node: str = THERE, suffix: str = "-next", *, for_s: float = 0) -> str:
        """Make a pod whose kubelet waits for the volume; return its name.

        Args:
            node: where.
            suffix: of its name.
            for_s: seconds since it got its node, according to its status; only rbdagent reads it.
        """
        name = str(self.pod(node, suffix)["metadata"]["name"])
        self.waits(name, node)
        if for_s:
            self.nodes.has_had(name, for_s)
        return name

    def attachment(self, node: str) -> str:
        """Wait until the volume is attached to a node; return the VolumeAttachment's name."""

        def name() -> str | None:
            return next(
                (
                    str(attachment["metadata"]["name"])
                    for attachment in self.api.items(collection("VolumeAttachment"))
                    if attachment["spec"]["nodeName"] == node
                    and attachment["spec"]["source"].get("persistentVolumeName") == self.name
                    and attachment.get("status", {}).get("attached")
                ),
                None,
            )

        return wait_until(name, timeout_s=60, what=f"{self.name} to be attached to {node}")

    def is_taken_down(self, pod_name: str, node: str) -> None:
        """End a pod in the normal order: unmount the volume, then remove the pod object."""
        self.delete("Pod", pod_name)
        self.is_unmounted(node)
        self.force_delete(pod_name)

    def hands_over(self, old: str, new: str, node: str) -> None:
        """Wait until one pod is deleted, end it as its kubelet does, and start the next pod."""
        path = f"{collection('Pod')}/{old}"
        wait_until(
            lambda: "deletionTimestamp" in self.api.get(path)["metadata"],
            timeout_s=30,
            what=f"{path} to be deleted",
        )
        self.nodes.lets_go(self.get("Pod", old)["spec"]["nodeName"], self.unique_name())
        self.force_delete(old)
        self.attachment(node)
        self.nodes.runs(new)

    def wait_detaching(self, node: str) -> None:
        """Wait until the controller has requested the detach from a node."""
        path = f"{collection('VolumeAttachment')}/{self.attachment(node)}"
        wait_until(
            lambda: "deletionTimestamp" in self.api.get(path)["metadata"],
            timeout_s=30,
            what=f"{path} to be deleted",
        )

    def is_unmounted(self, node: str) -> None:
        """Report the volume as unmounted and unmapped, as kubelet does."""
        self.nodes.watches_no_more(node, self.name)
        self.nodes.lets_go(node, self.unique_name())

    def force_delete(self, pod_name: str) -> None:
        """Remove a pod object: kubelet does this last, and users do it earlier by force."""
        path = f"{collection('Pod')}/{pod_name}"
        self.api.delete(path, gracePeriodSeconds=0)
        wait_until(lambda: self.api.find(path) is None, timeout_s=20, what=f"{path} to be gone")

    def hold(self, node: str) -> None:
        """Set a foreign finalizer on the VolumeAttachment to a node."""
        finalizers = {"metadata": {"finalizers": ["example.org/hold"]}}
        name = self.attachment(node)
        self.patch("VolumeAttachment", name, finalizers)
        self.repair = lambda: self.patch("VolumeAttachment", name, _NO_FINALIZERS)

    def kubelet_says(self, pod_name: str, reason: str, message: str) -> None:
        """Create a warning event of a pod, as its kubelet does."""
        regarded = self.get("Pod", pod_name)
        now = stamp()
        events, name = "/api/v1/namespaces/default/events", f"{pod_name}.{reason.lower()}"
        event = {
            "metadata": {"name": name, "namespace": "default"},
            "involvedObject": {
                "kind": "Pod",
                "apiVersion": "v1",
                "namespace": "default",
                "name": pod_name,
                "uid": regarded["metadata"]["uid"],
            },
            "type": "Warning",
            "reason": reason,
            "message": message,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
            "source": {"component": "kubelet", "host": regarded["spec"]["nodeName"]},
        }
        self.undo.callback(self._remove, f"{events}/{name}")
        self.api.create(events, event)

    def of_volume(self) -> None:
        """Set the PV with the name of the state as the target."""
        self.target = f"pv/{self.name}"
