"""A /proc that hides processes (hidepid=1, proc(5)) never reads as one without them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rbdagent.model import DeviceNumber
from rbdagent.observe.mounts import Wanted
from rbdagent.observe.processes import ProcessPass

if TYPE_CHECKING:
    from pathlib import Path

RBD0 = Wanted.of([DeviceNumber(major=252, minor=0)])


def test_a_process_whose_state_may_not_be_read_counts_as_one_that_nobody_looked_at(
    tmp_path: Path,
) -> None:
    """A directory in place of the file cannot be read by root either."""
    (tmp_path / "17" / "stat").mkdir(parents=True)
    scan = ProcessPass(tmp_path, RBD0).scan()
    assert (scan.entries, scan.denied_files, scan.denied_mounts) == ([], 1, 1)


def test_a_process_that_is_gone_counts_as_none(tmp_path: Path) -> None:
    (tmp_path / "17").mkdir()
    scan = ProcessPass(tmp_path, RBD0).scan()
    assert (scan.entries, scan.denied_files, scan.denied_mounts) == ([], 0, 0)
