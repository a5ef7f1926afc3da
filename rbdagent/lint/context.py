"""The input of every check: the cluster as it is and as it would be, and the manifests."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from rbdagent.correlate.image_identity import volume_image
from rbdagent.correlate.index import KubeIndex, by_each, kube_index
from rbdagent.correlate.names import handle_of, key_of
from rbdagent.model import (
    CsiSource,
    KubeView,
    NotObserved,
    PersistentVolume,
    PersistentVolumeClaim,
    Snapshot,
    StorageClass,
    Subject,
    SubjectKind,
    observed_of,
)
from rbdagent.model.lint import ContentManifest, Manifest, Manifests, Surroundings
from rbdagent.parse.handle import composed_handle

if TYPE_CHECKING:
    from collections.abc import Iterator

Json = dict[str, Any]

_MOST_ALIKE: Final = 8
_NO_KUBERNETES = NotObserved(reason="Kubernetes was not observed")


class LintContext(Struct, frozen=True, kw_only=True, dict=True):
    """Holds what the checks read."""

    before: Snapshot
    after: Snapshot
    """With the manifests, see :func:`rbdagent.lint.applied.applied`."""
    around: Surroundings
    manifests: Manifests

    @property
    def kube_before(self) -> KubeIndex:
        """The objects of the cluster as it is."""
        return kube_index(self.before.kubernetes)

    @property
    def kube_after(self) -> KubeIndex:
        """The objects of the cluster as it would be."""
        return kube_index(self.after.kubernetes)

    @property
    def view(self) -> KubeView | NotObserved:
        """The cluster as it would be."""
        return self.after.kubernetes or _NO_KUBERNETES

    @cached_property
    def cluster_ids_in_use(self) -> frozenset[str]:
        """The clusterIDs of PVs and storage classes of the cluster as it is."""
        view = self.before.kubernetes
        classes = () if view is None else observed_of(view.storage_classes)
        sources = (volume.source for volume in self.kube_before.volumes)
        parsed = (
            composed_handle(source.volume_handle)
            for source in sources
            if isinstance(source, CsiSource)
        )
        of_volumes = {handle.cluster_id for handle in parsed if handle is not None}
        return frozenset(of_volumes | {one.cluster_id for one in classes if one.cluster_id})

    @cached_property
    def surplus(self) -> frozenset[str]:
        """The PVs of the manifests beyond a few of one image or handle.

        Each PV is judged with all PVs of its image, which takes the time of their square.
        """
        alike = by_each(
            (volume_image(volume) or handle_of(volume.source), volume.name)
            for _, volume in self.volumes()
        )
        return frozenset(
            name for key, names in alike.items() if key is not None for name in names[_MOST_ALIKE:]
        )

    @cached_property
    def monitors(self) -> dict[str, tuple[str, ...]]:
        """The monitors of each clusterID of ceph-csi; empty if they were not observed."""
        config = self.around.csi_config
        return {} if isinstance(config, NotObserved) else dict(config.clusters)

    @cached_property
    def _namespaces(self) -> dict[str, frozenset[str]]:
        config = self.around.csi_config
        pairs = () if isinstance(config, NotObserved) else config.namespaces
        return {key: frozenset(names) for key, names in by_each(pairs).items()}

    def namespace_of(self, cluster_id: str) -> str | None:
        """Return the RADOS namespace of a clusterID; None if the configuration leaves it open.

        ceph-csi may replace the clusterID of a static volume by one that is mapped to it
        (FetchMappedClusterIDAndMons in internal/util/cluster_mapping.go@52fcb7b).
        """
        config = self.around.csi_config
        found = self._namespaces.get(cluster_id, frozenset())
        if isinstance(config, NotObserved) or len(found) != 1:
            return None
        pairs = (pair for mapping in config.mappings for pair in mapping.clusters)
        return None if any(cluster_id in pair for pair in pairs) else next(iter(found))

    @cached_property
    def _classes_before(self) -> dict[str, StorageClass]:
        view = self.before.kubernetes
        known = () if view is None else observed_of(view.storage_classes)
        return {one.name: one for one in known}

    def class_before(self, name: str) -> StorageClass | None:
        """Return the storage class of the cluster as it is."""
        return self._classes_before.get(name)

    def stored(self, item: Manifest) -> Json | None:
        """Return the object with the name of a manifest, as the API returns it; None if unread."""
        found = self.around.stored.get((item.kind, item.namespace, item.name))
        return None if isinstance(found, NotObserved) else found

    def is_unread(self, item: Manifest) -> bool:
        """Return whether it was not observed if an object with the name of a manifest exists."""
        if isinstance(item.object, PersistentVolume):
            return not self.kube_before.coverage.volumes()
        if isinstance(item.object, PersistentVolumeClaim):
            return not self.kube_before.coverage.claims
        return False

    def volumes(self) -> Iterator[tuple[Manifest, PersistentVolume]]:
        """Yield the PVs of the manifests, as they would be."""
        for item in self.manifests.items:
            if isinstance(item.object, PersistentVolume):
                yield item, self.kube_after.volume_by_name.get(item.name, item.object)

    def claims(self) -> Iterator[tuple[Manifest, PersistentVolumeClaim]]:
        """Yield the claims of the manifests, as they would be."""
        for item in self.manifests.items:
            if isinstance(item.object, PersistentVolumeClaim):
                key = key_of(item.object.ref)
                yield item, self.kube_after.claim_by_key.get(key, item.object)

    def classes(self) -> Iterator[tuple[Manifest, StorageClass]]:
        """Yield the storage classes of the manifests."""
        for item in self.manifests.items:
            if isinstance(item.object, StorageClass):
                yield item, item.object

    def contents(self) -> Iterator[tuple[Manifest, ContentManifest]]:
        """Yield the VolumeSnapshotContents of the manifests."""
        for item in self.manifests.items:
            if isinstance(item.object, ContentManifest):
                yield item, item.object

    def existing(self, item: Manifest) -> PersistentVolume | PersistentVolumeClaim | None:
        """Return the object of the cluster with the name of a manifest."""
        if isinstance(item.object, PersistentVolume):
            return self.kube_before.volume_by_name.get(item.name)
        if isinstance(item.object, PersistentVolumeClaim):
            return self.kube_before.claim_by_key.get(key_of(item.object.ref))
        return None


def subject_of(item: Manifest) -> Subject:
    """Return a manifest as a subject."""
    if isinstance(item.object, PersistentVolumeClaim):
        return Subject.of_claim(item.object.ref)
    if isinstance(item.object, PersistentVolume):
        return Subject.of_pv(item.name)
    kind = (
        SubjectKind.STORAGE_CLASS
        if isinstance(item.object, StorageClass)
        else SubjectKind.SNAPSHOT_CONTENT
    )
    return Subject(kind=kind, name=item.name)
