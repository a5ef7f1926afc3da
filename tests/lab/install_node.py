"""The programs of the node VMs that Debian has: its kernel, containerd and runc.

Unpacked, never installed: no service of theirs runs on this machine, and its kernel stays its own.
Standard library only, like :mod:`tests.lab.install`, which calls this.
"""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING

from tests.lab.errors import LabError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

# Depends on the release's current kernel. Not linux-image-cloud-amd64: that has no rbd module.
_KERNEL = "linux-image-amd64"
_RUNTIME = ("containerd", "runc")
_DOWNLOAD_S = 900.0
_UNPACK_S = 300.0


class NodeTree:
    """The unpacked packages; ``root`` has usr/bin/containerd and the like."""

    def __init__(self, directory: Path) -> None:
        self.root = directory / "root"

    @property
    def kernel(self) -> Path:
        """The kernel image."""
        return _only(self.root / "boot", "vmlinuz-*")

    @property
    def modules(self) -> Path:
        """The directory of this kernel's modules, with modules.dep."""
        release = self.kernel.name.removeprefix("vmlinuz-")
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
    if tree.exists():
        return tree
    new = cache / "node.new"
    shutil.rmtree(new, ignore_errors=True)
    debs = new / "debs"
    debs.mkdir(parents=True)
    try:
        _download(debs)
    except LabError:
        # The package lists are missing, or name versions that the mirror has no more.
        _run("apt-get", "-o", "DPkg::Lock::Timeout=300", "update", "-qq", cwd=debs)
        _download(debs)
    for deb in sorted(debs.glob("*.deb")):
        _run("dpkg-deb", "-x", str(deb), str(new / "root"), cwd=debs, timeout_s=_UNPACK_S)
    shutil.rmtree(debs)
    _index_modules(NodeTree(new))
    new.rename(tree)
    return tree


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
