"""RBD1xx: rules on the holders of a volume and their verdicts."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final, NamedTuple

from rbdagent.commands import command, kubectl, over_ssh
from rbdagent.correlate.holders import (
    cluster_with,
    have_containers_ended,
    is_ceph_daemon,
    overlay_node_at,
    runs,
)
from rbdagent.model import (
    Command,
    Finding,
    Holder,
    HolderKind,
    HolderVerdict,
    ImagePresence,
    LifecycleStep,
    NotObserved,
    Pod,
    PublishedFinding,
    Recovery,
    Severity,
    Verb,
    Verdict,
    VolumeAttachment,
    observed_of,
)
from rbdagent.parse.faults import rank_of
from rbdagent.parse.foreign import foreign, foreign_name
from rbdagent.parse.kubelet import pod_uid_of_path
from rbdagent.parse.recognised import Rank
from rbdagent.rules.context import (
    RuleContext,
    at_least,
    check_here,
    finding,
    identity_lines,
    placed_pod,
    query_again,
    query_on_node,
    reported_finding,
    subject_of,
    then_starts,
    unknown_finding,
)
from rbdagent.rules.dead_mapping import pods_of_dead_nbd
from rbdagent.rules.entry import Entry
from rbdagent.rules.facts import ownership_begun
from rbdagent.rules.foreign_clusters import external_holders
from rbdagent.rules.image_renamed import renamed
from rbdagent.rules.node import hanging
from rbdagent.rules.pod_events import (
    decisive_pod_events,
    has_any_waited,
    has_waited,
    is_about_hanging_call,
    knows_every_user,
    waiters,
)
from rbdagent.rules.termination import fencing
from rbdagent.rules.unused_mapping import once_released, recovery_of_orphan
from rbdagent.verdicts.ceph_daemons import not_excluded, supposed
from rbdagent.verdicts.coverage import missing_of_nodes
from rbdagent.verdicts.evidence import evidence_of, pod_names
from rbdagent.verdicts.timing import MOVING, RETRY_S, age, age_text
from rbdagent.verdicts.volume_traces import left_here, listed_here
from rbdagent.verdicts.volume_verdict import (
    NOT_BACKED,
    PODS_ELSEWHERE,
    attached_on_paper,
    is_left_behind,
    maps_by_nbd,
    may_be_shared,
    missing_sources,
    sharing,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

ENTRIES: Final = (
    Entry(
        "RBD100",
        "InUse",
        Severity.INFO,
        "A pod uses the volume, and the volume is mapped on the pod's node as expected.",
        cause="A pod runs with the volume.",
        evidence="The pod in the API, the container's own mount, or an open device. If the API was "
        "not observed, a container that has the device mounted or open counts as its user.",
        risk="None. Unmapping the volume would break the pod.",
        remedy="Nothing to do. To move the volume, delete or scale down the pod that uses it.",
        recovery=None,
    ),
    Entry(
        "RBD114",
        "VolumeShared",
        Severity.INFO,
        "Several nodes hold the volume, and its access mode allows that.",
        cause="ReadOnlyMany, ReadWriteMany on a raw block device, or a live migration.",
        evidence="Access modes and volume mode of the PV.",
        risk="None.",
        remedy="Nothing to do.",
        recovery=None,
    ),
    Entry(
        "RBD115",
        "ForeignHolder",
        Severity.WARNING,
        "A client that is not a mapping of a Kubernetes node holds the image.",
        cause="qemu or another librbd program, an `rbd` shell, a mapping made by hand, another "
        "cluster that uses the same pool.",
        evidence="The client's address and id match no mapping of this node and no node; or "
        "nothing shows that Kubernetes created the mapping.",
        risk="ceph-csi refuses to stage the volume while this client watches the image.",
        remedy="Find the owner of the client by its address. rbdagent never acts on this client.",
        recovery=Recovery(
            actor="kubelet", condition="that client has released the image", within_s=RETRY_S
        ),
        step=LifecycleStep.STAGE,
    ),
    Entry(
        "RBD116",
        "CephDaemonWatches",
        Severity.INFO,
        "A Ceph daemon watches the image as part of its work.",
        cause="mgr tasks (flatten, trash, snapshots) or mirroring.",
        evidence="The watcher's client is the mgr's own (`mgr dump`), or it watches the pool's "
        "`rbd_mirroring`, as only rbd-mirror does. Where these were not observed: probably a "
        "daemon, if no other librbd client watches and the mgr has a task of the image, or the "
        "image is mirrored.",
        risk="None: mgr's watches are short; rbd-mirror keeps one per mirrored image. A client "
        "that is only probably a daemon may be any librbd program: while it watches, the volume "
        "does not count as free.",
        remedy=(
            "Nothing to do. If mgr's watch stays, check `ceph rbd task list`. `",
            Verb("check"),
            "` shows the caps that are needed to recognise mgr's clients.",
        ),
        recovery=None,
    ),
    Entry(
        "RBD117",
        "WatchPassedBy",
        Severity.INFO,
        "A watch was present in one observation and gone in the next.",
        cause="ceph-csi opens the image read-write for about 0.15 s to check whether it is in use, "
        "and repeats this check while NodeStage waits.",
        evidence="Two observations of the watchers.",
        risk="None: the client does not hold the image.",
        remedy="Nothing to do.",
        recovery=None,
    ),
    Entry(
        "RBD118",
        "NoHolder",
        Severity.INFO,
        "No client holds the image.",
        cause="No watch on the header, no mapping on any node, no running pod, no attachment.",
        evidence="The watchers according to Ceph, this node's sysfs, a report of each other node's "
        "agent that is at most ten minutes old, and the API. Each of them was observed.",
        risk="A mapping on a machine that is not a node of the cluster, or whose Node was deleted, "
        "shows only on that machine if it is read-only or has no watch. The clients of a mirrored "
        "image in the peer cluster are not seen.",
        remedy="If a pod still waits, its events show what it waits for.",
        recovery=None,
    ),
    Entry(
        "RBD119",
        "HolderUndetermined",
        Severity.WARNING,
        "What a holder does, or whether a holder exists, could not be observed from here.",
        cause="The holder is on another node, or a required source was not observed: a node "
        "without a recent report of its agent may have the image mapped without a watch. Or the "
        "agent there is newer, and reports a finding that this version of rbdagent does not know.",
        evidence="The missing sources are listed with the holder.",
        risk="Unmapping on a guess destroys data.",
        remedy="Run rbdagent on the holder's own node.",
        recovery=None,
    ),
    Entry(
        "RBD120",
        "BetweenSteps",
        Severity.INFO,
        "kubelet or the CSI driver is between two steps of this volume.",
        cause="A stage or unstage is in progress, or was until recently.",
        evidence="A waiting or terminating pod, an operation in progress, or an attachment younger "
        "than the grace period of ten minutes.",
        risk="Interfering makes the step fail.",
        remedy="Wait, then run rbdagent again.",
        recovery=Recovery(actor="kubelet and the CSI driver"),
    ),
    Entry(
        "RBD125",
        "ClientOnTwoNodes",
        Severity.ERROR,
        "Several nodes have the same client, by reports or by its address, and it is on one node.",
        cause="An agent reports a client that is not its own: it, or its node, is compromised. Or "
        "a node got another name, and the report under its former name is left. Or the traffic of "
        "a node to Ceph leaves through another node, whose address Ceph then sees.",
        evidence="Client id and address with nonce are equal in the RBDMappings of these nodes, or "
        "in one of them and in the sysfs of the node that was observed; or the address is the "
        "InternalIP of another Node than the one that reports it. Ceph gives no id twice.",
        risk="The reports of these nodes cannot be relied on: a holder may be on either node. A "
        "report of danger for the data still counts.",
        remedy="Run rbdagent on each of these nodes: there it reads the kernel, not the reports. "
        "Treat a node that reports the client and does not have it as compromised. After a change "
        "of a node's name, delete the RBDNode and the RBDMappings of the former name.",
        recovery=Recovery(note="an agent corrects only its own reports"),
    ),
    # kubevirt#11375: a second machine starts on a ReadWriteMany disk without a word.
    Entry(
        "RBD128",
        "TwoMachinesOnOneDisk",
        Severity.WARNING,
        "Several virtual machines use one disk, and it is no migration of one machine.",
        cause="Two VirtualMachines name one claim, or a machine was restored or cloned beside its "
        "original. A live migration has two pods of one machine.",
        evidence="The VirtualMachineInstances that own the pods that run with the volume.",
        risk="Each guest has its own cache of the file system: two of them destroy it.",
        remedy="Stop one of the machines, and check the file system in the guest. If both guests "
        "run a cluster file system, nothing is wrong: both machines then mark the disk as "
        "shareable.",
        recovery=Recovery(note="no controller stops a machine for its disk"),
        step=LifecycleStep.USE,
    ),
)
_BY_KUBELET_THERE = Recovery(
    actor="kubelet and the CSI driver there", note="unless kubelet no longer tracks the volume"
)


def client_on_two_nodes(context: RuleContext) -> Iterator[Finding]:
    """Yield RBD125 for a client that several nodes have, by reports or by its address."""
    clients: dict[str, Holder] = {}
    for holder_verdict in context.holder_verdicts:
        if holder_verdict.holder.claimed_by:
            clients.setdefault(_client_name(holder_verdict.holder), holder_verdict.holder)
    for client, holder in clients.items():
        nodes = holder.claimed_by
        yield finding(
            "RBD125",
            client,
            f"{' and '.join(nodes)} have the same client {client} according to its address and "
            "what agents report, and a client is on one node. A report is wrong, or the address is "
            "that of a gateway: observe these nodes before you rely on either.",
            evidence=identity_lines(context, holder),
            commands=tuple(query_on_node(context, node) for node in nodes if node != context.here),
        )


def _client_name(holder: Holder) -> str:
    """Return the client of a holder: ``client.4154``."""
    known = (holder.mapping, holder.published)
    ids = (found.client_id for found in known if found is not None)
    client = holder.watcher.client if holder.watcher is not None else next(ids, None)
    return f"client.{client}"


def undetermined(context: RuleContext) -> Iterator[Finding]:
    """Yield RBD119 for a holder whose use is unknown, with the nodes on which to observe it."""
    outside = external_holders(context)
    for holder_verdict in context.observed_with(Verdict.UNDETERMINED):
        holder = holder_verdict.holder
        if holder_verdict in outside:
            # RBD771, RBD773 or RBD774 reports this client.
            continue
        if holder.mapping is None and holder.watcher is None and holder.published is None:
            continue
        if holder.is_local and holder.mapping is None:
            continue
        is_transient = _is_unmap_expected(holder, context)
        shares = _shares(holder, context)
        if holder.is_local:
            message = (
                f"The use of {subject_of(holder)} could not be fully observed: do not unmap it."
            )
            commands: tuple[Command, ...] = (check_here(context),)
        elif holder.node is not None and holder.watcher is None:
            message = (
                f"{subject_of(holder)} may still have {context.name} mapped: "
                f"{holder_verdict.reasons[0]}. "
                f"Do not start the volume elsewhere before you have run rbdagent there."
                f"{then_starts(context, holder.node)}"
            )
            commands = (query_on_node(context, holder.node),)
        elif holder.node is not None:
            soon = " kubelet there may be about to unmap it." if is_transient else ""
            message = (
                f"{subject_of(holder)} holds {context.name}. Its use can be observed only on that "
                f"node.{soon}{then_starts(context, holder.node)}"
            )
            commands = (query_on_node(context, holder.node),)
        else:
            likely = _overlay_node(holder, context)
            where = (
                ", and no known node has that address. Find the machine that has it."
                if likely is None
                else f". Its address is most likely that of {likely} in the overlay network of the "
                "cluster."
            )
            message = (
                f"{subject_of(holder)} holds {context.name}{where}{then_starts(context, None)}"
            )
            commands = (
                _where_to_look(context) if likely is None else (query_on_node(context, likely),)
            )
        guess = supposed(holder, context.volume)
        yield finding(
            "RBD119",
            subject_of(holder),
            f"{message} It is {guess}." if guess else message,
            evidence=(
                *holder_verdict.reasons,
                *identity_lines(context, holder),
                *(fencing(context, holder) if holder.node is None else ()),
            ),
            remedy=_remedy_of_unknown(holder, context) if holder.node is None else "",
            commands=commands,
            severity=Severity.INFO if is_transient or shares else None,
            recovery=_BY_KUBELET_THERE if is_transient else None,
        )


def _overlay_node(holder: Holder, context: RuleContext) -> str | None:
    watcher = holder.watcher
    return None if watcher is None else overlay_node_at(watcher.address, context.snapshot)


def _remedy_of_unknown(holder: Holder, context: RuleContext) -> str:
    """Return how to find the machine of a client whose address no Node lists, and what then."""
    ip = holder.watcher.address.ip if holder.watcher is not None else "of the client"
    likely = _overlay_node(holder, context)
    find = (
        f"Find the machine that has the address {ip}: `ip -br address` on a node also shows second "
        "networks and overlays, which no Node lists; else it is a machine outside this cluster."
        if likely is None
        else f"Observe {likely}, which has the address {ip} in the overlay network: if no mapping "
        "there is of this client, it is a machine outside this cluster."
    )
    return (
        f"{find} Release the image there: end what uses it, and then unmap it. The watch of a "
        "machine that is off ends after 30 s."
    )


_FEW_NODES: Final = 3


def _where_to_look(context: RuleContext) -> tuple[Command, ...]:
    """Return the commands for the nodes that an unknown client may be on; none for many nodes."""
    if candidates := _candidates(context):
        return tuple(query_on_node(context, node) for node in candidates)
    if len(context.kube.nodes) > _FEW_NODES + 1:
        return ()
    others = sorted({*context.kube.node_by_name} - {context.here})
    return tuple(over_ssh(node, command("ip -br address")) for node in others)


def _shares(holder: Holder, context: RuleContext) -> bool:
    """Return whether a holder on another node is one of several that the access mode allows.

    A holder without a VolumeAttachment is not: the control plane knows of no use there.
    """
    return (
        not holder.is_local
        and holder.node is not None
        and holder.kind in (HolderKind.KRBD, HolderKind.NBD)
        and holder.attachment is not None
        and may_be_shared(context.volume)
    )


def _is_unmap_expected(holder: Holder, context: RuleContext) -> bool:
    """Return whether kubelet there may be about to unmap a volume that no pod uses any more.

    kubelet unstages after the pod is gone from the API, and the controller detaches after that:
    whenever a pod moves or ends, the watch and the VolumeAttachment remain for some seconds.
    """
    attachment, is_librbd = holder.attachment, holder.kind is HolderKind.LIBRBD
    return (
        (holder.kind is HolderKind.KRBD or (is_librbd and maps_by_nbd(context.volume)))
        and not holder.is_local
        and isinstance(attachment, VolumeAttachment)
        and not attachment.detach_error
        and knows_every_user(context)
        and not has_any_waited(context.volume.waiting_pods, context.snapshot, MOVING)
    )


def reported(context: RuleContext) -> Iterator[Finding]:
    """Yield what another node's agent reports of its mapping: the same sentence as on that node."""
    for holder_verdict in context.holder_verdicts:
        holder = holder_verdict.holder
        found = reported_finding(holder, context.snapshot)
        if holder.published is None or holder.node is None:
            continue
        if unknown := unknown_finding(holder, context.snapshot):
            yield _unknown(unknown, holder_verdict, context)
        if found is None:
            continue
        is_leading = found.code == NOT_BACKED or holder_verdict.reported is not None
        # Ceph shows here too that the image was renamed, and which image the name leads to.
        is_shown = found.code == "RBD123" and subject_of(holder) in {
            one.subject for one in renamed(context)
        }
        if is_leading and not is_shown:
            yield finding(
                found.code,
                subject_of(holder),
                f"{found.message}{then_starts(context, holder.node)}",
                evidence=(*holder_verdict.reasons, *identity_lines(context, holder)),
                commands=(query_on_node(context, holder.node),),
                severity=at_least(
                    _least_severity(found.code, holder_verdict, context), found.severity
                ),
                recovery=_recovery_elsewhere(holder_verdict),
            )
        for code in holder.published.findings:
            if code in _ALSO_REPORTED and not (is_leading and code == found.code):
                yield finding(
                    code,
                    subject_of(holder),
                    f"{holder.published.device} on {holder.node} has another problem, {code}, as "
                    f"the agent there reports.{then_starts(context, holder.node)}",
                    evidence=identity_lines(context, holder),
                    commands=(query_on_node(context, holder.node),),
                )


