"""RBD2xx: what is wrong on a node."""

from __future__ import annotations

from typing import Final

from rbdagent.catalog.entry import Entry
from rbdagent.model import Heals, LifeStep, Severity

ENTRIES: Final = (
    Entry(
        "RBD201",
        "CSIDriverDown",
        Severity.ERROR,
        "The CSI driver does not answer on the node that holds the volume.",
        cause="The node plugin's pod was evicted, crashed, or cannot start.",
        evidence="CSINode lacks the driver, or its socket does not listen.",
        risk="kubelet can neither mount nor unmount: pods hang in Terminating, and the next node "
        "gets Multi-Attach. A force delete helps nothing: it removes the API object alone.",
        remedy="Bring the CSI node plugin back on that node. kubelet then finishes by itself.",
        heals=Heals(by="kubelet", once="the driver answers there again", within_s=122),
        step=LifeStep.UNSTAGE,
    ),
    Entry(
        "RBD202",
        "KubeletDown",
        Severity.ERROR,
        "kubelet does not run on this node.",
        cause="It was stopped, or fails to start.",
        evidence="No kubelet process.",
        risk="Containers run on; nothing is mounted or unmounted. After six minutes the controller "
        "detaches by force, and the next node meets 'still being used'.",
        remedy="Start kubelet: it cleans up what it finds.",
        heals=Heals(by="kubelet", once="it runs again"),
        step=LifeStep.UNPUBLISH,
    ),
    Entry(
        "RBD203",
        "OperationHangs",
        Severity.ERROR,
        "A step on this volume hangs.",
        cause="Ceph answers slowly or not at all (an OSD down, a PG inactive); ceph-csi itself has "
        "no time limit.",
        evidence="A process in uninterruptible sleep, hanging requests in osdc, or the event of a "
        "pod that waits: `DeadlineExceeded` (the first call, after two minutes), then `an "
        "operation with the given Volume ID … already exists` (each further one meanwhile).",
        risk="Killing the processes leaves the watch and the mapping behind.",
        remedy="Repair Ceph first (`ceph health detail`). Then the step ends by itself. If Ceph is "
        "well and it does not end, restart the CSI node plugin's pod on that node: that frees the "
        "lock in its memory, and no process that sleeps.",
        heals=Heals(by="the step itself and kubelet", once="Ceph answers", within_s=122),
        step=LifeStep.STAGE,
    ),
    Entry(
        "RBD204",
        "DeviceNodeMissing",
        Severity.WARNING,
        "The mapping is in sysfs, its node in /dev is not.",
        cause="Something removed it, or /dev is not the host's devtmpfs, as in a container.",
        evidence="sysfs against /dev on the host.",
        risk="Tools that go by /dev miss the mapping.",
        remedy="Make the node again with the number that sysfs has for the device (mknod). udev "
        "makes no nodes. Without a node the device is unmapped by its id in sysfs.",
        heals=Heals(note="nobody makes the node again"),
    ),
    Entry(
        "RBD205",
        "PodDirectoryLeft",
        Severity.WARNING,
        "A pod's directory of the volume is left, its pod is not in the API, nothing is mounted.",
        cause="A force delete, or a crash between two steps of the teardown.",
        evidence="kubelet's pods directory, the API's pods, and the mounts.",
        risk="kubelet logs `orphaned pod … volume paths are still present`; nothing else.",
        remedy="List it. Remove vol_data.json with rm and empty directories with rmdir, never with "
        "rm -r. kubelet then removes the pod's directory.",
        heals=Heals(note="kubelet only logs it"),
        step=LifeStep.UNPUBLISH,
    ),
    Entry(
        "RBD206",
        "StagingWithoutVolumeData",
        Severity.WARNING,
        "The volume is staged and its vol_data.json is gone.",
        cause="A crash, or ceph-csi's and kubelet's clean-up racing (kubernetes#101911).",
        evidence="The staging mount without the file beside it.",
        risk="kubelet cannot unstage what it cannot identify.",
        remedy="Never write the file again by hand. See RBD110.",
        heals=Heals(note="kubelet does not know what is staged there"),
        step=LifeStep.UNSTAGE,
    ),
    Entry(
        "RBD207",
        "SameNameElsewhere",
        Severity.INFO,
        "Another image of the same name is mapped on this node.",
        cause="Two clusters with equal pool and image names, or an image that was deleted and made "
        "again.",
        evidence="The cluster's fsid, or the image's id, differs.",
        risk="Unmapping by name hits the wrong one.",
        remedy="Go by the device, never by the image's name.",
        heals=None,
    ),
)
