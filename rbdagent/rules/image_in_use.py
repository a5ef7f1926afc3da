"""RBD402, RBD742: another client has the image when a node stages it: its watch, or its lock."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Final

from rbdagent.codes import Code
from rbdagent.commands import filled
from rbdagent.correlate.image_identity import are_watchers_observed
from rbdagent.model import (
    DeviceKind,
    Finding,
    HolderKind,
    HolderVerdict,
    LifecycleStep,
    LockHolder,
    Recovery,
    Severity,
    Subject,
    Verdict,
    Words,
    observed_of,
    stated,
)
from rbdagent.parse.faults import Call, failure_in
from rbdagent.parse.recognised import Recognised
from rbdagent.rules.context import Rule, RuleContext, finding, subject_of
from rbdagent.rules.entry import Entry
from rbdagent.rules.error_texts import KERNEL_LOG, fields_of, retried, user_in, waiters_text
from rbdagent.rules.facts import AUTOMATIC_LOCK, is_non_primary
from rbdagent.rules.map_errors import LOCKS, USERS, mirrored_here
from rbdagent.rules.pod_events import (
    PodEvent,
    decisive_pod_event,
    decisive_pod_events,
    pod_event_evidence,
)
from rbdagent.rules.undetermined import undetermined
from rbdagent.verdicts.timing import RETRY_S, age
from rbdagent.verdicts.volume_verdict import maps_by_nbd

if TYPE_CHECKING:
    from collections.abc import Iterator


ENTRIES: Final = (
    Entry(
        Code.STILL_BEING_USED,
        Severity.ERROR,
        "ceph-csi refuses to stage the volume: the image has another watcher.",
        remedy="See the findings about the holder. Once the holder has released the image, the "
        "waiting NodeStage continues within seconds.",
        recovery=Recovery(
            actor="kubelet", condition="that client has released the image", within_s=RETRY_S
        ),
        step=LifecycleStep.STAGE,
    ),
    Entry(
        Code.BLOCKLIST_FORBIDDEN,
        Severity.ERROR,
        "The driver's user may not put the former owner of the lock on the blocklist.",
        remedy="Give the user mon 'profile rbd'. Do not remove the lock by hand while its owner "
        "may be alive.",
        recovery=retried("the user has these caps"),
        step=LifecycleStep.STAGE,
    ),
)


_IN_USE_WAIT_S: Final = 54.0
"""How long ceph-csi waits for a watch to end before it returns an error (measured;
rbdImageWatcherSteps in internal/rbd/rbd_util.go@52fcb7b)."""


def still_being_used(context: RuleContext) -> Iterator[Finding]:
    """Report RBD402: the watcher that ceph-csi found, and whether its watch ends automatically."""
    pod_event = decisive_pod_event(context, Recognised.IN_USE.is_in)
    if pod_event is None:
        return
    watching = [
        holder_verdict
        for holder_verdict in context.holder_verdicts
        if holder_verdict.holder.watcher and not holder_verdict.holder.transient
    ]
    if _only_mirrors(watching) and is_non_primary(context, {}):
        # ceph-csi before 3.8 counts the daemons of a non-primary image as users of it
        # (commit 71dbc7dbb). They write to the copy until it is promoted.
        yield mirrored_here(pod_event, context)
        return
    continues = _has_no_watcher(context) or _is_adopted(watching, pod_event.node, context)
    unknown = None if continues else _of_unknown_machine(watching, context)
    yield finding(
        Code.STILL_BEING_USED,
        Subject.of_pod(pod_event.event.subject),
        stated(
            "{pod} waits: ceph-csi will not stage {volume} while the image has another "
            "watcher.{}{}{}",
            _other_watchers(watching),
            "" if continues else clear_first(context),
            _how_long(watching, pod_event.node, context),
            pod=pod_event.event.subject,
            volume=context.name,
        ),
        evidence=pod_event_evidence(pod_event, context)[: 1 + _is_old(pod_event, context)],
        remedy="Wait for kubelet's next retry."
        if continues
        else unknown.remedy
        if unknown is not None
        else _mirror_remedy(watching),
        commands=() if unknown is None else unknown.commands,
        severity=Severity.INFO if continues else None,
        recovery=Recovery(actor="kubelet", within_s=_IN_USE_WAIT_S + RETRY_S)
        if continues
        else None,
    )


def _of_unknown_machine(watching: list[HolderVerdict], context: RuleContext) -> Finding | None:
    """Return the finding about the only watcher if its node is unknown: to find it is the step."""
    if len(watching) != 1 or watching[0].holder.node is not None:
        return None
    subject = subject_of(watching[0].holder)
    return next((found for found in undetermined(context) if found.subject == subject), None)


def _is_old(pod_event: PodEvent, context: RuleContext) -> bool:
    since = age(pod_event.event.last_seen, context.snapshot.observed_at)
    return since is not None and since.total_seconds() > 2 * RETRY_S


def _other_watchers(watching: list[HolderVerdict]) -> Words:
    if not watching:
        return ""
    named = [subject_of(holder_verdict.holder) for holder_verdict in watching]
    return stated(
        " The {} {holders}.", "watchers are" if len(watching) > 1 else "watcher is", holders=named
    )


def _has_no_watcher(context: RuleContext) -> bool:
    """Return whether no client watches the image any more, so that the next retry succeeds."""
    view = context.volume.image_view
    return view is not None and view.watchers == ()


def _is_adopted(watching: list[HolderVerdict], node: str | None, context: RuleContext) -> bool:
    """Return whether the waiting node itself has the image mapped, and no other client has.

    ceph-csi first lists the mappings of its node, by krbd or by rbd-nbd as the volume asks, and
    uses a device of the same image. It lists the watchers only if it finds no such device, so the
    watch of that node never blocks it (attachRBDImage, internal/rbd/rbd_attach.go@52fcb7b).
    """
    kind = DeviceKind.NBD if maps_by_nbd(context.volume) else DeviceKind.KRBD
    return bool(watching) and all(
        holder.node == node is not None
        and holder.mapping is not None
        and holder.mapping.kind is kind
        and holder.mapping.snapshot is None
        for holder in (holder_verdict.holder for holder_verdict in watching)
    )


def _how_long(watching: list[HolderVerdict], node: str | None, context: RuleContext) -> Words:
    """Return a sentence about whether the watch ends automatically; empty if that is unknown."""
    if _has_no_watcher(context):
        return " No client watches the image any more: the next retry will succeed."
    if _is_adopted(watching, node, context):
        return stated(
            " ceph-csi uses the device that {node} has mapped: the next retry will succeed.",
            node=node,
        )
    permanent = {Verdict.ORPHANED, Verdict.PINNED, Verdict.UNWATCHED}
    if any(holder_verdict.verdict in permanent for holder_verdict in watching):
        return " Nothing else makes that client release the image."
    if _only_mirrors(watching):
        return (
            " Only rbd-mirror watches the image: ceph-csi accepts one rbd-mirror daemon, and more "
            "only if its configuration states how many there are."
        )
    return ""


def _only_mirrors(watching: list[HolderVerdict]) -> bool:
    kinds = {holder_verdict.holder.kind for holder_verdict in watching}
    return kinds == {HolderKind.MIRROR}


def _mirror_remedy(watching: list[HolderVerdict]) -> str:
    if not _only_mirrors(watching):
        return ""
    return (
        "Set mirrorDaemonCount of this clusterID in ceph-csi's configuration to the number of "
        "rbd-mirror daemons."
    )


def lock_not_broken(context: RuleContext) -> Iterator[Finding]:
    """Report RBD742: the owner of the exclusive lock is gone, and the map that needs it fails.

    The kernel puts the owner on the blocklist before it breaks the lock (rbd_try_lock,
    drivers/block/rbd.c). A monitor refuses that with 13; only the kernel log names the reason.
    """
    pod_event = next(
        (
            pod_event
            for pod_event in decisive_pod_events(context)
            if is_for_lock(pod_event, context)
        ),
        None,
    )
    if pod_event is None:
        return
    (owner, *_) = _gone_owners(context)
    fields = fields_of(pod_event.node, context, user_in(pod_event.text))
    yield finding(
        Code.BLOCKLIST_FORBIDDEN,
        Subject.of_pod(pod_event.event.subject),
        stated(
            "{}: the exclusive lock of {image} belongs to {client}, which no longer "
            "watches the image, and Ceph refuses to put that client on the blocklist.",
            waiters_text([pod_event]),
            image=fields["image"],
            client=f"client.{owner.client}",
        ),
        evidence=(
            *pod_event_evidence(pod_event, context),
            f"lock {owner.lock_id!r} of client.{owner.client} {owner.address}, which has no watch",
        ),
        commands=filled((LOCKS, USERS, KERNEL_LOG), fields),
    )


def is_for_lock(pod_event: PodEvent, context: RuleContext) -> bool:
    """Return whether a map was refused that has to break the lock of a client that is gone."""
    failure = failure_in(pod_event.text)
    if failure is None or (failure.call, failure.number) != (Call.MAP, errno.EACCES):
        return False
    return bool(_gone_owners(context))


def _gone_owners(context: RuleContext) -> tuple[LockHolder, ...]:
    """Return the owners of the exclusive lock that no longer watch the image."""
    view = context.volume.image_view
    if view is None or not are_watchers_observed(view):
        return ()
    watchers = (*observed_of(view.watchers), *view.transient_watchers)
    watching = {watcher.client for watcher in watchers}
    return tuple(
        locker
        for locker in observed_of(view.lockers)
        if locker.lock_id.startswith(AUTOMATIC_LOCK) and locker.client not in watching
    )


def clear_first(context: RuleContext) -> Words:
    """Return the sentence that names the holder to clear first; empty without one."""
    blocking = context.holders_with(
        Verdict.ORPHANED, Verdict.PINNED, Verdict.DEAD, Verdict.UNWATCHED
    )
    return (
        stated(" Clear {holder} first.", holder=subject_of(blocking[0].holder)) if blocking else ""
    )


RULES: Final = (
    Rule(490, lock_not_broken),
    Rule(530, still_being_used),
)
