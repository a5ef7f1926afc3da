"""Files and directories of kubelet and the CSI drivers on the node's disk.

Only directories above the mount points are listed. Nothing inside a volume is accessed.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from rbdagent.collect.files import (
    UnreadError,
    followed,
    is_mount_point,
    is_same,
    names_in,
    read_file,
)
from rbdagent.collect.node.file_systems import mount_of
from rbdagent.collect.node.limits import MOUNTINFO, share_of_process
from rbdagent.collect.node.mounts import OnDisk
from rbdagent.collect.node.processes import named, uids_of
from rbdagent.collect.node.sockets import listening_names, listens
from rbdagent.errors import ParseError
from rbdagent.model import (
    CsiImageMeta,
    KubeletView,
    NotObserved,
    PluginSocket,
    PodVolumeDirectory,
    StagingDirectory,
    VolumeData,
)
from rbdagent.parse.command_line import KUBELETS, flag_value
from rbdagent.parse.excerpt import printable, shortened
from rbdagent.parse.kubelet import parse_stash, parse_volume_data
from rbdagent.parse.times import iso_time

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from rbdagent.collect.node.process_scan import ProcessScan
    from rbdagent.collect.node.processes import ProcessEntry
    from rbdagent.model import ProcessRef

KNOWN_ROOTS: Final = (
    "/var/lib/kubelet",
    "/var/lib/k0s/kubelet",
    "/var/snap/microk8s/common/var/lib/kubelet",
    "/var/lib/rancher/k3s/agent/kubelet",
    "/var/data/kubelet",
)
"""kubelet's root directory in the distributions; /var/lib/kubelet may be a link to one of them."""

_CSI: Final = "plugins/kubernetes.io/csi"
_DEVICES: Final = f"{_CSI}/volumeDevices"
_IN_TREE: Final = ("plugins/kubernetes.io/rbd/mounts", "plugins/kubernetes.io/rbd/rbd")
"""The second is that of Kubernetes before 1.10. Newer ones still use it where it is there
(makePDNameInternal in pkg/volume/rbd/rbd_util.go)."""
_POD_PLUGINS: Final = ("kubernetes.io~csi", "kubernetes.io~rbd")
_STASH: Final = "image-meta.json"


class _DeniedError(Exception):
    """A directory of kubelet cannot be listed."""

    def __init__(self, what: NotObserved) -> None:
        super().__init__(what.reason)
        self.what = what


def observe_kubelet(
    host_root: Path,
    procfs: Path,
    *,
    roots: tuple[str, ...],
    process: ProcessRef | None,
    own: str | None = None,
) -> KubeletView:
    """Read staging and pod directories below every root that exists.

    Args:
        host_root: the path of the host's ``/``.
        procfs: the host's /proc, for its unix sockets.
        roots: paths of kubelet's root directories on the host, the most likely one first.
        process: the running kubelet.
        own: its root directory, from its arguments; None if it is unknown.
    """
    existing = tuple(root for root in roots if names_in(_below(host_root, root)) is not None)
    if process is not None and not _has_own(host_root, procfs, existing, process, own):
        missed = NotObserved(
            reason=f"kubelet (process {process.pid}) has its volumes in {own or 'a directory'}"
            f" that was not read; read: {', '.join(existing) or 'none'}",
            hint="make that directory of the host visible to rbdagent, and pass --kubelet-root"
            f" {own or 'DIRECTORY'} (the chart: kubeletRoot)",
        )
        return KubeletView(
            roots=existing, process=process, staging=missed, pod_volumes=missed, sockets=missed
        )
    return KubeletView(
        roots=existing,
        process=process,
        staging=_staging_below(host_root, existing),
        pod_volumes=_pod_volumes_below(host_root, existing),
        sockets=_sockets(host_root, procfs, existing),
    )


def existing_roots(
    host_root: Path, configured: str | None, given: tuple[str, ...]
) -> tuple[str, ...]:
    """Return kubelet's root directories on the host whose ``/`` is at ``host_root``.

    These are the configured ones (``given``). Without these, they are the existing ones among the
    root directory of the running kubelet, if it is known, and the known root directories. Two names
    of one directory (a link from /var/lib/kubelet) count once. A link whose target does not exist
    or cannot be read below the host's root is resolved as on the host.
    """
    if given:
        return given
    candidates = ((configured,) if configured else ()) + KNOWN_ROOTS
    chosen: dict[str, str] = {}
    for root in candidates:
        target = followed(host_root, root)
        entries = {name: names_in(_below(host_root, name)) for name in (root, target)}
        listed = [name for name, names in entries.items() if isinstance(names, tuple)]
        denied = [name for name, names in entries.items() if isinstance(names, NotObserved)]
        if listed or denied:
            chosen.setdefault(target, (listed or denied)[0])
    return tuple(chosen.values())


