"""Block devices of RBD images in sysfs, and the devices that the kernel stacks on them."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from rbdagent.collect.files import LISTS, inode_of, listed, names_in, read_text, text_or_none
from rbdagent.errors import ParseError
from rbdagent.model import (
    BlockHolder,
    BlockHolderKind,
    DeviceKind,
    DeviceNumber,
    ImageSpec,
    IoBytes,
    IoCounters,
    Mapping,
    NbdState,
    NotObserved,
    derived,
    first_unobserved,
)
from rbdagent.parse.address import parse_address, parse_client
from rbdagent.parse.krbd import (
    ClientRequests,
    ImageRequests,
    has_object_map,
    parse_io_bytes,
    parse_io_counters,
    parse_number,
    parse_osdc,
    parse_snapshot,
    parse_user,
)
from rbdagent.parse.rbd_nbd import served_image

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from rbdagent.model import ProcessRef

SECTOR_BYTES: Final = 512
_NBD: Final = re.compile(r"nbd[0-9]+")
_DEBUGFS_CURE: Final = "mount debugfs (mount -t debugfs none /sys/kernel/debug) and run as root"


Nodes = tuple[str, ...] | NotObserved
"""The names in the host's /dev."""


class BlockDevice(Struct, frozen=True, kw_only=True):
    """A mapped device with all devices stacked on it, which a mount or descriptor may refer to."""

    mapping: Mapping
    numbers: frozenset[DeviceNumber]
    """The device, its partitions, and its dm and md children."""
    names: frozenset[str]
    """Kernel names of these devices: ``rbd0``, ``rbd0p1``, ``dm-0``."""
    node_paths: frozenset[str]
    """Paths of these devices below /dev, including the device mapper's names."""
    by_name: tuple[tuple[str, DeviceNumber], ...]


def observe_krbd(sysfs: Path, host_root: Path) -> tuple[BlockDevice, ...] | NotObserved:
    """Read every ``/sys/bus/rbd/devices/N``; NotObserved if sysfs is missing."""
    bus = sysfs / "bus" / "rbd" / "devices"
    names = names_in(bus)
    if isinstance(names, NotObserved):
        return names
    if names is None:
        if names_in(sysfs / "kernel") is None:
            return NotObserved(
                reason=f"{sysfs}: no sysfs is mounted there",
                hint="pass --sysfs with the path of the host's /sys",
            )
        return ()
    nodes = _nodes(host_root)
    devices = (_krbd(sysfs, nodes, int(name)) for name in sorted(names, key=int) if name.isdigit())
    return tuple(device for device in devices if device is not None)


def without_unmapped(devices: tuple[BlockDevice, ...], sysfs: Path) -> tuple[BlockDevice, ...]:
    """Return the devices without those of krbd that were unmapped since they were read.

    The kernel removes the device first, and then its client with the debugfs files, unless another
    device has the client (do_rbd_remove() in drivers/block/rbd.c). So where such a file is missing
    because of an unmap, the device is missing too.
    """
    names = names_in(sysfs / "bus" / "rbd" / "devices")
    if isinstance(names, NotObserved):
        return devices
    mapped = frozenset(names or ())
    return tuple(
        device
        for device in devices
        if device.mapping.kind is not DeviceKind.KRBD or str(device.mapping.device_id) in mapped
    )


def module_loaded(sysfs: Path) -> bool:
    """Return whether the rbd module is loaded: its bus exists."""
    return names_in(sysfs / "bus" / "rbd") is not None


