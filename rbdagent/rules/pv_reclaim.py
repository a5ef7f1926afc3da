"""RBD405, RBD406, RBD611, RBD612, RBD636, RBD64x: PVs without their claim (syncVolume)."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from rbdagent.codes import Code
from rbdagent.commands import command, filled, kubectl
from rbdagent.correlate.volume_names import node_named
from rbdagent.model import (
    CollectScope,
    Command,
    CsiSource,
    Finding,
    HolderKind,
    ImagePresence,
    KubeEvent,
    LifecycleStep,
    NotObserved,
    PersistentVolume,
    PersistentVolumeClaim,
    Recovery,
    Severity,
    Subject,
    Verdict,
    Words,
    observed_of,
    stated,
)
from rbdagent.parse.faults import first_meaning
from rbdagent.parse.foreign import foreign, foreign_name, quoted_names
from rbdagent.parse.recognised import Recognised
from rbdagent.parse.volume import DRIVER_SUFFIX
from rbdagent.rules.beside import beside
from rbdagent.rules.ceph_health import blocking
from rbdagent.rules.context import (
    Rule,
    RuleContext,
    finding,
    message_of,
    query_on_node,
    quoted,
    subject_of,
)
from rbdagent.rules.controller_texts import DELETION
from rbdagent.rules.driver_version import driver_version
from rbdagent.rules.entry import Entry
from rbdagent.rules.error_texts import describe_attachment
from rbdagent.rules.facts import is_being_torn_down, is_non_primary, pool_of_handle
from rbdagent.rules.pod_events import decisive_event, is_about_hanging_call
from rbdagent.rules.provisioner import provisioner_log_commands, signs_of
from rbdagent.rules.pv_controller import (
    BINDER,
    CONTROLLER_MANAGER,
    PROVISIONER,
    RETRY_S,
    SILENT,
    SYNC_S,
    binder,
    claim_named,
    claims_of_target,
    controller_lease,
    describe_claim,
    describe_volume,
    events_of_volume,
    external_watchers,
    is_claim_gone,
    is_over,
    is_recent,
    lapsed,
    lease_line,
    remove_claim_ref,
    retain,
    since,
    volumes_naming,
    weight,
)
from rbdagent.verdicts.timing import age_text
from rbdagent.verdicts.volume_verdict import driver_of

if TYPE_CHECKING:
    from collections.abc import Iterator

ENTRIES: Final = (
    Entry(
        Code.VOLUME_RELEASED,
        Severity.INFO,
        "The PV is Released: its claim is gone, and its reclaim policy keeps the PV.",
        remedy="To use it again, write the name and namespace of the new claim into the PV's "
        "claimRef, without a uid, and name the PV in the new claim (volumeName). Check before that "
        "no client has the image open. Nothing is wiped: the new claim gets the data.",
        recovery=Recovery(note="a PV with Retain needs manual action"),
        step=LifecycleStep.RECLAIM,
    ),
    # The race: kubernetes#95909.
    Entry(
        Code.RELEASED_BUT_CLAIM_LIVES,
        Severity.ERROR,
        "The PV is Released although its claim exists.",
        remedy="Set Retain at once, and delete nothing. The PV controller sets the PV to Bound "
        "at its next sync. If it does not, it is not running. There is nothing to patch.",
        recovery=Recovery(actor=BINDER, within_s=SYNC_S),
        step=LifecycleStep.BIND,
    ),
    Entry(
        Code.VOLUME_RESERVED,
        Severity.INFO,
        "The PV is reserved for a claim that does not exist.",
        remedy="Create the claim, or remove the claimRef from the PV: then any claim that fits "
        "may get the PV and its data.",
        recovery=Recovery(
            actor=BINDER, condition="a claim with that name exists and fits", within_s=SYNC_S
        ),
        step=LifecycleStep.BIND,
    ),
    Entry(
        Code.RECLAIM_FAILED,
        Severity.ERROR,
        "The PV is Failed: Kubernetes has no plugin that can reclaim it.",
        remedy="To use it again: set Retain, and remove the claimRef. The PV is then Available, "
        "with its data, to any claim that fits. To get rid of it: delete the PV, then delete the "
        "image by hand.",
        recovery=Recovery(note="a PV stays Failed until its claimRef is removed"),
        step=LifecycleStep.RECLAIM,
    ),
    # kubernetes#124224: the claim stays in the controller's cache.
    Entry(
        Code.BOUND_TO_GONE_CLAIM,
        Severity.WARNING,
        "The PV is Bound although its claim is gone: the PV controller has not released it.",
        remedy="To keep the data, set Retain first: with Delete, the image is deleted as soon as "
        "the PV is released. Run the command again after half a minute: a controller that is late "
        "has released the PV by then. If the PV is still Bound, restart kube-controller-manager.",
        recovery=Recovery(
            actor=BINDER,
            condition="kube-controller-manager is restarted",
            within_s=SYNC_S,
            note="its cache may keep the deleted claim until then",
        ),
        step=LifecycleStep.RECLAIM,
    ),
    Entry(
        Code.DELETION_UNDER_WAY,
        Severity.INFO,
        "The PV is Released, and its image is being deleted.",
        remedy="No action is needed. To keep the data, set Retain now.",
        recovery=Recovery(actor=PROVISIONER, within_s=RETRY_S),
        step=LifecycleStep.RECLAIM,
    ),
    Entry(
        Code.DELETION_HELD,
        Severity.ERROR,
        "The PV is to be deleted, and its image is still in use.",
        remedy="Read the findings about the holder. To keep the data, set Retain first. Never "
        "remove the PV's finalizers: the image would be left behind.",
        recovery=Recovery(
            actor=PROVISIONER, condition="no client has the image open", within_s=RETRY_S
        ),
        step=LifecycleStep.RECLAIM,
    ),
    Entry(
        Code.DELETION_FAILS,
        Severity.ERROR,
        "The PV is to be deleted, and the deletion of its image fails.",
        remedy="Fix what the event names. Never remove the PV's finalizers.",
        recovery=Recovery(
            actor=PROVISIONER, condition="the cause in the event is fixed", within_s=RETRY_S
        ),
        step=LifecycleStep.RECLAIM,
    ),
    # external-provisioner 3.5 has sig-storage-lib-external-provisioner 9: shouldDelete() in its
    # controller/controller.go no longer requires the annotation provisioned-by.
    Entry(
        Code.NO_PROVISIONER_DELETES,
        Severity.ERROR,
        "The PV is to be deleted, and no provisioner deletes it.",
        remedy="Get the provisioner running. Or set Retain, save the data that is needed, and "
        "delete the image and the PV by hand.",
        recovery=Recovery(actor=PROVISIONER, condition="it runs", within_s=RETRY_S),
        step=LifecycleStep.RECLAIM,
    ),
    Entry(
        Code.BOUND_ELSEWHERE,
        Severity.ERROR,
        "The PV names a claim that is bound to another PV.",
        remedy="If the data is needed, set Retain at once.",
        recovery=Recovery(actor=BINDER, within_s=SYNC_S),
        step=LifecycleStep.RELEASE,
    ),
)

_FAILED: Final = "VolumeFailedDelete"
_UNSTAGING: Final = timedelta(minutes=2)
"""The node of the last pod may still unstage the volume: two tries of kubelet."""
_DELETING: Final = timedelta(minutes=3)
"""The provisioner of ceph-csi allows one call 150 s
(deploy/rbd/kubernetes/csi-rbdplugin-provisioner.yaml@52fcb7b). After that it reports a failure."""


def reserved(context: RuleContext) -> Iterator[Finding]:
    """Report RBD611: a PV that is reserved by name for a claim that was never created."""
    volume = context.volume.persistent_volume
    if volume is None or volume.phase != "Available" or volume.claim is None:
        return
    if claim_named(volume.claim, context) is not None:
        return
    yield finding(
        Code.VOLUME_RESERVED,
        Subject.of_pv(volume.name),
        stated(
            "{volume} is reserved for claim {claim}, which does not exist. No other claim gets it.",
            volume=volume.name,
            claim=volume.claim,
        ),
        evidence=(f"phase Available, claimRef {volume.claim}, uid {volume.claim.uid or 'none'}",),
        commands=(describe_volume(volume),),
        recovery=binder(context, f"a claim {volume.claim} exists and fits {volume.name}"),
    )


def failed(context: RuleContext) -> Iterator[Finding]:
    """Report RBD612: Kubernetes itself had to delete the image, and cannot."""
    volume = context.volume.persistent_volume
    if volume is None or volume.phase != "Failed" or volume.deleting_since is not None:
        return
    events = [event for event in events_of_volume(context, volume) if event.type == "Warning"]
    reason = volume.reason or (message_of(events[-1]) if events else "")
    why = stated("{reason}", reason=foreign(reason)) if reason else "its status has no reason"
    yield finding(
        Code.RECLAIM_FAILED,
        Subject.of_pv(volume.name),
        stated("{volume} is Failed: {}. Its image is untouched.", why, volume=volume.name),
        evidence=(
            f"reclaim policy {volume.reclaim_policy}, claimRef {volume.claim}",
            *(quoted(event) for event in events[-1:]),
        ),
        commands=(describe_volume(volume), *retain(volume), remove_claim_ref(volume)),
    )


def released(context: RuleContext) -> Iterator[Finding]:
    """Report RBD405, RBD406, RBD640 to RBD643: a Released PV, by its claim and reclaim policy."""
    volume = context.volume.persistent_volume
    if volume is None or volume.phase not in {"Released", "Bound"} or volume.claim is None:
        return
    found = claim_named(volume.claim, context)
    existing = found if isinstance(found, PersistentVolumeClaim) else None
    if (
        existing is not None
        and existing.ref.uid is not None
        and existing.ref.uid == volume.claim.uid
    ):
        yield from _of_existing_claim(context, volume, existing)
    elif volume.phase == "Released" and not _is_wanted(context, volume):
        yield from _of_deleted_claim(context, volume)


def bound_to_gone_claim(context: RuleContext) -> Iterator[Finding]:
    """Report RBD636: syncVolume finds the claim in its cache, and so does nothing.

    If its cache lacks the claim, it asks the API server, and releases the PV (syncVolume). The
    deletion of a claim queues its PV at once, so this takes a moment only. If
    kube-controller-manager does not run, RBD627 reports that.
    """
    volume = context.volume.persistent_volume
    if volume is None or volume.claim is None or not is_claim_gone(volume, context):
        return
    if _is_wanted(context, volume):
        return
    lease = controller_lease(context)
    if lapsed(lease, context):
        return
    loses_image = volume.reclaim_policy == "Delete"
    yield finding(
        Code.BOUND_TO_GONE_CLAIM,
        Subject.of_pv(volume.name),
        stated(
            "{volume} is Bound for claim {claim}, which does not exist any more: the PV controller "
            "has not released it. It does so within seconds, unless {}its cache keeps the deleted "
            "claim: then only a restart of {} ends that.{}",
            "it does not run, or " if lease is None else "",
            CONTROLLER_MANAGER,
            " Its reclaim policy is Delete: once it is released, its image is deleted."
            if loses_image
            else "",
            volume=volume.name,
            claim=volume.claim,
        ),
        evidence=(
            f"phase Bound, claimRef {volume.claim}, uid {volume.claim.uid}",
            f"the claims were observed, and none is {volume.claim}",
            f"reclaim policy {volume.reclaim_policy}",
            f"not observed: whether {CONTROLLER_MANAGER} runs"
            if lease is None
            else lease_line(lease, context),
        ),
        commands=(
            *retain(volume),
            describe_volume(volume),
            kubectl("get pods -l", f"component={CONTROLLER_MANAGER}", namespace="kube-system"),
        ),
    )


def _is_wanted(context: RuleContext, volume: PersistentVolume) -> bool:
    """Return whether a claim requests this PV by name: the findings about the claim explain it."""
    return any(claim.volume_name == volume.name for claim in claims_of_target(context))


def _of_existing_claim(
    context: RuleContext, volume: PersistentVolume, claim: PersistentVolumeClaim
) -> Iterator[Finding]:
    """Report RBD406: the claim exists; the PV controller corrects the phase at its next sync."""
    if claim.volume_name != volume.name or volume.phase == "Bound":
        return
    overdue = is_over(SILENT, volume.phase_since, context)
    recovery = binder(context)
    if overdue and not recovery.condition:
        recovery = binder(context, "it works again")
    yield finding(
        Code.RELEASED_BUT_CLAIM_LIVES,
        Subject.of_pv(volume.name),
        stated(
            "{volume} has been Released for {age} although its claim {claim} exists. Do not delete "
            "the PV.{}",
            " A working PV controller corrects this within 15 s, so it is not working."
            if overdue
            else "",
            volume=volume.name,
            age=age_text(since(volume.phase_since, context)),
            claim=claim.ref,
        ),
        evidence=(f"claimRef.uid and the claim's uid are both {claim.ref.uid}",),
        commands=(*retain(volume), describe_volume(volume)),
        recovery=recovery,
        severity=_early_severity(context, volume),
    )


def _early_severity(context: RuleContext, volume: PersistentVolume) -> Severity | None:
    """Return a lower severity until the PV controller must have synced again."""
    return None if is_over(SILENT, volume.phase_since, context) else Severity.WARNING


def bound_to_two_volumes(context: RuleContext) -> Iterator[Finding]:
    """Report RBD644: two PVs for one claim; the PV controller releases one at its next sync."""
    for claim in claims_of_target(context):
        for volume in volumes_naming(context, claim):
            if claim.volume_name in (None, volume.name) or claim.ref.uid is None:
                continue
            if volume.claim != claim.ref:
                continue
            yield _bound_to_other_claim(context, volume, claim)


def _bound_to_other_claim(
    context: RuleContext, volume: PersistentVolume, claim: PersistentVolumeClaim
) -> Finding:
    loses_image = volume.reclaim_policy == "Delete" and volume.provisioner is not None
    return finding(
        Code.BOUND_ELSEWHERE,
        Subject.of_pv(volume.name),
        stated(
            "{volume} is {phase} for claim {claim}, but that claim is bound to {other_volume}.{}",
            " It was provisioned with reclaim policy Delete: its image will be deleted."
            if loses_image
            else "",
            volume=volume.name,
            phase=volume.phase,
            claim=claim.ref,
            other_volume=claim.volume_name,
        ),
        evidence=(
            f"claimRef.uid and the claim's uid are both {claim.ref.uid}",
            f"the claim's volumeName: {claim.volume_name}",
        ),
        commands=(*retain(volume), describe_volume(volume), describe_claim(claim)),
        recovery=binder(
            context, note="its image is then deleted" if loses_image else "it then frees the PV"
        ),
        severity=_early_severity(context, volume),
    )


def _of_deleted_claim(context: RuleContext, volume: PersistentVolume) -> Iterator[Finding]:
    if volume.reclaim_policy == "Delete":
        found = _to_be_deleted(context, volume)
        if found.code != Code.NO_PROVISIONER_DELETES or not _is_held_by_attachment(context, volume):
            yield found
        return
    if volume.deleting_since is not None:
        # The object is deleted and the image stays. Finalizers report what holds the object.
        return
    yield finding(
        Code.VOLUME_RELEASED,
        Subject.of_pv(volume.name),
        stated(
            "{volume} is Released: its claim {claim} is gone, and its reclaim policy ({policy}) "
            "keeps the PV and its data.",
            volume=volume.name,
            claim=volume.claim,
            policy=volume.reclaim_policy or "unknown",
        ),
        evidence=(f"claimRef {volume.claim}, reclaim policy {volume.reclaim_policy}",),
        commands=(describe_volume(volume), *_check_first(context, volume)),
    )


def _is_held_by_attachment(context: RuleContext, volume: PersistentVolume) -> bool:
    """Return whether a PV that is being deleted has a VolumeAttachment: RBD651 reports that."""
    return volume.deleting_since is not None and any(
        attachment.persistent_volume == volume.name
        for attachment in observed_of(context.volume.attachments)
    )


def _check_first(context: RuleContext, volume: PersistentVolume) -> tuple[Command, ...]:
    """Return the command that checks for holders before the PV is bound to another claim."""
    if isinstance(external_watchers(context, volume), NotObserved):
        return (command("rbdagent who-holds", f"pv/{volume.name}"),)
    return ()


# --------------------------------------------------------------------------------------------------
# Delete
# --------------------------------------------------------------------------------------------------


def _is_in_use_error(text: str) -> bool:
    return Recognised.IN_USE.is_in(text) or Recognised.STILL_ATTACHED.is_in(text)


def _to_be_deleted(context: RuleContext, volume: PersistentVolume) -> Finding:
    """Report RBD640 to RBD643: a deletion runs, is blocked by a holder, fails, or is missing."""
    events = [event for event in events_of_volume(context, volume) if event.reason == _FAILED]
    fresh = bool(events) and is_recent(events[-1], context)
    event = decisive_event(events, context, retry_s=RETRY_S)[0] if fresh else None
    if event is not None and not _is_in_use_error(event.message):
        return _deletion_fails(context, volume, event)
    if event is not None or (_holders(context) and not _only_mirror(context)):
        return _held(context, volume, event)
    foreign = _foreign_reason(context, volume)
    young = not is_over(SILENT if foreign else _DELETING, volume.phase_since, context)
    unknown = _unknown_of_deletion(context, volume)
    if young or unknown:
        unseen = "" if young else unknown
        return finding(
            Code.DELETION_UNDER_WAY,
            Subject.of_pv(volume.name),
            stated(
                "{volume} has been Released for {age}, and its image is to be deleted.{}",
                unseen,
                volume=volume.name,
                age=age_text(since(volume.phase_since, context)),
            ),
            evidence=(f"claimRef {volume.claim}, reclaim policy Delete",),
            commands=(describe_volume(volume),),
            severity=Severity.WARNING if unseen else None,
        )
    return _not_deleted(context, volume, foreign, events)


def _unknown_of_deletion(context: RuleContext, volume: PersistentVolume) -> str:
    """Return what was not observed, as a sentence; empty if all that decides was."""
    if not context.kube.coverage.events:
        return " Whether a provisioner is deleting it is unknown: events were not observed."
    if not context.kube.coverage.claims:
        return " Whether its claim is gone is unknown: claims were not observed."
    if volume.deleting_since is not None and not context.kube.coverage.attachments():
        return (
            " Whether a VolumeAttachment keeps it (RBD651) is unknown: VolumeAttachments were not "
            "observed."
        )
    return ""


def _holders(context: RuleContext) -> list[str]:
    """Return the holders of the image, without ceph-mgr, which opens images for a short time."""
    return [
        str(subject_of(holder_verdict.holder))
        for holder_verdict in context.holder_verdicts
        if not holder_verdict.holder.transient and holder_verdict.holder.kind is not HolderKind.MGR
    ]


def _only_mirror(context: RuleContext) -> bool:
    kinds = {
        holder_verdict.holder.kind
        for holder_verdict in context.holder_verdicts
        if not holder_verdict.holder.transient
    }
    return bool(kinds) and kinds <= {HolderKind.MIRROR, HolderKind.MGR}


def _still_attached(
    context: RuleContext, volume: PersistentVolume, event: KubeEvent, nodes: list[str]
) -> Finding:
    """Return RBD641 for a PV with a VolumeAttachment: no client of the image plays a part in it.

    external-provisioner calls the driver only when none names the PV (canDeleteVolume in
    pkg/controller/controller.go).
    """
    where = " and ".join(nodes)
    transient = not is_over(_UNSTAGING, volume.phase_since, context)
    attached = observed_of(context.volume.attachments)
    are_gone = all(node_named(node, context.snapshot) is None for node in nodes)
    how = "a Node that no longer exists" if are_gone else "whose kubelet releases it first"
    return finding(
        Code.DELETION_HELD,
        Subject.of_pv(volume.name),
        stated(
            "{volume} is Released and is to be deleted. external-provisioner waits until it is "
            "detached from {nodes:and}, {}.",
            how,
            volume=volume.name,
            nodes=nodes,
        ),
        evidence=(
            f"claimRef {volume.claim}, reclaim policy Delete",
            *(
                f"VolumeAttachment {attachment.name}: {attachment.node_name}"
                for attachment in attached
            ),
            quoted(event),
        ),
        remedy=_OF_A_GONE_NODE if are_gone else _OF_A_NODE,
        commands=tuple(map(describe_attachment, attached))
        if are_gone
        else tuple(query_on_node(context, node) for node in nodes),
        recovery=Recovery(
            actor=PROVISIONER, condition=f"it is detached from {where}", within_s=RETRY_S
        ),
        severity=Severity.INFO if transient else None,
    )


_OF_A_NODE: Final = (
    "Look at what keeps the volume on that node. If no pod uses it, no node lists it in "
    "volumesInUse, and no client has the image, delete the VolumeAttachment."
)
_OF_A_GONE_NODE: Final = (
    "Make sure that the machine of that Node is off, and that no client of it watches the image. "
    "See why its VolumeAttachment remains: external-attacher has to finish the detach. If that is "
    "not being deleted, delete it then."
)


def _held(context: RuleContext, volume: PersistentVolume, event: KubeEvent | None) -> Finding:
    open_by = _holders(context)
    attached = observed_of(context.volume.attachments)
    nodes = sorted(
        {
            attachment.node_name
            for attachment in attached
            if attachment.persistent_volume == volume.name
        }
    )
    if nodes and event is not None and Recognised.STILL_ATTACHED.is_in(event.message):
        return _still_attached(context, volume, event, nodes)
    if event is not None and is_non_primary(context, {}) and _only_mirror(context):
        return _of_a_copy(context, volume, event)
    holders = stated(" Clients that have it open: {holders}.", holders=open_by) if open_by else ""
    if not open_by and nodes:
        holders = stated(
            " According to its VolumeAttachments, it is attached to {nodes}.", nodes=nodes
        )
    mirror = (
        " Only rbd-mirror daemons have it open: ceph-csi counts each daemon above "
        "mirrorDaemonCount of its ConfigMap (1 if not set) as a user."
        if _only_mirror(context)
        else ""
    )
    # A node that still unstages the volume finishes without help. A client outside the cluster, or
    # a permanent one, does not.
    stays = bool(observed_of(external_watchers(context, volume))) or any(
        not is_being_torn_down(context, holder_verdict.holder)
        for holder_verdict in context.holders_with(*_STAYS)
    )
    transient = not stays and not is_over(_UNSTAGING, volume.phase_since, context)
    return finding(
        Code.DELETION_HELD,
        Subject.of_pv(volume.name),
        stated(
            "{volume} is Released and is to be deleted. The deletion waits until no client has "
            "its image open.{}{}",
            holders,
            mirror,
            volume=volume.name,
        ),
        evidence=(
            f"claimRef {volume.claim}, reclaim policy Delete",
            *(
                f"VolumeAttachment {attachment.name}: {attachment.node_name}"
                for attachment in attached
            ),
            *((quoted(event),) if event is not None else ()),
        ),
        commands=(command("rbdagent who-holds", f"pv/{volume.name}"),),
        recovery=Recovery(
            actor=PROVISIONER,
            condition=f"{open_by[0]} has released the image"
            if len(open_by) == 1
            else "no client has the image open",
            within_s=RETRY_S,
        ),
        severity=Severity.INFO if transient else None,
    )


def _of_a_copy(context: RuleContext, volume: PersistentVolume, event: KubeEvent) -> Finding:
    """Return RBD641 for the copy of a mirrored image: its daemon always has it open.

    Before 3.5.0, ceph-csi allowed for the daemon's watch only with a primary image (isInUse in
    internal/rbd/rbd_util.go@v3.4.0). Since then it leaves the image of a copy that is replayed to
    rbd-mirror, and the PV goes (cleanupRBDImage in internal/rbd/controllerserver.go@v3.5.0).
    """
    image = context.volume.image
    return finding(
        Code.DELETION_HELD,
        Subject.of_pv(volume.name),
        stated(
            "{volume} is Released and is to be deleted, and its image is a copy that is not "
            "primary here: rbd-mirror keeps it open as long as it follows. This ceph-csi takes "
            "that for a user of the image.",
            volume=volume.name,
        ),
        evidence=(
            f"claimRef {volume.claim}, reclaim policy Delete",
            "the image is not primary here",
            quoted(event),
        ),
        remedy="If only this copy is to go, end the mirroring of the image in the cluster where it "
        "is primary: rbd-mirror then removes the copy, and the primary image stays. If the volume "
        "is to go in both clusters, delete it where its image is primary. ceph-csi since 3.5.0 "
        "removes the PV of a copy that is replayed, and leaves its image. Do not stop rbd-mirror "
        "for it, and do not promote the copy.",
        commands=(
            *(() if image is None else (command("rbd mirror image status", str(image.spec)),)),
            command("rbdagent who-holds", f"pv/{volume.name}"),
        ),
        recovery=Recovery(
            actor=PROVISIONER, condition="the copy is gone, or ceph-csi is newer", within_s=RETRY_S
        ),
    )


_STAYS: Final = (Verdict.ORPHANED, Verdict.PINNED, Verdict.RETURNED_DIRTY)


def _deletion_fails(context: RuleContext, volume: PersistentVolume, event: KubeEvent) -> Finding:
    text = message_of(event)
    image = context.volume.image.spec if context.volume.image is not None else None
    if is_about_hanging_call(text):
        return _deletion_hangs(context, volume, event, image.pool if image is not None else "")
    general, names = first_meaning(DELETION, text) or (None, {})
    meant = None if general is None else general.decided(context, names)
    version = driver_version(context, driver_of(context.volume) or "")
    fields = {"image": str(image or ""), "version": version, **_of_pool(context), **names}
    why = (
        stated("{error}", error=foreign(text))
        if meant is None
        else stated(meant.means, **_quoted(fields))
    )
    made = filled((meant.command,) if meant is not None and meant.command else (), fields)
    return finding(
        Code.DELETION_FAILS,
        Subject.of_pv(volume.name),
        stated(
            "{volume} is Released and is to be deleted, but the deletion of its image fails: {}.{}",
            why,
            beside(context) if meant is None else "",
            volume=volume.name,
        ),
        evidence=(*_of_deletion(volume, event), *_pools_beside(context, text)),
        remedy="" if meant is None else meant.remedy.format_map(_quoted(fields)),
        commands=(*made, describe_volume(volume)),
        recovery=None if meant is None else meant.recovery,
    )


def _deletion_hangs(
    context: RuleContext, volume: PersistentVolume, event: KubeEvent, pool: str
) -> Finding:
    """Return what a call waits for that does not return: its event names no cause."""
    blocked = blocking(context, pool)
    return finding(
        Code.DELETION_FAILS,
        Subject.of_pv(volume.name),
        stated(
            "{volume} is to be deleted, but the call that deletes its image does not return: {}.",
            blocked or "it waits for Ceph",
            volume=volume.name,
        ),
        evidence=_of_deletion(volume, event),
        remedy=_SPACE if blocked else _ONE_OF_TWO,
        commands=(command("ceph health detail"), describe_volume(volume)),
        recovery=Recovery(actor=PROVISIONER, condition="Ceph serves the pool", within_s=RETRY_S),
    )


# ceph-csi moves an image to the trash before ceph-mgr removes it (internal/rbd/rbd_util.go): both
# write, and an OSD that is full accepts no write.
_SPACE: Final = (
    "Mend what Ceph reports; in a full pool, make space first, because a deletion writes, too: "
    "with more OSDs, a larger quota (`ceph osd pool set-quota`), or, until the images are gone, a "
    "full ratio that is a little higher (`ceph osd set-full-ratio`). The deletion then ends by "
    "itself. Never remove the PV's finalizers."
)
_ONE_OF_TWO: Final = (
    "`ceph health detail` names a pool that is full or PGs that are inactive. If it names none, "
    "the provisioner's pod does not reach the monitors or the OSDs: test it from there. Never "
    "remove the PV's finalizers."
)


def _of_deletion(volume: PersistentVolume, event: KubeEvent) -> tuple[str, ...]:
    return (
        quoted(event),
        f"{event.count} times, last at {event.last_seen}",
        f"claimRef {volume.claim}, reclaim policy Delete",
    )


def _of_pool(context: RuleContext) -> dict[str, str]:
    """Return the values for the sentences about the pool that the PV's handle names."""
    pool, driver = pool_of_handle(context), driver_of(context.volume) or ""
    if pool is None:
        return {}
    return {
        # Rook writes its own, and puts its namespace before the name of the driver.
        "config_map": "ceph-csi-config" if driver == DRIVER_SUFFIX else "rook-ceph-csi-config",
        "pool_id": str(pool.handle.pool_id),
        "cluster": pool.handle.cluster_id,
        "fsid": pool.cluster.fsid or pool.cluster.name,
    }


