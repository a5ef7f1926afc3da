"""RBD1xx: rules on the holders of a volume and their verdicts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rbdagent.commands import kubectl
from rbdagent.correlate.holders import cluster_with, have_containers_ended, is_ceph_daemon, runs
from rbdagent.model import (
    Finding,
    Holder,
    HolderKind,
    HolderVerdict,
    LifecycleStep,
    NotObserved,
    Pod,
    Recovery,
    Severity,
    Verb,
    Verdict,
)
from rbdagent.rules.context import (
    RuleContext,
    at_least,
    check_here,
    finding,
    identity_lines,
    placed_pod,
    query_on_node,
    reported_finding,
    subject_of,
    then_starts,
    unknown_finding,
)
from rbdagent.rules.dead_mapping import pods_of_dead_nbd
from rbdagent.rules.entry import Entry
from rbdagent.rules.image_renamed import renamed
from rbdagent.rules.undetermined import of_newer_agent
from rbdagent.rules.unused_mapping import once_released, recovery_of_orphan
from rbdagent.verdicts.ceph_daemons import not_excluded, supposed
from rbdagent.verdicts.evidence import evidence_of
from rbdagent.verdicts.timing import RETRY_S
from rbdagent.verdicts.volume_verdict import NOT_BACKED, is_left_behind, sharing

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


def reported(context: RuleContext) -> Iterator[Finding]:
    """Yield what another node's agent reports of its mapping: the same sentence as on that node."""
    for holder_verdict in context.holder_verdicts:
        holder = holder_verdict.holder
        found = reported_finding(holder, context.snapshot)
        if holder.published is None or holder.node is None:
            continue
        if unknown := unknown_finding(holder, context.snapshot):
            yield of_newer_agent(unknown, holder_verdict, context)
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


RULES: Final = (
    (125, client_on_two_nodes),
    (145, reported),
    (520, foreign_client),
    (640, shared),
    (660, in_use),
)
