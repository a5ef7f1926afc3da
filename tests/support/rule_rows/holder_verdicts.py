"""Snapshots with the verdict that each leads to: the verdict on the first holder."""

# ruff: noqa: ANN401 - as the builders, these take any field of what they build

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from rbdagent.model import (
    BlockHolder,
    BlockHolderKind,
    BlocklistEntry,
    ContainerState,
    CSINode,
    DeviceNumber,
    ImagePresence,
    ImageSpec,
    NbdState,
    ObjectRef,
    OpenKind,
    ProcessRef,
    Snapshot,
    TargetKind,
    Verdict,
)
from tests.support.snapshots import (
    ADDRESS,
    HANDLE,
    JUST_NOW,
    LIBRBD_COOKIE,
    MGR,
    MGR_WATCH,
    PLUGIN_DOWN,
    POD_PATH,
    POD_UID,
    ROOT,
    SPEC,
    STAGING_PATH,
    STRANGER_ADDRESS,
    UNSEEN,
    attachment,
    container,
    event,
    from_worker_2,
    in_flight,
    luks,
    mirror_daemon,
    mount,
    nbd_mapping,
    node,
    opener,
    pod,
    pod_directory,
    process,
    remote_watcher,
    target,
    waiting_pod,
    watcher,
    world,
)

if TYPE_CHECKING:
    from tests.support.rule_tables import Table

LOOP: Final = BlockHolder(kind=BlockHolderKind.LOOP, name="loop3", label="/img", of="rbd0")
LUKS: Final = luks(device=DeviceNumber(major=253, minor=0))
SWAP: Final = BlockHolder(kind=BlockHolderKind.SWAP, name="rbd0", of="rbd0")
OWN_ENTRY: Final = BlocklistEntry(network=ADDRESS.ip, nonce=ADDRESS.nonce)
EXPORTER_UID: Final = "aaaa1111-0000-0000-0000-000000000000"
EXPORTER: Final = pod(
    ref=ObjectRef(namespace="monitoring", name="exporter", uid=EXPORTER_UID), claims=()
)
FRESH_KUBELET: Final = ProcessRef(pid=3, command="kubelet", started_at=JUST_NOW)
BY_DEVICE: Final = target(argument="/dev/rbd0", kind=TargetKind.DEVICE, name="/dev/rbd0")
HAND_MADE: Final[dict[str, Any]] = {
    "mapped": {"spec": ImageSpec(pool="k8s", name="by-hand")},
    "of_image": {"spec": ImageSpec(pool="k8s", name="by-hand"), "metadata": ()},
    "of_kubelet": {"staging": ()},
    "target": BY_DEVICE,
}


def nbd_world(**parts: Any) -> Snapshot:
    """Build a snapshot of rbd-nbd on worker-1; its watcher is librbd at the address of worker-1."""
    watch = watcher(client=5000, cookie=LIBRBD_COOKIE)
    device = nbd_mapping(**parts.pop("nbd", {}))
    return world(on_node={"mappings": (device,)}, of_image={"watchers": (watch,)}, **parts)


