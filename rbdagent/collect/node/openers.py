"""What the processes have open on devices: descriptors, directories, programs and mapped files.

This module accesses no path inside a volume: a stat below a dead device hangs for minutes. Links of
``/proc/PID`` lead to inodes that are already in memory, and cause no request to a file server.
"""

from __future__ import annotations

import errno
import math
import os
import stat
from typing import TYPE_CHECKING, Final

from rbdagent.collect.files import (
    Blocks,
    TooLargeError,
    UnreadError,
    file_system_at,
    identity_of,
    is_same,
)
from rbdagent.collect.node.kcmp import Kcmp, Kind, Twins
from rbdagent.collect.node.limits import DESCRIPTOR_COUNTS, MAPS_SIZES, ROOM
from rbdagent.model import DeviceNumber, OpenFile, OpenKind
from rbdagent.parse.proc import MapsColumns, mapped_files

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from rbdagent.collect.node.limits import Limits, Share
    from rbdagent.collect.node.processes import ProcessEntry

_MOST_BEGUN: Final = 64
"""Limit of files that are open between the parts in which they are read. Others are read again."""
_OFTEN: Final = 256
_MOST_ALIKE: Final = 100
"""Limit of open files per process and device: more files would add no evidence."""
_DIRECTORIES: Final = (("cwd", OpenKind.CWD), ("root", OpenKind.ROOT))
_LINKS: Final = (*_DIRECTORIES, ("exe", OpenKind.EXECUTABLE))