def _krbd(sysfs: Path, nodes: Nodes, number: int) -> BlockDevice | None:
    """Read one device; None if it was unmapped in the meantime."""
    directory = f"{sysfs}/bus/rbd/devices/{number}"
    read = {
        name: read_text(f"{directory}/{name}")
        for name in (
            "pool", "pool_id", "pool_ns", "name", "image_id", "client_id", "client_addr",
            "cluster_fsid", "current_snap", "snap_id", "size", "major", "minor", "config_info",
            "features",
        )
    }  # fmt: skip
    if read["name"] is None or read["pool"] is None or read["major"] is None:
        return None
    text = {name: value for name, value in read.items() if isinstance(value, str)}
    kernel_name, where = f"rbd{number}", directory
    unread = first_unobserved(read.values())
    spec: ImageSpec | NotObserved
    if "pool" in text and "name" in text:
        spec = ImageSpec(pool=text["pool"], namespace=text.get("pool_ns", ""), name=text["name"])
    else:
        spec = unread or NotObserved(reason=f"{directory}: no pool and name")
    client = text.get("client_id")
    address = text.get("client_addr")
    snapshot = parse_snapshot(text.get("current_snap", "-"))
    io_counters, io_bytes = read_io(sysfs, kernel_name)
    mapping = Mapping(
        kind=DeviceKind.KRBD,
        device_id=number,
        device=f"/dev/{kernel_name}",
        number=_number_of(sysfs, kernel_name)
        or DeviceNumber(
            major=parse_number(text["major"], where=where),
            minor=parse_number(text.get("minor", "0"), where=where),
        ),
        spec=spec,
        image_id=text.get("image_id") or None,
        pool_id=parse_number(text["pool_id"], where=where) if text.get("pool_id") else None,
        fsid=text.get("cluster_fsid") or None,
        snapshot=snapshot,
        snapshot_id=parse_number(text["snap_id"], where=where)
        if snapshot is not None and text.get("snap_id")
        else None,
        client_id=parse_client(client, where=f"{where}/client_id") if client else None,
        client_address=parse_address(address, where=f"{where}/client_addr") if address else None,
        user=parse_user(text.get("config_info", "")),
        read_only=_read_only(sysfs, kernel_name),
        size_bytes=parse_number(text["size"], where=where) if text.get("size") else None,
        has_object_map=has_object_map(text.get("features", "")),
        device_node_present=_node_present(nodes, kernel_name),
        incarnation=_incarnation(sysfs, directory, kernel_name),
        io_counters=io_counters,
        io_bytes=io_bytes,
    )
    return _with_stack(sysfs, mapping)


def observe_nbd(sysfs: Path, host_root: Path) -> tuple[BlockDevice, ...]:
    """Read every connected nbd device; only its process and its backend identify the image."""
    found = []
    nodes = _nodes(host_root)
    for name in listed(sysfs / "block"):
        if not _NBD.fullmatch(name):
            continue
        pid = text_or_none(sysfs / "block" / name / "pid")
        if pid is None:
            # Not connected: the kernel creates the attribute at connect and removes it at
            # disconnect (nbd_start_device() and nbd_config_put() in drivers/block/nbd.c).
            continue
        size = text_or_none(sysfs / "block" / name / "size")
        io_counters, io_bytes = read_io(sysfs, name)
        mapping = Mapping(
            kind=DeviceKind.NBD,
            device_id=int(name.removeprefix("nbd")),
            device=f"/dev/{name}",
            number=_number_of(sysfs, name) or DeviceNumber(major=43, minor=0),
            spec=NotObserved(reason=f"{name}: sysfs does not name the image of an nbd device"),
            image_id=None,
            pool_id=None,
            fsid=None,
            read_only=_read_only(sysfs, name),
            size_bytes=int(size) * SECTOR_BYTES if size and size.isdigit() else None,
            device_node_present=_node_present(nodes, name),
            io_counters=io_counters,
            io_bytes=io_bytes,
            nbd=NbdState(
                recorded_pid=int(pid) if pid.isdigit() else None,
                backend=text_or_none(sysfs / "block" / name / "backend") or None,
                process=None,
            ),
        )
        found.append(_with_stack(sysfs, mapping))
    return tuple(found)


def _incarnation(sysfs: Path, directory: str, kernel_name: str) -> str | None:
    """Return a value that distinguishes this device from an earlier one with the same number.

    ``diskseq`` counts disks since boot (Linux 5.15, commit cf179948554a). Earlier kernels have the
    inode of the device's directory in sysfs: kernfs assigns inodes in sequence, and does not reuse
    one immediately (Linux 4.14, commit 4a3ef68acacf).
    """
    sequence = text_or_none(f"{sysfs}/block/{kernel_name}/diskseq")
    if sequence:
        return f"diskseq:{sequence}"
    inode = inode_of(directory)
    return None if inode is None else f"sysfs:{inode}"


def _number_of(sysfs: Path, kernel_name: str) -> DeviceNumber | None:
    """Read ``dev`` of the block device: the bus has only the first minor of the driver."""
    text = text_or_none(f"{sysfs}/block/{kernel_name}/dev")
    if text is None:
        text = text_or_none(f"{sysfs}/class/block/{kernel_name}/dev")
    major, _, minor = (text or "").partition(":")
    if not (major.isdigit() and minor.isdigit()):
        return None
    return DeviceNumber(major=int(major), minor=int(minor))


def _read_only(sysfs: Path, kernel_name: str) -> bool | NotObserved:
    text = read_text(f"{sysfs}/block/{kernel_name}/ro")
    if isinstance(text, NotObserved):
        return text
    if text is None:
        return NotObserved(reason=f"{sysfs}/block/{kernel_name}/ro: no such attribute")
    return text == "1"


