"""The codes of everything that is worth saying: cause, evidence, risk and remedy of each.

`explain CODE` and the runbooks print from here; the rules in `diagnose` name the codes.
"""

from __future__ import annotations

from difflib import get_close_matches
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from rbdagent.errors import NotFoundError
from rbdagent.model import Severity

if TYPE_CHECKING:
    from collections.abc import Mapping

RUNBOOKS: Final = "https://github.com/rbdagent/rbdagent/blob/main/docs/runbooks/"


def runbook(name: str) -> str:
    """Give the page of a code or an alert: one file each below ``docs/runbooks``."""
    return f"{RUNBOOKS}{name}.md"


class Entry(Struct, frozen=True, kw_only=True):
    """One code."""

    code: str
    name: str
    """CamelCase: what an alert or an event would be called."""
    severity: Severity
    summary: str
    """One sentence."""
    cause: str
    evidence: str
    """What it is told by, and how sure that is."""
    risk: str
    remedy: str
    critical: bool = False
    """Data is in danger, now."""


def _entry(  # noqa: PLR0913 - a table's row has as many fields as the table has columns
    code: str,
    name: str,
    severity: Severity,
    summary: str,
    *,
    cause: str,
    evidence: str,
    risk: str,
    remedy: str,
    critical: bool = False,
) -> Entry:
    return Entry(
        code=code,
        name=name,
        severity=severity,
        summary=summary,
        cause=cause,
        evidence=evidence,
        risk=risk,
        remedy=remedy,
        critical=critical,
    )


