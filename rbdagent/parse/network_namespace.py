"""Addresses, routes and TCP connections of a network namespace: files of ``/proc/PID/net``.

Every process may read them, and they show the namespace of process PID (proc_tgid_net_lookup() in
fs/proc/proc_net.c). Rules (``ip rule``), firewalls and the MTU of an interface are in none of them.
"""

from __future__ import annotations

import ipaddress
import re
import sys
from ipaddress import IPv4Address, IPv6Address
from typing import TYPE_CHECKING, Final, NamedTuple

from rbdagent.errors import ParseError
from rbdagent.model import RouteKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

Address = IPv4Address | IPv6Address
_FORWARDING: Final = frozenset({"UNICAST", "LOCAL"})
_REJECTING: Final = frozenset({"BLACKHOLE", "UNREACHABLE", "PROHIBIT"})
"""connect(2) fails with EINVAL, EHOSTUNREACH and EACCES (fib_props in net/ipv4/fib_semantics.c;
measured on Linux 6.18). The other types lead to no machine, or to another table (THROW)."""
_NAMESPACE: Final = re.compile(r"net:\[\d{1,20}\]", re.ASCII)
_GATEWAY: Final = 0x0002
_REJECT: Final = 0x0200
_LOCAL: Final = 0x80000000
"""RTF_GATEWAY, RTF_REJECT (include/uapi/linux/route.h), RTF_LOCAL (ipv6_route.h)."""
_NULL_METRIC: Final = 0xFFFFFFFF
"""Of the entry at the root of each table, which is no route (ip6_null_entry, net/ipv6/route.c)."""
_COLUMNS: Final = {"route": 11, "ipv6_route": 10, "tcp": 10}
SYN_SENT: Final = "02"
ESTABLISHED: Final = "01"
"""States of a socket (include/net/tcp_states.h)."""


class Route(NamedTuple):
    """One route of one table."""

    network: int
    length: int
    """Of the prefix."""
    kind: RouteKind
    table: str = ""
    """``Main``, ``Local``, ``Id 77``; empty for IPv6, whose file does not name the tables."""
    interface: str = ""
    is_direct: bool = False
    """Whether the network is on the link, without a gateway."""

    def covers(self, address: Address) -> bool:
        """Return whether an address of the same family is in its network."""
        shift = address.max_prefixlen - self.length
        return int(address) >> shift == self.network >> shift


class Connection(NamedTuple):
    """A TCP connection, or an attempt to make one."""

    ip: str
    port: int
    """Of the peer."""
    state: str
    retransmits: int
    """How often the oldest packet without an answer was sent again; 0 after any answer."""


def local_addresses(fib_trie: str, if_inet6: str) -> tuple[str, ...]:
    """Return the addresses of a namespace, from its ``fib_trie`` and ``if_inet6``.

    Raises:
        ParseError: a line of if_inet6 does not begin with an address.
    """
    found = set()
    previous = ""
    for line in fib_trie.splitlines():
        words = line.split()
        if words[:1] == ["/32"] and "LOCAL" in words:
            found.add(previous)
        if len(words) > 1 and words[0] == "|--":
            previous = words[1]
    for line in if_inet6.splitlines():
        words = line.split()
        number = _hexadecimal(words[0] if words else "", 128, "if_inet6")
        found.add(str(IPv6Address(number)))
    return tuple(sorted(found))


def parse_fib_trie(text: str) -> tuple[Route, ...]:
    """Parse ``fib_trie``: the IPv4 routes of all tables, without their interfaces.

    A leaf has the routes of one network below it (fib_trie_seq_show() in net/ipv4/fib_trie.c).

    Raises:
        ParseError: the address of a leaf, or the length of a prefix, is none.
    """
    found = []
    table, network = "", 0
    for line in text.splitlines():
        words = line.split()
        if line[:1].strip():
            table = line.strip().rstrip(":")
        elif len(words) > 1 and words[0] == "|--":
            network = int(_four(words[1]))
        elif len(words) > 2 and words[0].startswith("/"):
            length = _number(words[0][1:], 32, "fib_trie")
            kind = _kind(words)
            if kind is not None:
                is_direct = "link" in words
                found.append(Route(network, length, kind, table=table, is_direct=is_direct))
    return tuple(found)


