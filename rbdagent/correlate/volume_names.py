"""The names of an image in Kubernetes: its PVs, claims and handles, and the pods that use them."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING

from msgspec import Struct

from rbdagent.correlate.image_identity import (
    are_pods_observed,
    by_name,
    clusters_of,
    pods_of,
    same_image,
    volume_image,
    volumes_of,
)
from rbdagent.model import (
    CephView,
    CsiSource,
    ImageIdentity,
    ImageSpec,
    InTreeRbdSource,
    KubeEvent,
    KubeView,
    Node,
    NotObserved,
    ObjectRef,
    PersistentVolume,
    PersistentVolumeClaim,
    Pod,
    Snapshot,
    Source,
    Volume,
    VolumeAttachment,
    VolumeSource,
    derived,
    observed_of,
)
from rbdagent.parse.handle import attachment_name, in_use_name, migrated_handle, staging_hash
from rbdagent.parse.volume import DRIVER_SUFFIX

if TYPE_CHECKING:
    from collections.abc import Iterable


class VolumeNames(Struct, frozen=True, kw_only=True):
    """The names of one volume; ``volumes[0]`` is the PV that the output names."""

    image: ImageIdentity | None
    volumes: tuple[PersistentVolume, ...] = ()
    claims: frozenset[tuple[str, str]] = frozenset()
    """Namespace and name of every claim that is bound to a PV of it, or may be bound to one."""
    former_claims: frozenset[tuple[str, str]] = frozenset()
    """Lost claims that name a PV of it that now belongs to another claim: a pod that ran with such
    a claim may still have the volume mounted."""
    monitors: frozenset[str] = frozenset()
    """IP addresses of the monitors of its cluster; empty if they are unknown."""
    handles: frozenset[tuple[str, str]] = frozenset()
    """(driver, volume handle); the driver is empty if only the handle is known."""
    former_volumes: frozenset[str] = frozenset()
    """The names of PVs that the API does not have: of the target, or of kubelet's directories."""
    volumes_seen: bool = True
    """Whether the API returned its PVs, or has none; if not, the owner of the image is unknown."""

    @property
    def persistent_volumes(self) -> frozenset[str]:
        """The names of the PVs."""
        return frozenset(volume.name for volume in self.volumes) | self.former_volumes

    @property
    def volume_handles(self) -> frozenset[str]:
        """The handles without their drivers."""
        return frozenset(handle for _, handle in self.handles)

    @property
    def handle_hashes(self) -> frozenset[str]:
        """The names of the staging directories of the handles."""
        return frozenset(staging_hash(handle) for handle in self.volume_handles)

    @property
    def image_names(self) -> frozenset[str]:
        """The names of the images in the PVs."""
        images = (volume_image(volume) for volume in self.volumes)
        return frozenset(image.spec.name for image in images if image is not None)

    @property
    def in_use_names(self) -> frozenset[str]:
        """The names under which ``node.status.volumesInUse`` lists it."""
        found = {in_use_name(driver, handle) for driver, handle in self.handles}
        found |= {
            f"kubernetes.io/rbd/{volume.source.spec.pool}:{volume.source.spec.name}"
            for volume in self.volumes
            if isinstance(volume.source, InTreeRbdSource)
        }
        return frozenset(found)

    @property
    def attached_handles(self) -> frozenset[tuple[str, str]]:
        """(driver, volume handle) under which it may be attached."""
        return self.handles | {
            (DRIVER_SUFFIX, migrated_handle(source.monitors, source.spec.pool, source.spec.name))
            for source in (volume.source for volume in self.volumes)
            if isinstance(source, InTreeRbdSource)
        }

    def attachment_names(self, node: str) -> frozenset[str]:
        """The names that a VolumeAttachment of it to ``node`` may have."""
        return frozenset(
            attachment_name(handle, driver, node) for driver, handle in self.attached_handles
        )


def source_not_observed(source: Source, what: str) -> NotObserved:
    """Return a fact as not observed, because its whole source was not observed."""
    reason = source.reason or f"the source is {source.state}"
    return NotObserved(reason=f"{what}: {reason}", hint=source.hint)


class VolumeIndex(Struct, frozen=True, kw_only=True):
    """Index of the PVs by image name, handle and name, as a node with many mappings needs."""

    by_image_name: dict[str, tuple[tuple[PersistentVolume, ImageIdentity], ...]]
    by_handle: dict[tuple[str, str], tuple[PersistentVolume, ...]]
    by_name: dict[str | None, PersistentVolume]
    images: dict[str, ImageIdentity]
    """The image of each PV that has a known one, by the name of the PV."""


