"""RBD113, RBD72x: pods and nodes that do not let go of a volume.

A pod's deletionTimestamp is the request and its grace period together. What the controllers count
as ended is IsPodTerminated (pkg/volume/util); the taint is obeyed on a Ready node as well
(attachdetach/reconciler), and by podgc on one that is not Ready alone. Read in Kubernetes 1.36.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rbdagent.commands import command, kubectl, line_of
from rbdagent.correlate.holders import (
    cluster_with,
    daemons_of,
    is_terminated,
    needs_volumes,
    same_ip,
)
from rbdagent.correlate.names import node_named
from rbdagent.diagnose.case import (
    Case,
    finding,
    identity_lines,
    look_again,
    look_there,
    pods_on,
    subject_of,
)
from rbdagent.diagnose.evidence import pod_names
from rbdagent.diagnose.target import fresh_word, is_listed
from rbdagent.diagnose.times import GRACE, LONG, MOVING, age, is_young, seconds, spoken
from rbdagent.diagnose.waiting import (
    has_waited,
    is_ending_in_time,
    knows_every_user,
    users_on,
    waiters,
)
from rbdagent.model import (
    ClusterView,
    Command,
    Finding,
    Heals,
    Holder,
    ImageSpec,
    Node,
    NotObserved,
    Pod,
    Severity,
    Verdict,
    observed_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

_TAINT: Final = "node.kubernetes.io/out-of-service"
_TOLD: Final = frozenset({Verdict.ORPHANED, Verdict.PINNED, Verdict.DEAD, Verdict.UNWATCHED})
"""What says by itself why a node does not let go."""
_CAUSES: Final = frozenset({"RBD109", "RBD201", "RBD202"})
"""The same, as another node's agent publishes it."""


def ending(case: Case) -> Iterator[Finding]:
    """RBD721 to RBD725: each pod with the volume that is being deleted, and what keeps it."""
    for pod in case.use.pods:
        if pod.deleting_since is None or pod.node_name is None:
            continue
        over = age(pod.deleting_since, case.snapshot.observed_at)
        if over is None:
            continue
        if is_ending_in_time(pod, case):
            yield _in_time(pod, case)
            continue
        node = node_named(pod.node_name, case.snapshot)
        if isinstance(node, NotObserved):
            continue
        if node is None or node.ready is not True:
            yield from _on_lost_node(pod, node, case)
        elif not is_terminated(pod):
            yield _does_not_end(pod, case)
        else:
            yield from _ended(pod, case)


def _late(pod: Pod, case: Case) -> str:
    return spoken(age(pod.deleting_since, case.snapshot.observed_at))


def _waits(case: Case, node: str | None) -> str:
    waiting = [each for each in waiters(case) if each.node_name != node]
    return f" Waiting for its volume: {pod_names(waiting)}." if waiting else ""


def _in_time(pod: Pod, case: Case) -> Finding:
    over = age(pod.deleting_since, case.snapshot.observed_at) or seconds(0)
    left = (MOVING - over).total_seconds()
    return finding(
        "RBD721",
        f"pod {pod.ref}",
        f"{pod.ref} on {pod.node_name} is ending: its time is not over yet."
        f"{_waits(case, pod.node_name)}",
        evidence=(f"its grace period ends at {pod.deleting_since}",),
        commands=(look_again(case),),
        heals=Heals(by="kubelet", within_s=left),
    )


def _does_not_end(pod: Pod, case: Case) -> Finding:
    running = ", ".join(each.name for each in pod.containers if each.state == "running")
    return finding(
        "RBD722",
        f"pod {pod.ref}",
        f"{pod.ref} on {pod.node_name} should have ended {_late(pod, case)} ago, and its container "
        f"{running} still runs: its process does not end.{_waits(case, pod.node_name)}",
        evidence=(
            f"its grace period ended at {pod.deleting_since}",
            f"node {pod.node_name} is Ready",
            *_sleeping(pod, case),
        ),
        commands=(command("ceph health detail"), look_there(case, str(pod.node_name))),
    )


def _sleeping(pod: Pod, case: Case) -> tuple[str, ...]:
    """Name the processes of the pod that cannot be killed, where this is its node."""
    node = case.snapshot.node
    if node is None or node.node_name != pod.node_name:
        return ()
    return tuple(
        f"process {each.pid} ({each.command}) is in uninterruptible sleep"
        for each in node.processes
        if each.pod_uid == pod.ref.uid and each.state == "D"
    )


def _ended(pod: Pod, case: Case) -> Iterator[Finding]:
    """RBD724; a finalizer (RBD654) holds the object alone, and kubelet unmounts all the same."""
    held = any(
        each.holder.mapping is not None or each.holder.watcher is not None
        for each in case.judged
        # What another pod there uses is that one's.
        if each.holder.node == pod.node_name
        and not each.holder.passing
        and each.verdict is not Verdict.IN_USE
    )
    if (held or not pod.finalizers) and not _is_told_of(str(pod.node_name), case):
        yield _not_unmounted(pod, case)