def _kind(words: list[str]) -> RouteKind | None:
    """Return the kind of a route; None if it leads to no machine."""
    if not _FORWARDING.isdisjoint(words):
        return RouteKind.FORWARDED
    return None if _REJECTING.isdisjoint(words) else RouteKind.REJECTED


def parse_ipv4_interfaces(text: str) -> tuple[Route, ...]:
    """Parse ``route``: the IPv4 routes of the main table, with their interfaces.

    The numbers are in the order of bytes of this machine (fib_route_seq_show()).

    Raises:
        ParseError: a line has fewer columns, or a column is no number.
    """
    found = []
    for words in _rows(text, "route"):
        network = _in_own_order(words[1])
        mask = _in_own_order(words[7])
        if words[0] != "*":
            length = mask.bit_count()
            found.append(Route(network, length, RouteKind.FORWARDED, interface=words[0]))
    return tuple(found)


def parse_ipv6_routes(text: str) -> tuple[Route, ...]:
    """Parse ``ipv6_route``: the IPv6 routes of all tables (rt6_info_route(), net/ipv6/route.c).

    Raises:
        ParseError: a line has fewer columns, or a column is no number.
    """
    found = []
    for line in text.splitlines():
        words = _columns(line, "ipv6_route")
        network = _hexadecimal(words[0], 128, "ipv6_route")
        length = _hexadecimal(words[1], 8, "ipv6_route")
        metric = _hexadecimal(words[5], 32, "ipv6_route")
        flags = _hexadecimal(words[8], 32, "ipv6_route")
        if length > 128:
            raise _unreadable("ipv6_route", words[1])
        if metric == _NULL_METRIC and flags & _REJECT:
            continue
        kind = RouteKind.REJECTED if flags & _REJECT else RouteKind.FORWARDED
        is_direct = not flags & (_GATEWAY | _REJECT | _LOCAL) and length > 0
        found.append(Route(network, length, kind, interface=words[9], is_direct=is_direct))
    return tuple(found)


class Way(NamedTuple):
    """Where a namespace sends the packets for an address."""

    kind: RouteKind | None
    """None if the tables contradict each other: the rules decide, which no file shows."""
    interface: str = ""
    is_direct: bool = False


def way_to(address: Address, routes: Iterable[Route], interfaces: Iterable[Route] = ()) -> Way:
    """Return where a namespace sends the packets for an address.

    Args:
        address: the destination.
        routes: those of its family, of all tables.
        interfaces: those that name an interface, if ``routes`` do not.
    """
    best: dict[str, Route] = {}
    kinds: set[RouteKind] = set()
    for route in routes:
        if route.covers(address):
            if not route.table:
                # Each of them may be of another table.
                kinds.add(route.kind)
            if route.table not in best or route.length > best[route.table].length:
                best[route.table] = route
    kinds |= {route.kind for route in best.values()}
    if not kinds:
        return Way(RouteKind.NONE)
    if len(kinds) > 1:
        return Way(None)
    (kind,) = kinds
    if kind is RouteKind.REJECTED:
        return Way(kind)
    named = [route for route in (*interfaces, *best.values()) if route.covers(address)]
    longest = max(named, key=lambda route: (bool(route.interface), route.length))
    is_direct = all(route.is_direct for route in best.values())
    return Way(kind, longest.interface, is_direct)


def parse_tcp(text: str) -> tuple[Connection, ...]:
    """Parse ``tcp`` or ``tcp6``: connections and attempts, without listeners and ended ones.

    Raises:
        ParseError: a line has fewer columns, or a column is no number.
    """
    found = []
    for words in _rows(text, "tcp"):
        if words[3] not in {SYN_SENT, ESTABLISHED}:
            continue
        host, _, port = words[2].partition(":")
        found.append(
            Connection(
                ip=str(_peer(host)),
                port=_hexadecimal(port, 16, "tcp"),
                state=words[3],
                retransmits=_hexadecimal(words[6], 32, "tcp"),
            )
        )
    return tuple(found)


