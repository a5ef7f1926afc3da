"""Which objects of a Kubernetes cluster refer to the images of whole pools.

A PV names its image by the uuid in its handle, by imageName, by a static handle, or by the fields
of the in-tree plugin. If a PV leaves open which pool or RADOS namespace it means, it refers to all
images that it may mean: an image must not count as unclaimed because a PV is vague.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec.structs import replace

from rbdagent.correlate.index import by_each
from rbdagent.model import (
    CsiSource,
    ImageIdentity,
    InTreeRbdSource,
    NotObserved,
    OtherSource,
    observed_of,
)
from rbdagent.model.inventory import JournalKey, ListedImage
from rbdagent.parse.csi_image_name import has_name_of_ceph_csi, has_name_of_in_tree, uuids_in
from rbdagent.parse.handle import composed_handle
from rbdagent.parse.volume import image_of, is_static

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from rbdagent.model import PersistentVolume, PersistentVolumeClaim
    from rbdagent.model.inventory import (
        ImageFacts,
        JournalEntry,
        Listing,
        References,
        SnapshotContent,
    )

MOST_FACTS: Final = 1000
"""Maximum of images whose facts are read: each is opened, which takes some milliseconds."""
MOST_SAMPLES: Final = 200
"""Images that PVs refer to, of which the metadata is read: it has the name of this cluster. If
there are more, no cluster name decides whose an image is."""
MOST_LOST: Final = 200
"""Maximum of PVs without an image whose entry in ceph-csi's journal is read."""


Place = tuple[str, int, str, str]
"""Fsid, pool id, namespace and id of an image."""


def place_of(image: ListedImage) -> Place:
    """Return what identifies an image in all clusters."""
    return image.fsid, image.pool_id, image.spec.namespace, image.image_id


class Observed(NamedTuple):
    """All facts about the images of some pools."""

    listing: Listing
    references: References
    facts: Mapping[Place, ImageFacts | NotObserved | None]
    """None for an image that was removed after the pools were listed."""
    renamed: Mapping[Place, Found]


class Found(NamedTuple):
    """An object that refers to an image."""

    reference: str
    """``pv/NAME``, as kubectl names it."""
    reason: str
    """A clause without a subject: ``names it``."""
    is_by_name: bool = False
    """Whether the object names the image itself, not only its uuid or its id."""


class _Named(NamedTuple):
    """An object that names an image, and what it leaves open."""

    found: Found
    pool: str
    """Empty if the object names no pool."""
    pool_id: int | None
    namespace: str | None
    """None if the object leaves it open: the configuration of its clusterID decides."""

    def may_mean(self, image: ListedImage) -> bool:
        """Return whether an image with the name may be the one."""
        is_pool = (
            (not self.pool and self.pool_id is None)
            or self.pool == image.spec.pool
            or self.pool_id == image.pool_id
        )
        return is_pool and self.namespace in {None, image.spec.namespace}


