"""RBD5xx: why nothing is unmapped; RBD500 plus N is condition N."""

from __future__ import annotations

from typing import Final

from rbdagent.catalog.entry import Entry
from rbdagent.model import Severity

ENTRIES: Final = (
    Entry(
        "RBD501",
        "NotSurelyTheSameMapping",
        Severity.INFO,
        "Not unmapped: two looks a grace period apart have not seen the same mapping.",
        cause="Nobody looked earlier, or something was mapped anew under the same device number.",
        evidence="Cluster, pool, image, snapshot, client and the kernel's sequence number of the "
        "disk, as remembered and as seen now.",
        risk="A device number is given out again: unmapping by it could hit another volume.",
        remedy="Let the agent run, or give `rbdagent unmap` the time with --wait.",
        heals=None,
    ),
    Entry(
        "RBD502",
        "StillMounted",
        Severity.INFO,
        "Not unmapped: it is mounted, or the kernel has a live file system on it.",
        cause="A pod, a container's own mount namespace, kubelet's staging, or a detached mount.",
        evidence="mountinfo of every mount namespace; /sys/fs, /proc/fs and kernel threads.",
        risk="The kernel would refuse; where it would not, data would be lost.",
        remedy="End what has it mounted. A staging mount that was left behind alone is taken down "
        "with --unmap-staged.",
        heals=None,
    ),
    Entry(
        "RBD503",
        "StillHeldOpen",
        Severity.INFO,
        "Not unmapped: a process has it open, or a block device is stacked on it.",
        cause="A raw reader, a working directory on it, LUKS, device mapper, loop, swap, RAID.",
        evidence="Open descriptors, working and root directories, mappings; sysfs' holders.",
        risk="Whoever has it open would lose its data.",
        remedy="End the process or take down the stacked device that is named.",
        heals=None,
    ),
    Entry(
        "RBD504",
        "StillInKubeletsDirectories",
        Severity.INFO,
        "Not unmapped: kubelet's directories still show it for a pod.",
        cause="A pod that the API knows has a directory of the volume, or nobody could tell.",
        evidence="Staging, publish and block paths below kubelet's root; the pods in the API.",
        risk="kubelet may be about to mount it there.",
        remedy="Delete the pod that is named in good order and let kubelet finish.",
        heals=None,
    ),
    Entry(
        "RBD505",
        "StillWanted",
        Severity.INFO,
        "Not unmapped: a pod on the node needs it, or an attachment is too young to be idle.",
        cause="A pod runs, waits, ends or ended a moment ago; kubelet started a moment ago.",
        evidence="Pods and VolumeAttachments as the API server's store has them; kubelet's start.",
        risk="The volume would vanish under a pod, or below a NodeStage at work.",
        remedy="Wait for the grace period, or delete the pod that is named.",
        heals=None,
    ),
    Entry(
        "RBD506",
        "NotKubernetes",
        Severity.INFO,
        "Not unmapped: nothing says that Kubernetes made the image.",
        cause="Somebody mapped it by hand.",
        evidence="No PersistentVolume, staging directory, metadata or name of a provisioner.",
        risk="It is somebody's own work.",
        remedy="Ask who mapped it; `rbd unmap` is theirs to run.",
        heals=None,
    ),
    Entry(
        "RBD507",
        "AtWork",
        Severity.INFO,
        "Not unmapped: a program is at work on it, or a request to Ceph hangs.",
        cause="map, unmap, mkfs, fsck, mount or cryptsetup runs, perhaps uninterruptibly.",
        evidence="Command lines of all processes; the kernel's list of requests (debugfs).",
        risk="Two programs at one device.",
        remedy="Wait for it. Where it hangs, Ceph is the place to look: ceph -s.",
        heals=None,
    ),
    Entry(
        "RBD508",
        "NotYetOrNotAllowed",
        Severity.INFO,
        "Not unmapped: the grace period is not over, or something forbids it.",
        cause="Mode observe, a freeze switch, the hourly limit, or too short a row of looks. A "
        "freeze file whose directory cannot be listed, and a record of unmaps that cannot be read, "
        "forbid it too: the node may be frozen, or at its limit.",
        evidence="Configuration, annotations, the freeze file, and the agent's memory.",
        risk="None: it waits.",
        remedy="Wait, or lift what is named. Make a missing freeze directory. Move a record that "
        "is damaged away (acts.json in the state directory), an hour after the last unmap.",
        heals=None,
    ),
    Entry(
        "RBD509",
        "NotFullyObserved",
        Severity.INFO,
        "Not unmapped: not everything that the decision rests on was observed just now.",
        cause="A source is down or slow, a right is missing, or the look comes from a file.",
        evidence="The sources of the look, their gaps, and its age.",
        risk="What was not seen may be a user.",
        remedy="rbdagent check tells what is missing.",
        heals=None,
    ),
    Entry(
        "RBD510",
        "StillReadOrWritten",
        Severity.INFO,
        "Not unmapped: the device had I/O within the grace period, or its counters were not "
        "observed for so long.",
        cause="A process opens the device now and then, and closes it before it is observed: a "
        "backup of the raw device, a scan by udev, LVM or blkid. Or no observation is a grace "
        "period old yet, or the kernel does not count (queue/iostats is 0).",
        evidence="Reads, writes, discards and flushes that the kernel has completed "
        "(/sys/block/rbdN/stat) at every observation since the mapping became orphaned, and the "
        "requests in flight.",
        risk="The process loses its device between two reads.",
        remedy="Where the counters changed, find the process on the node: `blktrace` or `biosnoop` "
        "(bcc) shows which one does the I/O. The grace period starts again with the last I/O that "
        "was seen.",
        heals=None,
    ),
)
