"""RBD4xx: attaching, and what the events mean."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rbdagent.commands import command, kubectl
from rbdagent.correlate.names import handle_of
from rbdagent.correlate.use import further_volumes
from rbdagent.diagnose.binding import describe_volume, retain
from rbdagent.diagnose.case import Case, finding
from rbdagent.diagnose.target import volumes_of_use
from rbdagent.model import (
    CsiSource,
    Finding,
    InTreeRbdSource,
    NotObserved,
    OtherSource,
    PersistentVolume,
    Severity,
    TargetKind,
    observed_of,
)
from rbdagent.parse.volume import NVMEOF_SUFFIX, image_of

if TYPE_CHECKING:
    from collections.abc import Iterator


def duplicate_handle(case: Case) -> Iterator[Finding]:
    """RBD411: two PVs that kubelet takes for one."""
    by_handle: dict[tuple[str, str], list[PersistentVolume]] = {}
    for each in volumes_of_use(case.use):
        pair = handle_of(each.source)
        if pair is not None:
            by_handle.setdefault(pair, []).append(each)
    for (driver, handle), volumes in sorted(by_handle.items()):
        if len(volumes) < 2:
            continue
        named = ", ".join(each.name for each in volumes)
        yield finding(
            "RBD411",
            f"pv {volumes[0].name}",
            f"{named} share the volume handle {handle}: kubelet and the attacher take them for one "
            "volume.",
            evidence=(
                f"driver {driver}, volumeHandle {handle}",
                *(_owner_of(volume) for volume in volumes),
            ),
            commands=tuple(
                made for volume in volumes for made in (*retain(volume), describe_volume(volume))
            ),
        )


def _owner_of(volume: PersistentVolume) -> str:
    return f"{volume.name}: claim {volume.claim or 'none'}, reclaim policy {volume.reclaim_policy}"


# --------------------------------------------------------------------------------------------------
# The target itself
# --------------------------------------------------------------------------------------------------


def not_rbd(case: Case) -> Iterator[Finding]:
    """RBD407, RBD414: another driver's volume, or an image that nobody can name."""
    volume = case.use.persistent_volume
    if volume is None or case.use.image is not None:
        return
    image = image_of(volume)
    match volume.source:
        case OtherSource():
            if volume.source.kind.endswith(NVMEOF_SUFFIX):
                yield _of_a_gateway(volume, volume.source)
            else:
                yield _of_another(volume, volume.source.kind)
        case CsiSource() if image is None:
            yield _of_another(volume, volume.source.driver)
        case CsiSource() | InTreeRbdSource():
            reason = image.reason if isinstance(image, NotObserved) else "its source names none"
            cure = image.cure if isinstance(image, NotObserved) else ""
            yield finding(
                "RBD414",
                f"pv {volume.name}",
                f"Which image {volume.name} stands for cannot be told: {reason}.",
                evidence=(reason,),
                remedy=cure,
                commands=(kubectl("get pv", volume.name, options=("-o", "yaml")),),
            )


def _of_a_gateway(volume: PersistentVolume, source: OtherSource) -> Finding:
    image = f" {source.image}" if source.image is not None else ""
    return finding(
        "RBD407",
        f"pv {volume.name}",
        f"{volume.name} is an NVMe-oF volume of {source.kind}: the gateway holds its RBD image"
        f"{image}, and the nodes reach the gateway by NVMe. rbdagent does not judge that.",
        evidence=(f"source {source.kind}",),
        remedy="The gateway's own tools show which node is connected; `nvme list` does on a node.",
        commands=() if source.image is None else (command("rbd status", str(source.image)),),
        severity=Severity.INFO,
    )


def _of_another(volume: PersistentVolume, owner: str) -> Finding:
    return finding(
        "RBD407",
        f"pv {volume.name}",
        f"{volume.name} is not an RBD image: it belongs to {owner}.",
        evidence=(f"source {owner}",),
        commands=(describe_volume(volume),),
    )


def target_not_seen(case: Case) -> Iterator[Finding]:
    """RBD415: say what was looked for, and which source could not be asked."""
    use = case.use
    if use.image is not None or use.persistent_volume or use.claim or use.holders:
        return
    if _names_missing_claims(case):
        # The scheduler says so, or kubelet does.
        return
    if use.target.kind is TargetKind.POD and _pod_seen(case):
        yield finding(
            "RBD415",
            f"pod {use.target.namespace}/{use.target.name}",
            f"Pod {use.target.namespace}/{use.target.name} has no RBD volume.",
            remedy="Nothing to do here.",
            severity=Severity.INFO,
        )
        return
    states = case.snapshot.sources
    unseen = [
        f"{name}: {source.state}, {source.reason}"
        for name, source in (
            ("node", states.node),
            ("ceph", states.ceph),
            ("kubernetes", states.kubernetes),
        )
        if source.state != "observed"
    ]
    yield finding(
        "RBD415",
        use.target.given,
        f"{use.target.given} was not found"
        f"{', and not every source could be asked' if unseen else ''}.",
        evidence=tuple(unseen),
        commands=(command("rbdagent check"),) if unseen else (),
    )


def _names_missing_claims(case: Case) -> bool:
    """Tell whether a pod waits for claims of which none was found."""
    kube = case.snapshot.kubernetes
    claims = () if kube is None else observed_of(kube.claims)
    known = {(each.ref.namespace, each.ref.name) for each in claims}
    return any(
        pod.claims and known.isdisjoint((pod.ref.namespace, name) for name in pod.claims)
        for pod in case.use.waiting_pods
    )


def _pod_seen(case: Case) -> bool:
    kube = case.snapshot.kubernetes
    if kube is None or isinstance(kube.pods, NotObserved):
        return False
    wanted = (case.use.target.namespace, case.use.target.name)
    return any((each.ref.namespace, each.ref.name) == wanted for each in kube.pods)


def several_volumes(case: Case) -> Iterator[Finding]:
    """RBD412: an answer speaks of one volume, a pod may have more."""
    further = further_volumes(case.use, case.snapshot)
    if not further or case.use.target.kind is not TargetKind.POD:
        return
    yield finding(
        "RBD412",
        f"pod {case.use.target.namespace}/{case.use.target.name}",
        f"This answer is about {case.volume}. The pod also has "
        f"{', '.join(each.name for each in further)}.",
        commands=tuple(command("rbdagent who-holds", f"pv/{other.name}") for other in further),
    )
