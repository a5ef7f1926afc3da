"""RBD756 to RBD763, RBD767, RBD769: what keeps kubelet from giving a pod its volume.

The errors of its steps are in csi_driver.py, map_errors.py, encryption.py and file_system.py. The
rules here report the texts of all of them: parse/recognised.py has the texts and their sources,
parse/faults.py the error numbers of Ceph's calls.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rbdagent.codes import Code
from rbdagent.commands import template
from rbdagent.model import (
    CollectScope,
    Finding,
    InTreeRbdSource,
    LifecycleStep,
    Recovery,
    Severity,
    Subject,
    stated,
)
from rbdagent.parse.foreign import foreign
from rbdagent.parse.recognised import Recognised
from rbdagent.rules.beside import beside
from rbdagent.rules.context import ATTACHER, Rule, RuleContext, finding, list_pods_on
from rbdagent.rules.csi_driver import (
    DRIVER_TEXTS,
    MONITORS_TEXTS,
    has_just_come,
    is_attacher_back,
    is_attachment_new,
    is_back,
    lacks_driver,
)
from rbdagent.rules.encryption import ENCRYPTION_TEXTS
from rbdagent.rules.entry import Entry
from rbdagent.rules.error_texts import (
    CONFIG_MAPS,
    IMAGE,
    KERNEL_VERSION,
    NODE_PODS,
    ErrorText,
    attach_errors,
    attach_finding,
    event_finding,
    events_by_code,
    field_of_volume,
    retried,
    unrecognised_events,
    waiters_text,
)
from rbdagent.rules.facts import (
    is_present,
    is_raw_block,
    is_unmapped_there,
    names_a_program,
    ownership_begun,
    plugin_adds,
)
from rbdagent.rules.file_system import FILE_SYSTEM_TEXTS, FORMAT_FAILED, MOUNT_REFUSED
from rbdagent.rules.growth_on_node import ALLOW_GROWTH, GROWTH_DENIED
from rbdagent.rules.image_in_use import is_for_lock
from rbdagent.rules.map_errors import MAP_TEXTS, NO_POOL_NAMED
from rbdagent.rules.pod_events import PodEvent, pod_event_evidence
from rbdagent.verdicts.timing import RETRY_S

if TYPE_CHECKING:
    from collections.abc import Iterator


ENTRIES: Final = (
    Entry(
        Code.SHARED_FILE_SYSTEM_REFUSED,
        Severity.ERROR,
        "The claim requests a file system on many nodes, which RBD does not support.",
        remedy="Use ReadWriteOnce; or volumeMode Block for programs that coordinate their access "
        "to a shared disk; or CephFS for files that many nodes write.",
        recovery=Recovery(
            note="the access modes and volume mode of existing objects cannot be changed"
        ),
        step=LifecycleStep.STAGE,
    ),
    Entry(
        Code.VOLUME_MODE_MISUSED,
        Severity.ERROR,
        "The pod uses a raw block volume as a directory, or a file system as a device.",
        remedy="Correct the pod: volumeDevices for Block, volumeMounts for Filesystem.",
        recovery=Recovery(note="the containers of a pod cannot be changed"),
        step=LifecycleStep.PUBLISH,
    ),
    Entry(
        Code.OWNERSHIP_NOT_SET,
        Severity.ERROR,
        "kubelet cannot change the group of the volume's files to the pod's fsGroup.",
        remedy="If the volume is only to be read, omit fsGroup. If not, find out why it does not "
        "accept writes (RBD755, `ceph health detail`).",
        recovery=retried("the volume can be written"),
        step=LifecycleStep.PUBLISH,
    ),
    Entry(
        Code.SELINUX_CONFLICT,
        Severity.ERROR,
        "Two pods use the volume on one node with different SELinux labels.",
        remedy="Give both pods the same seLinuxOptions, or run them on different nodes if the "
        "volume allows that.",
        recovery=retried("the other pod has ended"),
        step=LifecycleStep.PUBLISH,
    ),
    Entry(
        Code.IN_TREE_PLUGIN_GONE,
        Severity.ERROR,
        "The volume uses the in-tree RBD plugin, which this version of Kubernetes does not have.",
        remedy="Create a static CSI PV of the same image: driver rbd.csi.ceph.com, volumeHandle "
        'the image\'s name, staticVolume "true", clusterID, pool, and Retain.',
        recovery=Recovery(note="the plugin does not come back"),
        step=LifecycleStep.STAGE,
    ),
    Entry(
        Code.EXPAND_FAILS,
        Severity.ERROR,
        "The file system cannot be expanded to the volume's new size.",
        remedy="Check the claim's conditions, and the image's size with `rbd info`. Run fsck if "
        "the file system reports errors.",
        recovery=retried("the reported error is repaired"),
        step=LifecycleStep.PUBLISH,
    ),
    Entry(
        Code.MOUNT_FAILS,
        Severity.ERROR,
        "kubelet cannot map or mount the volume.",
        remedy="Repair what the event names. The CSI node plugin's log on that node has more "
        "details.",
        recovery=retried("the reported error is repaired"),
        step=LifecycleStep.STAGE,
    ),
    Entry(
        Code.OWNERSHIP_BEING_SET,
        Severity.INFO,
        "kubelet is changing the group of the volume's files to the pod's fsGroup, file by file.",
        remedy="Wait: a pod that is deleted begins again. fsGroupChangePolicy: OnRootMismatch in "
        "the pod's template avoids it the next time.",
        recovery=Recovery(actor="kubelet"),
        step=LifecycleStep.PUBLISH,
    ),
    # omap: what Velero and `kubectl apply` of saved PVs do not restore; velero#6864.
    Entry(
        Code.JOURNAL_ENTRY_MISSING,
        Severity.ERROR,
        "ceph-csi's journal has no entry for the volume, so the driver does not find its image.",
        remedy='If the image is there, create a static PV for it: staticVolume "true", '
        "volumeHandle the name of the image, pool and clusterID, and Retain. If it is not, the PV "
        "is of another cluster or pool: check its clusterID. Do not delete the claim while its "
        "reclaim policy is Delete.",
        recovery=Recovery(note="no component writes the journal entry again"),
        step=LifecycleStep.STAGE,
    ),
    # SetUp runs after MountDevice, or if kubelet has the device as globally mounted
    # (pkg/volume/util/operationexecutor/operation_generator.go, GenerateMountVolumeFunc).
    Entry(
        Code.NOTHING_STAGED,
        Severity.ERROR,
        "kubelet takes the volume for staged on that node, and nothing is at its staging path.",
        remedy="End all pods with the volume on that node: kubelet then gives it up, and stages it "
        "again for the next pod. If that is not possible, restart kubelet there: it does not "
        "rely on what it staged before.",
        recovery=Recovery(note="kubelet stages a volume again only after it has given it up"),
        step=LifecycleStep.PUBLISH,
    ),
)


_WITH_ITS_TOOLS: Final = (
    "Use an image of the driver that has the program: the plugin runs its own tools, and those of "
    "the node do not count. kubelet itself runs losetup, on the node."
)
# The event has the status alone, also of other programs in old versions (ceph-csi#1217).
_PROGRAM_ENDED: Final = ErrorText(
    (),
    Code.MOUNT_FAILS,
    "a program of the CSI node plugin has ended with status {status}. The event does not name it; "
    "it is not mkfs, since the volume is a raw block device",
    (NODE_PODS,),
    "Read the log of the CSI node plugin on that node: it names the program, and what it printed. "
    "Mend that.",
    retried("what that program reports is mended"),
)
ERROR_TEXTS: Final = (
    *DRIVER_TEXTS,
    NO_POOL_NAMED,
    *MONITORS_TEXTS,
    *MAP_TEXTS,
    *ENCRYPTION_TEXTS,
    ErrorText(
        (Recognised.NO_PROGRAM,),
        Code.MOUNT_FAILS,
        "a program is missing in the image of the CSI node plugin (for {fs_type}: mkfs.{fs_type} "
        "or fsck.{fs_type})",
        (NODE_PODS,),
        _WITH_ITS_TOOLS,
        retried("the plugin has the program"),
        causes=(
            (
                names_a_program,
                ErrorText(
                    (),
                    Code.MOUNT_FAILS,
                    "the program {program} is missing where the CSI node plugin, or kubelet, runs "
                    "it",
                    (NODE_PODS,),
                    _WITH_ITS_TOOLS,
                    retried("the program is there"),
                ),
            ),
        ),
    ),
    ErrorText(
        (Recognised.KUBELETS_DISK,),
        Code.MOUNT_FAILS,
        "the directory of kubelet there cannot be written ({why}): the disk of the node, not the "
        "volume",
        (
            template("df -h", node="{node}"),
            template("df -i", node="{node}"),
        ),
        "Free space or inodes on the disk of the node that has the directory of kubelet. If that "
        "disk is read-only, the kernel log of the node has the reason. The volume is not affected.",
        retried("that directory can be written"),
    ),
    *FILE_SYSTEM_TEXTS,
    ErrorText(
        (Recognised.NOTHING_STAGED,),
        Code.NOTHING_STAGED,
        "kubelet takes the volume for staged there, and nothing is at its staging path",
        (NODE_PODS, template("rbdagent who-holds", "pv/{volume}", node="{node}")),
        causes=(
            (
                is_unmapped_there,
                ErrorText(
                    (),
                    Code.NOTHING_STAGED,
                    "kubelet takes the volume for staged there, and nothing is at its staging "
                    "path: that node has not mapped the image",
                    (NODE_PODS,),
                ),
            ),
        ),
    ),
    ErrorText(
        (Recognised.RESIZE_REFUSED,),
        Code.EXPAND_FAILS,
        "the file system is smaller than its image, and resize2fs cannot open {device}: this "
        "kernel forbids writes to a device that is mounted",
        (KERNEL_VERSION, IMAGE),
        "The kernel is built without CONFIG_BLK_DEV_WRITE_MOUNTED (6.8 and later). Boot it with "
        "bdev_allow_write_mounted=1, or use another kernel there (rook#16367). Or mount the file "
        "system by hand on one node and grow it there. The data is not affected.",
        retried("the kernel allows it"),
    ),
    ErrorText(
        (Recognised.RESIZE_DENIED,),
        Code.EXPAND_FAILS,
        f"the file system is smaller than its image, and {GROWTH_DENIED}",
        (template("journalctl --dmesg --no-pager --lines=10 --grep=EXT4-fs", node="{node}"), IMAGE),
        ALLOW_GROWTH,
        retried("the kernel allows it"),
    ),
    ErrorText(
        # parseBoolOption takes a value such as "yes" for false, and only logs that.
        (Recognised.HANDLE_OF_ANOTHER_FORM,),
        Code.JOURNAL_ENTRY_MISSING,
        "the handle {handle} of the PV is not one that ceph-csi has made, and the PV has no "
        'staticVolume "true"',
        (field_of_volume("csi.volumeHandle"), field_of_volume("csi.volumeAttributes")),
        'If the PV was made by hand, set it to Retain and create it again with staticVolume "true" '
        "in its volumeAttributes, beside clusterID and pool, and the name of the image as its "
        "volumeHandle. If it was copied, its volumeHandle has to be that of the original.",
        Recovery(note="neither the handle nor the attributes of a PV can be changed"),
    ),
    ErrorText(
        (Recognised.DRIVER_PANICKED,),
        Code.MOUNT_FAILS,
        "the CSI driver has a defect that this call meets: it panicked ({why})",
        (NODE_PODS,),
        "Read the log of the CSI node plugin on that node: its lines before `panic occurred` show "
        "what the driver did. Then update ceph-csi, or report it. The call has ended, and other "
        "volumes are not affected.",
        retried("the driver does not meet the defect"),
    ),
    ErrorText(
        (Recognised.NO_VOLUME_IN_JOURNAL,),
        Code.JOURNAL_ENTRY_MISSING,
        "ceph-csi's journal in the pool has no volume {handle}",
        (IMAGE, template("rados ls --pool", "{pool}")),
        causes=(
            (
                is_present,
                ErrorText(
                    (),
                    Code.JOURNAL_ENTRY_MISSING,
                    "ceph-csi's journal in the pool has no volume {handle}, although rbdagent "
                    "finds its image: the PV was restored without its journal entry, or the driver "
                    "looks in another cluster or pool",
                    (IMAGE, field_of_volume("csi.volumeAttributes"), *CONFIG_MAPS),
                ),
            ),
        ),
    ),
    MOUNT_REFUSED,
    ErrorText(
        (Recognised.MANY_WRITERS,),
        Code.SHARED_FILE_SYSTEM_REFUSED,
        "RBD does not support a file system on many nodes (ReadWriteMany)",
    ),
    ErrorText(
        (Recognised.WRONG_MODE,),
        Code.VOLUME_MODE_MISUSED,
        "its volume {name} has volumeMode {mode}, but the pod names it in {list}",
    ),
    ErrorText(
        (Recognised.SELINUX,),
        Code.SELINUX_CONFLICT,
        "another pod there uses the volume with a different SELinux label",
        (NODE_PODS,),
    ),
    ErrorText(
        (Recognised.SETTING_OWNERSHIP,),
        Code.OWNERSHIP_BEING_SET,
        "kubelet is changing the group of the volume's files to the pod's fsGroup",
    ),
    ErrorText(
        (Recognised.OWNERSHIP_FAILED,),
        Code.OWNERSHIP_NOT_SET,
        "kubelet cannot change the group of the volume's files to the pod's fsGroup",
    ),
    ErrorText(
        (Recognised.EXPANSION_FAILED,),
        Code.EXPAND_FAILS,
        "the file system cannot be expanded",
        (template("kubectl describe pvc", "{claim_name}", namespace="{claim_namespace}"), IMAGE),
    ),
    ErrorText(
        (Recognised.NO_PLUGIN,),
        Code.IN_TREE_PLUGIN_GONE,
        "its kubelet no longer has a plugin for this volume",
    ),
    FORMAT_FAILED._replace(causes=((is_raw_block, _PROGRAM_ENDED),)),
)
"""The texts of all steps on a node, in this order; the first that matches applies."""

_BY_NOW: Final = " The driver is registered there now: the next retry will succeed."


def mount_failed(context: RuleContext) -> Iterator[Finding]:
    """Report RBD731 to RBD769: what the newest event of a waiting pod means.

    Pods with the same error share one finding.
    """
    for code, pod_events in events_by_code(ERROR_TEXTS, context).items():
        if code == Code.DRIVER_DOWN_WHERE_WANTED and any(
            lacks_driver(pod_event.node, context) for pod_event in pod_events
        ):
            continue
        if code == Code.IMAGE_NOT_FOUND and _image_is_known_gone(context):
            continue
        if code == Code.IN_TREE_PLUGIN_GONE and not _may_be_in_tree(context):
            # The volume without a plugin is another volume of the pod.
            continue
        yield _mount_failure(code, pod_events, context)
    unknown = [
        pod_event for pod_event in unrecognised_events(context) if _is_failed_mount(pod_event)
    ]
    added = plugin_adds(unknown[0], context) if unknown else ""
    if added:
        yield finding(
            Code.MOUNT_FAILS,
            Subject.of_pod(unknown[0].event.subject),
            stated(
                "{}: {error}. The log of the CSI node plugin has this after the error of the "
                "event.",
                waiters_text(unknown),
                error=foreign(added),
            ),
            evidence=pod_event_evidence(unknown[0], context),
            commands=(list_pods_on(str(unknown[0].node)),),
        )
    elif unknown:
        yield event_finding(
            Code.MOUNT_FAILS, unknown, context, note=beside(context, unknown[0].node)
        )


def _mount_failure(code: Code, pod_events: list[PodEvent], context: RuleContext) -> Finding:
    without = code == Code.DRIVER_DOWN_WHERE_WANTED
    if without and all(is_back(waiter, context) for waiter in pod_events):
        return event_finding(
            code,
            pod_events,
            context,
            note=_BY_NOW,
            severity=Severity.INFO,
            recovery=Recovery(actor="kubelet", within_s=RETRY_S),
        )
    is_new = without and all(has_just_come(waiter.node, context) for waiter in pod_events)
    # RBD742 reports what Ceph refuses; if Ceph was not queried, only RBD736 is known.
    is_explained = code == Code.CEPH_REFUSES_USER and is_for_lock(pod_events[0], context)
    severity = Severity.INFO if is_new or is_explained else None
    return event_finding(code, pod_events, context, severity=severity)


def _is_failed_mount(pod_event: PodEvent) -> bool:
    """Return whether an event reports a failed mount of a volume that it names.

    An event that names no volume may be about any other volume of the pod.
    """
    text, is_mount = pod_event.text, pod_event.event.reason in {"FailedMount", "FailedMapVolume"}
    if Recognised.ATTACH_FAILED.is_in(text):
        return False
    return is_mount and Recognised.NAMES_A_VOLUME.is_in(text)


def attach_refused(context: RuleContext) -> Iterator[Finding]:
    """Report what the attachError of a VolumeAttachment means, if it is an error of the driver."""
    for code, attachment in attach_errors(ERROR_TEXTS, context):
        if code == Code.DRIVER_DOWN_WHERE_WANTED and is_attacher_back(attachment, context):
            yield attach_finding(
                code,
                attachment,
                context,
                note=_BY_NOW,
                severity=Severity.INFO,
                recovery=Recovery(actor=ATTACHER, within_s=RETRY_S),
            )
            continue
        is_new = code == Code.DRIVER_DOWN_WHERE_WANTED and is_attachment_new(attachment, context)
        yield attach_finding(code, attachment, context, severity=Severity.INFO if is_new else None)


def _may_be_in_tree(context: RuleContext) -> bool:
    """Return whether the volume may use the in-tree RBD plugin; a volume in a pod has no PV."""
    volume = context.volume.persistent_volume
    return volume is None or isinstance(volume.source, InTreeRbdSource)


def _image_is_known_gone(context: RuleContext) -> bool:
    """Return whether Ceph reports the image as gone: RBD301 or RBD302 has more details."""
    view = context.volume.image_view
    return view is not None and view.presence in {"gone", "trash"}


def ownership_being_set(context: RuleContext) -> Iterator[Finding]:
    """Report RBD763 by the log of kubelet: the event comes only with long-running changes.

    kubelet logs it when it begins, and ends with the pod's start.
    """
    is_reported = any(
        Recognised.SETTING_OWNERSHIP.is_in(event.message) for event in context.volume.events
    )
    found = ownership_begun(context)
    if is_reported or found is None:
        return
    begun, pod = found
    yield finding(
        Code.OWNERSHIP_BEING_SET,
        Subject.of_pod(pod.ref),
        stated(
            "{pod} waits on {node}: kubelet is changing the group of the volume's files to the "
            "pod's fsGroup. Its log has that since {since}.",
            pod=pod.ref,
            node=pod.node_name,
            since=begun.at,
        ),
        evidence=(f"kubelet at {begun.at}: {foreign(begun.text)}",),
    )


RULES: Final = (
    Rule(466, attach_refused),
    Rule(485, ownership_being_set, CollectScope.LOGS),
    Rule(500, mount_failed, CollectScope.PROVISIONERS | CollectScope.LOGS),
)
