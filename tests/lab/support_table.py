"""The table of README: the versions on which rbdagent is proven, from the results of the matrix."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from tests.lab.matrix_cells import Cell
    from tests.lab.parts import Parts

_TABLE: Final = re.compile(r"(<!-- written by \./dev matrix -->\n).*?(<!-- end -->)", re.DOTALL)
_MONITORS: Final = {"both": "msgr2 and v1", "v1": "v1 alone", "v2": "msgr2 alone"}
_NETWORKS: Final = {"ipv4": "IPv4", "ipv6": "IPv6", "dual": "dual stack"}

AXES: Final[dict[str, Callable[[Cell, Parts], str]]] = {
    "Ceph": lambda _, parts: parts.ceph.ceph,
    "Kernel": lambda _, parts: parts.kernel.kernel,
    "Debian": lambda _, parts: parts.debian.debian,
    "Kubernetes": lambda _, parts: parts.kubernetes,
    "CephX keys": lambda _, parts: parts.keys,
    "Monitors": lambda _, parts: _MONITORS[parts.monitors],
    "Addresses": lambda _, parts: _NETWORKS[parts.network],
    "CSI driver": lambda cell, _: "ceph-csi" if cell.cephcsi else "the lab's",
}
"""The value of a cell on each axis."""


def with_support_table(text: str, ends: Sequence[Cell], passed: Collection[str]) -> str:
    """Return a document with the table between its markers.

    Args:
        text: the document.
        ends: every end-to-end cell.
        passed: names of the cells that passed.
    """
    lines = ["| | proven end to end | not run yet |", "|---|---|---|"]
    for axis, value_of in AXES.items():
        values = {cell.name: value_of(cell, cell.chosen_parts()) for cell in ends}
        proven = {value for name, value in values.items() if name in passed}
        there = [value for value in dict.fromkeys(values.values()) if value in proven]
        missing = [value for value in dict.fromkeys(values.values()) if value not in proven]
        lines.append(f"| {axis} | {', '.join(there) or '-'} | {', '.join(missing) or '-'} |")
    table = "\n".join(lines)
    return _TABLE.sub(lambda found: f"{found[1]}\n{table}\n\n{found[2]}", text)