def _unknown(
    found: PublishedFinding, holder_verdict: HolderVerdict, context: RuleContext
) -> Finding:
    """Return RBD119 for a finding that only a newer version of rbdagent knows."""
    holder = holder_verdict.holder
    code, severity = foreign_name(found.code), at_least(Severity.WARNING, found.severity)
    return finding(
        "RBD119",
        subject_of(holder),
        f"The agent on {holder.node} reports {code} ({severity}), which this version of "
        f"rbdagent does not know: {foreign(found.message.rstrip('.'))}.",
        evidence=(*holder_verdict.reasons, *identity_lines(context, holder)),
        commands=(query_on_node(context, str(holder.node)),),
        severity=severity,
    )


def _least_severity(code: str, holder_verdict: HolderVerdict, context: RuleContext) -> Severity:
    """Return the least severity that the rule of a code gives, whatever another agent reports."""
    from rbdagent.rules import FINDINGS

    if code == "RBD104":
        is_unused = is_left_behind(holder_verdict) and not pods_of_dead_nbd(holder_verdict, context)
        return Severity.WARNING if is_unused else FINDINGS[code].severity
    # Of RBD123, it is that of a PV whose image does not exist.
    return Severity.ERROR if code == "RBD123" else FINDINGS[code].severity


def _recovery_elsewhere(holder_verdict: HolderVerdict) -> Recovery | None:
    """Return who recovers a holder of another node; None if the entry of the finding has it."""
    match holder_verdict.verdict:
        case Verdict.PINNED:
            return once_released(holder_verdict.holder)[1]
        case Verdict.ORPHANED:
            return recovery_of_orphan(holder_verdict.holder)
        case _:
            return None


