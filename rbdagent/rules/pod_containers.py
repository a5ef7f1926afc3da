"""RBD727: a container that does not run although the volumes of its pod are mounted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rbdagent.codes import Code
from rbdagent.commands import kubectl
from rbdagent.correlate.holders import is_finished, past_mount
from rbdagent.model import (
    LifecycleStep,
    Recovery,
    Severity,
    Subject,
    Verb,
    stated,
)
from rbdagent.parse.foreign import foreign, foreign_name
from rbdagent.rules.context import Rule, finding
from rbdagent.rules.entry import Entry

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rbdagent.model import Command, ContainerState, Finding, Pod
    from rbdagent.rules.context import RuleContext

_ENDS: Final = "CrashLoopBackOff"

ENTRIES: Final = (
    # kubelet's SyncPod waits for all volumes (WaitForAttachAndMount) before it pulls an image or
    # creates a container (pkg/kubelet/kubelet.go@v1.36.3). It tries again after five minutes at
    # most (MaxContainerBackOff).
    Entry(
        Code.CONTAINER_DOES_NOT_RUN,
        Severity.INFO,
        "The volume is mounted for a pod, and a container of the pod does not run.",
        remedy=(
            (
                "Read the container's own log or message. `Permission denied` below the mount "
                "path: set `fsGroup` in the pod's securityContext. `No space left on device`: the "
                "file system is full: enlarge the claim. `Read-only file system` or `Input/output "
                "error`: run `"
            ),
            Verb("diagnose"),
            "` on that node, because the kernel may have stopped the file system.",
        ),
        recovery=Recovery(actor="kubelet", within_s=300, note="it tries again"),
        step=LifecycleStep.USE,
    ),
)


def container_does_not_run(context: RuleContext) -> Iterator[Finding]:
    """Yield RBD727 for the first such container of each pod."""
    for pod in context.volume.pods:
        failed = [container for container in pod.containers if past_mount(container)]
        if not failed or is_finished(pod) or pod.deleting_since:
            continue
        container, *_ = failed
        name = stated(
            "Container {container} of {pod}", container=foreign_name(container.name), pod=pod.ref
        )
        where = stated("its volume is mounted on {node}", node=pod.node_name)
        what = (
            stated("{} ends again and again, and {}: its log has the reason.", name, where)
            if container.reason == _ENDS
            else stated(
                "{} does not run, and {}: {reason}.",
                name,
                where,
                reason=foreign_name(container.reason),
            )
        )
        yield finding(
            Code.CONTAINER_DOES_NOT_RUN,
            Subject.of_pod(pod.ref),
            what,
            evidence=(_state(container),),
            commands=(_shows(container, pod),),
        )


def _state(container: ContainerState) -> str:
    message = f": {foreign(container.message)}" if container.message else ""
    return f"its state: {container.state}, {foreign_name(container.reason)}{message}"


def _shows(container: ContainerState, pod: Pod) -> Command:
    if container.reason == _ENDS:
        return kubectl(
            "logs --previous --tail=20",
            pod.ref.name,
            namespace=pod.ref.namespace,
            options=(f"--container={container.name}",),
        )
    return kubectl("describe pod", pod.ref.name, namespace=pod.ref.namespace)


RULES: Final = (Rule(655, container_does_not_run),)
