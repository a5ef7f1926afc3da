"""Nodes without machines: the objects and events of their kubelets, and their addresses.

The controllers act as for any node: attach, detach, evict. This module writes what a kubelet would
write (heartbeats, volumesInUse, a pod's status), and nothing is mounted.
"""

from __future__ import annotations

import contextlib
import time
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING, Final, Self

from tests.lab.clients import librbd_client
from tests.lab.errors import LabError
from tests.lab.lab import POOL
from tests.lab.workloads import DRIVER, collection

if TYPE_CHECKING:
    from collections.abc import Iterable
    from contextlib import ExitStack

    from tests.lab.api import Json
    from tests.lab.lab import Lab

_MANAGED: Final = "volumes.kubernetes.io/controller-managed-attach-detach"
_HEARTBEAT_S: Final = 10.0
"""The interval in which kubelet renews its Lease; a node is not ready after 40 s here."""
_LEASES: Final = collection("Lease", "kube-node-lease")
_ADDRESS: Final = "10.77.0.{}"
_FIRST: Final = 31


class PlayedNodes:
    """The nodes, and a thread that sends the heartbeats of the running ones.

    Args:
        lab: a lab that has no VM with these names.
        undo: ends what is started here.
    """

    def __init__(self, lab: Lab, undo: ExitStack) -> None:
        self._lab = lab
        self._undo = undo
        self._api = lab.control_plane.api
        self._addresses: dict[str, str] = {}
        self._alive: set[str] = set()
        self._watches: dict[str, list[str]] = {}
        self._stopped = Event()
        self._writing = Lock()
        self._heartbeats = Thread(target=self._send_heartbeats, name="heartbeats")

    def __enter__(self) -> Self:
        self._heartbeats.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._heartbeats.join()

    # Nodes ----------------------------------------------------------------------------------------

    def add(
        self,
        name: str,
        *,
        drivers: Iterable[str] = (DRIVER,),
        limit: int | None = None,
        managed: bool = True,
    ) -> str:
        """Create a Ready node with a running kubelet; return its name.

        Args:
            name: its name here and in the API.
            drivers: the CSI drivers that are registered there.
            limit: how many volumes of each it takes; None: any number.
            managed: the controller attaches its volumes, as kubelet asks for by default.
        """
        with self._writing:
            address = _ADDRESS.format(_FIRST + len(self._addresses))
            self._addresses[name] = address
        meta = {
            "name": name,
            "labels": {"kubernetes.io/hostname": name},
            "annotations": {_MANAGED: "true"} if managed else {},
        }
        status = {
            "addresses": [{"type": "InternalIP", "address": address}],
            "conditions": [_condition("Ready") | {"lastHeartbeatTime": stamp()}],
        }
        self._api.create(_LEASES, _lease(name))
        with self._writing:
            self._alive.add(name)
        self._api.create(collection("Node"), {"metadata": meta, "status": status})
        room = {} if limit is None else {"allocatable": {"count": limit}}
        spec = {"drivers": [{"name": driver, "nodeID": name, **room} for driver in drivers]}
        self._api.create(collection("CSINode"), {"metadata": {"name": name}, "spec": spec})
        return name

    def silence(self, name: str) -> None:
        """Stop the reports of a node's kubelet, as for a machine that is cut off."""
        with self._writing:
            self._alive.discard(name)

    def speaks_again(self, name: str) -> None:
        """Resume the reports of a node's kubelet."""
        with self._writing:
            self._alive.add(name)
        ready = _condition("Ready") | {"lastHeartbeatTime": stamp()}
        path = f"{collection('Node')}/{name}/status"
        self._api.patch(path, {"status": {"conditions": [ready]}})

    def remove(self, name: str) -> None:
        """Delete a Node object, as an administrator does who removes a machine."""
        self.silence(name)
        self._api.delete(f"{collection('Node')}/{name}")

    def _send_heartbeats(self) -> None:
        api = self._lab.control_plane.client("admin")
        while not self._stopped.wait(_HEARTBEAT_S):
            with self._writing:
                alive = tuple(self._alive)
            for name in alive:
                # A node that fails here is tried again with the next heartbeat.
                with contextlib.suppress(LabError):
                    api.patch(f"{_LEASES}/{name}", {"spec": {"renewTime": _now()}})
        api.close()

    # kubelet --------------------------------------------------------------------------------------

    def wants(self, node: str, volume: str) -> None:
        """Add a volume to kubelet's list of volumes in use: kubelet does so before the attach."""
        with self._writing:
            self._list(node, sorted({*self._in_use(node), volume}))

    def lets_go(self, node: str, volume: str) -> None:
        """Report that kubelet has unmounted a volume."""
        with self._writing:
            kept = [other for other in self._in_use(node) if other != volume]
            self._list(node, kept)

    def _in_use(self, node: str) -> list[str]:
        found = self._api.get(f"{collection('Node')}/{node}")
        return found["status"].get("volumesInUse") or []

    def _list(self, node: str, volumes: list[str]) -> None:
        self._api.patch(
            f"{collection('Node')}/{node}/status", {"status": {"volumesInUse": volumes}}
        )

    def runs(self, pod: str) -> None:
        """Report that the containers of a pod run."""
        self._containers(pod, "Running", {"running": {"startedAt": stamp()}}, ready=True)

    def crashes(self, pod: str) -> None:
        """Report that the containers of a pod restart repeatedly without success."""
        state = {"waiting": {"reason": "CrashLoopBackOff"}}
        self._containers(pod, "Running", state, ready=False)

    def ended(self, pod: str) -> None:
        """Report that the containers of a pod have ended, once it was deleted."""
        state = {"terminated": {"exitCode": 0, "finishedAt": stamp()}}
        self._containers(pod, "Succeeded", state, ready=False)

    def has_had(self, pod: str, for_s: float) -> None:
        """Set the time since when a pod has its node."""
        condition = _condition("PodScheduled") | {"lastTransitionTime": stamp(for_s)}
        path = f"{collection('Pod')}/{pod}/status"
        self._api.patch(path, {"status": {"conditions": [condition]}})

    def _containers(self, pod: str, phase: str, state: Json, *, ready: bool) -> None:
        path = f"{collection('Pod')}/{pod}"
        spec = self._api.get(path)["spec"]
        containers = [
            {
                "name": container["name"],
                "image": container["image"],
                "imageID": "",
                "ready": ready,
                "restartCount": 0,
                "state": state,
            }
            for container in spec["containers"]
        ]
        kinds = ("PodScheduled", "Initialized", "ContainersReady", "Ready")
        conditions = [_condition(kind, good=ready or kind in kinds[:2]) for kind in kinds]
        status = {"phase": phase, "conditions": conditions, "containerStatuses": containers}
        self._api.patch(f"{path}/status", {"status": status})

    # Ceph -----------------------------------------------------------------------------------------

    def watches(self, node: str, image: str) -> None:
        """Request a watch of an image by a client at a node's address, from :meth:`open_all` on."""
        self._watches.setdefault(node, []).append(f"{POOL}/{image}")

    def watches_no_more(self, node: str, image: str) -> None:
        """Release an image before that."""
        self._watches.get(node, []).remove(f"{POOL}/{image}")

    def open_all(self) -> None:
        """Start the requested clients: one per node, as a kernel has one."""
        for node in tuple(self._watches):
            self.open(node)

    def open(self, node: str) -> None:
        """Start a node's client, unless it runs; the images to watch must be requested before."""
        images = self._watches.pop(node)
        if images:
            machine = self._lab.network.add_machine(self._addresses[node])
            client = librbd_client(self._lab, images[0], node, *images[1:], netns=machine)
            self._undo.enter_context(client)


def _lease(name: str) -> Json:
    spec = {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": _now()}
    return {"metadata": {"name": name}, "spec": spec}


def _condition(kind: str, *, good: bool = True) -> Json:
    state = "True" if good else "False"
    return {"type": kind, "status": state, "lastTransitionTime": stamp()}


def stamp(ago_s: float = 0) -> str:
    """Return the time so long ago, as the API writes it."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - ago_s))


def _now() -> str:
    return stamp().replace("Z", ".000000Z")