_ALSO_REPORTED: Final = frozenset({"RBD101", "RBD102", "RBD103", "RBD104", "RBD105", "RBD110"})
"""Codes of a mapping that are shown beside the one that explains the verdict of its agent."""


def _candidates(context: RuleContext) -> tuple[str, ...]:
    """Return the nodes where an unknown client may run: attached, or with a pod of the volume."""
    nodes = {attachment.node_name for attachment in observed_of(context.volume.attachments)}
    for holder_verdict in context.holder_verdicts:
        pods = observed_of(holder_verdict.holder.pods)
        nodes |= {pod.node_name for pod in pods if pod.node_name and runs(pod)}
    return tuple(sorted(nodes - {context.here}))


def shared(context: RuleContext) -> Iterator[Finding]:
    """Yield RBD114 for several holders that the access mode allows."""
    if context.verdict is not Verdict.SHARED:
        return
    nodes = ", ".join(
        sorted(
            str(holder_verdict.holder.node) for holder_verdict in sharing(context.holder_verdicts)
        )
    )
    volume = context.volume.persistent_volume
    modes = ", ".join(volume.access_modes) if volume is not None else "unknown"
    machines = _machines(context)
    if len(machines) > 1:
        named = ", ".join(f"{name} ({placed_pod(pod)})" for name, pod in machines.items())
        yield finding(
            "RBD128",
            context.name,
            f"{len(machines)} virtual machines use one disk: {named}. Only the migration of one "
            "machine has two pods on its disk, and these are different machines: stop one of them, "
            "unless both mark the disk as shareable.",
            evidence=tuple(f"pod {pod.ref} is of {name}" for name, pod in machines.items()),
            commands=tuple(
                kubectl("describe pod", pod.ref.name, namespace=pod.ref.namespace)
                for pod in machines.values()
            ),
        )
        return
    yield finding(
        "RBD114",
        context.name,
        f"{context.name} is in use on {nodes}; its access mode ({modes}) allows that.",
        evidence=tuple(
            holder_verdict.reasons[0] for holder_verdict in sharing(context.holder_verdicts)
        ),
    )