_HOLDERS: Final = (
    _entry(
        "RBD100",
        "InUse",
        Severity.INFO,
        "The volume is mapped where a pod uses it, as it should be.",
        cause="A pod runs with the volume.",
        evidence="The pod in the API, the container's own mount, or an open device. Where the API "
        "could not be asked, a container on the device is taken for its user.",
        risk="None. Unmapping it would break the pod.",
        remedy="Nothing to do. To move the volume, delete or scale down the pod that uses it.",
    ),
    _entry(
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
    ),
    _entry(
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
    ),
    _entry(
        "RBD103",
        "ClientBlocklisted",
        Severity.ERROR,
        "The node's Ceph client is on the blocklist: the mapping is dead.",
        cause="Ceph, an operator or a fencing tool blocklisted the client, often after it lost its "
        "connection, or another client broke its lock.",
        evidence="The client's own address, with its nonce, against the blocklist.",
        risk="Writes fail (-108), though a buffered write may still return success. The mounts "
        "look healthy. All mappings of one node and user share one client: all are dead, and "
        "every new map on that node fails with 108.",
        remedy="Evict the pods that use these devices, let kubelet unmount and unmap all of them; "
        "with the last one the client goes, and new maps work. Never remove the entry while the "
        "mappings live: I/O comes back, the watch does not (see RBD105).",
        critical=True,
    ),
    _entry(
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
    ),
    _entry(
        "RBD105",
        "MappingUnwatched",
        Severity.ERROR,
        "The image is mapped read-write without a watch: live, and invisible to Ceph.",
        cause="A blocklist entry was lifted, or expired, while the mapping lived: I/O comes back, "
        "the watch does not.",
        evidence="No watch of the mapping's client on the header, or none in the kernel's own list "
        "(osdc); the client is not blocklisted.",
        risk="Ceph and ceph-csi believe that nobody has the image. The next node maps it too, and "
        "both write: the file system is destroyed without an error.",
        remedy="Take the volume's pods off that node, unmount and unmap it there before any other "
        "node gets it. Keep pods of the volume from starting elsewhere until then.",
        critical=True,
    ),
    _entry(
        "RBD106",
        "VolumeConflict",
        Severity.ERROR,
        "Two nodes have the image mapped read-write, and nothing allows that.",
        cause="A mapping that lost its watch, a node that was fenced on paper only, a forced "
        "detach, or a staging mount that kubelet forgot.",
        evidence="A writable mapping or a kernel client's watch on each of the nodes; "
        "ReadWriteMany on a raw block device is left out.",
        risk="Two writers on one file system destroy it.",
        remedy="Stop the pods of the volume on all nodes but one, at once. Unmap there. Then check "
        "the file system before it is used again.",
        critical=True,
    ),
    _entry(
        "RBD107",
        "NodeReturnedDirty",
        Severity.ERROR,
        "A node that was taken for lost is alive and still holds the volume.",
        cause="The out-of-service taint was set on a node that was not off: its volumes were "
        "detached by force, its own unpublish and unstage never ran.",
        evidence="The taint, no VolumeAttachment for the node, and the mapping or its watch.",
        risk="Containers there may still write while another node starts the same volume.",
        remedy="Stop what runs on that node and reboot it before you remove the taint.",
        critical=True,
    ),
    _entry(
        "RBD108",
        "VolumeNotBacked",
        Severity.ERROR,
        "A container writes to the node's own disk instead of the volume.",
        cause="The volume was unmounted by hand, or the container started before it was mounted: "
        "the directory is there, the device is not.",
        evidence="The source of the mount in the running container's own mountinfo.",
        risk="What it writes is not on the volume. Deleting the pod destroys it: NodeUnpublish of "
        "a path that is no mount removes everything below it.",
        remedy="Copy the data out of the running container first. Only then delete the pod.",
        critical=True,
    ),
    _entry(
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
    ),
    _entry(
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
    ),
    _entry(
        "RBD111",
        "RollingUpdateDeadlock",
        Severity.ERROR,
        "The pod that waits and the pod that holds the volume belong to one controller.",
        cause="A rolling update with maxSurge > 0 on a ReadWriteOnce claim: the new pod landed on "
        "another node and waits for the old one, which is kept until the new one is ready.",
        evidence="Both pods use the claim and have the same controller.",
        risk="The update never ends. No data is in danger.",
        remedy="Delete the old pod, and set the Deployment's strategy to Recreate (or maxSurge: 0, "
        "maxUnavailable: 1), or use a StatefulSet.",
    ),
    _entry(
        "RBD112",
        "WaitingForUser",
        Severity.ERROR,
        "A pod waits for a volume that another node's pod uses.",
        cause="A ReadWriteOnce volume can be on one node only.",
        evidence="A waiting pod of the claim, and a running one on another node.",
        risk="None for the data: the wait protects it.",
        remedy="Stop the pod that uses it, or run both on one node.",
    ),
    _entry(
        "RBD113",
        "HolderNodeDown",
        Severity.ERROR,
        "The node that holds the volume is not Ready or gone.",
        cause="Power, network or kubelet.",
        evidence="The Node object, and the watch: it ends some 30 s after the client does.",
        risk="A node without kubelet may still run and write. Detaching it by force gives the "
        "volume two writers.",
        remedy="While its watch is alive, for Ceph the node is alive: prove that it is off. Then "
        "set the out-of-service taint, and the controller detaches.",
    ),
    _entry(
        "RBD114",
        "VolumeShared",
        Severity.INFO,
        "Several nodes hold the volume, and its access mode allows that.",
        cause="ReadOnlyMany, ReadWriteMany on a raw block device, or a live migration.",
        evidence="Access modes and volume mode of the PV.",
        risk="None by itself.",
        remedy="Nothing to do.",
    ),
    _entry(
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
    ),
    _entry(
        "RBD116",
        "CephDaemonWatches",
        Severity.INFO,
        "A Ceph daemon watches the image as part of its work.",
        cause="mgr tasks (deep copy, trash, snapshots) or mirroring.",
        evidence="The watcher's address is that daemon's.",
        risk="None: mgr's watches are short; rbd-mirror keeps one per mirrored image.",
        remedy="Nothing to do. If mgr's stays, look at `ceph rbd task list`.",
    ),
    _entry(
        "RBD117",
        "WatchPassedBy",
        Severity.INFO,
        "A watch was there in one look and gone in the next.",
        cause="ceph-csi opens the image read-write to see whether it is in use, again and again "
        "while a NodeStage waits, about 0.15 s each time.",
        evidence="Two looks at the watchers.",
        risk="None: it is no holder.",
        remedy="Nothing to do.",
    ),
    _entry(
        "RBD118",
        "NobodyHoldsIt",
        Severity.INFO,
        "Nobody holds the image read-write.",
        cause="No watch on the header, no mapping on this node, no running pod, no attachment.",
        evidence="The watchers by Ceph, this node's sysfs, and the API, each of them observed.",
        risk="Read-only mappings on other nodes take no watch, and a mapping that lost its watch "
        "has none to show: only those nodes can tell.",
        remedy="If a pod waits all the same, its events say for what.",
    ),
    _entry(
        "RBD119",
        "HolderUndetermined",
        Severity.WARNING,
        "What a holder does could not be seen from here.",
        cause="It is on another node, or a source that the answer needs was not observed.",
        evidence="What was missing is listed with the holder.",
        risk="Unmapping on a guess destroys data.",
        remedy="Run rbdagent on the holder's own node.",
    ),
    _entry(
        "RBD120",
        "BetweenSteps",
        Severity.INFO,
        "kubelet or the CSI driver is between two steps of this volume.",
        cause="A stage or unstage is under way, or lately was.",
        evidence="A waiting or ending pod, a process at work, or an attachment younger than the "
        "grace period of ten minutes.",
        risk="Interfering makes the step fail.",
        remedy="Wait, and look again.",
    ),
)

