"""The names of an image in Kubernetes: its PVs, claims and handles, and the pods that use them."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING

from msgspec.structs import replace

from rbdagent.correlate.image_identity import (
    by_name,
    may_be_in_another_namespace,
    same_image,
    volume_image,
)
from rbdagent.correlate.index import Key, index_of, kube_index
from rbdagent.correlate.names import VolumeNames, handle_of, key_of
from rbdagent.correlate.views import with_namespace
from rbdagent.model import (
    CsiSource,
    ImageIdentity,
    ImageSpec,
    InTreeRbdSource,
    KubeEvent,
    KubeView,
    Node,
    NotObserved,
    PersistentVolume,
    Pod,
    Snapshot,
    Source,
    Volume,
    VolumeAttachment,
    derived,
    observed_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rbdagent.correlate.index import KubeIndex


def source_not_observed(source: Source, what: str) -> NotObserved:
    """Return a fact as not observed, because its whole source was not observed."""
    reason = source.reason or f"the source is {source.state}"
    return NotObserved(reason=f"{what}: {reason}", hint=source.hint)


def names_of(
    image: ImageIdentity | None, chosen: tuple[PersistentVolume, ...], snapshot: Snapshot
) -> VolumeNames:
    """Return every name of an image; the PVs of the target (``chosen``) come first."""
    kube = index_of(snapshot).kube
    further: set[PersistentVolume] = set()
    open_: set[PersistentVolume] = set()
    if image is not None:
        # A PV never contains an image id: only the name decides.
        for candidate, named in kube.volumes_by_image.get(image.spec.name, ()):
            theirs = with_namespace(
                named, candidate, snapshot.node, snapshot.kubernetes, snapshot.ceph
            )
            if same_image(image, theirs):
                further.add(candidate)
            elif may_be_in_another_namespace(theirs, image) and candidate not in chosen:
                open_.add(candidate)
        # One clusterID leads to one RADOS namespace: that of a PV whose image is known.
        clusters = {_cluster_id(one) for one in (*chosen, *further)} - {""}
        further |= {one for one in open_ if _cluster_id(one) in clusters}
    doubtful = sorted(one.name for one in open_ - further)
    for volume in chosen:
        handle = handle_of(volume.source)
        further |= set(kube.volumes_by_handle.get(handle, ())) if handle is not None else set()
    others = sorted(further.difference(chosen), key=lambda candidate: candidate.name)
    volumes = (*chosen, *others)
    return VolumeNames(
        image=image,
        volumes=volumes,
        claims=frozenset(_claims_of(volumes, kube)),
        former_claims=frozenset(_former_claims_of(volumes, kube)),
        monitors=_monitors_of(image, snapshot),
        handles=frozenset(
            pair for candidate in volumes if (pair := handle_of(candidate.source)) is not None
        ),
        volumes_seen=bool(volumes) or (kube.coverage.volumes(image) and not doubtful),
        may_be_of=tuple(doubtful),
    )


def _cluster_id(volume: PersistentVolume) -> str:
    source = volume.source
    return (source.attribute("clusterID") or "") if isinstance(source, CsiSource) else ""


def names_of_volume(volume: Volume) -> VolumeNames:
    """Return the names of a volume that is already joined, without a search through all PVs."""
    first = () if volume.persistent_volume is None else (volume.persistent_volume,)
    volumes = (*first, *volume.other_volumes)
    claims = {
        (persistent_volume.claim.namespace, persistent_volume.claim.name)
        for persistent_volume in volumes
        if persistent_volume.claim is not None
    }
    if volume.claim is not None:
        claims.add((volume.claim.ref.namespace, volume.claim.ref.name))
    return VolumeNames(
        image=volume.image,
        volumes=volumes,
        claims=frozenset(claims),
        handles=frozenset(
            pair
            for persistent_volume in volumes
            if (pair := handle_of(persistent_volume.source)) is not None
        ),
    )


def was_mapped_for(mapped: ImageIdentity | None, names: VolumeNames) -> bool:
    """Return whether an image has the name in a PV of the volume, whatever its id."""
    fsid = None if names.image is None else names.image.fsid
    if mapped is None or (fsid and mapped.fsid and fsid != mapped.fsid):
        return False
    named = (volume_image(volume) for volume in names.volumes)
    return any(image is not None and same_image(image, mapped) for image in named)


def _claims_of(volumes: Iterable[PersistentVolume], kube: KubeIndex) -> Iterable[Key]:
    """Return the claims that PVs name, and the claims that are bound to them or name a free one.

    A claim that names the PV of another claim proves nothing: a user writes volumeName. Only the PV
    controller sets the phase of a claim to Bound.
    """
    yield from (key_of(volume.claim) for volume in volumes if volume.claim is not None)
    for volume in volumes:
        for claim in kube.claims_by_volume.get(volume.name, ()):
            if volume.claim is None or claim.phase == "Bound":
                yield key_of(claim.ref)


def _former_claims_of(volumes: Iterable[PersistentVolume], kube: KubeIndex) -> Iterable[Key]:
    for volume in volumes:
        for claim in kube.claims_by_volume.get(volume.name, ()):
            if volume.claim is not None and claim.phase == "Lost":
                yield key_of(claim.ref)


def _monitors_of(image: ImageIdentity | None, snapshot: Snapshot) -> frozenset[str]:
    """Return the monitor addresses of an image's cluster; of all clusters if it is unknown."""
    fsid = image.fsid if image is not None else None
    clusters = [
        cluster
        for cluster in index_of(snapshot).ceph.clusters
        if fsid is None or cluster.fsid in {None, fsid}
    ]
    if any(isinstance(cluster.monitors, NotObserved) for cluster in clusters):
        return frozenset()
    found = (daemon for cluster in clusters for daemon in observed_of(cluster.monitors))
    return frozenset(daemon.address.ip for daemon in found)