_MACHINE: Final = "VirtualMachineInstance/"


def _machines(context: RuleContext) -> dict[str, Pod]:
    """Return the virtual machines whose pods run with the volume, each with one of its pods."""
    found: dict[str, Pod] = {}
    for pod in context.volume.pods:
        if _machine_of(pod) and runs(pod):
            found.setdefault(f"{pod.ref.namespace}/{_machine_of(pod)}", pod)
    return found


def _machine_of(pod: Pod) -> str:
    owners = (name for name in pod.owners if name.startswith(_MACHINE))
    return next(owners, "").removeprefix(_MACHINE)


def foreign_client(context: RuleContext) -> Iterator[Finding]:
    """Yield RBD115, RBD116 and RBD117 for clients that are not mappings of Kubernetes."""
    for holder_verdict in context.observed_with(Verdict.FOREIGN):
        holder = holder_verdict.holder
        if holder.transient:
            yield finding(
                "RBD117",
                subject_of(holder),
                f"{subject_of(holder)} opened the image for a moment: it does not hold it.",
                evidence=holder_verdict.reasons,
            )
        elif is_ceph_daemon(holder):
            yield finding(
                "RBD116",
                subject_of(holder),
                f"{subject_of(holder)} is {holder_verdict.reasons[0]}: this is expected.",
                evidence=holder_verdict.reasons,
            )
        elif holder.probable_kind is not None:
            yield finding(
                "RBD116",
                subject_of(holder),
                f"{subject_of(holder)} is {supposed(holder, context.volume)}. Any other librbd "
                "client would look the same.",
                evidence=(*holder_verdict.reasons, *not_excluded(context.volume, context.snapshot)),
                commands=(check_here(context),),
                severity=Severity.WARNING if context.volume.waiting_pods else None,
            )
        else:
            blocks = bool(context.volume.waiting_pods)
            is_librbd = holder.kind is HolderKind.LIBRBD
            yield finding(
                "RBD115",
                subject_of(holder),
                f"{subject_of(holder)} holds the image and is not a mapping of Kubernetes: find "
                f"its owner{(is_librbd and _unknown_daemon(context)) or _NOT_OURS}"
                f"{then_starts(context, None)}",
                evidence=(
                    *holder_verdict.reasons,
                    *identity_lines(context, holder),
                    *(not_excluded(context.volume, context.snapshot) if is_librbd else ()),
                ),
                severity=Severity.ERROR if blocks else None,
            )