def _peer(host: str) -> Address:
    """Return the address of a socket: one or four words in the order of bytes of this machine."""
    if len(host) == 8:
        return IPv4Address(_in_own_order(host))
    if len(host) != 32:
        raise _unreadable("tcp", host)
    number = 0
    for begin in range(0, 32, 8):
        number = number << 32 | _in_own_order(host[begin : begin + 8])
    address = IPv6Address(number)
    return address.ipv4_mapped or address


def pinned_namespaces(mountinfo: str) -> tuple[str, ...]:
    """Return the network namespaces that mounts keep: ``net:[4026532177]``, as links in /proc do.

    The root of such a mount is the name of the namespace (ns_dname() in fs/nsfs.c).
    """
    roots = [line.split(" ", 4)[3] for line in mountinfo.splitlines() if line.count(" ") > 3]
    return tuple(dict.fromkeys(root for root in roots if _NAMESPACE.fullmatch(root)))


def parse_osd_addresses(text: str) -> dict[str, tuple[str, int]]:
    """Parse ``osdmap`` of a kernel client in debugfs: IP address and port by ``osd.3``.

    osdmap_show() in net/ceph/debugfs.c. Lines without an address are of pools, or of OSDs that
    never ran.
    """
    found = {}
    for line in text.splitlines():
        fields = line.split("\t")
        number = fields[0].removeprefix("osd")
        if len(fields) > 2 and fields[0].startswith("osd") and _is_short(number):
            peer = peer_in(fields[1])
            if peer is not None:
                found[f"osd.{number}"] = peer
    return found


def peers_in(text: str) -> tuple[tuple[str, int], ...]:
    """Return the addresses in the argument ``-m`` of rbd: ``IP:PORT``, separated by commas.

    A word that is no address, as the name of a host, is left out.
    """
    found = (peer_in(word) for word in text.strip("[]").split(",")[:_MOST_PEERS])
    return tuple(dict.fromkeys(peer for peer in found if peer is not None))


_MOST_PEERS: Final = 64
_DEFAULT_PORT: Final = 3300


def peer_in(text: str) -> tuple[str, int] | None:
    """Return IP address and port of ``(1)10.0.0.1:6789``, ``v2:[fd00::1]:3300``; None if none."""
    word = text.strip().partition("/")[0]
    for prefix in ("(1)", "(2)", "v1:", "v2:"):
        word = word.removeprefix(prefix)
    host, colon, port = word.rpartition(":")
    if (word.startswith("[") and word.endswith("]")) or not colon:
        host, port = word, str(_DEFAULT_PORT)
    if not _is_short(port) or not 0 < int(port) < 1 << 16:
        return None
    try:
        address = ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return None
    return None if "%" in host or address.is_unspecified else (str(address), int(port))


def _is_short(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 9


def _rows(text: str, file: str) -> Iterator[list[str]]:
    """Yield the columns of each line after the heading."""
    for line in text.splitlines()[1:]:
        yield _columns(line, file)


def _columns(line: str, file: str) -> list[str]:
    words = line.split()
    if len(words) < _COLUMNS[file]:
        raise _unreadable(file, line)
    return words


def _in_own_order(text: str) -> int:
    number = _hexadecimal(text, 32, "tcp")
    return int.from_bytes(number.to_bytes(4, sys.byteorder), "big")


def _hexadecimal(text: str, bits: int, file: str) -> int:
    if len(text) > bits // 4 or not text.isascii() or not text.isalnum():
        raise _unreadable(file, text)
    try:
        return int(text, 16)
    except ValueError as error:
        raise _unreadable(file, text) from error


def _number(text: str, most: int, file: str) -> int:
    if not _is_short(text) or int(text) > most:
        raise _unreadable(file, text)
    return int(text)


def _four(text: str) -> IPv4Address:
    try:
        return IPv4Address(text)
    except ValueError as error:
        raise _unreadable("fib_trie", text) from error


def _unreadable(file: str, text: str) -> ParseError:
    return ParseError(
        what="a line of a network namespace",
        where=f"/proc/PID/net/{file}",
        text=text,
        expected="the columns of this file",
    )