def index_of(kube: KubeView | None) -> VolumeIndex:
    """Index the observed PVs; every list is in order of their names."""
    by_image: dict[str, list[tuple[PersistentVolume, ImageIdentity]]] = {}
    by_handle: dict[tuple[str, str], list[PersistentVolume]] = {}
    images: dict[str, ImageIdentity] = {}
    volumes = volumes_of(kube)
    for volume in volumes:
        image, handle = volume_image(volume), handle_of(volume.source)
        if image is not None:
            images[volume.name] = image
            by_image.setdefault(image.spec.name, []).append((volume, image))
        if handle is not None:
            by_handle.setdefault(handle, []).append(volume)
    return VolumeIndex(
        by_image_name={name: tuple(found) for name, found in by_image.items()},
        by_handle={handle: tuple(found) for handle, found in by_handle.items()},
        by_name={volume.name: volume for volume in volumes},
        images=images,
    )


def names_of(
    image: ImageIdentity | None,
    chosen: tuple[PersistentVolume, ...],
    kube: KubeView | None,
    index: VolumeIndex | None = None,
    ceph: CephView | None = None,
) -> VolumeNames:
    """Return every name of an image; the PVs of the target (``chosen``) come first."""
    index = index_of(kube) if index is None else index
    further: set[PersistentVolume] = set()
    if image is not None:
        # A PV never contains an image id: only the name decides.
        named = index.by_image_name.get(image.spec.name, ())
        further |= {candidate for candidate, theirs in named if same_image(image, theirs)}
    for volume in chosen:
        handle = handle_of(volume.source)
        further |= set(index.by_handle.get(handle, ())) if handle is not None else set()
    others = sorted(further.difference(chosen), key=lambda candidate: candidate.name)
    volumes = (*chosen, *others)
    return VolumeNames(
        image=image,
        volumes=volumes,
        claims=frozenset(_claims_of(volumes, kube)),
        former_claims=frozenset(_former_claims_of(volumes, kube)),
        monitors=_monitors_of(image, ceph),
        handles=frozenset(
            pair for candidate in volumes if (pair := handle_of(candidate.source)) is not None
        ),
        volumes_seen=bool(volumes) or knows_every_volume_of(image, kube),
    )


def names_of_use(use: Volume) -> VolumeNames:
    """Return the names of a volume that is already joined, without a search through all PVs."""
    first = () if use.persistent_volume is None else (use.persistent_volume,)
    volumes = (*first, *use.other_volumes)
    claims = {
        (volume.claim.namespace, volume.claim.name)
        for volume in volumes
        if volume.claim is not None
    }
    if use.claim is not None:
        claims.add((use.claim.ref.namespace, use.claim.ref.name))
    return VolumeNames(
        image=use.image,
        volumes=volumes,
        claims=frozenset(claims),
        handles=frozenset(
            pair for volume in volumes if (pair := handle_of(volume.source)) is not None
        ),
    )


def was_mapped_for(mapped: ImageIdentity | None, names: VolumeNames) -> bool:
    """Return whether an image has the name in a PV of the volume, whatever its id."""
    fsid = None if names.image is None else names.image.fsid
    if mapped is None or (fsid and mapped.fsid and fsid != mapped.fsid):
        return False
    named = (volume_image(volume) for volume in names.volumes)
    return any(image is not None and same_image(image, mapped) for image in named)


def knows_every_volume_of(image: ImageIdentity | None, kube: KubeView | None) -> bool:
    """Return whether every existing PV of the image was observed."""
    if kube is None or isinstance(kube.persistent_volumes, NotObserved):
        return False
    return kube.volumes_complete or (image is not None and str(image.spec) in kube.searched)


def handle_of(source: VolumeSource) -> tuple[str, str] | None:
    """Return driver and volume handle of a CSI source."""
    return (source.driver, source.volume_handle) if isinstance(source, CsiSource) else None


def _claims_of(
    volumes: Iterable[PersistentVolume], kube: KubeView | None
) -> Iterable[tuple[str, str]]:
    """Return the claims that PVs name, and the claims that are bound to them or name a free one.

    A claim that names the PV of another claim proves nothing: a user writes volumeName. Only the PV
    controller sets the phase of a claim to Bound.
    """
    yield from (key_of(volume.claim) for volume in volumes if volume.claim is not None)
    for claim, volume in _claims_naming(volumes, kube):
        if volume.claim is None or claim.phase == "Bound":
            yield key_of(claim.ref)


