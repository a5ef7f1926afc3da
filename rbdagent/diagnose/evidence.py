"""What speaks for use of one holder: sorted facts, no verdict yet."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from msgspec import Struct

from rbdagent.correlate.holders import is_finished, runs
from rbdagent.correlate.local import (
    MAPPER_PREFIX,
    mounts_of,
    openers_of,
    pod_uid_of_path,
    server_pid,
)
from rbdagent.correlate.names import knows_every_pod_on
from rbdagent.model import (
    BlockHolder,
    BlockHolderKind,
    Holder,
    InFlight,
    Mapping,
    Mount,
    NotObserved,
    Opener,
    Pod,
    ProcessRef,
    Snapshot,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

_STAGING_PATH = re.compile(
    r"/plugins/kubernetes\.io/csi/.+/globalmount(?:/|$)"
    r"|/volumeDevices/staging/"
    r"|/plugins/kubernetes\.io/rbd/mounts/"
)
_TEAR_DOWN_PROGRAMS = frozenset({"umount", "umount2", "luksClose"})
_TEAR_DOWN_WORDS = frozenset({"unmap", "luksClose", "close", "detach"})


class Evidence(Struct, frozen=True, kw_only=True):
    """Everything seen on the node, and in the API, that may use one mapping."""

    running: tuple[Pod, ...] = ()
    """Pods of the volume on this node whose containers run."""
    waiting: tuple[Pod, ...] = ()
    """Pods of the volume on this node that do not run yet."""
    ending: tuple[Pod, ...] = ()
    """Finished pods that are being deleted: their mounts may still be there."""
    finished: tuple[Pod, ...] = ()
    """Finished pods that nobody deletes: they use nothing by themselves."""
    staging_mounts: tuple[Mount, ...] = ()
    pod_mounts: tuple[Mount, ...] = ()
    """Mounts at a pod's path, in the host's namespace."""
    container_mounts: tuple[Mount, ...] = ()
    """Mounts that a container sees at a place of its own."""
    other_mounts: tuple[Mount, ...] = ()
    openers: tuple[Opener, ...] = ()
    """Without the processes that are in flight: those come and go."""
    stacked: tuple[BlockHolder, ...] = ()
    own_luks: tuple[BlockHolder, ...] = ()
    """The LUKS mapping that the CSI driver made: a part of what is staged, no use of it."""
    traces: tuple[str, ...] = ()
    bringing_up: tuple[InFlight, ...] = ()
    tearing_down: tuple[InFlight, ...] = ()
    hung: tuple[str, ...] = ()


def evidence_of(holder: Holder) -> Evidence:
    """Sort what is known of a holder."""
    pods = () if isinstance(holder.pods, NotObserved) else holder.pods
    flights = () if isinstance(holder.in_flight, NotObserved) else holder.in_flight
    mounts = _sorted_mounts(holder.mapping)
    mapping = holder.mapping
    stacked = _stacked(mapping)
    own = tuple(each for each in stacked if _is_own_luks(each, has_mounts=bool(mounts_of(mapping))))
    # rbd-nbd itself has its device open: that is no use of it.
    working = {each.process.pid for each in flights} | {server_pid(mapping)}
    return Evidence(
        running=tuple(each for each in pods if runs(each)),
        waiting=tuple(each for each in pods if each.phase == "Pending" and not runs(each)),
        ending=tuple(each for each in pods if is_finished(each) and each.deleting_since),
        finished=tuple(each for each in pods if is_finished(each) and not each.deleting_since),
        staging_mounts=mounts["staging"],
        pod_mounts=mounts["pod"],
        container_mounts=mounts["container"],
        other_mounts=mounts["other"],
        openers=tuple(each for each in openers_of(mapping) if each.process.pid not in working),
        stacked=tuple(each for each in stacked if each not in own),
        own_luks=own,
        traces=_traces(mapping),
        bringing_up=tuple(each for each in flights if not _tears_down(each)),
        tearing_down=tuple(each for each in flights if _tears_down(each)),
        hung=_hung(mapping),
    )


def _sorted_mounts(mapping: Mapping | None) -> dict[str, tuple[Mount, ...]]:
    """Sort mounts by whose they are; a namespace's idle copy of a host mount is left out.

    A copy goes with the host's mount: the rmdir of its mount point detaches it everywhere (Linux
    3.18). Node exporters see copies below a prefix such as ``/host``.
    """
    found: dict[str, list[Mount]] = {"staging": [], "pod": [], "container": [], "other": []}
    mounts = mounts_of(mapping)
    host = {each.path for each in mounts if each.namespace.is_host}
    for each in sorted(mounts, key=lambda each: (each.path, each.namespace.process.pid)):
        if not each.namespace.is_host and any(each.path.endswith(path) for path in host):
            continue
        found[_place_of(each)].append(each)
    return {place: tuple(each) for place, each in found.items()}


def _place_of(mount: Mount) -> str:
    if not mount.namespace.is_host and mount.namespace.process.pod_uid is not None:
        return "container"
    if not mount.namespace.is_host and mount.namespace.inode:
        # A path of kubelet's that the host has no longer: a copy that pins, not a pod's own view.
        return "other"
    if pod_uid_of_path(mount.path) is not None:
        return "pod"
    if is_staging_path(mount.path) and mount.namespace.is_host:
        return "staging"
    return "other"


def is_staging_path(path: str) -> bool:
    """Tell whether a driver stages a volume at this path, by kubelet's layout."""
    return _STAGING_PATH.search(path) is not None


