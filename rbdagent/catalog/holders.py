"""RBD1xx: who holds the volume, and whether they should."""

from __future__ import annotations

from typing import Final

from rbdagent.catalog.entry import Entry
from rbdagent.model import Heals, LifeStep, Severity

ENTRIES: Final = (
    Entry(
        "RBD100",
        "InUse",
        Severity.INFO,
        "The volume is mapped where a pod uses it, as it should be.",
        cause="A pod runs with the volume.",
        evidence="The pod in the API, the container's own mount, or an open device. Where the API "
        "could not be asked, a container on the device is taken for its user.",
        risk="None. Unmapping it would break the pod.",
        remedy="Nothing to do. To move the volume, delete or scale down the pod that uses it.",
        heals=None,
    ),
    Entry(
        "RBD101",
        "MappingOrphaned",
        Severity.ERROR,
        "The image is mapped on a node, and nothing there uses it.",
        cause="kubelet's NodeUnstage kept failing and kubelet restarted and forgot the volume; or "
        "ceph-csi's rollback could not unmap and deleted its stash; or somebody removed the "
        "VolumeAttachment or its finalizer by hand; or the map finished after its time limit.",
        evidence="Every mount namespace, open descriptor, device-mapper, loop and swap device, "
        "kernel file system, process in flight, pod and VolumeAttachment was looked at, and none "
        "uses the device. One look cannot tell how long that has been so.",
        risk="Every other node is refused: Multi-Attach, or 'still being used'. Nothing clears it "
        "by itself once kubelet has forgotten it.",
        remedy="On its node, `rbdagent unmap` tells its plan, or every reason against it; with "
        "--yes it acts. By hand: look a second time and, if that says the same, `rbd unmap` the "
        "device plainly, never with force. The kernel refuses (EBUSY) while anybody has the device "
        "open, and flushes at the last close.",
        heals=Heals(note="kubelet has forgotten it; an agent in mode unmap takes it down"),
        step=LifeStep.UNSTAGE,
    ),
    Entry(
        "RBD102",
        "MappingPinned",
        Severity.ERROR,
        "Kubernetes has let go of the volume, and something on the node keeps its device open.",
        cause="A bind of the volume in some container's mount namespace; a process with its "
        "working directory or an open file on it, even if it is mounted nowhere any more; "
        "device-mapper or LUKS, a loop device, swap; a file system that was lazily unmounted.",
        evidence="Mounts in all namespaces, /proc/PID/{cwd,root,fd,map_files}, sysfs holders, "
        "/proc/swaps, and the kernel's own list of live file systems.",
        risk="`rbd unmap` fails with EBUSY and kubelet retries for ever, at most 2m2s apart; the "
        "next pod gets Multi-Attach. Forcing the unmap loses what is not yet written.",
        remedy="End the process or restart the pod that pins it. kubelet then unmaps by itself "
        "with its next retry, if it still knows the volume. If only the kernel holds it: drain "
        "and reboot the node.",
        heals=Heals(by="kubelet", once="nothing keeps the device open", within_s=122),
        step=LifeStep.UNSTAGE,
    ),
    Entry(
        "RBD103",
        "ClientBlocklisted",
        Severity.CRITICAL,
        "The node's Ceph client is on the blocklist: the mapping is dead.",
        cause="Ceph, an operator or a fencing tool blocklisted the client, often after it lost its "
        "connection, or another client broke its lock.",
        evidence="The client's own address, with its nonce, against the clients, hosts and ranges "
        "of the blocklist.",
        risk="Writes fail (-108), though a buffered write may still return success. The mounts "
        "look healthy. All mappings of one node and user share one client: all are dead, and "
        "every new map on that node fails with 108.",
        remedy="Evict the pods that use these devices, let kubelet unmount and unmap all of them; "
        "with the last one the client goes, and new maps work, unless the entry is of the whole "
        "host or of a range: then remove it afterwards. Never remove an entry while the mappings "
        "live: I/O comes back, the watch does not (see RBD105).",
        heals=Heals(note="a blocklisted client does not come back"),
        step=LifeStep.USE,
    ),
    Entry(
        "RBD104",
        "NbdProcessGone",
        Severity.ERROR,
        "An rbd-nbd device has no process behind it any more.",
        cause="The rbd-nbd process died, or the CSI node plugin restarted and took it along.",
        evidence="No process whose command line names the device's cookie or image. `pid` and "
        "`backend` in sysfs stay, and prove nothing.",
        risk="I/O hangs for about 300 s, then fails. A dead nbd device stays for ever.",
        remedy="Delete the pods that use it; the next stage takes another nbd device. rbdagent "
        "never disconnects nbd devices: they have no guard against being in use.",
        heals=Heals(note="nobody starts the process again"),
        step=LifeStep.USE,
    ),
    Entry(
        "RBD105",
        "MappingUnwatched",
        Severity.CRITICAL,
        "The image is mapped read-write without a watch: live, and invisible to Ceph.",
        cause="A blocklist entry was lifted, or expired, while the mapping lived: I/O comes back, "
        "the watch does not.",
        evidence="No watch of the mapping's client on the header, or none in the kernel's own list "
        "(osdc); the client is not blocklisted.",
        risk="Ceph and ceph-csi believe that nobody has the image. The next node maps it too, and "
        "both write: the file system is destroyed without an error.",
        remedy="Take the volume's pods off that node, unmount and unmap it there before any other "
        "node gets it. Keep pods of the volume from starting elsewhere until then.",
        heals=Heals(note="the watch does not come back"),
        step=LifeStep.USE,
    ),
    Entry(
        "RBD106",
        "VolumeConflict",
        Severity.CRITICAL,
        "Two nodes have the image mapped read-write, and nothing allows that.",
        cause="A mapping that lost its watch, a node that was fenced on paper only, a forced "
        "detach, or a staging mount that kubelet forgot.",
        evidence="A writable mapping or a kernel client's watch on each of the nodes; "
        "ReadWriteMany on a raw block device is left out.",
        risk="Two writers on one file system destroy it.",
        remedy="Stop the pods of the volume on all nodes but one, at once. Unmap there. Then check "
        "the file system before it is used again.",
        heals=Heals(note="both go on writing"),
        step=LifeStep.USE,
    ),
    Entry(
        "RBD107",
        "NodeReturnedDirty",
        Severity.CRITICAL,
        "A node that was taken for lost is alive and still holds the volume.",
        cause="The out-of-service taint was set on a node that was not off: its volumes were "
        "detached by force, its own unpublish and unstage never ran.",
        evidence="The taint, no VolumeAttachment for the node, and the mapping or its watch.",
        risk="Containers there may still write while another node starts the same volume.",
        remedy="Stop what runs on that node and reboot it before you remove the taint.",
        heals=Heals(note="its own unpublish and unstage never run"),
        step=LifeStep.UNSTAGE,
    ),
    Entry(
        "RBD108",
        "VolumeNotBacked",
        Severity.CRITICAL,
        "A container writes to the node's own disk instead of the volume.",
        cause="The volume was unmounted by hand, or the container started before it was mounted: "
        "the directory is there, the device is not.",
        evidence="The source of the mount in the running container's own mountinfo.",
        risk="What it writes is not on the volume. Deleting the pod destroys it: NodeUnpublish of "
        "a path that is no mount removes everything below it.",
        remedy="Copy the data out of the running container first. Only then delete the pod.",
        heals=Heals(note="nothing mounts a volume under a running container"),
        step=LifeStep.PUBLISH,
    ),
    Entry(
        "RBD109",
        "PodLostByAPI",
        Severity.ERROR,
        "A container uses the volume, and the API does not know its pod any more.",
        cause="The pod was deleted with --force --grace-period=0 while kubelet was down or could "
        "not stop it. That removes the API object alone.",
        evidence="The pod uid in the process's cgroup or in the mount's path, against every pod "
        "that the API lists.",
        risk="It still writes. A second pod on another node would be a second writer.",
        remedy="Bring kubelet back: it stops the container and cleans up by itself. Otherwise stop "
        "the container with crictl on that node. Never unmap under it.",
        heals=Heals(by="kubelet", once="it runs on that node again"),
        step=LifeStep.UNPUBLISH,
    ),
    Entry(
        "RBD110",
        "StagingLeftMounted",
        Severity.ERROR,
        "Only the staging mount of the volume is left on the node.",
        cause="kubelet restarted between NodeUnpublish and NodeUnstage, or the unmount was busy "
        "and kubelet restarted then (kubernetes#121937).",
        evidence="A mount at the staging path; no pod, no pod path, no opener, no VolumeAttachment "
        "that anybody needs.",
        risk="The volume stays mapped for ever and every other node is refused.",
        remedy="On the node, in this order: umount (never lazily), luksClose if it is encrypted, "
        "rbd unmap. Stop at the first refusal. Never write vol_data.json again by hand.",
        heals=Heals(note="kubelet has forgotten it; an agent with --unmap-staged takes it down"),
        step=LifeStep.UNSTAGE,
    ),
    Entry(
        "RBD111",
        "RollingUpdateDeadlock",
        Severity.ERROR,
        "A rolling update waits for itself: the new pod for the volume, the old one for the new.",
        cause="maxSurge > 0 and no pod that may be unavailable (the default of a Deployment with "
        "fewer than four replicas) on a ReadWriteOnce claim: the new pod landed on another node "
        "and waits for the old one, which is kept until the new one is ready.",
        evidence="Both pods use the claim, their ReplicaSets belong to one Deployment, and its "
        "strategy, where that was asked for.",
        risk="The update never ends. No data is in danger.",
        remedy="Set the Deployment's strategy to Recreate (or maxSurge: 0, maxUnavailable: 1), or "
        "use a StatefulSet. Deleting the old pod alone makes another old one.",
        heals=Heals(note="each of the two pods waits for the other"),
        step=LifeStep.ATTACH,
    ),
    Entry(
        "RBD112",
        "WaitingForUser",
        Severity.ERROR,
        "A pod waits for a volume that another node's pod uses.",
        cause="A ReadWriteOnce volume can be on one node only.",
        evidence="A waiting pod of the claim, a running one of another workload on another node, "
        "and access modes that allow one node.",
        risk="None for the data: the wait protects it.",
        remedy="Stop the pod that uses it, or run both on one node.",
        heals=Heals(
            by="the attach/detach controller", once="the pod that uses it has ended", within_s=122
        ),
        step=LifeStep.ATTACH,
    ),
    Entry(
        "RBD113",
        "HolderNodeDown",
        Severity.ERROR,
        "The node that holds the volume is not Ready or gone.",
        cause="Power, network or kubelet.",
        evidence="The Node object, and the watch: it ends some 30 s after the client does.",
        risk="A node without kubelet may still run and write. Detaching it by force gives the "
        "volume two writers.",
        remedy="While its watch is alive, for Ceph the node is alive: bring it back, or power it "
        "off. Only when it is off set the out-of-service taint: its pods and attachments go within "
        "20 s. Take the taint away when it is back.",
        heals=Heals(
            by="its kubelet",
            once="the node is back",
            note="six minutes after its pods are gone the controller detaches by force, whether "
            "the machine is off or not, and its mapping stays",
        ),
        step=LifeStep.DETACH,
    ),
    Entry(
        "RBD114",
        "VolumeShared",
        Severity.INFO,
        "Several nodes hold the volume, and its access mode allows that.",
        cause="ReadOnlyMany, ReadWriteMany on a raw block device, or a live migration.",
        evidence="Access modes and volume mode of the PV.",
        risk="None by itself.",
        remedy="Nothing to do.",
        heals=None,
    ),
    Entry(
        "RBD115",
        "ForeignHolder",
        Severity.WARNING,
        "A client that is no mapping of a Kubernetes node holds the image.",
        cause="qemu or another librbd program, an `rbd` shell, a mapping made by hand, another "
        "cluster that uses the same pool.",
        evidence="Its address and client id are no mapping's of this node, and no node's; or "
        "nothing says that Kubernetes made the mapping.",
        risk="ceph-csi refuses to stage while it watches.",
        remedy="Find its owner by the address. rbdagent never touches it.",
        heals=Heals(by="kubelet", once="that client has let go", within_s=122),
        step=LifeStep.STAGE,
    ),
    Entry(
        "RBD116",
        "CephDaemonWatches",
        Severity.INFO,
        "A Ceph daemon watches the image as part of its work.",
        cause="mgr tasks (deep copy, trash, snapshots) or mirroring.",
        evidence="The watcher's address is that daemon's.",
        risk="None: mgr's watches are short; rbd-mirror keeps one per mirrored image.",
        remedy="Nothing to do. If mgr's stays, look at `ceph rbd task list`.",
        heals=None,
    ),
    Entry(
        "RBD117",
        "WatchPassedBy",
        Severity.INFO,
        "A watch was there in one look and gone in the next.",
        cause="ceph-csi opens the image read-write to see whether it is in use, again and again "
        "while a NodeStage waits, about 0.15 s each time.",
        evidence="Two looks at the watchers.",
        risk="None: it is no holder.",
        remedy="Nothing to do.",
        heals=None,
    ),
    Entry(
        "RBD118",
        "NobodyHoldsIt",
        Severity.INFO,
        "No client holds the image.",
        cause="No watch on the header, no mapping on any node, no running pod, no attachment.",
        evidence="The watchers according to Ceph, this node's sysfs, a report of each other node's "
        "agent that is at most ten minutes old, and the API, each of them observed.",
        risk="An administrator's mapping on a machine that is no node of the cluster, made "
        "read-only or without its watch, shows only on that machine.",
        remedy="If a pod waits all the same, its events show for what.",
        heals=None,
    ),
    Entry(
        "RBD119",
        "HolderUndetermined",
        Severity.WARNING,
        "What a holder does, or whether there is one, could not be seen from here.",
        cause="It is on another node, or a source that the answer needs was not observed: a node "
        "without a fresh report of its agent may have the image mapped without a watch.",
        evidence="What was missing is listed with the holder.",
        risk="Unmapping on a guess destroys data.",
        remedy="Run rbdagent on the holder's own node.",
        heals=None,
    ),
    Entry(
        "RBD120",
        "BetweenSteps",
        Severity.INFO,
        "kubelet or the CSI driver is between two steps of this volume.",
        cause="A stage or unstage is under way, or lately was.",
        evidence="A waiting or ending pod, a process at work, or an attachment younger than the "
        "grace period of ten minutes.",
        risk="Interfering makes the step fail.",
        remedy="Wait, and look again.",
        heals=Heals(by="kubelet and the CSI driver"),
    ),
)