def read_io(
    sysfs: Path, kernel_name: str
) -> tuple[IoCounters | NotObserved, IoBytes | NotObserved]:
    """Read the counters of completed I/O. Reading sysfs causes no I/O on the device."""
    text = _stat(sysfs, kernel_name)
    if isinstance(text, NotObserved):
        return text, text
    where, uptime_s = f"{sysfs}/block/{kernel_name}/stat", time.clock_gettime(time.CLOCK_BOOTTIME)
    try:
        counters = parse_io_counters(text, where=where)
    except ParseError as error:
        return NotObserved(reason=str(error)), NotObserved(reason=str(error))
    try:
        read, written = parse_io_bytes(text, where=where)
    except ParseError as error:
        return counters, NotObserved(reason=str(error))
    return counters, IoBytes(read=read, written=written, uptime_s=uptime_s)


def _stat(sysfs: Path, kernel_name: str) -> str | NotObserved:
    """Read ``stat`` of a block device, unless the kernel does not count.

    With ``queue/iostats`` at 0 the kernel counts nothing, and I/O does not change the counters
    (Documentation/ABI/stable/sysfs-block).
    """
    block = f"{sysfs}/block/{kernel_name}"
    switch = read_text(f"{block}/queue/iostats")
    if isinstance(switch, NotObserved):
        return switch
    if switch == "0":
        return NotObserved(
            reason=f"{block}/queue/iostats is 0: the kernel does not count its I/O",
            hint=f"echo 1 >{block}/queue/iostats",
        )
    text = read_text(f"{block}/stat")
    return NotObserved(reason=f"{block}/stat: no such attribute") if text is None else text


def _nodes(host_root: Path) -> Nodes:
    """List the host's /dev; a missing directory is "not observed", because every host has one."""
    nodes = names_in(host_root / "dev")
    if nodes is None:
        return NotObserved(
            reason=f"{host_root / 'dev'}: no such directory",
            hint="pass --host-root with the path below which the host's /dev is",
        )
    return nodes


def _node_present(nodes: Nodes, kernel_name: str) -> bool | NotObserved:
    return derived(nodes, lambda names: kernel_name in names)


def _with_stack(sysfs: Path, mapping: Mapping) -> BlockDevice:
    """Return the device with its partitions, and with all devices found through ``holders/``."""
    name = mapping.kernel_name
    partitions = tuple(
        child for child in listed(f"{sysfs}/block/{name}") if child.startswith(f"{name}p")
    )
    numbers = {name: mapping.number}
    for child in partitions:
        text = text_or_none(f"{sysfs}/block/{name}/{child}/dev")
        if text is not None:
            major, minor = text.split(":")
            numbers[child] = DeviceNumber(major=int(major), minor=int(minor))
    holders: list[BlockHolder] = []
    failure: NotObserved | None = None
    waiting = [(name, f"{sysfs}/block/{name}")]
    waiting += [(child, f"{sysfs}/block/{name}/{child}") for child in partitions]
    while waiting:
        below, directory = waiting.pop(0)
        above = names_in(f"{directory}/holders")
        if isinstance(above, NotObserved):
            failure = above
            continue
        for holder_name in above or ():
            holder = _holder(sysfs, holder_name, of=below)
            if holder in holders:
                continue
            holders.append(holder)
            if holder.device is not None:
                numbers[holder_name] = holder.device
            waiting.append((holder_name, f"{sysfs}/block/{holder_name}"))
    labels = {holder.label for holder in holders if holder.label}
    return BlockDevice(
        mapping=_replace_holders(mapping, numbers, partitions, holders, failure),
        numbers=frozenset(numbers.values()),
        names=frozenset(numbers),
        node_paths=frozenset(
            {f"/{name}" for name in numbers} | {f"/mapper/{label}" for label in labels}
        ),
        by_name=tuple(sorted(numbers.items())),
    )


def _replace_holders(
    mapping: Mapping,
    numbers: dict[str, DeviceNumber],
    partitions: Sequence[str],
    holders: Sequence[BlockHolder],
    failure: NotObserved | None,
) -> Mapping:
    return replace(
        mapping,
        partitions=tuple(numbers[child] for child in partitions if child in numbers),
        holders=failure if failure is not None and not holders else tuple(holders),
    )


