"""What Kubernetes calls an image: its PVs, claims, handles, and the pods that use them."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING

from msgspec import Struct

from rbdagent.correlate.identity import clusters_of, pods_of, same_image, volume_image, volumes_of
from rbdagent.model import (
    Attachment,
    CephView,
    Claim,
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
    Pod,
    Snapshot,
    Source,
    VolumeSource,
    VolumeUse,
    observed_of,
)
from rbdagent.parse.handle import attachment_name, in_use_name, migrated_handle, staging_hash
from rbdagent.parse.volume import DRIVER_SUFFIX

if TYPE_CHECKING:
    from collections.abc import Iterable


class VolumeNames(Struct, frozen=True, kw_only=True):
    """The names of one volume; ``volumes[0]`` is the PV that the answer speaks of."""

    image: ImageIdentity | None
    volumes: tuple[PersistentVolume, ...] = ()
    claims: frozenset[tuple[str, str]] = frozenset()
    """Namespace and name of every claim that has a PV of it, or may get one."""
    former_claims: frozenset[tuple[str, str]] = frozenset()
    """Lost claims that name a PV of it, which belongs to another claim: a pod that ran with such a
    claim may still have the volume mounted."""
    monitors: frozenset[str] = frozenset()
    """IP addresses of its cluster's monitors; empty where they are not known."""
    handles: frozenset[tuple[str, str]] = frozenset()
    """(driver, volume handle)"""
    volumes_seen: bool = True
    """Whether the API gave its PVs, or had none: else nobody knows whose an image is."""

    @property
    def persistent_volumes(self) -> frozenset[str]:
        """The names of the PVs."""
        return frozenset(each.name for each in self.volumes)

    @property
    def volume_handles(self) -> frozenset[str]:
        """The handles without their drivers."""
        return frozenset(handle for _, handle in self.handles)

    @property
    def handle_hashes(self) -> frozenset[str]:
        """The names of their staging directories."""
        return frozenset(staging_hash(handle) for handle in self.volume_handles)

    @property
    def in_use_names(self) -> frozenset[str]:
        """What ``node.status.volumesInUse`` would list."""
        found = {in_use_name(driver, handle) for driver, handle in self.handles}
        found |= {
            f"kubernetes.io/rbd/{each.source.spec.pool}:{each.source.spec.name}"
            for each in self.volumes
            if isinstance(each.source, InTreeRbdSource)
        }
        return frozenset(found)

    @property
    def attached_handles(self) -> frozenset[tuple[str, str]]:
        """(driver, volume handle) of whatever it may be attached as."""
        return self.handles | {
            (DRIVER_SUFFIX, migrated_handle(source.monitors, source.spec.pool, source.spec.name))
            for source in (each.source for each in self.volumes)
            if isinstance(source, InTreeRbdSource)
        }

    def attachment_names(self, node: str) -> frozenset[str]:
        """The names that a VolumeAttachment of it to ``node`` would have."""
        return frozenset(
            attachment_name(handle, driver, node) for driver, handle in self.attached_handles
        )


def not_given(source: Source, what: str) -> NotObserved:
    """Say that a fact misses because its whole source does."""
    reason = source.reason or f"the source is {source.state}"
    return NotObserved(reason=f"{what}: {reason}", cure=source.cure)


class VolumeIndex(Struct, frozen=True, kw_only=True):
    """The PVs by what joins them: a node with many mappings asks once a mapping."""

    by_image_name: dict[str, tuple[tuple[PersistentVolume, ImageIdentity], ...]]
    by_handle: dict[tuple[str, str], tuple[PersistentVolume, ...]]


def index_of(kube: KubeView | None) -> VolumeIndex:
    """Index the PVs that were seen, each list in order of their names."""
    by_name: dict[str, list[tuple[PersistentVolume, ImageIdentity]]] = {}
    by_handle: dict[tuple[str, str], list[PersistentVolume]] = {}
    for each in volumes_of(kube):
        image, handle = volume_image(each), handle_of(each.source)
        if image is not None:
            by_name.setdefault(image.spec.name, []).append((each, image))
        if handle is not None:
            by_handle.setdefault(handle, []).append(each)
    return VolumeIndex(
        by_image_name={name: tuple(found) for name, found in by_name.items()},
        by_handle={handle: tuple(found) for handle, found in by_handle.items()},
    )


