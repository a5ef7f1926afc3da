"""The images in Ceph's clusters: which cluster has an image, and what was observed of it there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from rbdagent.correlate.image_identity import (
    identity_of_mapping,
    identity_of_view,
    in_namespace,
    merged,
    same_image,
    stashes_of,
    volume_image,
)
from rbdagent.correlate.index import ceph_index, node_index, reported_specs
from rbdagent.model import (
    CephView,
    ClusterView,
    CsiSource,
    ImageIdentity,
    ImagePresence,
    ImageSpec,
    ImageView,
    KubeView,
    NodeView,
    NotObserved,
    PersistentVolume,
    observed_of,
)
from rbdagent.parse.foreign import foreign_name
from rbdagent.parse.handle import staging_hash

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


def with_namespace(
    image: ImageIdentity,
    volume: PersistentVolume | None,
    node: NodeView | None,
    kube: KubeView | None,
    ceph: CephView | None,
) -> ImageIdentity:
    """Return an image with its RADOS namespace, if a source shows it.

    What ceph-csi mapped for the PV shows in which namespace it found the image. Without that, an
    image that is in the assumed namespace is taken for it.
    """
    if image.namespace_by is None:
        return image
    mapped = _namespaces_mapped_for(image, volume, node, kube)
    if len(mapped) == 1:
        return in_namespace(image, mapped.pop())
    if not mapped and any(_is_present(view) for view in _views_as_read(image, ceph)):
        return in_namespace(image, image.spec.namespace)
    return image


def has_assumed_namespace(
    volume: PersistentVolume, node: NodeView | None, kube: KubeView | None
) -> bool:
    """Return whether nothing that ceph-csi mapped for a PV shows in which namespace its image is.

    An image of that name in the assumed namespace may then be another one.
    """
    image = volume_image(volume)
    if image is None or image.namespace_by is None:
        return False
    return len(_namespaces_mapped_for(image, volume, node, kube)) != 1


def _namespaces_mapped_for(
    image: ImageIdentity,
    volume: PersistentVolume | None,
    node: NodeView | None,
    kube: KubeView | None,
) -> set[str]:
    return {
        spec.namespace
        for spec in _specs_mapped_for(volume, node, kube)
        if (spec.pool, spec.name) == (image.spec.pool, image.spec.name)
    }


def _specs_mapped_for(
    volume: PersistentVolume | None, node: NodeView | None, kube: KubeView | None
) -> Iterator[ImageSpec]:
    """Yield the images in ceph-csi's stashes, of devices at the PV's paths, and of reports."""
    if volume is None or not isinstance(volume.source, CsiSource):
        return
    handle = volume.source.volume_handle
    for stash in stashes_of(handle, node, driver=volume.source.driver):
        yield stash.spec
    for word in (volume.name, staging_hash(handle)):
        for mapping in node_index(node).directories.devices.get(word, ()):
            if not isinstance(mapping.spec, NotObserved):
                yield mapping.spec
    if kube is not None:
        yield from reported_specs(kube).get(volume.name, ())


def copies_with(fsid: str, ceph: CephView | None) -> tuple[ClusterView, ...]:
    """Return the clusters with an fsid if there are several: one is a copy of the other.

    Nothing that names a cluster by its fsid then shows which of them it means.
    """
    found = tuple(cluster for cluster in ceph_index(ceph).clusters if cluster.fsid == fsid)
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
        for cluster in ceph_index(ceph).clusters
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
    That an image is not in an assumed RADOS namespace is no fact about it.
    """
    found = _views_as_read(image, ceph)
    if image.namespace_by is None:
        return found
    unknown = _unknown_namespace(image)
    return tuple(
        view
        if isinstance(view.presence, NotObserved) or _is_present(view)
        else _unseen(view, unknown)
        for view in found
    )


def _is_present(view: ImageView) -> bool:
    return view.presence is ImagePresence.PRESENT


def _unknown_namespace(image: ImageIdentity) -> NotObserved:
    cluster = foreign_name(image.namespace_by or "")
    spec = image.spec
    where = f"namespace {foreign_name(spec.namespace)}" if spec.namespace else "default namespace"
    listing = "kubectl get configmap -A -o yaml --field-selector metadata.name="
    return NotObserved(
        reason=f"the RADOS namespace of {spec}: it is not in the {where} of its pool, and of a "
        f"static volume, the radosNamespace of its clusterID {cluster} in ceph-csi's configuration "
        "decides, which was not observed",
        hint=f"{listing}ceph-csi-config (Rook: {listing}rook-ceph-csi-config) shows the "
        "radosNamespace; then query POOL/NAMESPACE/IMAGE",
    )


def _unseen(view: ImageView, why: NotObserved) -> ImageView:
    """Return a view of an image that was searched in a namespace in which it need not be."""
    return ImageView(
        spec=view.spec,
        fsid=view.fsid,
        presence=why,
        pool_id=view.pool_id,
        watchers=why,
        lockers=why,
        metadata=why,
        mirrored=why,
        mirror_daemons=why,
    )


def _views_as_read(image: ImageIdentity, ceph: CephView | None) -> tuple[ImageView, ...]:
    by_cluster = [
        _one_of_each(view for view in found if same_image(image, identity_of_view(view)))
        for found in ceph_index(ceph).views_of(image)
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


def fsids_of(image: ImageIdentity, node: NodeView | None, ceph: CephView | None) -> tuple[str, ...]:
    """Return every cluster that has an image of this name, according to Ceph or to a device.

    There may be several if the target names no cluster: equal pool and image names (ceph-csi#520).
    """
    if image.fsid is not None:
        return (image.fsid,)
    seen = {
        view.fsid
        for view in _views_as_read(image, ceph)
        if view.presence is not ImagePresence.GONE or view.image_id is not None
    }
    named = node_index(node).mappings_by_image.get(image.spec.name, ())
    numbered = node_index(node).mappings_by_image_id.get(image.image_id or "", ())
    for mapping in (*named, *numbered):
        mapped = identity_of_mapping(mapping)
        if mapped is not None and mapped.fsid and same_image(image, mapped):
            seen.add(mapped.fsid)
    return tuple(sorted(seen))


def settled_identity(
    image: ImageIdentity,
    volume: PersistentVolume | None,
    node: NodeView | None,
    kube: KubeView | None,
    ceph: CephView | None,
) -> ImageIdentity:
    """Return the identity with its cluster and ids, if exactly one cluster fits.

    If several fit, the fsid stays None: the output then shows the holders of all of them, and no
    image is reported as free.
    """
    image = with_namespace(with_pool_names(image, ceph), volume, node, kube, ceph)
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