class ImageReferences:
    """The objects of a cluster by the names that lead to images."""

    def __init__(self, references: References) -> None:
        """Index the objects; what was not observed refers to nothing."""
        self._volumes = observed_of(references.volumes)
        contents = observed_of(references.snapshots)
        self._by_name = by_each(
            (name, named)
            for name, named in (
                *_names_of_all(self._volumes),
                *_inline(references),
                *_names_of_contents(contents),
            )
        )
        self._by_uuid = by_each((*_uuids(self._volumes), *_uuids_of_contents(contents)))
        self._volume_names = {volume.name: volume for volume in self._volumes}
        self._claims = {
            claim.ref.uid: claim
            for claim in observed_of(references.claims)
            if claim.ref.uid is not None
        }
        self._contents = {content.name: content for content in contents}
        self._requests = {
            content.snapshot.uid: content
            for content in contents
            if content.snapshot is not None and content.snapshot.uid is not None
        }

    def of(self, image: ListedImage) -> tuple[Found, ...]:
        """Return the objects that name an image, or the uuid in its name."""
        named = self._by_name.get(image.spec.name, ())
        found = [one.found for one in named if one.may_mean(image)]
        found += [one for uuid in uuids_in(image.spec.name) for one in self._by_uuid.get(uuid, ())]
        unique: dict[str, Found] = {}
        for one in found:
            unique.setdefault(one.reference, one)
        return tuple(unique[reference] for reference in sorted(unique))

    def volume(self, name: str) -> PersistentVolume | None:
        """Return the PV with a name."""
        return self._volume_names.get(name)

    def content(self, name: str) -> SnapshotContent | None:
        """Return the VolumeSnapshotContent with a name."""
        return self._contents.get(name)

    def claim_of_request(self, request: str) -> PersistentVolumeClaim | None:
        """Return the claim for which a sidecar requested a volume, ``pvc-UID`` by default."""
        return self._claims.get(_last_uuid(request) or "")

    def content_of_request(self, request: str) -> SnapshotContent | None:
        """Return the VolumeSnapshotContent for which a sidecar requested ``snapshot-UID``."""
        return self._requests.get(_last_uuid(request) or "")

    def lost(self, listing: Listing) -> tuple[PersistentVolume, ...]:
        """Return the PVs of RBD whose image is in none of the listed pools, in order of the names.

        PVs of a pool that is not listed completely, or not at all, are not among them.
        """
        complete = [pool for pool in listing.pools if pool.is_complete]
        names = {image.spec.name for pool in complete for image in observed_of(pool.images)}
        uuids = {uuid for name in names for uuid in uuids_in(name)}
        pools = {pool.pool for pool in complete} | {pool.pool_id for pool in complete}
        found = []
        for volume in self._volumes:
            identity = image_of(volume)
            if not isinstance(identity, ImageIdentity):
                continue
            is_listed = identity.spec.pool in pools or identity.pool_id in pools
            uuid = _uuid_of(volume)
            if is_listed and identity.spec.name not in names and uuid not in uuids:
                found.append(volume)
        return tuple(sorted(found, key=lambda volume: volume.name))


def _names_of_all(volumes: Iterable[PersistentVolume]) -> Iterator[tuple[str, _Named]]:
    for volume in volumes:
        for name, pool, pool_id, namespace in _names_of(volume):
            yield (
                name,
                _Named(
                    Found(f"pv/{volume.name}", "names it", is_by_name=True),
                    pool,
                    pool_id,
                    namespace,
                ),
            )


def _names_of(
    volume: PersistentVolume,
) -> Iterator[tuple[str, str, int | None, str | None]]:
    """Yield image name, pool, pool id and namespace of the images that a PV may mean."""
    source = volume.source
    identity = image_of(volume)
    if isinstance(identity, ImageIdentity):
        spec = identity.spec
        is_open = isinstance(source, CsiSource) and (
            not spec.namespace or identity.namespace_by is not None
        )
        yield spec.name, spec.pool, identity.pool_id, None if is_open else spec.namespace
    if isinstance(source, CsiSource):
        # With staticVolume, the handle is the name; without it, imageName is.
        pool = source.attribute("pool") or ""
        namespace = None if is_static(source) else source.attribute("radosNamespace") or None
        for name in (source.volume_handle, source.attribute("imageName")):
            if name:
                yield name, pool, None, namespace
    elif isinstance(source, OtherSource):
        if source.image is not None:
            yield source.image.name, source.image.pool, None, source.image.namespace or None
        if source.volume_handle:
            # A driver of RBD under another name, and a static PV without imageFeatures.
            yield source.volume_handle, "", None, None


def _inline(references: References) -> Iterator[tuple[str, _Named]]:
    for volume in observed_of(references.inline):
        spec = volume.source.spec
        found = Found(f"pod/{volume.pod}", "names it in its volumes, without a PV", is_by_name=True)
        yield spec.name, _Named(found, spec.pool, None, spec.namespace)


def _uuids(volumes: Iterable[PersistentVolume]) -> Iterator[tuple[str, Found]]:
    for volume in volumes:
        uuid = _uuid_of(volume)
        if uuid is not None:
            yield uuid, Found(f"pv/{volume.name}", "has its uuid in the volume handle")


def _uuid_of(volume: PersistentVolume) -> str | None:
    """Return the uuid that the handle of a PV ends in; the id of a Ceph cluster may precede it."""
    source = volume.source
    handle = None if isinstance(source, InTreeRbdSource) else source.volume_handle
    return None if handle is None else _last_uuid(handle)


