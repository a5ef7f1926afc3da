"""RBD2xx: the node that looked, its kubelet and its CSI driver."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rbdagent.commands import command
from rbdagent.correlate.identity import (
    identity_of_mapping,
    mappings_of,
    same_image,
    volumes_of,
)
from rbdagent.diagnose.case import (
    Case,
    finding,
    pods_on,
    subject_of,
    then_starts,
    waiting_elsewhere,
)
from rbdagent.diagnose.evidence import evidence_of, pod_names, said_of_process
from rbdagent.diagnose.waiting import word_with
from rbdagent.model import (
    Command,
    CsiSource,
    Finding,
    JudgedHolder,
    KubeEvent,
    KubeletView,
    Mapping,
    NotObserved,
    Pod,
    PodVolumeDirectory,
    Severity,
    Snapshot,
    TargetKind,
    Verdict,
    observed_of,
)
from rbdagent.parse.krbd import KEEP_ALIVE

if TYPE_CHECKING:
    from collections.abc import Iterator

_HANGS: Final = ("an operation with the given Volume ID", "code = DeadlineExceeded")
"""The first call has not come back within 2m; the driver lets no other in meanwhile."""


_CSI_VOLUMES: Final = "kubernetes.io~csi"


def driver_down(case: Case) -> Iterator[Finding]:
    """RBD201: everything waits for the node plugin."""
    for each in case.judged:
        holder = each.holder
        if holder.driver_registered is not False or holder.passing or holder.node is None:
            continue
        hanging = _hanging_pods(each)
        stuck = f" {pod_names(hanging)} cannot end until then." if hanging else ""
        yield finding(
            "RBD201",
            f"node {holder.node}",
            f"The CSI driver does not answer on {holder.node}, so nothing can be unmounted there. "
            f"Bring its node plugin back; the rest follows by itself.{stuck}"
            f"{then_starts(case, holder.node)}",
            evidence=each.because,
            commands=(pods_on(holder.node),),
            severity=None if _blocks(each, case) else Severity.WARNING,
        )


def _hanging_pods(judged: JudgedHolder) -> tuple[Pod, ...]:
    """Return the pods that cannot end until their volume is unmounted."""
    found = evidence_of(judged.holder)
    return (*found.ending, *(pod for pod in found.running if pod.deleting_since))


def _blocks(judged: JudgedHolder, case: Case) -> bool:
    """Return whether a pod waits for what kubelet and its CSI driver do not do to a holder now."""
    running = evidence_of(judged.holder).running
    living = any(pod.deleting_since is None for pod in running)
    awaited = bool(waiting_elsewhere(case, judged.holder.node)) and not living
    return bool(_hanging_pods(judged)) or awaited or judged.verdict is Verdict.STAGED


def kubelet_down(case: Case) -> Iterator[Finding]:
    """RBD202: a node without kubelet finishes nothing."""
    kubelet = _kubelet(case)
    local = [each for each in case.judged if each.holder.mapping is not None]
    if kubelet is None or not _is_down(kubelet) or not local:
        return
    if not any(each.holder.kubernetes_made for each in local):
        return
    is_used = all(each.verdict is Verdict.IN_USE and not _blocks(each, case) for each in local)
    yield _without_kubelet(kubelet, case.here, Severity.WARNING if is_used else None)


def _is_down(kubelet: KubeletView) -> bool:
    return kubelet.process is None and bool(kubelet.roots)


def _without_kubelet(kubelet: KubeletView, node: str, severity: Severity | None) -> Finding:
    return finding(
        "RBD202",
        f"node {node}",
        f"kubelet does not run on {node}: containers run on, and nothing is unmounted until it is "
        "back.",
        evidence=(f"no kubelet process; its directories are at {', '.join(kubelet.roots)}",),
        commands=(command("systemctl status kubelet", node=node),),
        severity=severity,
    )


def of_node(snapshot: Snapshot) -> Iterator[Finding]:
    """RBD201, RBD202: what is wrong with the node that looked, whichever volume is asked about.

    Volumes that are in use there go on: these do not wait for it.
    """
    node = snapshot.node
    if node is None or isinstance(node.kubelet, NotObserved) or not mappings_of(node):
        return
    if _is_down(node.kubelet):
        yield _without_kubelet(node.kubelet, node.node_name, Severity.WARNING)
    drivers = {
        volume.source.driver
        for volume in volumes_of(snapshot.kubernetes)
        if isinstance(volume.source, CsiSource)
    }
    for plugin in observed_of(node.kubelet.sockets):
        if plugin.listening is False and plugin.driver in drivers:
            yield finding(
                "RBD201",
                f"node {node.node_name}",
                f"The CSI driver {plugin.driver} does not answer on {node.node_name}, so nothing "
                "can be mounted or unmounted there. Bring its node plugin back.",
                evidence=(f"nothing listens on {plugin.path}",),
                commands=(pods_on(node.node_name),),
                severity=Severity.WARNING,
            )


def _kubelet(case: Case) -> KubeletView | None:
    node = case.snapshot.node
    return None if node is None or isinstance(node.kubelet, NotObserved) else node.kubelet


def hanging(case: Case) -> Iterator[Finding]:
    """RBD203: a step that does not end; Ceph is the first suspect, not the process."""
    event = _hanging_event(case)
    evidence = [] if event is None else [f"{event.kind} {event.subject}: {event.message}"]
    is_sure = event is not None
    for each in case.judged:
        found = evidence_of(each.holder)
        asleep = [
            f"{said_of_process(one.process)}"
            for one in (*found.bringing_up, *found.tearing_down)
            if one.process.state == "D"
        ]
        requests = _hanging_requests(each)
        evidence += asleep
        evidence += [f"hanging request of its client: {request}" for request in requests]
        is_sure |= bool(asleep) or (bool(requests) and each.verdict is not Verdict.IN_USE)
    if not evidence:
        return
    yield finding(
        "RBD203",
        case.volume,
        f"A step on {case.volume} hangs. Look at Ceph first: when it answers again, the step ends "
        "by itself. Do not kill the processes.",
        evidence=tuple(evidence),
        commands=(command("ceph health detail"),),
        severity=None if is_sure else Severity.WARNING,
    )


def _hanging_requests(judged: JudgedHolder) -> tuple[str, ...]:
    """Return the requests to Ceph that are not merely under way.

    osdc has no times: each write of a pod, of mkfs or of an unmount is in it until its OSD answers.
    The ping of the watch is one small operation each few seconds, so that one which waits beside
    them hints at an OSD that does not answer (recording 29-debugfs).
    """
    found = evidence_of(judged.holder)
    works = judged.verdict is Verdict.IN_USE or found.bringing_up or found.tearing_down
    pings = any(request.startswith(KEEP_ALIVE) for request in found.hung)
    return found.hung if pings or not works else ()


def _hanging_event(case: Case) -> KubeEvent | None:
    """Give the newest word of a pod that waits, if it is of a call that has not come back."""
    word = word_with(case, *_HANGS)
    if word is not None:
        return word.event
    if case.use.target.kind is not TargetKind.NONE:
        return None
    # Whoever looks at one node knows the events of pods on others, and not whether they wait.
    known = {(each.ref.namespace, each.ref.name) for each in case.use.pods}
    found = [
        each
        for each in case.use.events
        if (each.subject.namespace, each.subject.name) not in known
        and any(text in each.message for text in _HANGS)
    ]
    return found[-1] if found else None


def device_node_missing(case: Case) -> Iterator[Finding]:
    """RBD204: sysfs has it, /dev has not."""
    for each in case.judged:
        mapping = each.holder.mapping
        if mapping is None or mapping.node_present is not False:
            continue
        yield finding(
            "RBD204",
            subject_of(each.holder),
            f"{mapping.device} is mapped on {each.holder.node}, and its device node is missing "
            "from /dev.",
            evidence=(f"{mapping.number} has no node {mapping.device}",),
            commands=(_make_node(mapping, each.holder.node),),
        )


def _make_node(mapping: Mapping, node: str | None) -> Command:
    """Return the command for a device node: devtmpfs makes it once, udev never (NEWS of 176)."""
    number = (str(mapping.number.major), str(mapping.number.minor))
    return command("mknod -m 600", mapping.device, "b", *number, node=node)


def pod_directories_left(case: Case) -> Iterator[Finding]:
    """RBD205: litter, named so that nobody takes it for use."""
    for each in case.use.leftovers:
        yield finding(
            "RBD205",
            f"pod {each.pod_uid}",
            f"A directory of pod {each.pod_uid} is left on {case.here}; the API does not know "
            "that pod, and nothing is mounted there.",
            evidence=(_directory(each),),
            commands=(command("ls -la", _directory(each), node=case.here),),
        )


def _directory(left: PodVolumeDirectory) -> str:
    """Return the volume's directory: kubelet's rmdir takes an empty mount point below it."""
    is_mount_point = left.plugin == _CSI_VOLUMES and not left.block
    return left.path.removesuffix("/mount") if is_mount_point else left.path


def staged_without_volume_data(case: Case) -> Iterator[Finding]:
    """RBD206: kubelet's own note is gone."""
    for each in case.judged:
        staging = each.holder.staging
        if isinstance(staging, NotObserved) or each.holder.mapping is None:
            continue
        mounted = [one.path for one in evidence_of(each.holder).staging_mounts]
        for directory in staging:
            covers = any(path.startswith(directory.path) for path in mounted)
            if directory.volume_data is not None or directory.block or not covers:
                continue
            yield finding(
                "RBD206",
                subject_of(each.holder),
                f"{subject_of(each.holder)} is staged, and the vol_data.json beside it is gone: "
                "kubelet cannot unstage it.",
                evidence=(directory.path,),
            )


