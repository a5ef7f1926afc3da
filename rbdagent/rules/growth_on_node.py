"""RBD780, RBD781: the sizes on the node, beside a claim whose growth is done.

No object shows these states: kubelet reports a growth as done although the device or the file
system was not enlarged (recording 31-grow-claim-done-image-larger-than-device; ceph-csi#1484,
rook#6453).
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from rbdagent.codes import Code
from rbdagent.commands import command
from rbdagent.correlate.holders import runs
from rbdagent.correlate.pv_matching import size_text
from rbdagent.model import (
    BlockHolderKind,
    CollectScope,
    FileSystemSize,
    Finding,
    LifecycleStep,
    Recovery,
    Severity,
    Subject,
    Verdict,
    observed_of,
    stated,
)
from rbdagent.parse.foreign import foreign_name
from rbdagent.rules.context import Rule, RuleContext, delete_pod, device_log, finding, subject_of
from rbdagent.rules.entry import Entry
from rbdagent.rules.facts import is_non_primary, stops_of
from rbdagent.rules.pv_controller import describe_claim, since

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rbdagent.model import (
        BlockHolder,
        Command,
        Holder,
        HolderVerdict,
        Mapping,
        PersistentVolume,
        PersistentVolumeClaim,
        Pod,
    )

ENTRIES: Final = (
    Entry(
        Code.FILE_SYSTEM_BEHIND,
        Severity.WARNING,
        "The claim has its new size, and the file system on the node has not.",
        remedy="Compare the size of the file system with that of its device first: `dumpe2fs -h` "
        "of the device for ext4 (Block count and Block size), `xfs_info` of the mount point for "
        "xfs (bsize and blocks of data). If it is smaller, grow it on that node, while it is "
        "mounted: `resize2fs` of the device for ext4, `xfs_growfs` of the mount point for xfs. Or "
        "end all pods with the volume on that node: ceph-csi grows the file system when the node "
        "next stages the volume. Do not enlarge the claim again.",
        recovery=Recovery(
            actor="the CSI node plugin", condition="the node stages the volume again"
        ),
        step=LifecycleStep.USE,
    ),
    Entry(
        Code.DEVICE_BEHIND,
        Severity.WARNING,
        "The image has grown, and its device on the node has not.",
        remedy="End all pods with the volume on that node, so that it unmaps the image: the next "
        "mapping has the new size, and ceph-csi then grows what is on it. Until then, neither "
        "resize nor snapshot the image: a mapping without a watch does not see that either.",
        recovery=Recovery(note="a mapping that has not got the new size keeps the old one"),
        step=LifecycleStep.USE,
    ),
)

_LUKS_HEADER: Final = 32 << 20
"""More than the header of LUKS2 takes (16 MiB, the default of cryptsetup, which ceph-csi uses)."""
_LUKS_OF_DRIVER: Final = "luks-rbd-"
_INODE: Final = 1024
"""More than an inode of ext4 usually takes: 256 bytes by default, up to 1024 with Lustre."""
_LEAST_OVERHEAD: Final = 8 << 20
_MOST_OVERHEAD: Final = 2 << 30
"""The log of XFS has at most 2 GiB and a quarter of the file system (mkfs.xfs 6.1: 64 MiB of
300 MiB); the journal of ext4 has at most 1 GiB by default (50 % of 8 MiB, 2 % of 4 GiB)."""


def ends_before(found: FileSystemSize, size: int) -> bool:
    """Return whether a file system most likely does not reach a size.

    statfs(2) does not count what a file system needs for itself. So the most that it usually needs
    is added: measured for 120 file systems of 4 MiB to 8 TiB with the defaults and with unusual
    options of mke2fs 1.47.0 and mkfs.xfs 6.1.0, each of which fills its device
    (tests/integration/test_file_system_sizes.py). A growth by less than that is not seen. Extreme
    options may need more, a journal of 40 GiB or inodes of 4 KiB (mke2fs(8), -J and -I): only the
    super block is exact, see `exact_size`.
    """
    tables = 0 if found.fs_type == "xfs" else found.inodes * _INODE
    others = max(_LEAST_OVERHEAD, min(size // 4, _MOST_OVERHEAD))
    return found.total_bytes + tables + others < size


def exact_size(found: FileSystemSize, node: str | None) -> Command:
    """Return the command that shows how large a file system is, with what it needs for itself."""
    if found.fs_type == "xfs":
        return command("xfs_info", found.path, node=node)
    return command("dumpe2fs -h", f"/dev/{found.device}", node=node)


def size_of(holder: Holder) -> FileSystemSize | None:
    """Return the size of the file system of a holder, if it was observed."""
    mapping = holder.mapping
    if mapping is None or holder.other_image is not None:
        return None
    return mapping.file_system if isinstance(mapping.file_system, FileSystemSize) else None


def sizes_of(context: RuleContext) -> tuple[FileSystemSize, ...]:
    """Return the sizes of the volume's file systems that were observed."""
    found = (size_of(judged.holder) for judged in context.holder_verdicts)
    return tuple(size for size in found if size is not None)