class Openers:
    """The open files of the processes of one pass, on the given devices."""

    def __init__(
        self,
        entries: Mapping[int, ProcessEntry],
        numbers: frozenset[DeviceNumber],
        limits: Limits,
        procfs: Path,
    ) -> None:
        """Begin without open files.

        Args:
            entries: the processes by pid; the pass adds them, and their openers are stored there.
            numbers: the devices to search.
            limits: those of the pass.
            procfs: the host's /proc.
        """
        self.larger: list[int] = []
        """The processes with a file of more than the usual size, which is read later."""
        self._entries = entries
        self._by_number = _by_number(numbers)
        self._columns = MapsColumns.of(numbers)
        self._limits = limits
        self._large_layouts: set[tuple[object, ...]] = set()
        self._begun_maps: dict[int, Blocks] = {}
        """The maps of which a part was read, by process."""
        self._kcmp = Kcmp.of(procfs)
        self._twins = {kind: Twins(self._kcmp, kind) for kind in (Kind.VM, Kind.FILES)}

    # Descriptors, directories, program ------------------------------------------------------------

    def join_files(self, pid: int, most: float) -> None:
        """Record what a process has open, if it has at most the given number of descriptors."""
        entry = self._entries[pid]
        pod = entry.process.pod_uid
        share = self._limits.of_descriptors(pod, most)
        if most == DESCRIPTOR_COUNTS[0]:
            for name, how in _LINKS:
                self._join_link(entry, f"{entry.directory}/{name}", how, share)
        elif most == DESCRIPTOR_COUNTS[1] and pod is not None and self._has_twin(entry, Kind.FILES):
            return
        self._join_descriptors(entry, share)

    def _join_descriptors(self, entry: ProcessEntry, share: Share) -> None:
        """Record the descriptors from the first unread one; note a process that has too many."""
        directory = f"{entry.directory}/fd"
        entry.at = directory
        first = entry.next_descriptor
        try:
            # The kernel lists descriptors in their order (proc_readfd_common() in fs/proc/fd.c).
            with os.scandir(directory) as descriptors:
                for number, descriptor in enumerate(descriptors):
                    if number >= share.most:
                        self.larger.append(entry.process.pid)
                        return
                    if number % _OFTEN == 0 and share.is_over():
                        entry.beyond = share.reason(directory)
                        return
                    # By its number: descriptors before it may have been closed meanwhile.
                    if (own := int(descriptor.name)) >= first:
                        self._join_descriptor(entry, descriptor.path, share)
                        entry.next_descriptor = own + 1
        except PermissionError:
            entry.has_denied_files = True
        except OSError:
            pass

    def _join_any(self, entry: ProcessEntry, link: str, how: OpenKind, share: Share) -> None:
        if how is OpenKind.DESCRIPTOR:
            self._join_descriptor(entry, link, share)
        else:
            self._join_link(entry, link, how, share)

    def _join_descriptor(self, entry: ProcessEntry, link: str, share: Share) -> None:
        """Check a descriptor if it leads to a file.

        Sockets, pipes and anonymous inodes have special names, ``socket:[4711]``. The name of every
        file begins with a slash (d_path() in fs/d_path.c).
        """
        try:
            is_file = os.readlink(link).startswith("/")
        except OSError:
            # The path may be longer than a page. The link can be followed nevertheless.
            is_file = True
        if is_file:
            self._join_link(entry, link, OpenKind.DESCRIPTOR, share)

    def _join_link(self, entry: ProcessEntry, link: str, how: OpenKind, share: Share) -> None:
        """Record an opener if a link of a process leads to a device or to a file system on it."""
        entry.at = link
        try:
            found = identity_of(link)
        except OSError as error:
            if error.errno in {errno.EACCES, errno.EPERM}:
                shown = file_system_at(link)
                entry.has_denied_files |= shown is None or shown in self._by_number
            return
        by_number = self._by_number
        on_device = stat.S_ISBLK(found.mode) and found.special in by_number
        if not on_device and found.device not in by_number:
            return
        device = by_number[found.special if on_device else found.device]
        if entry.found.get(device, 0) >= _MOST_ALIKE:
            return
        try:
            path = os.readlink(link)
        except OSError:
            path = ""
        _add(
            entry,
            OpenFile(
                process=entry.process, kind=how, path=path, on_device=on_device, device=device
            ),
            share,
        )

    # Mapped files ---------------------------------------------------------------------------------

    def join_mappings(self, pid: int, most: float) -> None:
        """Record the mapped files of an address space of at most the given size, once."""
        entry = self._entries[pid]
        pod = entry.process.pod_uid
        key = (pod, *entry.layout)
        if pod is None:
            most = MAPS_SIZES[-1]
        elif most == MAPS_SIZES[0]:
            if self._has_twin(entry, Kind.VM):
                return
            if self._kcmp is None and entry.layout and key in self._large_layouts:
                self.larger.append(pid)
                return
        try:
            self._read_mappings(entry, int(most))
        except TooLargeError as error:
            if most < MAPS_SIZES[-1]:
                self.larger.append(pid)
                self._large_layouts.add(key)
            else:
                entry.beyond = str(error)

    def _read_mappings(self, entry: ProcessEntry, most: int) -> None:
        """Record the mapped files.

        Raises:
            TooLargeError: the file is larger than ``most``.
        """
        entry.at = f"{entry.directory}/maps"
        blocks = self._begun_maps.pop(entry.process.pid, None) or Blocks(entry.at)
        share = self._limits.of_maps(entry.process.pod_uid, most)
        if share.is_over():
            entry.beyond = share.reason(entry.at)
            return
        known = {opener.device for opener in entry.openers if opener.kind is OpenKind.MAPPING}
        try:
            for opener in _mappings(entry, blocks.up_to(share.most, share), self._columns, known):
                _add(entry, opener, share)
        except TooLargeError:
            if len(self._begun_maps) < _MOST_BEGUN:
                self._begun_maps[entry.process.pid] = blocks
            raise
        except UnreadError as error:
            if error.number is not None:
                entry.has_denied_files |= error.what is not None
            elif error.what is not None:
                entry.beyond = error.what.reason

    def close_maps(self) -> None:
        """Close the maps of which a part was read."""
        self._begun_maps.clear()

    # What processes share -------------------------------------------------------------------------

    def _has_twin(self, entry: ProcessEntry, kind: Kind) -> bool:
        """Return whether another process of the pod is read instead, because they share it."""
        pod = entry.process.pod_uid
        return pod is not None and self._twins[kind].joins(entry.process.pid, pod)

    def joined(self, kind: Kind) -> tuple[int, ...]:
        """Return the processes for which another one was read."""
        return self._twins[kind].joined

    def twin_of(self, pid: int, kind: Kind) -> ProcessEntry | None:
        """Return the process that was read instead, if they still share it."""
        first = self._twins[kind].twin_of(pid)
        return None if first is None else self._entries[first]

    def join_shared_files(self, pid: int) -> None:
        """Record for a process the descriptors of its twin, or its own if they share none now."""
        entry, twin = self._entries[pid], self.twin_of(pid, Kind.FILES)
        share = self._limits.of_descriptors(entry.process.pod_uid, math.inf)
        if twin is None:
            self._join_descriptors(entry, share)
            return
        entry.openers = [
            opener for opener in entry.openers if opener.kind is not OpenKind.DESCRIPTOR
        ]
        _copy(entry, twin, OpenKind.DESCRIPTOR, share)

    def join_shared_mappings(self, pid: int) -> None:
        """Record for a process the mapped files of its twin, or its own if they share none now."""
        entry, twin = self._entries[pid], self.twin_of(pid, Kind.VM)
        if twin is None:
            try:
                self._read_mappings(entry, MAPS_SIZES[-1])
            except TooLargeError as error:
                entry.beyond = str(error)
            return
        _copy(entry, twin, OpenKind.MAPPING, self._limits.of_maps(entry.process.pod_uid, 0))

    # Threads --------------------------------------------------------------------------------------

    def comparison(self, entry: ProcessEntry) -> Comparison:
        """Return what compares the threads of a process."""
        return Comparison(entry, self._kcmp)

    def join_thread(
        self, entry: ProcessEntry, directory: str, compare: Comparison, share: Share
    ) -> None:
        """Record what a thread has open, and its process may not have."""
        try:
            for link, how in compare.own_links(directory) if self._by_number else ():
                self._join_any(entry, link, how, share)
                if share.is_over():
                    break
        except PermissionError:
            entry.has_denied_files = True


