"""Mount namespaces: their mounts of devices, and of volume directories without a device."""

from __future__ import annotations

import errno
import re
from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from rbdagent.collect.files import TooLargeError, UnreadError, read_blocks
from rbdagent.collect.node.limits import MOUNTINFO, ROOM
from rbdagent.errors import ParseError
from rbdagent.model import (
    DeviceNumber,
    Mount,
    MountKind,
    MountNamespace,
    NotObserved,
    UnbackedMount,
    observed_of,
)
from rbdagent.parse.digests import blake2b
from rbdagent.parse.excerpt import printable, shortened
from rbdagent.parse.kubelet import pod_uid_of_path
from rbdagent.parse.mountinfo import MountLine, parse_mount_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from rbdagent.collect.node.limits import Share
    from rbdagent.model import ProcessRef

_VOLUMES: Final = b"/volumes/kubernetes.io~"
_POD_VOLUME: Final = re.compile(
    r"/pods/(?P<uid>[0-9a-f-]{32,36})/volumes/kubernetes\.io~(?:csi|rbd)/(?P<volume>[^/]+)(?:/mount)?"
)


class Wanted(Struct, frozen=True, kw_only=True):
    """Holds the devices whose mounts are searched."""

    numbers: frozenset[DeviceNumber]
    node_paths: Mapping[str, DeviceNumber]
    """The number of the device by its path below ``/dev`` (``/rbd0``).

    A bind mount of the device node has devtmpfs and this path as its root in mountinfo, not the
    number.
    """
    devices: frozenset[bytes]
    """The numbers in mountinfo's format."""
    roots: frozenset[bytes]
    """The paths in mountinfo's format."""

    @classmethod
    def of(
        cls, numbers: Iterable[DeviceNumber], node_paths: Mapping[str, DeviceNumber] | None = None
    ) -> Wanted:
        """Build the search terms once for all mountinfo files."""
        known, paths = frozenset(numbers), node_paths or {}
        return cls(
            numbers=known,
            node_paths=paths,
            devices=frozenset(str(number).encode() for number in known),
            roots=frozenset(path.encode() for path in paths),
        )


class Namespace(Struct, kw_only=True):
    """A mount namespace of a process, and the content of its mountinfo."""

    key: int | bytes
    """Its inode, or a digest of its mountinfo if access is denied."""
    process: ProcessRef
    mounts: tuple[MountLine, ...] | NotObserved
    """The mounts that match the search."""
    is_host: bool = False

    @property
    def ref(self) -> MountNamespace:
        """The namespace as a type of the model."""
        inode = self.key if isinstance(self.key, int) else 0
        return MountNamespace(inode=inode, process=self.process, is_host=self.is_host)


class Shown(NamedTuple):
    """Holds the content of one mountinfo."""

    mounts: tuple[MountLine, ...] | NotObserved
    digest: bytes
    """Digest of the whole file; empty if the file was empty."""


def read_mounts(path: str, wanted: Wanted, share: Share | None = None) -> Shown | None:
    """Read the mounts of the devices, of their device nodes, and of a volume's directory.

    A line that cannot be parsed may be one of these, and so may the lines beyond a limit. Then the
    mounts of the namespace are not observed.

    Args:
        path: a mountinfo.
        wanted: the devices and paths to search.
        share: the limits.

    Returns:
        None if the process has ended, or is about to end.

    Raises:
        TooLargeError: the file is larger than the limit of the share.
        UnreadError: access is denied.
    """
    devices, roots = wanted.devices, wanted.roots
    found: list[MountLine] = []
    digest, is_empty = blake2b(digest_size=16), True
    unread: NotObserved | None = None
    kept = 0
    points: dict[bytes, bytes] = {}
    """The mount points of the found mounts, by mount id: a mount on top has this id as its parent,
    and the same mount point."""
    try:
        for block in read_blocks(path, share.most if share else MOUNTINFO, share):
            is_empty = False
            digest.update(block + b"\n")
            for line in block.split(b"\n"):
                fields = line.split(b" ", 5)
                if len(fields) < 6 or (
                    fields[2] in devices
                    or fields[3] in roots
                    or _VOLUMES in fields[3]
                    or points.get(fields[1]) == fields[4]
                ):
                    found.append(parse_mount_line(line, where=path))
                    points[fields[0]] = fields[4]
            if share is not None and len(found) > kept and not share.has_room(len(found) - kept):
                unread = NotObserved(reason=f"{path}: more mounts of volumes than {ROOM}")
                break
            kept = len(found)
    except ParseError as error:
        unread = NotObserved(reason=shortened(printable(str(error))))
    except TooLargeError:
        raise
    except UnreadError as error:
        if error.what is None or error.number == errno.EINVAL:
            # EINVAL: the process has left its namespace (mounts_open_common in
            # fs/proc_namespace.c).
            return None
        if error.number is not None:
            raise
        unread = error.what
    return Shown(unread or tuple(found), b"" if is_empty else digest.digest())


