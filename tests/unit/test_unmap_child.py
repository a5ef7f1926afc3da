"""The last comparison before the write: the device is the planned one, and had no I/O."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

import pytest

from rbdagent.parse.krbd import parse_io_counters
from rbdagent.unmap import writer_child
from rbdagent.unmap.writer import counts_of

if TYPE_CHECKING:
    from pathlib import Path

STAT: Final = "812 60 20968 140 40 10 320 35 0 170 180 3 0 24 1 5 2"
OLD: Final = "812 60 20968 140 40 10 320 35 0 170 180"
MORE_TIME: Final = "812 60 20968 140 40 10 320 35 0 171 180 3 0 24 1 5 2"
"""A time column is larger, and no I/O was completed."""


def ended(sysfs: Path, *, planned: str = STAT, now: str = STAT) -> tuple[int, str]:
    """Run the child for a device; return its exit code and the text that it wrote."""
    bus, block = sysfs / "bus/rbd", sysfs / "block/rbd0"
    (bus / "devices/0").mkdir(parents=True)
    block.mkdir(parents=True)
    (sysfs / "rbd0").touch()
    (bus / "remove_single_major").touch()
    (block / "stat").write_text(f"{now}\n")
    code = writer_child.main(
        str(sysfs / "rbd0"),
        str(bus),
        "0",
        f"sysfs:{(bus / 'devices/0').stat().st_ino}",
        counts_of(parse_io_counters(planned, where="stat")),
    )
    return code, (bus / "remove_single_major").read_text()


@pytest.mark.parametrize(
    ("planned", "now"), [(STAT, STAT), (OLD, OLD), (STAT, MORE_TIME)], ids=["new", "old", "time"]
)
def test_id_is_written_if_the_counters_are_equal(tmp_path: Path, planned: str, now: str) -> None:
    assert ended(tmp_path, planned=planned, now=now) == (0, "0")


@pytest.mark.parametrize("column", [0, 4, 8, 11, 15])
def test_nothing_is_written_if_a_counter_changed(tmp_path: Path, column: int) -> None:
    columns = STAT.split()
    columns[column] = str(int(columns[column]) + 1)
    assert ended(tmp_path, now=" ".join(columns)) == (writer_child.HAS_IO, "")


def test_nothing_is_opened_between_the_checks_and_the_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An open of a file in sysfs may wait; what is checked before it is old when it returns."""
    opened: list[str] = []
    real = os.open

    def recorded(path: str, flags: int, mode: int = 0o777) -> int:
        opened.append(os.path.basename(path))
        return real(path, flags, mode)

    monkeypatch.setattr(os, "open", recorded)
    assert ended(tmp_path)[0] == 0
    assert opened[-3:] == ["remove_single_major", "rbd0", "stat"]
