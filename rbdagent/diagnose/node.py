"""RBD2xx: the node that looked, its kubelet and its CSI driver."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rbdagent.correlate.identity import identity_of_mapping, mappings_of, same_image
from rbdagent.diagnose.case import Case, finding, here, subject_of, then_starts, waiting_elsewhere
from rbdagent.diagnose.evidence import evidence_of, pod_names, said_of_process
from rbdagent.diagnose.waiting import word_with
from rbdagent.model import (
    Finding,
    KubeEvent,
    KubeletView,
    Mapping,
    NotObserved,
    Severity,
    TargetKind,
    Verdict,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

_HANGS: Final = ("an operation with the given Volume ID", "code = DeadlineExceeded")
"""The first call has not come back within 2m; the driver lets no other in meanwhile."""


def driver_down(case: Case) -> Iterator[Finding]:
    """RBD201: everything waits for the node plugin."""
    for each in case.judged:
        holder = each.holder
        if holder.driver_registered is not False or holder.passing or holder.node is None:
            continue
        found = evidence_of(holder)
        hanging = (*found.ending, *(pod for pod in found.running if pod.deleting_since))
        living = any(pod.deleting_since is None for pod in found.running)
        awaited = bool(waiting_elsewhere(case, holder.node)) and not living
        blocks = bool(hanging) or awaited or each.verdict is Verdict.STAGED
        stuck = f" {pod_names(hanging)} cannot end until then." if hanging else ""
        yield finding(
            "RBD201",
            f"node {holder.node}",
            f"The CSI driver does not answer on {holder.node}, so nothing can be unmounted there. "
            f"Bring its node plugin back; the rest follows by itself.{stuck}"
            f"{then_starts(case, holder.node)}",
            evidence=each.because,
            commands=(f"kubectl get pods -A -o wide --field-selector spec.nodeName={holder.node}",),
            severity=None if blocks else Severity.WARNING,
        )


def kubelet_down(case: Case) -> Iterator[Finding]:
    """RBD202: a node without kubelet finishes nothing."""
    kubelet = _kubelet(case)
    local = [each.holder for each in case.judged if each.holder.mapping is not None]
    if kubelet is None or kubelet.process is not None or not kubelet.roots or not local:
        return
    if not any(each.kubernetes_made for each in local):
        return
    yield finding(
        "RBD202",
        f"node {case.here}",
        f"kubelet does not run on {case.here}: containers run on, and nothing is unmounted until "
        "it is back.",
        evidence=(f"no kubelet process; its directories are at {', '.join(kubelet.roots)}",),
        commands=(here("systemctl status kubelet", local[0]),),
    )


def _kubelet(case: Case) -> KubeletView | None:
    node = case.snapshot.node
    return None if node is None or isinstance(node.kubelet, NotObserved) else node.kubelet


def hanging(case: Case) -> Iterator[Finding]:
    """RBD203: a step that does not end; Ceph is the first suspect, not the process."""
    event = _hanging_event(case)
    evidence = [] if event is None else [f"{event.kind} {event.subject}: {event.message}"]
    for each in case.judged:
        found = evidence_of(each.holder)
        evidence += [
            f"{said_of_process(one.process)}"
            for one in (*found.bringing_up, *found.tearing_down)
            if one.process.state == "D"
        ]
        evidence += [f"hanging request of its client: {one}" for one in found.hung]
    if not evidence:
        return
    yield finding(
        "RBD203",
        case.volume,
        f"A step on {case.volume} hangs. Look at Ceph first: when it answers again, the step ends "
        "by itself. Do not kill the processes.",
        evidence=tuple(evidence),
        commands=("ceph health detail",),
    )


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
            commands=(here("udevadm trigger --subsystem-match=block", each.holder),),
        )


def pod_directories_left(case: Case) -> Iterator[Finding]:
    """RBD205: litter, named so that nobody takes it for use."""
    for each in case.use.leftovers:
        yield finding(
            "RBD205",
            f"pod {each.pod_uid}",
            f"A directory of pod {each.pod_uid} is left on {case.here}; the API does not know "
            "that pod, and nothing is mounted there.",
            evidence=(each.path,),
            commands=(f"ls -la {each.path}  # on {case.here}",),
        )


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