_NOT_OURS: Final = ". rbdagent does not act on it."


def _unknown_daemon(context: RuleContext) -> str:
    """Return which of Ceph's daemons a librbd client may be, and what would tell."""
    view = context.volume.image_view
    cluster = cluster_with(view.fsid if view is not None else None, context.snapshot)
    unread = None if cluster is None else cluster.services
    if not isinstance(unread, NotObserved):
        return ""
    return f" (ceph-mgr? {unread.hint})." if unread.hint else ""


def between_steps(context: RuleContext) -> Iterator[Finding]:
    """Yield RBD120 for a holder between two steps."""
    staged = [*context.observed_with(Verdict.STAGED)]
    explained = _explained_nodes(context) if staged else set()
    for holder_verdict in staged:
        holder = holder_verdict.holder
        if holder.driver_registered is False or holder.node in explained:
            continue
        advice = _WAIT if _is_published(context, holder) else _advice(context, holder.node)
        yield finding(
            "RBD120",
            subject_of(holder_verdict.holder),
            f"{subject_of(holder_verdict.holder)} is between two steps: "
            f"{holder_verdict.reasons[0]}. {advice.sentence}",
            severity=advice.severity,
            remedy=advice.remedy,
            evidence=(*holder_verdict.reasons, *identity_lines(context, holder_verdict.holder)),
            commands=(query_again(context),),
        )