def _stacked(mapping: Mapping | None) -> tuple[BlockHolder, ...]:
    if mapping is None or isinstance(mapping.holders, NotObserved):
        return ()
    return tuple(sorted(mapping.holders, key=lambda each: (each.of, each.name)))


def _is_own_luks(stacked: BlockHolder, *, has_mounts: bool) -> bool:
    """Tell whether the CSI driver made it; where its kind is hidden, a mount must tell so too."""
    if not stacked.label.startswith(MAPPER_PREFIX):
        return False
    return stacked.kind is BlockHolderKind.LUKS or (
        has_mounts and stacked.kind is BlockHolderKind.DM
    )


def _traces(mapping: Mapping | None) -> tuple[str, ...]:
    if mapping is None or isinstance(mapping.kernel_traces, NotObserved):
        return ()
    return tuple(sorted(mapping.kernel_traces))


def _hung(mapping: Mapping | None) -> tuple[str, ...]:
    if mapping is None or isinstance(mapping.hung_requests, NotObserved):
        return ()
    return tuple(sorted(mapping.hung_requests))


def _tears_down(flight: InFlight) -> bool:
    """``rbd unmap`` and ``cryptsetup luksClose`` show their verb in the command line only."""
    if flight.program in _TEAR_DOWN_PROGRAMS:
        return True
    words = set(flight.process.command.split())
    return not words.isdisjoint(_TEAR_DOWN_WORDS)


# --------------------------------------------------------------------------------------------------
# Whose process is it
# --------------------------------------------------------------------------------------------------


def processes_on(found: Evidence) -> tuple[ProcessRef, ...]:
    """Give the processes that see a mount of the device in their container, or have it open."""
    seen = [each.namespace.process for each in found.container_mounts]
    seen += [each.process for each in found.openers]
    return tuple({each.pid: each for each in seen}.values())


def own_processes(found: Evidence, holder: Holder) -> tuple[ProcessRef, ...]:
    """Give the processes of pods that, by the API, use the volume."""
    pods = () if isinstance(holder.pods, NotObserved) else holder.pods
    uids = {each.ref.uid for each in pods}
    return tuple(each for each in processes_on(found) if each.pod_uid and each.pod_uid in uids)


def lost_processes(found: Evidence, holder: Holder) -> tuple[ProcessRef, ...]:
    """Give the processes of pods that the API does not know."""
    return tuple(
        each
        for each in processes_on(found)
        if each.pod_uid and each.pod_uid in holder.lost_pod_uids
    )