def same_name_elsewhere(case: Case) -> Iterator[Finding]:
    """RBD207: equal names, another cluster, namespace or image."""
    image = case.use.image
    if image is None or (image.fsid is None and image.image_id is None):
        return
    held = {each.holder.mapping for each in case.judged}
    for mapping in mappings_of(case.snapshot.node):
        other = identity_of_mapping(mapping)
        if other is None or other.spec.name != image.spec.name:
            continue
        if other.spec.pool != image.spec.pool or mapping in held or same_image(image, other):
            continue
        yield finding(
            "RBD207",
            f"{mapping.device} on {case.here}",
            f"{mapping.device} on {case.here} is another image of the same name: "
            f"{_difference(mapping, case)}. Go by the device, never by the name.",
            evidence=(
                f"{mapping.device}: {other.spec}, cluster {other.fsid}, id {other.image_id}",
            ),
        )


def _difference(mapping: Mapping, case: Case) -> str:
    image = case.use.image
    if image is not None and mapping.fsid != image.fsid and mapping.fsid and image.fsid:
        return f"it is in cluster {mapping.fsid}"
    spec = mapping.spec
    namespace = None if isinstance(spec, NotObserved) else spec.namespace
    if namespace is not None and image is not None and namespace != image.spec.namespace:
        return f"it is in RADOS namespace {namespace!r}"
    return f"its image id is {mapping.image_id}"