_ALONE: Final = frozenset({"kubelet", "kubelite"})
"""kubelet, and the program of MicroK8s since 1.21 that contains it (microk8s issue 2186)."""
_SUBCOMMANDS: Final = {
    "k3s": frozenset({"server", "agent"}),
    "rke2": frozenset({"server", "agent"}),
    "k0s": frozenset({"controller", "worker"}),
}
"""For programs that contain kubelet (pkg/cli/server/server.go of k3s) or start it (k0s, RKE2)."""
_ROOT: Final = frozenset({b"0"})


def find_kubelet(procfs: Path, scan: ProcessScan) -> ProcessEntry | NotObserved | None:
    """Return the process of the host's kubelet; of several, the one that started last.

    A process with that name in a pod does not count: the process of a pod can choose its name and
    its pid. The host's kubelet runs as root, in the mount namespace of pid 1, and in no pod's
    cgroup.

    Returns:
        NotObserved if a process may be kubelet but is not certain, None if there is none. A process
        of which nothing was read may be kubelet.
    """
    host = {namespace.key for namespace in scan.namespaces if namespace.is_host}
    found: list[ProcessEntry] = []
    doubts: list[NotObserved] = []
    for entry in scan.entries:
        if entry.is_over or entry.process.pod_uid is not None or not _runs_kubelet(entry):
            continue
        uids = uids_of(procfs, entry)
        if uids is None or set(uids) - _ROOT:
            continue
        doubt = _doubt_of(entry, uids, host)
        if not doubt:
            found.append(entry)
        else:
            doubts.append(NotObserved(reason=f"{named(entry.ref)}: {doubt}"))
    if found:
        return max(found, key=lambda entry: entry.ticks)
    doubts += [NotObserved(reason=reason) for reason in scan.unknown[:1]]
    return doubts[0] if doubts else None


def _runs_kubelet(entry: ProcessEntry) -> bool:
    if not entry.arguments:
        # The command line was not read: only the name of the process is known.
        return entry.is_cut and entry.name.partition("-")[0] in KUBELETS
    program, *words = [*entry.arguments[0].split(" "), *entry.arguments[1:]]
    name = os.path.basename(program)
    subcommand = next((word for word in words if word and not word.startswith("-")), "")
    return name in _ALONE or subcommand in _SUBCOMMANDS.get(name, ())


def _doubt_of(entry: ProcessEntry, uids: tuple[bytes, ...], host: set[int | bytes]) -> str:
    """Return why a process may not be the host's kubelet; empty if it certainly is."""
    doubts = {
        "its user cannot be read": not uids,
        "its cgroup cannot be read": not entry.has_cgroup,
        entry.no_command or entry.unread or "its command line cannot be read": not entry.arguments,
        "its mount namespace, or that of pid 1, was not observed": not (host and entry.namespaces),
        "it is in another mount namespace, with other directories than the host": host.isdisjoint(
            entry.namespaces[:1]
        ),
    }
    return next((doubt for doubt, holds in doubts.items() if holds), "")


def own_root(kubelet: ProcessEntry) -> str | None:
    """Return the root directory of a running kubelet; None if another program contains it.

    Only the flag sets it, and the flag has a default (cmd/kubelet/app/options/options.go@v1.36.3).
    kubelet's configuration file has no such field.
    """
    root = flag_value(kubelet.arguments, "--root-dir")
    is_kubelet = os.path.basename(kubelet.arguments[0]) == "kubelet"
    return root or (KNOWN_ROOTS[0] if is_kubelet else None)


def _has_own(
    host_root: Path, procfs: Path, roots: tuple[str, ...], process: ProcessRef, own: str | None
) -> bool:
    """Return whether kubelet's root directory is among the given ones, by its path or inode."""
    if own is None:
        return bool(roots)
    target = followed(host_root, own)
    inside = f"{procfs}/{process.pid}/root{own}"
    return any(
        followed(host_root, root) == target or is_same(_below(host_root, root), inside)
        for root in roots
    )


def root_positions(
    host_root: Path, procfs: Path, roots: tuple[str, ...]
) -> tuple[OnDisk, ...] | NotObserved:
    """Return the positions of kubelet's root directories in their file systems, from mountinfo."""
    mountinfo = str(procfs / "1" / "mountinfo")
    found = []
    try:
        for root in roots:
            path = followed(host_root, root)
            mount = mount_of(path, mountinfo, share_of_process(MOUNTINFO))
            if mount is not None:
                above, below = mount.path.rstrip("/"), mount.root.rstrip("/")
                found.append(OnDisk(mount.device, below + path.removeprefix(above)))
    except ParseError as error:
        return NotObserved(reason=shortened(printable(str(error))))
    except UnreadError as error:
        return error.what or NotObserved(reason=f"{mountinfo}: no such file")
    return tuple(found)


