"""The targets of a whole cluster that the rules must judge: all that are not plainly healthy.

This module only selects targets for the rules. It knows no failure, only one healthy state: claim
and PV are bound only to each other, the PV is attached only to the nodes of its pods, the pods run
on healthy nodes, and no object has warning events. The rules judge every target that differs.
"""

from __future__ import annotations

from ipaddress import ip_address, ip_network
from typing import TYPE_CHECKING, Final

from rbdagent.codes import Code
from rbdagent.correlate.holders import is_finished
from rbdagent.correlate.image_identity import same_image, volume_image
from rbdagent.correlate.index import (
    Index,
    Key,
    attachments_about,
    ceph_index,
    clients_in,
    keys_of_volume,
)
from rbdagent.correlate.names import handle_of, key_of, names_of_pv
from rbdagent.correlate.resolve import images_of
from rbdagent.lifecycle.targets import Scope, subjects_of
from rbdagent.model import (
    CsiSource,
    ImageIdentity,
    NotObserved,
    PersistentVolume,
    Pod,
    Target,
    TargetKind,
    Verdict,
    observed_of,
)
from rbdagent.parse.address import spelled
from rbdagent.parse.handle import staging_hash
from rbdagent.verdicts.volume_verdict import may_volume_be_shared

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from rbdagent.model import (
        KubeEvent,
        ObjectRef,
        PersistentVolumeClaim,
        PublishedMapping,
        VolumeAttachment,
    )

_RENAMED: Final = Code.IMAGE_RENAMED
"""In a report, this code means that the pods use another image than the PV names."""
_OF_CONTAINERS: Final = frozenset({"Unhealthy", "BackOff"})
"""Reasons of warning events that do not concern volumes and are frequent in a cluster."""