def _by_number(numbers: Iterable[DeviceNumber]) -> dict[tuple[int, int], DeviceNumber]:
    return {(number.major, number.minor): number for number in numbers}


def _add(entry: ProcessEntry, opener: OpenFile, share: Share) -> None:
    if share.has_room(1):
        entry.found[opener.device] = entry.found.get(opener.device, 0) + 1
        entry.openers.append(opener)
    else:
        entry.beyond = f"more open files and mounts of volumes than {ROOM}"


def _mappings(
    entry: ProcessEntry,
    blocks: Iterable[bytes],
    columns: MapsColumns,
    known: Iterable[DeviceNumber],
) -> Iterator[OpenFile]:
    """Yield one opener per device that has the file of a memory mapping."""
    for device, path in mapped_files(blocks, columns, known):
        yield OpenFile(
            process=entry.process,
            kind=OpenKind.MAPPING,
            path=path,
            on_device=False,
            device=device,
        )


def _copy(entry: ProcessEntry, twin: ProcessEntry, kind: OpenKind, share: Share) -> None:
    """Record for a process what was read of another one, and why not all was read."""
    for opener in twin.openers:
        if opener.kind is kind:
            _add(entry, opener, share)
    entry.hung = entry.hung or twin.hung
    entry.is_skipped |= twin.is_skipped
    entry.beyond = entry.beyond or twin.beyond
    entry.unread = entry.unread or twin.unread
    entry.has_denied_files |= twin.has_denied_files


class Comparison:
    """Compares the threads of a process with the one whose directory shows its files."""

    def __init__(self, entry: ProcessEntry, kcmp: Kcmp | None) -> None:
        self._directory = entry.directory
        self._kcmp = kcmp
        self._own = int(os.path.basename(entry.directory))
        self._names: set[str] | None = None
        self._count = -1
        """The number of descriptors of the process; -1 if the kernel does not show it."""

    def _shares(self, directory: str, kind: Kind) -> bool | None:
        """Return whether a thread shares it; None if that is unknown."""
        thread = int(os.path.basename(directory))
        if thread == self._own:
            return True
        return self._kcmp.is_shared(self._own, thread, kind) if self._kcmp else None

    def own_links(self, directory: str) -> Iterator[tuple[str, OpenKind]]:
        """Yield cwd, root and descriptors of a thread that the process may not have.

        Raises:
            PermissionError: access to its descriptors is denied.
        """
        shares = self._shares(directory, Kind.FS)
        for name, how in _DIRECTORIES if not shares else ():
            link = f"{directory}/{name}"
            if shares is False or not is_same(link, f"{self._directory}/{name}"):
                yield link, how
        for name in self._own_descriptors(directory):
            yield f"{directory}/fd/{name}", OpenKind.DESCRIPTOR

    def _own_descriptors(self, directory: str) -> Iterable[str]:
        """Return the descriptors of a thread with a separate table.

        Without kcmp(2), these are the ones whose number the process does not have. A thread with
        as many descriptors as the process counts as sharing them: to list the 700 of each of 1,000
        threads takes 0.3 s.
        """
        shares = self._shares(directory, Kind.FILES)
        if shares:
            return ()
        if shares is False:
            return _descriptors(directory)
        if self._names is None:
            self._names = set(_descriptors(self._directory))
            if self._names and _descriptor_count(self._directory) == len(self._names):
                self._count = len(self._names)
        if _descriptor_count(directory) == self._count:
            return ()
        names = _descriptors(directory)
        if not self._names.issuperset(names):
            # The process may have opened them meanwhile.
            self._names.update(_descriptors(self._directory))
        return [name for name in names if name not in self._names]


def _descriptors(directory: str) -> list[str]:
    """Return the descriptors of a process or thread; none if it has ended.

    Raises:
        PermissionError: access is denied.
    """
    try:
        return os.listdir(f"{directory}/fd")
    except PermissionError:
        raise
    except OSError:
        return []


def _descriptor_count(directory: str) -> int | None:
    """Return the size of a table's directory; None if it cannot be read.

    It is the number of descriptors since Linux 6.2 (commit f1f1f2569901), and 0 before.
    """
    try:
        return os.stat(f"{directory}/fd").st_size
    except OSError:
        return None