def shows_growth(context: RuleContext, claim: PersistentVolumeClaim) -> bool:
    """Return whether a file system has more room than the former size of its claim."""
    former = claim.capacity_bytes
    return former is not None and any(found.total_bytes > former for found in sizes_of(context))


def behind_on_node(context: RuleContext) -> Iterator[Finding]:
    """Report RBD780 and RBD781: a link that is smaller than a claim whose growth is done."""
    claim, volume = context.volume.claim, context.volume.persistent_volume
    if claim is None or volume is None or not _is_settled(claim, volume):
        return
    # The primary cluster enlarges a mirrored image, and no pod can use it here.
    if is_non_primary(context, {}) or _has_just_begun(context, claim):
        return
    for judged in context.holder_verdicts:
        mapping = judged.holder.mapping
        if mapping is None or judged.holder.other_image is not None or mapping.snapshot is not None:
            continue
        if judged.verdict is Verdict.DEAD:
            continue
        yield from _device_behind(context, claim, judged, mapping) or _file_system_behind(
            context, claim, judged, mapping
        )


def _is_settled(claim: PersistentVolumeClaim, volume: PersistentVolume) -> bool:
    """Return whether claim and PV have one size, and no growth is under way."""
    asked, has = claim.requested_bytes, volume.capacity_bytes
    if claim.phase != "Bound" or not asked or not has or asked > has:
        return False
    return claim.capacity_bytes == has and not claim.growth_conditions and not claim.growth


def _has_just_begun(context: RuleContext, claim: PersistentVolumeClaim) -> bool:
    """Return whether the node may have been observed before a growth that the claim shows."""
    waited = since(claim.requested_at, context)
    return waited is not None and waited < _MOMENT


_MOMENT: Final = timedelta(minutes=2)


def _device_behind(
    context: RuleContext, claim: PersistentVolumeClaim, judged: HolderVerdict, mapping: Mapping
) -> list[Finding]:
    has = _capacity(context)
    view = context.volume.image_view
    image = None if view is None else view.size_bytes
    if image is not None and mapping.size_bytes is not None and mapping.size_bytes < image:
        if mapping.size_bytes < has or mapping.watch is False:
            return [_small_device(context, claim, judged, mapping, image)]
        # The image is being enlarged at this moment: the node was observed before Ceph.
        return []
    for holder in observed_of(mapping.holders):
        if _is_small(holder, mapping, has):
            return [_small_luks(context, claim, judged, mapping, holder)]
    return []


def _capacity(context: RuleContext) -> int:
    volume = context.volume.persistent_volume
    return 0 if volume is None else volume.capacity_bytes or 0


