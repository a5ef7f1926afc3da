"""docs/compatibility.md and docs/compatibility.json: the results of ``./dev matrix``."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Final

from tests.lab.install import CHECKOUT
from tests.lab.matrix_cells import (
    ARTEFACT_TABLE,
    CEPH_TABLE,
    E2E_TABLE,
    KERNEL_TABLE,
    KEYS_TABLE,
    cells,
)
from tests.lab.support_table import with_support_table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tests.lab.matrix_cells import Cell

RECORD: Final = CHECKOUT / "docs" / "compatibility.json"
DOCUMENT: Final = CHECKOUT / "docs" / "compatibility.md"
README: Final = CHECKOUT / "README.md"


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The result of one run of a cell."""

    state: str
    """``passed`` or ``FAILED``."""
    ran: str
    commit: str
    day: str
    seconds: int
    disk_mib: int
    """Roots, kernels and environments that the cell needs; cells share them."""
    versions: Mapping[str, str] = field(default_factory=dict)
    recorded: Mapping[str, str] = field(default_factory=dict)
    """The values that the tests recorded, by the names of :data:`_RECORDED`."""


INTRODUCTIONS: Final = {
    CEPH_TABLE: (
        "`tests/integration/test_observe_ceph.py` and `test_ceph_networks.py`: every question to"
        " Ceph, asked with the Python and the bindings of a Debian release (rows) of a cluster of"
        " another (columns), over messenger v1, msgr2 and IPv6."
    ),
    KERNEL_TABLE: (
        "`tests/integration/test_lab_vm.py`: a VM that maps an image; the watcher that Ceph reports"
        " is the client that sysfs reports."
    ),
    KEYS_TABLE: (
        "`tests/integration/test_keys.py` and, for kernels, `test_lab_vm.py`: a user with a key of"
        " the type that Ceph 20.2.4 creates by default. The table has its error, the"
        " remedy of rbdagent, typed without a change, and the result. `rbd` is that of Ceph 20.2,"
        " since an older one cannot read the key; with the key of the remedy, any rbd can map."
    ),
    ARTEFACT_TABLE: (
        "Whether the installed rbdagent gets its answers from a cluster. The `.deb` is"
        " built and run with the Python and the bindings of its Debian"
        " (`tests/integration/test_packages.py`). The image is the `.deb` on the base that"
        " `Containerfile` names. `pip install` takes the bindings of the distribution: the"
        " results are those of the tables above. In a cell with no, a user whose key is of"
        " type aes gets an answer: [Key types](install.md#key-types)."
    ),
    E2E_TABLE: (
        "`tests/e2e/test_founding_incident.py`: Multi-Attach on two nodes, its cause, the unmap by"
        " an agent, and the next pod."
    ),
}
_RECORDED = ("rbd", "kernel", "said", "typed", "then", "rbd of Ceph 20.2")
"""Output of rbd, the kernel and rbdagent for a key, the remedy as typed, and the results."""

# No test covers these yet: each line is a value of an axis, and why it has no cell.
NOT_TRIED: Final = (
    ("Ceph 14.2", "its bindings need a Python older than 3.11; end of life in 2021"),
    ("kernels of Enterprise Linux 9 (5.14) and Ubuntu 24.04 (6.8)", "not packaged by Debian"),
)


def read_record() -> dict[str, Result]:
    """Return the last result of each cell that was ever run."""
    if not RECORD.exists():
        return {}
    return {name: Result(**result) for name, result in json.loads(RECORD.read_text()).items()}


def write_record(results: Mapping[str, Result]) -> None:
    known = {cell.name for cell in cells()}
    kept = {name: _record(result) for name, result in results.items() if name in known}
    RECORD.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n")


def _record(result: Result) -> dict[str, object]:
    return {name: value for name, value in asdict(result).items() if value != {}}


def readme(text: str, results: Mapping[str, Result]) -> str:
    """Return README with the table of what is proven."""
    ends = [cell for cell in cells() if cell.table == E2E_TABLE]
    passed = {name for name, result in results.items() if result.state == "passed"}
    return with_support_table(text, ends, passed)


def document(cells: Sequence[Cell], results: Mapping[str, Result]) -> str:
    """Return docs/compatibility.md."""
    lines = [
        "# Compatibility",
        "",
        "Written by `./dev matrix`. A cell is one run on real parts:",
        "what passed, the commit, the day, the time, and the disk space of its roots and kernels.",
    ]
    for table, introduction in INTRODUCTIONS.items():
        members = [cell for cell in cells if cell.table == table]
        lines += ["", f"## {table}", "", introduction, "", *_table(members, results)]
    lines += ["", "## Not tried", ""]
    lines += [f"- {what}: {why}." for what, why in NOT_TRIED]
    return "\n".join(lines) + "\n"


def _table(cells: Sequence[Cell], results: Mapping[str, Result]) -> list[str]:
    columns = list(dict.fromkeys(cell.column for cell in cells))
    by_place = {(cell.row, cell.column): cell for cell in cells}
    if len(columns) == len(cells):
        # The parts differ by row: one column of results.
        rows = [(f"{cell.row} (`{cell.column}`)", [cell]) for cell in cells]
        columns = ["result"]
    else:
        names = dict.fromkeys(cell.row for cell in cells)
        rows = [(row, [by_place[row, column] for column in columns]) for row in names]
    lines = [f"| | {' | '.join(columns)} |", f"|---|{'---|' * len(columns)}"]
    for row, members in rows:
        texts = " | ".join(_text(cell, results.get(cell.same_as or cell.name)) for cell in members)
        lines.append(f"| {row} | {texts} |")
    return lines


def _text(cell: Cell, result: Result | None) -> str:
    if cell.reason:
        return f"not tried: {cell.reason}"
    if result is None:
        return "not tried: not run yet, `./dev matrix` runs it"
    versions = ", ".join(f"{what} {version}" for what, version in result.versions.items())
    place = f"{result.commit}, {result.day}, {result.seconds} s, {result.disk_mib} MiB"
    if cell.table == ARTEFACT_TABLE:
        return "<br>".join((_reach(result), versions, place))
    shown = _RECORDED if cell.table == KEYS_TABLE else ()
    recorded = [
        f"{what}: {_inline(result.recorded[what])}" for what in shown if what in result.recorded
    ]
    return "<br>".join((f"{result.state}: {result.ran}", *recorded, versions, place))


def _reach(result: Result) -> str:
    """Return whether a client reached the cluster."""
    if result.state != "passed":
        return f"{result.state}: {result.ran}"
    error = result.recorded.get("said")
    return "yes" if error is None else f"no: {_inline(error)}"


def _inline(text: str) -> str:
    """Return a text as code within a cell of a table."""
    words = " / ".join(line.strip() for line in text.splitlines() if line.strip())
    return f"`{words.replace('|', chr(92) + '|')}`"
