"""Match the names of one image across clusters, pools, RADOS namespaces and device ids."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from rbdagent.model import (
    CephView,
    ClusterView,
    CsiSource,
    EntityAddress,
    ImageIdentity,
    ImagePresence,
    ImageView,
    KubeletView,
    KubeView,
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


def merged(one: ImageIdentity, other: ImageIdentity) -> ImageIdentity:
    """Return ``one`` with missing parts filled from ``other``, which is the same image."""
    spec = one.spec if one.spec.pool else replace(one.spec, pool=other.spec.pool)
    return ImageIdentity(
        spec=spec,
        fsid=one.fsid or other.fsid,
        image_id=one.image_id or other.image_id,
        pool_id=other.pool_id if one.pool_id is None else one.pool_id,
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


def pod_volumes_on(node: NodeView | None) -> tuple[PodVolumeDirectory, ...]:
    """Return the observed directories of volumes below kubelet's ``pods`` on a node."""
    return () if node is None else pod_volumes_of(node.kubelet)


def pod_volumes_of(kubelet: KubeletView | NotObserved) -> tuple[PodVolumeDirectory, ...]:
    """Return the observed directories of volumes below kubelet's ``pods``."""
    return observed_of(kubelet.pod_volumes) if isinstance(kubelet, KubeletView) else ()


def by_name(pods: Iterable[Pod]) -> tuple[Pod, ...]:
    """Return pods in order of their names."""
    return tuple(sorted(pods, key=lambda pod: (pod.ref.namespace, pod.ref.name)))


def are_pods_observed(kube: KubeView | None) -> bool:
    """Return whether pods were observed; the lists may still be those of one node or namespace."""
    return kube is not None and not isinstance(kube.pods, NotObserved)


def are_all_nodes_observed(kube: KubeView | None) -> bool:
    """Return whether all Node objects were observed; only then, a missing one does not exist."""
    return kube is not None and kube.nodes_complete and not isinstance(kube.nodes, NotObserved)


def volume_image(volume: PersistentVolume) -> ImageIdentity | None:
    """Return the image of a PV; None if it is not an RBD volume or the name was not observed."""
    image = image_of(volume)
    return None if isinstance(image, NotObserved) else image


# --------------------------------------------------------------------------------------------------
# Across clusters
# --------------------------------------------------------------------------------------------------


def clusters_of(ceph: CephView | None) -> tuple[ClusterView, ...]:
    """Return the configured clusters in order of their names, one that is named twice once."""
    return () if ceph is None else distinct(ceph.clusters)


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


def copies_with(fsid: str, ceph: CephView | None) -> tuple[ClusterView, ...]:
    """Return the clusters with an fsid if there are several: one is a copy of the other.

    Nothing that names a cluster by its fsid then shows which of them it means.
    """
    found = tuple(cluster for cluster in clusters_of(ceph) if cluster.fsid == fsid)
    return found if len(found) > 1 else ()


def copies_text(copies: Iterable[ClusterView]) -> str:
    """Return a clause that names several clusters with one fsid."""
    return f"{' and '.join(cluster.name for cluster in copies)} are two clusters with one fsid"


def with_pool_names(image: ImageIdentity, ceph: CephView | None) -> ImageIdentity:
    """Return an image with its pool name, if only the pool id is known (a ceph-csi handle)."""
    if image.spec.pool or image.pool_id is None:
        return image
    pools = {
        name
        for cluster in clusters_of(ceph)
        if image.fsid is None or cluster.fsid in (None, image.fsid)
        for number, name in observed_of(cluster.pools)
        if number == image.pool_id
    }
    if len(pools) != 1:
        return image
    return replace(image, spec=replace(image.spec, pool=pools.pop()))


def views_of(image: ImageIdentity, ceph: CephView | None) -> tuple[ImageView, ...]:
    """Return the views of the image, ordered by cluster and, within a cluster, the best first.

    If one cluster has the image, views of clusters without the image are left out. An image that
    was searched by the name in its PV and by the id of its device has one view for each cluster.
    """
    by_cluster = [
        _one_of_each(
            view
            for view in cluster.images
            if may_be(image, view.spec.name, view.image_id)
            and same_image(image, identity_of_view(view))
        )
        for cluster in clusters_of(ceph)
    ]
    there = [
        view for views in by_cluster for view in views if view.presence is not ImagePresence.GONE
    ]
    gone = [max(views, key=lambda view: view.image_id or "") for views in by_cluster if views]
    return tuple(sorted(there or gone, key=lambda view: (view.fsid, _rank(view))))