def names_of(
    image: ImageIdentity | None,
    chosen: tuple[PersistentVolume, ...],
    kube: KubeView | None,
    index: VolumeIndex | None = None,
    ceph: CephView | None = None,
) -> VolumeNames:
    """Return every name of an image: ``chosen`` (the target's own PVs) come first."""
    index = index_of(kube) if index is None else index
    further: set[PersistentVolume] = set()
    if image is not None:
        # A PV never knows an image id: its name alone decides.
        named = index.by_image_name.get(image.spec.name, ())
        further |= {each for each, theirs in named if same_image(image, theirs)}
    for each in chosen:
        handle = handle_of(each.source)
        further |= set(index.by_handle.get(handle, ())) if handle is not None else set()
    others = sorted(further.difference(chosen), key=lambda each: each.name)
    volumes = (*chosen, *others)
    return VolumeNames(
        image=image,
        volumes=volumes,
        claims=frozenset(_claims_of(volumes, kube)),
        former_claims=frozenset(_former_claims_of(volumes, kube)),
        monitors=_monitors_of(image, ceph),
        handles=frozenset(pair for each in volumes if (pair := handle_of(each.source)) is not None),
        volumes_seen=bool(volumes) or knows_every_volume_of(image, kube),
    )


def names_of_use(use: VolumeUse) -> VolumeNames:
    """Give the names of a volume that was joined already, without a look at all others."""
    first = () if use.persistent_volume is None else (use.persistent_volume,)
    volumes = (*first, *use.other_volumes)
    claims = {(each.claim.namespace, each.claim.name) for each in volumes if each.claim is not None}
    if use.claim is not None:
        claims.add((use.claim.ref.namespace, use.claim.ref.name))
    return VolumeNames(
        image=use.image,
        volumes=volumes,
        claims=frozenset(claims),
        handles=frozenset(pair for each in volumes if (pair := handle_of(each.source)) is not None),
    )


def knows_every_volume_of(image: ImageIdentity | None, kube: KubeView | None) -> bool:
    """Tell whether a PV of the image that was not seen is a PV that there is not."""
    if kube is None or isinstance(kube.persistent_volumes, NotObserved):
        return False
    return kube.volumes_complete or (image is not None and str(image.spec) in kube.searched)


def handle_of(source: VolumeSource) -> tuple[str, str] | None:
    """Give driver and volume handle of a CSI source."""
    return (source.driver, source.volume_handle) if isinstance(source, CsiSource) else None


def _claims_of(
    volumes: Iterable[PersistentVolume], kube: KubeView | None
) -> Iterable[tuple[str, str]]:
    """Return the claims that PVs name, and those that are bound to them or ask for a free one.

    A claim that names a PV of another claim proves nothing: its user writes volumeName. Only the
    PV controller sets its phase to Bound.
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
) -> Iterable[tuple[Claim, PersistentVolume]]:
    by_name = {volume.name: volume for volume in volumes}
    for claim in () if kube is None else observed_of(kube.claims):
        volume = by_name.get(claim.volume_name or "")
        if volume is not None:
            yield claim, volume


def key_of(ref: ObjectRef) -> tuple[str, str]:
    """Return namespace and name of an object."""
    return (ref.namespace, ref.name)


def _monitors_of(image: ImageIdentity | None, ceph: CephView | None) -> frozenset[str]:
    """Return the monitors' addresses of an image's cluster; of all where that is not known."""
    fsid = image.fsid if image is not None else None
    clusters = [
        cluster for cluster in clusters_of(ceph) if fsid is None or cluster.fsid in {None, fsid}
    ]
    if any(isinstance(cluster.monitors, NotObserved) for cluster in clusters):
        return frozenset()
    found = (daemon for cluster in clusters for daemon in observed_of(cluster.monitors))
    return frozenset(daemon.address.ip for daemon in found)


def claims_of(kube: KubeView | None) -> tuple[Claim, ...]:
    """Give the claims that were seen, in order."""
    if kube is None or isinstance(kube.claims, NotObserved):
        return ()
    return tuple(sorted(kube.claims, key=lambda each: (each.ref.namespace, each.ref.name)))


def uses(pod: Pod, names: VolumeNames) -> bool:
    """Return whether a pod uses the volume: by claim, or by an inline volume."""
    claims = [(pod.ref.namespace, claim) for claim in pod.claims]
    if not names.claims.isdisjoint(claims):
        return True
    if not names.former_claims.isdisjoint(claims) and _has_run(pod):
        return True
    if any(handle_of(each) in names.handles for each in pod.inline_volumes):
        return True
    image = names.image
    return image is not None and any(
        same_image(image, ImageIdentity(spec=source.spec, fsid=None))
        and _may_be_its_cluster(source, names.monitors)
        for source in pod.inline_images
    )


def _has_run(pod: Pod) -> bool:
    """Return whether a container of a pod runs or ran; kubelet starts none without its volumes."""
    return pod.phase != "Pending" or any(
        container.state in {"running", "terminated"} for container in pod.containers
    )


def _may_be_its_cluster(source: InTreeRbdSource, monitors: frozenset[str]) -> bool:
    """Return whether an inline volume may mean the cluster; a monitor's name may be any address."""
    if not monitors or not source.monitors:
        return True
    addresses = [_ip_of(monitor) for monitor in source.monitors]
    return any(address is None or address in monitors for address in addresses)


