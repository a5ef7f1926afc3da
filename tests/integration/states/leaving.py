"""States of pods and nodes that do not release a volume."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.integration.states.making import HERE, LONG_S, THERE
from tests.lab.workloads import pod_spec

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.integration.states.making import Making

_AT_ONCE: Final = [
    {
        "key": f"node.kubernetes.io/{condition}",
        "operator": "Exists",
        "effect": "NoExecute",
        "tolerationSeconds": 1,
    }
    for condition in ("unreachable", "not-ready")
]
_OUT_OF_SERVICE: Final = {
    "key": "node.kubernetes.io/out-of-service",
    "value": "nodeshutdown",
    "effect": "NoExecute",
}


def evicted_from_a_silent_node(making: Making) -> None:
    """A node stops reporting, its pod is evicted, and the Deployment's next pod is elsewhere."""
    node = making.nodes.add("played-cut")
    making.bound()
    template = pod_spec(node="", claims=[making.name]) | {"tolerations": _AT_ONCE}
    del template["nodeName"]
    making.deployment(template={"metadata": {"labels": {"app": making.name}}, "spec": template})
    old = making.pod_of_owner()
    making.place(old, node)
    making.starts(old, node)
    making.nodes.open(node)
    making.nodes.silence(node)
    new = making.pod_of_owner()
    making.place(new, THERE)
    making.waits(new, THERE)

    def back() -> None:
        making.nodes.speaks_again(node)
        making.hands_over(old, new, THERE)

    making.repair = back


def runs_on_a_silent_node(making: Making) -> None:
    """A node stops reporting, and its pod is not evicted yet."""
    node = making.nodes.add("played-not-reporting")
    making.bound()
    making.running(node)
    making.nodes.silence(node)
    making.repair = lambda: making.nodes.speaks_again(node)


def pod_does_not_end(making: Making) -> None:
    """The pod was deleted, its grace period is over, and its process still runs."""
    making.bound()
    old = making.running(HERE, terminationGracePeriodSeconds=1)
    making.delete("Pod", old)
    new = making.waiting()
    making.repair = lambda: making.hands_over(old, new, THERE)


def pod_is_ending(making: Making) -> None:
    """The pod was deleted, and its grace period is not over."""
    making.bound()
    old = making.running(HERE, terminationGracePeriodSeconds=3600)
    making.delete("Pod", old)
    making.waiting()


def pod_held_by_a_finalizer(making: Making) -> None:
    """The pod has ended and its volume is free, but the StatefulSet waits for the object to go."""
    making.bound()
    making.statefulset(pod_spec(node=HERE, claims=[making.name]))
    old = making.pod_of_owner(HERE)
    making.starts(old, HERE)
    finalizers = ["example.org/backup"]
    making.patch("Pod", old, {"metadata": {"finalizers": finalizers}})
    making.delete("Pod", old)
    making.nodes.ended(old)
    making.is_unmounted(HERE)


def unmount_fails(making: Making) -> None:
    """No pod is left on the node, kubelet still lists the volume, the next pod waits elsewhere."""
    making.bound()
    making.force_delete(making.running(HERE))
    making.waiting(for_s=LONG_S)

    def ends() -> None:
        making.nodes.lets_go(HERE, making.unique_name())
        making.attachment(THERE)

    making.repair = ends


def unmount_fails_before_the_pod_is_gone(making: Making) -> None:
    """The containers have ended, but the pod object stays because kubelet cannot unmount."""
    making.bound()
    old = making.running(HERE, terminationGracePeriodSeconds=1)
    making.delete("Pod", old)
    making.nodes.ended(old)


def out_of_service_and_alive(making: Making) -> None:
    """The taint is on a node that is Ready and runs a pod with the volume."""
    node = making.nodes.add("played-tainted")
    making.bound()
    making.running(node)
    making.patch("Node", node, {"spec": {"taints": [_OUT_OF_SERVICE]}})


STATES: Final[tuple[Callable[[Making], None], ...]] = (
    runs_on_a_silent_node,
    pod_is_ending,
    out_of_service_and_alive,
    unmount_fails,
    pod_held_by_a_finalizer,
    pod_does_not_end,
    unmount_fails_before_the_pod_is_gone,
    evicted_from_a_silent_node,
)