def _pools_beside(context: RuleContext, text: str) -> tuple[str, ...]:
    """Return what decides about a missing pool: those that exist, and the version of the driver."""
    pool = pool_of_handle(context)
    if pool is None or not Recognised.POOL_GONE.is_in(text):
        return ()
    pools = [f"{number} {foreign_name(name)}" for number, name in observed_of(pool.cluster.pools)]
    more = f" and {len(pools) - _MOST_POOLS} more" if len(pools) > _MOST_POOLS else ""
    version = driver_version(context, driver_of(context.volume) or "")
    wanted = f"pool {pool.handle.pool_id} of clusterID {foreign_name(pool.handle.cluster_id)}"
    return (
        f"the handle names {wanted}",
        f"the pools of {pool.cluster.fsid}: {', '.join(pools[:_MOST_POOLS])}{more}",
        *((f"the pods of the driver run ceph-csi {version}",) if version else ()),
    )


_MOST_POOLS: Final = 8


def _quoted(fields: dict[str, str]) -> dict[str, str]:
    """Return the values for a sentence; an image that was not observed is "its image"."""
    return quoted_names(fields | {"image": fields["image"] or "its image"})


def _foreign_reason(context: RuleContext, volume: PersistentVolume) -> Words:
    """Return why no provisioner in this cluster deletes the PV; empty if this is not certain."""
    driver = volume.source.driver if isinstance(volume.source, CsiSource) else None
    if volume.migrated_to is not None or driver is None:
        return ""
    if volume.provisioner not in (None, driver):
        return stated(
            "its provisioned-by annotation names {provisioner}, but its driver is {driver}",
            provisioner=volume.provisioner,
            driver=driver,
        )
    kube = context.snapshot.kubernetes
    if kube is None or not context.kube.coverage.lifecycle or isinstance(kube.drivers, NotObserved):
        return ""
    return (
        ""
        if driver in kube.drivers
        else stated("no CSIDriver {driver} is installed", driver=driver)
    )


