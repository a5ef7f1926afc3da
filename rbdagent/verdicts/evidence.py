"""Evidence that a holder uses the image: sorted facts, without a verdict."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from rbdagent.correlate.directories import observed_mounts, openers_of
from rbdagent.correlate.holders import is_finished, runs
from rbdagent.correlate.index import kube_index
from rbdagent.correlate.node_usage import MAPPER_PREFIX, stacked_on
from rbdagent.model import (
    BlockHolder,
    BlockHolderKind,
    Holder,
    InFlight,
    Mapping,
    Mount,
    NotObserved,
    OpenFile,
    Pod,
    ProcessRef,
    Snapshot,
    observed_of,
)
from rbdagent.parse.foreign import foreign, foreign_name
from rbdagent.parse.kubelet import pod_uid_of_path

if TYPE_CHECKING:
    from collections.abc import Iterable

_STAGING_PATH: Final = (
    r"/plugins/kubernetes\.io/csi/.+/globalmount(?:/|$)"
    r"|/volumeDevices/staging/"
    r"|/plugins/kubernetes\.io/rbd/mounts/"
)
_TEAR_DOWN_PROGRAMS = frozenset({"umount", "umount2", "luksClose"})
_TEAR_DOWN_WORDS = frozenset({"unmap", "luksClose", "close", "detach"})


class Evidence(Struct, frozen=True, kw_only=True):
    """Holds everything observed on the node and in the API that may use one mapping."""

    running: tuple[Pod, ...] = ()
    """Pods of the volume on this node whose containers run."""
    waiting: tuple[Pod, ...] = ()
    """Pods of the volume on this node that are not running yet."""
    ending: tuple[Pod, ...] = ()
    """Finished pods that are being deleted: their mounts may still exist."""
    finished: tuple[Pod, ...] = ()
    """Finished pods that are not being deleted: such a pod does not use the volume."""
    staging_mounts: tuple[Mount, ...] = ()
    pod_mounts: tuple[Mount, ...] = ()
    """Mounts at a pod's path, in the host's namespace."""
    container_mounts: tuple[Mount, ...] = ()
    """Mounts in the mount namespace of a container."""
    other_mounts: tuple[Mount, ...] = ()
    openers: tuple[OpenFile, ...] = ()
    """Without the processes in flight: they hold the device only for a short time."""
    stacked: tuple[BlockHolder, ...] = ()
    own_luks: tuple[BlockHolder, ...] = ()
    """The LUKS mapping that the CSI driver created: part of the staged volume, not a use of it."""
    traces: tuple[str, ...] = ()
    bringing_up: tuple[InFlight, ...] = ()
    tearing_down: tuple[InFlight, ...] = ()
    hung: tuple[str, ...] = ()


def evidence_of(holder: Holder) -> Evidence:
    """Return the known facts about a holder, sorted by kind."""
    pods, flights = observed_of(holder.pods), observed_of(holder.in_flight)
    mounts = _sorted_mounts(holder.mapping)
    mapping = holder.mapping
    has_mounts = bool(observed_mounts(mapping))
    stacked = _stacked(mapping)
    own = tuple(device for device in stacked if _is_own_luks(device, has_mounts=has_mounts))
    # rbd-nbd itself has its device open: that is not a use of the device.
    working = {flight.process.pid for flight in flights} | {
        mapping.server_pid if mapping is not None else None
    }
    return Evidence(
        running=tuple(pod for pod in pods if runs(pod)),
        waiting=tuple(pod for pod in pods if pod.phase == "Pending" and not runs(pod)),
        ending=tuple(pod for pod in pods if is_finished(pod) and pod.deleting_since),
        finished=tuple(pod for pod in pods if is_finished(pod) and not pod.deleting_since),
        staging_mounts=mounts["staging"],
        pod_mounts=mounts["pod"],
        container_mounts=mounts["container"],
        other_mounts=mounts["other"],
        openers=tuple(
            opener for opener in openers_of(mapping) if opener.process.pid not in working
        ),
        stacked=tuple(device for device in stacked if device not in own),
        own_luks=own,
        traces=_traces(mapping),
        bringing_up=tuple(flight for flight in flights if not _is_teardown(flight)),
        tearing_down=tuple(flight for flight in flights if _is_teardown(flight)),
        hung=hung_requests(mapping),
    )


def _sorted_mounts(mapping: Mapping | None) -> dict[str, tuple[Mount, ...]]:
    """Sort mounts by their owner, and omit copies of host mounts in other mount namespaces.

    Such a copy disappears with the host's mount: the rmdir of its mount point detaches it in every
    namespace (Linux 3.18, commit 8ed936b5671b; recording 09a-private-mntns-does-not-pin). Node
    exporters have copies below a prefix such as ``/host``.
    """
    by_owner: dict[str, list[Mount]] = {"staging": [], "pod": [], "container": [], "other": []}
    mounts = observed_mounts(mapping)
    host_paths = {mount.path for mount in mounts if mount.namespace.is_host}
    for mount in sorted(mounts, key=lambda mount: (mount.path, mount.namespace.process.pid)):
        is_copy = any(mount.path.endswith(path) for path in host_paths)
        if not mount.namespace.is_host and is_copy:
            continue
        by_owner[_owner_of(mount)].append(mount)
    return {owner: tuple(owned) for owner, owned in by_owner.items()}


def _owner_of(mount: Mount) -> str:
    if not mount.namespace.is_host and mount.namespace.process.pod_uid is not None:
        return "container"
    if not mount.namespace.is_host and mount.namespace.inode:
        # A kubelet path that no longer exists on the host. It is a copy that keeps the device
        # busy, not the mount of a pod.
        return "other"
    if pod_uid_of_path(mount.path) is not None:
        return "pod"
    if is_staging_path(mount.path) and mount.namespace.is_host:
        return "staging"
    return "other"


def is_staging_path(path: str) -> bool:
    """Return whether kubelet's directory layout makes this path a staging path of a driver."""
    return re.search(_STAGING_PATH, path) is not None


