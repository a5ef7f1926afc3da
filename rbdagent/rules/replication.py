"""RBD138: what sets the role of a mirrored image, and whether the image has that role.

csi-addons promotes and demotes the image of a claim as its VolumeReplication demands, and Ramen
makes those of a protected application. A change of the role by hand works against them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from rbdagent.codes import Code
from rbdagent.commands import kubectl
from rbdagent.correlate.replication import replications_of
from rbdagent.model import (
    LIFECYCLE_NOT_REQUESTED,
    CollectScope,
    LifecycleStep,
    MirrorState,
    NotObserved,
    Recovery,
    Severity,
    Subject,
    joined,
    observed_of,
    stated,
)
from rbdagent.parse.foreign import foreign, foreign_name
from rbdagent.rules.context import Rule, finding
from rbdagent.rules.entry import Entry

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rbdagent.model import Command, Finding, ImageView, Statement, VolumeReplication
    from rbdagent.rules.context import RuleContext

ENTRIES: Final = (
    Entry(
        Code.REPLICATION_DIFFERS,
        Severity.WARNING,
        "The image has not the role that its VolumeReplication demands, or csi-addons reports an "
        "error.",
        remedy="Read the status of the VolumeReplication, and the log of csi-addons' controller. "
        "To change the role, change replicationState: that of the side that gives it up first. Do "
        "not promote, demote or resync the image by hand.",
        recovery=Recovery(
            actor="csi-addons", condition="it runs, and what its status names is mended"
        ),
        step=LifecycleStep.USE,
    ),
)
_WANTED: Final = {"primary": True, "secondary": False, "resync": False}
_ROLE: Final = {True: "primary", False: "not primary"}
_BY_ADDONS: Final = (
    "A VolumeReplication sets the role of this image. To change it, set replicationState to "
    "secondary in the cluster that gives the role up, then to primary in the other one. Do not "
    "promote, demote or resync the image by hand."
)
_BY_RAMEN: Final = (
    "Ramen sets the role of this image. To change it, change the DRPlacementControl on the hub "
    "cluster (failover or relocate). Do not promote, demote or resync the image by hand, and do "
    "not change the VolumeReplication: Ramen sets it back."
)
_OF_ROLES: Final = {
    Code.IMAGE_NOT_PRIMARY: "",
    Code.DEMOTED_WHILE_MAPPED: "Stop the pods of the volume here: what they write is lost with a "
    "resync. Compare both sides before one is promoted or resynced.",
    Code.MIRROR_SPLIT_BRAIN: "Decide which side has the data to keep, and export the image of the "
    "other side first: a resync discards what only that side has.",
    Code.TWO_PRIMARIES: "Run rbdagent again in two minutes: after a failover, the other side "
    "reports its old role for up to a minute. If it is the same then, stop the workload of one "
    "side, and compare the data of both sides.",
}
"""Codes whose remedy depends on what sets the role, and what is to be done before."""


def differs(context: RuleContext) -> Iterator[Finding]:
    """Yield RBD138 for each VolumeReplication of the claim that has failed, or is not obeyed."""
    found = _replications(context)
    view = context.volume.image_view
    if view is None or isinstance(found, NotObserved):
        return
    for one in found:
        wanted = _WANTED.get(one.wanted)
        is_other = view.primary is not None and wanted is not None and view.primary is not wanted
        if not is_other and not (one.failure and one.is_current):
            continue
        yield finding(
            Code.REPLICATION_DIFFERS,
            Subject.of_image(view.spec),
            joined((_demand(one, view), _reported(one, view, is_other=is_other))),
            evidence=(_line(one),),
            remedy=_remedy(one, view),
            commands=(_show(one),),
            # csi-addons has not acted yet, or is at it.
            severity=None if one.is_current and (one.failure or one.completed) else Severity.INFO,
        )


def _demand(one: VolumeReplication, view: ImageView) -> Statement:
    role = "of unknown role" if view.primary is None else _ROLE[view.primary]
    return stated(
        "VolumeReplication {replication}{} demands {wanted}, and {image} is {} in this cluster.",
        _made_by(one),
        role,
        replication=one.ref,
        wanted=foreign_name(one.wanted),
        image=view.spec,
    )


# ceph-csi 3.5.0 to 3.6.2 (checkHealthyPrimary in replicationcontrollerserver.go@v3.6.1) fails a
# promotion that is done until each peer replays. A cluster that is down does not.
_PROMOTED: Final = (
    "Do not promote or resync the image again. If the log of the CSI provisioner names an image "
    "that `is not healthy`, update ceph-csi to 3.7.0 or later; it is also over once the other "
    "cluster is back and replays the image. Otherwise mend what that log names."
)


def _beyond_the_promotion(view: ImageView) -> str:
    """Return that the image is promoted, and what ceph-csi may still wait for."""
    sites = view.mirror_sites
    is_followed = any(
        site.is_up and site.state is MirrorState.REPLAYING
        for site in observed_of(sites)
        if not site.is_local
    )
    waits = (
        ""
        if is_followed or isinstance(sites, NotObserved)
        else " No other cluster replays the image, and ceph-csi 3.5 and 3.6 wait for that (3.7 "
        "does not)."
    )
    return f" The promotion itself is done.{waits}"


def _is_promoted(one: VolumeReplication, view: ImageView) -> bool:
    """Return whether the image is promoted, and only what comes after it has failed."""
    return view.primary is True and one.wanted == "primary" and one.failure == "FailedToPromote"


def _remedy(one: VolumeReplication, view: ImageView) -> str:
    if _is_promoted(one, view):
        return _PROMOTED
    return _BY_RAMEN if _is_of_ramen(one) else ""


def _reported(one: VolumeReplication, view: ImageView, *, is_other: bool) -> Statement:
    if not one.is_current:
        return stated("csi-addons has not acted on the last change yet.")
    if one.failure:
        return stated(
            "csi-addons reports {reason}: {message}.{}",
            _beyond_the_promotion(view) if _is_promoted(one, view) else "",
            reason=foreign_name(one.failure),
            message=foreign(one.message) if one.message else "no message",
        )
    if one.completed and is_other:
        return stated("csi-addons reports that it is done: the role was changed by something else.")
    return stated("csi-addons is not done yet.")


_FIND_OWNER: Final = (
    "First find out whether a VolumeReplication or Ramen sets the role of the image: then change "
    "nothing by hand."
)


def with_replications(findings: tuple[Finding, ...], context: RuleContext) -> tuple[Finding, ...]:
    """Return findings about the role of the image with what sets it, and safe advice."""
    if not any(item.code in _OF_ROLES for item in findings):
        return findings
    found = _replications(context)
    if isinstance(found, NotObserved):
        if found == LIFECYCLE_NOT_REQUESTED:
            return findings
        unknown = f"what sets the role of the image was not observed: {found.reason}"
        return tuple(
            replace(
                item,
                evidence=(*item.evidence, unknown),
                remedy=f"{_FIND_OWNER} {item.remedy}",
            )
            if item.code in _OF_ROLES
            else item
            for item in findings
        )
    if not found:
        return findings
    return tuple(_told(item, found) if item.code in _OF_ROLES else item for item in findings)


def _told(item: Finding, found: tuple[VolumeReplication, ...]) -> Finding:
    by_whom = _BY_RAMEN if any(map(_is_of_ramen, found)) else _BY_ADDONS
    before = _OF_ROLES[Code(item.code)]
    demands = (
        stated(
            "VolumeReplication {replication}{} demands {wanted}.",
            _made_by(one),
            replication=one.ref,
            wanted=foreign_name(one.wanted),
        )
        for one in found
    )
    return replace(
        item,
        statement=joined((item.statement, *demands)),
        evidence=(*item.evidence, *map(_line, found)),
        remedy=" ".join(filter(None, (before, by_whom))),
        commands=tuple(dict.fromkeys((*map(_show, found), *item.commands))),
    )


def _replications(context: RuleContext) -> tuple[VolumeReplication, ...] | NotObserved:
    claim = context.volume.claim
    return replications_of(() if claim is None else (claim,), context.kube)


def _is_of_ramen(one: VolumeReplication) -> bool:
    return one.owner.startswith("VolumeReplicationGroup/")


def _made_by(one: VolumeReplication) -> Statement | str:
    if not one.owner:
        return ""
    kind = "Ramen's " if _is_of_ramen(one) else ""
    return stated(" ({}{owner})", kind, owner=foreign_name(one.owner))


def _line(one: VolumeReplication) -> str:
    state = f"state {foreign_name(one.state)}" if one.state else "no state"
    failed = f", {foreign_name(one.failure)}" if one.failure else ""
    message = f", {foreign(one.message)}" if one.message else ""
    owner = f", made by {foreign_name(one.owner)}" if one.owner else ""
    return (
        f"VolumeReplication {one.ref} of {foreign_name(one.source)}: demands "
        f"{foreign_name(one.wanted)}, {state}{failed}{message}{owner}"
    )


def _show(one: VolumeReplication) -> Command:
    return kubectl(
        "get volumereplications.replication.storage.openshift.io",
        one.ref.name,
        namespace=one.ref.namespace,
        options=("-o", "yaml"),
    )


RULES: Final = (Rule(239, differs, CollectScope.REPLICATIONS),)
