"""What krbd and libceph show in sysfs and debugfs (Documentation/ABI/testing/sysfs-bus-rbd)."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from rbdagent.errors import ParseError
from rbdagent.model import IoCounters

_HEAD: Final = "-"
"""``current_snap`` of a mapping of the image itself."""

_READS, _WRITES, _IN_FLIGHT, _DISCARDS, _FLUSHES = 0, 4, 8, 11, 15
"""Columns of a block device's ``stat`` (Documentation/block/stat.rst)."""
_OLDEST_COLUMNS: Final = 11
_COUNT: Final = re.compile(r"[0-9]{1,20}")
"""An unsigned number of 64 bits; Python refuses to read one of thousands of digits."""
_LINGER_COLUMNS: Final = 7
_REQUEST_COLUMNS: Final = 11
KEEP_ALIVE: Final = "watch-ping"
"""The client's own, of each watch every few seconds: by itself no sign of a hang."""


def parse_snapshot(text: str) -> str | None:
    """Read ``current_snap``: None for the image itself."""
    name = text.rstrip("\n")
    return None if name == _HEAD else name


def parse_number(text: str, *, where: str) -> int:
    """Read a decimal or ``0x`` number.

    Raises:
        ParseError: it is none.
    """
    try:
        return int(text.strip(), 0)
    except ValueError as error:
        raise ParseError(what="a number", where=where, text=text, expected="digits") from error


def parse_io_counters(text: str, *, where: str) -> IoCounters:
    """Read a block device's ``stat``.

    A line has 11 columns, 15 since Linux 4.18 (discards, commit bdca3c87fb7a), 17 since 5.5
    (flushes, commit b6866318657); what follows these is not known yet and not read.

    Raises:
        ParseError: a column is missing, or is no count.
    """
    columns = text.split()
    if len(columns) < _OLDEST_COLUMNS or not all(map(_COUNT.fullmatch, columns)):
        raise ParseError(
            what="a block device's counters", where=where, text=text, expected="11 counts or more"
        )
    counts = dict(enumerate(map(int, columns)))
    return IoCounters(
        reads=counts[_READS],
        writes=counts[_WRITES],
        in_flight=counts[_IN_FLIGHT],
        discards=counts.get(_DISCARDS),
        flushes=counts.get(_FLUSHES),
    )


def parse_user(config_info: str) -> str | None:
    """Read the CephX user out of ``config_info``; nothing else of it is kept.

    The line is ``MONITORS name=USER,key=client.USER,… POOL IMAGE SNAP``; ``key=`` names a kernel
    key, ``secret=`` would be the secret itself.
    """
    fields = config_info.split()
    for option in fields[1].split(",") if len(fields) > 1 else ():
        if option.startswith("name="):
            return option.removeprefix("name=")
    return None


class ClientRequests(NamedTuple):
    """What one client of the kernel's asks of the OSDs, for all images that it maps."""

    lingering: frozenset[str]
    """The columns of ``LINGER REQUESTS``: a watch's is among them by its header's name."""
    under_way: tuple[tuple[str, str], ...]
    """Object and operation."""

    def of_image(self, *, header: str, data_prefix: str) -> tuple[bool, tuple[str, ...]]:
        """Give what concerns one image.

        Args:
            header: ``rbd_header.<id>``.
            data_prefix: ``rbd_data.<id>``; with a data pool the pool's id stands between.

        Returns:
            Whether there is a watch on the header, and ``OP OBJECT`` of every request of this image
            that is under way: hung only if it is still there at the next look. A keep-alive counts
            only beside another request.
        """
        image_id = header.rpartition(".")[2]
        own = tuple(
            (operation, name)
            for name, operation in self.under_way
            if name == header or name.startswith(f"{data_prefix}.") or f".{image_id}." in name
        )
        is_idle = all(operation == KEEP_ALIVE for operation, _ in own)
        return header in self.lingering, () if is_idle else tuple(map(" ".join, own))


def parse_osdc(text: str) -> ClientRequests:
    """Read ``/sys/kernel/debug/ceph/<fsid>.client<id>/osdc``."""
    lingering: set[str] = set()
    under_way, section = [], ""
    for line in text.splitlines():
        fields = line.split("\t")
        if len(fields) == 1:
            section = line
        elif section.startswith("LINGER") and len(fields) >= _LINGER_COLUMNS:
            lingering.update(fields)
        elif section.startswith("REQUESTS") and len(fields) >= _REQUEST_COLUMNS:
            under_way.append((fields[7], fields[-1]))
    return ClientRequests(lingering=frozenset(lingering), under_way=tuple(under_way))
