"""RBD751 to RBD755, RBD764, RBD768: the file system on the image: mkfs, fsck, mount, read-only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rbdagent.codes import Code
from rbdagent.commands import command, filled, template
from rbdagent.correlate.holders import runs
from rbdagent.model import (
    CollectScope,
    Finding,
    LifecycleStep,
    Mapping,
    MountKind,
    Recovery,
    Severity,
    Verb,
    Verdict,
    observed_of,
    stated,
)
from rbdagent.parse.foreign import foreign_name
from rbdagent.parse.recognised import Recognised
from rbdagent.rules.context import Rule, RuleContext, delete_pod, device_log, finding, subject_of
from rbdagent.rules.entry import Entry
from rbdagent.rules.error_texts import (
    FIXED_ATTRIBUTES,
    IMAGE,
    KERNEL_VERSION,
    NODE_PODS,
    ErrorText,
    field_of_volume,
    fields_of,
    retried,
)
from rbdagent.rules.facts import (
    asks_for_many_readers,
    has_option_ro,
    is_cut_off,
    is_encrypted,
    is_mounted_there,
    is_no_file_system,
    is_non_primary,
    is_on_the_blocklist,
    is_plain_xfs,
    is_shrunk,
    is_stopped_there,
    kernel_line,
    kernel_log,
    kernel_says,
    stops_of,
)
from rbdagent.rules.map_errors import NOT_PRIMARY
from rbdagent.verdicts.volume_verdict import is_read_only, is_writable

if TYPE_CHECKING:
    from collections.abc import Iterator


_REPAIR: Final = (
    "Scale the workload to zero, and take a snapshot of the image (`rbd snap create`). Repair a "
    "clone of the snapshot first (`rbd clone`), and compare its files. Only then repair the image, "
    "on one node. docs/repair.md has each command."
)
ENTRIES: Final = (
    Entry(
        Code.MKFS_FAILS,
        Severity.ERROR,
        "Creating the file system on the new image fails.",
        remedy="Read `failed to run mkfs` in the log of the CSI node plugin on that node. Then "
        "correct the mkfsOptions of the StorageClass, the size, or Ceph (`ceph df`).",
        recovery=retried("the error that mkfs reports is repaired"),
        step=LifecycleStep.STAGE,
    ),
    Entry(
        Code.FILE_SYSTEM_DAMAGED,
        Severity.ERROR,
        "The file system has errors that fsck does not correct automatically.",
        remedy=_REPAIR,
        recovery=Recovery(note="fsck leaves uncertain repairs to an administrator"),
        step=LifecycleStep.STAGE,
    ),
    Entry(
        Code.WRONG_FILE_SYSTEM,
        Severity.ERROR,
        "The file system on the image cannot be mounted as the PV specifies.",
        remedy="Check the mount options first: spec.mountOptions of a PV can be changed. The "
        "node's kernel log names what was refused. Then check what is on the image (`blkid` on a "
        "read-only mapping; it prints nothing also for a device that cannot be read): the fsType "
        "of a PV cannot be changed; set Retain and create the PV again.",
        recovery=Recovery(
            actor="kubelet", condition="the file system can be mounted as the PV specifies"
        ),
        step=LifecycleStep.STAGE,
    ),
    Entry(
        Code.EMPTY_IMAGE_READ_ONLY,
        Severity.ERROR,
        "The image is empty and is to be mounted read-only: it contains no file system to mount.",
        remedy="Write to the image once through a ReadWriteOnce PV or claim, then use it "
        "read-only.",
        recovery=Recovery(note="an image that is only read is not formatted"),
        step=LifecycleStep.STAGE,
    ),
    # Before each unmount, ceph-csi asks whether a path is a mount point, and returns the error of
    # lstat (internal/rbd/nodeserver.go@52fcb7b, NodeUnpublishVolume and NodeUnstageVolume;
    # MountedFast in moby/sys/mountinfo): EIO for each path of an XFS that was shut down.
    Entry(
        Code.TURNED_READ_ONLY,
        Severity.ERROR,
        "The file system became read-only while its pods were running.",
        remedy="Check the kernel log and Ceph, and end the cause first. Then delete all pods with "
        "the volume on that node, so that it is unmounted: fsck runs when it is mounted again. An "
        "XFS that was shut down stays mounted, and its pods stay Terminating, until you run "
        "`umount` on that node for their paths and for the staging path. If the image is not "
        "primary here any more, no pod can map it here.",
        recovery=Recovery(note="only an unmount, and fsck at the next mount, end it"),
        step=LifecycleStep.USE,
    ),
    Entry(
        Code.DEVICE_BUSY,
        Severity.ERROR,
        "mkfs or mount finds the device in use on that node.",
        remedy=(
            "Do not repair and do not format. Run `",
            Verb("who-holds"),
            "` on that node to see what uses the device, and end that.",
        ),
        recovery=retried("nothing uses the device"),
        step=LifecycleStep.STAGE,
    ),
    Entry(
        Code.DEVICE_UNREADABLE,
        Severity.ERROR,
        "The device of the volume cannot be read, so its file system cannot be mounted.",
        remedy="The kernel log on that node has the reason: 108 for a client on the blocklist, "
        "`last sector read failed` for an image that was shrunk, a hanging task for Ceph. Do not "
        "repair and do not format.",
        recovery=retried("the device can be read"),
        step=LifecycleStep.STAGE,
    ),
)


_FS_TYPE: Final = field_of_volume("csi.fsType")
_FS_LOG: Final = template(
    "journalctl --dmesg --no-pager --lines=10 --grep=XFS|EXT4-fs|rbd:|libceph:|dm-", node="{node}"
)
"""The kernel names a file system by the device that it is on: rbd0, or dm-0 for a LUKS device."""


_GROW_BACK: Final = (
    "Do not repair the file system before: a repair cuts off what is behind the new end. Grow the "
    "image back to its former size first (`rbd resize --size`), at least the capacity of the PV. "
    "What was written behind the new end is lost."
)
_REPLAY: Final = (
    "Make a claim with ReadWriteOnce from the same snapshot or claim, and run one pod with it "
    "until it has mounted the volume: that replays the journal. Then clone that claim into one "
    "with ReadOnlyMany. A static PV needs one mount with ReadWriteOnce. Do not repair the "
    "file system before."
)
_SHRUNK: Final = ErrorText(
    (),
    Code.WRONG_FILE_SYSTEM,
    "the image was shrunk, and the file system is larger than its device",
    (IMAGE, template("kubectl get pv", "{volume}"), _FS_LOG),
    _GROW_BACK,
    Recovery(note="a shrunk image does not grow back"),
)
_CUT_OFF: Final = _SHRUNK._replace(
    code=Code.FILE_SYSTEM_DAMAGED,
    means="the image was shrunk, and fsck reports the missing end of its file system",
)
_SMALLER_AND_DAMAGED: Final = ErrorText(
    (),
    Code.FILE_SYSTEM_DAMAGED,
    "its file system has errors that fsck does not correct automatically, and the image is smaller "
    "than the PV: it was shrunk, or rolled back to an earlier snapshot",
    (
        IMAGE,
        template("kubectl get pv", "{volume}"),
        template("rbd snap create", "{image}@before-repair"),
    ),
    "Compare the size of the file system with that of the image first (`dumpe2fs -h` on a "
    "read-only mapping). If the file system is larger, grow the image back before any repair. If "
    f"it is not, repair a clone first. {_REPAIR}",
)
_SMALLER: Final = ErrorText(
    (),
    Code.WRONG_FILE_SYSTEM,
    "mount refuses a mount option, the type ({fs_type}), or the file system, and the image is "
    "smaller than the PV: the file system may be larger than its device",
    (_FS_LOG, IMAGE, field_of_volume("mountOptions")),
    "The kernel log on that node decides: `bad geometry` or `last sector read failed` means an "
    "image that was shrunk. Then grow it back to its former size, and repair nothing before.",
)
_MOUNTED_TWICE: Final = ErrorText(
    (),
    Code.WRONG_FILE_SYSTEM,
    "that node has the XFS file system of this image mounted already, on another mapping, and "
    "mounts it only once",
    (template("rbdagent who-holds", "pv/{volume}", node="{node}"), _FS_LOG),
    "See what the mapping on that node is used for, and end that use. Never mount the file system "
    "a second time with nouuid: two mounts of one image destroy it.",
    retried("the other mapping is gone"),
)
_EMPTY_FOR_READERS: Final = ErrorText(
    (),
    Code.EMPTY_IMAGE_READ_ONLY,
    "the image is empty, and its access modes contain ReadOnlyMany: the driver then mounts it "
    "read-only and does not format it",
    (field_of_volume("accessModes"),),
    "Make another claim with ReadWriteOnce alone. To share its data with many readers, restore or "
    "clone it into a claim with ReadOnlyMany. The access modes of a claim cannot be changed.",
    Recovery(note="an image that is only read is not formatted"),
)
_OPTION_RO: Final = ErrorText(
    (),
    Code.WRONG_FILE_SYSTEM,
    "its PV has the mount option ro, and this ceph-csi cannot stage a file system that is "
    "read-only",
    (field_of_volume("mountOptions"),),
    "Remove ro from the PV (spec.mountOptions can be changed) and from its class. A pod asks for "
    "a read-only mount itself (readOnly). Nothing is damaged.",
)
_DUPLICATE_UUID: Final = ErrorText(
    (),
    Code.WRONG_FILE_SYSTEM,
    "that node has mounted another XFS file system with the same UUID: this image is a clone or a "
    "copy of it",
    (_FS_LOG, field_of_volume("mountOptions")),
    "Add the mount option nouuid to the PV (spec.mountOptions can be changed), or run the pods on "
    "different nodes. Neither file system is damaged.",
    retried("the option is set, or the other file system is unmounted there"),
)
_NEWER_FEATURE: Final = ErrorText(
    (),
    Code.WRONG_FILE_SYSTEM,
    "the file system has features that this kernel does not know",
    (KERNEL_VERSION, _FS_LOG),
    "A newer mkfs made the file system. Run the pod on a node with a newer kernel. The file "
    "system is not damaged: do not repair it.",
    retried("the node has a newer kernel"),
)
_XFS_REFUSED: Final = ErrorText(
    (),
    Code.WRONG_FILE_SYSTEM,
    "mount refuses the XFS file system, for one of two usual reasons: that node has mounted "
    "another one with the same UUID (a clone), or it has features that are newer than the kernel",
    (_FS_LOG, KERNEL_VERSION, field_of_volume("mountOptions")),
    "The kernel log on that node decides: `Filesystem has duplicate UUID` needs the mount option "
    "nouuid, `unknown incompatible features` a newer kernel. Do not repair the file system before.",
)
_LUKS_REFUSED: Final = ErrorText(
    (),
    Code.WRONG_FILE_SYSTEM,
    "mount refuses what is on the LUKS device {device}: a mount option, the type ({fs_type}), or "
    "the file system in it",
    (_FS_LOG, field_of_volume("mountOptions"), _FS_TYPE),
    "The kernel log on that node names the device as dm-N (`dmsetup ls` shows which one that is) "
    "and the reason. The passphrase is right: the device is open.",
)
FILE_SYSTEM_TEXTS: Final = (
    ErrorText(
        (Recognised.DEVICE_IN_USE,),
        Code.DEVICE_BUSY,
        "something on that node already uses the device",
        (template("rbdagent who-holds", "pv/{volume}", node="{node}"),),
    ),
    ErrorText(
        (Recognised.FSCK_FAILED,),
        Code.FILE_SYSTEM_DAMAGED,
        "its file system has errors that fsck does not correct automatically",
        (template("rbd snap create", "{image}@before-repair"),),
        causes=((is_cut_off, _CUT_OFF), (is_shrunk, _SMALLER_AND_DAMAGED)),
    ),
    ErrorText(
        # ceph-csi v2.1.0 has no checkAndRepairXfsFilesystem any more (ceph-csi#859).
        (Recognised.XFS_LOG_NOT_REPLAYED,),
        Code.WRONG_FILE_SYSTEM,
        "ceph-csi 2.0 checks an XFS file system with xfs_repair before it mounts it, and that "
        "refuses one whose log has to be replayed, as after a crash of a node. A mount replays it: "
        "this alone is no damage",
        (template("rbdagent who-holds", "pv/{volume}"), NODE_PODS),
        "Update ceph-csi: 2.1.0 and newer do not run xfs_repair. Or replay the log by hand: when "
        "nothing else holds the image, map it on one node, mount it once, unmount it, and unmap "
        "it. Do not run `xfs_repair -L`: it discards the last writes.",
        retried("the log has been replayed, or a newer ceph-csi mounts it"),
    ),
    ErrorText(
        (Recognised.STRUCTURE_NEEDS_CLEANING,),
        Code.FILE_SYSTEM_DAMAGED,
        "the metadata of its file system ({fs_type}) is damaged (Structure needs cleaning)",
        (_FS_LOG, template("rbd snap create", "{image}@before-repair")),
        f"{_REPAIR} `xfs_repair -n` or `e2fsck -fn` shows what a repair would do. `xfs_repair -L` "
        "discards the last writes: use it on the clone alone, and only if a mount cannot replay "
        "the log.",
        causes=((is_shrunk, _SMALLER_AND_DAMAGED),),
    ),
    ErrorText(
        (Recognised.UNFORMATTED,),
        Code.EMPTY_IMAGE_READ_ONLY,
        "the image is empty and is to be mounted read-only",
        causes=((asks_for_many_readers, _EMPTY_FOR_READERS),),
    ),
    ErrorText(
        (Recognised.STAGED_READ_ONLY,),
        Code.WRONG_FILE_SYSTEM,
        "its file system is read-only there, and this ceph-csi cannot stage one that is",
        (_FS_LOG, field_of_volume("mountOptions")),
        "The kernel log on that node decides: after an error of the file system, repair its cause "
        "first. Otherwise something asks for a read-only volume.",
        causes=((has_option_ro, _OPTION_RO),),
    ),
    ErrorText(
        (Recognised.ANOTHER_FILE_SYSTEM,),
        Code.WRONG_FILE_SYSTEM,
        "the image does not contain the requested file system ({fs_type})",
        (_FS_TYPE,),
        "Check what is on the image (`blkid` on a read-only mapping; it prints nothing also for a "
        "device that cannot be read). The fsType of a PV cannot be changed: set Retain and create "
        "the PV again with the right one.",
        Recovery(note="a PV's fsType cannot be changed"),
    ),
    ErrorText(
        (Recognised.UNKNOWN_FILE_SYSTEM,),
        Code.WRONG_FILE_SYSTEM,
        "its kernel knows no file system {type}",
        (template("cat /proc/filesystems", node="{node}"), KERNEL_VERSION, _FS_TYPE),
        "Load the kernel module of that file system on that node, or install the package that has "
        "it. If the type is misspelled, the fsType of the PV cannot be changed: set Retain and "
        "create the PV again. The file system is not damaged.",
        retried("the kernel knows the file system"),
        causes=(
            (
                is_no_file_system,
                ErrorText(
                    (),
                    Code.WRONG_FILE_SYSTEM,
                    "the image contains {type}, which is no file system that can be mounted",
                    (_FS_TYPE, field_of_volume("csi.volumeAttributes")),
                    "Compare the PV with the one that the data was written with: crypto_LUKS needs "
                    "the attributes encrypted and encryptionKMSID, and a disk of a virtual machine "
                    "or of LVM needs volumeMode Block. Both cannot be changed: set Retain and "
                    "create the PV again. Do not format the image.",
                    FIXED_ATTRIBUTES,
                ),
            ),
        ),
    ),
    ErrorText(
        # ReadOnlyMany: ceph-csi maps with --read-only, and mount-utils runs no fsck.
        (Recognised.NOT_MOUNTED_READ_ONLY,),
        Code.WRONG_FILE_SYSTEM,
        "its file system cannot be mounted from a device that is read-only: most likely its "
        "journal has to be replayed, as after a snapshot of a volume in use",
        (_FS_LOG, field_of_volume("accessModes")),
        _REPLAY,
        Recovery(note="a journal is not replayed on a device that is read-only"),
        causes=(
            (
                kernel_says(Recognised.RECOVERY_NEEDS_WRITES),
                ErrorText(
                    (),
                    Code.WRONG_FILE_SYSTEM,
                    "the journal of its file system has to be replayed, and the device is "
                    "read-only: the image is a copy of a volume that was in use",
                    (_FS_LOG, field_of_volume("accessModes")),
                    _REPLAY,
                    Recovery(note="a journal is not replayed on a device that is read-only"),
                ),
            ),
        ),
    ),
    ErrorText(
        (Recognised.SUPER_BLOCK_UNREADABLE,),
        Code.DEVICE_UNREADABLE,
        "the super block of {device} cannot be read: each read of the device fails",
        (_FS_LOG, IMAGE, template("ceph osd blocklist ls")),
        causes=(
            (
                is_on_the_blocklist,
                ErrorText(
                    (),
                    Code.DEVICE_UNREADABLE,
                    "each read of {device} fails, because the client of that node is on the "
                    "blocklist",
                    (template("ceph osd blocklist ls"),),
                    "See the finding about the blocklisted client.",
                ),
            ),
            (
                is_shrunk,
                ErrorText(
                    (),
                    Code.DEVICE_UNREADABLE,
                    "the super block of {device} cannot be read, and the image is smaller than the "
                    "PV: most likely it was shrunk, and the end of the file system is missing",
                    (IMAGE, template("kubectl get pv", "{volume}"), _FS_LOG),
                    _GROW_BACK,
                    Recovery(note="a shrunk image does not grow back"),
                ),
            ),
        ),
    ),
    ErrorText(
        (Recognised.STAGING_PATH_FAILS,),
        Code.DEVICE_UNREADABLE,
        "each access to the file system at its staging path there fails (input/output error): its "
        "device cannot be read, or the kernel has stopped the file system",
        (_FS_LOG, template("ceph osd blocklist ls"), template("ceph health detail")),
        causes=(
            (
                is_stopped_there,
                ErrorText(
                    (),
                    Code.DEVICE_UNREADABLE,
                    "the kernel has stopped its file system after I/O errors, and it is still "
                    "mounted at the staging path there",
                    (_FS_LOG, template("ceph health detail"), NODE_PODS),
                    "End the cause of the I/O errors first (`ceph health detail`, the blocklist). "
                    "Then end all pods with the volume on that node, and run `umount` there for "
                    "the staging path: the driver cannot, because stat fails for it, too. The next "
                    "mount replays the log. Do not repair the file system before.",
                    retried("the file system was unmounted and mounted again"),
                ),
            ),
        ),
    ),
)
MOUNT_REFUSED: Final = ErrorText(
    (Recognised.MOUNT_REFUSED,),
    Code.WRONG_FILE_SYSTEM,
    "mount refuses a mount option, the type ({fs_type}), or the file system: its superblock, "
    "or a feature that is newer than that node's kernel",
    (field_of_volume("mountOptions"), _FS_TYPE, _FS_LOG),
    causes=(
        (is_mounted_there, _MOUNTED_TWICE),
        (kernel_says(Recognised.DUPLICATE_UUID), _DUPLICATE_UUID),
        (kernel_says(Recognised.UNKNOWN_FEATURE), _NEWER_FEATURE),
        (kernel_says(Recognised.BAD_GEOMETRY), _SHRUNK),
        (is_shrunk, _SMALLER),
        (is_plain_xfs, _XFS_REFUSED),
        (is_encrypted, _LUKS_REFUSED),
    ),
)
FORMAT_FAILED: Final = ErrorText(
    (Recognised.FORMAT_FAILED,),
    Code.MKFS_FAILS,
    "no file system can be created on the image",
)


def turned_read_only(context: RuleContext) -> Iterator[Finding]:
    """Report RBD755: the superblock is read-only, but mapping and PV do not ask for that."""
    if is_read_only(context.volume) or has_option_ro(context, {}):
        return
    for holder_verdict in context.holder_verdicts:
        mapping, node = holder_verdict.holder.mapping, holder_verdict.holder.node
        if (
            mapping is None
            or holder_verdict.verdict is Verdict.DEAD
            or is_writable(mapping) is not True
        ):
            continue
        read_only = [
            mount
            for mount in observed_of(mapping.mounts)
            if mount.read_only and mount.kind is MountKind.FILE_SYSTEM
        ]
        pods = [pod for pod in context.volume.pods if pod.node_name == node and runs(pod)]
        stops = stops_of(context, mapping) if pods or read_only else ()
        if not read_only and not stops:
            continue
        refused = _why_refused(context, mapping)
        users = (
            stated("{pods}", pods=[pod.ref for pod in pods])
            if pods
            else "every process that uses it"
        )
        # The file system stays mounted as long as one of its pods runs, so the oldest counts.
        begun = min((pod.created_at or "" for pod in pods), default="")
        certain = bool(read_only) or any(begun and entry.at > begun for entry in stops)
        what = subject_of(holder_verdict.holder)
        yield finding(
            Code.TURNED_READ_ONLY,
            what,
            stated(
                "The file system of {holder} has become read-only: writes of {} fail.{}",
                users,
                refused,
                holder=what,
            )
            if certain
            else stated(
                "The kernel stopped a file system on {holder} before {} began, and logged no "
                "mount of that device since: most likely all writes fail there.{}",
                users,
                refused,
                holder=what,
            ),
            severity=None if certain else Severity.WARNING,
            evidence=(
                *(
                    f"{mount.fs_type} at {foreign_name(mount.path)} is read-only, "
                    f"{mapping.device} is not"
                    for mount in read_only[:3]
                ),
                *map(kernel_line, stops),
            ),
            commands=(
                device_log(mapping.kernel_name, node),
                *(
                    filled(NOT_PRIMARY.commands, fields_of(node, context, {}))
                    if refused
                    else (command("ceph health detail"), *map(delete_pod, pods))
                ),
            ),
        )


def _why_refused(context: RuleContext, mapping: Mapping) -> str:
    """Return why Ceph refuses the writes, if the image is mirrored; empty otherwise."""
    view = context.volume.image_view
    if view is None or view.mirrored is not True:
        return ""
    is_refused = any(
        Recognised.WRITE_REFUSED.is_in(entry.text) and mapping.kernel_name in entry.names
        for entry in kernel_log(context)
    )
    if not is_refused and not is_non_primary(context, {}):
        return ""
    return (
        " The image is not primary in this cluster any more: a new pod will not map it here "
        "either. Promote it here, or run the pods where it is primary."
    )


RULES: Final = (Rule(230, turned_read_only, CollectScope.LOGS),)