def _stacked(mapping: Mapping | None) -> tuple[BlockHolder, ...]:
    return tuple(sorted(stacked_on(mapping), key=lambda device: (device.of, device.name)))


_OF_KUBELET: Final = "/plugins/kubernetes.io/csi/volumeDevices/"


def is_kubelets_loop(device: BlockHolder) -> bool:
    """Return whether kubelet put this loop device on a raw block volume, as it does on each."""
    return device.kind is BlockHolderKind.LOOP and _OF_KUBELET in device.label


def kubelets_loops_alone(found: Evidence, holder: Holder) -> tuple[BlockHolder, ...]:
    """Return kubelet's own loop devices on the volume; empty if anything else keeps it busy too."""
    own = tuple(device for device in found.stacked if is_kubelets_loop(device))
    return own if len(pins(found, holder)) == len(own) else ()


def _is_own_luks(stacked: BlockHolder, *, has_mounts: bool) -> bool:
    """Return whether the CSI driver created it. If its kind is unknown, it must also be mounted."""
    if not stacked.label.startswith(MAPPER_PREFIX):
        return False
    return stacked.kind is BlockHolderKind.LUKS or (
        has_mounts and stacked.kind is BlockHolderKind.DM
    )


def _traces(mapping: Mapping | None) -> tuple[str, ...]:
    return () if mapping is None else tuple(sorted(observed_of(mapping.kernel_traces)))


def hung_requests(mapping: Mapping | None) -> tuple[str, ...]:
    """Return the observed requests of a mapping to Ceph that have no answer yet."""
    return () if mapping is None else tuple(sorted(observed_of(mapping.hung_requests)))


def _is_teardown(flight: InFlight) -> bool:
    """Return whether a process unmounts, closes or unmaps.

    ``rbd unmap`` and ``cryptsetup luksClose`` show their verb only in the command line.
    """
    if flight.program in _TEAR_DOWN_PROGRAMS:
        return True
    words = set(flight.process.command.split())
    return not words.isdisjoint(_TEAR_DOWN_WORDS)


# --------------------------------------------------------------------------------------------------
# Processes by their pod
# --------------------------------------------------------------------------------------------------


def processes_on(found: Evidence) -> tuple[ProcessRef, ...]:
    """Return the processes that have the device mounted in their container, or have it open."""
    processes = [mount.namespace.process for mount in found.container_mounts]
    processes += [opener.process for opener in found.openers]
    return tuple({process.pid: process for process in processes}.values())


def own_processes(found: Evidence, holder: Holder) -> tuple[ProcessRef, ...]:
    """Return the processes of pods that use the volume according to the API."""
    uids = {pod.ref.uid for pod in observed_of(holder.pods)}
    return tuple(
        process for process in processes_on(found) if process.pod_uid and process.pod_uid in uids
    )


def lost_processes(found: Evidence, holder: Holder) -> tuple[ProcessRef, ...]:
    """Return the processes of pods that the API does not list."""
    return tuple(
        process
        for process in processes_on(found)
        if process.pod_uid and process.pod_uid in holder.unknown_pod_uids
    )


