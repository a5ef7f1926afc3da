"""RBD401, RBD408 to RBD410, RBD413, RBD71x: attaching and detaching, from the objects.

Read in Kubernetes 1.36, pkg/controller/volume/attachdetach, and in external-attacher 4.9. Events
say little of it: Multi-Attach is said once a node and lives an hour, a detach that fails says
nothing at all.
"""

from __future__ import annotations

import re
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from rbdagent.commands import command, filled, kubectl, over_ssh
from rbdagent.correlate.holders import needs_volumes
from rbdagent.correlate.names import names_of_use, node_named
from rbdagent.diagnose.case import LIST_CONTROLLERS, Case, finding, look_again, look_there, quoted
from rbdagent.diagnose.evidence import pod_names
from rbdagent.diagnose.mounting import (
    BY_NOW,
    MULTI_ATTACH,
    clear_first,
    fields_of,
    has_just_come,
    is_installed_nowhere,
    is_registered_by_now,
    meant_by,
)
from rbdagent.diagnose.target import attached_on_paper, volumes_of_use
from rbdagent.diagnose.times import LONG, MOVING, age, is_young, spoken
from rbdagent.diagnose.waiting import (
    Word,
    has_waited,
    is_ending_in_time,
    knows_every_user,
    users_on,
    waited,
    waiters,
    words,
)
from rbdagent.model import (
    Attachment,
    Command,
    CsiSource,
    Finding,
    Heals,
    Node,
    NotObserved,
    Pod,
    Severity,
    Verdict,
    VolumeUse,
    observed_of,
)
from rbdagent.parse.handle import in_use_name

if TYPE_CHECKING:
    from collections.abc import Iterator

_VERIFIED: Final = timedelta(seconds=122)
"""The controller looks every minute whether what it takes for attached has a VolumeAttachment, and
comes back to what it put off at most 2m2s later."""
_DETACHING: Final = timedelta(minutes=2)
"""How long the controller itself waits for a detach."""
_FORCED_S: Final = 360.0
"""How long a volume of an unhealthy node is left attached (maxWaitForUnmountDuration)."""
_GONE_NODE_S: Final = 80.0
"""How long pods of a Node that is gone stay: podgc every 20 s, after 40 s of quarantine."""


def is_exclusive(use: VolumeUse) -> bool:
    """Tell whether one node alone may have it attached, as IsMultiAttachAllowed does.

    ReadOnlyMany and ReadWriteMany switch the guard off, and so does a PV without access modes.
    """
    volumes = volumes_of_use(use)
    many = {"ReadOnlyMany", "ReadWriteMany"}
    return bool(volumes) and all(
        each.access_modes and many.isdisjoint(each.access_modes) for each in volumes
    )


def attachments_seen(case: Case) -> tuple[Attachment, ...] | None:
    """Give the VolumeAttachments of the volume; None where not all of them were observed."""
    kube, found = case.snapshot.kubernetes, case.use.attachments
    if kube is None or isinstance(found, NotObserved) or not kube.attachments_complete:
        return None
    return found


def attached_elsewhere(case: Case, node: str | None) -> tuple[str, ...]:
    """Give the other nodes that the control plane calls attached, by attachment or status."""
    kube = case.snapshot.kubernetes
    names = names_of_use(case.use).in_use_names
    found = {each.node_name for each in observed_of(case.use.attachments)}
    if kube is not None:
        found |= {
            each.name
            for each in observed_of(kube.nodes)
            if not names.isdisjoint(each.volumes_attached)
        }
    return tuple(sorted(found - {node}))


# --------------------------------------------------------------------------------------------------
# Multi-Attach
# --------------------------------------------------------------------------------------------------


def multi_attach(case: Case) -> Iterator[Finding]:
    """RBD401: whom the controller means, and why it may never end by itself."""
    said = words(case)
    by_pod = {each.pod: each for each in said}
    refused = [each for each in waiters(case) if _is_refused(each, by_pod.get(each), case)]
    events = [
        each
        for each in said
        if re.search(MULTI_ATTACH, each.text) and (each.pod is None or each.pod in refused)
    ]
    if not refused and not events:
        return
    pods = pod_names(refused) or ", ".join(str(each.event.subject) for each in events)
    nodes = attached_elsewhere(case, refused[0].node_name if refused else None)
    by_books = f" By its books that is {', '.join(nodes)}." if nodes else ""
    yield finding(
        "RBD401",
        f"pod {refused[0].ref if refused else events[0].event.subject}",
        f"{pods} {'wait' if len(refused) > 1 else 'waits'}: the controller will not attach "
        f"{case.volume} while another node has it.{by_books} It never asks Ceph, and never "
        f"detaches a Ready node by force.{clear_first(case)}",
        evidence=(
            *_told_so(events, case),
            *(_said_of(each) for each in observed_of(case.use.attachments)),
        ),
        severity=Severity.INFO if _is_passing(refused, nodes, case) else None,
    )