def _holder(sysfs: Path, name: str, *, of: str) -> BlockHolder:
    directory = sysfs / "block" / name
    label = text_or_none(directory / "dm" / "name") or ""
    uuid = text_or_none(directory / "dm" / "uuid") or ""
    if uuid.startswith("CRYPT-"):
        kind = BlockHolderKind.LUKS
    elif label or name.startswith("dm-"):
        kind = BlockHolderKind.DM
    elif name.startswith("md"):
        kind = BlockHolderKind.MD
    else:
        kind = BlockHolderKind.OTHER
    size = text_or_none(directory / "size") if kind is BlockHolderKind.LUKS else None
    return BlockHolder(
        kind=kind,
        name=name,
        device=_number_of(sysfs, name),
        label=label,
        of=of,
        size_bytes=int(size) * SECTOR_BYTES if size and size.isdigit() else None,
    )


def observe_loops(sysfs: Path) -> tuple[tuple[BlockHolder, str], ...]:
    """Return every loop device with its backing file."""
    found = []
    for name in listed(sysfs / "block"):
        if not name.startswith("loop"):
            continue
        backing = text_or_none(sysfs / "block" / name / "loop" / "backing_file")
        if backing:
            holder = BlockHolder(
                kind=BlockHolderKind.LOOP,
                name=name,
                device=_number_of(sysfs, name),
                label=backing,
            )
            found.append((holder, backing.removesuffix(" (deleted)")))
    return tuple(found)


def observe_swaps(procfs: Path) -> tuple[str, ...] | NotObserved:
    """Return the path of every swap area, from ``/proc/swaps``."""
    return derived(read_text(procfs / "swaps"), _swap_areas)


def _swap_areas(text: str | None) -> tuple[str, ...]:
    lines = (text or "").splitlines()[1:]
    return tuple(line.split()[0] for line in lines if line.split())


def observe_kernel_traces(sysfs: Path, procfs: Path) -> Iterator[tuple[str, str]]:
    """Yield device and directory of every file system in the kernel, even if it is unmounted."""
    for fs_type in ("ext4", "xfs", "f2fs"):
        for name in listed(sysfs / "fs" / fs_type):
            yield name, f"/sys/fs/{fs_type}/{name}"
    for uuid in listed(sysfs / "fs" / "btrfs"):
        for name in listed(sysfs / "fs" / "btrfs" / uuid / "devices"):
            yield name, f"/sys/fs/btrfs/{uuid}/devices/{name}"
    for name in listed(procfs / "fs" / "ext4"):
        yield name, f"/proc/fs/ext4/{name}"
    for journal in listed(procfs / "fs" / "jbd2"):
        yield journal.rpartition("-")[0], f"/proc/fs/jbd2/{journal}"


Clients = dict[tuple[str | None, int | None], ClientRequests | NotObserved]
"""By cluster and client id: a client that maps many images lists all of them in one file."""


def observe_clients(sysfs: Path, mappings: Iterable[Mapping]) -> Clients:
    """Read the kernel's list of watches and pending requests for the clients of the mappings.

    osdc_show() in net/ceph/debugfs.c prints it (recording 29-debugfs).
    """
    clients = {
        (mapping.fsid, mapping.client_id) for mapping in mappings if mapping.kind is DeviceKind.KRBD
    }
    return {
        (fsid, client): _requests(f"{sysfs}/kernel/debug/ceph/{fsid}.client{client}/osdc")
        for fsid, client in clients
        if fsid is not None and client is not None
    }


def _requests(path: str) -> ClientRequests | NotObserved:
    text = read_text(path, LISTS)
    if isinstance(text, str):
        return parse_osdc(text)
    return text or NotObserved(reason=f"{path}: no such file", hint=_DEBUGFS_CURE)


def requests_of(mapping: Mapping, clients: Clients) -> ImageRequests | NotObserved:
    """Return whether a mapping's client watches the header, and its pending requests."""
    missing = NotObserved(reason=f"{mapping.device}: its client is unknown")
    if mapping.kind is not DeviceKind.KRBD:
        missing = NotObserved(
            reason="rbd-nbd runs in user space: the kernel has no list of its requests"
        )
    requests = clients.get((mapping.fsid, mapping.client_id), missing)
    if isinstance(requests, NotObserved):
        return requests
    if mapping.image_id is None:
        name = "" if isinstance(mapping.spec, NotObserved) else mapping.spec.name
        return requests.of_image(header=f"{name}.rbd", data_prefix=f"rb.{name}")
    image_id = mapping.image_id
    return requests.of_image(header=f"rbd_header.{image_id}", data_prefix=f"rbd_data.{image_id}")


def nbd_image(process: ProcessRef, arguments: Sequence[str]) -> ImageSpec | NotObserved:
    """Return the image that an rbd-nbd process serves, from its arguments."""
    unknown = NotObserved(
        reason=f"the command line of pid {process.pid} does not show which image of which pool",
        hint="rbd-nbd map POOL/IMAGE names both",
    )
    return served_image(arguments) or unknown
