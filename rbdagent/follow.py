"""What came of an unmap: whether the others have done what must follow, and what keeps them.

An unmap frees the image; the volume is free when kubelet has finished NodeUnstage, the controller
has detached, and whoever waited elsewhere has it. That is seen, never assumed: what was not
observed keeps an act pending.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct

from rbdagent.correlate.holders import needs_volumes, runs, waits_for_volumes
from rbdagent.correlate.identity import (
    identity_of_mapping,
    mappings_of,
    mappings_seen,
    same_image,
    views_of,
    volumes_of,
)
from rbdagent.correlate.local import driver_registered
from rbdagent.correlate.names import (
    VolumeNames,
    covers_claims,
    in_volumes_in_use,
    names_of,
    node_named,
    not_given,
    pods_on,
    users_of,
)
from rbdagent.diagnose.evidence import pod_names
from rbdagent.model import (
    Act,
    Attachment,
    Followed,
    ImageIdentity,
    KubeletView,
    NotObserved,
    Snapshot,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

PATIENCE_S: Final = 180.0
"""kubelet's back-off ends after 2m2s, the controllers and ceph-csi follow within seconds."""


class Outlook(Struct, frozen=True, kw_only=True):
    """How far an act has come, and why; the reasons hold no times, so that equal ones are equal."""

    state: Followed
    because: tuple[str, ...]


class _After(Struct, frozen=True, kw_only=True):
    """An act, and a look that was made after it."""

    act: Act
    names: VolumeNames
    node: str
    snapshot: Snapshot

    @property
    def image(self) -> ImageIdentity | None:
        """The image that was unmapped."""
        return self.names.image


def follow(act: Act, snapshot: Snapshot, *, waited_s: float) -> Outlook:
    """Tell what came of an act on the node that looked.

    Args:
        act: one that ended with the device gone.
        snapshot: a look after it; where it holds the pods of the volume's claims on all nodes, one
            that still waits counts too.
        waited_s: for how long the others have had their time.
    """
    after = _after(act, snapshot)
    users = pods_on(after.node, after.names, snapshot)
    running = () if isinstance(users, NotObserved) else tuple(filter(runs, users))
    if running:
        said = f"{pod_names(running)} uses it on {after.node} again"
        return Outlook(state=Followed.CLEARED, because=(said,))
    against: list[str] = []
    unseen: list[str] = []
    for each in (*_mapped(after), *_attached(after), *_watched(after), *_waited_for(after)):
        if isinstance(each, NotObserved):
            unseen.append(f"not observed: {each.reason}")
        else:
            against.append(each)
    if against:
        late = waited_s >= PATIENCE_S
        state = Followed.BLOCKED if late else Followed.PENDING
        return Outlook(state=state, because=(*against, *unseen))
    if unseen:
        return Outlook(state=Followed.PENDING, because=tuple(unseen))
    said = f"nothing on {after.node} maps it, and no VolumeAttachment ties it to {after.node}"
    return Outlook(state=Followed.CLEARED, because=(said,))


def _after(act: Act, snapshot: Snapshot) -> _After:
    kube = snapshot.kubernetes
    own = tuple(each for each in volumes_of(kube) if each.name == act.persistent_volume)
    return _After(
        act=act,
        names=names_of(act.identity.image, own, kube, ceph=snapshot.ceph),
        node=snapshot.node.node_name if snapshot.node is not None else "",
        snapshot=snapshot,
    )


def _mapped(after: _After) -> Iterator[str | NotObserved]:
    """Mapped here (again), and by no running pod's leave."""
    node, image = after.snapshot.node, after.image
    if node is None or not mappings_seen(node) or image is None:
        reason = "the mappings of this node"
        if node is not None and isinstance(node.mappings, NotObserved):
            reason = f"{reason}: {node.mappings.reason}"
        yield NotObserved(reason=reason)
        return
    for each in mappings_of(node):
        theirs = identity_of_mapping(each)
        if theirs is None:
            yield NotObserved(reason=f"which image {each.device} is")
        elif same_image(image, theirs):
            yield f"it is mapped on {after.node} as {each.device}"


def _attached(after: _After) -> Iterator[str | NotObserved]:
    """The VolumeAttachment is still there: say who has not done his part."""
    found = _attachment(after)
    if found is None:
        return
    if isinstance(found, NotObserved):
        yield found
        return
    leaving = "is being deleted" if found.deleting_since else "is still there"
    error = f" ({found.detach_error})" if found.detach_error else ""
    yield f"VolumeAttachment {found.name} {leaving}{error}"
    yield from _kubelet(after)


def _attachment(after: _After) -> Attachment | NotObserved | None:
    kube, own = after.snapshot.kubernetes, after.act.persistent_volume
    if kube is None:
        return not_given(after.snapshot.sources.kubernetes, "VolumeAttachments")
    if isinstance(kube.attachments, NotObserved):
        return NotObserved(reason=f"VolumeAttachments: {kube.attachments.reason}")
    if own is None and not after.names.volumes_seen:
        return NotObserved(reason="PersistentVolumes: nobody knows which attachment is the image's")
    # A PV that is gone by now may have left its attachment behind.
    volumes = after.names.persistent_volumes | ({own} if own is not None else set())
    named = after.names.attachment_names(after.node)
    found = next(
        (
            each
            for each in kube.attachments
            if each.node_name == after.node
            and (each.persistent_volume in volumes or each.name in named)
        ),
        None,
    )
    if found or kube.attachments_complete:
        return found
    return NotObserved(reason="VolumeAttachments: not all were listed")


def _kubelet(after: _After) -> Iterator[str]:
    """What keeps kubelet, or the controller, from letting it go."""
    snapshot, node = after.snapshot, after.node
    if driver_registered(node, after.names, snapshot, local=True) is False:
        yield f"the CSI driver does not answer on {node}, and NodeUnstage needs it"
    kubelet = snapshot.node.kubelet if snapshot.node is not None else None
    if isinstance(kubelet, KubeletView) and kubelet.process is None:
        yield f"kubelet does not run on {node}"
    in_use = in_volumes_in_use(node_named(node, snapshot), after.names)
    if in_use is True:
        yield f"kubelet on {node} keeps it in volumesInUse: its NodeUnstage has not succeeded"
    elif in_use is False:
        yield f"kubelet on {node} has let it go, and the controller has not detached it"
    users = pods_on(node, after.names, snapshot)
    needing = () if isinstance(users, NotObserved) else tuple(filter(needs_volumes, users))
    if needing:
        yield f"{pod_names(needing)} on {node} needs it"


def _watched(after: _After) -> Iterator[str]:
    """Its client's watch outlives it: an OSD hangs, and ceph-csi lets nobody in."""
    views = views_of(after.image, after.snapshot.ceph) if after.image is not None else ()
    client = after.act.identity.client_id
    for view in views:
        watchers = () if isinstance(view.watchers, NotObserved) else view.watchers
        if any(each.client == client for each in watchers):
            yield f"client.{client}, whose mapping it was, still watches it"


def _waited_for(after: _After) -> Iterator[str]:
    """Pods of its claims on other nodes that have no volume yet, where all of them were listed."""
    kube = after.snapshot.kubernetes
    if kube is None or not covers_claims(kube, after.names):
        return
    for each in users_of(after.names, kube):
        if each.node_name not in (None, after.node) and waits_for_volumes(each):
            yield f"{each.ref} on {each.node_name} still waits for it"
