"""RBD123: the device serves another image than the one that the name in the PV leads to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rbdagent.codes import Code
from rbdagent.commands import command
from rbdagent.correlate.directories import observed_mounts
from rbdagent.correlate.image_identity import identity_of_mapping, volume_image
from rbdagent.correlate.index import ceph_index
from rbdagent.model import (
    Finding,
    Holder,
    HolderVerdict,
    ImageIdentity,
    ImagePresence,
    ImageSpec,
    LifecycleStep,
    Mount,
    Recovery,
    Sentence,
    Severity,
    Verdict,
    stated,
)
from rbdagent.parse.kubelet import volume_of_path
from rbdagent.rules.context import (
    Rule,
    RuleContext,
    finding,
    identity_lines,
    query_again,
    query_on_node,
    subject_of,
)
from rbdagent.rules.entry import Entry
from rbdagent.verdicts.evidence import mount_text
from rbdagent.verdicts.volume_verdict import fresh_report

if TYPE_CHECKING:
    from collections.abc import Iterator

ENTRIES: Final = (
    Entry(
        Code.IMAGE_RENAMED,
        Severity.CRITICAL,
        "The device that serves the volume is not of the image to which the PV leads today.",
        remedy="Start no pod of the volume before it is clear which image has the data. To keep "
        "the image that is in use, rename the other image, then rename this one back: `rbd rename` "
        "works while the image is mapped.",
        recovery=Recovery(note="no component compares the ids of images"),
        step=LifecycleStep.USE,
    ),
)


def renamed(context: RuleContext) -> Iterator[Finding]:
    """Yield RBD123 for a device of the volume whose image does not have the name in the PV."""
    volume = context.volume.persistent_volume
    named = None if volume is None else volume_image(volume)
    if volume is None or named is None:
        return
    for holder_verdict in context.holder_verdicts:
        holder = holder_verdict.holder
        device = _device_of(holder, context)
        if device is None or device.image_id is None:
            continue
        now = _name_now(device, context)
        if holder.other_image is None and (now is None or now.name == device.spec.name):
            continue
        yield _renamed(holder_verdict, device, named.spec, now, context)


def _device_of(holder: Holder, context: RuleContext) -> ImageIdentity | None:
    """Return the image of a holder's device: here, or as the agent of its node reports it."""
    if holder.mapping is not None:
        return identity_of_mapping(holder.mapping)
    report = fresh_report(holder, context.snapshot)
    return None if report is None else report.image


def _name_now(device: ImageIdentity, context: RuleContext) -> ImageSpec | None:
    """Return the present name of an image with a known id; None if Ceph was not queried for it."""
    views = (
        view for cluster in ceph_index(context.snapshot.ceph).clusters for view in cluster.images
    )
    return next(
        (
            view.spec
            for view in views
            if (view.fsid, view.image_id) == (device.fsid, device.image_id)
            and view.presence is ImagePresence.PRESENT
        ),
        None,
    )


def _renamed(
    holder_verdict: HolderVerdict,
    device: ImageIdentity,
    named: ImageSpec,
    now: ImageSpec | None,
    context: RuleContext,
) -> Finding:
    """Return RBD123.

    Args:
        holder_verdict: the holder of the device.
        device: its image, with the name with which it was mapped.
        named: the name in the PV.
        now: the present name of the device's image, if it is known.
        context: the target.
    """
    holder, subject = holder_verdict.holder, subject_of(holder_verdict.holder)
    report = fresh_report(holder, context.snapshot)
    # The first sentence is the one of the device's own node.
    what = subject if report is None else f"{report.device} on {holder.node}"
    image = (
        stated("image {image} (id {image_id})", image=now, image_id=device.image_id)
        if now
        else stated("the image with id {image_id}", image_id=device.image_id)
    )
    is_gone = context.volume.image_view is not None and (
        context.volume.image_view.presence is ImagePresence.GONE
    )
    other = context.volume.image.image_id if holder.other_image and context.volume.image else None
    if is_gone:
        leads_to = stated(
            "{named_image}, which does not exist: no pod can start with it", named_image=named
        )
    elif other:
        leads_to = stated(
            "{named_image}, which is another image now (id {other_image_id}): a pod on "
            "another node gets it",
            named_image=named,
            other_image_id=other,
        )
    else:
        leads_to = stated(
            "{named_image}: a pod on another node gets the image that has that name now",
            named_image=named,
        )
    is_unused = holder_verdict.verdict is Verdict.ORPHANED
    severity = Severity.ERROR if is_gone else Severity.WARNING if is_unused else None
    shown = [command("rbd info", str(spec)) for spec in (now, None if is_gone else named) if spec]
    return finding(
        Code.IMAGE_RENAMED,
        subject,
        stated(
            "{holder} serves {volume} and is {}. {volume} names {}.",
            image,
            leads_to,
            holder=what,
            volume=context.name,
        ),
        evidence=(
            f"mapped as {device.spec}, id {device.image_id}",
            *(f"in Ceph, id {device.image_id} is {spec}" for spec in (now,) if spec),
            *(f"in Ceph, {named} is id {one}" for one in (other,) if one),
            *map(mount_text, _mounts_of_volume(holder)),
            *identity_lines(context, holder),
        ),
        remedy=_remedy_of_renamed(named, now, is_gone=is_gone) if now else "",
        commands=(
            *([] if holder.mapping is not None else [query_on_node(context, str(holder.node))]),
            *shown,
            query_again(context),
        ),
        severity=severity,
    )


def _mounts_of_volume(holder: Holder) -> tuple[Mount, ...]:
    """Return the mounts of a device at kubelet's paths of a volume."""
    return tuple(
        mount
        for mount in observed_mounts(holder.mapping)
        if mount.namespace.is_host and volume_of_path(mount.path) is not None
    )


def _remedy_of_renamed(named: ImageSpec, now: ImageSpec, *, is_gone: bool) -> Sentence:
    back = command("rbd rename", str(now), str(named))
    if is_gone:
        return ("To give the image its name back: `", back, "`.")
    away = command("rbd rename", str(named), f"{named}.other")
    return (
        (
            "Start no pod of the volume before it is clear which image has the data. If it is the "
            "image that is in use, rename the other one: `"
        ),
        away,
        "`, then rename this one back: `",
        back,
        "`. Both work while the image is mapped.",
    )


RULES: Final = (Rule(30, renamed),)