def _is_refused(pod: Pod, word: Word | None, case: Case) -> bool:
    """Tell whether the controller keeps a pod waiting for another node to let go."""
    attachments = case.use.attachments
    if any(each.node_name == pod.node_name for each in observed_of(attachments)):
        # It has been let in since: what it waits for now is the attacher, or the mount.
        return False
    told = word is not None and re.search(MULTI_ATTACH, word.text) is not None
    if attached_elsewhere(case, pod.node_name):
        return told or is_exclusive(case.use)
    if word is None or attachments_seen(case) is None:
        return told
    since = age(word.event.last_seen, case.snapshot.observed_at)
    return told and since is not None and since <= _VERIFIED


def _told_so(events: list[Word], case: Case) -> tuple[str, ...]:
    """Quote the event; the controller says it once, and it is never taken back."""
    kube = case.snapshot.kubernetes
    if kube is not None and isinstance(kube.events, NotObserved):
        return (f"events were not observed: {kube.events.reason}",)
    if not events:
        return (
            "no event says so (any more): the controller says it once, and events live an hour",
        )
    since = age(events[0].event.last_seen, case.snapshot.observed_at)
    old = since is not None and since > _VERIFIED
    return (
        *(quoted(each.event) for each in events),
        *((f"said {spoken(since)} ago: the controller says it once",) if old else ()),
    )


def _said_of(attachment: Attachment) -> str:
    state = "attached" if attachment.attached else "not attached"
    leaving = ", being deleted" if attachment.deleting_since else ""
    return f"VolumeAttachment {attachment.name}: {attachment.node_name}, {state}{leaving}"


def _is_passing(refused: list[Pod], nodes: tuple[str, ...], case: Case) -> bool:
    """Tell whether the other node may be about to let go: every move of a pod begins so."""
    if refused and not any(has_waited(each, case.snapshot, MOVING) for each in refused):
        return True
    # In good order a pod is Succeeded first, and its object goes when its volumes have.
    holding = [each for each in case.use.pods if each.node_name in nodes and needs_volumes(each)]
    return bool(holding) and all(is_ending_in_time(each, case) for each in holding)


# --------------------------------------------------------------------------------------------------
# Attaching
# --------------------------------------------------------------------------------------------------


def attach_waits(case: Case) -> Iterator[Finding]:
    """RBD711, RBD712, RBD718: who of controller, attacher and kubelet does not do its part."""
    told = {each.pod for each in words(case)}
    kube = case.snapshot.kubernetes
    knows_words = kube is not None and not isinstance(kube.events, NotObserved)
    by_node = {each.node_name: each for each in observed_of(case.use.attachments)}
    for pod in waiters(case):
        own = by_node.get(str(pod.node_name))
        if own is None:
            yield from _not_begun(pod, case)
        elif own.deleting_since is None and not own.attached and not own.attach_error:
            yield from _not_picked_up(pod, own, case)
        elif own.deleting_since is None and own.attached and knows_words and pod not in told:
            yield from _not_taken(pod, own, case)


def _not_begun(pod: Pod, case: Case) -> Iterator[Finding]:
    volume = case.use.persistent_volume
    if attachments_seen(case) is None or volume is None or volume.phase != "Bound":
        return
    if not has_waited(pod, case.snapshot, LONG) or not _is_attached_at_all(volume.source, case):
        return
    if is_exclusive(case.use) and attached_elsewhere(case, pod.node_name):
        return
    yield finding(
        "RBD711",
        f"pod {pod.ref}",
        f"{pod.ref} has been on {pod.node_name} for {spoken(waited(pod, case.snapshot))}, and "
        f"nobody has begun to attach {case.volume} there: the attach/detach controller does not "
        "run, or its books are stale.",
        evidence=(
            f"no VolumeAttachment of {case.volume} to {pod.node_name}",
            "the driver's other volumes are attached",
        ),
        commands=(
            kubectl("get lease kube-controller-manager -o yaml", namespace="kube-system"),
            kubectl(
                "get pods -o wide -l component=kube-controller-manager", namespace="kube-system"
            ),
        ),
    )