def _not_deleted(
    context: RuleContext, volume: PersistentVolume, foreign: Words, events: list[KubeEvent]
) -> Finding:
    static = (
        "it is a static PV, and external-provisioner deletes such images only since 3.5"
        if volume.provisioner is None and not foreign
        else ""
    )
    why = foreign or static
    unknown = volume.phase_since is None
    if not why and _is_half_deleted(context, volume):
        return _finalizer_left(context, volume)
    driver = volume.source.driver if isinstance(volume.source, CsiSource) else volume.provisioner
    return finding(
        Code.NO_PROVISIONER_DELETES,
        Subject.of_pv(volume.name),
        stated(
            "{volume} has been Released and to be deleted for {age}, and no provisioner deletes "
            "it{}.",
            stated(": {}", why) if why else "",
            volume=volume.name,
            age=age_text(since(volume.phase_since, context)),
        ),
        evidence=(
            f"claimRef {volume.claim}, reclaim policy Delete",
            f"provisioned by {volume.provisioner or 'hand'}",
            *(signs_of(context, driver) if driver else ()),
            *(f"{quoted(event)}, last at {event.last_seen}" for event in events[-1:]),
        ),
        commands=(*(provisioner_log_commands(context, driver) if driver else ()), *retain(volume)),
        recovery=Recovery() if foreign else None,
        severity=Severity.WARNING if unknown else None,
    )