_NODE: Final = (
    _entry(
        "RBD201",
        "CSIDriverDown",
        Severity.ERROR,
        "The CSI driver does not answer on the node that holds the volume.",
        cause="The node plugin's pod was evicted, crashed, or cannot start.",
        evidence="CSINode lacks the driver, or its socket does not listen.",
        risk="kubelet can neither mount nor unmount: pods hang in Terminating, and the next node "
        "gets Multi-Attach. A force delete helps nothing: it removes the API object alone.",
        remedy="Bring the CSI node plugin back on that node. kubelet then finishes by itself.",
    ),
    _entry(
        "RBD202",
        "KubeletDown",
        Severity.ERROR,
        "kubelet does not run on this node.",
        cause="It was stopped, or fails to start.",
        evidence="No kubelet process.",
        risk="Containers run on; nothing is mounted or unmounted. After six minutes the controller "
        "detaches by force, and the next node meets 'still being used'.",
        remedy="Start kubelet: it cleans up what it finds.",
    ),
    _entry(
        "RBD203",
        "OperationHangs",
        Severity.ERROR,
        "A step on this volume hangs.",
        cause="Ceph answers slowly or not at all (an OSD down, a PG inactive); ceph-csi itself has "
        "no time limit.",
        evidence="A process in uninterruptible sleep, hanging requests in osdc, or the event `an "
        "operation with the given Volume ID … already exists`.",
        risk="Killing the processes leaves the watch and the mapping behind.",
        remedy="Repair Ceph first (`ceph health detail`). Then the step ends by itself.",
    ),
    _entry(
        "RBD204",
        "DeviceNodeMissing",
        Severity.WARNING,
        "The mapping is in sysfs, its node in /dev is not.",
        cause="udev did not run, or a container looks at its own /dev.",
        evidence="sysfs against /dev on the host.",
        risk="Tools that go by /dev miss the mapping.",
        remedy="Restart udev; unmap by the device id in sysfs.",
    ),
    _entry(
        "RBD205",
        "PodDirectoryLeft",
        Severity.WARNING,
        "A pod's directory of the volume is left, its pod is not in the API, nothing is mounted.",
        cause="A force delete, or a crash between two steps of the teardown.",
        evidence="kubelet's pods directory, the API's pods, and the mounts.",
        risk="kubelet logs `orphaned pod … volume paths are still present`; nothing else.",
        remedy="Look whether it is empty. Remove it only with rmdir, never with rm -r.",
    ),
    _entry(
        "RBD206",
        "StagingWithoutVolumeData",
        Severity.WARNING,
        "The volume is staged and its vol_data.json is gone.",
        cause="A crash, or ceph-csi's and kubelet's clean-up racing (kubernetes#101911).",
        evidence="The staging mount without the file beside it.",
        risk="kubelet cannot unstage what it cannot identify.",
        remedy="Never write the file again by hand. See RBD110.",
    ),
    _entry(
        "RBD207",
        "SameNameElsewhere",
        Severity.INFO,
        "Another image of the same name is mapped on this node.",
        cause="Two clusters with equal pool and image names, or an image that was deleted and made "
        "again.",
        evidence="The cluster's fsid, or the image's id, differs.",
        risk="Unmapping by name hits the wrong one.",
        remedy="Go by the device, never by the image's name.",
    ),
)

