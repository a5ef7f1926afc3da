"""The joins by a scan of all lists: what the index must return as well."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rbdagent.correlate.holders import same_client
from rbdagent.correlate.image_identity import identity_of_mapping, same_image, volume_image
from rbdagent.correlate.names import handle_of, key_of
from rbdagent.correlate.node_usage import maps
from rbdagent.correlate.volume_names import was_mapped_for
from rbdagent.model import ImageIdentity, NotObserved, observed_of
from rbdagent.parse.address import same_ip
from rbdagent.parse.kubelet import volume_of_path

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rbdagent.correlate.names import VolumeNames
    from rbdagent.model import (
        KubeView,
        Mapping,
        PersistentVolume,
        Pod,
        PublishedMapping,
        PublishedNode,
        Snapshot,
        VolumeAttachment,
        Watcher,
    )


def kube_of(snapshot: Snapshot) -> KubeView:
    assert snapshot.kubernetes is not None
    return snapshot.kubernetes


def claims_of(volumes: tuple[PersistentVolume, ...], snapshot: Snapshot) -> set[tuple[str, str]]:
    """Return the claims that PVs name, or that are bound to them, or that name a free one."""
    found = {key_of(volume.claim) for volume in volumes if volume.claim is not None}
    for claim in observed_of(kube_of(snapshot).claims):
        for volume in volumes:
            is_ours = volume.claim is None or claim.phase == "Bound"
            if claim.volume_name == volume.name and is_ours:
                found.add(key_of(claim.ref))
    return found


def volumes_of(image: ImageIdentity, snapshot: Snapshot) -> set[PersistentVolume]:
    """Return the PVs of an image."""
    return {
        volume
        for volume in observed_of(kube_of(snapshot).persistent_volumes)
        if (theirs := volume_image(volume)) is not None and same_image(image, theirs)
    }


def users_of(names: VolumeNames, snapshot: Snapshot) -> set[Pod]:
    """Return the pods that use a volume, by a claim or by an inline volume."""
    return {pod for pod in observed_of(kube_of(snapshot).pods) if _uses(pod, names)}


def _uses(pod: Pod, names: VolumeNames) -> bool:
    claims = {(pod.ref.namespace, claim) for claim in pod.claims}
    has_run = pod.phase != "Pending" or any(
        container.state in {"running", "terminated"} for container in pod.containers
    )
    return (
        bool(claims & names.claims)
        or (has_run and bool(claims & names.former_claims))
        or any(handle_of(source) in names.handles for source in pod.inline_volumes)
        or any(
            names.image is not None
            and same_image(names.image, ImageIdentity(spec=source.spec, fsid=None))
            for source in pod.inline_images
        )
    )


def attachments_of(names: VolumeNames, snapshot: Snapshot) -> set[VolumeAttachment]:
    """Return the attachments that name a PV of a volume, or whose name follows from it."""
    return {
        attachment
        for attachment in observed_of(kube_of(snapshot).attachments)
        if attachment.persistent_volume in names.persistent_volumes
        or attachment.name in names.attachment_names(attachment.node_name)
    }


def nodes_at(ip: str, snapshot: Snapshot) -> set[str]:
    """Return the Nodes with an address."""
    return {
        node.name
        for node in observed_of(kube_of(snapshot).nodes)
        if any(same_ip(ip, own) for own in node.internal_ips)
    }


def claimants(watcher: Watcher, fsid: str, snapshot: Snapshot) -> set[str]:
    """Return the nodes that have the client of a watcher, by a report or by a device."""
    node = snapshot.node
    here = () if node is None else observed_of(node.mappings)
    found = {
        report.name
        for report in observed_of(kube_of(snapshot).published)
        for mapping in observed_of(report.mappings)
        if _has_client(mapping, watcher, fsid)
    }
    if node is not None and any(_has_client(mapping, watcher, fsid) for mapping in here):
        found.add(node.node_name)
    return found


def _has_client(mapping: Mapping | PublishedMapping, watcher: Watcher, fsid: str) -> bool:
    return (
        mapping.fsid == fsid
        and mapping.client_address is not None
        and mapping.client_id == watcher.client
        and same_client(mapping.client_address, watcher.address)
    )


def reported_mappings(
    names: VolumeNames, snapshot: Snapshot
) -> Iterator[tuple[str, PublishedMapping]]:
    """Yield the mappings of a volume that agents of other nodes report, in their order."""
    for report in observed_of(kube_of(snapshot).published):
        if not _is_own(report, snapshot):
            for mapping in observed_of(report.mappings):
                if _is_reported_of(mapping, names):
                    yield report.name, mapping


def _is_own(report: PublishedNode, snapshot: Snapshot) -> bool:
    node = snapshot.node
    if node is None or isinstance(node.mappings, NotObserved):
        return False
    return report.name == node.node_name


def _is_reported_of(mapping: PublishedMapping, names: VolumeNames) -> bool:
    image = mapping.image
    if image is not None and names.image is not None and same_image(names.image, image):
        return True
    return mapping.persistent_volume in names.persistent_volumes or was_mapped_for(image, names)


def mapped_here(names: VolumeNames, snapshot: Snapshot) -> set[str]:
    """Return the devices of the observed node that map the image of a volume."""
    node = snapshot.node
    mappings = () if node is None else observed_of(node.mappings)
    return {mapping.device for mapping in mappings if maps(mapping, names)}


def serving(names: VolumeNames, snapshot: Snapshot) -> set[str]:
    """Return the devices that are mounted at a path of a PV, or were mapped by its image's name."""
    node = snapshot.node
    return {
        mapping.device
        for mapping in (() if node is None else observed_of(node.mappings))
        if was_mapped_for(identity_of_mapping(mapping), names) or _is_mounted_for(mapping, names)
    }


def _is_mounted_for(mapping: Mapping, names: VolumeNames) -> bool:
    paths = (
        volume_of_path(mount.path)
        for mount in observed_of(mapping.mounts)
        if mount.namespace.is_host
    )
    return any(
        path is not None
        and (
            path.persistent_volume in names.persistent_volumes
            or (not path.persistent_volume and path.handle_hash in names.handle_hashes)
        )
        for path in paths
    )
