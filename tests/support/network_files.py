"""Files of ``/proc/PID/net``, read on Linux 6.18 in a network namespace made for the purpose.

``ip route add blackhole 10.10.0.0/16``, unreachable 10.11.0.0/16, prohibit 10.12.0.0/16, and an
interface eth0 with 10.9.0.2/24 and a gateway for 10.13.0.0/16; a rule, so that the tables differ.
"""

from __future__ import annotations

from typing import Final

FIB_TRIE: Final = """\
Main:
  +-- 10.8.0.0/13 3 0 4
     |-- 10.9.0.0
        /24 link UNICAST
     |-- 10.10.0.0
        /16 universe BLACKHOLE
     |-- 10.11.0.0
        /16 universe UNREACHABLE
     |-- 10.12.0.0
        /16 universe PROHIBIT
     |-- 10.13.0.0
        /16 universe UNICAST
Id 77:
  |-- 10.14.0.0
     /16 universe UNICAST
Local:
  +-- 0.0.0.0/0 2 0 2
     +-- 10.9.0.0/24 2 0 2
        |-- 10.9.0.2
           /32 host LOCAL
        |-- 10.9.0.255
           /32 link BROADCAST
     +-- 127.0.0.0/8 2 0 2
        |-- 127.0.0.0
           /8 host LOCAL
        |-- 127.0.0.1
           /32 host LOCAL
        |-- 127.255.255.255
           /32 link BROADCAST
"""
ROUTE: Final = """\
Iface	Destination	Gateway 	Flags	RefCnt	Use	Metric	Mask		MTU	Window	IRTT
eth0	0000090A	00000000	0001	0	0	0	00FFFFFF	0	0	0
*	00000A0A	00000000	0001	0	0	0	0000FFFF	0	0	0
*	00000B0A	00000000	0201	0	0	0	0000FFFF	0	0	0
*	00000C0A	00000000	0201	0	0	0	0000FFFF	0	0	0
eth0	00000D0A	0100090A	0003	0	0	0	0000FFFF	0	0	0
"""
_NO_SOURCE: Final = "00000000000000000000000000000000 00"
_NO_GATEWAY: Final = "00000000000000000000000000000000"
IPV6_ROUTE: Final = f"""\
fd000001000000000000000000000000 40 {_NO_SOURCE} {_NO_GATEWAY} 00000100 00000001 00000000 00000001     eth0
fd000002000000000000000000000000 40 {_NO_SOURCE} {_NO_GATEWAY} 00000400 00000002 00000000 00200200       lo
00000000000000000000000000000000 00 {_NO_SOURCE} {_NO_GATEWAY} ffffffff 00000001 00000000 00200200       lo
00000000000000000000000000000001 80 {_NO_SOURCE} {_NO_GATEWAY} 00000000 00000002 00000000 80200001       lo
"""  # noqa: E501 - as the kernel writes it
IF_INET6: Final = "fd000001000000000000000000000002 02 40 00 80     eth0\n"
_HEADING: Final = (
    "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout "
    "inode\n"
)
TCP: Final = (
    f"{_HEADING}"
    "   0: 0200090A:A0E2 01000D0A:0CE4 02 00000001:00000000 01:00000190 00000003     0        0 "
    "25411 2 0000000000000000 1600 0 0 1 7\n"
    "   1: 0200090A:A0E4 02000D0A:0CE4 01 00000000:00000000 00:00000000 00000000     0        0 "
    "25412 1 0000000000000000 20 4 30 10 -1\n"
    "   2: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 "
    "25413 1 0000000000000000 100 0 0 10 0\n"
)
TCP6: Final = (
    f"{_HEADING}"
    "   0: 010000FD000000000000000002000000:A0E2 010000FD000000000000000009000000:1A85 02 "
    "00000001:00000000 01:00000190 00000003     0        0 25414 2 0000000000000000 1600 0 0 1 7\n"
    "   1: 0000000000000000FFFF00000200090A:A0E2 0000000000000000FFFF000001000D0A:1A85 01 "
    "00000100:00000000 01:00000190 00000006     0        0 25415 2 0000000000000000 1600 0 0 1 7\n"
)
OSDMAP: Final = (
    "epoch 14 barrier 0 flags 0x588000\n"
    "pool 1 'k8s' type 1 size 1 min_size 1 pg_num 8 pg_num_mask 7 flags 0x1 lfor 0 read_tier -1 "
    "write_tier -1\n"
    "osd0\t(1)10.77.0.1:6801\t100%\t(exists, up)\t100%\n"
    "osd1\t(2)[fd00:77::1]:6802\t100%\t(exists, up)\t100%\n"
    "osd2\t(0)(unknown sockaddr family 0)\t  0%\t(doesn't exist)\t100%\n"
)
MOUNTINFO = """\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda1 rw
31 24 0:4 net:[1] /run/netns/host rw shared:12 - nsfs nsfs rw
32 24 0:4 net:[2] /run/netns/cni-2 rw shared:13 - nsfs nsfs rw
33 24 0:4 mnt:[4] /run/snapd/ns/lxd.mnt rw shared:14 - nsfs nsfs rw
34 22 0:40 /net:[5] /tmp/net:[6] rw - tmpfs net:[7] rw
"""
"""Two network namespaces that mounts keep, among other mounts."""