class Triage:
    """Checks whether targets are healthy; facts that many targets share are computed once."""

    def __init__(self, index: Index) -> None:
        """Read from the indexed snapshot the facts that all checks need."""
        self._whole = index
        self._claims_seen = index.kube.coverage.claims
        self._pods_seen = index.kube.coverage.pods
        self._nodes_seen = index.kube.coverage.nodes()
        self._well = frozenset(_healthy_nodes(index))
        self._own = None if index.snapshot.node is None else index.snapshot.node.node_name
        self._peace: dict[Key, bool] = {}

    def falls_on(self, target: Target) -> bool:
        """Return whether the rules must judge a target."""
        index, key = self._whole, (target.namespace, target.name)
        match target.kind:
            case TargetKind.CLAIM:
                return not self._is_claim_healthy(key)
            case TargetKind.PERSISTENT_VOLUME:
                volume = index.kube.volume_by_name.get(target.name)
                return volume is None or not self._is_volume_healthy(volume)
            case TargetKind.POD:
                pod = index.kube.pod_by_key.get(key)
                return pod is None or not self._is_pod_healthy(pod)
            case _:
                return True

    # Claims and PVs ------------------------------------------------------------------------------

    def _is_claim_healthy(self, key: Key) -> bool:
        """Return whether a claim is healthy; the result is kept for the checks of its pods."""
        known = self._peace.get(key)
        if known is None:
            claim = self._whole.kube.claim_by_key.get(key)
            known = self._peace[key] = claim is not None and self._is_bound_claim_healthy(claim)
        return known

    def _is_bound_claim_healthy(self, claim: PersistentVolumeClaim) -> bool:
        index, key = self._whole, key_of(claim.ref)
        if claim.phase != "Bound" or claim.deleting_since is not None or self._complains(key):
            return False
        kube = index.snapshot.kubernetes
        if kube is None or isinstance(kube.persistent_volumes, NotObserved):
            return all(self._is_user_healthy(user, None) for user in self._users(key))
        volume = index.kube.volume_by_name.get(claim.volume_name or "")
        if volume is None or volume.claim is None or volume.claim.uid != claim.ref.uid:
            return False
        if (claim.requested_bytes or 0) > (volume.capacity_bytes or 0) > 0:
            # It was enlarged, and the PV is not.
            return False
        if 0 < (claim.capacity_bytes or 0) < (claim.requested_bytes or 0):
            # The PV was enlarged too, and the file system is not.
            return False
        is_mutual = key_of(volume.claim) == key
        # No other PV names the claim. _is_volume_at_peace checks that no other claim names its PV.
        is_alone = len(index.kube.volumes_by_claim.get(key, ())) == 1
        return is_mutual and is_alone and self._is_volume_healthy(volume)

    def _is_volume_healthy(self, volume: PersistentVolume) -> bool:
        if volume.deleting_since is not None or not self._is_only_itself(volume):
            return False
        if any(map(self._complains, keys_of_volume(volume))) or self._is_observed_outside_api(
            volume
        ):
            return False
        claims = [
            key_of(claim.ref) for claim in self._whole.kube.claims_by_volume.get(volume.name, ())
        ]
        if volume.claim is None:
            # A free PV is healthy; any other PV that names no claim is not.
            is_attached = any(self._attachments_of(volume))
            return volume.phase == "Available" and not claims and not is_attached
        key = key_of(volume.claim)
        if volume.phase != "Bound" or claims != ([key] if self._claims_seen else []):
            return False
        if self._complains(key):
            return False
        return self._is_use_healthy(volume, self._users(key))

    def _is_only_itself(self, volume: PersistentVolume) -> bool:
        """Return whether no other PV and no inline volume of a pod has its image name or handle."""
        kube = self._whole.kube
        image, handle = self._image(volume), handle_of(volume.source)
        if image is None or len(kube.volumes_by_image.get(image.spec.name, ())) != 1:
            return False
        if handle is not None and (
            len(kube.volumes_by_handle[handle]) != 1 or handle in kube.pods_by_handle
        ):
            return False
        return image.spec.name not in kube.pods_by_image

    def _image(self, volume: PersistentVolume) -> ImageIdentity | None:
        return self._whole.kube.images.get(volume.name)

    def _is_observed_outside_api(self, volume: PersistentVolume) -> bool:
        """Return whether the observed node or Ceph shows the volume: the rules judge that."""
        image, handle = self._image(volume), handle_of(volume.source)
        words = {volume.name}
        words |= {image.spec.name} if image is not None else set()
        words |= {handle[1], staging_hash(handle[1])} if handle is not None else set()
        if not words.isdisjoint(self._whole.node.words):
            return True
        return any(word in views.by_name for views in self._whole.ceph.views for word in words)

    def _is_use_healthy(self, volume: PersistentVolume, users: Iterable[Pod]) -> bool:
        driver = volume.source.driver if isinstance(volume.source, CsiSource) else None
        if not all(self._is_user_healthy(user, driver) for user in users):
            return False
        using = [user for user in users if not is_finished(user)]
        nodes = _nodes_of(using)
        if len(nodes) > 1 and not may_volume_be_shared(volume):
            return False
        if len(using) > 1 and volume.access_modes == ("ReadWriteOncePod",):
            return False
        if self._pods_seen and not self._listing(volume) <= nodes:
            return False
        attachments = tuple(self._attachments_of(volume))
        nodes_attached = {attachment.node_name for attachment in attachments}
        if len(nodes_attached) > 1 and not may_volume_be_shared(volume):
            return False
        return self._is_reported_healthy(volume, nodes) and all(
            self._is_attachment_healthy(attachment, nodes) for attachment in attachments
        )

    def _listing(self, volume: PersistentVolume) -> set[str]:
        """Return the nodes whose status lists the volume as in use or attached."""
        kube = self._whole.kube
        return {
            node.name
            for name in names_of_pv(volume).in_use_names
            for node in (*kube.nodes_using.get(name, ()), *kube.nodes_attaching.get(name, ()))
        }

    def _is_reported_healthy(self, volume: PersistentVolume, nodes: set[str]) -> bool:
        """Return whether agents report it only as in use, and only on the nodes of its pods."""
        known, image = self._whole.reports, self._image(volume)
        reports = [*known.by_volume.get(volume.name, ())]
        reports += [] if image is None else known.by_image.get(image.spec.name, ())
        return all(
            _is_plain_use(report.mapping, volume)
            and report.node.name in nodes
            and known.disputed.isdisjoint(clients_in((report.mapping,)))
            for report in reports
        )

    def suspects(self, node: str, mapping: PublishedMapping, scope: Scope) -> bool:
        """Return whether the report of a mapping may make a target in the scope a suspect.

        Only reports that this returns True for can make :meth:`falls_on` return True. The report of
        an image in use cannot, if no PV has the image or no claim has the PV.
        """
        if mapping.verdict is not Verdict.IN_USE or _RENAMED in mapping.findings:
            return True
        return any(
            scope.namespace in {None, volume.claim.namespace}
            and not (_is_plain_use(mapping, volume) and node in self._nodes_using(volume.claim))
            for volume in self._volumes_of(mapping)
            if volume.claim is not None
        )

    def _volumes_of(self, mapping: PublishedMapping) -> Iterator[PersistentVolume]:
        """Yield the PVs that :meth:`_is_reported_healthy` compares with the report of a mapping."""
        known = self._whole.kube
        named = known.volume_by_name.get(mapping.persistent_volume or "")
        if named is not None:
            yield named
        image = "" if mapping.spec is None else mapping.spec.name
        yield from (volume for volume, _ in known.volumes_by_image.get(image, ()))

    def _nodes_using(self, claim: ObjectRef) -> set[str]:
        return _nodes_of(user for user in self._users(key_of(claim)) if not is_finished(user))

    def _attachments_of(self, volume: PersistentVolume) -> Iterator[VolumeAttachment]:
        return attachments_about(volume, self._whole.kube)

    def _is_attachment_healthy(self, attachment: VolumeAttachment, nodes: set[str]) -> bool:
        if attachment.deleting_since is not None or not attachment.attached:
            return False
        if attachment.attach_error or attachment.detach_error:
            return False
        if attachment.name in self._whole.kube.misnamed_attachments:
            return False
        if attachment.node_name == self._own or not self._is_well(attachment.node_name, None):
            return False
        return attachment.node_name in nodes or not self._pods_seen

    # Pods ----------------------------------------------------------------------------------------

    def _is_pod_healthy(self, pod: Pod) -> bool:
        if pod.inline_images or pod.inline_volumes:
            return False
        claims = ((pod.ref.namespace, name) for name in pod.claims)
        if self._claims_seen and not all(self._is_claim_healthy(key) for key in claims):
            return False
        return self._is_user_healthy(pod, None)

    def _is_user_healthy(self, pod: Pod, driver: str | None) -> bool:
        """Return whether a pod runs on a healthy node, or has finished."""
        if pod.deleting_since is not None or self._complains(key_of(pod.ref)):
            return False
        if is_finished(pod):
            return True
        if pod.phase != "Running" or pod.node_name is None or pod.node_name == self._own:
            return False
        return self._is_well(pod.node_name, driver)

    def _is_well(self, node: str, driver: str | None) -> bool:
        csi = self._whole.kube.csi_nodes.get(node)
        if driver is not None and csi is not None and driver not in csi.drivers:
            return False
        return node in self._well or (
            not self._nodes_seen and node not in self._whole.kube.node_by_name
        )

    def _users(self, key: Key) -> list[Pod]:
        return self._whole.kube.pods_by_claim.get(key, [])

    def _complains(self, key: Key) -> bool:
        return any(
            _is_complaint(event) for event in self._whole.kube.events_by_subject.get(key, ())
        )

    # Order ---------------------------------------------------------------------------------------

    def waits(self, target: Target) -> bool:
        """Return whether a pod of a target is Pending or being deleted: it is judged first."""
        key = (target.namespace, target.name)
        pods = self._users(key) if target.kind is TargetKind.CLAIM else []
        if target.kind is TargetKind.POD:
            pods = [self._whole.kube.pod_by_key[key]]
        return any(pod.phase == "Pending" or pod.deleting_since is not None for pod in pods)


