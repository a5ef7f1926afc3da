"""The reports of agents on other nodes about a volume, and how far a report is reliable."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from rbdagent.correlate.image_identity import same_image
from rbdagent.correlate.index import index_of
from rbdagent.correlate.volume_names import was_mapped_for
from rbdagent.model import NotObserved, PublishedMapping, PublishedNode, Snapshot, observed_of
from rbdagent.parse import labels
from rbdagent.parse.labels import Lookup
from rbdagent.parse.times import age

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from rbdagent.correlate.index import PublishedEntry, ReportIndex
    from rbdagent.correlate.names import VolumeNames
    from rbdagent.model import ImageView

STALE: Final = timedelta(minutes=10)
"""Two heartbeats of an agent: an older report does not show the present state."""

SKEW: Final = timedelta(minutes=1)
"""If a report is further in the future than this, its clock proves nothing about its age."""


def is_fresh(report: PublishedNode, now: str) -> bool:
    """Return whether a report shows the mappings of its node at ``now``."""
    since = age(report.observed_at, now)
    return since is not None and -SKEW <= since <= STALE


def reported_mappings(
    names: VolumeNames, snapshot: Snapshot
) -> Iterator[tuple[PublishedNode, PublishedMapping]]:
    """Yield the mappings of the image that agents of other nodes report, fresh or stale."""
    reports = index_of(snapshot).reports
    found = entries_named(names, reports)
    if names.image is not None and names.image.image_id:
        found += reports.by_image_id.get(names.image.image_id, ())
    for entry in sorted({entry[:2]: entry for entry in found}.values(), key=lambda one: one[:2]):
        if reports.is_of_another(entry.node) and _is_mapping_of(entry.mapping, names):
            yield entry.node, entry.mapping


def entries_named(names: VolumeNames, reports: ReportIndex) -> list[PublishedEntry]:
    """Return the reported mappings that name a PV of the volume, or have the name of its image."""
    found = [
        entry for name in names.persistent_volumes for entry in reports.by_volume.get(name, ())
    ]
    images = names.image_names | (frozenset() if names.image is None else {names.image.spec.name})
    return found + [entry for name in images for entry in reports.by_image.get(name, ())]


def moved_mappings(
    names: VolumeNames, snapshot: Snapshot
) -> Iterator[tuple[PublishedNode, PublishedMapping]]:
    """Yield the reported mappings that may be of an image whose pool was renamed."""
    reports = index_of(snapshot).reports
    number = None if names.image is None else names.image.image_id
    for entry in reports.by_image_id.get(number or "", ()):
        if reports.is_of_another(entry.node) and may_have_moved(entry.mapping, names):
            yield entry.node, entry.mapping


def lookup_of(names: VolumeNames) -> Lookup:
    """Return how to find the RBDMappings that may be of a volume.

    The image of a device may be unknown to its agent; then the device may have any image.
    """
    if names.image is None:
        return Lookup((), labels.selectors(labels.VOLUME, names.persistent_volumes))
    of_image = lookup_of_image(names.image.spec.name)
    # A device that serves the PV may be of another image than the one in the PV.
    volumes = sorted(names.persistent_volumes)
    return Lookup(
        (*of_image.node_labels, *(labels.image_label(labels.volume_key(one)) for one in volumes)),
        (*of_image.selectors, *labels.selectors(labels.VOLUME, volumes)),
    )


def lookup_of_image(name: str) -> Lookup:
    """Return how to find the RBDMappings that may be of the image with this name."""
    keys = sorted({*labels.image_keys(name, None), labels.UNKNOWN_IMAGE})
    return Lookup(
        tuple(map(labels.image_label, keys)),
        labels.selectors(labels.IMAGE, (name, labels.UNKNOWN_IMAGE)),
    )


def further_lookup(views: Iterable[ImageView], known: Iterable[PublishedMapping]) -> Lookup:
    """Return how to find the RBDMappings that only the answer of Ceph leads to.

    An image that was renamed since it was mapped has its old name on the node, and its id. The
    client of a watcher leads to the node of the watcher, by any mapping of that client.
    """
    views = tuple(views)
    clients = {mapping.client_id for mapping in known}
    watching = {
        watcher.client
        for view in views
        for watcher in (*observed_of(view.watchers), *view.transient_watchers)
    }
    ids = {view.image_id for view in views if view.image_id}
    unknown_clients = {str(client) for client in watching - clients}
    return Lookup(
        (
            *sorted(labels.image_label(labels.id_key(one)) for one in ids),
            *sorted(map(labels.client_label, unknown_clients)),
        ),
        (
            *labels.selectors(labels.IMAGE_ID, ids),
            *labels.selectors(labels.CLIENT, unknown_clients),
        ),
    )


def keys_of(names: VolumeNames, views: Iterable[ImageView]) -> frozenset[str]:
    """Return the keys by which RBDNodes name a volume and its image, with every possible id."""
    keys = frozenset(map(labels.volume_key, names.persistent_volumes | names.volume_handles))
    if names.image is None:
        return keys
    ids = {names.image.image_id, *(view.image_id for view in views)}
    return keys.union(*(labels.image_keys(names.image.spec.name, one) for one in ids))


def reduced_to(report: PublishedNode, names: VolumeNames) -> PublishedNode:
    """Return a report reduced to one volume, because the reports of a large cluster are large.

    The result has the mappings that are or may be of the volume, the devices whose image is
    unknown, and one mapping per client, which shows the node of a watcher's client.
    """
    if isinstance(report.mappings, NotObserved):
        return report
    clients = {(mapping.fsid, mapping.client_id): mapping for mapping in report.mappings}
    ours = {id(mapping) for mapping in clients.values()}
    return replace(
        report,
        mappings=tuple(
            mapping
            for mapping in report.mappings
            if mapping.image is None
            or id(mapping) in ours
            or _is_mapping_of(mapping, names)
            or may_have_moved(mapping, names)
        ),
    )


def _is_mapping_of(mapping: PublishedMapping, names: VolumeNames) -> bool:
    """Return whether a mapping is of the image, or of another image and of a PV of the volume."""
    image = mapping.image
    if image is not None and names.image is not None and same_image(names.image, image):
        return True
    return mapping.persistent_volume in names.persistent_volumes or was_mapped_for(image, names)


def may_have_moved(mapping: PublishedMapping, names: VolumeNames) -> bool:
    """Return whether a mapping may be of an image whose pool was renamed since it was mapped.

    The node then still shows the former name of the pool. Ids of images are unique in a pool only:
    an equal name and an equal id in two pools are most likely one image.
    """
    image, ours = mapping.image, names.image
    if image is None or ours is None or image.image_id is None or same_image(ours, image):
        return False
    same_cluster = not (image.fsid and ours.fsid) or image.fsid == ours.fsid
    return same_cluster and image.image_id == ours.image_id and image.spec.name == ours.spec.name


def is_nbd(mapping: PublishedMapping) -> bool:
    """Return whether a report names an rbd-nbd device."""
    return mapping.device.startswith("/dev/nbd")
