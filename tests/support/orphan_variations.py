"""States near the orphan: the properties of verdicts and plans vary them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from hypothesis import strategies as st
from msgspec.structs import replace

from rbdagent.model import (
    BlockHolder,
    BlockHolderKind,
    BlocklistEntry,
    CephView,
    ImagePresence,
    Mapping,
    NotObserved,
    OpenKind,
    PluginSocket,
    ProcessRef,
    Snapshot,
)
from tests.support.snapshots import (
    ADDRESS,
    DRIVER,
    JUST_NOW,
    LIBRBD_COOKIE,
    LONG_AGO,
    NEIGHBOUR,
    NO_IO,
    POD_PATH,
    POD_UID,
    UNSEEN,
    attachment,
    cluster,
    container,
    event,
    image_view,
    in_flight,
    kube,
    kubelet,
    mapping,
    mount,
    node,
    node_view,
    opener,
    pod,
    pod_directory,
    process,
    remote_watcher,
    snapshot,
    staging,
    volume,
    waiting_pod,
    watcher,
)

MOUNTS: Final = (
    mount(),
    mount(path=POD_PATH),
    mount(path="/mnt"),
    mount(path="/data", namespace=container()),
    mount(path="/data", namespace=container("stranger")),
    mount(covered=True),
    mount(namespace=container("stranger")),
)
OPENERS: Final = (
    opener(),
    opener(process=process(pid=9000), kind=OpenKind.DESCRIPTOR, on_device=True),
    opener(process=process(pid=12, pod_uid=POD_UID)),
)
HOLDERS: Final = (
    BlockHolder(kind=BlockHolderKind.LOOP, name="loop0", of="rbd0"),
    BlockHolder(kind=BlockHolderKind.LUKS, name="dm-1", label="backup", of="rbd0"),
)
OWN_LUKS: Final = BlockHolder(kind=BlockHolderKind.LUKS, name="dm-0", label="luks-rbd-x", of="rbd0")
"""The CSI driver creates it when it stages the volume: it is a part of the stage, not a use."""
PODS: Final = (
    pod(),
    pod("done", phase="Succeeded"),
    pod("going", phase="Failed", deleting_since=JUST_NOW),
    waiting_pod("starting", "worker-1"),
    waiting_pod(),
    pod("remote", "worker-2"),
)
FLIGHTS: Final = (
    in_flight("mkfs.ext4", "mkfs.ext4 /dev/rbd0"),
    in_flight("rbd", "rbd unmap /dev/rbd0"),
)
ATTACHMENTS: Final = (
    attachment(),
    attachment(created_at=JUST_NOW),
    attachment(deleting_since=JUST_NOW),
    attachment("worker-2"),
)
WATCHERS: Final = (watcher(), remote_watcher(), remote_watcher(cookie=LIBRBD_COOKIE, client=7))
ENTRIES: Final = (
    BlocklistEntry(network=ADDRESS.ip, nonce=ADDRESS.nonce),
    BlocklistEntry(network="10.77.0.0/16"),
)
READ: Final = replace(NO_IO, reads=NO_IO.reads + 1)
IN_FLIGHT: Final = replace(NO_IO, in_flight=1)
UNKNOWN_DEVICE: Final = mapping(
    device="/dev/rbd7", device_id=7, spec=UNSEEN, image_id=None, client_id=1, fsid=None
)
ON_TOP: Final = replace(
    NEIGHBOUR, mounts=(mount(device=NEIGHBOUR.number, source=NEIGHBOUR.device),)
)
"""Another volume, in use, that is mounted at the staging path too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """The parts of a snapshot that the properties vary."""

    parts: dict[str, Any]

    def but(self, **changes: Any) -> Scene:  # noqa: ANN401 - any part of any type
        """Return the scene with some parts changed."""
        return Scene(parts={**self.parts, **changes})

    def seen(self) -> Snapshot:
        """Build the snapshot."""
        part = self.parts
        device = mapping(
            **{
                name: part[name]
                for name in (
                    "mounts",
                    "openers",
                    "holders",
                    "kernel_traces",
                    "read_only",
                    "watch",
                    "hung_requests",
                    "io_counters",
                )
            }
        )
        devices: tuple[Mapping, ...] | NotObserved = UNSEEN
        if part["mapped"] is not None:
            devices = (*((device,) if part["mapped"] else ()), *part["unknown"])
        listening = PluginSocket(driver=DRIVER, path="/s", listening=part["listening"])
        local = node_view(
            mappings=devices,
            in_flight=part["in_flight"],
            kubelet=kubelet(
                process=part["kubelet"],
                staging=part["staging"],
                pod_volumes=part["pod_volumes"],
                sockets=(listening,),
            ),
        )
        view = image_view(
            presence=part["presence"],
            image_id=None if part["presence"] is ImagePresence.GONE else "101d576e3eb2",
            watchers=part["watchers"],
            transient_watchers=part["transient"],
        )
        api = kube(
            persistent_volumes=part["volumes"],
            pods=part["pods"],
            attachments=part["attachments"],
            nodes=part["nodes"],
            events=part["events"],
            pods_scope=part["scope"],
        )
        clusters = (cluster(images=(view,), blocklist=part["blocklist"]),)
        return snapshot(
            node=local if part["node_seen"] else None,
            ceph=CephView(clusters=clusters) if part["ceph_seen"] else None,
            kubernetes=api if part["kube_seen"] else None,
        )


