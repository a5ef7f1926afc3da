"""The programs of the node VMs that Debian has: its kernel, containerd, runc, and CNI plugins.

Unpacked, never installed: no service of theirs runs on this machine, and its kernel stays its own.
Standard library only, like :mod:`tests.lab.install`, which calls this.
"""

from __future__ import annotations

import fcntl
import lzma
import shutil
import struct
import subprocess
from typing import TYPE_CHECKING

from tests.lab.errors import LabError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

# Depends on the release's current kernel. Not linux-image-cloud-amd64: that has no rbd module.
_KERNEL = "linux-image-amd64"
_RUNTIME = ("containerd", "runc", "containernetworking-plugins")
_DOWNLOAD_S = 900.0
_UNPACK_S = 300.0
_LENGTH_SIZE = 4


class NodeTree:
    """The unpacked packages; ``root`` has usr/bin/containerd and the like."""

    def __init__(self, directory: Path) -> None:
        self.root = directory / "root"

        self._unpacked = directory / "vmlinux"

    @property
    def kernel(self) -> Path:
        """The kernel for QEMU; unpacked where we could, an emulated processor needs 6 s for it."""
        return self._unpacked if self._unpacked.exists() else self.packed_kernel

    @property
    def packed_kernel(self) -> Path:
        """The kernel as the package has it."""
        return _only(self.root / "boot", "vmlinuz-*")

    @property
    def cni(self) -> Path:
        """The directory of the network plugins."""
        return self.root / "usr" / "lib" / "cni"

    @property
    def modules(self) -> Path:
        """The directory of this kernel's modules, with modules.dep."""
        release = self.packed_kernel.name.removeprefix("vmlinuz-")
        # Debian 13's packages are usrmerged, Debian 12's are not.
        for parent in ("lib/modules", "usr/lib/modules"):
            if (self.root / parent / release).is_dir():
                return self.root / parent / release
        raise LabError(f"{self.root}: no modules for kernel {release}")

    def program(self, name: str) -> Path:
        """Give the path of containerd, runc, ctr or a shim."""
        for parent in ("usr/bin", "usr/sbin"):
            if (self.root / parent / name).exists():
                return self.root / parent / name
        raise LabError(f"{self.root}: no program {name}")


def node_tree(cache: Path) -> Path:
    """Download and unpack the packages once; give the directory for :class:`NodeTree`.

    Args:
        cache: the project's cache directory.

    Raises:
        LabError: a package cannot be had.
    """
    tree = cache / "node"
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "node.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        stamp = tree / "packages"
        if not stamp.exists() or stamp.read_text() != " ".join(_RUNTIME):
            new = cache / "node.new"
            shutil.rmtree(new, ignore_errors=True)
            _make(new)
            (new / stamp.name).write_text(" ".join(_RUNTIME))
            shutil.rmtree(tree, ignore_errors=True)
            new.rename(tree)
    return tree


def _make(directory: Path) -> None:
    debs = directory / "debs"
    debs.mkdir(parents=True)
    try:
        _download(debs)
    except LabError:
        # The package lists are missing, or name versions that the mirror has no more.
        _run("apt-get", "-o", "DPkg::Lock::Timeout=300", "update", "-qq", cwd=debs)
        _download(debs)
    tree = NodeTree(directory)
    for deb in sorted(debs.glob("*.deb")):
        _run("dpkg-deb", "-x", str(deb), str(tree.root), cwd=debs, timeout_s=_UNPACK_S)
    shutil.rmtree(debs)
    _index_modules(tree)
    _unpack_kernel(tree.packed_kernel, directory / "vmlinux")


def _download(directory: Path) -> None:
    _run("apt-get", "download", "-qq", _kernel_package(directory), *_RUNTIME, cwd=directory)


def _kernel_package(directory: Path) -> str:
    """Give the name of the package of the release's current kernel."""
    answer = _run("apt-cache", "depends", "--important", _KERNEL, cwd=directory)
    for line in answer.splitlines():
        relation, _, name = line.strip().partition(": ")
        if relation == "Depends" and name.startswith("linux-image-"):
            return name
    raise LabError(f"apt-cache depends {_KERNEL}: no kernel among them:\n{answer}")


def _index_modules(tree: NodeTree) -> None:
    modules = tree.modules
    base = modules.parents[2]
    if modules.parents[1].name == "lib" and base.name == "usr":
        # depmod looks below lib/modules of the base only.
        base = base.parent
        (base / "lib").symlink_to("usr/lib")
    _run("depmod", "-b", str(base), modules.name, cwd=base, timeout_s=_UNPACK_S)


def _unpack_kernel(packed: Path, target: Path) -> None:
    """Write the ELF image inside a bzImage, when something here can unpack it.

    The header says where it is (setup_sects, payload_offset, payload_length):
    Documentation/arch/x86/boot.rst of the kernel.
    """
    image = packed.read_bytes()
    setup_sectors = image[0x1F1] or 4
    offset, length = struct.unpack_from("<II", image, 0x248)
    start = (setup_sectors + 1) * 512 + offset
    payload = image[start : start + length]
    # After the compressed stream comes the length of what it unpacks to.
    if payload.startswith(b"\xfd7zXZ\0"):
        # Debian 12.
        target.write_bytes(lzma.decompress(payload[:-_LENGTH_SIZE]))
    elif payload.startswith(b"\x28\xb5\x2f\xfd") and (zstd := shutil.which("zstd")):
        # Debian 13; Python learns it with 3.14.
        packed_alone = target.with_suffix(".zst")
        packed_alone.write_bytes(payload[:-_LENGTH_SIZE])
        _run(zstd, "-q", "-d", "--rm", str(packed_alone), cwd=target.parent)


def _only(directory: Path, pattern: str) -> Path:
    found = sorted(directory.glob(pattern))
    if len(found) != 1:
        raise LabError(f"{directory}: {len(found)} files match {pattern}, expected one")
    return found[0]


def _run(*argv: str, cwd: Path, timeout_s: float = _DOWNLOAD_S) -> str:
    command: Sequence[str] = argv
    done = subprocess.run(
        command,
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    if done.returncode != 0:
        raise LabError(f"{' '.join(argv)}: exit {done.returncode}: {done.stderr.strip()}")
    return done.stdout
