"""States of pods that get no node: no scheduler runs, the tests write its condition."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.integration.states.making import HERE
from tests.lab.workloads import claim, pod_spec

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.integration.states.making import Making

_ZONE: Final = "topology.kubernetes.io/zone"


def pods_claim_missing(making: Making) -> None:
    """The pod names a claim that does not exist."""
    name = making.pod()["metadata"]["name"]
    making.unschedulable(
        name,
        f'0/3 nodes are available: persistentvolumeclaim "{making.name}" not found. preemption: '
        "0/3 nodes are available: 3 Preemption is not helpful for scheduling.",
    )
    making.target = f"pod/default/{name}"


def pods_claim_being_deleted(making: Making) -> None:
    """The claim was deleted while a pod ran, and another pod names it."""
    making.bound()
    making.running(HERE)
    making.delete("PersistentVolumeClaim", making.name)
    name = making.pod(suffix="-next")["metadata"]["name"]
    making.unschedulable(
        name,
        f'0/3 nodes are available: persistentvolumeclaim "{making.name}" is being deleted.',
    )
    making.target = f"pod/default/{name}"


def volume_tied_to_a_zone(making: Making) -> None:
    """No node has the labels that the PV requires."""
    wanted = {"key": _ZONE, "operator": "In", "values": ["west"]}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [wanted]}]}
    making.bound(nodeAffinity={"required": terms})
    name = making.pod()["metadata"]["name"]
    making.unschedulable(
        name, "0/3 nodes are available: 3 node(s) didn't match PersistentVolume's node affinity."
    )


def volume_limit_reached(making: Making) -> None:
    """The only node that may run the pod has as many volumes as the limit of its driver."""
    node = making.nodes.add("played-full", limit=1)
    making.bound()
    making.volume("-first")
    making.claim(suffix="-first", volume_name=f"{making.name}-first")
    making.wait("PersistentVolumeClaim", f"{making.name}-first", "Bound")
    spec = pod_spec(node=node, claims=[f"{making.name}-first"])
    first = making.pod(node, "-first", **spec)["metadata"]["name"]
    making.nodes.runs(first)
    name = making.pod()["metadata"]["name"]
    making.unschedulable(
        name,
        "0/3 nodes are available: 1 node(s) exceed max volume count, 2 node(s) didn't match Pod's "
        "node affinity/selector.",
    )


def no_room_for_the_pod(making: Making) -> None:
    """The claim of the pod is bound: the volume is not the cause."""
    making.bound()
    name = making.pod()["metadata"]["name"]
    making.unschedulable(name, "0/3 nodes are available: 3 Insufficient cpu.")


def ephemeral_claims_name_taken(making: Making) -> None:
    """A claim already has the name of the claim for a pod's ephemeral volume."""
    making.storage_class("kubernetes.io/no-provisioner")
    making.claim(suffix="-scratch")
    template = {
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": making.name,
            "resources": {"requests": {"storage": "8Mi"}},
        }
    }
    volume = {"name": "scratch", "ephemeral": {"volumeClaimTemplate": template}}
    spec = pod_spec(node="", claims=[])
    (container,) = spec["containers"]
    container["volumeMounts"] = [{"name": "scratch", "mountPath": "/scratch"}]
    name = making.pod(volumes=[volume], containers=[container])["metadata"]["name"]
    making.target = f"pod/default/{name}"


def claim_was_there_before_its_statefulset(making: Making) -> None:
    """A claim with the name of an ordinal exists, its class does not: the StatefulSet adopts it."""
    name = f"data-{making.name}-0"
    making.create(claim(name, storage_class=making.name))
    making.statefulset(pod_spec(node="", claims=[]), templates=[claim("data", storage_class="rbd")])
    pod_name = making.pod_of_owner()
    making.unschedulable(
        pod_name, "0/3 nodes are available: pod has unbound immediate PersistentVolumeClaims."
    )
    making.target = f"pod/default/{pod_name}"


STATES: Final[tuple[Callable[[Making], None], ...]] = (
    pods_claim_missing,
    pods_claim_being_deleted,
    volume_tied_to_a_zone,
    volume_limit_reached,
    no_room_for_the_pod,
    ephemeral_claims_name_taken,
    claim_was_there_before_its_statefulset,
)