def mounts_of(namespaces: Iterable[Namespace], wanted: Wanted) -> Iterator[Mount]:
    """Yield the mounts of the devices and the bind mounts of their nodes, in all namespaces."""
    for namespace in namespaces:
        covered = _covered(observed_of(namespace.mounts))
        for line in observed_of(namespace.mounts):
            bound = wanted.node_paths.get(line.root) if line.fs_type == "devtmpfs" else None
            if line.device in wanted.numbers:
                mount = _mount(namespace, line, line.device, MountKind.FILE_SYSTEM)
            elif bound is not None:
                mount = _mount(namespace, line, bound, MountKind.DEVICE_BIND)
            else:
                continue
            yield replace(mount, covered=True) if line.mount_id in covered else mount


def _covered(lines: Iterable[MountLine]) -> frozenset[int]:
    """Return the ids of the mounts that another mount at the same path hides."""
    points = {line.mount_id: line.path for line in lines}
    return frozenset(line.parent_id for line in lines if points.get(line.parent_id) == line.path)


def _mount(namespace: Namespace, line: MountLine, device: DeviceNumber, kind: MountKind) -> Mount:
    return Mount(
        path=line.path,
        root=line.root,
        device=device,
        kind=kind,
        fs_type=line.fs_type,
        source=line.source,
        read_only=line.read_only,
        namespace=namespace.ref,
    )


def shows_use(mount: Mount, others: Iterable[Mount]) -> bool:
    """Return whether a mount shows that more than a staging mount of a device is left.

    This is true for a mount at a pod's path, and for a mount in another namespace than the host's.
    A copy of a mount of the host does not count: it is removed together with the host's mount.
    """
    if pod_uid_of_path(mount.path) is not None:
        return True
    return not mount.namespace.is_host and not any(
        other.namespace.is_host and mount.path.endswith(other.path) for other in others
    )


class OnDisk(NamedTuple):
    """A directory by its position in its file system; every mount of it has the same two values."""

    device: DeviceNumber
    root: str


def shows_a_volume(namespace: Namespace) -> bool:
    """Return whether a container has a mount whose root may be a volume's directory."""
    if namespace.is_host or namespace.process.pod_uid is None:
        return False
    return any(_VOLUMES.decode() in line.root for line in observed_of(namespace.mounts))


def unbacked_of(
    namespace: Namespace, numbers: frozenset[DeviceNumber], kubelet: Iterable[OnDisk]
) -> Iterator[UnbackedMount]:
    """Yield a container's mounts of a volume directory without a device.

    Writes to such a directory go to the disk of the node. The root of a mounted volume is the root
    of the image's file system. The root of a directory without a device is its path in the parent's
    file system, ``…/pods/<uid>/volumes/kubernetes.io~csi/<pv>/mount``. A tenant can create any path
    in another file system or in an emptyDir. So a path counts only below kubelet's directory, on
    the same file system, and for the pod to which the directory belongs.

    Args:
        namespace: a mount namespace of a process.
        numbers: the devices; a mount of one of them is not reported.
        kubelet: kubelet's directories.
    """
    if not shows_a_volume(namespace):
        return
    for line in observed_of(namespace.mounts):
        below = [
            line.root.removeprefix(directory.root)
            for directory in kubelet
            if directory.device == line.device and line.root.startswith(f"{directory.root}/pods/")
        ]
        match = _POD_VOLUME.fullmatch(below[0]) if below and line.device not in numbers else None
        if match is not None and match["uid"] == namespace.process.pod_uid:
            yield UnbackedMount(
                pod_uid=match["uid"],
                persistent_volume=match["volume"],
                path=line.path,
                source=line.source,
                process=namespace.process,
            )
