"""What krbd and libceph show in sysfs and debugfs (Documentation/ABI/testing/sysfs-bus-rbd)."""

from __future__ import annotations

from typing import Final

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


def parse_osdc(text: str, *, header: str, data_prefix: str) -> tuple[bool, tuple[str, ...]]:
    """Read ``/sys/kernel/debug/ceph/<fsid>.client<id>/osdc`` for one image.

    Args:
        text: the file.
        header: ``rbd_header.<id>``.
        data_prefix: ``rbd_data.<id>``; with a data pool the pool's id stands between.

    Returns:
        Whether ``LINGER REQUESTS`` has a watch on the header, and ``OP OBJECT`` of every request of
        this image that is under way: hung only if it is still there at the next look.
    """
    watched, requests, section = False, [], ""
    image_id = header.rpartition(".")[2]
    for line in text.splitlines():
        fields = line.split("\t")
        if len(fields) == 1:
            section = line
        elif section.startswith("LINGER"):
            watched = watched or (len(fields) >= _LINGER_COLUMNS and header in fields)
        elif section.startswith("REQUESTS") and len(fields) >= _REQUEST_COLUMNS:
            name, operation = fields[7], fields[-1]
            ours = name == header or name.startswith(f"{data_prefix}.") or f".{image_id}." in name
            if ours and operation != _KEEP_ALIVE:
                requests.append(f"{operation} {name}")
    return watched, tuple(requests)
