"""What the rules of ``diagnose`` report about the cluster as it would be.

A rule judges a state that exists. So its remedy and its commands are replaced by what to change in
the manifest, and only codes are reported that are about objects and images, not about what runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from rbdagent.codes import Code
from rbdagent.correlate import correlate
from rbdagent.correlate.resolve import about
from rbdagent.lint.context import subject_of
from rbdagent.lint.entries import problem
from rbdagent.model import (
    Finding,
    PersistentVolume,
    PersistentVolumeClaim,
    Severity,
    Snapshot,
    SubjectKind,
    Target,
    TargetKind,
)
from rbdagent.rules import diagnose

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rbdagent.lint.context import LintContext
    from rbdagent.model import Subject
    from rbdagent.model.lint import Manifest, Problem


class Advice(NamedTuple):
    """The field that a finding is about, and what to change in the manifest."""

    field: str
    remedy: str
    severity: Severity | None = None
    """If it is more or less severe before the objects exist; None: as the rule has it."""
    only: SubjectKind | None = None
    """If the code is reported only of objects of one kind."""


_BIND_COMPLETED: Final = "metadata.annotations[pv.kubernetes.io/bind-completed]"
_VOLUME_NAME: Final = "spec.volumeName"
_CLAIM_REF: Final = "spec.claimRef"
_HANDLE: Final = "spec.csi.volumeHandle"
_CLASS: Final = "spec.storageClassName"
_CLEAN: Final = (
    "Remove the annotation pv.kubernetes.io/bind-completed from the claim, and uid and "
    "resourceVersion from the PV's claimRef."
)
_FIT: Final = "Make size, access modes, volumeMode and class of the claim those of the PV."
_STOP_IT: Final = (
    "Find this machine, and stop there what uses the image, before a pod uses the PV: ceph-csi "
    "does not map an image for one node while another client watches it, and two writers destroy a "
    "file system."
)
_LEAVE_ONE: Final = "Stop the other side before the PV is applied, and set it to Retain there."

ADVICE: Final = {
    Code.CLAIM_LOST: Advice(_BIND_COMPLETED, _CLEAN),
    Code.REFERENCE_LOST: Advice(
        _VOLUME_NAME,
        "Write the name of the PV into volumeName, and remove the annotation "
        "pv.kubernetes.io/bind-completed.",
    ),
    Code.VOLUME_GONE: Advice(
        _VOLUME_NAME,
        "Add the PV to the files. If its image no longer exists, remove volumeName and the "
        "annotation pv.kubernetes.io/bind-completed: the claim then gets a new, empty volume.",
    ),
    Code.CLAIMED_TWICE: Advice(
        _VOLUME_NAME, "Leave the claim out, or name another PV: a clone, or one from a snapshot."
    ),
    Code.NAMED_VOLUME_MISSING: Advice(
        _VOLUME_NAME, "Add the PV to the files, or remove volumeName: the claim then gets a new, "
        "empty volume.",
    ),
    Code.NAMED_VOLUME_REFUSED: Advice(_VOLUME_NAME, _FIT),
    Code.NAMED_VOLUME_TAKEN: Advice(
        _VOLUME_NAME,
        "If the PV is in the files, write the claim's namespace and name into its claimRef, "
        "without a uid. If it belongs to a claim that exists, name another PV.",
    ),
    Code.KEPT_VOLUME_REFUSED: Advice(_CLAIM_REF, _FIT),
    Code.VOLUME_RESERVED: Advice(_CLAIM_REF, "Add the claim to the files."),
    Code.BOUND_ELSEWHERE: Advice(
        _CLAIM_REF, "Name another claim in claimRef, and keep the policy Retain."
    ),
    Code.OLDER_VOLUME_LEFT: Advice(
        _CLAIM_REF, "Name another claim in claimRef: this one has a volume."
    ),
    Code.STORAGE_CLASS_MISSING: Advice(
        _CLASS, "Name the PV in volumeName, or a class that exists; or create the class first."
    ),
    Code.NO_VOLUME_FITS: Advice(_VOLUME_NAME, "Name the PV in volumeName."),
    Code.CLAIM_WITHOUT_CLASS: Advice(_CLASS, "Name the PV in volumeName, or name a class."),
    Code.PLUGIN_REMOVED: Advice(_CLASS, "Use a class whose provisioner is a CSI driver."),
    Code.SELECTOR_NOT_SUPPORTED: Advice(
        "spec.selector", "Name the PV in volumeName, and remove the selector."
    ),
    Code.MODE_NOT_PROVISIONED: Advice(
        "spec.accessModes", "Request ReadWriteOnce, or volumeMode Block."
    ),
    Code.DUPLICATE_HANDLE: Advice(
        _HANDLE, "Leave one of the PVs out. They are one image: set Retain on both before any of "
        "them is deleted.",
    ),
    Code.IMAGE_NAME_UNKNOWN: Advice(
        "spec.csi.volumeAttributes",
        'A static volume needs staticVolume: "true", pool and clusterID in its volumeAttributes, '
        "and the name of the image as volumeHandle.",
    ),
    Code.IMAGE_GONE: Advice(
        _HANDLE,
        "Find out where the image is: in another pool or cluster, in the trash (`rbd trash ls`), "
        "at a mirror, or in a backup. Do not apply the PV before it exists.",
    ),
    Code.IMAGE_IN_TRASH: Advice(
        _HANDLE, "Restore the image with `rbd trash restore` before the PV is applied.",
        Severity.ERROR,
    ),
    Code.AMBIGUOUS_IMAGE: Advice(_HANDLE, "Observe one Ceph cluster: --ceph-conf names it."),
    Code.HELD_FROM_OUTSIDE: Advice(_HANDLE, _LEAVE_ONE, Severity.ERROR),
    Code.TWO_CLUSTERS_WRITE: Advice(_HANDLE, _LEAVE_ONE),
    Code.SHARED_WITH_OUTSIDE: Advice(_HANDLE, _LEAVE_ONE),
    Code.IMAGE_NAMES_ANOTHER_VOLUME: Advice(
        _HANDLE, "Make sure that no other cluster has a PV of this image; if one does, set both "
        "to Retain.",
    ),
    Code.FOREIGN_HOLDER: Advice(_HANDLE, _STOP_IT, Severity.ERROR),
    # A client that has the image open is of no node that is known to use the PV: it is new here.
    Code.HOLDER_UNDETERMINED: Advice(_HANDLE, _STOP_IT, Severity.ERROR, SubjectKind.CLIENT),
}  # fmt: skip
"""The codes that are reported."""


def findings_of_rules(context: LintContext) -> Iterator[Problem]:
    """Yield what the rules report of the objects of the manifests, and do not report today."""
    view = context.after.kubernetes
    coverage = context.kube_after.coverage
    if view is None or not coverage.claims or not coverage.volumes():
        # A rule would take each object that is not in the files for missing.
        return
    items = {subject_of(item): item for item in context.manifests.items}
    seen: set[tuple[str, Subject]] = set()
    for item in context.manifests.items:
        target = target_of(item)
        if target is None or _is_left_out(context, item):
            continue
        today = _known(context, item, target)
        for finding in _judged(target, context.after):
            key = (finding.code, finding.subject)
            advice = ADVICE.get(Code(finding.code))
            if advice is None or advice.only not in {None, finding.subject.kind}:
                continue
            if key in today or key in seen:
                continue
            seen.add(key)
            yield _problem(finding, advice, items.get(finding.subject, item))


def _is_left_out(context: LintContext, item: Manifest) -> bool:
    """Return whether an object is one of very many PVs of an image, or the claim of one."""
    if isinstance(item.object, PersistentVolume):
        return item.name in context.surplus
    volumes = context.kube_after.volumes_of_claim((item.namespace, item.name))
    return any(volume.name in context.surplus for volume in volumes)


def target_of(item: Manifest) -> Target | None:
    """Return a PV or claim as a target; None for the other kinds."""
    if isinstance(item.object, PersistentVolumeClaim):
        return Target(
            argument=f"pvc/{item.namespace}/{item.name}",
            kind=TargetKind.CLAIM,
            name=item.name,
            namespace=item.namespace,
        )
    if isinstance(item.object, PersistentVolume):
        return Target(argument=f"pv/{item.name}", kind=TargetKind.PERSISTENT_VOLUME, name=item.name)
    return None


def _known(context: LintContext, item: Manifest, target: Target) -> set[tuple[str, Subject]]:
    """Return what is reported today of an object that exists."""
    if context.existing(item) is None:
        return set()
    return {(finding.code, finding.subject) for finding in _judged(target, context.before)}


def _judged(target: Target, snapshot: Snapshot) -> tuple[Finding, ...]:
    part = about(target, snapshot)
    return diagnose(correlate(part), part).findings


def _problem(finding: Finding, advice: Advice, item: Manifest) -> Problem:
    return problem(
        Code(finding.code),
        item,
        advice.field,
        str(finding.statement),
        subject=finding.subject,
        evidence=finding.evidence,
        severity=advice.severity or finding.severity,
        remedy=advice.remedy,
    )