def _is_attached_at_all(source: object, case: Case) -> bool:
    """Tell whether the driver's volumes are attached: with attachRequired false none is."""
    kube = case.snapshot.kubernetes
    if kube is None or not isinstance(source, CsiSource):
        return False
    of_driver = in_use_name(source.driver, "")
    return any(each.attacher == source.driver for each in observed_of(kube.attachments)) or any(
        name.startswith(of_driver)
        for each in observed_of(kube.nodes)
        for name in each.volumes_attached
    )


def _describe(attachment: Attachment) -> Command:
    return kubectl("describe volumeattachment", attachment.name)


def _not_picked_up(pod: Pod, attachment: Attachment, case: Case) -> Iterator[Finding]:
    since = age(attachment.created_at, case.snapshot.observed_at)
    if since is None or since < MOVING or is_installed_nowhere(attachment.attacher, case):
        # Of what was never installed RBD732 tells.
        return
    yield finding(
        "RBD712",
        f"volumeattachment {attachment.name}",
        f"{pod.ref} waits for {case.volume} to be attached to {pod.node_name}: it was asked for "
        f"{spoken(since)} ago, and the attacher of {attachment.attacher} has not answered.",
        evidence=(_said_of(attachment), "no attachError"),
        commands=(LIST_CONTROLLERS, _describe(attachment)),
    )


def _not_taken(pod: Pod, attachment: Attachment, case: Case) -> Iterator[Finding]:
    node = node_named(pod.node_name, case.snapshot)
    names = names_of_use(case.use).in_use_names
    if not isinstance(node, Node) or node.ready is not True:
        return
    if not names.isdisjoint(node.volumes_in_use):
        return
    since = age(attachment.created_at, case.snapshot.observed_at)
    if since is None or since < _DETACHING or not has_waited(pod, case.snapshot, _DETACHING):
        return
    yield finding(
        "RBD718",
        f"pod {pod.ref}",
        f"{pod.ref} waits on {node.name}: {case.volume} is attached there, and kubelet has not "
        "begun to mount it.",
        evidence=(_said_of(attachment), f"{node.name} does not list the volume in volumesInUse"),
        commands=(
            kubectl("describe node", node.name),
            over_ssh(node.name, command("journalctl -u kubelet -n 50")),
        ),
    )


def attach_fails(case: Case) -> Iterator[Finding]:
    """RBD413, or what its words mean: what the attacher wrote into the VolumeAttachment."""
    for each in observed_of(case.use.attachments):
        if each.attached or each.deleting_since or not each.attach_error:
            continue
        show = (_describe(each),)
        meant = meant_by(each.attach_error)
        if meant is None or meant[0].code is None:
            code, means = "RBD413", each.attach_error
            looks: tuple[Command, ...] = show
        else:
            fields = fields_of(each.node_name, case, meant[1])
            code, means = meant[0].code, meant[0].means.format_map(fields) + "."
            looks = (*filled(meant[0].commands, fields), *show)
        is_back = code == "RBD731" and _is_back(each, case)
        yield finding(
            code,
            f"volumeattachment {each.name}",
            f"{case.volume} cannot be attached to {each.node_name}: {means}"
            f"{BY_NOW if is_back else ''}",
            evidence=(each.attach_error,),
            commands=looks,
            severity=Severity.INFO
            if is_back or (code == "RBD731" and _is_new(each, case))
            else None,
            heals=Heals(by="the external attacher", within_s=_VERIFIED.total_seconds())
            if is_back
            else None,
        )


def _is_back(attachment: Attachment, case: Case) -> bool:
    """Tell whether the driver is back; an attachError is never older than its attachment."""
    said, made = attachment.attach_error, attachment.created_at
    return is_registered_by_now(said, made, attachment.node_name, case)


def _is_new(attachment: Attachment, case: Case) -> bool:
    """Tell whether attachment or node are so new that the driver may yet come up."""
    young = is_young(attachment.created_at, case.snapshot.observed_at, MOVING) is True
    return young or has_just_come(attachment.node_name, case)


# --------------------------------------------------------------------------------------------------
# Detaching
# --------------------------------------------------------------------------------------------------


