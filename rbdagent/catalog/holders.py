"""RBD1xx: the clients that hold the volume, and whether each of them should."""

from __future__ import annotations

from typing import Final

from rbdagent.catalog.entry import Entry
from rbdagent.model import LifecycleStep, Recovery, Severity

ENTRIES: Final = (
    Entry(
        "RBD100",
        "InUse",
        Severity.INFO,
        "A pod uses the volume, and the volume is mapped on the pod's node as expected.",
        cause="A pod runs with the volume.",
        evidence="The pod in the API, the container's own mount, or an open device. If the API was "
        "not observed, a container that has the device mounted or open counts as its user.",
        risk="None. Unmapping the volume would break the pod.",
        remedy="Nothing to do. To move the volume, delete or scale down the pod that uses it.",
        recovery=None,
    ),
    Entry(
        "RBD101",
        "MappingOrphaned",
        Severity.ERROR,
        "The image is mapped on a node, and nothing on that node uses it.",
        cause="kubelet's NodeUnstage kept failing, and kubelet restarted and no longer tracks the "
        "volume; or ceph-csi's rollback could not unmap and deleted its image-meta.json; or the "
        "VolumeAttachment or its finalizer was removed by hand; or the map completed after its "
        "timeout.",
        evidence="rbdagent checked every mount namespace, open descriptor, device-mapper, loop and "
        "swap device, kernel file system, operation in progress, pod and VolumeAttachment. None of "
        "them uses the device. A single observation does not show how long this has been so.",
        risk="Every other node is refused: Multi-Attach, or 'still being used'. No component "
        "removes the mapping once kubelet no longer tracks the volume.",
        remedy="On its node, run `rbdagent unmap`: it prints its plan, or every reason not to "
        "unmap. With --yes it executes the plan. By hand: run rbdagent a second time. If the "
        "result is the same, run a plain `rbd unmap` of the device, never with force. The kernel "
        "refuses (EBUSY) while any process has the device open, and flushes at the last close.",
        recovery=Recovery(note="kubelet no longer tracks it; an agent in mode unmap unmaps it"),
        step=LifecycleStep.UNSTAGE,
    ),
    Entry(
        "RBD102",
        "MappingPinned",
        Severity.ERROR,
        "Kubernetes no longer uses the volume, but something on the node keeps its device open.",
        cause="A bind mount of the volume in a container's mount namespace; a process with its "
        "working directory or an open file on the volume, even if the volume is no longer mounted "
        "anywhere; device-mapper or LUKS, a loop device, swap; a file system that was lazily "
        "unmounted.",
        evidence="Mounts in all namespaces, /proc/PID/{cwd,root,fd,map_files}, sysfs holders, "
        "/proc/swaps, and the kernel's own list of live file systems.",
        risk="`rbd unmap` fails with EBUSY, and kubelet retries indefinitely, at most 2m2s apart. "
        "The next pod gets Multi-Attach. A forced unmap loses the data that is not yet written.",
        remedy="End the process or restart the pod that keeps the device open. kubelet then unmaps "
        "the device with its next retry, if it still tracks the volume. If only the kernel holds "
        "the device, drain and reboot the node.",
        recovery=Recovery(actor="kubelet", condition="nothing keeps the device open", within_s=122),
        step=LifecycleStep.UNSTAGE,
    ),
    Entry(
        "RBD103",
        "ClientBlocklisted",
        Severity.CRITICAL,
        "The node's Ceph client is on the blocklist: the mapping is unusable.",
        cause="Ceph, an operator or a fencing tool blocklisted the client. This often follows a "
        "lost connection, or another client that broke this client's lock.",
        evidence="The client's own address, with its nonce, matches a client, a host or a range on "
        "the blocklist.",
        risk="Writes fail (-108), though a buffered write may still return success. The mounts "
        "look healthy. All mappings of one node and user share one client: all of them are "
        "unusable, and every new map on that node fails with 108.",
        remedy="Evict the pods that use these devices. Let kubelet unmount and unmap all of them. "
        "The last unmap removes the client, and new maps work again, unless the entry is for the "
        "whole host or for a range: then remove the entry afterwards. Never remove an entry while "
        "the mappings exist: I/O resumes, but the watch does not come back (see RBD105).",
        recovery=Recovery(note="a blocklisted client does not recover"),
        step=LifecycleStep.USE,
    ),
    Entry(
        "RBD104",
        "NbdProcessGone",
        Severity.ERROR,
        "The process of an rbd-nbd device no longer exists.",
        cause="The rbd-nbd process died, or the CSI node plugin restarted and ended the process.",
        evidence="No process has the device's cookie or image on its command line. `pid` and "
        "`backend` remain in sysfs after the process is gone, and prove nothing.",
        risk="I/O hangs for about 300 s, then fails. An nbd device without its process remains "
        "indefinitely.",
        remedy="Delete the pods that use it; the next stage uses another nbd device. rbdagent "
        "never disconnects nbd devices: nothing prevents the disconnect of one that is in use.",
        recovery=Recovery(note="no component starts the process again"),
        step=LifecycleStep.USE,
    ),
    Entry(
        "RBD105",
        "MappingUnwatched",
        Severity.CRITICAL,
        "The image is mapped read-write without a watch: the mapping works, and Ceph does not "
        "show it.",
        cause="A blocklist entry was removed, or expired, while the mapping existed: I/O resumes, "
        "but the watch does not come back.",
        evidence="The header has no watch of the mapping's client, or the kernel's own list (osdc) "
        "has none. The client is not blocklisted.",
        risk="For Ceph and ceph-csi, no client has the image. The next node maps it too, and both "
        "nodes write: the file system is destroyed without an error.",
        remedy="Remove the volume's pods from that node. Unmount and unmap the volume there before "
        "any other node gets it. Until then, keep pods of the volume from starting elsewhere.",
        recovery=Recovery(note="the watch does not come back"),
        step=LifecycleStep.USE,
    ),
    Entry(
        "RBD106",
        "VolumeConflict",
        Severity.CRITICAL,
        "Two nodes have the image mapped read-write, and no access mode allows that.",
        cause="A mapping that lost its watch, a node that was declared fenced and still runs, a "
        "forced detach, or a staging mount that kubelet no longer tracks.",
        evidence="A writable mapping or a kernel client's watch on each of the nodes. "
        "ReadWriteMany on a raw block device is excluded.",
        risk="Two writers on one file system destroy it.",
        remedy="Stop the pods of the volume on all nodes but one, immediately. Unmap the volume on "
        "those nodes. Then check the file system before it is used again.",
        recovery=Recovery(note="both nodes keep writing"),
        step=LifecycleStep.USE,
    ),
    Entry(
        "RBD107",
        "NodeReturnedDirty",
        Severity.CRITICAL,
        "A node that was taken out of service runs and still holds the volume.",
        cause="The out-of-service taint was set on a node that was not off: its volumes were "
        "detached by force, and NodeUnpublish and NodeUnstage never ran on it.",
        evidence="The taint, no VolumeAttachment for the node, and the mapping or its watch.",
        risk="Containers on that node may still write while another node starts the same volume.",
        remedy="Stop the workloads on that node and reboot it before you remove the taint.",
        recovery=Recovery(note="NodeUnpublish and NodeUnstage never run on that node"),
        step=LifecycleStep.UNSTAGE,
    ),
    Entry(
        "RBD108",
        "VolumeNotBacked",
        Severity.CRITICAL,
        "A container writes to the node's own disk instead of the volume.",
        cause="The volume was unmounted by hand, or the container started before the volume was "
        "mounted: the directory exists, the device is not mounted there.",
        evidence="The source of the mount in the running container's own mountinfo.",
        risk="The data that the container writes is not on the volume. Deleting the pod destroys "
        "this data: NodeUnpublish of a path that is not a mount removes everything below it.",
        remedy="Copy the data out of the running container first. Only then delete the pod.",
        recovery=Recovery(note="no component mounts a volume under a running container"),
        step=LifecycleStep.PUBLISH,
    ),
    Entry(
        "RBD109",
        "PodLostByAPI",
        Severity.ERROR,
        "A container uses the volume, and its pod is no longer in the API.",
        cause="The pod was deleted with --force --grace-period=0 while kubelet was down or could "
        "not stop it. That removes only the API object.",
        evidence="The pod UID in the process's cgroup or in the mount's path is not the UID of any "
        "pod that the API lists.",
        risk="The container still writes. A second pod on another node would be a second writer.",
        remedy="Bring kubelet back: it stops the container and cleans up. Otherwise stop the "
        "container with crictl on that node. Never unmap the device under the container.",
        recovery=Recovery(actor="kubelet", condition="it runs on that node again"),
        step=LifecycleStep.UNPUBLISH,
    ),
    Entry(
        "RBD110",
        "StagingLeftMounted",
        Severity.ERROR,
        "Only the staging mount of the volume is left on the node.",
        cause="kubelet restarted between NodeUnpublish and NodeUnstage, or the unmount was busy "
        "and kubelet then restarted (kubernetes#121937).",
        evidence="A mount at the staging path; no pod, no pod path, no process that has the device "
        "open, and no VolumeAttachment that is still needed.",
        risk="The volume stays mapped indefinitely, and every other node is refused.",
        remedy="On the node, in this order: umount (never lazily), luksClose if it is encrypted, "
        "rbd unmap. Stop at the first refusal. Never recreate vol_data.json by hand.",
        recovery=Recovery(
            note="kubelet no longer tracks it; an agent with --unmap-staged unmounts and unmaps it"
        ),
        step=LifecycleStep.UNSTAGE,
    ),
    Entry(
        "RBD111",
        "RollingUpdateDeadlock",
        Severity.ERROR,
        "A rolling update is deadlocked: the new pod waits for the volume, and the old pod stays "
        "until the new pod is ready.",
        cause="maxSurge > 0 and no pod that may be unavailable (the default of a Deployment with "
        "fewer than four replicas) on a ReadWriteOnce claim. The new pod is on another node and "
        "waits for the old pod, which the Deployment keeps until the new pod is ready.",
        evidence="Both pods use the claim, and their ReplicaSets belong to one Deployment. The "
        "Deployment's strategy is shown if it was observed.",
        risk="The update never ends. No data is at risk.",
        remedy="Set the Deployment's strategy to Recreate (or maxSurge: 0, maxUnavailable: 1), or "
        "use a StatefulSet. If you delete only the old pod, its ReplicaSet creates another one.",
        recovery=Recovery(note="each of the two pods waits for the other"),
        step=LifecycleStep.ATTACH,
    ),
    Entry(
        "RBD112",
        "WaitingForUser",
        Severity.ERROR,
        "A pod waits for a volume that a pod on another node uses.",
        cause="A ReadWriteOnce volume can be used on only one node.",
        evidence="A waiting pod of the claim, a running pod of another workload on another node, "
        "and access modes that allow one node.",
        risk="None for the data: the wait protects it.",
        remedy="Stop the pod that uses the volume, or run both pods on one node.",
        recovery=Recovery(
            actor="the attach/detach controller",
            condition="the pod that uses it has ended",
            within_s=122,
        ),
        step=LifecycleStep.ATTACH,
    ),
    Entry(
        "RBD113",
        "HolderNodeDown",
        Severity.ERROR,
        "The node that holds the volume is not Ready or no longer exists.",
        cause="A failure of power, network or kubelet.",
        evidence="The Node object, and the watch: it ends some 30 s after the client does.",
        risk="A node without kubelet may still run containers that write. A forced detach gives "
        "the volume two writers.",
        remedy="While the node's watch exists, Ceph has a live client on it: bring the node back, "
        "or power it off. Set the out-of-service taint only when the node is off: its pods and "
        "attachments are then removed within 20 s. Remove the taint when the node is back.",
        recovery=Recovery(
            actor="its kubelet",
            condition="the node is back",
            note="six minutes after the node's pods are gone, the controller detaches by force, "
            "whether the machine is off or not, and the mapping stays",
        ),
        step=LifecycleStep.DETACH,
    ),
    Entry(
        "RBD114",
        "VolumeShared",
        Severity.INFO,
        "Several nodes hold the volume, and its access mode allows that.",
        cause="ReadOnlyMany, ReadWriteMany on a raw block device, or a live migration.",
        evidence="Access modes and volume mode of the PV.",
        risk="None.",
        remedy="Nothing to do.",
        recovery=None,
    ),
    Entry(
        "RBD115",
        "ForeignHolder",
        Severity.WARNING,
        "A client that is not a mapping of a Kubernetes node holds the image.",
        cause="qemu or another librbd program, an `rbd` shell, a mapping made by hand, another "
        "cluster that uses the same pool.",
        evidence="The client's address and id match no mapping of this node and no node; or "
        "nothing shows that Kubernetes created the mapping.",
        risk="ceph-csi refuses to stage the volume while this client watches the image.",
        remedy="Find the owner of the client by its address. rbdagent never acts on this client.",
        recovery=Recovery(
            actor="kubelet", condition="that client has released the image", within_s=122
        ),
        step=LifecycleStep.STAGE,
    ),
    Entry(
        "RBD116",
        "CephDaemonWatches",
        Severity.INFO,
        "A Ceph daemon watches the image as part of its work.",
        cause="mgr tasks (flatten, trash, snapshots) or mirroring.",
        evidence="The watcher's client is the mgr's own (`mgr dump`), or it watches the pool's "
        "`rbd_mirroring`, as only rbd-mirror does. Where these were not observed: probably a "
        "daemon, if no other librbd client watches and the mgr has a task of the image, or the "
        "image is mirrored.",
        risk="None: mgr's watches are short; rbd-mirror keeps one per mirrored image. A client "
        "that is only probably a daemon may be any librbd program: while it watches, the volume "
        "does not count as free.",
        remedy="Nothing to do. If mgr's watch stays, check `ceph rbd task list`. `rbdagent check` "
        "shows the caps that are needed to recognise mgr's clients.",
        recovery=None,
    ),
    Entry(
        "RBD117",
        "WatchPassedBy",
        Severity.INFO,
        "A watch was present in one observation and gone in the next.",
        cause="ceph-csi opens the image read-write to check whether it is in use. While a "
        "NodeStage waits it repeats this, about 0.15 s each time.",
        evidence="Two observations of the watchers.",
        risk="None: the client does not hold the image.",
        remedy="Nothing to do.",
        recovery=None,
    ),
    Entry(
        "RBD118",
        "NobodyHoldsIt",
        Severity.INFO,
        "No client holds the image.",
        cause="No watch on the header, no mapping on any node, no running pod, no attachment.",
        evidence="The watchers according to Ceph, this node's sysfs, a report of each other node's "
        "agent that is at most ten minutes old, and the API. Each of them was observed.",
        risk="A mapping on a machine that is not a node of the cluster shows only on that machine "
        "if it is read-only or has no watch.",
        remedy="If a pod waits all the same, its events show what it waits for.",
        recovery=None,
    ),
    Entry(
        "RBD119",
        "HolderUndetermined",
        Severity.WARNING,
        "What a holder does, or whether a holder exists, could not be observed from here.",
        cause="The holder is on another node, or a required source was not observed: a node "
        "without a recent report of its agent may have the image mapped without a watch.",
        evidence="The missing sources are listed with the holder.",
        risk="Unmapping on a guess destroys data.",
        remedy="Run rbdagent on the holder's own node.",
        recovery=None,
    ),
    Entry(
        "RBD120",
        "BetweenSteps",
        Severity.INFO,
        "kubelet or the CSI driver is between two steps of this volume.",
        cause="A stage or unstage is in progress, or was until recently.",
        evidence="A waiting or terminating pod, an operation in progress, or an attachment younger "
        "than the grace period of ten minutes.",
        risk="Interfering makes the step fail.",
        remedy="Wait, then run rbdagent again.",
        recovery=Recovery(actor="kubelet and the CSI driver"),
    ),
)
