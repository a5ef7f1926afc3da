"""How a state of a volume is made: by what a user would type, in names of its own.

Claims, PVs and classes of one state never fit another's.
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
"""Nodes whose kubelets are played, and live."""
LONG_S: Final = 240.0
"""For so long a pod has its node where its wait is to be no passing matter."""
ROOK: Final = f"rook-ceph.{DRIVER}"
"""A driver that is registered on them, and whose attacher does not run."""


_NO_FINALIZERS: Final = {"metadata": {"finalizers": None}}


class Making:
    """What makes one state, with its names."""

    def __init__(self, lab: Lab, nodes: PlayedNodes, name: str, undo: ExitStack) -> None:
        self.lab = lab
        self.nodes = nodes
        self.name = name
        self.undo = undo
        self.api = lab.control_plane.api
        self.target = f"pvc/default/{name}"
        self.while_asked: Callable[[], AbstractContextManager[object]] = contextlib.nullcontext
        """What must last while it is asked about, where the state would not."""
        self.afterwards: Callable[[], object] = lambda: None
        """What kubelets do once the cure was typed."""
        self.repair: Callable[[], object] | None = None
        """What the remedy asks for where it tells no command: then the rest goes by itself."""

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

    def bound(self, *, mode: str = "ReadWriteOnce", **spec: Any) -> tuple[Json, Json]:
        """Make a PV and a claim that are bound to each other."""
        self.volume(accessModes=[mode], **spec)
        self.claim(access_mode=mode)
        self.wait("PersistentVolumeClaim", self.name, "Bound")
        return self.get("PersistentVolume", self.name), self.get("PersistentVolumeClaim", self.name)

    def pod(self, node: str = "", suffix: str = "", **spec: Any) -> Json:
        """Make a pod with the claim; nobody runs it, and nobody schedules it."""
        # Whatever becomes of its node: nobody evicts it.
        whatever = {"tolerations": [{"operator": "Exists"}], **spec}
        made = pod(f"{self.name}{suffix}", node=node, claims=[self.name], spec=whatever)
        if not node:
            del made["spec"]["nodeName"]
        return self.create(made)

    def deployment(self, node: str = "", **fields: Any) -> Json:
        """Make a Deployment whose pods have the claim; without a node, for :meth:`place`."""
        template = pod_spec(node=node, claims=[self.name])
        if not node:
            del template["nodeName"]
        made = deployment(self.name, template=template)
        made["spec"] |= fields
        return self.create(made)

    def statefulset(self, template: Json, *, templates: Sequence[Json] = ()) -> Json:
        """Make a StatefulSet of one replica; without templates of claims it shares one."""
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
                        {"metadata": {"name": each["metadata"]["name"]}, "spec": each["spec"]}
                        for each in templates
                    ],
                },
            }
        )

    def create(self, made: Json) -> Json:
        """Create an object, and remove it in the end."""
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

    # Who runs, attaches and schedules ------------------------------------------------------------

    def pod_of_owner(self, node: str = "", *, but: str = "") -> str:
        """Wait for a pod of the state's workload that is on a node, or on none; give its name."""

        def name() -> str | None:
            return next(
                (
                    str(each["metadata"]["name"])
                    for each in self.api.items(collection("Pod"))
                    if each["metadata"].get("labels", {}).get("app") == self.name
                    and each["spec"].get("nodeName", "") == node
                    and each["metadata"]["name"] != but
                ),
                None,
            )

        return wait_until(name, timeout_s=120, what=f"a pod of {self.name} on {node or 'no node'}")

    def place(self, pod_name: str, node: str) -> None:
        """Say what the scheduler says of a pod that gets a node."""
        body = {"metadata": {"name": pod_name}, "target": {"kind": "Node", "name": node}}
        self.api.create(f"{collection('Pod')}/{pod_name}/binding", body)

    def unschedulable(self, pod_name: str, why: str) -> None:
        """Say what the scheduler says of a pod that gets none."""
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": why,
        }
        path = f"{collection('Pod')}/{pod_name}/status"
        self.api.patch(path, {"status": {"conditions": [condition]}})

    def waits(self, pod_name: str, node: str) -> None:
        """Have kubelet take up a pod: it wants the volume before anything is attached."""
        wait_until(
            lambda: self.get("Pod", pod_name)["spec"].get("nodeName") == node,
            timeout_s=20,
            what=f"{pod_name} to be on {node}",
        )
        self.nodes.wants(node, self.unique_name())

    def unique_name(self) -> str:
        """Give the volume's name in a node's status."""
        source = self.get("PersistentVolume", self.name)["spec"]["csi"]
        return f"kubernetes.io/csi/{source['driver']}^{source['volumeHandle']}"

    def starts(self, pod_name: str, node: str) -> None:
        """Have a pod run: attached by the controller, mapped and mounted by nobody but its word."""
        self.waits(pod_name, node)
        self.attachment(node)
        self.nodes.watches(node, self.name)
        self.nodes.runs(pod_name)

    def running(self, node: str, suffix: str = "", **spec: Any) -> str:
        """Make a pod that runs; give its name."""
        name = str(self.pod(node, suffix, **spec)["metadata"]["name"])
        self.starts(name, node)
        return name

    def waiting(self, node: str = THERE, suffix: str = "-next", *, for_s: float = 0) -> str:
        """Make a pod whose kubelet waits for the volume; give its name.

        Args:
            node: where.
            suffix: of its name.
            for_s: since when it has its node, by its status: nobody but rbdagent asks for that.
        """
        name = str(self.pod(node, suffix)["metadata"]["name"])
        self.waits(name, node)
        if for_s:
            self.nodes.has_had(name, for_s)
        return name

    def attachment(self, node: str) -> str:
        """Wait until the volume is attached to a node; give the VolumeAttachment's name."""

        def name() -> str | None:
            return next(
                (
                    str(each["metadata"]["name"])
                    for each in self.api.items(collection("VolumeAttachment"))
                    if each["spec"]["nodeName"] == node
                    and each["spec"]["source"].get("persistentVolumeName") == self.name
                    and each.get("status", {}).get("attached")
                ),
                None,
            )

        return wait_until(name, timeout_s=60, what=f"{self.name} to be attached to {node}")

    def is_taken_down(self, pod_name: str, node: str) -> None:
        """Have a pod end as it should: unmounted first, its object gone last."""
        self.delete("Pod", pod_name)
        self.is_unmounted(node)
        self.force_delete(pod_name)

    def hands_over(self, old: str, new: str, node: str) -> None:
        """Have kubelets end one pod, as soon as it is told to, and start the next on a node."""
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
        """Wait until the controller has asked for the detach from a node."""
        path = f"{collection('VolumeAttachment')}/{self.attachment(node)}"
        wait_until(
            lambda: "deletionTimestamp" in self.api.get(path)["metadata"],
            timeout_s=30,
            what=f"{path} to be deleted",
        )

    def is_unmounted(self, node: str) -> None:
        """Have kubelet unmount and unmap the volume."""
        self.nodes.watches_no_more(node, self.name)
        self.nodes.lets_go(node, self.unique_name())

    def force_delete(self, pod_name: str) -> None:
        """Take a pod's object away: kubelet does it in the end, and impatient people before."""
        path = f"{collection('Pod')}/{pod_name}"
        self.api.delete(path, gracePeriodSeconds=0)
        wait_until(lambda: self.api.find(path) is None, timeout_s=20, what=f"{path} to be gone")

    def hold(self, node: str) -> None:
        """Have somebody's finalizer on the VolumeAttachment to a node."""
        finalizers = {"metadata": {"finalizers": ["example.org/hold"]}}
        name = self.attachment(node)
        self.patch("VolumeAttachment", name, finalizers)
        self.repair = lambda: self.patch("VolumeAttachment", name, _NO_FINALIZERS)

    def kubelet_says(self, pod_name: str, reason: str, message: str) -> None:
        """Say an event of a pod, as its kubelet does."""
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
        """Have the PV of the state's name be what is asked about."""
        self.target = f"pv/{self.name}"
