"""The files of a VM that is a Kubernetes node: real containerd and kubelet as its services."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tests.lab.addresses import HOST, Family
from tests.lab.images import AGENT_MARK, PAUSE, image_archive
from tests.lab.install import venv_python
from tests.lab.vm import LOG_DIR, service_command, service_file, start_file

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.lab.install_node import NodeTree

CONTAINERD = "containerd"
KUBELET = "kubelet"
MEMORY_MIB = 1536

_CONTAINERD_CONFIG = "/etc/containerd/config.toml"
_CONTAINERD_SOCKET = "/run/containerd/containerd.sock"
_KUBELET_CONFIG = "/etc/lab/kubelet-config.json"
_KUBECONFIG = "/etc/lab/kubelet.kubeconfig"
_IMAGES = "/etc/lab/images.tar"
_CNI_CONFIG = "/etc/lab/cni/net.d/10-lab.conflist"
_LAYERS = "/var/lib/containerd/io.containerd.snapshotter.v1.overlayfs/snapshots"


def node_files(
    *,
    name: str,
    number: int,
    families: Sequence[Family],
    tree: NodeTree,
    bin_dir: Path,
    kubeconfig: Path,
) -> dict[str, bytes]:
    """Return the ``files`` of a VM that starts containerd and kubelet at boot.

    kubelet waits for the API server automatically: the VM may start first.

    Args:
        name: of the node, and of the VM.
        number: of the machine; its addresses contain it.
        families: of its addresses; the node has an InternalIP of each.
        tree: the result of ``node_tree``.
        bin_dir: has kubelet.
        kubeconfig: kubelet's own.
    """
    kubelet = [
        str(bin_dir / KUBELET),
        f"--config={_KUBELET_CONFIG}",
        f"--kubeconfig={_KUBECONFIG}",
        f"--hostname-override={name}",
        f"--node-ip={','.join(family.machine(number) for family in families)}",
        "--v=2",
    ]
    containerd = [str(tree.program(CONTAINERD)), f"--config={_CONTAINERD_CONFIG}"]
    return {
        _CONTAINERD_CONFIG: _containerd_config(tree).encode(),
        _KUBELET_CONFIG: _json(_kubelet_config()),
        _KUBECONFIG: kubeconfig.read_bytes(),
        _CNI_CONFIG: _json(_cni_config(families[0], number)),
        _IMAGES: image_archive(_agent_path()),
        **dict([service_file(CONTAINERD, containerd), service_file(KUBELET, kubelet)]),
        **dict([start_file("50-kubelet", _start_script(tree, families[0]))]),
    }


def _agent_path() -> str:
    return f"{venv_python().parent}:/usr/sbin:/usr/bin:/sbin:/bin"


def _start_script(tree: NodeTree, family: Family) -> str:
    ctr = f"{tree.program('ctr')} --namespace k8s.io"
    return f"""\
rm -f {_CONTAINERD_SOCKET}
{service_command(CONTAINERD, "start")}
set +x
until [ -S {_CONTAINERD_SOCKET} ]; do
  if ! {service_command(CONTAINERD, "status")} >/dev/null; then
    cat {LOG_DIR}/{CONTAINERD}.log
    exit 1
  fi
  sleep 0.2
done
set -x
# After a reboot they are on the disk already.
{ctr} images ls -q | grep -qx {PAUSE} || {ctr} images import {_IMAGES}
# In rbdagent's container all files are the node's own: what is mounted on it stays outside.
mark=$(find {_LAYERS} -maxdepth 3 -path '*/fs/{AGENT_MARK}')
mount --bind / "${{mark%/{AGENT_MARK}}}"
# The pods' network.
/sbin/modprobe veth
echo 1 >/proc/sys/net/{family.forwarding}
ip route add {family.api_service} via {family.machine(HOST)}
{service_command(KUBELET, "start")}
"""


def _containerd_config(tree: NodeTree) -> str:
    """Return the configuration in the version that containerd 1.6 (Debian 12) and 1.7 (13) read."""
    # AppArmor is off in the guest, and would need its parser.
    return f"""\
version = 2
disabled_plugins = [
  "io.containerd.internal.v1.opt",
  "io.containerd.internal.v1.tracing",
  "io.containerd.tracing.processor.v1.otlp",
  "io.containerd.snapshotter.v1.aufs",
  "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.snapshotter.v1.zfs",
]
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE}"
  disable_apparmor = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{tree.cni}"
    conf_dir = "/etc/lab/cni/net.d"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      BinaryName = "{tree.program("runc")}"
      SystemdCgroup = false
"""


def _kubelet_config() -> dict[str, object]:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "containerRuntimeEndpoint": f"unix://{_CONTAINERD_SOCKET}",
        "cgroupDriver": "cgroupfs",
        "failSwapOn": False,
        # kubelet mounts a volume once the Node's status names it in use: by default, up to 10 s.
        "nodeStatusUpdateFrequency": "1s",
        "makeIPTablesUtilChains": False,
        "resolvConf": "",
        # Any client may read: only the lab reaches the port, and tests query the kubelet.
        "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
        "authorization": {"mode": "AlwaysAllow"},
        # The disk is small and the images cannot be pulled again.
        "evictionHard": {
            "memory.available": "10Mi",
            "nodefs.available": "1%",
            "imagefs.available": "1%",
        },
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
    }


def _cni_config(family: Family, number: int) -> dict[str, object]:
    """Return a network whose pods are reached through their node."""
    routes = [{"dst": family.every_network}]
    ranges = {"type": "host-local", "subnet": family.pod_subnet(number), "routes": routes}
    return {
        "cniVersion": "0.4.0",
        "name": "lab",
        "plugins": [{"type": "ptp", "ipMasq": False, "ipam": ranges}],
    }


def _json(document: object) -> bytes:
    return json.dumps(document, indent=1).encode()