def unsorted_processes(
    found: Evidence, holder: Holder, snapshot: Snapshot
) -> tuple[ProcessRef, ...]:
    """Give the processes of containers of which nobody can tell whether they use the volume.

    Where the API's pods were not seen, or not all of them, a container on the volume is taken for
    its user.
    """
    pods_seen = not isinstance(holder.pods, NotObserved)
    if pods_seen and knows_every_pod_on(snapshot.kubernetes, holder.node or ""):
        return ()
    known = () if snapshot.kubernetes is None else snapshot.kubernetes.pods
    uids = set() if isinstance(known, NotObserved) else {each.ref.uid for each in known}
    return tuple(
        each
        for each in processes_on(found)
        if each.pod_uid is not None and (not pods_seen or each.pod_uid not in uids)
    )


def foreign_mounts(found: Evidence, holder: Holder) -> tuple[Mount, ...]:
    """Give the mounts in containers of pods that do not use the volume by the API."""
    pods = () if isinstance(holder.pods, NotObserved) else holder.pods
    uids = {each.ref.uid for each in pods} | set(holder.lost_pod_uids)
    return tuple(
        each for each in found.container_mounts if each.namespace.process.pod_uid not in uids
    )


def pins(found: Evidence, holder: Holder) -> tuple[str, ...]:
    """Give a sentence for each thing that keeps the device open though no pod uses it."""
    said = [said_of_opener(each) for each in found.openers]
    said += [said_of_mount(each) for each in foreign_mounts(found, holder)]
    said += [said_of_mount(each) for each in found.other_mounts]
    said += [said_of_stacked(each) for each in found.stacked]
    if not mounts_of(holder.mapping) and found.traces:
        said.append(
            f"the kernel still has a file system on it ({', '.join(found.traces)}), "
            "mounted nowhere any more"
        )
    return tuple(dict.fromkeys(said))


# --------------------------------------------------------------------------------------------------
# Sentences
# --------------------------------------------------------------------------------------------------


def said_of_process(process: ProcessRef) -> str:
    """Name a process: pid, command, and the pod that its cgroup names."""
    where = f" of pod {process.pod_uid}" if process.pod_uid else ""
    hung = ", in uninterruptible sleep" if process.state == "D" else ""
    return f"process {process.pid} ({process.command or 'no name'}){where}{hung}"


def said_of_opener(opener: Opener) -> str:
    """Say how a process keeps the device busy."""
    who = said_of_process(opener.process)
    if opener.on_device:
        return f"{who} has the device open"
    return {
        "cwd": f"{who} has its working directory on it",
        "root": f"{who} has its root directory on it",
        "mapping": f"{who} has a file on it mapped into memory ({opener.path})",
        "executable": f"{who} runs a program that lies on it ({opener.path})",
    }.get(opener.how, f"{who} has a file on it open ({opener.path})")


def said_of_mount(mount: Mount) -> str:
    """Say where something is mounted, and in whose namespace."""
    if mount.namespace.is_host:
        return f"mounted at {mount.path} on the host"
    return f"mounted at {mount.path} in the mount namespace of " + said_of_process(
        mount.namespace.process
    )


def said_of_stacked(holder: BlockHolder) -> str:
    """Say what lies upon the device inside the kernel."""
    label = f" ({holder.label})" if holder.label else ""
    what = {
        BlockHolderKind.SWAP: f"swap is on {holder.of or holder.name}",
        BlockHolderKind.LOOP: f"loop device {holder.name}{label} is backed by it",
        BlockHolderKind.LUKS: f"LUKS mapping {holder.name}{label} is open on it",
        BlockHolderKind.DM: f"device-mapper device {holder.name}{label} is open on it",
        BlockHolderKind.MD: f"RAID device {holder.name}{label} is built on it",
    }
    return what.get(holder.kind, f"block device {holder.name}{label} is stacked on it")


def pod_names(pods: Iterable[Pod]) -> str:
    """Name pods: ``default/web-0, default/web-1``."""
    return ", ".join(str(each.ref) for each in pods)