def _is_small(holder: BlockHolder, mapping: Mapping, has: int) -> bool:
    """Return whether a LUKS device of ceph-csi has missed a growth of the device below."""
    below, size = mapping.size_bytes, holder.size_bytes
    if holder.kind is not BlockHolderKind.LUKS or holder.of != mapping.kernel_name:
        return False
    if not holder.label.startswith(_LUKS_OF_DRIVER) or below is None or size is None:
        return False
    return size + _LUKS_HEADER < min(below, has)


def _small_device(
    context: RuleContext,
    claim: PersistentVolumeClaim,
    judged: HolderVerdict,
    mapping: Mapping,
    image: int,
) -> Finding:
    if mapping.read_only is True:
        why = "a mapping that is read-only has no watch, and gets no new size"
    elif mapping.watch is False:
        why = "its client has lost its watch, and has not got the new size"
    else:
        why = "its kernel has not taken the new size over"
    return finding(
        Code.DEVICE_BEHIND,
        subject_of(judged.holder),
        stated(
            "The image of claim {claim} has {size}, and {device} on {node} has {other_size}: {}. "
            "Nothing on the device can grow.",
            why,
            claim=claim.ref,
            size=size_text(image),
            device=mapping.device,
            node=judged.holder.node,
            other_size=size_text(mapping.size_bytes or 0),
        ),
        evidence=(chain(context, claim, judged.holder),),
        commands=_new_mapping(context, judged.holder, mapping),
    )


def _small_luks(
    context: RuleContext,
    claim: PersistentVolumeClaim,
    judged: HolderVerdict,
    mapping: Mapping,
    luks: BlockHolder,
) -> Finding:
    return finding(
        Code.DEVICE_BEHIND,
        subject_of(judged.holder),
        stated(
            "{device} of claim {claim} on {node} has {size}, and the LUKS device on it, "
            "{other_device}, has {other_size}: it has missed the growth. Nothing on it can grow.",
            claim=claim.ref,
            device=mapping.device,
            node=judged.holder.node,
            size=size_text(mapping.size_bytes or 0),
            other_device=luks.name,
            other_size=size_text(luks.size_bytes or 0),
        ),
        evidence=(chain(context, claim, judged.holder),),
        remedy="End all pods with the volume on that node: ceph-csi opens the LUKS device again, "
        "with all of the device below, when the node next stages the volume. `cryptsetup resize` "
        "on that node does it at once, and asks for the passphrase.",
        commands=_new_mapping(context, judged.holder, mapping),
        recovery=Recovery(
            actor="the CSI node plugin", condition="the node stages the volume again"
        ),
    )


def _new_mapping(context: RuleContext, holder: Holder, mapping: Mapping) -> tuple[Command, ...]:
    log = device_log(mapping.kernel_name, holder.node)
    if mapping.watch is False and mapping.read_only is not True:
        # RBD105 has the order in which its pods may end.
        return (log,)
    return (log, *map(delete_pod, _pods_on(context, holder.node)))


def _pods_on(context: RuleContext, node: str | None) -> tuple[Pod, ...]:
    return tuple(pod for pod in context.volume.pods if pod.node_name == node and runs(pod))


def _file_system_behind(
    context: RuleContext, claim: PersistentVolumeClaim, judged: HolderVerdict, mapping: Mapping
) -> list[Finding]:
    found, has = size_of(judged.holder), _capacity(context)
    if found is None or not ends_before(found, min(found.device_bytes, has)):
        return []
    view = context.volume.image_view
    if view is not None and (view.size_bytes or 0) - has > _ROUNDED:
        # RBD779 reports an image that was enlarged past Kubernetes.
        return []
    if mapping.read_only is True or not _pods_on(context, judged.holder.node):
        # What is mapped read-only cannot grow, and what no pod uses is about to be unmapped.
        return []
    return [
        finding(
            Code.FILE_SYSTEM_BEHIND,
            Subject.of_claim(claim.ref),
            stated(
                "Claim {claim} and {device} on {node} have {size}, and the {type} file system "
                "there has room for {other_size} only: it was most likely not grown, although "
                "Kubernetes reports no growth that is left. {} decides: unusual options of mkfs "
                "take room too.",
                "`xfs_info`" if found.fs_type == "xfs" else "`dumpe2fs -h`",
                claim=claim.ref,
                device=f"/dev/{found.device}",
                node=judged.holder.node,
                size=size_text(min(found.device_bytes, has)),
                type=found.fs_type,
                other_size=mebibytes(found.total_bytes),
            ),
            evidence=(chain(context, claim, judged.holder),),
            commands=(
                exact_size(found, judged.holder.node),
                *_growth(context, judged.holder, mapping, found),
                describe_claim(claim),
            ),
        )
    ]


