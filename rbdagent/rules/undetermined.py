"""RBD118, RBD119: nothing holds the image, or it is not known whether something does, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rbdagent.codes import Code
from rbdagent.commands import command, kubectl, over_ssh, with_note
from rbdagent.correlate.holders import overlay_node_at
from rbdagent.model import (
    Command,
    Finding,
    Holder,
    HolderKind,
    HolderVerdict,
    ImagePresence,
    NotObserved,
    PublishedFinding,
    Recovery,
    Severity,
    Subject,
    Verb,
    Verdict,
    VolumeAttachment,
    Words,
    observed_of,
    stated,
)
from rbdagent.parse.brief import begun
from rbdagent.parse.foreign import foreign, foreign_name
from rbdagent.rules.context import (
    Rule,
    RuleContext,
    at_least,
    check_here,
    client_name,
    finding,
    identity_lines,
    probably,
    query_again,
    query_on_node,
    subject_of,
    waiting_elsewhere,
)
from rbdagent.rules.entry import Entry
from rbdagent.rules.foreign_clusters import external_holders
from rbdagent.rules.pod_events import has_any_waited, knows_every_user
from rbdagent.rules.termination import fencing, is_probably_down
from rbdagent.verdicts.ceph_daemons import supposed
from rbdagent.verdicts.coverage import missing_of_nodes
from rbdagent.verdicts.timing import MOVING
from rbdagent.verdicts.volume_traces import left_here, listed_here
from rbdagent.verdicts.volume_verdict import (
    PODS_ELSEWHERE,
    may_be_shared,
    may_map_by_nbd,
    missing_sources,
    namespace_doubt,
)
from rbdagent.verdicts.watcher_candidates import candidates_of

if TYPE_CHECKING:
    from collections.abc import Iterator

ENTRIES: Final = (
    Entry(
        Code.NO_HOLDER,
        Severity.INFO,
        "No client holds the image.",
        remedy="If a pod still waits, its events show what it waits for.",
        recovery=None,
    ),
    Entry(
        Code.HOLDER_UNDETERMINED,
        Severity.WARNING,
        "What a holder does, or whether a holder exists, could not be observed from here.",
        remedy="Run rbdagent on the holder's own node.",
        recovery=None,
    ),
)
_BY_KUBELET_THERE = Recovery(
    actor="kubelet and the CSI driver there", note="unless kubelet no longer tracks the volume"
)


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
        if is_probably_down(holder):
            # RBD113 reports this client.
            continue
        is_transient = _is_unmap_expected(holder, context)
        shares = _shares(holder, context)
        if holder.is_local:
            message = stated(
                "The use of {holder} could not be fully observed: do not unmap it.",
                holder=subject_of(holder),
            )
            commands: tuple[Command, ...] = (check_here(context),)
        elif holder.node is not None and holder.watcher is None:
            message = stated(
                "{holder} may still have {volume} mapped: {reason}. Do not start the volume "
                "elsewhere before you have run rbdagent there.",
                holder=subject_of(holder),
                volume=context.name,
                reason=holder_verdict.reasons[0],
            )
            commands = (query_on_node(context, holder.node),)
        elif holder.is_node_probable:
            message = stated(
                "{client} holds {volume} and is {}. Its use can be observed only on its own "
                "node.{}",
                probably(holder),
                _ABOUT_TO_UNMAP if is_transient else "",
                client=client_name(holder),
                volume=context.name,
            )
            commands = (query_on_node(context, str(holder.node)),)
        elif holder.node is not None:
            message = stated(
                "{holder} holds {volume}. Its use can be observed only on that node.{}",
                _ABOUT_TO_UNMAP if is_transient else "",
                holder=subject_of(holder),
                volume=context.name,
            )
            commands = (query_on_node(context, holder.node),)
        else:
            likely = _overlay_node(holder, context)
            where = (
                _not_listed(context)
                if likely is None
                else stated(
                    ". Its address is most likely that of {node} in the overlay network of the "
                    "cluster.",
                    node=likely,
                )
            )
            message = stated(
                "{holder} holds {volume}{}", where, holder=subject_of(holder), volume=context.name
            )
            commands = (
                _where_to_look(context) if likely is None else (query_on_node(context, likely),)
            )
        guess = supposed(holder, context.volume)
        yield finding(
            Code.HOLDER_UNDETERMINED,
            subject_of(holder),
            stated("{} It is {reason}.", message, reason=guess) if guess else message,
            waiting=() if holder.is_local else waiting_elsewhere(context, holder.node),
            evidence=(
                *holder_verdict.reasons,
                *identity_lines(context, holder),
                *(fencing(context, holder) if holder.node is None else ()),
            ),
            pods=holder_verdict.pods,
            remedy=_remedy_of_unknown(holder, context)
            if holder.node is None or holder.is_node_probable
            else "",
            commands=commands,
            severity=Severity.INFO if is_transient or shares else None,
            recovery=_BY_KUBELET_THERE if is_transient else None,
        )


_ABOUT_TO_UNMAP: Final = " kubelet there may be about to unmap it."


def _not_listed(context: RuleContext) -> Words:
    """Return that no Node lists the address of a client, and where to look for it first."""
    found = candidates_of(context.volume, context.snapshot)
    if not found:
        return ", and no known node has that address. Find the machine that has it."
    first = found[0]
    if first.is_probable:
        return stated(
            ", and no known node has that address. It is probably on {node}, because {reasons:and}:"
            " run rbdagent there first.",
            node=first.node,
            reasons=first.reasons,
        )
    return stated(
        ", and no known node has that address. It may be on {nodes:and}, where no client of the "
        "volume is known: run rbdagent there first.",
        nodes=[one.node for one in found[:_MOST_CANDIDATES]],
    )


_MOST_CANDIDATES: Final = 3


def _overlay_node(holder: Holder, context: RuleContext) -> str | None:
    watcher = holder.watcher
    return None if watcher is None else overlay_node_at(watcher.address, context.snapshot)


def _remedy_of_unknown(holder: Holder, context: RuleContext) -> str:
    """Return how to find the machine of a client whose address no Node lists, and what then."""
    ip = holder.watcher.address.ip if holder.watcher is not None else "of the client"
    likely, found = _overlay_node(holder, context), candidates_of(context.volume, context.snapshot)
    find = (
        f"find the machine that has the address {ip}: `ip -br address` on a node also shows second "
        "networks and overlays, which no Node lists; else it is a machine outside this cluster."
    )
    if holder.is_node_probable:
        find = (
            f"Observe {holder.node} first, because {holder.probable_by}. If no mapping there is of "
            f"this client, another machine has the address {ip}: do not conclude from the state of "
            f"{holder.node} that the client is gone."
        )
    elif likely is not None:
        find = (
            f"Observe {likely}, which has the address {ip} in the overlay network: if no mapping "
            "there is of this client, it is a machine outside this cluster."
        )
    elif found:
        named = "; ".join(f"{one.node}, because {' and '.join(one.dated)}" for one in found)
        find = f"Check these nodes first: {named}. If no mapping there is of this client, {find}"
    else:
        find = begun(find)
    return (
        f"{find} Release the image there: end what uses it, and then unmap it. The watch of a "
        "machine that is off ends after 30 s."
    )


_FEW_NODES: Final = 3


def _where_to_look(context: RuleContext) -> tuple[Command, ...]:
    """Return the commands for the nodes that an unknown client may be on; none for many nodes."""
    if found := candidates_of(context.volume, context.snapshot):
        return tuple(
            with_note(query_on_node(context, one.node), f"because {' and '.join(one.reasons)}")
            for one in found
        )
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
        (holder.kind is HolderKind.KRBD or (is_librbd and may_map_by_nbd(context.volume)))
        and not holder.is_local
        and isinstance(attachment, VolumeAttachment)
        and not attachment.detach_error
        and knows_every_user(context)
        and not has_any_waited(context.volume.waiting_pods, context.snapshot, MOVING)
    )


def of_newer_agent(
    found: PublishedFinding, holder_verdict: HolderVerdict, context: RuleContext
) -> Finding:
    """Return RBD119 for a finding that only a newer version of rbdagent knows."""
    holder = holder_verdict.holder
    code, severity = foreign_name(found.code), at_least(Severity.WARNING, found.severity)
    return finding(
        Code.HOLDER_UNDETERMINED,
        subject_of(holder),
        stated(
            "The agent on {node} reports {code} ({severity}), which this version of rbdagent does "
            "not know: {report}.",
            node=holder.node,
            code=code,
            severity=severity,
            report=foreign(found.message.rstrip(".")),
        ),
        evidence=(*holder_verdict.reasons, *identity_lines(context, holder)),
        pods=holder_verdict.pods,
        commands=(query_on_node(context, str(holder.node)),),
        severity=severity,
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
        Code.NO_HOLDER,
        Subject.of_volume(context.name),
        stated(
            "No client holds {volume}: it has no watcher, no node has a mapping of it, no pod "
            "runs with it, and it is attached to no node. Not visible: {}.",
            unseen,
            volume=context.name,
        ),
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
        Code.HOLDER_UNDETERMINED,
        Subject.of_volume(context.name),
        stated(
            "No holder of {volume} was observed. This does not prove that it is free. Not "
            "observed: {}.",
            stated("{facts:;}", facts=missing) if missing else "which cluster is meant",
            volume=context.name,
        ),
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


_CEPH_CSI_CONFIG: Final = tuple(
    kubectl(
        "get configmap -A -o yaml --field-selector",
        f"metadata.name={name}",
    )
    for name in ("ceph-csi-config", "rook-ceph-csi-config")
)


def _how_to_observe(
    context: RuleContext, missing: tuple[str, ...], *, of_nodes_alone: bool
) -> tuple[Command, ...]:
    if missing == (PODS_ELSEWHERE,) and context.volume.target.argument != context.ask:
        return (query_again(context),)
    if namespace_doubt(context.volume):
        return (*_CEPH_CSI_CONFIG, check_here(context))
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
    Rule(550, undetermined),
    Rule(560, possibly_held),
    Rule(670, free),
)
