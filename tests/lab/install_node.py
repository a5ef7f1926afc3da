"""The files of the node VMs: a kernel, a root, and the container runtime.

The runtime is unpacked, never installed: no service of it runs on this machine. Standard library
only, like :mod:`tests.lab.install`, which calls this.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.lab.apt import Apt
from tests.lab.errors import LabError
from tests.lab.kernels import Kernel, kernel_of, unpack
from tests.lab.once import made_once
from tests.lab.parts import Parts, Suite, chosen_parts
from tests.lab.roots import Root, root_of
from tests.lab.uml import UmlKernel, uml_kernel
from tests.lab.venvs import venv_of

if TYPE_CHECKING:
    from pathlib import Path

_RUNTIME = ("containerd", "runc", "containernetworking-plugins")


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeTree:
    """The files from which the VMs of one lab are made."""

    kernel: Kernel | UmlKernel
    """For QEMU, or the program that is a node."""
    root: Root
    """Has the guest's programs, but not the container runtime."""
    runtime: Path
    """Has usr/bin/containerd and the like, of the same suite as the root."""
    venv: Path
    """The virtual environment for the root's Python, as this machine names it."""

    @property
    def cni(self) -> Path:
        """The directory of the network plugins."""
        return self.runtime / "usr" / "lib" / "cni"

    def program(self, name: str) -> Path:
        """Return the path of containerd, runc, ctr or a shim."""
        for parent in ("usr/bin", "usr/sbin"):
            if (self.runtime / parent / name).exists():
                return self.runtime / parent / name
        raise LabError(f"{self.runtime}: no program {name}")


def node_tree(cache: Path, parts: Parts | None = None) -> NodeTree:
    """Return the files of the VMs; missing ones are downloaded and made.

    Args:
        cache: the project's cache directory.
        parts: by default those that the environment names.

    Raises:
        LabError: a package is not available.
    """
    chosen = chosen_parts() if parts is None else parts
    root = root_of(cache, chosen.debian)
    return NodeTree(
        kernel=uml_kernel(cache) if chosen.node == "uml" else kernel_of(cache, chosen.kernel),
        root=root,
        runtime=_runtime(cache, chosen.debian),
        venv=venv_of(cache, chosen.debian),
    )


def _runtime(cache: Path, suite: Suite) -> Path:
    def make(directory: Path) -> None:
        apt = Apt(cache, suite)
        apt.update()
        unpack(apt, _RUNTIME, directory / "root")

    return made_once(cache / "runtimes" / suite.name, " ".join(_RUNTIME), make) / "root"
