"""The objects of incidents: claims, pods, their deletion, and waits for their effects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.lab.errors import LabError
from tests.lab.parts import chosen_parts
from tests.lab.processes import wait_until

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tests.lab.api import Api, Json

DRIVER = "rbd.csi.ceph.com"
STORAGE = "/apis/storage.k8s.io/v1"
IMAGE = "docker.io/lab/box:1"

BACK_OFF_S: Final = 122.0
"""kubelet's longest pause before it retries a failed volume operation: 2m2s
(pkg/util/goroutinemap/exponentialbackoff, maxDurationBeforeRetry)."""

RETRIED_S: Final = BACK_OFF_S + 120.0
"""A timeout for one retry of kubelet: the pause, and the retry on an emulated processor."""

# PID 1 of a container gets no default action for TERM: without the trap a deletion takes the
# whole grace period.
_IDLE = ("/bin/sh", "-c", "trap 'exit 0' TERM; while :; do sleep 3600 & wait $!; done")
_WAITING_SINCE = 37
_COLLECTIONS = {
    "ConfigMap": "/api/v1/namespaces/{namespace}/configmaps",
    "DaemonSet": "/apis/apps/v1/namespaces/{namespace}/daemonsets",
    "Deployment": "/apis/apps/v1/namespaces/{namespace}/deployments",
    "Namespace": "/api/v1/namespaces",
    "PersistentVolume": "/api/v1/persistentvolumes",
    "PersistentVolumeClaim": "/api/v1/namespaces/{namespace}/persistentvolumeclaims",
    "Pod": "/api/v1/namespaces/{namespace}/pods",
    "RBDMapping": "/apis/rbdagent.dev/v1alpha1/rbdmappings",
    "RBDNode": "/apis/rbdagent.dev/v1alpha1/rbdnodes",
    "ResourceQuota": "/api/v1/namespaces/{namespace}/resourcequotas",
    "Secret": "/api/v1/namespaces/{namespace}/secrets",
    "ServiceAccount": "/api/v1/namespaces/{namespace}/serviceaccounts",
    "StatefulSet": "/apis/apps/v1/namespaces/{namespace}/statefulsets",
    "StorageClass": f"{STORAGE}/storageclasses",
    "CSIDriver": f"{STORAGE}/csidrivers",
    "VolumeAttachment": f"{STORAGE}/volumeattachments",
    "CSINode": f"{STORAGE}/csinodes",
    "Lease": "/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases",
    "Node": "/api/v1/nodes",
}


def multi_attach_words() -> str:
    """Return the first words of the controller's Multi-Attach event.

    Kubernetes 1.37 changed them (reconciler.go, reportMultiAttachError).
    """
    minor = int(chosen_parts().kubernetes.split(".")[1])
    return "Multi-Attach error" if minor < _WAITING_SINCE else "Waiting for detach"


def collection(kind: str, namespace: str = "default") -> str:
    """Return the API path of a collection."""
    return _COLLECTIONS[kind].format(namespace=namespace)


def claim(
    name: str,
    *,
    namespace: str = "default",
    storage_class: str = "rbd",
    access_mode: str = "ReadWriteOnce",
    volume_mode: str = "Filesystem",
    size: str = "64Mi",
    volume_name: str = "",
) -> Json:
    """Return a claim; with ``volume_name`` it asks for that persistent volume."""
    spec: Json = {
        "accessModes": [access_mode],
        "volumeMode": volume_mode,
        "storageClassName": storage_class,
        "resources": {"requests": {"storage": size}},
    }
    if volume_name:
        spec["volumeName"] = volume_name
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": namespace},
        "spec": spec,
    }


def pod(
    name: str,
    *,
    node: str,
    claims: Sequence[str],
    namespace: str = "default",
    block: bool = False,
    command: Sequence[str] = _IDLE,
    read_only: bool = False,
    spec: Mapping[str, object] | None = None,
) -> Json:
    """Return a pod bound to ``node`` with its claims at /data, /data2, ... (block: /dev/xvda, ...).

    The container sleeps; ``spec`` overrides the pod's spec.
    """
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": {"app": name}},
        "spec": {
            **pod_spec(node=node, claims=claims, block=block, command=command, read_only=read_only),
            **(spec or {}),
        },
    }


def pod_spec(
    *,
    node: str,
    claims: Sequence[str],
    block: bool = False,
    command: Sequence[str] = _IDLE,
    read_only: bool = False,
) -> Json:
    """Return a pod's spec, for pods and for the templates of their owners."""
    container: Json = {
        "name": "box",
        "image": IMAGE,
        "imagePullPolicy": "Never",
        "command": list(command),
    }
    volumes = []
    for index, name in enumerate(claims):
        volume = f"v{index}"
        source = {"claimName": name, "readOnly": read_only}
        volumes.append({"name": volume, "persistentVolumeClaim": source})
        if block:
            device = {"name": volume, "devicePath": f"/dev/xvd{chr(ord('a') + index)}"}
            container.setdefault("volumeDevices", []).append(device)
        else:
            mount = {"name": volume, "mountPath": f"/data{index + 1 if index else ''}"}
            container.setdefault("volumeMounts", []).append(mount)
    return {
        "nodeName": node,
        "hostNetwork": True,  # a separate address would cost start time, and no test uses it
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 5,
        "containers": [container],
        "volumes": volumes,
    }