def _one_of_each(views: Iterable[ImageView]) -> list[ImageView]:
    """Return one view of each image of a cluster, with what any of its views shows."""
    views = [*views]
    found = {view.spec for view in views if view.presence is ImagePresence.PRESENT}
    merged: dict[tuple[str | None, str], ImageView] = {}
    for view in views:
        if view.image_id is None and isinstance(view.presence, NotObserved) and view.spec in found:
            # The image with that name was found: the search by the name alone has no other one.
            continue
        key = view.image_id, "" if view.image_id else view.spec.name
        merged[key] = _both(merged[key], view) if key in merged else view
    return list(merged.values())


def _both(one: ImageView, other: ImageView) -> ImageView:
    """Merge two views of one image, which were read at almost the same time.

    A client that one of them shows has the image open, or had it a moment ago. The view of a
    deleted image has no watchers because none were read: it adds nothing to another one.
    """
    base, more = sorted((one, other), key=_missing)
    if more.presence is ImagePresence.GONE:
        return base
    fields = {
        name: getattr(more, name)
        for name in ImageView.__struct_fields__
        if isinstance(getattr(base, name), NotObserved)
    }
    if isinstance(base.watchers, tuple) and isinstance(more.watchers, tuple):
        fields["watchers"] = tuple(dict.fromkeys((*base.watchers, *more.watchers)))
    passing = dict.fromkeys((*base.transient_watchers, *more.transient_watchers))
    lasting = observed_of(fields.get("watchers", base.watchers))
    fields["transient_watchers"] = tuple(found for found in passing if found not in lasting)
    return replace(base, **fields)


def _missing(view: ImageView) -> tuple[int, int]:
    """Return a key by which the view comes first that shows more; a deleted image comes last."""
    unread = sum(isinstance(getattr(view, name), NotObserved) for name in view.__struct_fields__)
    return (3 if view.presence is ImagePresence.GONE else _rank(view)), unread


def _rank(view: ImageView) -> int:
    if isinstance(view.presence, NotObserved):
        return 2
    return 0 if view.presence is ImagePresence.PRESENT else 1


def are_watchers_observed(view: ImageView | None) -> bool:
    """Return whether the watchers of an image were observed; only then, none means no watch."""
    return view is not None and not isinstance(view.watchers, NotObserved)


def fsids_of(image: ImageIdentity, node: NodeView | None, ceph: CephView | None) -> tuple[str, ...]:
    """Return every cluster that has an image of this name, according to Ceph or to a device.

    There may be several if the target names no cluster: equal pool and image names (ceph-csi#520).
    """
    if image.fsid is not None:
        return (image.fsid,)
    seen = {
        view.fsid
        for view in views_of(image, ceph)
        if view.presence is not ImagePresence.GONE or view.image_id is not None
    }
    for mapping in mappings_of(node):
        mapped = identity_of_mapping(mapping)
        if mapped is not None and mapped.fsid and same_image(image, mapped):
            seen.add(mapped.fsid)
    return tuple(sorted(seen))


def settled(
    image: ImageIdentity,
    volume: PersistentVolume | None,
    node: NodeView | None,
    ceph: CephView | None,
) -> ImageIdentity:
    """Return the identity with its cluster and ids, if exactly one cluster fits.

    If several fit, the fsid stays None: the output then shows the holders of all of them, and no
    image is reported as free.
    """
    image = with_pool_names(image, ceph)
    fsids = fsids_of(image, node, ceph)
    if len(fsids) > 1:
        fsids = _narrowed(fsids, image, volume, ceph)
    if len(fsids) != 1:
        return image
    image = replace(image, fsid=fsids[0])
    for view in views_of(image, ceph):
        image = merged(image, identity_of_view(view))
    return image


def _narrowed(
    fsids: tuple[str, ...],
    image: ImageIdentity,
    volume: PersistentVolume | None,
    ceph: CephView | None,
) -> tuple[str, ...]:
    """Choose among clusters by the clusterID of the PV, then by the image metadata of ceph-csi."""
    if volume is None:
        return fsids
    if isinstance(volume.source, CsiSource):
        cluster = volume.source.attribute("clusterID")
        if cluster in fsids:
            return (cluster,)
    named = {
        view.fsid
        for view in views_of(image, ceph)
        if dict(observed_of(view.metadata)).get("csi.storage.k8s.io/pv/name") == volume.name
    }
    return tuple(sorted(named)) or fsids