def _on_lost_node(pod: Pod, node: Node | None, case: Case) -> Iterator[Finding]:
    if node is None:
        # podgc deletes the pods of a Node that is gone by force, within 80 s.
        return
    silent = "is NotReady" if node.ready is False else "is silent"
    spec = case.use.image.spec if case.use.image is not None else None
    alive = [
        subject_of(each.holder)
        for each in case.judged
        if each.holder.node == node.name and each.holder.watcher and not each.holder.passing
    ]
    watch = (
        f" Its watch on the image is alive ({', '.join(alive)}): that machine runs and may write."
        if alive
        else ""
    )
    counted = (
        ""
        if is_terminated(pod)
        else " As long as its containers are said to run, the volume stays attached there, for "
        "ever."
    )
    taint = (
        f" {node.name} carries the out-of-service taint: the pod goes within 20 s."
        if node.out_of_service
        else ""
    )
    yield finding(
        "RBD725",
        f"pod {pod.ref}",
        f"{pod.ref} should have ended {_late(pod, case)} ago, and {node.name}, whose kubelet must "
        f"end it, {silent}.{counted}{watch}{taint}{_waits(case, node.name)}",
        evidence=(
            f"its grace period ended at {pod.deleting_since}",
            (
                f"node {node.name}: Ready is {_ready_word(node)} since "
                f"{node.ready_changed_at or 'an unknown time'}"
            ),
        ),
        remedy=safe_order(node.name, spec),
        commands=(
            kubectl("describe node", node.name),
            *_status(spec),
        ),
        heals=Heals(by="podgc", within_s=20) if node.out_of_service else None,
    )


def _status(image: ImageSpec | None) -> tuple[Command, ...]:
    return () if image is None or not image.pool else (command("rbd status", str(image)),)


def _ready_word(node: Node) -> str:
    return "False" if node.ready is False else "Unknown"


def safe_order(node: str, image: ImageSpec | None) -> str:
    """Give the only safe way to free a volume of a node that is down."""
    status = f" ({line_of(command('rbd status', str(image)))})" if image is not None else ""
    taint = line_of(kubectl("taint node", node, f"{_TAINT}=nodeshutdown:NoExecute"))
    back = line_of(kubectl("taint node", node, f"{_TAINT}-"))
    return (
        f"Bring {node} back if you can: its kubelet then finishes by itself. If not, in this "
        f"order. 1. Look whether its watch is alive{status}: while it is, that machine writes, and "
        f"nothing may be forced. 2. Power {node} off. 3. Only then: {taint} (its pods and "
        f"attachments go within 20 s). 4. After its return: {back}"
    )


def _is_told_of(node: str, case: Case) -> bool:
    """Tell whether another rule says why this node does not let go."""
    return any(
        judged.verdict in _TOLD
        or judged.holder.driver_registered is False
        or (judged.holder.mapping is not None and _is_kubelet_down(case))
        or _is_reported(judged.holder, case)
        for judged in case.judged
        if judged.holder.node == node and not judged.holder.passing
    )


def _is_kubelet_down(case: Case) -> bool:
    node = case.snapshot.node
    return (
        node is not None
        and not isinstance(node.kubelet, NotObserved)
        and node.kubelet.process is None
    )


def _is_reported(holder: Holder, case: Case) -> bool:
    """Return whether the agent there reports a lost pod, a dead CSI driver, or a dead kubelet."""
    published = fresh_word(holder, case.snapshot)
    return published is not None and not _CAUSES.isdisjoint(published.findings)


def _not_unmounted(pod: Pod, case: Case) -> Finding:
    return finding(
        "RBD724",
        f"pod {pod.ref}",
        f"The containers of {pod.ref} have ended, and {pod.node_name} has not let its volumes go "
        f"for {_late(pod, case)}: an unmount fails there, of this volume or of another of the "
        f"pod.{_waits(case, pod.node_name)}",
        evidence=(
            f"being deleted since {pod.deleting_since}",
            f"node {pod.node_name} is Ready",
            *_unknown_there(str(pod.node_name), case),
        ),
        commands=_look_on(str(pod.node_name), case),
    )


def _unknown_there(node: str, case: Case) -> tuple[str, ...]:
    """Return what RBD724 cannot know of another node, though its Node says Ready."""
    if node == case.here:
        return ()
    return (f"not observed from here: whether kubelet and the CSI driver work on {node} now",)


def _look_on(node: str, case: Case) -> tuple[Command, ...]:
    return (
        look_again(case) if node == case.here else look_there(case, node),
        pods_on(node),
    )