def _below(host_root: Path, path: str) -> str:
    return f"{host_root}/{path.lstrip('/')}"


def _listed(path: str) -> tuple[str, ...]:
    names = names_in(path)
    if isinstance(names, NotObserved):
        raise _DeniedError(names)
    return names or ()


def _staging_below(
    host_root: Path, roots: tuple[str, ...]
) -> tuple[StagingDirectory, ...] | NotObserved:
    try:
        return tuple(
            found
            for root in roots
            for find in (_csi_staging, _old_csi_staging, _block_staging, _in_tree_staging)
            for found in find(host_root, root)
        )
    except _DeniedError as error:
        return error.what


def _csi_staging(host_root: Path, root: str) -> Iterator[StagingDirectory]:
    """Yield ``<driver>/<sha256 of the handle>/globalmount/<handle>``.

    kubelet uses this path since Kubernetes 1.24 (kubernetes#107065; makeDeviceMountPath() in
    pkg/volume/csi/csi_attacher.go@v1.36.3).
    """
    base = f"{root}/{_CSI}"
    for driver in _listed(_below(host_root, base)):
        if driver in {"volumeDevices", "pv"}:
            continue
        for digest in _listed(_below(host_root, f"{base}/{driver}")):
            directory = f"{base}/{driver}/{digest}"
            data = _volume_data(_below(host_root, f"{directory}/vol_data.json"))
            mount = f"{directory}/globalmount"
            handle = data.volume_handle if isinstance(data, VolumeData) else None
            staged = _staged(host_root, mount, handle)
            yield replace(staged, driver=driver, handle_hash=digest, volume_data=data)


def _staged(host_root: Path, mount: str, handle: str | None) -> StagingDirectory:
    """Read ceph-csi's file in ``globalmount``, next to the directory that it mounts.

    The file is from stashRBDImageMetadata() in internal/rbd/rbd_util.go@52fcb7b of ceph-csi.

    Other drivers mount on ``globalmount`` directly. Its content then belongs to the volume: a pod
    writes it, and the file server of the volume may not answer.
    """
    below = _below(host_root, mount)
    if is_mount_point(below):
        return StagingDirectory(path=mount, driver=None, volume_handle=handle)
    inside = _listed(below)
    if handle is None:
        handle = next((name for name in inside if name != _STASH), None)
    return StagingDirectory(
        path=f"{mount}/{handle}" if handle else mount,
        driver=None,
        volume_handle=handle,
        stash=_stash(f"{below}/{_STASH}"),
        path_present=handle in inside,
    )


def _old_csi_staging(host_root: Path, root: str) -> Iterator[StagingDirectory]:
    """Yield ``pv/<pv>/globalmount``, used before Kubernetes 1.24 (kubernetes#107065)."""
    base = f"{root}/{_CSI}/pv"
    for volume in _listed(_below(host_root, base)):
        data = _volume_data(_below(host_root, f"{base}/{volume}/vol_data.json"))
        mount = f"{base}/{volume}/globalmount"
        handle = data.volume_handle if isinstance(data, VolumeData) else None
        yield replace(
            _staged(host_root, mount, handle),
            driver=data.driver if isinstance(data, VolumeData) else None,
            persistent_volume=volume,
            volume_data=data,
        )


def _block_staging(host_root: Path, root: str) -> Iterator[StagingDirectory]:
    """Yield ``volumeDevices/staging/<pv>/<handle>``: a file with the device node bind-mounted."""
    base = f"{root}/{_DEVICES}/staging"
    for volume in _listed(_below(host_root, base)):
        inside = _listed(_below(host_root, f"{base}/{volume}"))
        data = _volume_data(_below(host_root, f"{root}/{_DEVICES}/{volume}/data/vol_data.json"))
        handle = next((name for name in inside if name != _STASH), None)
        if handle is None and isinstance(data, VolumeData):
            handle = data.volume_handle
        yield StagingDirectory(
            path=f"{base}/{volume}/{handle or ''}".rstrip("/"),
            driver=data.driver if isinstance(data, VolumeData) else None,
            volume_handle=handle,
            persistent_volume=volume,
            block=True,
            volume_data=data,
            stash=_stash(_below(host_root, f"{base}/{volume}/{_STASH}")),
            path_present=handle in inside,
        )


