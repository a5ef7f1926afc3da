"""Follow an unmap: whether the next steps of other components are done, and what blocks them.

An unmap frees the image. The volume is free when kubelet has finished NodeUnstage, the controller
has detached the volume, and the pod that waits on another node has mounted it. Each of these is
observed, never assumed: an act stays pending while one of these facts was not observed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct

from rbdagent.correlate.holders import needs_volumes, runs, waits_for_volumes
from rbdagent.correlate.image_identity import (
    are_mappings_observed,
    identity_of_mapping,
    mappings_of,
    same_image,
)
from rbdagent.correlate.index import kube_index
from rbdagent.correlate.node_usage import driver_registered
from rbdagent.correlate.views import views_of
from rbdagent.correlate.volume_names import (
    in_volumes_in_use,
    names_of,
    node_named,
    pods_on,
    source_not_observed,
    users_of,
)
from rbdagent.model import (
    Convergence,
    ImageIdentity,
    KubeletView,
    NotObserved,
    Snapshot,
    UnmapRecord,
    VolumeAttachment,
    observed_of,
)
from rbdagent.parse.foreign import foreign
from rbdagent.verdicts.evidence import pod_names

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rbdagent.correlate.names import VolumeNames

PATIENCE_S: Final = 180.0
"""Seconds. kubelet's back-off ends after 2m2s (maxDurationBeforeRetry in
pkg/util/goroutinemap/exponentialbackoff/exponential_backoff.go@v1.36.3); the controllers and
ceph-csi follow in seconds (recording 10-foreign-unmap-before-kubelet-retry)."""


class FollowupState(Struct, frozen=True, kw_only=True):
    """Holds the present state of an act, and the reasons.

    The reasons contain no times, so that two outlooks with the same reasons are equal.
    """

    state: Convergence
    reasons: tuple[str, ...]


class _After(Struct, frozen=True, kw_only=True):
    """Holds an act and a later snapshot."""

    act: UnmapRecord
    names: VolumeNames
    node: str
    snapshot: Snapshot

    @property
    def image(self) -> ImageIdentity | None:
        """The image that was unmapped."""
        return self.names.image


def follow(act: UnmapRecord, snapshot: Snapshot, *, waited_s: float) -> FollowupState:
    """Return the outlook of an act on the observed node.

    Args:
        act: an act that ended with the device gone.
        snapshot: a snapshot after the act. If it has the pods of the volume's claims on all nodes,
            a pod that still waits keeps the act pending.
        waited_s: the seconds since the act.
    """
    after = _after(act, snapshot)
    users = pods_on(after.node, after.names, snapshot)
    running = tuple(filter(runs, observed_of(users)))
    if running:
        again = f"{pod_names(running)} uses it on {after.node} again"
        return FollowupState(state=Convergence.CLEARED, reasons=(again,))
    against: list[str] = []
    unseen: list[str] = []
    for reason in (*_mapped(after), *_attached(after), *_watched(after), *_waited_for(after)):
        if isinstance(reason, NotObserved):
            unseen.append(f"not observed: {reason.reason}")
        else:
            against.append(reason)
    if against:
        late = waited_s >= PATIENCE_S
        state = Convergence.BLOCKED if late else Convergence.PENDING
        return FollowupState(state=state, reasons=(*against, *unseen))
    if unseen:
        return FollowupState(state=Convergence.PENDING, reasons=tuple(unseen))
    clear = f"nothing on {after.node} maps it, and no VolumeAttachment attaches it to {after.node}"
    return FollowupState(state=Convergence.CLEARED, reasons=(clear,))


def _after(act: UnmapRecord, snapshot: Snapshot) -> _After:
    kube = snapshot.kubernetes
    own = tuple(
        volume for volume in kube_index(kube).volumes if volume.name == act.persistent_volume
    )
    return _After(
        act=act,
        names=names_of(act.identity.image, own, snapshot),
        node=snapshot.node.node_name if snapshot.node is not None else "",
        snapshot=snapshot,
    )


def _mapped(after: _After) -> Iterator[str | NotObserved]:
    """Yield each mapping of the image on this node; the caller found no running pod for it."""
    node, image = after.snapshot.node, after.image
    if node is None or not are_mappings_observed(node) or image is None:
        reason = "the mappings of this node"
        if node is not None and isinstance(node.mappings, NotObserved):
            reason = f"{reason}: {node.mappings.reason}"
        yield NotObserved(reason=reason)
        return
    for mapping in mappings_of(node):
        theirs = identity_of_mapping(mapping)
        if theirs is None:
            yield NotObserved(reason=f"which image {mapping.device} is")
        elif same_image(image, theirs):
            yield f"it is mapped on {after.node} as {mapping.device}"


def _attached(after: _After) -> Iterator[str | NotObserved]:
    """Yield the VolumeAttachment if it still exists, and what blocks its deletion."""
    found = _attachment(after)
    if found is None:
        return
    if isinstance(found, NotObserved):
        yield found
        return
    leaving = "is being deleted" if found.deleting_since else "still exists"
    error = f" ({foreign(found.detach_error)})" if found.detach_error else ""
    yield f"VolumeAttachment {found.name} {leaving}{error}"
    yield from _kubelet(after)


def _attachment(after: _After) -> VolumeAttachment | NotObserved | None:
    kube, own = after.snapshot.kubernetes, after.act.persistent_volume
    if kube is None:
        return source_not_observed(after.snapshot.sources.kubernetes, "VolumeAttachments")
    if isinstance(kube.attachments, NotObserved):
        return NotObserved(reason=f"VolumeAttachments: {kube.attachments.reason}")
    if own is None and not after.names.volumes_seen:
        return NotObserved(reason="PersistentVolumes: the VolumeAttachment of the image is unknown")
    # The attachment of a deleted PV may still exist.
    volumes = after.names.persistent_volumes | ({own} if own is not None else set())
    named = after.names.attachment_names(after.node)
    found = next(
        (
            attachment
            for attachment in kube.attachments
            if attachment.node_name == after.node
            and (attachment.persistent_volume in volumes or attachment.name in named)
        ),
        None,
    )
    if found or kube_index(kube).coverage.attachments():
        return found
    return NotObserved(reason="VolumeAttachments: not all were listed")


def _kubelet(after: _After) -> Iterator[str]:
    """Yield what blocks kubelet, or the controller, from releasing the volume."""
    snapshot, node = after.snapshot, after.node
    if driver_registered(node, after.names, snapshot, local=True) is False:
        yield f"the CSI driver does not answer on {node}, and NodeUnstage needs it"
    kubelet = snapshot.node.kubelet if snapshot.node is not None else None
    if isinstance(kubelet, KubeletView) and kubelet.process is None:
        yield f"kubelet does not run on {node}"
    in_use = in_volumes_in_use(node_named(node, snapshot), after.names)
    if in_use is True:
        yield f"kubelet on {node} keeps it in volumesInUse: NodeUnstage has not succeeded"
    elif in_use is False:
        yield f"kubelet on {node} has released it, and the controller has not detached it"
    users = pods_on(node, after.names, snapshot)
    needing = tuple(filter(needs_volumes, observed_of(users)))
    if needing:
        yield f"{pod_names(needing)} on {node} needs it"


def _watched(after: _After) -> Iterator[str]:
    """Yield the client of the mapping if it still watches the image.

    Then an OSD hangs, and ceph-csi maps the image for no other client.
    """
    views = views_of(after.image, after.snapshot.ceph) if after.image is not None else ()
    client = after.act.identity.client_id
    for view in views:
        if any(watcher.client == client for watcher in observed_of(view.watchers)):
            yield f"client.{client}, which had it mapped, still watches it"


def _waited_for(after: _After) -> Iterator[str]:
    """Yield each pod on another node that waits for the volume.

    Yields nothing if the lists of pods may lack one that uses a claim of the volume.
    """
    kube = after.snapshot.kubernetes
    if not kube_index(kube).coverage.pods_of(after.names.claims):
        return
    for pod in users_of(after.names, after.snapshot):
        if pod.node_name not in (None, after.node) and waits_for_volumes(pod):
            yield f"{pod.ref} on {pod.node_name} still waits for it"
