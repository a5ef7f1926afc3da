"""A node's /proc, /sys and kubelet directories as plain files, of any size."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

FSID: Final = "1f0c3b8e-6d2a-4a7e-9b8e-5a1c2d3e4f50"
BOOTED_AT: Final = 1_760_000_000
_BASE: Final = """\
21 28 0:20 / /proc rw,relatime shared:2 - proc proc rw
22 28 0:21 / /sys rw,relatime shared:3 - sysfs sys rw
23 28 0:5 / /dev rw,relatime shared:8 - devtmpfs dev rw,mode=755
28 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
32 28 0:29 / /run rw,relatime shared:12 - tmpfs run rw,mode=755
33 22 0:31 / /sys/fs/cgroup rw,relatime shared:4 - cgroup2 cgroup2 rw
"""
_HOST_INODE_OF: Final = "ns-host"
_THREADS: Final = 200


def write_tree(root: Path, *, mappings: int, processes: int, namespaces: int) -> None:
    """Write a node that runs pods with ext4 volumes, one volume a namespace in turn.

    Args:
        root: gets ``proc``, ``sys`` and ``host``.
        mappings: krbd devices, each staged and mounted.
        processes: kernel threads included.
        namespaces: mount namespaces in addition to the host's, a container each.
    """
    for number in range(mappings):
        _write_device(root / "sys", number)
        _write_staging(root / "host", number)
    _write(root / "host" / "dev" / "null", "")
    for number in range(mappings):
        _write(root / "host" / "dev" / f"rbd{number}", "")
    (root / "sys" / "kernel").mkdir(parents=True, exist_ok=True)
    _write_init(root / "proc", mappings)
    for number in range(namespaces):
        _write(root / f"ns-{number}", "")
    for pid in range(2, processes + 1):
        if pid <= _THREADS:
            _write_thread(root, pid, mappings)
        else:
            _write_process(root, pid, pid % namespaces, mappings)


def pod_uid(number: int) -> str:
    """Return the uid of the pod that uses a volume."""
    return f"{number:08x}-0000-4000-8000-000000000000"


def volume(number: int) -> str:
    """Return the name of a PV."""
    return f"pvc-{number:08x}-1111-4111-8111-111111111111"


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def _write_device(sysfs: Path, number: int) -> None:
    attributes = {
        "pool": "k8s",
        "pool_id": "2",
        "pool_ns": "",
        "name": f"csi-vol-{number:08x}",
        "image_id": f"10{number:010x}",
        "client_id": f"client{4000 + number // 50}",
        "client_addr": f"10.0.0.1:0/{100 + number // 50}",
        "cluster_fsid": FSID,
        "current_snap": "-",
        "size": "1073741824",
        "major": "252",
        "minor": str(number * 16),
        "config_info": "10.0.0.9:6789 name=csi,key=client.csi k8s x -",
    }
    for name, value in attributes.items():
        _write(sysfs / "bus" / "rbd" / "devices" / str(number) / name, f"{value}\n")
    block = sysfs / "block" / f"rbd{number}"
    _write(block / "dev", f"252:{number * 16}\n")
    _write(block / "ro", "0\n")
    (block / "holders").mkdir()
    (sysfs / "fs" / "ext4" / f"rbd{number}").mkdir(parents=True)


def _staging(number: int) -> str:
    return f"/var/lib/kubelet/plugins/kubernetes.io/csi/rbd.csi.ceph.com/{number:064x}/globalmount"


def _pod_volume(number: int) -> str:
    pod = f"/var/lib/kubelet/pods/{pod_uid(number)}"
    return f"{pod}/volumes/kubernetes.io~csi/{volume(number)}"


def _write_staging(host: Path, number: int) -> None:
    handle = f"0001-0003-lab-0000000000000002-{number:08x}-1111-4111-8111-111111111111"
    directory = host / _staging(number).lstrip("/")
    (directory / handle).mkdir(parents=True)
    data = {"driverName": "rbd.csi.ceph.com", "volumeHandle": handle}
    _write(directory.parent / "vol_data.json", json.dumps(data))
    stash = {"Version": 3, "pool": "k8s", "radosNamespace": "", "image": f"csi-vol-{number:08x}"}
    _write(directory / "image-meta.json", json.dumps(stash))
    pod = host / _pod_volume(number).lstrip("/")
    (pod / "mount").mkdir(parents=True)
    _write(pod / "vol_data.json", json.dumps(data | {"specVolID": volume(number)}))


def _mount_lines(number: int, identity: int) -> str:
    device = f"252:{number * 16}"
    pod = f"{_pod_volume(number)}/mount"
    tail = f"rw,relatime shared:{identity} - ext4 /dev/rbd{number} rw,stripe=16"
    return (
        f"{identity} 28 {device} / {_staging(number)} {tail}\n"
        f"{identity + 1} 28 {device} / {pod} {tail}\n"
    )


def _write_init(proc: Path, mappings: int) -> None:
    _write(proc / "stat", f"cpu 1 2 3\nbtime {BOOTED_AT}\n")
    _write(proc / "swaps", "Filename Type Size Used Priority\n")
    _write(proc / "sys" / "kernel" / "hostname", "big\n")
    _write(proc / "sys" / "kernel" / "random" / "boot_id", "00000000-0000-4000-8000-00000000b007\n")
    lines = "".join(_mount_lines(number, 100 + 2 * number) for number in range(mappings))
    _write(proc / "1" / "mountinfo", _BASE + lines)
    _write(proc / "1" / "net" / "fib_trie", "")
    _write(proc / "1" / "net" / "if_inet6", "")
    _write(proc / "1" / "net" / "unix", "")
    _write_stat(proc / "1", 1, "systemd", thread=False)
    _write(proc / "1" / "cmdline", "/sbin/init\0")
    _write(proc / "1" / "cgroup", "0::/init.scope\n")
    _write(proc / "1" / "maps", "")
    _write(proc.parent / _HOST_INODE_OF, "")
    _join(proc.parent / _HOST_INODE_OF, proc / "1")


def _join(namespace: Path, process: Path) -> None:
    """Create a hard link: as in /proc, its inode identifies the namespace."""
    (process / "ns").mkdir(parents=True, exist_ok=True)
    os.link(namespace, process / "ns" / "mnt")


def _write_stat(directory: Path, pid: int, name: str, *, thread: bool) -> None:
    flags = 0x200000 if thread else 0x400000
    fields = [str(pid), f"({name})", "S", "1", "1", "1", "0", "-1", str(flags), *["0"] * 12]
    _write(directory / "stat", " ".join([*fields, "12345", *["0"] * 30]) + "\n")


def _write_thread(root: Path, pid: int, mappings: int) -> None:
    directory = root / "proc" / str(pid)
    _write_stat(directory, pid, f"jbd2/rbd{pid % mappings}-8", thread=True)
    _write(directory / "mountinfo", "")
    _join(root / _HOST_INODE_OF, directory)


def _write_process(root: Path, pid: int, namespace: int, mappings: int) -> None:
    directory = root / "proc" / str(pid)
    number = namespace % mappings
    _write_stat(directory, pid, "worker", thread=False)
    _write(directory / "cmdline", "/usr/bin/worker\0--listen\x000.0.0.0:80\0")
    slice_name = f"kubepods-burstable-pod{pod_uid(number).replace('-', '_')}.slice"
    _write(
        directory / "cgroup",
        f"0::/kubepods.slice/kubepods-burstable.slice/{slice_name}/cri-containerd-{namespace:064x}.scope\n",
    )
    device = f"252:{number * 16}"
    _write(
        directory / "mountinfo",
        _BASE + f"400 28 {device} / /data rw,relatime - ext4 /dev/rbd{number} rw,stripe=16\n",
    )
    maps = "".join(
        f"7f{page:010x}-7f{page + 1:010x} r-xp 00000000 08:01 {page}  /usr/lib/lib{page}.so\n"
        for page in range(60)
    )
    _write(directory / "maps", maps)
    (directory / "fd").mkdir()
    for descriptor in range(8):
        (directory / "fd" / str(descriptor)).symlink_to("/dev/null")
    for name in ("cwd", "root"):
        (directory / name).symlink_to("/")
    (directory / "exe").symlink_to("/bin/true")
    _join(root / f"ns-{namespace}", directory)
