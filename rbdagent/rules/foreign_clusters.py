"""RBD77x: an image that machines outside this cluster use.

No object of this cluster names the other cluster. The evidence is the watch of a client from an
address that no Node lists, and the metadata that ceph-csi wrote to the image.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rbdagent.codes import Code
from rbdagent.commands import kubectl, with_note
from rbdagent.correlate.holders import metadata_of, overlay_node_at
from rbdagent.correlate.volume_names import node_named
from rbdagent.model import (
    Command,
    CsiSource,
    Finding,
    HolderKind,
    HolderVerdict,
    ImagePresence,
    LifecycleStep,
    Node,
    PersistentVolume,
    Recovery,
    Severity,
    Subject,
    Verdict,
    Words,
    observed_of,
    stated,
)
from rbdagent.parse.address import same_ip
from rbdagent.parse.foreign import foreign_name
from rbdagent.rules.context import Rule, RuleContext, finding, pods_of, query_again, subject_of
from rbdagent.rules.entry import Entry
from rbdagent.rules.pod_events import knows_every_user, waiters
from rbdagent.rules.pv_controller import retain
from rbdagent.verdicts.timing import RETRY_S
from rbdagent.verdicts.volume_verdict import is_exclusive, is_writable, pvs_of
from rbdagent.verdicts.watcher_candidates import candidates_of

if TYPE_CHECKING:
    from collections.abc import Iterator

ENTRIES: Final = (
    Entry(
        Code.HELD_FROM_OUTSIDE,
        Severity.ERROR,
        "A machine that is not a node of this cluster has the image mapped.",
        remedy="Set the PV to Retain in both clusters. Find the PV of this image in the other "
        "cluster. Scale down its pods in one of the two clusters. Fence that machine only if it is "
        "off.",
        recovery=Recovery(
            actor="kubelet", condition="the other cluster has released the image", within_s=RETRY_S
        ),
        step=LifecycleStep.STAGE,
    ),
    Entry(
        Code.IMAGE_NAMES_ANOTHER_VOLUME,
        Severity.INFO,
        "The image's ceph-csi metadata names a PV that is not in this cluster.",
        remedy="Make sure that no other cluster still has a PV of this image; if one does, set "
        "both to Retain.",
        recovery=None,
        step=LifecycleStep.RECLAIM,
    ),
    Entry(
        Code.SHARED_WITH_OUTSIDE,
        Severity.INFO,
        "A machine that is not a node of this cluster has the image mapped, and the PV allows "
        "that.",
        remedy="Set the PV to Retain in both clusters.",
        recovery=None,
    ),
    Entry(
        Code.TWO_CLUSTERS_WRITE,
        Severity.CRITICAL,
        "A pod here uses the image, and a machine outside this cluster has it mapped as well.",
        remedy="Stop the pods in one cluster now: here, or in the other cluster. Then check the "
        "file system before it is used again. Set the PV to Retain here and there.",
        recovery=Recovery(note="both clusters keep writing"),
        step=LifecycleStep.USE,
    ),
)

_PV: Final = "csi.storage.k8s.io/pv/name"
_CLAIM: Final = ("csi.storage.k8s.io/pvc/namespace", "csi.storage.k8s.io/pvc/name")
_CLUSTER: Final = "csi.ceph.com/cluster/name"


def from_outside(context: RuleContext) -> Iterator[Finding]:
    """Report RBD771, RBD773, RBD774: a machine outside this cluster has the image mapped."""
    found = external_holders(context)
    if not found:
        return
    who = [subject_of(holder_verdict.holder) for holder_verdict in found]
    evidence = (*_identity(context, found), *_written(context), *_known_addresses(context))
    head = stated(
        "{volume} is mapped by a machine that, by its address, is no node here: {holders}.",
        volume=context.name,
        holders=who,
    )
    if not is_exclusive(context.volume):
        yield finding(
            Code.SHARED_WITH_OUTSIDE,
            Subject.of_volume(context.name),
            stated("{} Its access modes allow that.", head),
            evidence=evidence,
        )
        return
    users = _local_users(context)
    if users:
        nodes = sorted({str(user.holder.node) for user in users})
        yield finding(
            Code.TWO_CLUSTERS_WRITE,
            Subject.of_volume(context.name),
            stated(
                "{} It is in use on {nodes} here as well: two clusters write to one image. Stop "
                "one side, now.",
                head,
                nodes=nodes,
            ),
            evidence=(*evidence, *(user.reasons[0] for user in users)),
            pods=pods_of(users),
            commands=(*_retain(context), *_commands_for_other_cluster(context)),
        )
        return
    waiting = waiters(context)
    yield finding(
        Code.HELD_FROM_OUTSIDE,
        Subject.of_volume(context.name),
        stated(
            "{} Another cluster uses the same image, or an administrator mapped it manually.{}",
            head,
            stated(
                " {pods} waits for it: ceph-csi waits while it has a watcher.",
                pods=[pod.ref for pod in waiting],
            )
            if waiting
            else "",
        ),
        evidence=evidence,
        commands=(*_retain(context), *_commands_for_other_cluster(context), query_again(context)),
        severity=None if waiting else Severity.WARNING,
    )


def external_holders(context: RuleContext) -> tuple[HolderVerdict, ...]:
    """Return the holders outside this cluster, as far as the objects of this cluster show them.

    An address that no Node lists may be a node's second network. It counts only if a node of this
    cluster reaches Ceph from an address that its Node lists, and only if no pod and no attachment
    here lacks the watch that it should have. The image metadata proves no machine: a PV that was
    created again under another name leaves the old name in the metadata.
    """
    if not pvs_of(context.volume) or not knows_every_user(context):
        return ()
    found = _unknown_mappings(context)
    if not found or _is_watch_missing(context):
        return ()
    return found if _known_addresses(context) else ()


def _unknown_mappings(context: RuleContext) -> tuple[HolderVerdict, ...]:
    return tuple(
        holder_verdict
        for holder_verdict in context.holder_verdicts
        if _is_unknown_mapping(holder_verdict, context)
    )


def _is_unknown_mapping(holder_verdict: HolderVerdict, context: RuleContext) -> bool:
    holder = holder_verdict.holder
    if holder.watcher is None or holder.transient or holder.node is not None:
        return False
    if holder.kind is not HolderKind.KRBD:
        return False
    if overlay_node_at(holder.watcher.address, context.snapshot) is not None:
        return False
    return context.kube.coverage.nodes(str(holder.watcher.address))


def _is_watch_missing(context: RuleContext) -> bool:
    """Return whether a pod or attachment here lacks mapping and watch: the watch may be its own."""
    bare = {
        holder_verdict.holder.node
        for holder_verdict in context.holder_verdicts
        if holder_verdict.holder.mapping is None and holder_verdict.holder.watcher is None
    }
    seen = {holder_verdict.holder.node for holder_verdict in context.holder_verdicts} - bare
    attached = {
        attachment.node_name
        for attachment in observed_of(context.volume.attachments)
        if attachment.attached
    }
    listing = {one.node for one in candidates_of(context.volume, context.snapshot)}
    return bool(bare or (attached | listing) - seen - {pod.node_name for pod in waiters(context)})


def _known_addresses(context: RuleContext) -> tuple[str, ...]:
    """Return evidence that a node here reaches Ceph from an address that its Node lists."""
    clients = {}
    for holder_verdict in context.holder_verdicts:
        watcher, node = holder_verdict.holder.watcher, holder_verdict.holder.node_object
        if watcher is not None and isinstance(node, Node):
            clients[node.name] = (watcher.address.ip, node.internal_ips)
    local = context.snapshot.node
    own = node_named(local.node_name, context.snapshot) if local is not None else None
    if local is not None and isinstance(own, Node):
        for mapping in observed_of(local.mappings):
            if mapping.client_address is not None:
                clients[own.name] = (mapping.client_address.ip, own.internal_ips)
    known = [
        name
        for name, (ip, listed) in sorted(clients.items())
        if any(same_ip(ip, address) for address in listed)
    ]
    return (
        (f"{known[0]} reaches Ceph from the address that its Node lists; these do not",)
        if known
        else ()
    )


def _local_users(context: RuleContext) -> list[HolderVerdict]:
    return [
        holder_verdict
        for holder_verdict in context.holders_with(Verdict.IN_USE)
        if holder_verdict.holder.node is not None
        and (
            is_writable(holder_verdict.holder.mapping) is True
            or holder_verdict.holder.watcher is not None
        )
    ]


# --------------------------------------------------------------------------------------------------
# Image metadata
# --------------------------------------------------------------------------------------------------


def pv_of_other_cluster(context: RuleContext) -> Iterator[Finding]:
    """Report RBD772: the image metadata names a PV that is not in this cluster."""
    if not _names_another(context):
        return
    if not pvs_of(context.volume):
        yield _without_volume(context)
        return
    yield finding(
        Code.IMAGE_NAMES_ANOTHER_VOLUME,
        Subject.of_volume(context.name),
        stated(
            "The metadata of the image of {volumes} names PV {other_volume}, which is not in this "
            "cluster: another cluster may have, or may have had, a PV of this image.{}",
            _watched(context),
            volumes=[volume.name for volume in pvs_of(context.volume)],
            other_volume=_metadata(context)[_PV],
        ),
        evidence=_written(context),
        commands=_commands_for_other_cluster(context),
    )


def _without_volume(context: RuleContext) -> Finding:
    """Return RBD772 for an image that no PV of this cluster has, as after a PV with Retain."""
    known = _metadata(context)
    claim = "/".join(filter(None, (known.get(key) for key in _CLAIM)))
    of_claim = stated(" of claim {claim}", claim=foreign_name(claim)) if claim else ""
    return finding(
        Code.IMAGE_NAMES_ANOTHER_VOLUME,
        Subject.of_volume(context.name),
        stated(
            "No PV in this cluster has {volume}. ceph-csi made it for PV {other_volume}{}: that "
            "PV was deleted and left its image (Retain), or it is in another cluster.{}",
            of_claim,
            _watched(context),
            volume=context.name,
            other_volume=foreign_name(known[_PV]),
        ),
        evidence=_written(context),
        remedy="To keep the data, create a PV for it. Before you remove the image, make sure that "
        "no other cluster has a PV of it.",
        commands=_commands_for_other_cluster(context),
    )


def _watched(context: RuleContext) -> Words:
    """Return the clients that map it, if it is unknown whether they are nodes of this cluster."""
    found = _unknown_mappings(context)
    if not found or external_holders(context):
        return ""
    who = [subject_of(holder_verdict.holder) for holder_verdict in found]
    return stated(
        " It is mapped by {holders}: that may be a machine of another cluster, or a node of "
        "this cluster that has this address on a second network.",
        holders=who,
    )


def _metadata(context: RuleContext) -> dict[str, str]:
    return dict(metadata_of(context.volume.image_view))


def _names_another(context: RuleContext) -> bool:
    named, view = _metadata(context).get(_PV), context.volume.image_view
    if not named or not context.kube.coverage.volumes(context.volume.image):
        return False
    if view is None or view.presence is not ImagePresence.PRESENT:
        return False
    return all(volume.name != named for volume in _volumes(context))


def _volumes(context: RuleContext) -> tuple[PersistentVolume, ...]:
    """Return the PVs of the image; without one, all that were observed."""
    return pvs_of(context.volume) or context.kube.volumes


def _written(context: RuleContext) -> tuple[str, ...]:
    known = _metadata(context)
    lines = []
    if known.get(_CLUSTER):
        lines.append(f"ceph-csi wrote into the image: cluster {known[_CLUSTER]}")
    if known.get(_PV):
        claim = "/".join(filter(None, (known.get(key) for key in _CLAIM)))
        lines.append(
            f"ceph-csi wrote into the image: PV {known[_PV]}"
            + (f", claim {claim}" if claim else "")
        )
    return tuple(lines)


def _identity(context: RuleContext, found: tuple[HolderVerdict, ...]) -> tuple[str, ...]:
    image = context.volume.image
    fsid = f" in Ceph cluster {image.fsid}" if image is not None and image.fsid else ""
    head = () if image is None else (f"image {image.spec}{fsid}",)
    return (
        *head,
        *(
            f"watched by client.{holder_verdict.holder.watcher.client} "
            f"{holder_verdict.holder.watcher.address}, "
            "which no Node lists"
            for holder_verdict in found
            if holder_verdict.holder.watcher is not None
        ),
    )


# --------------------------------------------------------------------------------------------------
# Commands
# --------------------------------------------------------------------------------------------------


def _retain(context: RuleContext) -> tuple[Command, ...]:
    return tuple(patch for volume in pvs_of(context.volume) for patch in retain(volume))


def _commands_for_other_cluster(context: RuleContext) -> tuple[Command, ...]:
    """Return the commands that find the PV of this image in another cluster."""
    volume, image = context.volume.persistent_volume, context.volume.image
    if image is None:
        return ()
    source = volume.source if volume is not None else None
    wanted = {"volumeAttributes.imageName": image.spec.name}
    if isinstance(source, CsiSource):
        wanted["volumeHandle"] = source.volume_handle
    return tuple(
        with_note(_volumes_with(field, value), "in the other cluster")
        for field, value in wanted.items()
        # A jsonpath filter of kubectl cannot contain an escaped quote.
        if '"' not in value and "\\" not in value
    )


def _volumes_with(field: str, value: str) -> Command:
    """Return the command that lists the PVs with a value in spec.csi, and their claims."""
    where = f'@.spec.csi.{field}=="{value}"'
    claim = "{.spec.claimRef.namespace}/{.spec.claimRef.name}"
    lines = f'{{range .items[?({where})]}}{{.metadata.name}} {claim}{{"\\n"}}{{end}}'
    return kubectl("get pv -o", f"jsonpath={lines}")


RULES: Final = (
    Rule(30, from_outside),
    Rule(680, pv_of_other_cluster),
)
