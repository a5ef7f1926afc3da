"""RBD129, RBD130, RBD132: an image that was changed under its mapping, and krbd does not notice.

The lab proves them (tests/e2e/test_changed_images.py): `rbd mirror image demote`, `rbd feature
disable` and `rbd snap rm` end with exit 0 while the image is mapped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from rbdagent.codes import Code
from rbdagent.commands import command
from rbdagent.model import (
    DeviceKind,
    ImagePresence,
    LifecycleStep,
    NotObserved,
    Recovery,
    Severity,
    Statement,
    stated,
)
from rbdagent.parse.foreign import foreign_name
from rbdagent.rules.context import Rule, finding, identity_lines, subject_of
from rbdagent.rules.entry import Entry
from rbdagent.verdicts.volume_verdict import is_writable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rbdagent.model import Command, Finding, HolderVerdict, ImageView, Mapping
    from rbdagent.rules.context import RuleContext

_OBJECT_MAP: Final = "object-map"
_MIGRATING: Final = "migrating"

ENTRIES: Final = (
    Entry(
        Code.DEMOTED_WHILE_MAPPED,
        Severity.ERROR,
        "The image was demoted while it is mapped read-write, and the kernel writes on.",
        remedy="Stop the pods of the volume here and unmap it. Compare both sides before one is "
        "promoted or resynced: a resync discards what was written here since the demotion.",
        recovery=Recovery(note="no component stops the writes"),
        step=LifecycleStep.USE,
    ),
    Entry(
        Code.OBJECT_MAP_DISABLED,
        Severity.ERROR,
        "The object map of the image was disabled while it is mapped: each read and write fails.",
        remedy="Enable the feature again: the mapping works again at once. To remove the feature, "
        "unmap the image first.",
        recovery=Recovery(note="the mapping does not learn that the object map is gone"),
        step=LifecycleStep.USE,
    ),
    Entry(
        Code.MAPPING_WITHOUT_ITS_DATA,
        Severity.ERROR,
        "Reads of the mapping return zeros or other data, without an error.",
        remedy="Do not copy from this device, and check what was copied since the removal or the "
        "prepare. Stop its users and unmap it. Read another snapshot; or the image through librbd "
        "(`rbd export`), or after `rbd migration commit`.",
        recovery=Recovery(note="the mapping does not learn what became of its data"),
        step=LifecycleStep.USE,
    ),
)


def demoted(context: RuleContext) -> Iterator[Finding]:
    """Yield RBD129 for a writable mapping of an image that is not primary in this cluster."""
    for holder_verdict in _of_kernels(context):
        view = holder_verdict.holder.view(context.volume)
        if view is None or view.primary is not False:
            continue
        yield finding(
            Code.DEMOTED_WHILE_MAPPED,
            subject_of(holder_verdict.holder),
            stated(
                "{holder} can write to {image}, which is not primary in this cluster any more. "
                "What is written now is lost with a resync: stop its pods and unmap it.",
                holder=subject_of(holder_verdict.holder),
                image=view.spec,
            ),
            evidence=(
                f"image {view.spec} (id {view.image_id}) is not primary",
                *identity_lines(context, holder_verdict.holder),
            ),
            commands=(command("rbd info", str(view.spec)),),
        )


def without_object_map(context: RuleContext) -> Iterator[Finding]:
    """Yield RBD130 for a mapping that uses an object map which the image does not have."""
    for holder_verdict in context.holder_verdicts:
        mapping, view = holder_verdict.holder.mapping, holder_verdict.holder.view(context.volume)
        if mapping is None or not mapping.has_object_map or view is None or not _lacks_it(view):
            continue
        yield finding(
            Code.OBJECT_MAP_DISABLED,
            subject_of(holder_verdict.holder),
            stated(
                "{device} uses the object map of {image}, which was disabled while it is mapped: "
                "each read and write of the device fails. Enable the feature again.",
                device=mapping.device,
                image=view.spec,
            ),
            evidence=(
                f"{mapping.device} was mapped with object-map",
                f"image {view.spec} has {', '.join(view.features)}",
            ),
            commands=(command("rbd feature enable", str(view.spec), _OBJECT_MAP),),
        )


def without_its_data(context: RuleContext) -> Iterator[Finding]:
    """Yield RBD132 for a mapping of a snapshot that is gone, or of the target of a migration."""
    for holder_verdict in context.holder_verdicts:
        mapping, view = holder_verdict.holder.mapping, holder_verdict.holder.view(context.volume)
        if mapping is None or view is None or mapping.kind is not DeviceKind.KRBD:
            continue
        why = _removed_snapshot(mapping, view) or _migration(mapping, view)
        if why is None:
            continue
        yield finding(
            Code.MAPPING_WITHOUT_ITS_DATA,
            subject_of(holder_verdict.holder),
            stated(
                "{device} reads as {}, without an error: {}. Do not copy from it.",
                why.reads,
                why.cause,
                device=mapping.device,
            ),
            evidence=(why.evidence, *identity_lines(context, holder_verdict.holder)),
            commands=(why.command,),
        )


class _Why(NamedTuple):
    """Why reads return no data or other data, and the command that shows it."""

    reads: str
    cause: Statement
    evidence: str
    command: Command


def _removed_snapshot(mapping: Mapping, view: ImageView) -> _Why | None:
    """Return the snapshot that is mapped and gone; a new one of its name has another id."""
    known, number = view.snapshots, mapping.snapshot_id
    if mapping.snapshot is None or number is None or isinstance(known, NotObserved):
        return None
    if view.presence is not ImagePresence.PRESENT or number in known:
        return None
    name = foreign_name(mapping.snapshot)
    there = ", ".join(map(str, known)) or "none"
    return _Why(
        reads="zeros, or as the image is now",
        cause=stated(
            "the snapshot {snapshot} of {image} was removed while it is mapped",
            snapshot=name,
            image=view.spec,
        ),
        evidence=f"{mapping.device} maps snapshot {number} ({name}); {view.spec} has {there}",
        command=command("rbd snap ls --all", str(view.spec)),
    )


def _migration(mapping: Mapping, view: ImageView) -> _Why | None:
    if mapping.snapshot is not None or mapping.read_only is not True:
        return None
    if _MIGRATING not in view.features or view.presence is not ImagePresence.PRESENT:
        # In the trash, it is the source, whose data is complete.
        return None
    return _Why(
        reads="zeros where the data is still in the source",
        cause=stated("{image} is the target of a migration", image=view.spec),
        evidence=f"{view.spec} has the feature {_MIGRATING}, and {mapping.device} is read-only",
        command=command("rbd status", str(view.spec)),
    )


def _of_kernels(context: RuleContext) -> Iterator[HolderVerdict]:
    """Yield the holders with a writable mapping of the kernel."""
    for holder_verdict in context.holder_verdicts:
        mapping = holder_verdict.holder.mapping
        if mapping is not None and mapping.kind is DeviceKind.KRBD and is_writable(mapping) is True:
            yield holder_verdict


def _lacks_it(view: ImageView) -> bool:
    is_read = view.presence is ImagePresence.PRESENT and bool(view.features)
    return is_read and _OBJECT_MAP not in view.features


RULES: Final = (Rule(235, demoted), Rule(236, without_object_map), Rule(238, without_its_data))
