"""Match the names of one image across clusters, pools, RADOS namespaces and device ids."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from rbdagent.model import (
    ClusterView,
    CsiImageMeta,
    EntityAddress,
    ImageIdentity,
    ImageView,
    KubeletView,
    Mapping,
    NodeView,
    NotObserved,
    PersistentVolume,
    Pod,
    PodVolumeDirectory,
    StagingDirectory,
    observed_of,
)
from rbdagent.parse.volume import image_of

if TYPE_CHECKING:
    from collections.abc import Iterable


def same_image(one: ImageIdentity, other: ImageIdentity) -> bool:
    """Return whether two identities mean one image; parts that one of them lacks are not compared.

    If both clusters are known, image ids decide: a renamed image keeps its id, and an image that
    was deleted and created again under its old name has a new id.
    """
    if one.fsid and other.fsid and one.fsid != other.fsid:
        return False
    if one.spec.namespace != other.spec.namespace or not _same_pool(one, other):
        return False
    if one.image_id and other.image_id:
        if one.image_id != other.image_id:
            return False
        # Ids are short counters: in two unknown clusters, equal ids prove nothing.
        if one.fsid and other.fsid:
            return True
    return one.spec.name == other.spec.name


def may_be(image: ImageIdentity, name: str, image_id: str | None) -> bool:
    """Return whether :func:`same_image` can be true: it is not if neither name nor id is equal."""
    return image.spec.name == name or (image_id is not None and image.image_id == image_id)


def _same_pool(one: ImageIdentity, other: ImageIdentity) -> bool:
    if one.fsid and other.fsid and one.pool_id is not None and other.pool_id is not None:
        return one.pool_id == other.pool_id
    if one.spec.pool and other.spec.pool:
        return one.spec.pool == other.spec.pool
    return one.pool_id is not None and one.pool_id == other.pool_id


def in_namespace(image: ImageIdentity, namespace: str) -> ImageIdentity:
    """Return an image whose RADOS namespace is known now."""
    return replace(image, spec=replace(image.spec, namespace=namespace), namespace_by=None)


def may_be_in_another_namespace(image: ImageIdentity, other: ImageIdentity) -> bool:
    """Return whether an image, whose namespace is an assumption, may be ``other``.

    ``other`` has the same name and pool, and another namespace.
    """
    if image.namespace_by is None or image.spec.namespace == other.spec.namespace:
        return False
    return same_image(in_namespace(image, other.spec.namespace), other)


def merged(one: ImageIdentity, other: ImageIdentity) -> ImageIdentity:
    """Return ``one`` with missing parts filled from ``other``, which is the same image."""
    spec = one.spec if one.spec.pool else replace(one.spec, pool=other.spec.pool)
    return ImageIdentity(
        spec=spec,
        fsid=one.fsid or other.fsid,
        image_id=one.image_id or other.image_id,
        pool_id=other.pool_id if one.pool_id is None else one.pool_id,
        namespace_by=one.namespace_by,
    )


def identity_of_mapping(mapping: Mapping) -> ImageIdentity | None:
    """Return the image that a device maps; None if the image name was not observed."""
    if isinstance(mapping.spec, NotObserved):
        return None
    return ImageIdentity(
        spec=mapping.spec,
        fsid=mapping.fsid,
        image_id=mapping.image_id,
        pool_id=mapping.pool_id,
    )


def identity_of_view(view: ImageView) -> ImageIdentity:
    """Return the image for which a cluster was queried."""
    return ImageIdentity(
        spec=view.spec, fsid=view.fsid, image_id=view.image_id, pool_id=view.pool_id
    )


def mappings_of(node: NodeView | None) -> tuple[Mapping, ...]:
    """Return the observed mappings in order of their device; empty if they were not observed."""
    return in_order(() if node is None else observed_of(node.mappings))


def in_order(mappings: Iterable[Mapping]) -> tuple[Mapping, ...]:
    """Return mappings in order of their device."""
    return tuple(
        sorted(mappings, key=lambda mapping: (mapping.kind, mapping.device_id, mapping.device))
    )


def are_mappings_observed(node: NodeView | None) -> bool:
    """Return whether mappings were observed; only then, an empty result means no mapping."""
    return node is not None and not isinstance(node.mappings, NotObserved)


def staging_on(node: NodeView | None) -> tuple[StagingDirectory, ...]:
    """Return the observed staging directories of a node."""
    kubelet = None if node is None else node.kubelet
    return observed_of(kubelet.staging) if isinstance(kubelet, KubeletView) else ()


def stashes_of(
    handle: str, node: NodeView | None, *, driver: str | None = None
) -> tuple[CsiImageMeta, ...]:
    """Return ceph-csi's stashes of a volume handle on a node, if given, of one driver."""
    return tuple(
        directory.stash
        for directory in staging_on(node)
        if directory.volume_handle == handle
        and (driver is None or directory.driver in {None, driver})
        and isinstance(directory.stash, CsiImageMeta)
    )


def pod_volumes_on(node: NodeView | None) -> tuple[PodVolumeDirectory, ...]:
    """Return the observed directories of volumes below kubelet's ``pods`` on a node."""
    kubelet = None if node is None else node.kubelet
    return observed_of(kubelet.pod_volumes) if isinstance(kubelet, KubeletView) else ()


def by_name(pods: Iterable[Pod]) -> tuple[Pod, ...]:
    """Return pods in order of their names."""
    return tuple(sorted(pods, key=lambda pod: (pod.ref.namespace, pod.ref.name)))


def volume_image(volume: PersistentVolume) -> ImageIdentity | None:
    """Return the image of a PV; None if it is not an RBD volume or the name was not observed."""
    image = image_of(volume)
    return None if isinstance(image, NotObserved) else image


# --------------------------------------------------------------------------------------------------
# Across clusters
# --------------------------------------------------------------------------------------------------


def distinct(clusters: Iterable[ClusterView]) -> tuple[ClusterView, ...]:
    """Return clusters in order of their names, one that is named twice once."""
    found: list[ClusterView] = []
    for cluster in sorted(clusters, key=lambda cluster: cluster.name):
        if not any(_is_one_cluster(cluster, other) for other in found):
            found.append(cluster)
    return tuple(found)


def _is_one_cluster(one: ClusterView, other: ClusterView) -> bool:
    """Return whether two names in the configuration lead to one cluster.

    A copy of a cluster, such as one restored from a backup, has the same fsid, but other monitors.
    """
    monitors = _monitors_of(one)
    return one.fsid == other.fsid and bool(monitors) and monitors == _monitors_of(other)


def _monitors_of(cluster: ClusterView) -> frozenset[EntityAddress]:
    return frozenset(monitor.address for monitor in observed_of(cluster.monitors))


def are_watchers_observed(view: ImageView | None) -> bool:
    """Return whether the watchers of an image were observed; only then, none means no watch."""
    return view is not None and not isinstance(view.watchers, NotObserved)
