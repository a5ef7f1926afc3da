"""The sizes of file systems on mapped devices, for a question that needs them.

statfs(2) reads counters in memory. But XFS of Linux 5.14 to 5.19 then waits for deletions that are
under way (until commit 5e672cd69f0a, "xfs: introduce xfs_inodegc_push()"), and a path may lead to
another file system meanwhile. So a separate process asks, which holds no lock of another process
and can be left behind; only staging paths of kubelet are asked, only while the requests of the
device end, and only after the file system at the path has shown the number of the device.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec.structs import replace

from rbdagent.collect.failure import not_observed
from rbdagent.collect.files import UnreadError, failure, file_system_at, read_blocks, text_or_none
from rbdagent.collect.node.limits import MOUNTINFO, share_of_process
from rbdagent.collect.node.rbd_sysfs import SECTOR_BYTES, read_io
from rbdagent.collect.worker import Worker, WorkerExitedError
from rbdagent.errors import ParseError
from rbdagent.model import (
    BlockHolderKind,
    FileSystemSize,
    KubeletView,
    Mount,
    MountKind,
    NotObserved,
    first_unobserved,
    observed_of,
)
from rbdagent.parse.mountinfo import limits_projects, parse_mount_line

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from rbdagent.collect.node.roots import NodeRoots
    from rbdagent.model import DeviceNumber, Mapping, NodeView

WITHIN_S: Final = 2.0
"""Time limit for all sizes; each takes less than a millisecond."""
_MOST: Final = 64
"""The number of mappings that are asked. A volume has one, seldom a few."""
_STAGED: Final = "/plugins/kubernetes.io/"
_KNOWN: Final = frozenset({"ext2", "ext3", "ext4", "xfs"})
"""The file systems whose answer has been measured."""


class Question(NamedTuple):
    """Which file systems to ask."""

    kubelet_roots: tuple[str, ...]
    mappings: tuple[Mapping, ...]


Size = FileSystemSize | NotObserved | None
SizeWorker = Worker[Question, list[Size]]


def start_size_worker(roots: NodeRoots) -> SizeWorker:
    """Start the process that asks; call this before the current process has threads."""

    def begin() -> Callable[[Question], list[Size]]:
        # A process that cannot be ended must not make a reader of the program's messages wait.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        return lambda question: [
            size_on(mapping, question.kubelet_roots, roots) for mapping in question.mappings
        ]

    return Worker(begin)


def with_sizes(
    view: NodeView, devices: frozenset[str], worker: SizeWorker, deadline: float
) -> NodeView:
    """Return the view with the sizes of the file systems on some devices; never raises.

    Args:
        view: the observed state of the node, from a moment ago.
        devices: the kernel names of the mappings.
        worker: the process that asks; it is of no use afterwards.
        deadline: of the monotonic clock.
    """
    asked = [one for one in observed_of(view.mappings) if one.kernel_name in devices][:_MOST]
    if not asked:
        return view
    roots = view.kubelet.roots if isinstance(view.kubelet, KubeletView) else ()
    sizes = _asked(Question(roots, tuple(asked)), worker, deadline)
    known = {mapping.device: size for mapping, size in zip(asked, sizes, strict=True)}
    return replace(
        view,
        mappings=tuple(
            replace(mapping, file_system=known[mapping.device])
            if mapping.device in known
            else mapping
            for mapping in observed_of(view.mappings)
        ),
    )


def _asked(question: Question, worker: SizeWorker, deadline: float) -> list[Size]:
    until = min(deadline, time.monotonic() + WITHIN_S)
    try:
        return worker.answer(question, until)
    except TimeoutError:
        unseen = NotObserved(
            reason="statfs of its file system did not answer in time",
            hint="the kernel log shows what the file system waits for",
        )
    except WorkerExitedError:
        unseen = NotObserved(reason="the process that asks for its size ended without an answer")
    except Exception as error:  # noqa: BLE001 - a failure must not affect the other facts
        unseen = not_observed(error, "its size")
    return [unseen] * len(question.mappings)


def size_on(mapping: Mapping, kubelet_roots: tuple[str, ...], roots: NodeRoots) -> Size:
    """Return the size of the file system that is staged on a device.

    Args:
        mapping: as it was observed a moment ago.
        kubelet_roots: kubelet's directories on the host.
        roots: the paths of the host's file systems.
    """
    if isinstance(mapping.mounts, NotObserved):
        return mapping.mounts
    on_host = [mount for mount in mapping.mounts if _is_file_system_of(mapping, mount)]
    if not on_host:
        return None
    staged = next((mount for mount in on_host if _is_askable(mount, kubelet_roots)), None)
    if staged is None:
        return NotObserved(
            reason=f"{mapping.device}: the size is requested only of ext4 and XFS at a"
            " staging path of kubelet"
        )
    return _waits(mapping, roots.sysfs) or _size_at(staged, mapping, roots)


def _is_file_system_of(mapping: Mapping, mount: Mount) -> bool:
    """Return whether a mount on the host has a file system on the whole device."""
    return (
        mount.kind is MountKind.FILE_SYSTEM
        and mount.namespace.is_host
        and _name_of(mount.device, mapping) is not None
    )


def _name_of(number: DeviceNumber, mapping: Mapping) -> str | None:
    """Return the kernel name of the mapping, or of a LUKS device on all of it."""
    if number == mapping.number:
        return mapping.kernel_name
    luks = (
        holder.name
        for holder in observed_of(mapping.holders)
        if holder.kind is BlockHolderKind.LUKS
        and holder.device == number
        and holder.of == mapping.kernel_name
    )
    return next(luks, None)


def _is_askable(mount: Mount, kubelet_roots: tuple[str, ...]) -> bool:
    is_staged = mount.path.startswith(tuple(f"{root}{_STAGED}" for root in kubelet_roots))
    return is_staged and mount.root == "/" and not mount.covered and mount.fs_type in _KNOWN


def _waits(mapping: Mapping, sysfs: Path) -> NotObserved | None:
    """Return why a device may hang: it has requests, and has completed none since it was read."""
    before, (now, _) = mapping.io_counters, read_io(sysfs, mapping.kernel_name)
    if isinstance(before, NotObserved) or isinstance(now, NotObserved):
        return first_unobserved((before, now))
    if not now.in_flight or replace(now, in_flight=before.in_flight) != before:
        return None
    return NotObserved(
        reason=f"{mapping.device} has {now.in_flight} requests in flight and completes none: its "
        "size of its file system is not requested"
    )


def _size_at(mount: Mount, mapping: Mapping, roots: NodeRoots) -> FileSystemSize | NotObserved:
    device = _name_of(mount.device, mapping) or mapping.kernel_name
    sectors = text_or_none(roots.sysfs / "block" / device / "size")
    if not (sectors and sectors.isdigit()):
        return NotObserved(reason=f"{roots.sysfs}/block/{device}/size cannot be read")
    if limited := _quota_of_project(mount, roots.procfs):
        return limited
    found = _statfs(f"{roots.host_root}{mount.path}".replace("//", "/"), mount.device)
    if isinstance(found, NotObserved):
        return found
    return FileSystemSize(
        path=mount.path,
        fs_type=mount.fs_type,
        device=device,
        device_bytes=int(sectors) * SECTOR_BYTES,
        total_bytes=found.f_blocks * found.f_frsize,
        inodes=found.f_files,
    )


def _quota_of_project(mount: Mount, procfs: Path) -> NotObserved | None:
    """Return why statfs may show less than the file system: the quota of a project.

    ext4_statfs_project() in fs/ext4/super.c, xfs_qm_statvfs() in fs/xfs/xfs_qm_bhv.c.
    """
    path = f"{procfs}/1/mountinfo"
    try:
        for block in read_blocks(path, MOUNTINFO, share_of_process(MOUNTINFO)):
            for line in block.split(b"\n"):
                if limits_projects(line):
                    found = parse_mount_line(line, where=path)
                    if (found.device, found.path) == (mount.device, mount.path):
                        return NotObserved(
                            reason=f"{mount.path} has quotas of projects: df shows a quota there, "
                            "not the file system"
                        )
    except UnreadError as error:
        return error.what or NotObserved(reason=f"{path} cannot be read")
    except ParseError as error:
        return NotObserved(reason=str(error))
    return None


def _statfs(path: str, device: DeviceNumber) -> os.statvfs_result | NotObserved:
    """Ask the file system at a path, if it is on the device.

    The descriptor opens nothing on the file system (O_PATH). While it is open, for some
    microseconds, an unmount fails with EBUSY.
    """
    try:
        descriptor = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        return failure(path, error) or NotObserved(
            reason=f"{path}: not found",
            hint="in a pod, mount kubelet's directory with HostToContainer",
        )
    try:
        if file_system_at(f"/proc/self/fd/{descriptor}") != (device.major, device.minor):
            return NotObserved(reason=f"{path}: not the file system of the device")
        return os.fstatvfs(descriptor)
    except OSError as error:
        return failure(path, error) or NotObserved(reason=f"{path}: {error.strerror}")
    finally:
        os.close(descriptor)