def _last_uuid(handle: str) -> str | None:
    composed = composed_handle(handle)
    if composed is not None:
        return composed.uuid
    found = uuids_in(handle)
    return found[-1] if found else None


def _uuids_of_contents(contents: Iterable[SnapshotContent]) -> Iterator[tuple[str, Found]]:
    """Yield the uuids of snapshots, and of the volumes of which a snapshot does not exist yet.

    The driver needs the volume until then (CreateSnapshot); its PV may be deleted before that.
    """
    for content in contents:
        handle, kind = content.handle or content.volume_handle or "", "snapshot"
        if not content.handle:
            kind = "volume"
        uuid = _last_uuid(handle)
        if uuid is not None:
            reference = f"volumesnapshotcontent/{content.name}"
            yield uuid, Found(reference, f"has its uuid in the {kind} handle")


def _names_of_contents(contents: Iterable[SnapshotContent]) -> Iterator[tuple[str, _Named]]:
    """Yield the volume handles of contents without a snapshot: that of a static PV is a name."""
    for content in contents:
        if content.volume_handle and not content.handle:
            found = Found(
                f"volumesnapshotcontent/{content.name}",
                "names it in its volume handle",
                is_by_name=True,
            )
            yield content.volume_handle, _Named(found, "", None, None)


# --------------------------------------------------------------------------------------------------
# What to read next
# --------------------------------------------------------------------------------------------------


class FactsToRead(NamedTuple):
    """Holds the images and journal entries to read, and why the others are not read."""

    images: tuple[ListedImage, ...]
    journal: tuple[JournalKey, ...]
    left_out: frozenset[ListedImage]


def facts_to_read(listing: Listing, known: ImageReferences) -> FactsToRead:
    """Return the images that nothing refers to, a few others, and the entries of lost PVs.

    Of too many images, those with a name of ceph-csi come first: another program's image is never
    unclaimed.
    """
    images = listed_images(listing)
    referred = {image for image in images if known.of(image)}
    wanted = sorted(
        (image for image in images if image not in referred),
        key=lambda image: not _has_known_name(image.spec.name),
    )
    samples = [image for image in images if image in referred and image.trash is None]
    return FactsToRead(
        images=(*wanted[:MOST_FACTS], *samples[:MOST_SAMPLES]),
        journal=tuple(_journal_keys(listing, known))[:MOST_LOST],
        left_out=frozenset(wanted[MOST_FACTS:]),
    )


def listed_images(listing: Listing) -> tuple[ListedImage, ...]:
    """Return all images of a listing, in its order."""
    return tuple(image for pool in listing.pools for image in observed_of(pool.images))


def _has_known_name(name: str) -> bool:
    return has_name_of_ceph_csi(name) or has_name_of_in_tree(name)


def _journal_keys(listing: Listing, known: ImageReferences) -> Iterator[JournalKey]:
    """Yield where the entries of PVs may be whose image is not found: it may have another name."""
    for volume in known.lost(listing):
        uuid, identity = _uuid_of(volume), image_of(volume)
        if uuid is None or not isinstance(identity, ImageIdentity):
            continue
        for pool in listing.pools:
            if pool.pool == identity.spec.pool or pool.pool_id == identity.pool_id:
                yield JournalKey(pool=replace(pool, images=(), gaps=()), uuid=uuid)


def renamed_images(
    listing: Listing,
    known: ImageReferences,
    entries: Mapping[JournalKey, JournalEntry | NotObserved | None],
) -> dict[Place, Found]:
    """Return the PVs whose image has another name now, by cluster, pool, namespace and image id.

    Args:
        listing: the listed images.
        known: the objects of Kubernetes.
        entries: the entries of ceph-csi's journal that were read.
    """
    by_uuid = {_uuid_of(volume): volume for volume in known.lost(listing)}
    found = {}
    for key, entry in entries.items():
        volume = by_uuid.get(key.uuid)
        if volume is None or entry is None or isinstance(entry, NotObserved) or not entry.image_id:
            continue
        reason = f"has it under another name: the id is in ceph-csi's journal ({entry.object_name})"
        place = key.pool.fsid, key.pool.pool_id, key.pool.namespace, entry.image_id
        found[place] = Found(f"pv/{volume.name}", reason)
    return found
