"""What krbd and libceph show in sysfs and debugfs (Documentation/ABI/testing/sysfs-bus-rbd)."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from rbdagent.errors import ParseError
from rbdagent.model import INT64_MAX, IoCounters

_HEAD: Final = "-"
"""``current_snap`` of a mapping of an image, not of a snapshot."""

_FEATURES: Final = re.compile(r"0x[0-9a-f]{1,16}")
_OBJECT_MAP: Final = 1 << 3
"""RBD_FEATURE_OBJECT_MAP (drivers/block/rbd_types.h)."""
_READS, _WRITES, _IN_FLIGHT, _DISCARDS, _FLUSHES = 0, 4, 8, 11, 15
_SECTORS_READ, _SECTORS_WRITTEN = 2, 6
"""Columns of a block device's ``stat`` (Documentation/block/stat.rst)."""
_SECTOR_BYTES: Final = 512
"""The unit of the sectors in ``stat``, whatever the device's own block size is."""
_OLDEST_COLUMNS: Final = 11
_MOST_DIGITS: Final = 19
"""No number of 64 bits has more digits; Python refuses to parse one with thousands of them."""
_LINGER_COLUMNS: Final = 7
_REQUEST_COLUMNS: Final = 11
KEEP_ALIVE: Final = "watch-ping"
"""The client sends one for each watch every few seconds. It alone is no sign of a hang."""


def parse_snapshot(text: str) -> str | None:
    """Parse ``current_snap``; None if the image is mapped, not a snapshot."""
    name = text.rstrip("\n")
    return None if name == _HEAD else name


def has_object_map(text: str) -> bool:
    """Return whether ``features`` of a mapping contains object-map; False for any other text."""
    found = _FEATURES.fullmatch(text.strip())
    return found is not None and bool(int(found[0], 16) & _OBJECT_MAP)


def parse_number(text: str, *, where: str) -> int:
    """Parse a decimal or ``0x`` number.

    Raises:
        ParseError: the text is not a number.
    """
    try:
        return int(text.strip(), 0)
    except ValueError as error:
        raise ParseError(what="a number", where=where, text=text, expected="digits") from error


def parse_io_counters(text: str, *, where: str) -> IoCounters:
    """Parse a block device's ``stat``.

    A line has 11 columns, 15 since Linux 4.18 (discards, commit bdca3c87fb7a), 17 since 5.5
    (flushes, commit b6866318657). Further columns are not known yet and are ignored.

    Raises:
        ParseError: a column is missing, or is not a count of `Int64`.
    """
    counts = _counts(text, where=where)
    return IoCounters(
        reads=counts[_READS],
        writes=counts[_WRITES],
        in_flight=counts[_IN_FLIGHT],
        discards=counts.get(_DISCARDS),
        flushes=counts.get(_FLUSHES),
    )


def parse_io_bytes(text: str, *, where: str) -> tuple[int, int]:
    """Parse the bytes read and written from a block device's ``stat``.

    Raises:
        ParseError: a column is missing, or is not a count of `Int64`.
    """
    counts = _counts(text, where=where)
    read, written = counts[_SECTORS_READ] * _SECTOR_BYTES, counts[_SECTORS_WRITTEN] * _SECTOR_BYTES
    if max(read, written) > INT64_MAX:
        raise _not_counters(text, where)
    return read, written


def _counts(text: str, *, where: str) -> dict[int, int]:
    columns = text.split()
    if len(columns) < _OLDEST_COLUMNS or not all(map(_is_count, columns)):
        raise _not_counters(text, where)
    return dict(enumerate(map(int, columns)))


def _not_counters(text: str, where: str) -> ParseError:
    return ParseError(
        what="a block device's counters", where=where, text=text, expected="11 counts or more"
    )


def _is_count(column: str) -> bool:
    is_short_number = len(column) <= _MOST_DIGITS and column.isascii() and column.isdigit()
    return is_short_number and int(column) <= INT64_MAX


def parse_user(config_info: str) -> str | None:
    """Return the CephX user from ``config_info``; the rest is discarded.

    The line is ``MONITORS name=USER,key=client.USER,… POOL IMAGE SNAP``. ``key=`` names a kernel
    key; ``secret=`` would contain the secret.
    """
    fields = config_info.split()
    for option in fields[1].split(",") if len(fields) > 1 else ():
        if option.startswith("name="):
            return option.removeprefix("name=")
    return None


class OsdRequest(NamedTuple):
    """A request of a kernel client, and where it waits."""

    operation: str
    name: str
    """Of the object."""
    osd: str
    """``osd.3``; empty if no OSD serves the placement group (``osd-1``)."""
    group: str
    """The placement group: ``5.0``."""


class ImageRequests(NamedTuple):
    """The watch of one image, and its requests."""

    has_watch: bool
    requests: tuple[str, ...] = ()
    """``OP OBJECT``. Keep-alives are included only if another request is under way."""
    places: tuple[str, ...] = ()
    """``PG 5.0 on osd.3`` of these requests, each once; ``PG 5.0 on no OSD``."""


class ClientRequests(NamedTuple):
    """The OSD requests of one kernel client, for all images that it maps."""

    lingering: frozenset[str]
    """All columns of ``LINGER REQUESTS``; for a watch, they contain the name of the header."""
    under_way: tuple[OsdRequest, ...]

    def of_image(self, *, header: str, data_prefix: str) -> ImageRequests:
        """Return the watch and the requests of one image.

        Args:
            header: ``rbd_header.<id>``.
            data_prefix: ``rbd_data.<id>``; with a data pool, ``rbd_data.<pool id>.<id>``.

        Returns:
            Whether a watch on the header exists, and every request of this image that is under
            way. A request hangs only if the next snapshot still contains it.
        """
        image_id = header.rpartition(".")[2]
        own = tuple(
            one
            for one in self.under_way
            if one.name == header
            or one.name.startswith(f"{data_prefix}.")
            or f".{image_id}." in one.name
        )
        if all(one.operation == KEEP_ALIVE for one in own):
            return ImageRequests(header in self.lingering)
        return ImageRequests(
            header in self.lingering,
            tuple(f"{one.operation} {one.name}" for one in own),
            tuple(dict.fromkeys(f"PG {one.group} on {one.osd or 'no OSD'}" for one in own)),
        )


def parse_osdc(text: str) -> ClientRequests:
    """Parse ``/sys/kernel/debug/ceph/<fsid>.client<id>/osdc``.

    The columns of a request are its number, the OSD, the placement group before and after the
    pool's mask, the up and the acting set, the epoch, the object, flags, attempts and operations
    (dump_target() and dump_request() in net/ceph/debugfs.c).
    """
    lingering: set[str] = set()
    under_way, section = [], ""
    for line in text.splitlines():
        fields = line.split("\t")
        if len(fields) == 1:
            section = line
        elif section.startswith("LINGER") and len(fields) >= _LINGER_COLUMNS:
            lingering.update(fields)
        elif section.startswith("REQUESTS") and len(fields) >= _REQUEST_COLUMNS:
            osd = fields[1].removeprefix("osd")
            under_way.append(
                OsdRequest(
                    operation=fields[-1],
                    name=fields[7],
                    osd=f"osd.{osd}" if _is_count(osd) else "",
                    group=fields[3],
                )
            )
    return ClientRequests(lingering=frozenset(lingering), under_way=tuple(under_way))
