"""Find the pods of CSI node plugins by the directory that only they mount.

A driver's socket is ``KUBELET_ROOT/plugins/DRIVER/csi.sock`` on the host. Every container of the
node plugin that uses the socket has that directory as a hostPath volume (``socket-dir`` in
ceph-csi, deploy/rbd/kubernetes/csi-rbdplugin.yaml@52fcb7b). A tenant chooses the names of pods and
containers, but cannot mount a directory of the host: a pod that may do so is root on the node.
``/proc/PID/mountinfo`` shows the file system of a mount, and the mounted directory's path in it;
neither depends on the mount namespace. The sidecars of the plugin prove the pod while the plugin
itself restarts in a loop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from rbdagent.collect.files import (
    TooLargeError,
    UnreadError,
    followed,
    read_blocks,
    read_bytes,
)
from rbdagent.collect.node.limits import MOUNTINFO, MOUNTINFO_SIZES, Limits
from rbdagent.errors import ParseError
from rbdagent.model import DeviceNumber, KubeletView, NotObserved
from rbdagent.parse.mountinfo import parse_mount_line

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from rbdagent.collect.node.limits import Share
    from rbdagent.collect.node.roots import NodeRoots
    from rbdagent.model import NodeView, ProcessRef
    from rbdagent.parse.mountinfo import MountLine

_KUBELETS_OWN: Final = "kubernetes.io"
"""kubelet's own directory beside those of the drivers: it contains the staging paths."""


class _Place(NamedTuple):
    """A directory, as it is named in its file system."""

    device: DeviceNumber
    path: str


class PluginPods(NamedTuple):
    """The pods of CSI node plugins, among some pods."""

    proved: frozenset[str]
    """Pod uids."""
    unread: dict[str, str]
    """Why it is not known of a pod, by its uid."""


def plugin_pods(roots: NodeRoots, view: NodeView, uids: frozenset[str]) -> PluginPods | NotObserved:
    """Return which of the pods have the directory of a CSI driver mounted.

    Args:
        roots: the paths of the host's file systems.
        view: the observed state of the node, with kubelet's directories and the containers.
        uids: the pods.
    """
    if not isinstance(view.kubelet, KubeletView):
        return view.kubelet
    try:
        places = frozenset(_plugin_directories(roots, view.kubelet.roots))
    except (UnreadError, ParseError) as error:
        return _reason(error)
    proved: set[str] = set()
    unread: dict[str, str] = {}
    limits, left = Limits(), view.processes
    # Files of the usual size first: a pod with very many mounts does not hide another pod.
    for most in (None, MOUNTINFO_SIZES[-1]):
        processes, left = left, ()
        for process in processes:
            uid = process.pod_uid
            if uid is None or uid not in uids or uid in proved:
                continue
            try:
                if _mounts_a_driver(roots.procfs, process, places, limits.of_mounts(uid, most)):
                    proved.add(uid)
            except TooLargeError as error:
                left = (*left, process)
                unread[uid] = _reason(error).reason
            except (UnreadError, ParseError) as error:
                unread[uid] = _reason(error).reason
    return PluginPods(
        frozenset(proved), {uid: why for uid, why in unread.items() if uid not in proved}
    )


def _reason(error: UnreadError | ParseError) -> NotObserved:
    if isinstance(error, ParseError):
        return NotObserved(reason=str(error))
    return error.what or NotObserved(reason="the process has ended")


def _plugin_directories(roots: NodeRoots, kubelet_roots: tuple[str, ...]) -> Iterator[_Place]:
    """Yield the place of ``plugins`` below each of kubelet's roots."""
    mounts = list(_lines(f"{roots.procfs}/1/mountinfo", None))
    for root in kubelet_roots:
        path = followed(roots.host_root, f"{root}/plugins")
        above = [mount for mount in mounts if _is_below(path, mount.path)]
        if above:
            # Of mounts on one directory, the last one is visible.
            mount = max(reversed(above), key=lambda found: len(found.path))
            rest = path[len(mount.path.rstrip("/")) :]
            yield _Place(mount.device, mount.root.rstrip("/") + rest)


def _is_below(path: str, directory: str) -> bool:
    return f"{path}/".startswith(f"{directory.rstrip('/')}/")


def _mounts_a_driver(
    procfs: Path, process: ProcessRef, places: frozenset[_Place], share: Share
) -> bool:
    """Return whether a process has the directory of a driver mounted.

    Raises:
        UnreadError: mountinfo cannot be read, or is too large.
        ParseError: a line of it cannot be parsed.
    """
    directory = f"{procfs}/{process.pid}"
    mounts = [
        mount
        for mount in _lines(f"{directory}/mountinfo", share)
        if not mount.root.endswith(f"/{_KUBELETS_OWN}")
        and _Place(mount.device, mount.root.rpartition("/")[0]) in places
    ]
    # The pid may belong to a process of another pod by now.
    return bool(mounts) and _is_in_pod(f"{directory}/cgroup", process.pod_uid or "")


def _lines(path: str, share: Share | None) -> Iterator[MountLine]:
    for block in read_blocks(path, MOUNTINFO if share is None else share.most, share):
        for line in block.split(b"\n"):
            yield parse_mount_line(line, where=path)


def _is_in_pod(cgroup: str, uid: str) -> bool:
    raw = read_bytes(cgroup)
    # systemd's driver writes the uid with underscores.
    return isinstance(raw, bytes) and uid.encode() in raw.replace(b"_", b"-")
