"""Mount namespaces: which mounts of devices, and of volumes' bare directories, each shows."""

from __future__ import annotations

import errno
import hashlib
import re
from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec import Struct

from rbdagent.correlate.local import pod_uid_of_path
from rbdagent.errors import ParseError
from rbdagent.model import (
    DeviceNumber,
    Mount,
    MountKind,
    MountNamespace,
    NotObserved,
    UnbackedMount,
)
from rbdagent.observe.files import MOUNTINFO, UnreadError, read_blocks
from rbdagent.observe.shares import ROOM
from rbdagent.parse.excerpt import printable, shortened
from rbdagent.parse.mountinfo import MountLine, parse_mount_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from rbdagent.model import ProcessRef
    from rbdagent.observe.shares import Share

_VOLUMES: Final = b"/volumes/kubernetes.io~"
_VOLUME_ROOT: Final = re.compile(
    r"/pods/(?P<uid>[0-9a-f-]{32,36})/volumes/kubernetes\.io~(?:csi|rbd)/(?P<volume>[^/]+)(?:/mount)?"
)


class Wanted(Struct, frozen=True, kw_only=True):
    """The devices whose mounts are looked for."""

    numbers: frozenset[DeviceNumber]
    node_paths: Mapping[str, DeviceNumber]
    """Path below ``/dev`` (``/rbd0``) to the device that it is the node of.

    A bind of it shows devtmpfs with this root, not the device's number.
    """
    devices: frozenset[bytes]
    """The numbers as mountinfo writes them."""
    roots: frozenset[bytes]
    """The paths as mountinfo writes them."""

    @classmethod
    def of(
        cls, numbers: Iterable[DeviceNumber], node_paths: Mapping[str, DeviceNumber] | None = None
    ) -> Wanted:
        """Make one; what mountinfo is searched for is the same for all of them."""
        known, paths = frozenset(numbers), node_paths or {}
        return cls(
            numbers=known,
            node_paths=paths,
            devices=frozenset(str(number).encode() for number in known),
            roots=frozenset(path.encode() for path in paths),
        )


class Namespace(Struct, kw_only=True):
    """A mount namespace in which some process lives, and what its mountinfo shows."""

    key: int | bytes
    """Its inode; where that may not be looked at, a digest of its mountinfo."""
    process: ProcessRef
    mounts: tuple[MountLine, ...] | NotObserved
    """Those that were looked for."""
    is_host: bool = False

    @property
    def ref(self) -> MountNamespace:
        """The model's view of it."""
        inode = self.key if isinstance(self.key, int) else 0
        return MountNamespace(inode=inode, process=self.process, is_host=self.is_host)


class Shown(NamedTuple):
    """What one mountinfo shows."""

    mounts: tuple[MountLine, ...] | NotObserved
    digest: bytes
    """Of all that was read; empty: there was nothing."""


def read_mounts(path: str, wanted: Wanted, share: Share | None = None) -> Shown | None:
    """Read the mounts that are of the devices, bind their nodes, or show a volume's directory.

    A line that cannot be read may be any of these, and so may what lies beyond a bound: then what
    the namespace shows is not observed.

    Args:
        path: a mountinfo.
        wanted: what is looked for.
        share: the time that it may take.

    Returns:
        None where the process is gone, or about to be.

    Raises:
        UnreadError: it may not be read.
    """
    devices, roots = wanted.devices, wanted.roots
    found: list[MountLine] = []
    digest, is_empty = hashlib.blake2b(digest_size=16), True
    unread: NotObserved | None = None
    kept = 0
    try:
        for block in read_blocks(path, MOUNTINFO, share):
            is_empty = False
            digest.update(block + b"\n")
            for line in block.split(b"\n"):
                fields = line.split(b" ", 5)
                if len(fields) < 6 or (
                    fields[2] in devices or fields[3] in roots or _VOLUMES in fields[3]
                ):
                    found.append(parse_mount_line(line, where=path))
            if share is not None and len(found) > kept and not share.has_room(len(found) - kept):
                unread = NotObserved(reason=f"{path}: more mounts of volumes than {ROOM}")
                break
            kept = len(found)
    except ParseError as error:
        unread = NotObserved(reason=shortened(printable(str(error))))
    except UnreadError as error:
        if error.what is None or error.number == errno.EINVAL:
            # EINVAL: it has left its namespace (mounts_open_common in fs/proc_namespace.c).
            return None
        if error.number is not None:
            raise
        unread = error.what
    return Shown(unread or tuple(found), b"" if is_empty else digest.digest())


def mounts_of(namespaces: Iterable[Namespace], wanted: Wanted) -> Iterator[Mount]:
    """Return the mounts of all namespaces that are of the devices, or bind their device nodes."""
    for namespace in namespaces:
        for line in _lines(namespace):
            bound = wanted.node_paths.get(line.root) if line.fs_type == "devtmpfs" else None
            if line.device in wanted.numbers:
                yield _mount(namespace, line, line.device, MountKind.FILE_SYSTEM)
            elif bound is not None:
                yield _mount(namespace, line, bound, MountKind.DEVICE_BIND)


def _lines(namespace: Namespace) -> tuple[MountLine, ...]:
    return () if isinstance(namespace.mounts, NotObserved) else namespace.mounts


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
    """Return whether a mount of a device shows that more than a staging mount is left of it.

    That is so of a pod's path, and of what another namespace than the host's shows. A copy of a
    mount that the host has is none: it goes with the host's.
    """
    if pod_uid_of_path(mount.path) is not None:
        return True
    return not mount.namespace.is_host and not any(
        other.namespace.is_host and mount.path.endswith(other.path) for other in others
    )


def unbacked_of(namespace: Namespace, numbers: frozenset[DeviceNumber]) -> Iterator[UnbackedMount]:
    """Return a container's mounts of a volume's bare directory: writes there go to the node.

    A backed volume shows the image's own root; a bare directory shows its path within the parent's
    file system, ``…/pods/<uid>/volumes/kubernetes.io~csi/<pv>/mount``.
    """
    if namespace.is_host or namespace.process.pod_uid is None:
        return
    for line in _lines(namespace):
        match = _VOLUME_ROOT.search(line.root)
        if match is None or match.end() != len(line.root) or line.device in numbers:
            continue
        yield UnbackedMount(
            pod_uid=match["uid"],
            persistent_volume=match["volume"],
            path=line.path,
            source=line.source,
            process=namespace.process,
        )