class _Advice(NamedTuple):
    """Holds what to do about a step that is not done."""

    sentence: str
    remedy: str = ""
    severity: Severity | None = None


_WAIT: Final = _Advice("Wait, then run the command again.")


def _advice(context: RuleContext, node: str | None) -> _Advice:
    """Return what to do about a node between two steps: to wait, only for the time of a step."""
    if next(hanging(context), None) is not None:
        return _Advice("An operation of this step hangs.", _OF_THE_HANG)
    waited = _waited(context, node)
    if waited is None:
        return _WAIT
    return _Advice(
        f"kubelet has reported for {age_text(waited)} that it fails, and nothing that was observed "
        "shows why: read its log, and that of the CSI node plugin.",
        _READ_THE_LOGS,
        Severity.WARNING,
    )


_OF_THE_HANG: Final = "Follow the finding about the operation that hangs."
_READ_THE_LOGS: Final = (
    "Read the log of kubelet on that node, and that of the CSI node plugin: rbdagent reads both as "
    "root on the node."
)


def _is_published(context: RuleContext, holder: Holder) -> bool:
    """Return whether each pod that waits has the volume at its path: it waits for another one."""
    paths = observed_of(holder.mapping.mounts) if holder.mapping is not None else ()
    there = {pod_uid_of_path(mount.path) for mount in paths}
    waiting = [pod for pod in context.volume.waiting_pods if pod.node_name == holder.node]
    return bool(waiting) and all(pod.ref.uid in there for pod in waiting)


