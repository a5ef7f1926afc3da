"""Pods of the observed node that have no volumes yet, and the images that they wait for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from rbdagent.correlate.holders import waits_for_volumes
from rbdagent.correlate.image_identity import volume_image
from rbdagent.correlate.index import kube_index
from rbdagent.correlate.names import key_of, names_of_pv
from rbdagent.correlate.node_usage import mapped_here

if TYPE_CHECKING:
    from rbdagent.model import ImageIdentity, PersistentVolume, Pod, Snapshot


def waited_for(snapshot: Snapshot) -> tuple[tuple[Pod, PersistentVolume], ...]:
    """Return each pod of this node that may wait for its volumes, with each of its RBD PVs.

    A Released PV still names its former claim: another claim may now have that name. A claim that
    names the PV of another claim is a user's text (volumeName): its pod waits, but for no volume of
    which it may learn the holder.
    """
    node, kube = snapshot.node, snapshot.kubernetes
    if node is None:
        return ()
    index = kube_index(kube)
    found = (
        (pod, volume)
        for pod in index.pods_on_node.get(node.node_name, ())
        if waits_for_volumes(pod)
        for claim in pod.claims
        for volume in index.volumes_of_claim((pod.ref.namespace, claim))
        if volume.phase == "Bound" and volume_image(volume) is not None
        if volume.claim is not None and key_of(volume.claim) == (pod.ref.namespace, claim)
    )
    return tuple(dict.fromkeys(found))


def images_waited_for(snapshot: Snapshot) -> tuple[ImageIdentity, ...]:
    """Return the images of these PVs that this node does not map: Ceph was not queried for them."""
    found = (
        image
        for _, volume in waited_for(snapshot)
        if (image := volume_image(volume)) is not None
        and not mapped_here(replace(names_of_pv(volume), image=image), snapshot.node)
    )
    return tuple(dict.fromkeys(found))