def _is_plain_use(mapping: PublishedMapping, volume: PersistentVolume) -> bool:
    """Return whether an agent reports a device as in use, and of the image that the PV names."""
    if mapping.verdict is not Verdict.IN_USE or _RENAMED in mapping.findings:
        return False
    image, mapped = volume_image(volume), mapping.image
    return image is None or mapped is None or same_image(image, mapped)


def _nodes_of(pods: Iterable[Pod]) -> set[str]:
    return {pod.node_name for pod in pods if pod.node_name}


def _is_complaint(event: KubeEvent) -> bool:
    return event.type == "Warning" and event.reason not in _OF_CONTAINERS


def _healthy_nodes(index: Index) -> Iterable[str]:
    listed, ranges = _blocklisted(index)
    for node in index.kube.node_by_name.values():
        ips = {spelled(ip) for ip in (*node.internal_ips, *dict(node.interface_ips))}
        is_hit = not ips.isdisjoint(listed) or any(_is_within(ip, ranges) for ip in ips)
        if node.ready is True and not node.out_of_service and not is_hit:
            yield node.name


def _blocklisted(index: Index) -> tuple[set[str], list[str]]:
    """Return the addresses and ranges of which at least one client is on a blocklist."""
    entries = [
        entry
        for cluster in ceph_index(index.snapshot.ceph).clusters
        for entry in observed_of(cluster.blocklist)
    ]
    ranges = [entry.network for entry in entries if entry.is_range]
    return {spelled(entry.network) for entry in entries}, ranges


def _is_within(ip: str, ranges: list[str]) -> bool:
    try:
        return any(ip_address(ip) in ip_network(network, strict=False) for network in ranges)
    except ValueError:
        return bool(ranges)


def targets_to_diagnose(index: Index, scope: Scope) -> tuple[Target, ...]:
    """Return the targets that the rules must judge, targets of waiting or ending pods first."""
    suspicion = Triage(index)
    found = [target for target in subjects_of(index, scope).targets if suspicion.falls_on(target)]
    return tuple(sorted(found, key=lambda target: not suspicion.waits(target)))


def images_to_query(index: Index, scope: Scope) -> tuple[ImageIdentity, ...]:
    """Return the images of the suspects in the same order: their watchers are further evidence."""
    found, snapshot = targets_to_diagnose(index, scope), index.snapshot
    images = (images_of(target, snapshot.node, snapshot.kubernetes) for target in found)
    return tuple(dict.fromkeys(image for of_target in images for image in of_target))
