"""All possible targets in a whole cluster: each claim, PV, pod and device once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from rbdagent.correlate.image_identity import identity_of_mapping, mappings_of, same_image
from rbdagent.correlate.names import key_of
from rbdagent.model import (
    ImageIdentity,
    NotObserved,
    OtherSource,
    PublishedMapping,
    Target,
    TargetKind,
    Verdict,
    observed_of,
)
from rbdagent.parse.selector import meets

if TYPE_CHECKING:
    from collections.abc import Iterator, Sized

    from rbdagent.correlate.index import Index, Key
    from rbdagent.model import PersistentVolume, PersistentVolumeClaim, Pod, Selector

_AT_PEACE: Final = frozenset(
    {
        Verdict.IN_USE,
        Verdict.STAGED,
        Verdict.SHARED,
        Verdict.FREE,
        Verdict.FOREIGN,
        Verdict.UNDETERMINED,
    }
)
"""Verdicts of an agent on a mapping without a PV that do not show anything stuck."""

_ABSENT: Final = frozenset({"NotIn", "DoesNotExist"})


class Scope(NamedTuple):
    """The part of a cluster whose volumes are targets."""

    namespace: str | None = None
    """Namespace of the claim or pod; None: all namespaces, and volumes that belong to none."""
    selector: Selector = ()
    """Label selector for a claim, or for a pod that uses it."""

    @property
    def is_all(self) -> bool:
        """Whether the scope excludes nothing."""
        return self.namespace is None and not self.selector

    def holds(self, namespace: str, *labels: tuple[tuple[str, str], ...]) -> bool:
        """Return whether an object is in the scope.

        Args:
            namespace: the namespace of the object.
            labels: the labels of a claim and of its pods. One of them must meet a requirement, but
                all must meet NotIn and DoesNotExist.
        """
        if self.namespace not in {None, namespace}:
            return False
        known = [dict(pairs) for pairs in labels]
        return all(
            (all if requirement.operator in _ABSENT else any)(
                meets(requirement, one) for one in known
            )
            for requirement in self.selector
        )


EVERYTHING: Final = Scope()


class Subjects(NamedTuple):
    """The targets in a scope, and the number of objects."""

    targets: tuple[Target, ...]
    claims: int | None
    """Number of claims; None: claims were not observed."""
    volumes: int | None
    pods: int | None
    """Number of pods with volumes."""
    others: int
    """Number of PVs of other drivers, which are not targets."""


def subjects_of(index: Index, scope: Scope = EVERYTHING) -> Subjects:
    """Return all targets in a scope.

    The claim is the target for a PV if both name each other. A pod is a target as well: it may
    depend on several volumes, or on a claim that does not exist. PVs of other drivers are left out,
    and so are claims and pods that have only such PVs.
    """
    claims = [
        claim for claim in index.kube.claim_by_key.values() if _is_in_scope(claim, index, scope)
    ]
    claims = [claim for claim in claims if not _is_of_others(index, key_of(claim.ref))]
    volumes = [volume for volume in index.kube.volumes if _is_volume_in_scope(volume, index, scope)]
    ours = [volume for volume in volumes if not isinstance(volume.source, OtherSource)]
    pods = [
        pod
        for pod in index.kube.pod_by_key.values()
        if _has_volumes(pod, index) and _is_pod_in_scope(pod, index, scope)
    ]
    targets = [_target(TargetKind.CLAIM, claim.ref.namespace, claim.ref.name) for claim in claims]
    targets += [
        Target(argument=f"pv/{volume.name}", kind=TargetKind.PERSISTENT_VOLUME, name=volume.name)
        for volume in ours
        if not _is_reported_by_its_claim(volume, index)
    ]
    targets += [_target(TargetKind.POD, pod.ref.namespace, pod.ref.name) for pod in pods]
    if scope.is_all:
        targets += [*_devices(index), *_images(index)]
    kube = index.snapshot.kubernetes
    return Subjects(
        targets=tuple(targets),
        claims=_counted(claims, None if kube is None else kube.claims),
        volumes=_counted(ours, None if kube is None else kube.persistent_volumes),
        pods=_counted(pods, None if kube is None else kube.pods),
        others=len(volumes) - len(ours),
    )


def _counted(found: Sized, listed: Sized | NotObserved | None) -> int | None:
    return None if listed is None or isinstance(listed, NotObserved) else len(found)


def _target(kind: TargetKind, namespace: str, name: str) -> Target:
    return Target(argument=f"{kind}/{namespace}/{name}", kind=kind, name=name, namespace=namespace)


def _is_in_scope(claim: PersistentVolumeClaim, index: Index, scope: Scope) -> bool:
    users = index.kube.pods_by_claim.get(key_of(claim.ref), ())
    return scope.holds(claim.ref.namespace, claim.labels, *(user.labels for user in users))


def _is_pod_in_scope(pod: Pod, index: Index, scope: Scope) -> bool:
    claims = (index.kube.claim_by_key.get((pod.ref.namespace, name)) for name in pod.claims)
    known = (claim.labels for claim in claims if claim is not None)
    return scope.holds(pod.ref.namespace, pod.labels, *known)


def _is_volume_in_scope(volume: PersistentVolume, index: Index, scope: Scope) -> bool:
    if scope.is_all:
        return True
    if volume.claim is None:
        return False
    claim = index.kube.claim_by_key.get(key_of(volume.claim))
    if claim is not None:
        return _is_in_scope(claim, index, scope)
    return scope.holds(volume.claim.namespace, ())


def _is_reported_by_its_claim(volume: PersistentVolume, index: Index) -> bool:
    claim = None if volume.claim is None else index.kube.claim_by_key.get(key_of(volume.claim))
    return claim is not None and claim.volume_name == volume.name


def _is_of_others(index: Index, key: Key) -> bool:
    """Return whether the volume of a claim belongs to another driver."""
    claim = index.kube.claim_by_key.get(key)
    if claim is None:
        volumes = index.kube.volumes_by_claim.get(key, [])
    else:
        volume = index.kube.volume_by_name.get(claim.volume_name or "")
        volumes = [] if volume is None else [volume]
    return bool(volumes) and all(isinstance(volume.source, OtherSource) for volume in volumes)


def _has_volumes(pod: Pod, index: Index) -> bool:
    if pod.inline_images or pod.inline_volumes:
        return True
    return any(not _is_of_others(index, (pod.ref.namespace, name)) for name in pod.claims)


# --------------------------------------------------------------------------------------------------
# Mapped images without a PV
# --------------------------------------------------------------------------------------------------


def _devices(index: Index) -> Iterator[Target]:
    """Yield the devices of the observed node whose image has no PV, one device for each image."""
    seen: set[ImageIdentity] = set()
    handles = {handle for _, handle in index.kube.volumes_by_handle}
    for mapping in mappings_of(index.snapshot.node):
        image = identity_of_mapping(mapping)
        if image is None or image in seen or _has_volume(image, index):
            continue
        if mapping.nbd is not None and mapping.nbd.backend in handles:
            continue
        seen.add(image)
        yield Target(argument=mapping.device, kind=TargetKind.DEVICE, name=mapping.device)


def _images(index: Index) -> Iterator[Target]:
    """Yield the images without a PV for which agents of other nodes report an unhealthy verdict."""
    kube = index.snapshot.kubernetes
    own = None if index.snapshot.node is None else index.snapshot.node.node_name
    nodes = () if kube is None else observed_of(kube.published)
    mappings = [one for node in nodes if node.name != own for one in observed_of(node.mappings)]
    specs = dict.fromkeys(mapping.spec for mapping in mappings if _is_lost(mapping, index))
    for spec in specs:
        if spec is not None:
            yield Target(argument=str(spec), kind=TargetKind.IMAGE, image=spec)


def _is_lost(mapping: PublishedMapping, index: Index) -> bool:
    image = mapping.image
    if image is None or mapping.verdict in _AT_PEACE:
        return False
    return not _has_volume(image, index)


def _has_volume(image: ImageIdentity, index: Index) -> bool:
    """Return whether an observed PV names the image; False also if PVs were not observed."""
    named = index.kube.volumes_by_image.get(image.spec.name, ())
    return any(same_image(image, theirs) for _, theirs in named)