_CEPH: Final = (
    _entry(
        "RBD301",
        "ImageGone",
        Severity.ERROR,
        "The image does not exist in the cluster.",
        cause="It was deleted, or the PV names another cluster's image.",
        evidence="The cluster said so; where it could not be asked, this is not said.",
        risk="The data is gone unless it is in the trash. A mapping of a deleted image is dead "
        "weight.",
        remedy="Look into the trash (`rbd trash ls`) and at mirrors and backups. Unmap what still "
        "maps it, once nothing uses it.",
    ),
    _entry(
        "RBD302",
        "ImageInTrash",
        Severity.WARNING,
        "The image is in the trash.",
        cause="Somebody, or ceph-csi, deleted it; it waits for its deferment or its removal.",
        evidence="The trash of its pool.",
        risk="It is removed for good when its time is over.",
        remedy="Restore it with `rbd trash restore` if it was deleted by mistake.",
    ),
    _entry(
        "RBD303",
        "LegacyKubeletLock",
        Severity.ERROR,
        "An old kubelet's lock is left on the image.",
        cause="Kubelets before 1.10 took a lock `kubelet_lock_magic_<node>` and died with it.",
        evidence="The lock's name; its client has no watch.",
        risk="It refuses nothing by itself to newer kubelets, but old ones wait for ever.",
        remedy="When the node it names holds nothing, remove the lock with `rbd lock rm`.",
    ),
    _entry(
        "RBD304",
        "LockOfFormerClient",
        Severity.WARNING,
        "A lock belongs to a former client of the same node.",
        cause="The node reconnected as a new client, or maps with two users; the exclusive lock "
        "still names the old one.",
        evidence="The locker's IP is this node's, its nonce is no mapping's.",
        risk="The new client breaks the lock and blocklists the old one, that is: itself, before.",
        remedy="Nothing, if its mappings are gone. If an old mapping of that client lives, unmap "
        "it first.",
    ),
    _entry(
        "RBD305",
        "WatchLingers",
        Severity.INFO,
        "A watch of this node is there, and no mapping here is its client.",
        cause="The client died or was unmapped a moment ago: Ceph drops a watch after 30 s.",
        evidence="The watcher's address is this node's; sysfs has no such client.",
        risk="None.",
        remedy="Look again in 30 seconds. If it is still there, it is a program that uses librbd.",
    ),
    _entry(
        "RBD306",
        "NodeOnBlocklist",
        Severity.WARNING,
        "The blocklist has entries for addresses of this volume's nodes.",
        cause="Left over from fencing, or from a lock that was broken.",
        evidence="`ceph osd blocklist ls` against the nodes' addresses.",
        risk="An entry of a client that is gone harms nobody and expires. A whole host's entry "
        "stops every client on it, new ones too.",
        remedy="Let single clients' entries expire. Remove a whole host's entry only when that "
        "node has no mapping left.",
    ),
    _entry(
        "RBD307",
        "AmbiguousImage",
        Severity.ERROR,
        "Several clusters have an image of this name.",
        cause="Equal pool and image names in two clusters, as with mirroring.",
        evidence="Each cluster's own answer.",
        risk="An answer about the wrong cluster's image.",
        remedy="Name the volume by its device on its node, or look at one cluster at a time.",
    ),
    _entry(
        "RBD308",
        "MapRefusedByBlocklist",
        Severity.ERROR,
        "A map failed with 108: the node's shared Ceph client is blocklisted.",
        cause="New mappings share the client of the old, blocklisted ones.",
        evidence="The event's text.",
        risk="No new volume starts on that node.",
        remedy="Evict every pod with an RBD volume from the node, so that all its mappings go. "
        "With the last one the client goes, and new maps work.",
    ),
)