def _former_claims_of(
    volumes: Iterable[PersistentVolume], kube: KubeView | None
) -> Iterable[tuple[str, str]]:
    for claim, volume in _claims_naming(volumes, kube):
        if volume.claim is not None and claim.phase == "Lost":
            yield key_of(claim.ref)


def _claims_naming(
    volumes: Iterable[PersistentVolume], kube: KubeView | None
) -> Iterable[tuple[PersistentVolumeClaim, PersistentVolume]]:
    by_name = {volume.name: volume for volume in volumes}
    for claim in () if kube is None else observed_of(kube.claims):
        volume = by_name.get(claim.volume_name or "")
        if volume is not None:
            yield claim, volume


def key_of(ref: ObjectRef) -> tuple[str, str]:
    """Return namespace and name of an object."""
    return (ref.namespace, ref.name)


def _monitors_of(image: ImageIdentity | None, ceph: CephView | None) -> frozenset[str]:
    """Return the monitor addresses of an image's cluster; of all clusters if it is unknown."""
    fsid = image.fsid if image is not None else None
    clusters = [
        cluster for cluster in clusters_of(ceph) if fsid is None or cluster.fsid in {None, fsid}
    ]
    if any(isinstance(cluster.monitors, NotObserved) for cluster in clusters):
        return frozenset()
    found = (daemon for cluster in clusters for daemon in observed_of(cluster.monitors))
    return frozenset(daemon.address.ip for daemon in found)


def claims_of(kube: KubeView | None) -> tuple[PersistentVolumeClaim, ...]:
    """Return the observed claims in order of their names."""
    claims = () if kube is None else observed_of(kube.claims)
    return tuple(sorted(claims, key=lambda claim: (claim.ref.namespace, claim.ref.name)))


def claim_named(key: tuple[str, str], kube: KubeView | None) -> PersistentVolumeClaim | None:
    """Return the observed claim with this namespace and name; None if there is none."""
    claims = () if kube is None else observed_of(kube.claims)
    return next((claim for claim in claims if key_of(claim.ref) == key), None)


def are_claims_observed(kube: KubeView | None) -> bool:
    """Return whether claims were observed; a view of one target has only the claims of it."""
    return kube is not None and not isinstance(kube.claims, NotObserved)


def uses(pod: Pod, names: VolumeNames) -> bool:
    """Return whether a pod uses the volume: by claim, or by an inline volume."""
    claims = [(pod.ref.namespace, claim) for claim in pod.claims]
    if not names.claims.isdisjoint(claims):
        return True
    if not names.former_claims.isdisjoint(claims) and _has_run(pod):
        return True
    if any(handle_of(source) in names.handles for source in pod.inline_volumes):
        return True
    image = names.image
    return image is not None and any(
        same_image(image, ImageIdentity(spec=source.spec, fsid=None))
        and _may_be_its_cluster(source, names.monitors)
        for source in pod.inline_images
    )


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


def users_of(names: VolumeNames, kube: KubeView | None) -> tuple[Pod, ...]:
    """Return the pods that use the volume, on all nodes."""
    pods = () if kube is None else observed_of(kube.pods)
    claims = {name for _, name in names.claims | names.former_claims}
    return by_name(pod for pod in pods if _may_use(pod, claims) and uses(pod, names))


def _may_use(pod: Pod, claims: set[str]) -> bool:
    """Return False for almost all pods: an agent asks this for each pod and each mapping."""
    return bool(pod.inline_volumes or pod.inline_images) or not claims.isdisjoint(pod.claims)