def unmount_fails(case: Case) -> Iterator[Finding]:
    """RBD724: no pod there any more, and kubelet still wants the volume: its unmount fails.

    While a pod merely waits on a node, kubelet lists the volume there too: it needs an attachment.
    """
    if not knows_every_user(case):
        return
    for each in observed_of(case.use.attachments):
        name = each.node_name
        if each.deleting_since or users_on(name, case) or _is_told_of(name, case):
            continue
        if name == case.here and case.those(Verdict.STAGED):
            continue
        if any(one.node_name == name and one.deleting_since for one in case.use.pods):
            continue
        if not is_listed(case.use, name, case.snapshot):
            continue
        waiting = [one for one in waiters(case) if one.node_name != name]
        long = any(has_waited(one, case.snapshot, LONG) for one in waiting)
        yield finding(
            "RBD724",
            f"node {name}",
            f"No pod on {name} uses {case.volume} any more, and kubelet there has not let it go: "
            "its unmount is under way, or fails. No event tells of it."
            f"{_waits(case, name)}",
            evidence=(
                f"{name} lists the volume in volumesInUse",
                f"VolumeAttachment {each.name}: {name}, not being deleted",
                *_unknown_there(name, case),
            ),
            commands=_look_on(name, case),
            severity=None if long else Severity.INFO,
        )


# --------------------------------------------------------------------------------------------------
# Nodes
# --------------------------------------------------------------------------------------------------


def out_of_service(case: Case) -> Iterator[Finding]:
    """RBD726: the taint says that the node is off, and it is Ready."""
    dirty = {each.holder.node for each in case.those(Verdict.RETURNED_DIRTY)}
    kube = case.snapshot.kubernetes
    tainted = [
        each
        for each in (() if kube is None else observed_of(kube.nodes))
        if each.out_of_service and each.ready is True and each.name not in dirty
    ]
    concerned = _nodes_of(case) if tainted else frozenset()
    for node in tainted:
        if node.name not in concerned:
            continue
        lately = is_young(node.ready_changed_at, case.snapshot.observed_at, GRACE)
        running = users_on(node.name, case)
        back = line_of(kubectl("taint node", node.name, f"{_TAINT}-"))
        yield finding(
            "RBD726",
            f"node {node.name}",
            f"{node.name} is Ready and carries the out-of-service taint: whatever volume a pod "
            "leaves there is detached without waiting for its unmount, and the next node gets it "
            "at once.",
            evidence=(
                f"node {node.name}: Ready since {node.ready_changed_at or 'an unknown time'}",
                *((f"{pod_names(running)} on it uses the volume",) if running else ()),
            ),
            remedy=f"If the machine was off since the taint was set, take it away: {back}. If "
            "not, stop the pods with volumes there and reboot it first.",
            commands=(kubectl("describe node", node.name),),
            severity=Severity.WARNING if lately and not running else None,
        )


def _nodes_of(case: Case) -> frozenset[str | None]:
    """Return the nodes that hold the volume, are attached to it, or have a pod that needs it."""
    names = {each.holder.node for each in case.judged if not each.holder.passing}
    names |= {each.node_name for each in observed_of(case.use.attachments)}
    return frozenset(names | {each.node_name for each in case.use.pods if needs_volumes(each)})


def node_down(case: Case) -> Iterator[Finding]:
    """RBD113: alive for Ceph, or gone for Ceph too."""
    for each in case.those(Verdict.NODE_DOWN):
        holder = each.holder
        node = str(holder.node)
        if holder.watcher is not None:
            message = (
                f"{node} is not Ready, and its watch on {case.volume} is alive: that machine runs "
                "and may write. Do not detach by force. Prove that it is off first."
            )
        else:
            message = (
                f"{node} is not Ready, and Ceph sees no watch of it on {case.volume}. Prove that "
                "the machine is off, then set the out-of-service taint."
            )
        there = holder.node_object
        tainted = isinstance(there, Node) and there.out_of_service
        if tainted and holder.watcher is not None:
            message += (
                " It carries the out-of-service taint already, so its volumes are detached all the "
                "same: stop the volume's pods on other nodes."
            )
        spec = case.use.image.spec if case.use.image is not None else None
        yield finding(
            "RBD113",
            f"node {node}",
            message,
            evidence=(*each.because, *identity_lines(case, holder), *_fencing(case, holder)),
            remedy=safe_order(node, spec) if isinstance(there, Node) else "",
            commands=(
                kubectl("describe node", node),
                *_status(spec),
            ),
        )


def _fencing(case: Case, holder: Holder) -> tuple[str, ...]:
    """Give the exact entry that would fence this client alone; a whole IP may be Ceph's own."""
    watcher = holder.watcher
    if watcher is None:
        return ()
    exact = f"{watcher.address.ip}:0/{watcher.address.nonce}"
    if ":" in watcher.address.ip:
        exact = f"[{watcher.address.ip}]:0/{watcher.address.nonce}"
    said = [f"should you fence it, fence this client alone: {exact}, never the whole address"]
    fsid = case.use.image.fsid if case.use.image is not None else None
    daemons = _daemons_at(watcher.address.ip, cluster_with(fsid, case.snapshot))
    if daemons:
        said.append(f"{watcher.address.ip} also hosts {', '.join(daemons)}: fencing it stops Ceph")
    return tuple(said)


def _daemons_at(ip: str, cluster: ClusterView | None) -> tuple[str, ...]:
    here = {
        f"{daemon.kind}.{daemon.name}"
        for daemon in daemons_of(cluster)
        if same_ip(daemon.address.ip, ip)
    }
    return tuple(sorted(here))
