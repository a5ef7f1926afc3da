"""Copy the files that rbdagent reads on a node, to run rbdagent on them elsewhere."""

from __future__ import annotations

import base64
import io
import tarfile
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

    from tests.lab.vm import Vm

# Runs in the guest. A regular file of /proc or /sys reports size 0, so each is read first. A
# process's mount namespace becomes a hard link, so that its inode identifies the namespace again.
_COPY: Final = r"""
import base64, glob, io, os, sys, tarfile
out = io.BytesIO()
tar = tarfile.open(fileobj=out, mode="w:gz")
def add(path, name, data):
    info = tarfile.TarInfo(name)
    info.size = len(data)
    tar.addfile(info, io.BytesIO(data))
def copy(pattern, prefix=""):
    for path in glob.glob(pattern, recursive=True):
        name = prefix + path.lstrip("/")
        try:
            if os.path.isdir(path):
                info = tarfile.TarInfo(name)
                info.type, info.mode = tarfile.DIRTYPE, 0o755
                tar.addfile(info)
            elif os.path.isfile(path):
                add(path, name, open(path, "rb").read())
        except OSError:
            pass
for one in ("bus/rbd/devices/*/*", "block/*", "block/*/*", "block/*/holders/*", "block/*/dm/*",
            "block/*/loop/*", "fs/ext4/*", "fs/xfs/*", "kernel/debug/ceph/*/osdc"):
    copy("/sys/" + one)
for one in ("stat", "swaps", "sys/kernel/hostname", "sys/kernel/random/boot_id", "1/net/unix",
            "1/net/fib_trie", "1/net/if_inet6", "fs/ext4/*", "fs/jbd2/*"):
    copy("/proc/" + one)
csi = "/var/lib/kubelet/plugins/kubernetes.io/csi"
for one in (csi + "/*", csi + "/*/*", csi + "/*/*/globalmount/image-meta.json",
            csi + "/*/*/vol_data.json", csi + "/*/*/globalmount/*/",
            "/var/lib/kubelet/plugins_registry/*", "/var/lib/kubelet/pods/*/volumes/*/*/",
            "/var/lib/kubelet/pods/*/volumes/*/*/vol_data.json"):
    copy(one, "host/")
for name in os.listdir("/dev"):
    add(None, "host/dev/" + name, b"")
for pid in filter(str.isdigit, os.listdir("/proc")):
    directory = "/proc/" + pid
    for one in ("stat", "status", "cmdline", "cgroup", "mountinfo", "maps"):
        copy(directory + "/" + one)
    try:
        add(None, f"proc/{pid}/ns-inode", str(os.stat(directory + "/ns/mnt").st_ino).encode())
        for link in ("cwd", "root", "exe", *("fd/" + fd for fd in os.listdir(directory + "/fd"))):
            info = tarfile.TarInfo(f"proc/{pid}/{link}")
            info.type, info.linkname = tarfile.SYMTYPE, os.readlink(f"{directory}/{link}")
            tar.addfile(info)
    except OSError:
        pass
tar.close()
sys.stdout.write(base64.b64encode(out.getvalue()).decode())
"""


def record_tree(vm: Vm, root: Path) -> None:
    """Write a node's ``proc``, ``sys`` and ``host`` below ``root``."""
    done = vm.run(["python3", "-c", _COPY], timeout_s=120)
    with tarfile.open(fileobj=io.BytesIO(base64.b64decode(done.stdout))) as tar:
        # An attribute, not the argument of newer Pythons: links of /proc lead anywhere.
        tar.extraction_filter = lambda member, _: member
        tar.extractall(root)  # noqa: S202 - our own node made it
    for inode in root.glob("proc/[0-9]*/ns-inode"):
        namespace = root / f"mnt-{inode.read_text()}"
        namespace.touch()
        link = inode.parent / "ns" / "mnt"
        link.parent.mkdir()
        link.hardlink_to(namespace)
