"""RBD407, RBD411, RBD412, RBD414, RBD415: the PVs of the target, and the target itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rbdagent.codes import Code
from rbdagent.commands import command, kubectl, with_note
from rbdagent.correlate.names import handle_of
from rbdagent.correlate.resolve import target_pods
from rbdagent.correlate.volume import further_volumes
from rbdagent.model import (
    CsiSource,
    Finding,
    InTreeRbdSource,
    LifecycleStep,
    NotObserved,
    OtherSource,
    PersistentVolume,
    Recovery,
    Severity,
    SourceState,
    Subject,
    SubjectKind,
    TargetKind,
    stated,
)
from rbdagent.parse.volume import NVMEOF_SUFFIX, image_of
from rbdagent.rules.context import Rule, RuleContext, check_here, finding, query_again
from rbdagent.rules.entry import Entry
from rbdagent.rules.pv_controller import describe_volume, retain
from rbdagent.verdicts.volume_verdict import pvs_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rbdagent.model import Target

ENTRIES: Final = (
    Entry(
        Code.NOT_AN_RBD_VOLUME,
        Severity.ERROR,
        "The volume is not an RBD image.",
        remedy="Use the tools of that driver.",
        recovery=None,
    ),
    Entry(
        Code.DUPLICATE_HANDLE,
        Severity.ERROR,
        "Two PVs have the same driver and volume handle.",
        remedy="Set the reclaim policy Retain on all of these PVs first: they are one image, and "
        "the deletion of any of their claims would delete the image. Then find out which claim "
        "the data belongs to, delete the other PV, and create it again with a different handle.",
        recovery=Recovery(note="a handle cannot be changed"),
        step=LifecycleStep.BIND,
    ),
    Entry(
        Code.SEVERAL_VOLUMES,
        Severity.INFO,
        "The pod has further RBD volumes.",
        remedy="Run rbdagent for each of the other volumes.",
        recovery=None,
    ),
    Entry(
        Code.IMAGE_NAME_UNKNOWN,
        Severity.ERROR,
        "The image that the PV refers to is unknown.",
        remedy="Name the image itself: POOL/IMAGE.",
        recovery=None,
    ),
    Entry(
        Code.TARGET_NOT_SEEN,
        Severity.WARNING,
        "The target was not found, or the source that knows it was not observed.",
        remedy="Check the name, and the sources that were not observed. Without Kubernetes, name "
        "the image (POOL/IMAGE) or its device (/dev/rbdN).",
        recovery=None,
    ),
)


def duplicate_handle(context: RuleContext) -> Iterator[Finding]:
    """Report RBD411: two PVs that kubelet treats as one volume."""
    by_handle: dict[tuple[str, str], list[PersistentVolume]] = {}
    for volume in pvs_of(context.volume):
        pair = handle_of(volume.source)
        if pair is not None:
            by_handle.setdefault(pair, []).append(volume)
    for (driver, handle), volumes in sorted(by_handle.items()):
        if len(volumes) < 2:
            continue
        yield finding(
            Code.DUPLICATE_HANDLE,
            Subject.of_pv(volumes[0].name),
            stated(
                "{volumes} have the same volume handle {handle}: kubelet and external-attacher "
                "treat them as one volume.",
                volumes=[volume.name for volume in volumes],
                handle=handle,
            ),
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


_NO_IMAGE_NAMED: Final = NotObserved(reason="its source names no image")


def not_rbd(context: RuleContext) -> Iterator[Finding]:
    """Report RBD407, RBD414: a volume of another driver, or a PV whose image name is unknown."""
    volume = context.volume.persistent_volume
    if volume is None or context.volume.image is not None:
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
            unseen = image if isinstance(image, NotObserved) else _NO_IMAGE_NAMED
            yield finding(
                Code.IMAGE_NAME_UNKNOWN,
                Subject.of_pv(volume.name),
                stated(
                    "The image that {volume} refers to is unknown: {reason}.",
                    volume=volume.name,
                    reason=unseen.reason,
                ),
                evidence=(unseen.reason,),
                remedy=unseen.hint,
                commands=(kubectl("get pv", volume.name, options=("-o", "yaml")),),
            )


def _of_a_gateway(volume: PersistentVolume, source: OtherSource) -> Finding:
    image = stated(" {image}", image=source.image) if source.image is not None else ""
    return finding(
        Code.NOT_AN_RBD_VOLUME,
        Subject.of_pv(volume.name),
        stated(
            "{volume} is an NVMe-oF volume of {driver}: the gateway holds its RBD image{}, and "
            "the nodes reach the gateway by NVMe. rbdagent does not evaluate NVMe.",
            image,
            volume=volume.name,
            driver=source.kind,
        ),
        evidence=(f"source {source.kind}",),
        remedy="Use the gateway's tools to see which node is connected, or `nvme list` on a node.",
        commands=() if source.image is None else (command("rbd status", str(source.image)),),
        severity=Severity.INFO,
    )


def _of_another(volume: PersistentVolume, owner: str) -> Finding:
    return finding(
        Code.NOT_AN_RBD_VOLUME,
        Subject.of_pv(volume.name),
        stated(
            "{volume} is not an RBD image: it belongs to {driver}.",
            volume=volume.name,
            driver=owner,
        ),
        evidence=(f"source {owner}",),
        commands=(describe_volume(volume),),
    )


def target_not_observed(context: RuleContext) -> Iterator[Finding]:
    """Report RBD415: the target was not found, or not looked up; which sources are missing."""
    volume = context.volume
    if volume.image is not None or volume.persistent_volume or volume.claim or volume.holders:
        return
    if _names_missing_claims(context):
        # An event of the scheduler or of kubelet reports it.
        return
    if target_pods(volume.target, context.snapshot.kubernetes):
        yield finding(
            Code.TARGET_NOT_SEEN,
            _pod_named(volume.target),
            stated(
                "Pod {pod} has no RBD volume.",
                pod=f"{volume.target.namespace}/{volume.target.name}",
            ),
            remedy="Nothing to do.",
            severity=Severity.INFO,
        )
        return
    missing = _missing_sources(context)
    yield _not_looked_up(context) or finding(
        Code.TARGET_NOT_SEEN,
        Subject.of_volume(volume.target.argument),
        stated(
            "{target} was not found{}.",
            ", and not every source was observed" if missing else "",
            target=volume.target.argument,
        ),
        evidence=missing,
        commands=(check_here(context),) if missing else (),
    )


def _missing_sources(context: RuleContext) -> tuple[str, ...]:
    return tuple(
        f"{name}: {source.state}, {source.reason}"
        for name, source in context.snapshot.sources.named
        if source.state is not SourceState.OBSERVED
    )


def _not_looked_up(context: RuleContext) -> Finding | None:
    """Return RBD415 for a target that only Kubernetes knows, if its kind was not observed."""
    target, kube = context.volume.target, context.snapshot.kubernetes
    objects: object
    match target.kind:
        case TargetKind.CLAIM:
            kind, objects = "PersistentVolumeClaims", kube and kube.claims
        case TargetKind.POD:
            kind, objects = "pods", kube and kube.pods
        case TargetKind.PERSISTENT_VOLUME:
            kind, objects = "PersistentVolumes", kube and kube.persistent_volumes
        case _:
            return None
    is_skipped = context.snapshot.sources.kubernetes.state is SourceState.SKIPPED
    if kube is None:
        unseen = f"Kubernetes was not {'queried' if is_skipped else 'observed'}"
    elif isinstance(objects, NotObserved):
        unseen = f"{kind} were not observed"
    else:
        return None
    gaps = (f"{kind}: {objects.reason}",) if isinstance(objects, NotObserved) else ()
    return finding(
        Code.TARGET_NOT_SEEN,
        Subject.of_volume(target.argument),
        stated(
            "{target} was not looked up: {}. Without Kubernetes, name the image (POOL/IMAGE) or "
            "its device (/dev/rbdN).",
            unseen,
            target=target.argument,
        ),
        evidence=(*_missing_sources(context), *gaps),
        commands=(
            with_note(query_again(context), "without --no-kube")
            if is_skipped
            else check_here(context),
        ),
    )


def _names_missing_claims(context: RuleContext) -> bool:
    """Return whether a pod waits for claims of which none was found."""
    known = context.kube.claim_by_key
    return any(
        pod.claims and not any((pod.ref.namespace, name) in known for name in pod.claims)
        for pod in context.volume.waiting_pods
    )


def several_volumes(context: RuleContext) -> Iterator[Finding]:
    """Report RBD412: the report covers one volume, but the pod has more."""
    further = further_volumes(context.volume, context.snapshot)
    if not further or context.volume.target.kind is not TargetKind.POD:
        return
    yield finding(
        Code.SEVERAL_VOLUMES,
        _pod_named(context.volume.target),
        stated(
            "This report is about {volume}. The pod also has {volumes}.",
            volume=context.name,
            volumes=[other.name for other in further],
        ),
        commands=tuple(command("rbdagent who-holds", f"pv/{other.name}") for other in further),
    )


def _pod_named(target: Target) -> Subject:
    """Return the pod that a target names."""
    return Subject(kind=SubjectKind.POD, name=target.name, namespace=target.namespace)


RULES: Final = (
    Rule(280, not_rbd),
    Rule(440, duplicate_handle),
    Rule(540, target_not_observed),
    Rule(690, several_volumes),
)