_ROUNDED: Final = 64 << 20
"""As for RBD779."""


def chains(context: RuleContext, claim: PersistentVolumeClaim) -> tuple[str, ...]:
    """Return the line of evidence for each mapping whose file system has a known size."""
    holders = (judged.holder for judged in context.holder_verdicts)
    return tuple(chain(context, claim, holder) for holder in holders if size_of(holder))


def chain(context: RuleContext, claim: PersistentVolumeClaim, holder: Holder) -> str:
    """Return the sizes along a volume, from the claim to the file system, as far as observed."""
    view, mapping, found = context.volume.image_view, holder.mapping, size_of(holder)
    sizes: list[tuple[str, int | None]] = [
        ("claim", claim.capacity_bytes),
        ("PV", _capacity(context)),
        ("image", None if view is None else view.size_bytes),
    ]
    if mapping is not None:
        sizes.append((mapping.device, mapping.size_bytes))
        sizes += [(luks.name, luks.size_bytes) for luks in observed_of(mapping.holders)]
    known = [f"{name} {size_text(size)}" for name, size in sizes if size]
    if found is not None:
        known.append(
            f"{found.fs_type} at {foreign_name(found.path)} {mebibytes(found.total_bytes)}"
        )
    return f"sizes: {', '.join(known)}"


def mebibytes(size: int) -> str:
    """Return a size as df shows it: statfs(2) reports no round numbers."""
    return f"{size >> 20}Mi" if size < 10 << 30 else f"{size >> 30}Gi"


def _growth(
    context: RuleContext, holder: Holder, mapping: Mapping, found: FileSystemSize
) -> tuple[Command, ...]:
    """Return the command that grows a file system where it is mounted, if it can be written."""
    mounts = [mount for mount in observed_of(mapping.mounts) if mount.path == found.path]
    if not mounts or any(mount.read_only for mount in mounts) or stops_of(context, mapping):
        return (device_log(mapping.kernel_name, holder.node),)
    if found.fs_type == "xfs":
        return (command("xfs_growfs", found.path, node=holder.node),)
    return (command("resize2fs", f"/dev/{found.device}", node=holder.node),)


GROWTH_DENIED: Final = (
    "ext4 does not grow it while it is mounted, for one of two causes: the file system has "
    "recorded an error, or the container of the CSI node plugin lacks the capability "
    "CAP_SYS_RESOURCE. The kernel log of the node decides: only for the first cause it has the "
    "line `There are errors in the filesystem, so online resizing is not allowed`"
)
"""EPERM of ext4_resize_begin() in fs/ext4/resize.c; it also refuses a mount from a backup super
block, and logs that. ceph-csi runs resize2fs in its container, privileged in its manifests."""
ALLOW_GROWTH: Final = (
    "If the kernel log on that node has that line, or `dumpe2fs -h` of the device shows a state "
    "`with errors`: end all pods with the volume on that node. kubelet checks and grows the file "
    "system at the next mount. If both are clean, compare `grep CapEff /proc/PID/status` of "
    "cephcsi: without the bit 0x1000000, run the node plugin privileged, in the user namespace of "
    "the host. The error is then no damage."
)
RULES: Final = (Rule(226, behind_on_node, CollectScope.LOGS | CollectScope.FILE_SYSTEMS),)