ORPHANED: Final[Table] = {
    "its LUKS mapping is left, and no process has it open (14)": world(mapped={"holders": (LUKS,)}),
    "forgotten by kubelet: directory and stash left, no attachment (46)": world(),
    "ceph-csi's rollback: neither directory nor stash (7)": world(of_kubelet={"staging": ()}),
    "an idle attachment, older than the grace period (1)": world(
        in_kube={"attachments": (attachment(),)}
    ),
    "an attachment that is being deleted": world(
        in_kube={"attachments": (attachment(deleting_since=JUST_NOW),)}
    ),
    "attached elsewhere alone": world(in_kube={"attachments": (attachment("worker-2"),)}),
    "a finished pod that is not deleted": world(in_kube={"pods": (pod(phase="Succeeded"),)}),
    "a pod that waits on another node": world(in_kube={"pods": (waiting_pod(),)}),
    "kubelet started recently, and no call of it is open": world(
        of_kubelet={"process": FRESH_KUBELET}
    ),
    "only the staging mount is left (5)": world(mapped={"mounts": (mount(),)}),
    "the staging mount, its journal and a copy in the plugin's namespace": world(
        mapped={
            "mounts": (mount(), mount(namespace=container(None)), mount(namespace=container())),
            "kernel_traces": ("/sys/fs/ext4/rbd0", "[jbd2/rbd0-8]"),
        }
    ),
    "the staging mount as a node exporter sees it below /host": world(
        mapped={
            "mounts": (
                mount(),
                mount(path="/host" + STAGING_PATH, namespace=container(EXPORTER_UID)),
            )
        },
        in_kube={"pods": (EXPORTER,)},
    ),
    "the staging mount of an encrypted volume (14)": world(
        mapped={
            "mounts": (mount(device=DeviceNumber(major=253, minor=0)),),
            "holders": (LUKS,),
        }
    ),
    "read-only, which takes no watch": world(mapped={"read_only": True}, of_image={"watchers": ()}),
    "a snapshot, which takes no watch": world(mapped={"snapshot": "s1"}, of_image={"watchers": ()}),
    "the image was deleted while it was mapped (16)": world(
        of_image={"presence": ImagePresence.GONE, "image_id": None, "watchers": ()}
    ),
    "a leftover pod directory without a mount": world(
        of_kubelet={"pod_volumes": (pod_directory(),)}
    ),
    "its PV is gone, its name is that of a provisioner": world(
        in_kube={"persistent_volumes": (), "claims": ()}, target=BY_DEVICE
    ),
    "rbd-nbd with its process, and nothing on it": nbd_world(),
    "rbd-nbd, whose own process has the device open": nbd_world(
        nbd={"openers": (opener(process=process(pid=700, pod_uid="plugin"), on_device=True),)}
    ),
}
IN_USE: Final[Table] = {
    "a running pod": world(in_kube={"pods": (pod(),)}),
    "a running pod that is being deleted": world(in_kube={"pods": (pod(deleting_since=JUST_NOW),)}),
    "a pod whose state kubelet no longer reports": world(in_kube={"pods": (pod(phase="Unknown"),)}),
    "an init container runs": world(
        in_kube={
            "pods": (pod(phase="Pending", containers=(ContainerState(name="i", state="running"),)),)
        }
    ),
    "a container of a pod that the API lost (47)": world(
        mapped={"mounts": (mount(path="/data", namespace=container()),)}
    ),
    "a raw block device open in a container of a lost pod": world(
        mapped={"openers": (opener(process=process(pod_uid=POD_UID), on_device=True),)}
    ),
    "a pod that has finished by the API, its container still on the mount": world(
        mapped={"mounts": (mount(path="/data", namespace=container()),)},
        in_kube={"pods": (pod(phase="Succeeded", deleting_since=JUST_NOW),)},
    ),
    "mounted at the path of a pod that the API does not know": world(
        mapped={"mounts": (mount(), mount(path=POD_PATH))}
    ),
    "block mode: bound at the path of a pod that the API does not know": world(
        mapped={
            "mounts": (
                mount(path=f"{ROOT}/plugins/kubernetes.io/csi/volumeDevices/publish/pv/{POD_UID}"),
            )
        }
    ),
    "the API is down, a container sees it": world(
        mapped={"mounts": (mount(), mount(path="/data", namespace=container()))},
        kubernetes=None,
        target=BY_DEVICE,
    ),
    "the API is down, it is mounted at a pod's path": world(
        mapped={"mounts": (mount(path=POD_PATH),)}, kubernetes=None, target=BY_DEVICE
    ),
    "the API is down and so is the plugin, it is mounted at a pod's path": world(
        mapped={"mounts": (mount(path=POD_PATH),)},
        of_kubelet=PLUGIN_DOWN,
        kubernetes=None,
        target=BY_DEVICE,
    ),
    "pods of one namespace were listed, an unknown container sees it": world(
        mapped={"mounts": (mount(path="/data", namespace=container()),)},
        in_kube={"pods_scope": "namespace/default"},
    ),
}
STAGED: Final[Table] = {
    "a pod on this node waits for it": world(in_kube={"pods": (waiting_pod(node="worker-1"),)}),
    "mkfs at work": world(
        on_node={"in_flight": (in_flight("mkfs.ext4", "mkfs.ext4 -m0 /dev/rbd0"),)}
    ),
    "mkfs at work, which has the device open (8)": world(
        on_node={"in_flight": (in_flight("mkfs.ext4", "mkfs.ext4 -m0 /dev/rbd0"),)},
        mapped={"openers": (opener(process=process(pid=9000), on_device=True),)},
    ),
    "rbd unmap at work": world(
        on_node={"in_flight": (in_flight("rbd", f"rbd unmap {SPEC} --device-type krbd"),)}
    ),
    "a finished pod is being deleted": world(
        in_kube={"pods": (pod(phase="Succeeded", deleting_since=JUST_NOW),)},
        mapped={"mounts": (mount(), mount(path=POD_PATH))},
    ),
    "the plugin is down, both mounts are there, the pod is gone (48)": world(
        mapped={"mounts": (mount(), mount(path=POD_PATH))},
        of_kubelet=PLUGIN_DOWN,
        in_kube={"attachments": (attachment(),)},
    ),
    "the plugin is not registered on the node (48)": world(
        mapped={"mounts": (mount(),)},
        in_kube={"csi_nodes": (CSINode(node_name="worker-1", drivers=()),)},
        of_kubelet={"sockets": ()},
    ),
    "a young attachment": world(in_kube={"attachments": (attachment(created_at=JUST_NOW),)}),
    "an attachment of unknown age": world(in_kube={"attachments": (attachment(created_at=None),)}),
    "an idle attachment, its pod stopped two minutes ago": world(
        in_kube={
            "attachments": (attachment(),),
            "events": (event("Stopping container c", reason="Killing", reporter="kubelet"),),
        }
    ),
    "an idle attachment, kubelet started two minutes ago": world(
        in_kube={"attachments": (attachment(),)}, of_kubelet={"process": FRESH_KUBELET}
    ),
    "staging left, kubelet started two minutes ago": world(
        mapped={"mounts": (mount(),)}, of_kubelet={"process": FRESH_KUBELET}
    ),
    "staging left, kubelet does not run": world(
        mapped={"mounts": (mount(),)}, of_kubelet={"process": None}
    ),
    "a request of its client hangs (15)": world(mapped={"hung_requests": ("write rbd_data.1",)}),
}
PINNED: Final[Table] = {
    "the working directory of a process, in no mountinfo (4)": world(
        mapped={"openers": (opener(),), "kernel_traces": ("/sys/fs/ext4/rbd0",)}
    ),
    "an open file": world(mapped={"openers": (opener(kind=OpenKind.DESCRIPTOR, path="/x"),)}),
    "a process on the staging mount (18)": world(
        mapped={"mounts": (mount(),), "openers": (opener(),)}
    ),
    "a bind in a container of a pod that does not use it (4)": world(
        mapped={"mounts": (mount(path="/mnt/x", namespace=container(EXPORTER_UID)),)},
        in_kube={"pods": (EXPORTER,)},
    ),
    "a copy at the pod's path that the host has no longer (3)": world(
        mapped={"mounts": (mount(path=POD_PATH, namespace=container(None)),)}
    ),
    "a bind on the host": world(mapped={"mounts": (mount(path="/mnt/rescue"),)}),
    "a loop device": world(mapped={"holders": (LOOP,)}),
    "swap": world(mapped={"holders": (SWAP,)}),
    "its LUKS mapping, without a mount, open (14)": world(
        mapped={"holders": (LUKS,), "openers": (opener(),)}
    ),
    "a file system in the kernel, mounted nowhere (9)": world(
        mapped={"kernel_traces": ("/sys/fs/xfs/rbd0",)}
    ),
    "pinned while kubelet's retry runs (3)": world(
        mapped={"openers": (opener(),)},
        on_node={"in_flight": (in_flight("rbd", "rbd unmap /dev/rbd0"),)},
        in_kube={"attachments": (attachment(created_at=JUST_NOW),)},
    ),
}
DEAD: Final[Table] = {
    "its own address is blocklisted (19)": world(
        in_ceph={"blocklist": (OWN_ENTRY,)}, of_image={"watchers": ()}
    ),
    "its whole host is blocklisted": world(
        in_ceph={"blocklist": (BlocklistEntry(network=ADDRESS.ip),)}
    ),
    "a range is blocklisted": world(
        in_ceph={"blocklist": (BlocklistEntry(network="10.77.0.0/24"),)}
    ),
    "a range of its address alone is blocklisted, and its watch is gone": world(
        in_ceph={"blocklist": (BlocklistEntry(network="10.77.0.11/32"),)}, of_image={"watchers": ()}
    ),
    "blocklisted while a pod runs": world(
        in_ceph={"blocklist": (OWN_ENTRY,)}, in_kube={"pods": (pod(),)}
    ),
    "rbd-nbd without its process (52)": nbd_world(
        nbd={"nbd": NbdState(recorded_pid=700, backend=HANDLE, process=None)}
    ),
}
UNWATCHED: Final[Table] = {
    "Ceph lists no watch (50)": world(of_image={"watchers": ()}),
    "Ceph lists no watch, a pod writes": world(
        of_image={"watchers": ()}, in_kube={"pods": (pod(),)}
    ),
    "the kernel lists no watch, Ceph could not be queried": world(
        mapped={"watch": False}, ceph=None
    ),
    "another client watches": world(of_image={"watchers": (remote_watcher(),)}),
    "the same client with another nonce watches": world(
        of_image={"watchers": (watcher(address=replace(ADDRESS, nonce=1)),)}
    ),
}
RETURNED: Final[Table] = {
    "the taint, no attachment, still mapped (23)": world(
        in_kube={"nodes": (node(out_of_service=True), node("worker-2"))}
    ),
    "the taint, a lost container still runs (23)": world(
        in_kube={"nodes": (node(out_of_service=True), node("worker-2"))},
        mapped={"mounts": (mount(path="/data", namespace=container()),)},
    ),
}
FOREIGN: Final[Table] = {
    "mapped by hand": world(**HAND_MADE),
    "mapped and mounted by hand": world(
        **{**HAND_MADE, "mapped": {**HAND_MADE["mapped"], "mounts": (mount(path="/mnt"),)}}
    ),
    "a manager's watch (30)": from_worker_2(
        of_image={"watchers": (MGR_WATCH,)}, in_ceph={"services": (MGR,)}
    ),
    "an rbd-mirror's watch (30)": from_worker_2(
        of_image={"watchers": (MGR_WATCH,), "mirror_daemons": (mirror_daemon(MGR_WATCH),)}
    ),
    "a transient watch (49)": from_worker_2(
        of_image={"watchers": (), "transient_watchers": (watcher(cookie=LIBRBD_COOKIE),)}
    ),
    "librbd at an address that no node has (33)": from_worker_2(
        of_image={"watchers": (watcher(address=STRANGER_ADDRESS, cookie=LIBRBD_COOKIE),)}
    ),
    "librbd on the node that looked": from_worker_2(
        of_image={"watchers": (remote_watcher(cookie=LIBRBD_COOKIE),)}
    ),
    "librbd on the node where a pod waits (49)": world(
        on_node={"mappings": ()},
        of_image={"watchers": (remote_watcher(cookie=LIBRBD_COOKIE),)},
        in_kube={"pods": (waiting_pod(),)},
    ),
}
NODE_DOWN: Final[Table] = {
    "kubelet does not report, the watch is alive (17)": from_worker_2(
        in_kube={"nodes": (node(ready=None), node("worker-2"))}
    ),
    "NotReady, the pod still Running by the API": from_worker_2(
        in_kube={"nodes": (node(ready=False), node("worker-2")), "pods": (pod(),)}
    ),
    "the Node object is gone, its pod is not (27)": from_worker_2(
        of_image={"watchers": ()},
        in_kube={"nodes": (node("worker-2"),), "pods": (pod(),)},
    ),
}
UNDETERMINED: Final[Table] = {
    "a remote kernel client without a pod": from_worker_2(),
    "a kernel client at an address that no node has (18)": from_worker_2(
        of_image={"watchers": (watcher(address=STRANGER_ADDRESS),)}
    ),
    "librbd at an unknown address, nodes not listed": from_worker_2(
        of_image={"watchers": (watcher(address=STRANGER_ADDRESS, cookie=LIBRBD_COOKIE),)},
        in_kube={"nodes": UNSEEN},
    ),
    "a watch of this node without a mapping (35)": world(on_node={"mappings": ()}),
    "a watch of this node, mappings not observed": world(on_node={"mappings": UNSEEN}),
    "no watch, and the blocklist was not observed": world(
        of_image={"watchers": ()}, in_ceph={"blocklist": UNSEEN}
    ),
    "the kernel lists a watch and Ceph shows none": world(
        mapped={"watch": True}, of_image={"watchers": ()}
    ),
    "pinned, and pods were not listed": world(
        mapped={"openers": (opener(),)}, in_kube={"pods": UNSEEN}
    ),
    "a hand-made mapping of an unknown owner": world(**HAND_MADE, kubernetes=None),
    "an idle attachment, kubelet's start unknown": world(
        in_kube={"attachments": (attachment(),)}, of_kubelet={"process": UNSEEN}
    ),
    "the image of the device could not be read": world(
        mapped={"spec": UNSEEN, "image_id": None}, target=BY_DEVICE
    ),
    "pods of another node were listed": world(in_kube={"pods_scope": "node/worker-2"}),
    "its PV was deleted by force, and a pod here has a claim that leads nowhere": world(
        in_kube={"persistent_volumes": (), "pods": (pod(),)}, target=BY_DEVICE
    ),
}
REMOTE_IN_USE: Final[Table] = {
    "a remote watch, and a pod runs there": from_worker_2(in_kube={"pods": (pod(),)}),
    "no watch, read-only, and a pod runs there": from_worker_2(
        of_image={"watchers": ()}, in_kube={"pods": (pod(),)}
    ),
}
REMOTE_STAGED: Final[Table] = {
    "a remote watch, and its pod ends there": from_worker_2(
        in_kube={"pods": (pod(phase="Failed", deleting_since=JUST_NOW),)}
    ),
    "a remote watch, and its pod starts there": from_worker_2(
        in_kube={"pods": (pod(phase="Pending"),)}
    ),
}
EXPECTED: Final = (
    (Verdict.ORPHANED, ORPHANED),
    (Verdict.IN_USE, IN_USE | REMOTE_IN_USE),
    (Verdict.STAGED, STAGED | REMOTE_STAGED),
    (Verdict.PINNED, PINNED),
    (Verdict.DEAD, DEAD),
    (Verdict.UNWATCHED, UNWATCHED),
    (Verdict.RETURNED_DIRTY, RETURNED),
    (Verdict.FOREIGN, FOREIGN),
    (Verdict.NODE_DOWN, NODE_DOWN),
    (Verdict.UNDETERMINED, UNDETERMINED),
)