def detach_fails(case: Case) -> Iterator[Finding]:
    """RBD409, RBD410, RBD713, RBD714, RBD716: attachments that are to go, and do not."""
    for each in observed_of(case.use.attachments):
        show = (_describe(each),)
        if each.deleting_since is not None:
            yield from _leaving(each, show, case)
        if node_named(each.node_name, case.snapshot) is None:
            yield finding(
                "RBD410",
                f"volumeattachment {each.name}",
                f"{case.volume} is attached to {each.node_name}, and there is no such node any "
                "more. Prove that the machine is off before anything else gets the volume.",
                evidence=(f"no Node object {each.node_name}",),
                commands=show,
                severity=Severity.ERROR if waiters(case) else None,
            )
        if _is_of_gone_volume(each, case):
            yield finding(
                "RBD716",
                f"volumeattachment {each.name}",
                f"{each.name} attaches {each.persistent_volume} to {each.node_name}, and there is "
                "no such PV.",
                evidence=(_said_of(each),),
                commands=show,
            )


def _leaving(attachment: Attachment, show: tuple[Command, ...], case: Case) -> Iterator[Finding]:
    since = age(attachment.deleting_since, case.snapshot.observed_at)
    if attachment.detach_error:
        gone = (
            "persistentvolume" in attachment.detach_error and "not found" in attachment.detach_error
        )
        yield finding(
            "RBD409",
            f"volumeattachment {attachment.name}",
            f"{case.volume} cannot be detached from {attachment.node_name}: "
            f"{attachment.detach_error}. Repair that. Never remove the finalizer by "
            "hand.",
            evidence=(
                f"being deleted since {attachment.deleting_since}",
                attachment.detach_error,
            ),
            commands=show,
            heals=Heals(note="the attacher does not find the PV again") if gone else None,
        )
        return
    waiting = pod_names(waiters(case))
    if since is not None and since <= _DETACHING:
        if waiting:
            yield finding(
                "RBD714",
                f"volumeattachment {attachment.name}",
                f"{case.volume} is being detached from {attachment.node_name}, since "
                f"{spoken(since)}. Waiting for it: {waiting}.",
                evidence=(_said_of(attachment),),
                commands=(look_again(case),),
            )
        return
    held = ", ".join(attachment.finalizers) or "none was seen"
    own = not attachment.finalizers or any(
        each.startswith("external-attacher/") for each in attachment.finalizers
    )
    silent = "the external attacher does not answer" if own else "somebody's finalizer holds it"
    yield finding(
        "RBD713",
        f"volumeattachment {attachment.name}",
        f"The detach of {case.volume} from {attachment.node_name} was asked for {spoken(since)} "
        f"ago, and {silent}." + (f" Waiting for it: {waiting}." if waiting else ""),
        evidence=(_said_of(attachment), f"finalizers: {held}", "no detachError"),
        commands=(*((LIST_CONTROLLERS,) if own else ()), *show),
        severity=None if waiting else Severity.WARNING,
        heals=None if own else Heals(by="whoever set the finalizer"),
    )


def _is_of_gone_volume(attachment: Attachment, case: Case) -> bool:
    kube = case.snapshot.kubernetes
    if kube is None or isinstance(kube.persistent_volumes, NotObserved):
        return False
    if not kube.volumes_complete or attachment.persistent_volume is None:
        return False
    known = {each.name for each in volumes_of_use(case.use)}
    return attachment.persistent_volume not in known and all(
        each.name != attachment.persistent_volume for each in kube.persistent_volumes
    )


def idle(case: Case) -> Iterator[Finding]:
    """RBD715: attached, and neither a pod nor kubelet there wants it any more."""
    if not knows_every_user(case) or case.verdict is Verdict.ATTACHED_ON_PAPER:
        return
    names = names_of_use(case.use).in_use_names
    seen = {
        each.holder.node for each in case.judged if each.holder.mapping or each.holder.published
    }
    for each in observed_of(case.use.attachments):
        since = age(each.created_at, case.snapshot.observed_at)
        if not each.attached or each.deleting_since or users_on(each.node_name, case):
            continue
        node = None if each.node_name in seen else node_named(each.node_name, case.snapshot)
        if not isinstance(node, Node) or node.ready is not True:
            continue
        if not names.isdisjoint(node.volumes_in_use) or since is None or since < MOVING:
            continue
        waiting = [one for one in waiters(case) if one.node_name != each.node_name]
        long = any(has_waited(one, case.snapshot, LONG) for one in waiting)
        after = f" Waiting for it: {pod_names(waiting)}." if waiting else ""
        yield finding(
            "RBD715",
            f"volumeattachment {each.name}",
            f"{case.volume} is attached to {each.node_name}, no pod there uses it, and kubelet "
            f"there no longer wants it: the controller has yet to detach it.{after}",
            evidence=(_said_of(each), f"{each.node_name} does not list it in volumesInUse"),
            commands=(look_there(case, each.node_name),),
            severity=None if long else Severity.INFO,
        )