def deployment(
    name: str, *, template: Mapping[str, object], max_surge: int = 1, namespace: str = "default"
) -> Json:
    """Return a deployment of one replica; with ``max_surge`` 1 the new pod comes first."""
    labels = {"app": name}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": labels},
            "strategy": {
                "type": "RollingUpdate",
                "rollingUpdate": {"maxSurge": max_surge, "maxUnavailable": 0 if max_surge else 1},
            },
            "template": {"metadata": {"labels": labels}, "spec": template},
        },
    }


class Workloads:
    """Creates, awaits and deletes Kubernetes objects of the lab."""

    def __init__(self, api: Api) -> None:
        self.api = api

    def apply(self, *objects: Json) -> None:
        """Create objects, or merge them into those of the same name."""
        for item in objects:
            meta = item["metadata"]
            path = collection(item["kind"], meta.get("namespace", "default"))
            if self.api.find(f"{path}/{meta['name']}") is None:
                self.api.create(path, item)
            else:
                self.api.patch(f"{path}/{meta['name']}", item)

    def find(self, kind: str, name: str, namespace: str = "default") -> Json | None:
        """Return an object, or None when there is none of that name."""
        return self.api.find(f"{collection(kind, namespace)}/{name}")

    def wait_bound(self, name: str, *, namespace: str = "default", timeout_s: float = 60) -> str:
        """Wait until a claim is bound; return the name of its persistent volume."""

        def volume() -> str | None:
            found = self.find("PersistentVolumeClaim", name, namespace)
            if found is None or found["status"].get("phase") != "Bound":
                return None
            return str(found["spec"]["volumeName"])

        return wait_until(volume, timeout_s=timeout_s, what=f"claim {namespace}/{name} to be bound")

    def wait_running(
        self, name: str, *, namespace: str = "default", timeout_s: float = RETRIED_S
    ) -> Json:
        """Wait until a pod's containers run; a failure shows the pod's events."""

        def running() -> Json | None:
            found = self.find("Pod", name, namespace)
            return found if found and _containers_run(found) else None

        try:
            return wait_until(
                running, timeout_s=timeout_s, what=f"pod {namespace}/{name} to run", interval_s=0.3
            )
        except LabError as error:
            events = "\n".join(
                f"    {_event_line(event)}" for event in self.events(name, namespace)
            )
            raise LabError(f"{error}\n--- the pod's events:\n{events or '    (none)'}") from error

    def wait_rolled_out(self, name: str, *, namespace: str, timeout_s: float = 300) -> None:
        """Wait until every node runs a daemon set's newest pod, and it is ready."""

        def rolled_out() -> bool:
            self.bind_daemons(namespace)
            found = self.find("DaemonSet", name, namespace)
            if (
                found is None
                or found["status"].get("observedGeneration") != (found["metadata"]["generation"])
            ):
                return False
            wanted = found["status"]["desiredNumberScheduled"]
            ready = (
                found["status"].get(field, 0) for field in ("updatedNumberScheduled", "numberReady")
            )
            return wanted > 0 and all(count == wanted for count in ready)

        try:
            wait_until(
                rolled_out,
                timeout_s=timeout_s,
                what=f"daemon set {namespace}/{name} to be rolled out",
                interval_s=0.5,
            )
        except LabError as error:
            names = [
                item["metadata"]["name"] for item in self.api.items(collection("Pod", namespace))
            ]
            events = (
                _event_line(event)
                for object_name in names
                for event in self.events(object_name, namespace)
            )
            raise LabError("\n".join((str(error), "--- its pods' events:", *events))) from error

    def bind_daemons(self, namespace: str) -> int:
        """Bind each pod of a daemon set to the node for which it was created; return their number.

        The lab has no scheduler.
        """
        made = self.api.items(collection("Pod", namespace))
        for item in made:
            if not item["spec"].get("nodeName"):
                self._bind(item)
        return len(made)

    def _bind(self, made: Json) -> None:
        meta, (term,) = made["metadata"], _node_terms(made)
        (node,) = term["matchFields"][0]["values"]
        self.api.create(
            f"{collection('Pod', meta['namespace'])}/{meta['name']}/binding",
            {
                "apiVersion": "v1",
                "kind": "Binding",
                "metadata": {"name": meta["name"]},
                "target": {"apiVersion": "v1", "kind": "Node", "name": node},
            },
        )

    def wait_pod_of(self, owner: str, node: str) -> str:
        """Wait for a pod of a deployment on a node; return its name."""

        def name() -> str | None:
            for item in self.api.items("/api/v1/namespaces/default/pods"):
                meta = item["metadata"]
                if meta["name"].startswith(f"{owner}-") and item["spec"].get("nodeName") == node:
                    return str(meta["name"])
            return None

        return wait_until(name, timeout_s=60, what=f"a pod of {owner} on {node}")

    def wait_gone(
        self, kind: str, name: str, *, namespace: str = "default", timeout_s: float = RETRIED_S
    ) -> None:
        """Wait until the API has no object of that name any more."""
        wait_until(
            lambda: self.find(kind, name, namespace) is None,
            timeout_s=timeout_s,
            what=f"{kind} {namespace}/{name} to be gone",
        )

    def delete(
        self, kind: str, name: str, *, namespace: str = "default", wait: bool = True
    ) -> None:
        """Delete an object as kubectl does; by default wait until it is gone."""
        self.api.delete(f"{collection(kind, namespace)}/{name}", propagationPolicy="Background")
        if wait:
            self.wait_gone(kind, name, namespace=namespace)

    def force_delete(self, name: str, *, namespace: str = "default") -> None:
        """Delete a pod as ``kubectl delete --force --grace-period=0``, without kubelet."""
        self.api.delete(f"{collection('Pod', namespace)}/{name}", gracePeriodSeconds=0)

    def events(self, name: str, namespace: str = "default") -> list[Json]:
        """Return the events that regard the object of that name, oldest first."""
        selector = f"fieldSelector=involvedObject.name={name}"
        events = self.api.items(f"/api/v1/namespaces/{namespace}/events?{selector}")
        return sorted(events, key=_last_seen)

    def wait_multi_attach(self, pod: str) -> Json:
        """Wait until the controller refuses to attach a pod's volume, and return its event."""
        return self.wait_event(pod, reason="FailedAttachVolume", contains=multi_attach_words())

    def wait_event(
        self,
        name: str,
        *,
        reason: str,
        contains: str = "",
        namespace: str = "default",
        timeout_s: float = RETRIED_S,
    ) -> Json:
        """Wait for an event of the object of that name; return it."""

        def matching() -> Json | None:
            for event in self.events(name, namespace):
                if event["reason"] == reason and contains in event["message"]:
                    return event
            return None

        return wait_until(
            matching,
            timeout_s=timeout_s,
            what=f"an event {reason} on {namespace}/{name} with {contains!r}",
            interval_s=0.3,
        )

    def attachments(self, volume: str) -> list[Json]:
        """Return the VolumeAttachments of a persistent volume."""
        return [
            item
            for item in self.api.items(collection("VolumeAttachment"))
            if item["spec"]["source"].get("persistentVolumeName") == volume
        ]

    def wait_node_ready(self, name: str, *, ready: bool = True, timeout_s: float = 120) -> None:
        """Wait until the node exists and is (or, with ``ready`` False, is not) Ready."""

        def as_wanted() -> bool:
            node = self.api.find(f"/api/v1/nodes/{name}")
            conditions = node["status"].get("conditions", []) if node else []
            states = [item["status"] for item in conditions if item["type"] == "Ready"]
            return (states == ["True"]) is ready if states else False

        wait_until(
            as_wanted,
            timeout_s=timeout_s,
            what=f"node {name} to be {'Ready' if ready else 'not Ready'}",
            interval_s=0.5,
        )


def _containers_run(found: Json) -> bool:
    statuses = found["status"].get("containerStatuses", [])
    return bool(statuses) and all("running" in status["state"] for status in statuses)


def _node_terms(made: Json) -> list[Json]:
    affinity = made["spec"]["affinity"]["nodeAffinity"]
    found: list[Json] = affinity["requiredDuringSchedulingIgnoredDuringExecution"][
        "nodeSelectorTerms"
    ]
    return found


def _last_seen(event: Json) -> str:
    return str(event.get("lastTimestamp") or event.get("eventTime") or "")


def _event_line(event: Json) -> str:
    return f"{event['type']} {event['reason']}: {event['message']}"