ORPHAN: Final[dict[str, Any]] = {
    "mounts": (),
    "openers": (),
    "holders": (),
    "kernel_traces": (),
    "read_only": False,
    "watch": UNSEEN,
    "hung_requests": (),
    "io_counters": NO_IO,
    "mapped": True,
    "unknown": (),
    "listening": True,
    "in_flight": (),
    "kubelet": ProcessRef(pid=3, command="kubelet", started_at=LONG_AGO),
    "staging": (staging(),),
    "pod_volumes": (),
    "presence": ImagePresence.PRESENT,
    "watchers": (watcher(),),
    "transient": (),
    "blocklist": (),
    "volumes": (volume(),),
    "pods": (),
    "attachments": (),
    "nodes": (node(), node("worker-2")),
    "events": (),
    "scope": "cluster",
    "node_seen": True,
    "ceph_seen": True,
    "kube_seen": True,
}


def _few(*values: object) -> tuple[object, ...]:
    """Return each value alone, the first two together, and a part that was not observed."""
    return (*((value,) for value in values), values[:2], UNSEEN)


OTHERWISE: Final[dict[str, tuple[Any, ...]]] = {
    "mounts": _few(*MOUNTS),
    "openers": _few(*OPENERS),
    "holders": _few(*HOLDERS, OWN_LUKS),
    "kernel_traces": _few("/sys/fs/ext4/rbd0"),
    "read_only": (True, UNSEEN),
    "watch": (True, False),
    "hung_requests": (("write rbd_data.1",), UNSEEN),
    "io_counters": (READ, IN_FLIGHT, UNSEEN),
    "mapped": (False, False, None),
    "unknown": ((UNKNOWN_DEVICE,), (ON_TOP,)),
    "listening": (False, UNSEEN),
    "in_flight": _few(*FLIGHTS),
    "kubelet": (
        ProcessRef(pid=3, command="kubelet", started_at=JUST_NOW),
        ProcessRef(pid=3, command="kubelet"),
        None,
        UNSEEN,
    ),
    "staging": ((), UNSEEN),
    "pod_volumes": _few(pod_directory()),
    "presence": (ImagePresence.TRASH, ImagePresence.GONE, UNSEEN),
    "watchers": ((), (), *_few(*WATCHERS), WATCHERS[1:]),
    "transient": ((remote_watcher(client=7, cookie=LIBRBD_COOKIE),),),
    "blocklist": _few(*ENTRIES),
    "volumes": ((), UNSEEN),
    "pods": _few(*PODS),
    "attachments": _few(*ATTACHMENTS),
    "nodes": (
        (node(),),
        (node(boot_id="b000"), node("worker-2")),
        (node(boot_id=None), node("worker-2")),
        (node("worker-2"),),
        UNSEEN,
    ),
    "events": ((event("Stopping", reason="Killing"),), UNSEEN),
    "scope": ("node/worker-1", "namespace/default", "node/worker-2"),
    "node_seen": (False,),
    "ceph_seen": (False,),
    "kube_seen": (False,),
}

CHANGES: Final = [(name, value) for name, values in OTHERWISE.items() for value in values]

SCENES: Final = st.lists(st.sampled_from(CHANGES), max_size=5).map(
    # A few changes away from the orphan: the limits of the verdicts are there.
    lambda changes: Scene(parts={**ORPHAN, **dict(changes)})
)