def _ip_of(monitor: str) -> str | None:
    """Return the address of ``10.0.0.1:6789``, ``[fd00::1]:6789`` or a bare one; None: a name."""
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
    """Give the pods that use the volume, on whichever node."""
    return tuple(each for each in pods_of(kube) if uses(each, names))


def pods_naming(claim: ObjectRef, kube: KubeView | None) -> tuple[Pod, ...]:
    """Give the pods that name a claim."""
    return tuple(
        each
        for each in pods_of(kube)
        if each.ref.namespace == claim.namespace and claim.name in each.claims
    )


def pods_on(
    node: str | None, names: VolumeNames, snapshot: Snapshot
) -> tuple[Pod, ...] | NotObserved:
    """Give the pods on a node that use the volume; not observed where the list cannot hold them."""
    kube = snapshot.kubernetes
    if kube is None:
        return not_given(snapshot.sources.kubernetes, "pods")
    if isinstance(kube.pods, NotObserved):
        return kube.pods
    if node is None:
        return NotObserved(reason="pods of this client: its node is unknown")
    doubt = _doubt(node, names, kube)
    if doubt:
        return NotObserved(reason=doubt)
    return tuple(each for each in users_of(names, kube) if each.node_name == node)


def _doubt(node: str, names: VolumeNames, kube: KubeView) -> str:
    """Say why pods that were seen may not be all that use the volume."""
    if not names.volumes_seen:
        return (
            "pods of this image: PersistentVolumes were not observed, so nobody knows which claim "
            "it belongs to"
        )
    if not covers(kube, node, names):
        return f"pods on {node}: the list of pods covers {kube.pods_scope} only"
    homeless = _homeless_pod(node, names, kube)
    if homeless is None:
        return ""
    pod, claim = homeless
    return (
        f"pod {pod.ref} on {node} uses claim {claim}, which no PersistentVolume refers to any "
        "more: it may be this image's"
    )


