"""A /proc that hides processes (hidepid=1, proc(5)) never reads as one without them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rbdagent.collect.node.mounts import Wanted
from rbdagent.collect.node.procfs import ProcessPass
from rbdagent.model import DeviceNumber

if TYPE_CHECKING:
    from pathlib import Path

RBD0 = Wanted.of([DeviceNumber(major=252, minor=0)])


def test_process_with_an_unreadable_state_counts_as_unobserved(
    tmp_path: Path,
) -> None:
    """Replace the file by a directory: root cannot read that either."""
    (tmp_path / "17" / "stat").mkdir(parents=True)
    scan = ProcessPass(tmp_path, RBD0).scan()
    assert (scan.entries, scan.denied_files, scan.denied_mounts) == (
        [],
        ["process 17"],
        ["process 17"],
    )


def test_process_that_is_gone_does_not_count(tmp_path: Path) -> None:
    (tmp_path / "17").mkdir()
    scan = ProcessPass(tmp_path, RBD0).scan()
    assert (scan.entries, scan.denied_files, scan.denied_mounts) == ([], [], [])