_KUBERNETES: Final = (
    _entry(
        "RBD401",
        "MultiAttach",
        Severity.ERROR,
        "The controller does not attach the volume: by its books another node has it.",
        cause="The other node's pod still runs, or its kubelet could not finish NodeUnstage and "
        "keeps the volume in volumesInUse.",
        evidence="The event, verbatim. The controller asks VolumeAttachments and the node's "
        "status, never Ceph.",
        risk="None for the data. A Ready node is never detached by force, so it may last for ever.",
        remedy="See what is said of the holder. Once it has let go, the controller attaches by "
        "itself, after kubelet's next retry (at most 2m2s later).",
    ),
    _entry(
        "RBD402",
        "StillBeingUsed",
        Severity.ERROR,
        "ceph-csi refuses to stage: the image has another watcher.",
        cause="Some client has the image open: a forgotten mapping, a node that was detached by "
        "force, a shell.",
        evidence="The event, verbatim, and the image's watchers.",
        risk="None: the refusal prevents a second writer.",
        remedy="See what is said of the holder. Once it has let go, the waiting NodeStage goes on "
        "within seconds.",
    ),
    _entry(
        "RBD403",
        "ClaimUnbound",
        Severity.ERROR,
        "The claim has no volume yet.",
        cause="No matching PV, no StorageClass, a provisioner that fails, a class that waits for "
        "the first pod, or a PV that is bound to another claim.",
        evidence="Phase and events of the claim.",
        risk="None: there is nothing to hold.",
        remedy="Read the claim's events; they name the step that is missing.",
    ),
    _entry(
        "RBD404",
        "ClaimLost",
        Severity.ERROR,
        "The claim and its PV do not agree that they belong together.",
        cause="The PV is gone, or its claimRef carries another claim's uid: most often YAML was "
        "restored into a new cluster with the old uid.",
        evidence="The claim's uid against PV.spec.claimRef.uid.",
        risk="Deleting the PV now may delete the image.",
        remedy="Set the PV to Retain first, then strip uid and resourceVersion from its claimRef.",
    ),
    _entry(
        "RBD405",
        "VolumeReleased",
        Severity.WARNING,
        "The PV is Released: its claim is gone.",
        cause="Retain keeps it for ever. Delete waits until the image has no watcher.",
        evidence="Phase, reclaim policy, and the event VolumeFailedDelete.",
        risk="With Delete, the data goes as soon as the last holder does.",
        remedy="Retain: reuse or delete it yourself. Delete: see what is said of the holder.",
    ),
    _entry(
        "RBD406",
        "ReleasedButClaimLives",
        Severity.ERROR,
        "The PV is Released although its claim is alive.",
        cause="An old race of the PV controller.",
        evidence="claimRef.uid equals the living claim's uid.",
        risk="Whoever deletes the PV deletes a living volume.",
        remedy="Do not delete it. Set Retain, then let the claim bind again.",
    ),
    _entry(
        "RBD407",
        "NotAnRBDVolume",
        Severity.ERROR,
        "The volume is not an RBD image.",
        cause="Another driver or volume type made it.",
        evidence="The PV's source.",
        risk="None.",
        remedy="Ask that driver's tools.",
    ),
    _entry(
        "RBD408",
        "AttachedOnPaper",
        Severity.ERROR,
        "The control plane says attached, and the node has nothing.",
        cause="The controller's books are stale, or its detach never ends (kubernetes#131410).",
        evidence="A VolumeAttachment, and neither a mapping nor a watch on that node.",
        risk="The next pod gets Multi-Attach although nobody holds the volume.",
        remedy="If no pod on that node needs it, restart kube-controller-manager, which reads its "
        "books anew. Never remove the attachment's finalizer by hand.",
    ),
    _entry(
        "RBD409",
        "DetachFails",
        Severity.ERROR,
        "The VolumeAttachment is being deleted and its detach fails.",
        cause="The external attacher cannot finish: a missing secret, no attacher, no rights.",
        evidence="deletionTimestamp and detachError.",
        risk="Removing the finalizer by hand orphans the mapping.",
        remedy="Repair what the error names. Never remove the finalizer.",
    ),
    _entry(
        "RBD410",
        "AttachmentOfGoneNode",
        Severity.WARNING,
        "A VolumeAttachment names a node that does not exist.",
        cause="The Node object was deleted before its volumes were detached.",
        evidence="No Node of that name.",
        risk="The machine may still run and hold the image.",
        remedy="Prove that the machine is off. The controller then cleans up.",
    ),
    _entry(
        "RBD411",
        "DuplicateHandle",
        Severity.ERROR,
        "Two PVs share one driver and volume handle.",
        cause="Static PVs that were written by hand with the same handle (ceph-csi#4526).",
        evidence="The PVs' sources.",
        risk="kubelet and the attacher take both for one volume: the second pod gets the wrong "
        "one, or none.",
        remedy="Give each PV a handle of its own; the old PV must be deleted and made again.",
    ),
    _entry(
        "RBD412",
        "SeveralVolumes",
        Severity.INFO,
        "The pod has further RBD volumes.",
        cause="A pod may use several; an answer speaks of one.",
        evidence="The pod's claims.",
        risk="None.",
        remedy="Ask for each of them.",
    ),
    _entry(
        "RBD413",
        "AttachFails",
        Severity.ERROR,
        "The volume cannot be attached.",
        cause="The external attacher reports an error.",
        evidence="attachError of the VolumeAttachment.",
        risk="The pod waits.",
        remedy="Repair what the error names.",
    ),
    _entry(
        "RBD414",
        "ImageNameUnknown",
        Severity.ERROR,
        "Which image the PV stands for cannot be told.",
        cause="Its volume handle does not follow ceph-csi's form, and it carries no image name.",
        evidence="The PV's source.",
        risk="None.",
        remedy="Name the image itself: POOL/IMAGE.",
    ),
    _entry(
        "RBD415",
        "TargetNotSeen",
        Severity.WARNING,
        "The target was not found where it could be looked for.",
        cause="A typo, or a source that was not observed.",
        evidence="Each source's state.",
        risk="None.",
        remedy="Check the name, and the sources that failed.",
    ),
    _entry(
        "RBD416",
        "RunningWithoutMapping",
        Severity.ERROR,
        "A pod runs with the volume, and its node shows no mapping or watch of it.",
        cause="The mapping lost its watch (RBD105), was taken away under the pod (RBD108), or the "
        "node reaches Ceph from an address that no Node object lists.",
        evidence="The pod in the API; the watchers; this node's sysfs where it is this node.",
        risk="Until it is known which, a second writer may be let in.",
        remedy="Run rbdagent on the pod's node before anything else.",
    ),
)