def unsorted_processes(
    found: Evidence, holder: Holder, snapshot: Snapshot
) -> tuple[ProcessRef, ...]:
    """Return the container processes whose pod may or may not use the volume.

    If not all pods of the API were observed, a container that has the device mounted or open counts
    as a user of the volume.
    """
    pods_seen = not isinstance(holder.pods, NotObserved)
    if pods_seen and kube_index(snapshot.kubernetes).coverage.pods_on(holder.node or ""):
        return ()
    uids = kube_index(snapshot.kubernetes).pod_by_uid
    return tuple(
        process
        for process in processes_on(found)
        if process.pod_uid is not None and (not pods_seen or process.pod_uid not in uids)
    )


def foreign_mounts(found: Evidence, holder: Holder) -> tuple[Mount, ...]:
    """Return the mounts in containers of pods that do not use the volume according to the API."""
    uids = {pod.ref.uid for pod in observed_of(holder.pods)} | set(holder.unknown_pod_uids)
    return tuple(
        mount for mount in found.container_mounts if mount.namespace.process.pod_uid not in uids
    )


def pins(found: Evidence, holder: Holder) -> tuple[str, ...]:
    """Return a sentence for each thing that keeps the device busy although no pod uses it."""
    return (*users_without_pod(found, holder), *_left_file_system(found, holder))


def users_without_pod(found: Evidence, holder: Holder) -> tuple[str, ...]:
    """Return a sentence for each process, mount and device that uses the device for no pod."""
    lines = [opener_text(opener) for opener in found.openers]
    lines += [mount_text(mount) for mount in foreign_mounts(found, holder)]
    lines += [mount_text(mount) for mount in found.other_mounts]
    lines += [block_holder_text(device) for device in found.stacked]
    return tuple(dict.fromkeys(lines))


def _left_file_system(found: Evidence, holder: Holder) -> tuple[str, ...]:
    """Return the sentence about a file system that the kernel keeps after its last unmount."""
    mapping = holder.mapping
    if mapping is None or mapping.mounts != () or not found.traces:
        # Mounts that were not observed are not "none": a container may have it mounted.
        return ()
    traces = ", ".join(map(foreign_name, found.traces))
    return (f"it is not mounted anywhere, but the kernel still has a file system on it ({traces})",)


# --------------------------------------------------------------------------------------------------
# Sentences
# --------------------------------------------------------------------------------------------------


_ROOM: Final = 60


def process_text(process: ProcessRef) -> str:
    """Describe a process: its pid, its command, and the pod of its cgroup."""
    where = f" of pod {process.pod_uid}" if process.pod_uid else ""
    hung = ", in uninterruptible sleep" if process.state == "D" else ""
    return f"process {process.pid} ({command_text(process)}){where}{hung}"


def command_text(process: ProcessRef) -> str:
    """Return the beginning of a command line; if it is published, the program only."""
    known = process.program if process.is_public else process.command
    if not known:
        return "no name"
    return foreign_name(known) if process.is_public else foreign(_beginning(known))


def _beginning(command: str) -> str:
    """Return a command line as a sentence has room for it; the list of processes has all of it."""
    return command if len(command) <= _ROOM else f"{command[: _ROOM - 2]} …"


def opener_text(opener: OpenFile) -> str:
    """Describe how a process keeps the device busy."""
    process = process_text(opener.process)
    if opener.on_device:
        return f"{process} has the device open"
    path = foreign_name(opener.path)
    return {
        "cwd": f"{process} has its working directory on it",
        "root": f"{process} has its root directory on it",
        "mapping": f"{process} has a memory-mapped file on it ({path})",
        "executable": f"{process} runs an executable on it ({path})",
    }.get(opener.kind, f"{process} has an open file on it ({path})")


def mount_text(mount: Mount) -> str:
    """Describe where a device is mounted, and in which mount namespace."""
    path = foreign_name(mount.path)
    if mount.namespace.is_host:
        return f"mounted at {path} on the host"
    return f"mounted at {path} in the mount namespace of {process_text(mount.namespace.process)}"


def block_holder_text(holder: BlockHolder) -> str:
    """Describe what is stacked on the device inside the kernel."""
    label = f" ({foreign_name(holder.label)})" if holder.label else ""
    descriptions = {
        BlockHolderKind.SWAP: f"swap is on {holder.of or holder.name}",
        BlockHolderKind.LOOP: f"loop device {holder.name}{label} is backed by it",
        BlockHolderKind.LUKS: f"LUKS mapping {holder.name}{label} is open on it",
        BlockHolderKind.DM: f"device-mapper device {holder.name}{label} is open on it",
        BlockHolderKind.MD: f"RAID device {holder.name}{label} is built on it",
    }
    return descriptions.get(holder.kind, f"block device {holder.name}{label} is stacked on it")


def pod_names(pods: Iterable[Pod]) -> str:
    """Return the names of pods: ``default/web-0, default/web-1``."""
    return ", ".join(str(pod.ref) for pod in pods)
