"""The I/O of the mapped devices of a node, and its rates between two observations.

The kernel counts a request when it is completed, also if it ends with an error
(blk_update_request() in block/blk-mq.c).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct

from rbdagent.correlate.image_identity import identity_of_mapping, mappings_of
from rbdagent.model import DeviceKind, IoBytes, Mapping, NodeView, NotObserved

if TYPE_CHECKING:
    from collections.abc import Mapping as Dict

_FIRST: Final = NotObserved(
    reason="one observation shows no rate", hint="-w observes again every few seconds"
)
_REBOOTED: Final = NotObserved(reason="no earlier observation is of the same boot of the node")
_NEW: Final = NotObserved(reason="no earlier observation has the same mapping")
_RESTARTED: Final = NotObserved(reason="its counters are lower than at the last observation")
_NO_TIME: Final = NotObserved(reason="no time has passed since the last observation")


class DeviceIo(Struct, frozen=True, kw_only=True):
    """The I/O of a device; that of its partitions and of devices stacked on it is part of it."""

    reads: int
    read_bytes: int
    writes: int
    written_bytes: int
    in_flight: int
    """Requests that the driver has and has not completed."""
    is_since_mapping: bool
    """Whether the counters began at 0 with the mapping; if not, they are an upper limit."""


class IoRates(Struct, frozen=True, kw_only=True):
    """Completed I/O per second between two observations."""

    reads: float
    read_bytes: float
    writes: float
    written_bytes: float


def io_of(mapping: Mapping) -> DeviceIo | NotObserved:
    """Return the I/O of a device.

    krbd creates the block device at the mapping, and its counters with it (rbd_init_disk() in
    drivers/block/rbd.c). An nbd device, with its counters, is created when the module is loaded
    or when a connection needs another one, and it stays after a disconnect (nbd_init() and
    nbd_genl_connect() in drivers/block/nbd.c).
    """
    counters, count = mapping.io_counters, mapping.io_bytes
    if isinstance(counters, NotObserved):
        return counters
    if isinstance(count, NotObserved):
        return count
    return DeviceIo(
        reads=counters.reads,
        read_bytes=count.read,
        writes=counters.writes,
        written_bytes=count.written,
        in_flight=counters.in_flight,
        is_since_mapping=mapping.kind is DeviceKind.KRBD,
    )


def io_rates(node: NodeView | None, earlier: NodeView | None) -> Dict[str, IoRates | NotObserved]:
    """Return the rates of each mapped device of a node, by the path of the device.

    Args:
        node: the last observation of the node.
        earlier: the observation before it; None without one.
    """
    known = {mapping.device: mapping for mapping in mappings_of(earlier)}
    unknown = _unknown(node, earlier)
    return {
        mapping.device: unknown or _rates(mapping, known.get(mapping.device))
        for mapping in mappings_of(node)
    }


def _unknown(node: NodeView | None, earlier: NodeView | None) -> NotObserved | None:
    """Return why no rate is known; None if two observations are of one boot."""
    if earlier is None:
        return _FIRST
    if node is None or not node.boot_id or node.boot_id != earlier.boot_id:
        return _REBOOTED
    return None


def _rates(mapping: Mapping, earlier: Mapping | None) -> IoRates | NotObserved:
    if earlier is None or not _is_same(mapping, earlier):
        return _NEW
    counted = [io_of(earlier), io_of(mapping), earlier.io_bytes, mapping.io_bytes]
    match counted:
        case [DeviceIo() as old, DeviceIo() as new, IoBytes() as begun, IoBytes() as ended]:
            return _difference(old, new, ended.uptime_s - begun.uptime_s)
    return next(one for one in counted if isinstance(one, NotObserved))


def _is_same(mapping: Mapping, earlier: Mapping) -> bool:
    """Return whether two devices of one name are one mapping: the kernel reuses the names."""
    return _identity(mapping) == _identity(earlier)


def _identity(mapping: Mapping) -> tuple[object, ...]:
    return (
        mapping.incarnation,
        identity_of_mapping(mapping),
        mapping.snapshot,
        mapping.client_id,
        mapping.server_pid,
    )


def _difference(old: DeviceIo, new: DeviceIo, elapsed_s: float) -> IoRates | NotObserved:
    if elapsed_s <= 0:
        return _NO_TIME
    done = (
        new.reads - old.reads,
        new.read_bytes - old.read_bytes,
        new.writes - old.writes,
        new.written_bytes - old.written_bytes,
    )
    if min(done) < 0:
        return _RESTARTED
    reads, read_bytes, writes, written_bytes = (count / elapsed_s for count in done)
    return IoRates(reads=reads, read_bytes=read_bytes, writes=writes, written_bytes=written_bytes)
