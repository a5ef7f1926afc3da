"""The controller part of a real ceph-csi: its controller server, and the sidecars around it.

external-provisioner makes and deletes PVs, external-attacher marks VolumeAttachments,
external-resizer grows claims, each with the flags of ceph-csi's own deployment
(deploy/rbd/kubernetes/csi-rbdplugin-provisioner.yaml@52fcb7b). They replace
:mod:`tests.lab.csi_controller`, which simulates all of them for the test driver.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.lab.csi import driver_config
from tests.lab.install import SIDECARS, bin_dir
from tests.lab.processes import wait_until
from tests.lab.workloads import DRIVER

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tests.lab.ceph import CephCluster
    from tests.lab.processes import Processes

_READY_S: Final = 30.0
_ROOM: Final = "/mnt"
"""Where ceph-csi finds its directory in a separate mount namespace."""

# Its paths are fixed: config.json and ceph.conf below /etc (it writes a keyring beside the latter),
# keys below /tmp.
_SCRIPT: Final = f"""\
set -e
mount --bind "$1" {_ROOM}
mount -t overlay -o lowerdir={_ROOM}/etc:/etc overlay /etc
mount --bind {_ROOM}/etc/ceph /etc/ceph
mount -t tmpfs tmpfs /tmp
mkdir -p /tmp/csi/keys
shift
exec "$@"
"""
FLAGS: Final[Mapping[str, tuple[str, ...]]] = {
    "csi-provisioner": (
        "--timeout=150s",
        "--default-fstype=ext4",
        "--extra-create-metadata=true",
        "--immediate-topology=false",
        # Not in that deployment: without --domainlabels on the nodes no claim with a class of
        # WaitForFirstConsumer gets a volume (ceph-csi#4777). Rook and the operator set it too.
        "--feature-gates=Topology=false",
    ),
    "csi-attacher": ("--default-fstype=ext4",),
    "csi-resizer": ("--timeout=150s", "--handle-volume-inuse-error=false"),
}


def start_controllers(
    processes: Processes,
    *,
    netns: str,
    directory: Path,
    cephcsi: Path,
    ceph: CephCluster,
    kubeconfig: Path,
) -> None:
    """Start ceph-csi's controller server, and the sidecars once it listens: they end without it.

    Args:
        processes: of the lab.
        netns: from which Ceph and the API server are reached.
        directory: for ceph-csi's files and its socket; it does not exist yet.
        cephcsi: the program.
        ceph: the cluster; its manager runs ``rbd task``, with which ceph-csi deletes images.
        kubeconfig: of a user with the rights that the sidecars need.

    Raises:
        LabError: ceph-csi does not start; with its log.
    """
    files = {"/etc/ceph/ceph.conf": ceph.client_conf().encode(), **driver_config(ceph.monitor)}
    for path, content in files.items():
        file = directory / path.removeprefix("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    program = directory / "cephcsi"
    program.hardlink_to(cephcsi)
    ceph.start_manager()
    socket = directory / "csi-provisioner.sock"
    controller = processes.start(
        "csi-controller",
        [
            *("/usr/bin/unshare", "-m", "sh", "-c", _SCRIPT, "csi-controller", directory),
            f"{_ROOM}/{program.name}",
            *("--type=rbd", "--controllerserver=true", "--nodeid=controller"),
            *(f"--drivername={DRIVER}", f"--endpoint=unix://{_ROOM}/{socket.name}", "--v=4"),
            *("--setmetadata=true", "--rbdhardmaxclonedepth=8", "--rbdsoftmaxclonedepth=4"),
        ],
        netns=netns,
    )
    wait_until(socket.is_socket, timeout_s=_READY_S, what="ceph-csi to listen", process=controller)
    for sidecar in SIDECARS:
        processes.start(
            sidecar,
            [
                bin_dir() / sidecar,
                f"--csi-address={socket}",
                f"--kubeconfig={kubeconfig}",
                "--retry-interval-start=500ms",
                *FLAGS[sidecar],
                "--v=2",
            ],
            netns=netns,
        )
