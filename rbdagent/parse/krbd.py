"""What krbd and libceph show in sysfs and debugfs (Documentation/ABI/testing/sysfs-bus-rbd)."""

from __future__ import annotations

from typing import Final, NamedTuple

from rbdagent.errors import ParseError

_HEAD: Final = "-"
"""``current_snap`` of a mapping of the image itself."""

_LINGER_COLUMNS: Final = 7
_REQUEST_COLUMNS: Final = 11
# The client's own keep-alive of a watch is always under way: no sign of a hang.
_KEEP_ALIVE: Final = "watch-ping"


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
    """Object and operation; the client's own keep-alives left out."""

    def of_image(self, *, header: str, data_prefix: str) -> tuple[bool, tuple[str, ...]]:
        """Give what concerns one image.

        Args:
            header: ``rbd_header.<id>``.
            data_prefix: ``rbd_data.<id>``; with a data pool the pool's id stands between.

        Returns:
            Whether there is a watch on the header, and ``OP OBJECT`` of every request of this image
            that is under way: hung only if it is still there at the next look.
        """
        image_id = header.rpartition(".")[2]
        return header in self.lingering, tuple(
            f"{operation} {name}"
            for name, operation in self.under_way
            if name == header or name.startswith(f"{data_prefix}.") or f".{image_id}." in name
        )


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
            name, operation = fields[7], fields[-1]
            if operation != _KEEP_ALIVE:
                under_way.append((name, operation))
    return ClientRequests(lingering=frozenset(lingering), under_way=tuple(under_way))