def two_attachments(case: Case) -> Iterator[Finding]:
    """RBD717: the guard of the controller is off, that of ceph-csi alone is left."""
    found = observed_of(case.use.attachments)
    nodes = sorted({each.node_name for each in found})
    if len(nodes) < 2 or not is_exclusive(case.use):
        return
    leaving = [each.node_name for each in found if each.deleting_since]
    older = f" {', '.join(leaving)} is to let go." if leaving else ""
    yield finding(
        "RBD717",
        case.volume,
        f"{case.volume} is for one node, and is attached to {' and '.join(nodes)}: the controller "
        f"no longer keeps two writers apart, ceph-csi's look at the watchers alone does.{older}",
        evidence=tuple(_said_of(each) for each in found),
        commands=(look_again(case),),
    )


# --------------------------------------------------------------------------------------------------
# On paper
# --------------------------------------------------------------------------------------------------


def on_paper(case: Case) -> Iterator[Finding]:
    """RBD408: attached, and nothing there; RBD120 as long as that may be passing.

    The controller detaches a moment after kubelet has told what it let go: by one look nobody can
    tell this moment from stale books, which harm nobody until a pod waits for them.
    """
    nothing_staged = case.verdict is Verdict.STAGED and not case.those(Verdict.STAGED)
    if case.verdict is not Verdict.ATTACHED_ON_PAPER and not nothing_staged:
        return
    attached = observed_of(case.use.attachments)
    long = any(has_waited(each, case.snapshot, MOVING) for each in waiters(case))
    for node in attached_on_paper(case.use, case.snapshot):
        attachment = next(each for each in attached if each.node_name == node)
        if nothing_staged:
            yield _between(node, attachment, case)
            continue
        down = _is_down(node, case)
        yield _stale(node, attachment, case, down=down, passing=not (long or down))


def _stale(node: str, attachment: Attachment, case: Case, *, down: bool, passing: bool) -> Finding:
    seen = knows_every_user(case)
    looked = "was looked at and" if node == case.here else "has no watch, and so"
    said = [
        f"The control plane says that {case.volume} is attached to {node}; {node} {looked} holds "
        "nothing. No unmap will help: "
        + ("it is about to detach it, or " if passing else "")
        + "the books are wrong."
    ]
    if attachment.deleting_since:
        said.append("It is being deleted already.")
    if not seen:
        said.append("Whether a pod there is about to use it was not observed.")
    if down:
        said.append(
            f"{node} is not Ready: the controller detaches it by force six minutes after its pods "
            "are gone."
        )
    return finding(
        "RBD408",
        f"node {node}",
        " ".join(said),
        evidence=(f"VolumeAttachment {attachment.name}: attached {attachment.attached}",),
        commands=(_describe(attachment),),
        severity=_weight_on_paper(seen=seen, passing=passing),
        heals=_who_detaches(down=down, passing=passing),
    )


def _who_detaches(*, down: bool, passing: bool) -> Heals | None:
    by = "the attach/detach controller"
    if down:
        return Heals(by=by, once="its pods are gone", within_s=_FORCED_S)
    return Heals(by=by, note="unless its books are stale") if passing else None


def _weight_on_paper(*, seen: bool, passing: bool) -> Severity | None:
    if passing:
        return Severity.INFO
    return None if seen else Severity.WARNING


def _is_down(node: str, case: Case) -> bool:
    there = node_named(node, case.snapshot)
    return isinstance(there, Node) and there.ready is not True


def _between(node: str, attachment: Attachment, case: Case) -> Finding:
    leaving = attachment.deleting_since
    return finding(
        "RBD120",
        f"node {node}",
        f"{case.volume} is attached to {node}, and nothing there has mapped it yet, or any more. "
        "Wait, and look again.",
        evidence=(
            f"VolumeAttachment {attachment.name}: made {attachment.created_at}"
            + (f", being deleted since {leaving}" if leaving else ""),
        ),
        commands=(look_again(case),),
    )
