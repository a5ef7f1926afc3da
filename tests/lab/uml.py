"""A kernel of User Mode Linux for the nodes: it runs as a program, without emulation.

It is built once from Debian's source of the kernel. Standard library only, like
:mod:`tests.lab.install`, which calls this.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.lab.apt import Apt
from tests.lab.commands import output
from tests.lab.kernels import unpack
from tests.lab.once import is_made, made_once
from tests.lab.parts import SUITES

if TYPE_CHECKING:
    from tests.lab.parts import Suite

PACKAGES: Final = ("bc", "bison", "flex", "gcc", "libc6-dev", "make", "patch", "xz-utils")
"""What the build needs."""
_SOURCE: Final = "linux-source-7.2"
_CONFIG: Final = Path(__file__).with_name("uml.config")
_PATCH: Final = Path(__file__).with_name("uml.patch")
_BUILD_S: Final = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class UmlKernel:
    """A kernel that was built for ARCH=um; what it needs to boot is built in."""

    program: Path
    all_modules: Path
    """The directory of which the guest makes /lib/modules."""

    @property
    def release(self) -> str:
        """What ``uname -r`` prints."""
        (found,) = self.all_modules.iterdir()
        return found.name


def uml_kernel(cache: Path) -> UmlKernel:
    """Return the kernel, built on first use (20 minutes of processor time).

    Args:
        cache: the project's cache directory.

    Raises:
        LabError: the source is not available, or the build failed.
    """
    made = made_once(cache / "uml", _key(), lambda new: _make(cache, SUITES[-1], new))
    return UmlKernel(program=made / "linux", all_modules=made / "lib" / "modules")


def uml_kernel_is_made(cache: Path) -> bool:
    """Return whether the kernel exists already."""
    return is_made(cache / "uml", _key())


def _key() -> str:
    parts = (_SOURCE.encode(), _CONFIG.read_bytes(), _PATCH.read_bytes())
    return hashlib.sha256(b"\n".join(parts)).hexdigest()


def _make(cache: Path, suite: Suite, directory: Path) -> None:
    apt = Apt(cache, suite)
    apt.update()
    unpack(apt, (_SOURCE,), directory / "package")
    (archive,) = (directory / "package" / "usr" / "src").glob(f"{_SOURCE}.tar.*")
    output("tar", "-x", "-C", directory, "-f", archive)
    source, build = directory / _SOURCE, directory / "build"
    output("patch", "-p1", "-d", source, "-i", _PATCH)
    make = ("make", "--no-print-directory", "-C", source, "ARCH=um", f"O={build}")
    build.mkdir()
    output(*make, f"KCONFIG_ALLCONFIG={_CONFIG}", "alldefconfig")
    output(*make, f"-j{len(os.sched_getaffinity(0))}", "linux", "modules", timeout_s=_BUILD_S)
    shutil.copy(build / "linux", directory / "linux")
    # With modules.dep, and below lib/modules.
    output(*make, f"INSTALL_MOD_PATH={directory}", "modules_install")
    (link,) = (directory / "lib" / "modules").glob("*/build")
    link.unlink()
    for made in (source, build, directory / "package"):
        shutil.rmtree(made)