_NOT_OBSERVED: Final = (
    _entry(
        "RBD901",
        "NodeNotObserved",
        Severity.WARNING,
        "This node was not looked at.",
        cause="A missing right, a missing mount of the host's /sys or /proc, or a flag.",
        evidence="The source's own reason.",
        risk="Mappings here would not be seen; nothing is called free.",
        remedy="Run as root on the node, or see `rbdagent check`.",
    ),
    _entry(
        "RBD902",
        "CephNotObserved",
        Severity.WARNING,
        "Ceph could not be asked.",
        cause="No route to the monitors, a wrong key, or caps that are too small.",
        evidence="The source's own reason.",
        risk="Holders on other nodes are not seen; nothing is called free or orphaned.",
        remedy="See `rbdagent check`.",
    ),
    _entry(
        "RBD903",
        "KubernetesNotObserved",
        Severity.WARNING,
        "The Kubernetes API could not be asked.",
        cause="No kubeconfig, an expired token, missing permissions, or the server is down.",
        evidence="The source's own reason.",
        risk="Pods and attachments are not seen; nothing is called free or orphaned.",
        remedy="See `rbdagent check`.",
    ),
    _entry(
        "RBD904",
        "FactNotObserved",
        Severity.WARNING,
        "A source was observed, but not all of it.",
        cause="A capability, a cap or a permission is missing.",
        evidence="Which fact, why, and what would cure it.",
        risk="What rests on that fact is called undetermined.",
        remedy="Grant what the finding names.",
    ),
)

