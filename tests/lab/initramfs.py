"""The initial RAM file system of the node VMs: busybox, seven modules, and files for this boot."""

from __future__ import annotations

import lzma
import stat
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from tests.lab.errors import LabError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

BUSYBOX = Path("/bin/busybox")
GIVEN = "given"
"""The guest finds the content of this directory of the archive below its root."""

_GUEST = Path(__file__).parent / "guest"
_TRAILER = "TRAILER!!!"

# Only what is needed to reach the host's files: from there modprobe finds the rest.
_MODULES = ("virtio_pci", "9pnet_virtio", "9p", "overlay")
_DISK_MODULES = ("virtio_blk", "ext4")
# ext4 asks for crc32c by that name, which no dependency names. Kernels 7.x have no such module: a
# library that ext4 depends on does the same.
_DISK_MODULES_OF_OLD = ("crc32c_generic",)


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """A regular file of the archive."""

    data: bytes
    mode: int = 0o644


def initramfs(modules: Path | None, given: Mapping[str, File], *, disk: bool = False) -> bytes:
    """Return the archive for one boot.

    Args:
        modules: the kernel's module directory, with modules.dep; None if all are built in.
        given: absolute path in the guest -> its content.
        disk: the guest's own layer is on a disk.

    Raises:
        LabError: a module is missing.
    """
    files = {
        "init": File(data=(_GUEST / "init.sh").read_bytes(), mode=0o755),
        "bin/busybox": File(data=BUSYBOX.read_bytes(), mode=0o755),
    }
    wanted: tuple[str, ...] = _MODULES
    if disk and modules is not None:
        wanted += tuple(name for name in _DISK_MODULES_OF_OLD if has_module(modules, name))
        wanted += _DISK_MODULES
    order = () if modules is None else load_order(modules, wanted)
    files["modules/order"] = File(data="".join(f"{_stem(path)}.ko\n" for path in order).encode())
    for path in order:
        files[f"modules/{_stem(path)}.ko"] = File(data=_module(path))
    for name, file in given.items():
        files[f"{GIVEN}{name}"] = file
    return archive(files)


def archive(files: Mapping[str, File]) -> bytes:
    """Return a cpio archive (``newc``, the kernel's) of ``files`` and the directories they need."""
    members: dict[str, tuple[int, bytes]] = {}
    for name, file in files.items():
        for parent in reversed(PurePosixPath(name).parents[:-1]):
            members[str(parent)] = (stat.S_IFDIR | 0o755, b"")
        members[name] = (stat.S_IFREG | file.mode, file.data)
    members[_TRAILER] = (0, b"")
    return b"".join(
        _member(number, name, mode, data)
        for number, (name, (mode, data)) in enumerate(members.items(), start=1)
    )


def _member(number: int, name: str, mode: int, data: bytes) -> bytes:
    """Return a member (the kernel's Documentation/driver-api/early-userspace/buffer-format.rst)."""
    encoded = name.encode() + b"\0"
    links, owner, time, device = 1, 0, 0, 0
    fields = (
        *(number, mode, owner, owner, links, time, len(data)),
        *(device, device, device, device, len(encoded), 0),
    )
    header = b"070701" + b"".join(b"%08X" % field for field in fields) + encoded
    return _padded(header) + _padded(data)


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 4)


def has_module(modules: Path, name: str) -> bool:
    """Return whether the kernel has a module of that name, as a file."""
    return any(
        _stem(Path(line.partition(":")[0])) == name
        for line in (modules / "modules.dep").read_text().splitlines()
    )


def load_order(modules: Path, wanted: Sequence[str]) -> tuple[Path, ...]:
    """Return the files of the modules ``wanted`` and of all they need, in the order of loading.

    Raises:
        LabError: a module is neither in modules.dep nor built into the kernel.
    """
    needs: dict[Path, list[Path]] = {}
    for line in (modules / "modules.dep").read_text().splitlines():
        path, _, needed = line.partition(":")
        needs[modules / path] = [modules / dependency for dependency in needed.split()]
    by_name = {_stem(path): path for path in needs}
    builtin = {_stem(Path(line)) for line in (modules / "modules.builtin").read_text().split()}
    order: dict[Path, None] = {}

    def add(path: Path) -> None:
        if path not in order:
            for dependency in needs[path]:
                add(dependency)
            order[path] = None

    for name in wanted:
        if name in by_name:
            add(by_name[name])
        elif name not in builtin:
            raise LabError(f"{modules}: the kernel has no module {name}")
    return tuple(order)


def _stem(path: Path) -> str:
    """Return a module's name: the kernel treats - and _ as equal."""
    return path.name.partition(".ko")[0].replace("-", "_")


def _module(path: Path) -> bytes:
    # Debian 13 compresses modules; busybox's insmod does not know how.
    data = path.read_bytes()
    return lzma.decompress(data) if path.suffix == ".xz" else data