def _homeless_pod(node: str, names: VolumeNames, kube: KubeView) -> tuple[Pod, str] | None:
    """Give a pod on the node whose claim has lost its PV, where the image has lost its own.

    A PV that was deleted by force takes the way from the claim to the image with it.
    """
    if names.volumes:
        return None
    bound = {
        (each.claim.namespace, each.claim.name)
        for each in volumes_of(kube)
        if each.claim is not None
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
    """Tell whether the lists of pods hold every pod on ``node`` that could use the volume.

    Lists of namespaces do only for a volume with claims, all of them there: inline volumes may be
    anywhere.
    """
    return knows_every_pod_on(kube, node) or covers_claims(kube, names)


def covers_claims(kube: KubeView, names: VolumeNames) -> bool:
    """Tell whether the lists of pods hold every pod, on any node, that could mount its claims."""
    if isinstance(kube.pods, NotObserved):
        return False
    scopes = _scopes(kube)
    namespaces = {each for each, _ in names.claims}
    return ("cluster", "") in scopes or (
        bool(namespaces) and all(("namespace", each) in scopes for each in namespaces)
    )


def knows_every_pod_on(kube: KubeView | None, node: str) -> bool:
    """Tell whether a uid that the lists of pods lack means a pod that the API lacks."""
    if kube is None or isinstance(kube.pods, NotObserved):
        return False
    scopes = _scopes(kube)
    return ("cluster", "") in scopes or ("node", node) in scopes


def _scopes(kube: KubeView) -> frozenset[tuple[str, str]]:
    """Read ``node/worker-1,namespace/default``: the lists of pods that were observed."""
    parts = (each.strip().partition("/") for each in kube.pods_scope.split(","))
    return frozenset((kind, name) for kind, _, name in parts)


def attachments_of(names: VolumeNames, snapshot: Snapshot) -> tuple[Attachment, ...] | NotObserved:
    """Give the VolumeAttachments of the volume, to whichever node."""
    kube = snapshot.kubernetes
    if kube is None:
        return not_given(snapshot.sources.kubernetes, "VolumeAttachments")
    if isinstance(kube.attachments, NotObserved):
        return kube.attachments
    if not names.volumes_seen and not names.handles:
        return NotObserved(
            reason="VolumeAttachments of this image: PersistentVolumes were not observed"
        )
    volumes = names.persistent_volumes
    nodes = {each.node_name for each in kube.attachments}
    named = {name for node in nodes for name in names.attachment_names(node)}
    found = [
        each for each in kube.attachments if each.persistent_volume in volumes or each.name in named
    ]
    # Of two that say different things of one node, the one that claims more leads: the younger.
    found.sort(key=lambda each: each.created_at or "9", reverse=True)
    return tuple(sorted(found, key=lambda each: (each.name, each.deleting_since or "")))


def attachment_to(
    node: str | None, names: VolumeNames, snapshot: Snapshot
) -> Attachment | NotObserved | None:
    """Give the attachment to one node."""
    attachments, kube = attachments_of(names, snapshot), snapshot.kubernetes
    if isinstance(attachments, NotObserved) or kube is None:
        return attachments if isinstance(attachments, NotObserved) else None
    if node is None:
        return NotObserved(reason="VolumeAttachment of this client: its node is unknown")
    found = next((each for each in attachments if each.node_name == node), None)
    if found or kube.attachments_complete or names.attachment_names(node) <= {*kube.searched}:
        return found
    return NotObserved(reason=f"VolumeAttachment to {node}: it was not asked for")


def node_named(name: str | None, snapshot: Snapshot) -> Node | NotObserved | None:
    """Give the Node object of that name."""
    kube = snapshot.kubernetes
    if kube is None:
        return not_given(snapshot.sources.kubernetes, "nodes")
    if isinstance(kube.nodes, NotObserved):
        return kube.nodes
    if name is None:
        return NotObserved(reason="the client's node is unknown")
    found = next((each for each in kube.nodes if each.name == name), None)
    if found or kube.nodes_complete or name in kube.searched:
        return found
    return NotObserved(reason=f"Node {name}: it was not asked for")


def in_volumes_in_use(node: Node | NotObserved | None, names: VolumeNames) -> bool | NotObserved:
    """Tell whether the node's status lists the volume: evidence to show, never a condition."""
    if isinstance(node, NotObserved):
        return node
    return node is not None and not names.in_use_names.isdisjoint(node.volumes_in_use)


def events_of(
    names: VolumeNames, users: tuple[Pod, ...], kube: KubeView | None
) -> tuple[KubeEvent, ...]:
    """Give the events that regard the volume, newest last.

    A pod that is gone leaves its events behind: they name the PV or the image in their message.
    """
    if kube is None or isinstance(kube.events, NotObserved):
        return ()
    pods = {(each.ref.namespace, each.ref.name) for each in users}
    texts = names.persistent_volumes | image_texts(names)
    found = [
        each
        for each in kube.events
        if (each.kind == "PersistentVolume" and each.subject.name in names.persistent_volumes)
        or (
            each.kind == "PersistentVolumeClaim"
            and (each.subject.namespace, each.subject.name) in names.claims
        )
        or (each.kind == "Pod" and (each.subject.namespace, each.subject.name) in pods)
        or any(text in each.message for text in texts)
    ]
    return oldest_first(found)


def oldest_first(events: Iterable[KubeEvent]) -> tuple[KubeEvent, ...]:
    """Return events in one order that does not depend on the order in which they were read.

    metav1.Time has whole seconds (apimachinery, meta/v1/time.go), so equal times are usual. Then
    all other fields decide: an answer from a list of all events and an answer from one request per
    object are the same.
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
    """Give what an error message would call the image."""
    spec: ImageSpec | None = names.image.spec if names.image is not None else None
    return frozenset({str(spec)}) if spec is not None and spec.pool else frozenset()
