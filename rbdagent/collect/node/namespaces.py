"""The mount namespaces of the processes: the mounts of each one are read once, for all of them."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Final

from rbdagent.collect.files import TooLargeError, UnreadError, identity_of, inode_of
from rbdagent.collect.node.limits import MOUNTINFO_SIZES
from rbdagent.collect.node.mounts import Namespace, Shown, read_mounts
from rbdagent.model import NotObserved

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from rbdagent.collect.node.limits import Limits
    from rbdagent.collect.node.mounts import Wanted
    from rbdagent.collect.node.processes import ProcessEntry

_UNREAD: Final = Shown(NotObserved(reason="the process in this namespace has ended"), b"")


class Namespaces:
    """The mount namespaces of the processes of one pass."""

    def __init__(self, entries: Mapping[int, ProcessEntry], wanted: Wanted, limits: Limits) -> None:
        """Begin without mount namespaces.

        Args:
            entries: the processes by pid; the pass adds them.
            wanted: the devices to search.
            limits: those of the pass.
        """
        self._entries = entries
        self._wanted = wanted
        self._limits = limits
        self._shown: dict[int | bytes, Shown] = {}
        self._larger: dict[int, list[tuple[str, int]]] = {}
        """Directory and inode by process: those of more than the usual size, read later."""

    def __len__(self) -> int:
        """Return the number of mount namespaces that were found so far."""
        return len(self._shown)

    def join(self, entry: ProcessEntry, directory: str) -> None:
        """Read the mountinfo of a new namespace; the digest identifies a hidden namespace."""
        entry.at = f"{directory}/mountinfo"
        try:
            inode = identity_of(f"{directory}/ns/mnt").inode
        except PermissionError:
            inode = 0
        except OSError:
            return
        if inode and inode in self._shown:
            entry.namespaces.append(inode)
            return
        most = None
        if inode:
            # Meanwhile, other processes of this namespace must not read the file again.
            unread = NotObserved(reason=f"{entry.at} does not answer")
            self._shown[inode] = Shown(unread, b"")
            entry.namespaces.append(inode)
        else:
            most = MOUNTINFO_SIZES[-1]
        try:
            shown = self._mounts_of(entry, directory, most)
        except TooLargeError as error:
            if inode and error.what is not None:
                self._shown[inode] = Shown(error.what, b"")
            self._larger.setdefault(entry.process.pid, []).append((directory, inode))
            return
        self._store_mounts(entry, inode, shown)

    def _store_mounts(self, entry: ProcessEntry, inode: int, shown: Shown | None) -> None:
        if shown is not None and (inode or shown.digest or not entry.is_kernel_thread):
            self._shown[inode or shown.digest] = shown
            if not inode:
                entry.namespaces.append(shown.digest)
        elif inode:
            del self._shown[inode]
            entry.namespaces.remove(inode)

    def join_thread(self, entry: ProcessEntry, directory: str) -> None:
        """Read the mountinfo of a thread in a new namespace.

        If access to the namespace is denied, access to the open files is denied too. That is
        already a gap.
        """
        inode = inode_of(f"{directory}/ns/mnt")
        if inode is not None and inode not in self._shown:
            self.join(entry, directory)

    def by_size(self) -> Iterator[tuple[Iterable[int], Callable[[int], None]]]:
        """Yield the processes with mountinfo of more than the usual size, and what reads it.

        The small ones come first. Which ones are larger is known when they are read.
        """
        for most in MOUNTINFO_SIZES:
            larger, self._larger = self._larger, {}
            yield larger, functools.partial(self._read, larger, most)

    def _read(self, namespaces: dict[int, list[tuple[str, int]]], most: int, pid: int) -> None:
        entry = self._entries[pid]
        for directory, inode in namespaces[pid]:
            try:
                shown = self._mounts_of(entry, directory, most)
            except TooLargeError as error:
                if most < MOUNTINFO_SIZES[-1]:
                    self._larger.setdefault(pid, []).append((directory, inode))
                    continue
                shown = Shown(error.what or _UNREAD.mounts, b"")
            self._store_mounts(entry, inode, shown)

    def _mounts_of(
        self, entry: ProcessEntry, directory: str, most: int | None = None
    ) -> Shown | None:
        """Read a process's mounts; None if it has ended, or if access is denied.

        Raises:
            TooLargeError: there are more than ``most`` bytes, or than the usual size.
        """
        entry.at = f"{directory}/mountinfo"
        share = self._limits.of_mounts(entry.process.pod_uid, most)
        try:
            return read_mounts(entry.at, self._wanted, share)
        except TooLargeError:
            share.return_room()
            raise
        except UnreadError:
            entry.has_denied_mounts = True
            return None

    def without_mounts(self) -> list[int]:
        """Return the processes that relied on the read of another one, which ended during it."""
        return [
            pid
            for pid, entry in self._entries.items()
            if not self._shown.keys() >= set(entry.namespaces)
        ]

    def join_again(self, pid: int) -> None:
        """Read the mounts of a process again."""
        entry = self._entries[pid]
        entry.namespaces.clear()
        self.join(entry, entry.directory)

    def init(self) -> list[int]:
        """Return pid 1, in the host's mount namespace; empty if it was not observed."""
        init = self._entries.get(1)
        return [1] if init is not None and init.namespaces else []

    def read_host_again(self, pid: int) -> None:
        """Add the host's mounts of now to those that were read before the other namespaces.

        A mount of the CSI plugin is in its own namespace and in the host's. If it appeared or
        disappeared between the reads of the two, it would seem to be in the plugin's only.
        """
        entry = self._entries[pid]
        key = entry.namespaces[0]
        before = self._shown.get(key, _UNREAD)
        if isinstance(before.mounts, NotObserved):
            return
        now = self._mounts_of(entry, entry.directory)
        if now is None:
            return
        mounts = now.mounts
        if not isinstance(mounts, NotObserved):
            known = set(before.mounts)
            mounts = (*before.mounts, *(mount for mount in mounts if mount not in known))
        self._shown[key] = before._replace(mounts=mounts)

    def found(self, entries: Iterable[ProcessEntry]) -> list[Namespace]:
        """Return the mount namespaces of processes, with the process that identifies each best."""
        namespaces: dict[int | bytes, Namespace] = {}
        for entry in entries:
            for key in entry.namespaces:
                if key not in namespaces:
                    shown = self._shown.get(key, _UNREAD)
                    namespaces[key] = Namespace(key=key, process=entry.ref, mounts=shown.mounts)
                found = namespaces[key]
                if found.process.pod_uid is None and entry.process.pod_uid is not None:
                    # A process of a container identifies the namespace better than a process
                    # without a pod that entered the namespace.
                    found.process = entry.ref
        self._mark_host(namespaces)
        return list(namespaces.values())

    def _mark_host(self, namespaces: dict[int | bytes, Namespace]) -> None:
        """Mark the namespace of pid 1: by its inode, or by the digest if the inode is hidden."""
        for pid in self.init():
            own = self._entries[pid].namespaces[0]
            for key, namespace in namespaces.items():
                shown = self._shown.get(key, _UNREAD)
                namespace.is_host = own in (key, shown.digest)
