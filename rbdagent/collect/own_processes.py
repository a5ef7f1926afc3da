"""What rbdagent's own processes use; psutil reads /proc, which is the same for them in any pod.

The module never sets ``psutil.PROCFS_PATH``: with the host's /proc, ``Process()`` of an agent in a
pod is a process of the host (docs/adr/0006-psutil.md). The host's processes are read by
``collect/node``, with its limits.
"""

from __future__ import annotations

import os
from typing import NamedTuple

import psutil


class ProcessUse(NamedTuple):
    """What one process uses."""

    pss_bytes: int
    """Its memory; a page that several processes share counts in parts."""
    uss_bytes: int
    """The memory that its end would free."""
    cpu_s: float
    """Processor time in seconds; also that of its children that have ended, if they are counted."""
    descriptors: int
    """Open files, sockets and pipes."""


def use_of_child(pid: int) -> ProcessUse | None:
    """Return what a child of this process uses; None if it has ended, or is no child.

    The kernel may give the number of an ended child to another process.
    """
    try:
        process = psutil.Process(pid)
        if process.ppid() != os.getpid():
            return None
        volume = _joined(process)
        return volume if process.is_running() else None
    except (psutil.Error, OSError):
        return None


def use_of_self(*, with_ended_children: bool = False) -> ProcessUse | None:
    """Return what this process uses; None if that cannot be read.

    Args:
        with_ended_children: whether to add the processor time of children that have ended.
    """
    try:
        process = psutil.Process()
        volume = _joined(process)
        times = process.cpu_times()
    except (psutil.Error, OSError):
        return None
    if not with_ended_children:
        return volume
    return volume._replace(cpu_s=volume.cpu_s + times.children_user + times.children_system)


def _joined(process: psutil.Process) -> ProcessUse:
    memory, times = process.memory_full_info(), process.cpu_times()
    return ProcessUse(
        pss_bytes=memory.pss,
        uss_bytes=memory.uss,
        cpu_s=times.user + times.system,
        descriptors=process.num_fds(),
    )
