"""What sets the role of a mirrored image: the VolumeReplications of csi-addons, made by Ramen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rbdagent.correlate.index import KubeIndex, kube_index
from rbdagent.correlate.names import key_of
from rbdagent.model import NotObserved, observed_of
from rbdagent.parse.recognised import Recognised

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rbdagent.model import PersistentVolumeClaim, Snapshot, VolumeReplication


def replications_of(
    claims: Iterable[PersistentVolumeClaim], kube: KubeIndex
) -> tuple[VolumeReplication, ...] | NotObserved:
    """Return the VolumeReplications of claims: their own, and those of their groups."""
    known = kube.replications
    if isinstance(known, NotObserved):
        return known
    found: dict[VolumeReplication, None] = {}
    for claim in claims:
        namespace, name = key_of(claim.ref)
        found |= dict.fromkeys(known.get((namespace, f"PersistentVolumeClaim/{name}"), ()))
        group = claim.replication_group
        if group:
            found |= dict.fromkeys(known.get((namespace, f"VolumeGroupReplication/{group}"), ()))
    return tuple(found)


def namespaces_of_replications(snapshot: Snapshot) -> frozenset[str]:
    """Return the namespaces of the claims whose image is mirrored.

    Without an answer of Ceph, an event of a pod reports that the image is not primary.
    """
    if snapshot.kubernetes is None:
        return frozenset()
    kube = kube_index(snapshot.kubernetes)
    clusters = () if snapshot.ceph is None else snapshot.ceph.clusters
    mirrored = {
        (view.spec.name, view.spec.pool)
        for cluster in clusters
        for view in cluster.images
        if view.mirrored is True or view.primary is not None
    }
    names = {name for name, _ in mirrored}
    found = {
        volume.claim.namespace
        for name in names
        for volume, image in kube.volumes_by_image.get(name, ())
        # A handle without volumeAttributes names the pool only by its id.
        if volume.claim is not None and (not image.spec.pool or (name, image.spec.pool) in mirrored)
    }
    found |= {
        event.subject.namespace
        for event in observed_of(snapshot.kubernetes.events)
        if event.kind == "Pod" and Recognised.NOT_PRIMARY.is_in(event.message)
    }
    return frozenset(found)
