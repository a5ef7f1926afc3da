"""Text of ``/proc/stat`` and of files of ``/proc/PID``: stat, cgroup, status and maps (proc(5))."""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from rbdagent.model import DeviceNumber

_KERNEL_THREAD: Final = 0x00200000
"""PF_KTHREAD in the flags of ``/proc/PID/stat`` (include/linux/sched.h)."""
_ENDED: Final = frozenset("ZX")
"""States of ``/proc/PID/stat``: ended, but not yet reaped by the parent (proc(5))."""
_START_CODE: Final = 23
_START_STACK: Final = 25
"""Fields 26 and 28 of ``/proc/PID/stat`` (proc(5)), counted from the state, which is field 3."""

# kubepods-besteffort-pod<uid with _>.slice (systemd) or kubepods/besteffort/pod<uid> (cgroupfs):
# pkg/kubelet/cm/cgroup_manager_linux.go@v1.36.3.
_POD: Final = re.compile(
    r"pod(?P<uid>[0-9a-f]{8}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{12}|[0-9a-f]{32})"
)
_CONTAINER: Final = re.compile(r"(?<![0-9a-f])(?P<id>[0-9a-f]{64})(?![0-9a-f])")

_UIDS: Final = re.compile(rb"^Uid:((?:\t\d+){4})$", re.MULTILINE)
"""At the start of a line: a process may have the name ``Uid:\\t0\\t0\\t0``. The kernel escapes a
newline in a name, but no tab (proc_task_name() in fs/proc/array.c)."""
_PERMITTED: Final = re.compile(rb"^CapPrm:\t([0-9a-f]+)$", re.MULTILINE)
_SYS_ADMIN: Final = 1 << 21
"""CAP_SYS_ADMIN (include/uapi/linux/capability.h)."""


def parse_boot_time(stat: bytes) -> int | None:
    """Return the Unix time of the boot from ``/proc/stat``; None if it does not show it.

    Raises:
        IndexError: the time is missing.
        ValueError: it is no number.
    """
    for line in stat.splitlines():
        if line.startswith(b"btime "):
            return int(line.split()[1])
    return None


class Stat(Struct, frozen=True, kw_only=True):
    """What ``/proc/PID/stat`` shows."""

    name: str
    """``comm``: the kernel cuts it to 15 characters."""
    state: str
    parent_pid: int
    is_kernel_thread: bool
    threads: int
    ticks: int
    """The start time, in clock ticks since boot."""
    layout: tuple[str, ...]
    """Addresses in the address space."""

    @property
    def is_ended(self) -> bool:
        """Whether it has ended, and was not reaped yet."""
        return self.state in _ENDED


def parse_stat(raw: bytes) -> Stat:
    """Parse ``/proc/PID/stat``.

    Raises:
        IndexError: a field is missing.
        ValueError: a field is no number.
    """
    # The name is in parentheses and may contain spaces and parentheses.
    head, _, tail = raw.decode(errors="replace").rpartition(")")
    fields = tail.split()
    return Stat(
        is_kernel_thread=bool(int(fields[6]) & _KERNEL_THREAD),
        name=head.partition("(")[2],
        state=fields[0],
        parent_pid=int(fields[1]),
        threads=int(fields[17]),
        ticks=int(fields[19]),
        layout=tuple(fields[_START_CODE : _START_STACK + 1]),
    )


class Container(NamedTuple):
    """The container of a process, and its pod."""

    pod_uid: str | None = None
    container_id: str | None = None


@functools.lru_cache(maxsize=256)
def parse_cgroup(cgroup: bytes) -> Container:
    """Return the pod and the container that a process's cgroup names.

    The processes of a container have one text.
    """
    if b"pod" not in cgroup:
        return Container()
    text = cgroup.decode(errors="replace")
    pod = _POD.search(text)
    if pod is None:
        return Container()
    container = _CONTAINER.search(text)
    return Container(pod["uid"].replace("_", "-"), container["id"] if container else None)


def parse_uids(status: bytes) -> tuple[bytes, ...] | None:
    """Return the real, effective, saved and file system uid; None if the text has none."""
    found = _UIDS.search(status)
    return None if found is None else tuple(found[1].split())


def lacks_sys_admin(status: bytes) -> bool:
    """Return whether a process lacks CAP_SYS_ADMIN; False if the text does not show it."""
    permitted = _PERMITTED.search(status)
    return permitted is not None and not int(permitted[1], 16) & _SYS_ADMIN


class MapsColumns(Struct, frozen=True, kw_only=True):
    """Holds the devices to search, in the format of maps."""

    devices: dict[bytes, DeviceNumber]
    """By ``MAJOR:MINOR``: in hex, at least two digits (fs/proc/task_mmu.c)."""
    majors: tuple[bytes, ...]
    """The first parts of these columns: a file without any of them has no such line."""

    @classmethod
    def of(cls, numbers: frozenset[DeviceNumber]) -> MapsColumns:
        """Build the columns once for all processes."""
        return cls(
            devices={
                f"{number.major:02x}:{number.minor:02x}".encode(): number for number in numbers
            },
            majors=tuple({f" {number.major:02x}:".encode() for number in numbers}),
        )


def mapped_files(
    blocks: Iterable[bytes], columns: MapsColumns, known: Iterable[DeviceNumber]
) -> Iterator[tuple[DeviceNumber, str]]:
    """Yield device and path of one memory mapping per device that has the mapped file.

    The device is the fourth field. The path is the rest of the line and may contain any character
    except a newline (show_map_vma() in fs/proc/task_mmu.c), also text in the format of a device.

    Args:
        blocks: parts of the maps of a process, in whole lines.
        columns: the devices to search.
        known: the devices that were found already.
    """
    left = {column: device for column, device in columns.devices.items() if device not in known}
    for block in blocks:
        if not any(major in block for major in columns.majors):
            continue
        for line in block.split(b"\n"):
            fields = line.split(None, 5)
            device = left.pop(fields[3], None) if len(fields) > 3 else None
            if device is not None:
                yield device, fields[5].decode(errors="replace") if len(fields) > 5 else ""
