"""Kernels of Debian suites for the node VMs, unpacked and never installed.

Standard library only, like :mod:`tests.lab.install`, which calls this.
"""

from __future__ import annotations

import lzma
import re
import shutil
import struct
from typing import TYPE_CHECKING

from tests.lab.apt import Apt
from tests.lab.commands import output
from tests.lab.errors import LabError
from tests.lab.once import made_once

if TYPE_CHECKING:
    from pathlib import Path

    from tests.lab.parts import Suite

# Depends on the suite's current kernel. Not linux-image-cloud-amd64: it has no rbd module.
_NEWEST = "linux-image-amd64"
# Up to Debian 13 one package has the kernel, its modules and their lists; later there are three.
_PACKAGES = re.compile(r"linux-(base|binary|image|modules)-\d.*")
_UNPACK_S = 300.0
_LENGTH_SIZE = 4


class Kernel:
    """An unpacked kernel with its modules."""

    def __init__(self, directory: Path) -> None:
        self._root = directory / "root"
        self._unpacked = directory / "vmlinux"

    @property
    def image(self) -> Path:
        """The kernel for QEMU; unpacked if possible: an emulated processor needs 6 s for that."""
        return self._unpacked if self._unpacked.exists() else self.packed_image

    @property
    def packed_image(self) -> Path:
        """The kernel as the package has it."""
        found = sorted(self._root.glob("boot/vmlinuz-*"))
        found += sorted(self._root.glob("usr/lib/modules/*/vmlinuz"))
        if len(found) != 1:
            raise LabError(f"{self._root}: {len(found)} kernels, expected one")
        return found[0]

    @property
    def all_modules(self) -> Path:
        """The directory of which the guest makes /lib/modules."""
        return self.modules.parent

    @property
    def modules(self) -> Path:
        """The directory of this kernel's modules, with modules.dep."""
        # Debian 13's packages are usrmerged, Debian 12's are not.
        found = [*self._root.glob("usr/lib/modules/*/kernel")]
        found = found or [*self._root.glob("lib/modules/*/kernel")]
        if len(found) != 1:
            raise LabError(f"{self._root}: modules of {len(found)} kernels, expected one")
        return found[0].parent

    @property
    def release(self) -> str:
        """What ``uname -r`` prints."""
        return self.modules.name


def kernel_of(cache: Path, suite: Suite) -> Kernel:
    """Return the current kernel of a suite, downloaded and unpacked on first use.

    Args:
        cache: the project's cache directory.
        suite: the suite of the kernel.

    Raises:
        LabError: a package is not available.
    """
    directory = cache / "kernels" / suite.name
    return Kernel(made_once(directory, _PACKAGES.pattern, lambda new: _make(cache, suite, new)))


def _make(cache: Path, suite: Suite, directory: Path) -> None:
    apt = Apt(cache, suite)
    apt.update()
    packages = [name for name in apt.needed(_NEWEST) if _PACKAGES.fullmatch(name)]
    if not packages:
        raise LabError(f"{suite.name}: {_NEWEST} needs no kernel")
    unpack(apt, packages, directory / "root")
    kernel = Kernel(directory)
    _index_modules(kernel.modules)
    _unpack_image(kernel.packed_image, directory / "vmlinux")


def unpack(apt: Apt, packages: list[str] | tuple[str, ...], root: Path) -> None:
    """Download packages and unpack their files below ``root``."""
    debs = root.with_name("debs")
    debs.mkdir()
    apt.download(packages, debs)
    for deb in sorted(debs.glob("*.deb")):
        output("dpkg-deb", "-x", deb, root, timeout_s=_UNPACK_S)
    shutil.rmtree(debs)


def _index_modules(modules: Path) -> None:
    base = modules.parents[2]
    if base.name == "usr":
        # depmod looks below lib/modules of the base only.
        base = base.parent
        if not (base / "lib").exists():
            (base / "lib").symlink_to("usr/lib")
    output("depmod", "-b", base, modules.name, timeout_s=_UNPACK_S)


def _unpack_image(packed: Path, target: Path) -> None:
    """Write the ELF image inside a bzImage, if a program here can unpack it.

    The header has its place (setup_sects, payload_offset, payload_length):
    Documentation/arch/x86/boot.rst of the kernel.
    """
    image = packed.read_bytes()
    setup_sectors = image[0x1F1] or 4
    offset, length = struct.unpack_from("<II", image, 0x248)
    start = (setup_sectors + 1) * 512 + offset
    payload = image[start : start + length]
    # After the compressed stream comes the length of the unpacked image.
    if payload.startswith(b"\xfd7zXZ\0"):
        # Debian 12.
        target.write_bytes(lzma.decompress(payload[:-_LENGTH_SIZE]))
    elif payload.startswith(b"\x28\xb5\x2f\xfd") and (zstd := shutil.which("zstd")):
        # Debian 13; Python has it since 3.14.
        packed_alone = target.with_suffix(".zst")
        packed_alone.write_bytes(payload[:-_LENGTH_SIZE])
        output(zstd, "-q", "-d", "--rm", packed_alone)