def _explained_nodes(context: RuleContext) -> set[str | None]:
    """Return the nodes on which an event has the cause: a finding about it reports that."""
    found = {
        pod_event.node
        for pod_event in decisive_pod_events(context)
        if rank_of(pod_event.text) is not Rank.GENERAL
    }
    if (begun := ownership_begun(context)) is not None:
        found.add(begun[1].node_name)
    return found


_LONG_STEP: Final = timedelta(minutes=10)
"""kubelet gives a mount about two minutes for each try; a map that waits for Ceph is RBD203."""


def _waited(context: RuleContext, node: str | None) -> timedelta | None:
    """Return for how long kubelet has reported failed mounts on a node; None if not for long."""
    firsts = [
        pod_event.event.first_seen
        for pod_event in decisive_pod_events(context)
        if pod_event.node == node
        and pod_event.event.reason == "FailedMount"
        # RBD203 reports a call that does not return.
        and not is_about_hanging_call(pod_event.text)
    ]
    waited = age(
        min((first for first in firsts if first), default=None), context.snapshot.observed_at
    )
    return waited if waited is not None and waited > _LONG_STEP else None


def attached_not_mapped(context: RuleContext) -> Iterator[Finding]:
    """Yield RBD120 for an attachment of a node that does not have the image mapped.

    The controller detaches a moment after kubelet has reported what it released.
    """
    if context.verdict is not Verdict.STAGED or context.holders_with(Verdict.STAGED):
        return
    attached = observed_of(context.volume.attachments)
    explained = _explained_nodes(context)
    for node in attached_on_paper(context.volume, context.snapshot):
        if node in explained:
            # A finding about the failed mount has the cause.
            continue
        attachment = next(found for found in attached if found.node_name == node)
        leaving = attachment.deleting_since
        advice = _advice_without_mapping(context, node)
        yield finding(
            "RBD120",
            f"node {node}",
            f"{context.name} is attached to {node}, but is not mapped there yet, or is not mapped "
            f"any more. {advice.sentence}",
            severity=advice.severity,
            remedy=advice.remedy,
            evidence=(
                f"VolumeAttachment {attachment.name}: created {attachment.created_at}"
                + (f", being deleted since {leaving}" if leaving else ""),
            ),
            commands=(query_again(context),),
        )


def _advice_without_mapping(context: RuleContext, node: str) -> _Advice:
    """Return what to do about a node that has the volume attached, and no mapping of it."""
    advice = _advice(context, node)
    late = [
        pod
        for pod in waiters(context)
        if pod.node_name == node and has_waited(pod, context.snapshot, _LONG_STEP)
    ]
    if advice is not _WAIT or not late:
        return advice
    return _Advice(
        f"{pod_names(late)} waits there for longer than a map takes, and nothing that was observed "
        "shows why: read the log of kubelet, and that of the CSI node plugin.",
        _READ_THE_LOGS,
    )


def in_use(context: RuleContext) -> Iterator[Finding]:
    """Yield RBD100 for a holder that a pod uses as expected."""
    for holder_verdict in context.observed_with(Verdict.IN_USE):
        if (
            holder_verdict.holder.unknown_pod_uids
            and not evidence_of(holder_verdict.holder).running
        ):
            continue
        if context.volume.unbacked and holder_verdict.holder.is_local:
            # The pod's container does not use this device, whatever the API reports.
            continue
        has_ended = have_containers_ended(evidence_of(holder_verdict.holder).running)
        yield finding(
            "RBD100",
            subject_of(holder_verdict.holder),
            f"{subject_of(holder_verdict.holder)} is {'not free yet' if has_ended else 'in use'}: "
            f"{holder_verdict.reasons[0]}.",
            evidence=(*holder_verdict.reasons, *identity_lines(context, holder_verdict.holder)),
            remedy=_OF_AN_ENDED_POD if has_ended else "",
        )


_OF_AN_ENDED_POD: Final = (
    "kubelet unmounts the volume within a minute after the containers have ended. After that, "
    "follow the finding about the pod."
)


