"""RBD2xx: faults of a node."""

from __future__ import annotations

from typing import Final

from rbdagent.catalog.entry import Entry
from rbdagent.model import LifecycleStep, Recovery, Severity

ENTRIES: Final = (
    Entry(
        "RBD201",
        "CSIDriverDown",
        Severity.ERROR,
        "The CSI driver does not answer on the node that holds the volume.",
        cause="The node plugin's pod was evicted, crashed, or cannot start.",
        evidence="CSINode lacks the driver, or its socket does not listen.",
        risk="kubelet can neither mount nor unmount: pods hang in Terminating, and the next node "
        "gets Multi-Attach. A force delete does not help: it removes only the API object.",
        remedy="Bring the CSI node plugin back on that node. kubelet then completes the operation.",
        recovery=Recovery(
            actor="kubelet", condition="the driver answers there again", within_s=122
        ),
        step=LifecycleStep.UNSTAGE,
    ),
    Entry(
        "RBD202",
        "KubeletDown",
        Severity.ERROR,
        "kubelet does not run on this node.",
        cause="It was stopped, or fails to start.",
        evidence="No kubelet process.",
        risk="Containers keep running; nothing is mounted or unmounted. After six minutes the "
        "controller detaches by force, and the next node gets 'still being used'.",
        remedy="Start kubelet: it cleans up the volumes that it finds.",
        recovery=Recovery(actor="kubelet", condition="it runs again"),
        step=LifecycleStep.UNPUBLISH,
    ),
    Entry(
        "RBD203",
        "OperationHangs",
        Severity.ERROR,
        "An operation on this volume hangs.",
        cause="Ceph answers slowly or not at all (an OSD is down, a PG is inactive); ceph-csi "
        "itself has no timeout.",
        evidence="A process in uninterruptible sleep, hanging requests in osdc, or the event of a "
        "pod that waits: `DeadlineExceeded` (the first call, after two minutes), then `an "
        "operation with the given Volume ID … already exists` (each further call until the first "
        "one ends).",
        risk="Killing the processes leaves the watch and the mapping behind.",
        remedy="Repair Ceph first (`ceph health detail`). The operation then completes. If Ceph is "
        "healthy and the operation does not complete, restart the CSI node plugin's pod on that "
        "node: this releases the lock in the plugin's memory, but ends no process in "
        "uninterruptible sleep.",
        recovery=Recovery(
            actor="the operation itself and kubelet", condition="Ceph answers", within_s=122
        ),
        step=LifecycleStep.STAGE,
    ),
    Entry(
        "RBD204",
        "DeviceNodeMissing",
        Severity.WARNING,
        "The mapping is in sysfs, but its device node is missing from /dev.",
        cause="The device node was removed, or /dev is not the host's devtmpfs, as in a container.",
        evidence="sysfs, compared with /dev on the host.",
        risk="Tools that use /dev miss the mapping.",
        remedy="Create the device node again with the number that sysfs has for the device "
        "(mknod). udev does not create device nodes. Without a device node, unmap the device by "
        "its id in sysfs.",
        recovery=Recovery(note="no component creates the device node again"),
    ),
    Entry(
        "RBD205",
        "PodDirectoryLeft",
        Severity.WARNING,
        "A pod's directory of the volume is left, the pod is not in the API, and nothing is "
        "mounted there.",
        cause="A force delete, or a crash between two steps of the teardown.",
        evidence="kubelet's pods directory, the API's pods, and the mounts.",
        risk="kubelet logs `orphaned pod … volume paths are still present`; nothing else.",
        remedy="List the directory. Remove vol_data.json with rm and empty directories with rmdir, "
        "never with rm -r. kubelet then removes the pod's directory.",
        recovery=Recovery(note="kubelet only logs it"),
        step=LifecycleStep.UNPUBLISH,
    ),
    Entry(
        "RBD206",
        "StagingWithoutVolumeData",
        Severity.WARNING,
        "The volume is staged, and its vol_data.json is missing.",
        cause="A crash, or a race between the clean-up of ceph-csi and of kubelet "
        "(kubernetes#101911).",
        evidence="The staging mount without the file beside it.",
        risk="kubelet cannot unstage a volume that it cannot identify.",
        remedy="Never recreate the file by hand. See RBD110.",
        recovery=Recovery(note="kubelet cannot identify the volume that is staged there"),
        step=LifecycleStep.UNSTAGE,
    ),
    Entry(
        "RBD207",
        "SameNameElsewhere",
        Severity.INFO,
        "Another image of the same name is mapped on this node.",
        cause="Two clusters with equal pool and image names, or an image that was deleted and "
        "created again.",
        evidence="The cluster's fsid, or the image's id, differs.",
        risk="An unmap by name may remove the wrong mapping.",
        remedy="Use the device in commands, never the image's name.",
        recovery=None,
    ),
)
