"""What kubelet and the CSI drivers keep on the node's disk.

Only directories above the mount points are listed: nothing inside a volume is touched.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from rbdagent.errors import ParseError
from rbdagent.model import (
    KubeletView,
    NotObserved,
    PluginSocket,
    PodVolumeDirectory,
    StagingDirectory,
    Stash,
    VolumeData,
)
from rbdagent.observe.files import (
    followed,
    is_mount_point,
    is_same,
    names_in,
    read_bytes,
)
from rbdagent.observe.processes import flag_value
from rbdagent.observe.sockets import listening_names, listens
from rbdagent.parse.kubelet import parse_stash, parse_volume_data

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from rbdagent.model import ProcessRef
    from rbdagent.observe.processes import ProcessEntry

KNOWN_ROOTS: Final = (
    "/var/lib/kubelet",
    "/var/lib/k0s/kubelet",
    "/var/snap/microk8s/common/var/lib/kubelet",
    "/var/lib/rancher/k3s/agent/kubelet",
    "/var/data/kubelet",
)
"""Where distributions move kubelet's root; /var/lib/kubelet may be a link to one of them."""

_CSI: Final = "plugins/kubernetes.io/csi"
_DEVICES: Final = f"{_CSI}/volumeDevices"
_IN_TREE: Final = "plugins/kubernetes.io/rbd/mounts"
_POD_PLUGINS: Final = ("kubernetes.io~csi", "kubernetes.io~rbd")
_STASH: Final = "image-meta.json"


class _DeniedError(Exception):
    """A directory of kubelet's may not be listed."""

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
        host_root: where the host's ``/`` is.
        procfs: the host's /proc, for its unix sockets.
        roots: kubelet's root directories as the host names them, the likeliest first.
        process: the running kubelet.
        own: its root directory, as it names that; None: it does not tell.
    """
    there = tuple(root for root in roots if names_in(_below(host_root, root)) is not None)
    if process is not None and not _has_own(host_root, procfs, there, process, own):
        missed = NotObserved(
            reason=f"kubelet (process {process.pid}) keeps its volumes in {own or 'a directory'}"
            f" that was not looked at; looked at: {', '.join(there) or 'none'}",
            cure="show that directory of the host to rbdagent, and name it: --kubelet-root"
            f" {own or 'DIRECTORY'} (the chart: kubeletRoot)",
        )
        return KubeletView(
            roots=there, process=process, staging=missed, pod_volumes=missed, sockets=missed
        )
    return KubeletView(
        roots=there,
        process=process,
        staging=_staging_below(host_root, there),
        pod_volumes=_pod_volumes_below(host_root, there),
        sockets=_sockets(host_root, procfs, there),
    )


def existing_roots(host_root: Path, told: str | None, given: tuple[str, ...]) -> tuple[str, ...]:
    """Choose kubelet's roots: those that were given, else the running kubelet's, else the known.

    Two names of one directory (a link from /var/lib/kubelet) count once. A link that leads nowhere
    from here, or where nobody may look from here, is followed as the host would.
    """
    if given:
        return given
    candidates = ((told,) if told else ()) + KNOWN_ROOTS
    chosen: dict[str, str] = {}
    for root in candidates:
        target = followed(host_root, root)
        seen = {name: names_in(_below(host_root, name)) for name in (root, target)}
        listed = [name for name, names in seen.items() if isinstance(names, tuple)]
        denied = [name for name, names in seen.items() if isinstance(names, NotObserved)]
        if listed or denied:
            chosen.setdefault(target, (listed or denied)[0])
    return tuple(chosen.values())


def own_root(kubelet: ProcessEntry) -> str | None:
    """Give the root directory of a running kubelet; None where another program runs it inside.

    Its configuration file cannot name it: the flag alone can, and has a default.
    """
    told = flag_value(kubelet.arguments, "--root-dir")
    is_itself = os.path.basename(kubelet.arguments[0]) == "kubelet"
    return told or (KNOWN_ROOTS[0] if is_itself else None)


def _has_own(
    host_root: Path, procfs: Path, roots: tuple[str, ...], process: ProcessRef, own: str | None
) -> bool:
    """Tell whether kubelet's own root is among those: by its name, or as the same directory."""
    if own is None:
        return bool(roots)
    target = followed(host_root, own)
    inside = f"{procfs}/{process.pid}/root{own}"
    return any(
        followed(host_root, root) == target or is_same(_below(host_root, root), inside)
        for root in roots
    )


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
    """``<driver>/<sha256 of the handle>/globalmount/<handle>``, since Kubernetes 1.24."""
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
    """Read what ceph-csi keeps in ``globalmount``, beside the directory that it mounts.

    Other drivers mount on ``globalmount`` itself: what is in it then is their volume's, which a pod
    writes, and the server of which may not answer.
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
    """``pv/<pv>/globalmount``, before Kubernetes 1.24; still there for volumes staged then."""
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
    """``volumeDevices/staging/<pv>/<handle>``: a file that the device node is bound to."""
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
    """``plugins/kubernetes.io/rbd/mounts/<pool>-image-<image>`` of the in-tree plugin."""
    base = f"{root}/{_IN_TREE}"
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
                # A CSI volume is mounted on ``mount`` below, an in-tree one on the directory.
                is_csi = plugin == "kubernetes.io~csi"
                yield PodVolumeDirectory(
                    path=f"{base}/{volume}/mount" if is_csi else f"{base}/{volume}",
                    pod_uid=uid,
                    persistent_volume=volume,
                    plugin=plugin,
                    volume_data=_volume_data(_below(host_root, f"{base}/{volume}/vol_data.json"))
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
                )


def _volume_data(path: str) -> VolumeData | NotObserved | None:
    raw = read_bytes(path)
    if not isinstance(raw, bytes):
        return raw
    try:
        return parse_volume_data(raw, where=path)
    except ParseError as error:
        return NotObserved(reason=str(error))


def _stash(path: str) -> Stash | NotObserved | None:
    raw = read_bytes(path)
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
    """Look at the driver's own socket; the one in the registry is its registrar's.

    The registrar is a container of its own, and runs on while the driver's restarts in a loop.
    kubelet calls the endpoint that the registrar reported, by convention the file below.
    """
    driver = name.removesuffix(".sock").removesuffix("-reg")
    own, registry = f"/plugins/{driver}/csi.sock", f"/plugins_registry/{name}"
    state = listens(_below(host_root, root + own), suffix=own, names=names)
    if state is not None:
        return PluginSocket(driver=driver, path=root + own, listening=state)
    registrar = listens(_below(host_root, root + registry), suffix=registry, names=names)
    if registrar is False:
        return PluginSocket(driver=driver, path=root + registry, listening=False)
    unknown = f"the driver's registrar listens, and there is no {root + own}"
    return PluginSocket(
        driver=driver,
        path=root + registry,
        listening=registrar
        if isinstance(registrar, NotObserved)
        else NotObserved(reason=f"{unknown}: its endpoint is elsewhere, or is not made yet"),
    )