def free(context: RuleContext) -> Iterator[Finding]:
    """Yield RBD118 if no client holds the volume and every source that proves it was observed."""
    if context.verdict is not Verdict.FREE:
        return
    view = context.volume.image_view
    mirrored = False if view is None else view.mirrored
    unseen = "a machine without Node, report and watch"
    if mirrored is True:
        unseen = f"{unseen}; a client in the peer cluster, because the image is mirrored"
    yield finding(
        "RBD118",
        context.name,
        f"No client holds {context.name}: it has no watcher, no node has a mapping of it, no pod "
        f"runs with it, and it is attached to no node. Not visible: {unseen}.",
        evidence=(
            "Ceph lists no watcher",
            f"{context.here} was observed and has no mapping of it",
            "the agent of every other node has reported recently, and none has a mapping of it",
            "no node lists it in volumesInUse, and it has no VolumeAttachment",
            *(
                f"not observed: whether the image is mirrored to a peer cluster ({missing.reason})"
                for missing in (mirrored,)
                if isinstance(missing, NotObserved)
            ),
        ),
    )


def possibly_held(context: RuleContext) -> Iterator[Finding]:
    """Yield RBD119 if no holder was observed, but a source that proves this is missing."""
    holding = [
        holder_verdict
        for holder_verdict in context.holder_verdicts
        if not holder_verdict.holder.transient
    ]
    if holding or context.volume.image is None or context.verdict is not Verdict.UNDETERMINED:
        return
    view = context.volume.image_view
    if view is not None and view.presence is ImagePresence.GONE:
        return
    sources = missing_sources(context.volume, context.snapshot)
    left = left_here(context.volume, context.snapshot)
    traces = (*left, *listed_here(context.volume, context.snapshot))
    missing = (*sources, *traces, *missing_of_nodes(context.volume, context.snapshot))
    of_nodes_alone = bool(missing) and not (sources or traces)
    # kubelet prepares the directories of a volume before the volume is there.
    is_awaited = any(pod.node_name == context.here for pod in context.volume.waiting_pods)
    yield finding(
        "RBD119",
        context.name,
        f"No holder of {context.name} was observed. This does not prove that it is free. Not "
        f"observed: {'; '.join(missing) or 'which cluster is meant'}.",
        evidence=tuple(f"not observed: {fact}" for fact in missing),
        remedy=_REMEDY_OF_NODES if of_nodes_alone else _REMEDY_OF_TRACES if left else "",
        commands=(query_again(context),)
        if traces and not sources
        else _how_to_observe(context, missing, of_nodes_alone=of_nodes_alone),
        # Without agents this applies to every unused volume: no reason for an alarm.
        severity=Severity.INFO if of_nodes_alone or (is_awaited and not sources) else None,
    )


_REMEDY_OF_TRACES: Final = (
    "Let kubelet on this node remove what is left. If kubelet no longer tracks the volume, make "
    "sure that no container of the named pod runs, then remove the named directory by hand: rmdir "
    "refuses a directory that is a mount point or is not empty."
)
_REMEDY_OF_NODES: Final = (
    "Run `",
    Verb("who-holds"),
    (
        "` on each of these nodes, or run the agent there. Verify that a node that is not Ready is "
        "off before the volume starts elsewhere."
    ),
)


def _how_to_observe(
    context: RuleContext, missing: tuple[str, ...], *, of_nodes_alone: bool
) -> tuple[Command, ...]:
    if missing == (PODS_ELSEWHERE,) and context.volume.target.argument != context.ask:
        return (query_again(context),)
    if not of_nodes_alone:
        return (check_here(context),)
    attached = {attachment.node_name for attachment in observed_of(context.volume.attachments)}
    there = tuple(query_on_node(context, node) for node in sorted(attached - {context.here}))
    kube = context.snapshot.kubernetes
    if kube is not None and observed_of(kube.published):
        return (*there, kubectl("get rbdnodes"))
    # No agent publishes in this cluster: it may not even have the resource.
    return there or (command("rbdagent who-holds --print-runbook", context.ask),)


RULES: Final = (
    (125, client_on_two_nodes),
    (145, reported),
    (405, attached_not_mapped),
    (520, foreign_client),
    (550, undetermined),
    (560, possibly_held),
    (640, shared),
    (650, between_steps),
    (660, in_use),
    (670, free),
)