def _has_run(pod: Pod) -> bool:
    """Return whether a container of a pod runs or ran; kubelet starts none before its volumes."""
    return pod.phase != "Pending" or any(
        container.state in {"running", "terminated"} for container in pod.containers
    )


def _may_be_its_cluster(source: InTreeRbdSource, monitors: frozenset[str]) -> bool:
    """Return whether an inline volume may mean the cluster; a host name may be any address."""
    if not monitors or not source.monitors:
        return True
    addresses = [_ip_of(monitor) for monitor in source.monitors]
    return any(address is None or address in monitors for address in addresses)


def _ip_of(monitor: str) -> str | None:
    """Return the IP of ``10.0.0.1:6789``, ``[fd00::1]:6789`` or a bare IP; None for a host name."""
    host = monitor.strip()
    if host.startswith("["):
        host = host[1:].partition("]")[0]
    elif host.count(":") == 1:
        host = host.partition(":")[0]
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        return None


def users_of(names: VolumeNames, snapshot: Snapshot) -> tuple[Pod, ...]:
    """Return the pods that use the volume, on all nodes."""
    kube = index_of(snapshot).kube
    found = [pod for claim in names.claims for pod in kube.pods_by_claim.get(claim, ())]
    for claim in names.former_claims:
        found += [pod for pod in kube.pods_by_claim.get(claim, ()) if _has_run(pod)]
    for handle in names.handles:
        found += kube.pods_by_handle.get(handle, ())
    if names.image is not None:
        named = kube.pods_by_image.get(names.image.spec.name, ())
        found += [pod for pod in named if _names_it(pod, names.image, names.monitors)]
    return by_name({id(pod): pod for pod in found}.values())


def _names_it(pod: Pod, image: ImageIdentity, monitors: frozenset[str]) -> bool:
    """Return whether a pod has an inline volume with the image."""
    return any(
        same_image(image, ImageIdentity(spec=source.spec, fsid=None))
        and _may_be_its_cluster(source, monitors)
        for source in pod.inline_images
    )


def pods_on(
    node: str | None, names: VolumeNames, snapshot: Snapshot
) -> tuple[Pod, ...] | NotObserved:
    """Return the pods on a node that use the volume; not observed if the list may lack some."""
    kube = snapshot.kubernetes
    if kube is None:
        return source_not_observed(snapshot.sources.kubernetes, "pods")
    if isinstance(kube.pods, NotObserved):
        return kube.pods
    if node is None:
        return NotObserved(reason="pods of this client: its node is unknown")
    found = tuple(pod for pod in users_of(names, snapshot) if pod.node_name == node)
    if found and names.volumes_seen and names.may_be_of:
        # Further pods would not change that the volume is used.
        names = replace(names, may_be_of=())
    doubt = _doubt(node, names, snapshot, kube)
    return NotObserved(reason=doubt) if doubt else found


def _doubt(node: str, names: VolumeNames, snapshot: Snapshot, kube: KubeView) -> str:
    """Return why further pods may use the volume; an empty string if there can be none."""
    if names.may_be_of:
        return f"pods of this image: {other_volume(names)}"
    if not names.volumes_seen:
        return (
            "pods of this image: PersistentVolumes were not observed, so the claim of the image is "
            "unknown"
        )
    coverage = index_of(snapshot).kube.coverage
    if not coverage.pods_on(node) and not coverage.pods_of(names.claims):
        return f"pods on {node}: the list of pods covers {kube.pods_scope} only"
    homeless = _homeless_pod(node, names, index_of(snapshot).kube)
    if homeless is None:
        return ""
    pod, claim = homeless
    return (
        f"pod {pod.ref} on {node} uses claim {claim}, and no PersistentVolume names that claim: "
        "the claim may belong to this image"
    )


def other_volume(names: VolumeNames) -> str:
    """Return why a static PV may be another name of the image."""
    return (
        f"{names.may_be_of[0]} is a static volume with the name of the image, and its RADOS "
        "namespace was not observed, which the radosNamespace of its clusterID in ceph-csi's "
        "configuration decides"
    )


