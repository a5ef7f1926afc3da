"""RBD5xx: the reasons not to unmap; RBD500 plus N is condition N."""

from __future__ import annotations

from typing import Final

from rbdagent.catalog.entry import Entry
from rbdagent.model import Severity

ENTRIES: Final = (
    Entry(
        "RBD501",
        "NotSurelyTheSameMapping",
        Severity.INFO,
        "Not unmapped: two observations a grace period apart have not found the same mapping.",
        cause="There is no earlier observation, or another image was mapped under the same device "
        "number.",
        evidence="Cluster, pool, image, snapshot, client and the kernel's sequence number of the "
        "disk, as recorded earlier and as observed now.",
        risk="The kernel reuses device numbers: an unmap by number could remove another volume's "
        "mapping.",
        remedy="Let the agent run, or run `rbdagent unmap` with --wait.",
        recovery=None,
    ),
    Entry(
        "RBD502",
        "StillMounted",
        Severity.INFO,
        "Not unmapped: the device is mounted, or the kernel has a live file system on it.",
        cause="A pod, a container's own mount namespace, kubelet's staging, or a detached mount.",
        evidence="mountinfo of every mount namespace; /sys/fs, /proc/fs and kernel threads.",
        risk="The kernel would refuse the unmap. Where it does not refuse, data would be lost.",
        remedy="End the pod or process that has the device mounted. With --unmap-staged, rbdagent "
        "also unmounts a staging mount if it is the only mount left.",
        recovery=None,
    ),
    Entry(
        "RBD503",
        "StillHeldOpen",
        Severity.INFO,
        "Not unmapped: a process has the device open, or a block device is stacked on it.",
        cause="A raw reader, a working directory on it, LUKS, device mapper, loop, swap, RAID.",
        evidence="Open descriptors, working and root directories, mappings; sysfs' holders.",
        risk="The process that has the device open would lose data.",
        remedy="End the named process, or remove the named stacked device.",
        recovery=None,
    ),
    Entry(
        "RBD504",
        "StillInKubeletsDirectories",
        Severity.INFO,
        "Not unmapped: kubelet's directories still list the volume for a pod.",
        cause="A pod that exists in the API has a directory of the volume, or this could not be "
        "observed.",
        evidence="Staging, publish and block paths below kubelet's root; the pods in the API.",
        risk="kubelet may be about to mount the volume there.",
        remedy="Delete the named pod gracefully and let kubelet finish.",
        recovery=None,
    ),
    Entry(
        "RBD505",
        "StillWanted",
        Severity.INFO,
        "Not unmapped: a pod on the node needs the volume, or the VolumeAttachment is too new.",
        cause="A pod runs, waits, terminates or ended a moment ago; kubelet started a moment ago.",
        evidence="Pods and VolumeAttachments as the API server's storage has them; kubelet's start "
        "time.",
        risk="A running pod, or a NodeStage in progress, would lose the volume.",
        remedy="Wait for the grace period, or delete the named pod.",
        recovery=None,
    ),
    Entry(
        "RBD506",
        "NotKubernetes",
        Severity.INFO,
        "Not unmapped: nothing shows that Kubernetes created the image.",
        cause="A user mapped the image by hand.",
        evidence="No PersistentVolume, staging directory, metadata or name of a provisioner.",
        risk="A user may need the mapping.",
        remedy="Find the user who mapped the image. That user can run `rbd unmap`.",
        recovery=None,
    ),
    Entry(
        "RBD507",
        "AtWork",
        Severity.INFO,
        "Not unmapped: a program is working on the device, or a request to Ceph hangs.",
        cause="map, unmap, mkfs, fsck, mount or cryptsetup runs, perhaps in uninterruptible sleep.",
        evidence="Command lines of all processes; the kernel's list of requests (debugfs).",
        risk="Two programs would work on one device.",
        remedy="Wait until the program ends. If it hangs, check Ceph: ceph -s.",
        recovery=None,
    ),
    Entry(
        "RBD508",
        "NotYetOrNotAllowed",
        Severity.INFO,
        "Not unmapped: the grace period is not over, or a setting forbids the unmap.",
        cause="Mode observe, a freeze switch, the hourly limit, or too few observations in a row. "
        "A freeze file whose directory cannot be listed, and a record of unmaps that cannot be "
        "read, forbid it too: the node may be frozen, or at its limit.",
        evidence="Configuration, annotations, the freeze file, and the agent's recorded state.",
        risk="None: the agent waits.",
        remedy="Wait, or remove the named obstacle. Create a missing freeze directory. Move a "
        "damaged record (acts.json in the state directory) elsewhere, an hour after the last "
        "unmap.",
        recovery=None,
    ),
    Entry(
        "RBD509",
        "NotFullyObserved",
        Severity.INFO,
        "Not unmapped: the decision needs facts that were not observed just now.",
        cause="A source is down or slow, a permission is missing, or the snapshot comes from a "
        "file.",
        evidence="The sources of the snapshot, their gaps, and its age.",
        risk="A user of the volume may not have been observed.",
        remedy="rbdagent check shows what is missing.",
        recovery=None,
    ),
    Entry(
        "RBD510",
        "StillReadOrWritten",
        Severity.INFO,
        "Not unmapped: the device had I/O within the grace period, or its counters were not "
        "observed for that long.",
        cause="A process opens the device now and then, and closes it before it is observed: a "
        "backup of the raw device, a scan by udev, LVM or blkid. Or no observation is a grace "
        "period old yet, or the kernel does not count I/O (queue/iostats is 0).",
        evidence="Reads, writes, discards and flushes that the kernel has completed "
        "(/sys/block/rbdN/stat) at every observation since the mapping became orphaned, and the "
        "requests in flight.",
        risk="The process would lose its device between two reads.",
        remedy="Where the counters changed, find the process on the node: `blktrace` or `biosnoop` "
        "(bcc) shows the process that does the I/O. The grace period starts again with the last "
        "observed I/O.",
        recovery=None,
    ),
)
