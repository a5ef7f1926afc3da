"""Addresses of Ceph entities, as krbd, watchers, lockers and the blocklist write them."""

from __future__ import annotations

import ipaddress
import re
from typing import Final

from rbdagent.errors import ParseError
from rbdagent.model import BlocklistEntry, EntityAddress

# The type (v1:, v2:, any:) depends on who prints it; the client is the same.
_ADDRESS: Final = re.compile(
    r"(?:(?:v1|v2|any|legacy|msgr2):)?"
    r"(?:\[(?P<six>[0-9A-Fa-f:.]+)\]|(?P<four>[0-9.]+))"
    r":(?P<port>[0-9]{1,5})/(?P<nonce>[0-9]{1,20})"
)
_CLIENT: Final = re.compile(r"client\.?(?P<id>[0-9]{1,20})")
_RANGE: Final = "cidr:"
_EXPECTED: Final = "IP:PORT/NONCE, IPv6 in brackets"


def parse_address(text: str, *, where: str) -> EntityAddress:
    """Read ``1.2.3.4:0/123``, ``[fd00::1]:0/123``, with or without ``v1:``, ``v2:`` or ``any:``.

    Raises:
        ParseError: the text is not such an address.
    """
    match = _ADDRESS.fullmatch(text.strip())
    if match is None:
        raise _unreadable(text, where)
    try:
        ip = ipaddress.ip_address(match["six"] or match["four"])
    except ValueError as error:
        raise _unreadable(text, where) from error
    return EntityAddress(ip=str(ip), port=int(match["port"]), nonce=int(match["nonce"]))


def parse_address_vector(text: str, *, where: str) -> EntityAddress:
    """Read one address or the first of ``[v2:…,v1:…]`` (msgr2 entities list both).

    Raises:
        ParseError: it is neither.
    """
    inner = text.strip()
    if inner.startswith("[v"):
        inner = inner[1:-1].split(",")[0]
    return parse_address(inner, where=where)


def parse_blocklist_entry(text: str, *, until: str, where: str) -> BlocklistEntry:
    """Read ``IP:PORT/NONCE``, ``IP:0/0`` (a whole host) or ``cidr:IP:0/BITS`` (a range).

    Raises:
        ParseError: the text is none of them.
    """
    if text.startswith(_RANGE):
        return parse_blocklist_range(text, until=until, where=where)
    address = parse_address(text, where=where)
    return BlocklistEntry(network=address.ip, port=address.port, nonce=address.nonce, until=until)


def parse_blocklist_range(text: str, *, until: str, where: str) -> BlocklistEntry:
    """Read ``IP:0/BITS``, with or without ``cidr:``.

    Ceph prints a range in the form of a client (``entity_addr_t`` with ``TYPE_CIDR``,
    src/msg/msg_types.h): the prefix length of the range is in the place of the nonce.

    Raises:
        ParseError: the text is not such a range.
    """
    address = parse_address(text.strip().removeprefix(_RANGE), where=where)
    try:
        network = ipaddress.ip_interface(f"{address.ip}/{address.nonce}")
    except ValueError as error:
        raise ParseError(
            what="a blocklisted range", where=where, text=text, expected="IP:0/BITS"
        ) from error
    return BlocklistEntry(network=str(network), until=until)


def parse_client(text: str, *, where: str) -> int:
    """Read ``client4118`` (krbd) or ``client.4118`` (Ceph).

    Raises:
        ParseError: it is neither.
    """
    found = _CLIENT.fullmatch(text.strip())
    if found is None:
        raise ParseError(
            what="a client id", where=where, text=text, expected="client4118 or client.4118"
        )
    return int(found["id"])


def spelled(ip: str) -> str:
    """Return the canonical spelling of an IP address; return other text unchanged."""
    if ":" not in ip:
        # An IPv4 address has one spelling.
        return ip
    try:
        return str(ipaddress.ip_address(ip))
    except ValueError:
        return ip


def same_ip(one: str, other: str) -> bool:
    """Compare IP addresses in any spelling; compare other texts as they are."""
    return one == other or spelled(one) == spelled(other)


def _unreadable(text: str, where: str) -> ParseError:
    return ParseError(what="an entity address", where=where, text=text, expected=_EXPECTED)
