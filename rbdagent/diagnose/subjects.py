"""Whatever of a whole cluster can be asked about: each claim, PV, pod and device once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from rbdagent.correlate.identity import identity_of_mapping, mappings_of, same_image
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

    from rbdagent.correlate.whole import Key, Whole
    from rbdagent.model import Claim, PersistentVolume, Pod, Selector

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
"""What an agent may say of a mapping that is no PV's without anything being stuck."""

_ABSENT: Final = frozenset({"NotIn", "DoesNotExist"})


class Scope(NamedTuple):
    """Whose volumes are asked about."""

    namespace: str | None = None
    """Of the claim or pod; None: of every one, and what belongs to none."""
    selector: Selector = ()
    """On the labels of a claim, or of a pod that uses it."""

    @property
    def is_all(self) -> bool:
        """Whether nobody is left out."""
        return self.namespace is None and not self.selector

    def holds(self, namespace: str, *labels: tuple[tuple[str, str], ...]) -> bool:
        """Tell whether something is within it.

        Args:
            namespace: of it.
            labels: of a claim and of its pods; any may have what is asked for, and none may have
                what is asked not to be there.
        """
        if self.namespace not in {None, namespace}:
            return False
        known = [dict(each) for each in labels]
        return all(
            (all if each.operator in _ABSENT else any)(meets(each, one) for one in known)
            for each in self.selector
        )


EVERYTHING: Final = Scope()


class Subjects(NamedTuple):
    """Whom there is to ask about."""

    targets: tuple[Target, ...]
    claims: int | None
    """How many; None: they were not observed."""
    volumes: int | None
    pods: int | None
    """With volumes."""
    others: int
    """PVs of other drivers: none of ours."""


def subjects_of(whole: Whole, scope: Scope = EVERYTHING) -> Subjects:
    """Give everybody within a scope.

    A PV is asked about by its claim, where both name each other, and a pod by its own name as well:
    it may hang on more than one volume, or on a claim that is not there. PVs of other drivers, and
    who has no other, are left out.
    """
    claims = [each for each in whole.claims.by_key.values() if _is_in_scope(each, whole, scope)]
    claims = [each for each in claims if not _is_of_others(whole, key_of(each.ref))]
    volumes = [each for each in whole.volumes.every if _is_volume_in_scope(each, whole, scope)]
    ours = [each for each in volumes if not isinstance(each.source, OtherSource)]
    pods = [
        each
        for each in whole.pods.by_key.values()
        if _has_volumes(each, whole) and _is_pod_in_scope(each, whole, scope)
    ]
    targets = [_target(TargetKind.CLAIM, each.ref.namespace, each.ref.name) for each in claims]
    targets += [
        Target(given=f"pv/{each.name}", kind=TargetKind.PERSISTENT_VOLUME, name=each.name)
        for each in ours
        if not _is_told_by_its_claim(each, whole)
    ]
    targets += [_target(TargetKind.POD, each.ref.namespace, each.ref.name) for each in pods]
    if scope.is_all:
        targets += [*_devices(whole), *_images(whole)]
    kube = whole.snapshot.kubernetes
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
    return Target(given=f"{kind}/{namespace}/{name}", kind=kind, name=name, namespace=namespace)


def _is_in_scope(claim: Claim, whole: Whole, scope: Scope) -> bool:
    users = whole.pods.of_claim.get(key_of(claim.ref), ())
    return scope.holds(claim.ref.namespace, claim.labels, *(each.labels for each in users))


def _is_pod_in_scope(pod: Pod, whole: Whole, scope: Scope) -> bool:
    claims = (whole.claims.by_key.get((pod.ref.namespace, each)) for each in pod.claims)
    known = (each.labels for each in claims if each is not None)
    return scope.holds(pod.ref.namespace, pod.labels, *known)


def _is_volume_in_scope(volume: PersistentVolume, whole: Whole, scope: Scope) -> bool:
    if scope.is_all:
        return True
    if volume.claim is None:
        return False
    claim = whole.claims.by_key.get(key_of(volume.claim))
    if claim is not None:
        return _is_in_scope(claim, whole, scope)
    return scope.holds(volume.claim.namespace, ())


def _is_told_by_its_claim(volume: PersistentVolume, whole: Whole) -> bool:
    claim = None if volume.claim is None else whole.claims.by_key.get(key_of(volume.claim))
    return claim is not None and claim.volume_name == volume.name


def _is_of_others(whole: Whole, key: Key) -> bool:
    """Tell whether a claim's volume is another driver's."""
    claim = whole.claims.by_key.get(key)
    if claim is None:
        volumes = whole.volumes.by_claim.get(key, [])
    else:
        volume = whole.volumes.by_name.get(claim.volume_name or "")
        volumes = [] if volume is None else [volume]
    return bool(volumes) and all(isinstance(each.source, OtherSource) for each in volumes)


def _has_volumes(pod: Pod, whole: Whole) -> bool:
    if pod.inline_images or pod.inline_volumes:
        return True
    return any(not _is_of_others(whole, (pod.ref.namespace, each)) for each in pod.claims)


# --------------------------------------------------------------------------------------------------
# What is mapped, and is no PV's
# --------------------------------------------------------------------------------------------------


def _devices(whole: Whole) -> Iterator[Target]:
    """Give the devices of the node that looked whose image no PV stands for, one an image."""
    seen: set[ImageIdentity] = set()
    handles = {handle for _, handle in whole.volumes.joins.by_handle}
    for each in mappings_of(whole.snapshot.node):
        image = identity_of_mapping(each)
        if image is None or image in seen or _has_volume(image, whole):
            continue
        if each.nbd is not None and each.nbd.backend in handles:
            continue
        seen.add(image)
        yield Target(given=each.device, kind=TargetKind.DEVICE, name=each.device)


def _images(whole: Whole) -> Iterator[Target]:
    """Give the images that agents of other nodes find fault with, and that no PV stands for."""
    kube = whole.snapshot.kubernetes
    own = None if whole.snapshot.node is None else whole.snapshot.node.node_name
    nodes = () if kube is None else observed_of(kube.published)
    mappings = [one for each in nodes if each.name != own for one in observed_of(each.mappings)]
    specs = dict.fromkeys(each.spec for each in mappings if _is_lost(each, whole))
    for spec in specs:
        if spec is not None:
            yield Target(given=str(spec), kind=TargetKind.IMAGE, image=spec)


def _is_lost(mapping: PublishedMapping, whole: Whole) -> bool:
    image = mapping.image
    if image is None or mapping.verdict in _AT_PEACE:
        return False
    return not _has_volume(image, whole)


def _has_volume(image: ImageIdentity, whole: Whole) -> bool:
    """Tell whether a PV stands for an image; where PVs were not observed, it may."""
    kube = whole.snapshot.kubernetes
    if kube is None or isinstance(kube.persistent_volumes, NotObserved):
        return False
    named = whole.volumes.joins.by_image_name.get(image.spec.name, ())
    return any(same_image(image, theirs) for _, theirs in named)