def _homeless_pod(node: str, names: VolumeNames, kube: KubeIndex) -> tuple[Pod, str] | None:
    """Return a pod on the node whose claim has no PV, if the image has no PV either.

    After a PV was deleted by force, nothing leads from the claim to the image.
    """
    if names.volumes:
        return None
    return next(
        (
            (pod, claim)
            for pod in kube.pods_on_node.get(node, ())
            for claim in pod.claims
            if (key := (pod.ref.namespace, claim)) not in kube.volumes_by_claim
            and key not in names.claims
        ),
        None,
    )


def attachments_of(
    names: VolumeNames, snapshot: Snapshot
) -> tuple[VolumeAttachment, ...] | NotObserved:
    """Return the VolumeAttachments of the volume, to all nodes."""
    kube = snapshot.kubernetes
    if kube is None:
        return source_not_observed(snapshot.sources.kubernetes, "VolumeAttachments")
    if isinstance(kube.attachments, NotObserved):
        return kube.attachments
    if not names.volumes_seen and not names.handles:
        return NotObserved(
            reason="VolumeAttachments of this image: PersistentVolumes were not observed"
        )
    index = index_of(snapshot).kube
    every = [
        attachment
        for volume in names.persistent_volumes
        for attachment in index.attachments_by_volume.get(volume, ())
    ]
    for handle in names.attached_handles:
        every += index.attachments_named_after(handle)
    found = [*{id(attachment): attachment for attachment in every}.values()]
    # Of two attachments of one node that differ, the younger comes first: it claims more.
    found.sort(key=lambda entry: entry.created_at or "9", reverse=True)
    return tuple(sorted(found, key=lambda entry: (entry.name, entry.deleting_since or "")))


def attachment_to(
    node: str | None, names: VolumeNames, snapshot: Snapshot
) -> VolumeAttachment | NotObserved | None:
    """Return the attachment to one node."""
    attachments, kube = attachments_of(names, snapshot), snapshot.kubernetes
    if isinstance(attachments, NotObserved):
        return attachments
    if node is None:
        return NotObserved(reason="VolumeAttachment of this client: its node is unknown")
    found = next((attachment for attachment in attachments if attachment.node_name == node), None)
    if found is None and names.may_be_of:
        return NotObserved(reason=f"VolumeAttachment to {node}: {other_volume(names)}")
    if found or kube_index(kube).coverage.attachments(names.attachment_names(node)):
        return found
    return NotObserved(reason=f"VolumeAttachment to {node}: it was not requested")


def node_named(name: str | None, snapshot: Snapshot) -> Node | NotObserved | None:
    """Return the Node object with that name."""
    kube = snapshot.kubernetes
    if kube is None:
        return source_not_observed(snapshot.sources.kubernetes, "nodes")
    if isinstance(kube.nodes, NotObserved):
        return kube.nodes
    if name is None:
        return NotObserved(reason="the client's node is unknown")
    index = kube_index(kube)
    found = index.node_by_name.get(name)
    if found or index.coverage.nodes(name):
        return found
    return NotObserved(reason=f"Node {name}: it was not requested")


def in_volumes_in_use(node: Node | NotObserved | None, names: VolumeNames) -> bool | NotObserved:
    """Return whether the node's status lists the volume: evidence for output, never a condition."""
    return derived(
        node,
        lambda known: known is not None and not names.in_use_names.isdisjoint(known.names_in_use),
    )


def events_in(kube: KubeView | None) -> tuple[KubeEvent, ...]:
    """Return the observed events."""
    return () if kube is None else observed_of(kube.events)


def events_of(
    names: VolumeNames, users: tuple[Pod, ...], snapshot: Snapshot
) -> tuple[KubeEvent, ...]:
    """Return the events about the volume, newest last.

    The events of a deleted pod still exist: they name the PV or the image in their message.
    """
    pods = {(pod.ref.namespace, pod.ref.name) for pod in users}
    texts = names.persistent_volumes | image_texts(names)
    found = [
        event
        for event in events_in(snapshot.kubernetes)
        if (event.kind == "PersistentVolume" and event.subject.name in names.persistent_volumes)
        or (
            event.kind == "PersistentVolumeClaim"
            and (event.subject.namespace, event.subject.name) in names.claims
        )
        or (event.kind == "Pod" and (event.subject.namespace, event.subject.name) in pods)
        or any(text in event.message for text in texts)
    ]
    return oldest_first(found)


def oldest_first(events: Iterable[KubeEvent]) -> tuple[KubeEvent, ...]:
    """Return events in an order that does not depend on the order in which they were read.

    metav1.Time has whole seconds (apimachinery, meta/v1/time.go), so equal times are common. Then
    all other fields decide: a list of all events and one request per object give the same output.
    """
    return tuple(sorted(events, key=_age_order))


def _age_order(event: KubeEvent) -> tuple[str | int, ...]:
    return (
        event.last_seen or "",
        event.reason,
        event.message,
        event.kind,
        event.subject.namespace,
        event.subject.name,
        event.subject.uid or "",
        event.first_seen or "",
        event.type,
        event.reporter,
        event.count,
    )


def image_texts(names: VolumeNames) -> frozenset[str]:
    """Return the name of the image in error messages."""
    spec: ImageSpec | None = names.image.spec if names.image is not None else None
    return frozenset({str(spec)}) if spec is not None and spec.pool else frozenset()