def pods_naming(claim: ObjectRef, kube: KubeView | None) -> tuple[Pod, ...]:
    """Return the pods that name a claim."""
    return tuple(
        pod
        for pod in pods_of(kube)
        if pod.ref.namespace == claim.namespace and claim.name in pod.claims
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
    doubt = _doubt(node, names, kube)
    if doubt:
        return NotObserved(reason=doubt)
    return tuple(pod for pod in users_of(names, kube) if pod.node_name == node)


def _doubt(node: str, names: VolumeNames, kube: KubeView) -> str:
    """Return why further pods may use the volume; an empty string if there can be none."""
    if not names.volumes_seen:
        return (
            "pods of this image: PersistentVolumes were not observed, so the claim of the image is "
            "unknown"
        )
    if not covers(kube, node, names):
        return f"pods on {node}: the list of pods covers {kube.pods_scope} only"
    homeless = _homeless_pod(node, names, kube)
    if homeless is None:
        return ""
    pod, claim = homeless
    return (
        f"pod {pod.ref} on {node} uses claim {claim}, and no PersistentVolume names that claim: "
        "the claim may belong to this image"
    )


def _homeless_pod(node: str, names: VolumeNames, kube: KubeView) -> tuple[Pod, str] | None:
    """Return a pod on the node whose claim has no PV, if the image has no PV either.

    After a PV was deleted by force, nothing leads from the claim to the image.
    """
    if names.volumes:
        return None
    bound = {
        (volume.claim.namespace, volume.claim.name)
        for volume in volumes_of(kube)
        if volume.claim is not None
    }
    return next(
        (
            (pod, claim)
            for pod in pods_of(kube)
            if pod.node_name == node
            for claim in pod.claims
            if (pod.ref.namespace, claim) not in bound | names.claims
        ),
        None,
    )


def covers(kube: KubeView, node: str, names: VolumeNames) -> bool:
    """Return whether the lists of pods contain every pod on ``node`` that may use the volume.

    Lists of namespaces are enough only if the volume has claims and all of them are in these
    namespaces: inline volumes may be in any namespace.
    """
    return knows_every_pod_on(kube, node) or covers_claims(kube, names)


def covers_claims(kube: KubeView, names: VolumeNames) -> bool:
    """Return whether the lists of pods contain every pod, on any node, that may use its claims."""
    if not are_pods_observed(kube):
        return False
    scopes = _scopes(kube)
    namespaces = {claim for claim, _ in names.claims}
    return ("cluster", "") in scopes or (
        bool(namespaces) and all(("namespace", namespace) in scopes for namespace in namespaces)
    )


def knows_every_pod_on(kube: KubeView | None, node: str) -> bool:
    """Return whether a pod on the node that is not in the lists does not exist in the API."""
    if kube is None or not are_pods_observed(kube):
        return False
    scopes = _scopes(kube)
    return ("cluster", "") in scopes or ("node", node) in scopes


def _scopes(kube: KubeView) -> frozenset[tuple[str, str]]:
    """Parse ``node/worker-1,namespace/default``: the lists of pods that were observed."""
    parts = (part.strip().partition("/") for part in kube.pods_scope.split(","))
    return frozenset((kind, name) for kind, _, name in parts)


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
    volumes = names.persistent_volumes
    nodes = {attachment.node_name for attachment in kube.attachments}
    named = {name for node in nodes for name in names.attachment_names(node)}
    found = [
        attachment
        for attachment in kube.attachments
        if attachment.persistent_volume in volumes or attachment.name in named
    ]
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
    if found or (kube is not None and _knows_attachment(names, node, kube)):
        return found
    return NotObserved(reason=f"VolumeAttachment to {node}: it was not requested")


def _knows_attachment(names: VolumeNames, node: str, kube: KubeView) -> bool:
    """Return whether an attachment to a node that was not found is proven not to exist."""
    return kube.attachments_complete or names.attachment_names(node) <= {*kube.searched}


def node_named(name: str | None, snapshot: Snapshot) -> Node | NotObserved | None:
    """Return the Node object with that name."""
    kube = snapshot.kubernetes
    if kube is None:
        return source_not_observed(snapshot.sources.kubernetes, "nodes")
    if isinstance(kube.nodes, NotObserved):
        return kube.nodes
    if name is None:
        return NotObserved(reason="the client's node is unknown")
    found = next((node for node in kube.nodes if node.name == name), None)
    if found or kube.nodes_complete or name in kube.searched:
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


def are_events_observed(kube: KubeView | None) -> bool:
    """Return whether events were observed; only then, an empty result means no event."""
    return kube is not None and not isinstance(kube.events, NotObserved)


def events_of(
    names: VolumeNames, users: tuple[Pod, ...], kube: KubeView | None
) -> tuple[KubeEvent, ...]:
    """Return the events about the volume, newest last.

    The events of a deleted pod still exist: they name the PV or the image in their message.
    """
    pods = {(pod.ref.namespace, pod.ref.name) for pod in users}
    texts = names.persistent_volumes | image_texts(names)
    found = [
        event
        for event in events_in(kube)
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
