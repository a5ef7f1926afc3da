"""Pods of the observed node that have no volumes yet, and the images that they wait for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rbdagent.correlate.holders import waits_for_volumes
from rbdagent.correlate.image_identity import (
    mappings_of,
    pods_of,
    volume_image,
    volumes_of,
    volumes_of_claim,
)
from rbdagent.correlate.node_usage import maps
from rbdagent.correlate.volume_names import VolumeNames, handle_of, key_of

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
    here = node.node_name
    pods = [pod for pod in pods_of(kube) if pod.node_name == here and waits_for_volumes(pod)]
    volumes = volumes_of(kube) if pods else ()
    found = (
        (pod, volume)
        for pod in pods
        for claim in pod.claims
        for volume in volumes_of_claim(pod.ref.namespace, claim, volumes, kube)
        if volume.phase == "Bound" and volume_image(volume) is not None
        if volume.claim is not None and key_of(volume.claim) == (pod.ref.namespace, claim)
    )
    return tuple(dict.fromkeys(found))


def images_waited_for(snapshot: Snapshot) -> tuple[ImageIdentity, ...]:
    """Return the images of these PVs that this node does not map: Ceph was not queried for them."""
    mapped = mappings_of(snapshot.node)
    found = (
        image
        for _, volume in waited_for(snapshot)
        if (image := volume_image(volume)) is not None
        and not any(maps(entry, _names(image, volume)) for entry in mapped)
    )
    return tuple(dict.fromkeys(found))


def _names(image: ImageIdentity, volume: PersistentVolume) -> VolumeNames:
    handle = handle_of(volume.source)
    handles = frozenset() if handle is None else frozenset({handle})
    return VolumeNames(image=image, volumes=(volume,), handles=handles)