_PROVISIONERS: Final = "external-provisioner.volume.kubernetes.io/finalizer"


def _is_half_deleted(context: RuleContext, volume: PersistentVolume) -> bool:
    """Return whether the image is gone, and the PV remains by its provisioner's finalizer."""
    view = context.volume.image_view
    is_gone = view is not None and view.presence is ImagePresence.GONE
    return is_gone and volume.deleting_since is not None and _PROVISIONERS in volume.finalizers


def _finalizer_left(context: RuleContext, volume: PersistentVolume) -> Finding:
    """Report RBD643 for a PV whose image was deleted.

    external-provisioner only logs what follows the deletion: a patch or a delete of the PV that
    fails (deleteVolumeOperation in controller/controller.go of its library).
    """
    driver = volume.source.driver if isinstance(volume.source, CsiSource) else volume.provisioner
    return finding(
        Code.NO_PROVISIONER_DELETES,
        Subject.of_pv(volume.name),
        stated(
            "The image of {volume} is deleted, and external-provisioner has not removed its "
            "finalizer: the PV remains.",
            volume=volume.name,
        ),
        evidence=(
            f"finalizer {_PROVISIONERS}, being deleted since {volume.deleting_since}",
            *(signs_of(context, driver) if driver else ()),
        ),
        remedy="Read the log of the provisioner: `Failed to remove finalizer` with `forbidden` "
        "means that its ClusterRole lacks patch or delete of persistentvolumes: restore it with "
        "the tool that installed the driver. Do not remove the finalizer by hand.",
        commands=provisioner_log_commands(context, driver) if driver else (),
        recovery=Recovery(actor="external-provisioner", condition="it may write PVs"),
        severity=weight(context, volume.deleting_since),
    )


RULES: Final = (
    Rule(320, released, CollectScope.PROVISIONERS | CollectScope.CSI_DRIVERS),
    Rule(325, bound_to_gone_claim, CollectScope.PROVISIONERS),
    Rule(330, bound_to_two_volumes, CollectScope.PROVISIONERS),
    Rule(340, failed),
    Rule(350, reserved, CollectScope.PROVISIONERS),
)