def _in_tree_staging(host_root: Path, root: str) -> Iterator[StagingDirectory]:
    """Yield ``plugins/kubernetes.io/rbd/mounts/<pool>-image-<image>`` of the in-tree plugin."""
    for base in (f"{root}/{below}" for below in _IN_TREE):
        for name in _listed(_below(host_root, base)):
            yield StagingDirectory(path=f"{base}/{name}", driver=None, volume_handle=None)


def _pod_volumes_below(
    host_root: Path, roots: tuple[str, ...]
) -> tuple[PodVolumeDirectory, ...] | NotObserved:
    try:
        return tuple(found for root in roots for found in _pod_volumes(host_root, root))
    except _DeniedError as error:
        return error.what


def _pod_volumes(host_root: Path, root: str) -> Iterator[PodVolumeDirectory]:
    for uid in _listed(_below(host_root, f"{root}/pods")):
        for plugin in _POD_PLUGINS:
            base = f"{root}/pods/{uid}/volumes/{plugin}"
            for volume in _listed(_below(host_root, base)):
                # A CSI volume is mounted on ``mount`` below the directory. An in-tree volume is
                # mounted on the directory.
                is_csi = plugin == "kubernetes.io~csi"
                yield PodVolumeDirectory(
                    path=f"{base}/{volume}/mount" if is_csi else f"{base}/{volume}",
                    pod_uid=uid,
                    persistent_volume=volume,
                    plugin=plugin,
                    volume_data=_volume_data(_below(host_root, f"{base}/{volume}/vol_data.json"))
                    if is_csi
                    else None,
                    # An in-tree volume is mounted there: its file system may not answer.
                    changed_at=_changed_at(_below(host_root, f"{base}/{volume}"))
                    if is_csi
                    else None,
                )
            base = f"{root}/pods/{uid}/volumeDevices/{plugin}"
            for volume in _listed(_below(host_root, base)):
                data = f"{root}/{_DEVICES}/{volume}/data/vol_data.json"
                yield PodVolumeDirectory(
                    path=f"{base}/{volume}",
                    pod_uid=uid,
                    persistent_volume=volume,
                    plugin=plugin,
                    block=True,
                    volume_data=_volume_data(_below(host_root, data)),
                    changed_at=_changed_at(_below(host_root, f"{base}/{volume}")),
                )


def _changed_at(path: str) -> str | None:
    """Return when a directory or link of kubelet last changed; None if it is gone by now."""
    try:
        return iso_time(os.lstat(path).st_mtime)
    except (OSError, OverflowError, ValueError):
        return None


def _volume_data(path: str) -> VolumeData | NotObserved | None:
    raw = read_file(path)
    if not isinstance(raw, bytes):
        return raw
    try:
        return parse_volume_data(raw, where=path)
    except ParseError as error:
        return NotObserved(reason=str(error))


def _stash(path: str) -> CsiImageMeta | NotObserved | None:
    raw = read_file(path)
    if not isinstance(raw, bytes):
        return raw
    try:
        return parse_stash(raw, where=path)
    except ParseError as error:
        return NotObserved(reason=str(error))


def _sockets(
    host_root: Path, procfs: Path, roots: tuple[str, ...]
) -> tuple[PluginSocket, ...] | NotObserved:
    """Return every driver that registered with kubelet, and whether it listens."""
    names = listening_names(procfs)
    found = []
    for root in roots:
        registered = names_in(_below(host_root, f"{root}/plugins_registry"))
        if isinstance(registered, NotObserved):
            return registered
        found += [
            _socket(host_root, root, name, names)
            for name in registered or ()
            if name.endswith(".sock")
        ]
    return tuple(found)


def _socket(host_root: Path, root: str, name: str, names: frozenset[str]) -> PluginSocket:
    """Return the state of the driver's own socket; the socket in the registry is the registrar's.

    The registrar is a separate container, and continues to run while the driver restarts in a loop.
    kubelet calls the endpoint that the registrar reported. By convention, the endpoint has the path
    below.
    """
    driver = name.removesuffix(".sock").removesuffix("-reg")
    own, registry = f"/plugins/{driver}/csi.sock", f"/plugins_registry/{name}"
    state = listens(_below(host_root, root + own), suffix=own, names=names)
    if state is not None:
        return PluginSocket(driver=driver, path=root + own, listening=state)
    registrar = listens(_below(host_root, root + registry), suffix=registry, names=names)
    if registrar is False:
        return PluginSocket(driver=driver, path=root + registry, listening=False)
    unknown = f"the driver's registrar listens, but {root + own} does not exist"
    return PluginSocket(
        driver=driver,
        path=root + registry,
        listening=registrar
        if isinstance(registrar, NotObserved)
        else NotObserved(reason=f"{unknown}: the endpoint has another path, or does not exist yet"),
    )
