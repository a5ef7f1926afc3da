"""Every name by which the node, Ceph and the reports of agents know a target.

The names come before the join: they decide what is requested for it. There may be more of them than
the join uses, and never fewer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from rbdagent.correlate.image_identity import identity_of_mapping
from rbdagent.correlate.index import client_of, index_of
from rbdagent.correlate.node_usage import serving
from rbdagent.correlate.published_reports import entries_named
from rbdagent.correlate.resolve import images_of, target_claims, target_pods, target_volumes
from rbdagent.correlate.volume_names import names_of, users_of
from rbdagent.model import TargetKind, observed_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from rbdagent.correlate.index import ClusterClient, Index
    from rbdagent.correlate.names import VolumeNames
    from rbdagent.model import ImageIdentity, ImageView, Snapshot, Target


class TargetNames(NamedTuple):
    """What a mapping, a watcher or a directory may have in common with a target."""

    volumes: frozenset[str]
    """Names of PVs."""
    handles: frozenset[str]
    """Volume handles, and the hashes that name their staging directories."""
    images: frozenset[str]
    """Names of images."""
    image_ids: frozenset[str]
    """An image that was renamed since it was mapped has its former name on the node, and its id."""
    clients: frozenset[ClusterClient]
    """Clients that watch an image: one mapping of a client proves its node."""
    nodes: frozenset[str]
    """The nodes of its pods."""


def target_names(target: Target, snapshot: Snapshot) -> TargetNames:
    """Return the names of a target."""
    index = index_of(snapshot)
    asked = images_of(target, snapshot.node, snapshot.kubernetes)
    every = [_names_of(target, image, snapshot) for image in asked or (None,)]
    found = [*asked, *(image for names in every for image in _further_images(names, index))]
    images = {image.spec.name for image in found}
    images |= {name for names in every for name in names.image_names}
    image_ids = {image.image_id for image in found if image.image_id}
    views = tuple(_views(images, image_ids, index))
    users = {*target_pods(target, snapshot.kubernetes)}
    users |= {pod for names in every for pod in users_of(names, snapshot)}
    return TargetNames(
        volumes=frozenset(name for names in every for name in names.persistent_volumes),
        handles=frozenset(
            name for names in every for name in names.volume_handles | names.handle_hashes
        ),
        images=frozenset(images),
        image_ids=frozenset(image_ids | {view.image_id for view in views if view.image_id}),
        clients=frozenset(
            (client_of(watcher.client, watcher.address), view.fsid)
            for view in views
            for watcher in (*observed_of(view.watchers), *view.transient_watchers)
        ),
        nodes=frozenset(pod.node_name for pod in users if pod.node_name),
    )


def is_on_observed_node(target: Target, snapshot: Snapshot) -> bool:
    """Return whether the observed node has an object or a pod of a target."""
    node = snapshot.node
    if node is None:
        return False
    found = target_names(target, snapshot)
    words = found.volumes | found.handles | found.images | found.image_ids
    return (
        target.kind is TargetKind.DEVICE
        or node.node_name in found.nodes
        or not words.isdisjoint(index_of(snapshot).node.words)
    )


def _names_of(target: Target, image: ImageIdentity | None, snapshot: Snapshot) -> VolumeNames:
    volumes = target_volumes(target, snapshot.kubernetes)
    names = names_of(image, volumes, snapshot)
    claims = names.claims | {*target_claims(target, snapshot.kubernetes)}
    # Without the addresses of monitors, every inline volume with the image's name counts.
    return replace(names, claims=claims, monitors=frozenset())


def _further_images(names: VolumeNames, index: Index) -> Iterator[ImageIdentity]:
    """Yield the images of devices, here or in reports, that serve a PV or have its image name."""
    for device in serving(names, index.snapshot.node):
        image = identity_of_mapping(device)
        if image is not None:
            yield image
    for entry in entries_named(names, index.reports):
        if entry.mapping.image is not None:
            yield entry.mapping.image


def _views(images: Iterable[str], image_ids: Iterable[str], index: Index) -> Iterator[ImageView]:
    """Yield the views of images by their name, and by the id of any image of that name."""
    for cluster in index.ceph.views:
        named = [view for name in images for _, view in cluster.by_name.get(name, ())]
        numbers = {*image_ids, *(view.image_id for view in named if view.image_id)}
        yield from named
        yield from (view for one in numbers for _, view in cluster.by_id.get(one, ()))