_REFUSALS: Final = (
    _entry(
        "RBD501",
        "NotSurelyTheSameMapping",
        Severity.INFO,
        "Not unmapped: two looks a grace period apart have not seen the same mapping.",
        cause="Nobody looked earlier, or something was mapped anew under the same device number.",
        evidence="Cluster, pool, image, snapshot, client and the kernel's sequence number of the "
        "disk, as remembered and as seen now.",
        risk="A device number is given out again: unmapping by it could hit another volume.",
        remedy="Let the agent run, or give `rbdagent unmap` the time with --wait.",
    ),
    _entry(
        "RBD502",
        "StillMounted",
        Severity.INFO,
        "Not unmapped: it is mounted, or the kernel has a live file system on it.",
        cause="A pod, a container's own mount namespace, kubelet's staging, or a detached mount.",
        evidence="mountinfo of every mount namespace; /sys/fs, /proc/fs and kernel threads.",
        risk="The kernel would refuse; where it would not, data would be lost.",
        remedy="End what has it mounted. A staging mount that was left behind alone is taken down "
        "with --unmap-staged.",
    ),
    _entry(
        "RBD503",
        "StillHeldOpen",
        Severity.INFO,
        "Not unmapped: a process has it open, or a block device is stacked on it.",
        cause="A raw reader, a working directory on it, LUKS, device mapper, loop, swap, RAID.",
        evidence="Open descriptors, working and root directories, mappings; sysfs' holders.",
        risk="Whoever has it open would lose its data.",
        remedy="End the process or take down the stacked device that is named.",
    ),
    _entry(
        "RBD504",
        "StillInKubeletsDirectories",
        Severity.INFO,
        "Not unmapped: kubelet's directories still show it for a pod.",
        cause="A pod that the API knows has a directory of the volume, or nobody could tell.",
        evidence="Staging, publish and block paths below kubelet's root; the pods in the API.",
        risk="kubelet may be about to mount it there.",
        remedy="Delete the pod that is named in good order and let kubelet finish.",
    ),
    _entry(
        "RBD505",
        "StillWanted",
        Severity.INFO,
        "Not unmapped: a pod on the node needs it, or an attachment is too young to be idle.",
        cause="A pod runs, waits, ends or ended a moment ago; kubelet started a moment ago.",
        evidence="Pods and VolumeAttachments as the API server's store has them; kubelet's start.",
        risk="The volume would vanish under a pod, or below a NodeStage at work.",
        remedy="Wait for the grace period, or delete the pod that is named.",
    ),
    _entry(
        "RBD506",
        "NotKubernetes",
        Severity.INFO,
        "Not unmapped: nothing says that Kubernetes made the image.",
        cause="Somebody mapped it by hand.",
        evidence="No PersistentVolume, staging directory, metadata or name of a provisioner.",
        risk="It is somebody's own work.",
        remedy="Ask who mapped it; `rbd unmap` is theirs to run.",
    ),
    _entry(
        "RBD507",
        "AtWork",
        Severity.INFO,
        "Not unmapped: a program is at work on it, or a request to Ceph hangs.",
        cause="map, unmap, mkfs, fsck, mount or cryptsetup runs, perhaps uninterruptibly.",
        evidence="Command lines of all processes; the kernel's list of requests (debugfs).",
        risk="Two programs at one device.",
        remedy="Wait for it. Where it hangs, Ceph is the place to look: ceph -s.",
    ),
    _entry(
        "RBD508",
        "NotYetOrNotAllowed",
        Severity.INFO,
        "Not unmapped: the grace period is not over, or something forbids it.",
        cause="Mode observe, a freeze switch, the hourly limit, or too short a row of looks.",
        evidence="Configuration, annotations, the freeze file, and the agent's memory.",
        risk="None: it waits.",
        remedy="Wait, or lift what is named.",
    ),
    _entry(
        "RBD509",
        "NotFullyObserved",
        Severity.INFO,
        "Not unmapped: not everything that the decision rests on was observed just now.",
        cause="A source is down or slow, a right is missing, or the look comes from a file.",
        evidence="The sources of the look, their gaps, and its age.",
        risk="What was not seen may be a user.",
        remedy="rbdagent check tells what is missing.",
    ),
)

CATALOG: Final[Mapping[str, Entry]] = MappingProxyType(
    {
        each.code: each
        for each in (*_HOLDERS, *_NODE, *_CEPH, *_KUBERNETES, *_REFUSALS, *_NOT_OBSERVED)
    }
)
"""Every code, in order."""


def entry(code: str) -> Entry:
    """Give a code's entry; code or name, in any case.

    Raises:
        NotFoundError: there is none; ``near`` has what comes close.
    """
    names = {each.code.upper(): each for each in CATALOG.values()}
    names |= {each.name.upper(): each for each in CATALOG.values()}
    found = names.get(code.strip().upper())
    if found is None:
        text = code.strip().upper()
        digits = text[:3] + text[3:].translate(str.maketrans("OIL", "011"))
        near = [digits] if digits in names else get_close_matches(text, names, n=3)
        msg = f"there is no finding {code!r}"
        raise NotFoundError(
            msg,
            hint="`rbdagent explain` lists them all",
            near=tuple(dict.fromkeys(f"{names[each].code} {names[each].name}" for each in near)),
        )
    return found


def explanation(code: str) -> str:
    """Give the text that `explain CODE` prints.

    Raises:
        NotFoundError: there is no such code.
    """
    found = entry(code)
    weight = "critical: data is in danger" if found.critical else str(found.severity)
    return "\n".join(
        (
            f"{found.code} {found.name} ({weight})",
            found.summary,
            "",
            f"Cause:    {found.cause}",
            f"Evidence: {found.evidence}",
            f"Risk:     {found.risk}",
            f"Remedy:   {found.remedy}",
        )
    )
