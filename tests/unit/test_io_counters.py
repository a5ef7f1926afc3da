"""A device's I/O counters: read from sysfs, or not observed with a reason, and their rates."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rbdagent.collect.node.rbd_sysfs import observe_krbd
from rbdagent.errors import ParseError
from rbdagent.model import INT64_MAX, IoBytes, IoCounters, NotObserved
from rbdagent.parse.krbd import parse_io_bytes, parse_io_counters

if TYPE_CHECKING:
    from pathlib import Path

STAT: Final = (
    "     812       60    20968      140       40       10      320       35        2      170"
    "      180        3        0       24        1        5        2\n"
)
"""A line of Linux 6.18: right-aligned, 17 columns."""
COUNTERS: Final = IoCounters(reads=812, writes=40, in_flight=2, discards=3, flushes=5)
COUNTS: Final = st.integers(min_value=0, max_value=INT64_MAX)


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        pytest.param(17, COUNTERS, id="Linux 5.5"),
        pytest.param(
            15, IoCounters(reads=812, writes=40, in_flight=2, discards=3), id="Linux 4.18"
        ),
        pytest.param(11, IoCounters(reads=812, writes=40, in_flight=2), id="older"),
    ],
)
def test_shorter_line_lacks_what_the_kernel_does_not_count(
    columns: int, expected: IoCounters
) -> None:
    line = " ".join(STAT.split()[:columns])
    assert parse_io_counters(line, where="stat") == expected


@given(counts=st.lists(COUNTS, min_size=11, max_size=24))
def test_every_line_of_eleven_counts_or_more_is_read(counts: list[int]) -> None:
    found = parse_io_counters(" ".join(map(str, counts)), where="stat")
    assert (found.reads, found.writes, found.in_flight) == (counts[0], counts[4], counts[8])
    assert found.discards == (counts[11] if len(counts) > 11 else None)
    assert found.flushes == (counts[15] if len(counts) > 15 else None)


@given(text=st.text(alphabet="0123456789 -x٣\n", max_size=60))
def test_a_line_is_counters_or_a_parse_error(text: str) -> None:
    try:
        found = parse_io_counters(text, where="stat")
    except ParseError:
        return
    assert min(found.reads, found.writes, found.in_flight) >= 0


@pytest.mark.parametrize("column", range(17))
def test_count_beyond_the_range_of_its_type_is_a_parse_error(column: int) -> None:
    """Assert the limit: a snapshot with a larger count could not be read again."""
    columns = STAT.split()
    columns[column] = str(INT64_MAX + 1)
    with pytest.raises(ParseError):
        parse_io_counters(" ".join(columns), where="stat")


@pytest.fixture
def sysfs(tmp_path: Path) -> Path:
    """Return a sysfs with one krbd device."""
    device = tmp_path / "bus/rbd/devices/0"
    device.mkdir(parents=True)
    for name, value in {"pool": "k8s", "name": "a", "major": "252", "minor": "0"}.items():
        (device / name).write_text(f"{value}\n")
    (tmp_path / "block/rbd0/queue").mkdir(parents=True)
    (tmp_path / "block/rbd0/queue/iostats").write_text("1\n")
    (tmp_path / "block/rbd0/stat").write_text(STAT)
    return tmp_path


def io_bytes(sysfs: Path) -> IoBytes | NotObserved:
    """Return the bytes of the one device."""
    found = observe_krbd(sysfs, sysfs)
    assert not isinstance(found, NotObserved)
    return found[0].mapping.io_bytes


def counters(sysfs: Path) -> IoCounters | NotObserved:
    """Return the counters of the one device."""
    found = observe_krbd(sysfs, sysfs)
    assert not isinstance(found, NotObserved)
    return found[0].mapping.io_counters


def reason(sysfs: Path) -> str:
    """Return why the counters of the one device were not observed."""
    found = counters(sysfs)
    assert isinstance(found, NotObserved)
    return found.reason


def test_the_counters_of_a_device_are_read(sysfs: Path) -> None:
    assert counters(sysfs) == COUNTERS


def test_counters_are_read_without_the_iostats_switch(sysfs: Path) -> None:
    (sysfs / "block/rbd0/queue/iostats").unlink()
    assert counters(sysfs) == COUNTERS


def test_counters_that_the_kernel_does_not_update_are_not_observed(sysfs: Path) -> None:
    (sysfs / "block/rbd0/queue/iostats").write_text("0\n")
    assert "does not count" in reason(sysfs)


def test_a_device_without_counters_is_not_observed(sysfs: Path) -> None:
    (sysfs / "block/rbd0/stat").unlink()
    assert "no such attribute" in reason(sysfs)


def test_unparsable_counters_leave_the_device_observed(
    sysfs: Path,
) -> None:
    (sysfs / "block/rbd0/stat").write_text("1 2 three\n")
    assert "three" in reason(sysfs)


# --------------------------------------------------------------------------------------------------
# Bytes
# --------------------------------------------------------------------------------------------------


def test_bytes_are_sectors_of_512_bytes_at_a_time_since_boot(sysfs: Path) -> None:
    before = time.clock_gettime(time.CLOCK_BOOTTIME)
    found = io_bytes(sysfs)
    assert isinstance(found, IoBytes)
    assert (found.read, found.written) == (20968 * 512, 320 * 512)
    assert before <= found.uptime_s <= time.clock_gettime(time.CLOCK_BOOTTIME)


@given(counts=st.lists(COUNTS, min_size=11, max_size=24))
def test_bytes_are_read_or_beyond_the_range_of_their_type(counts: list[int]) -> None:
    line, expected = " ".join(map(str, counts)), (counts[2] * 512, counts[6] * 512)
    if max(expected) <= INT64_MAX:
        assert parse_io_bytes(line, where="stat") == expected
    else:
        with pytest.raises(ParseError):
            parse_io_bytes(line, where="stat")


def test_bytes_that_cannot_be_read_leave_the_counters_observed(sysfs: Path) -> None:
    columns = STAT.split()
    columns[2] = str(INT64_MAX)
    (sysfs / "block/rbd0/stat").write_text(" ".join(columns))
    assert counters(sysfs) == COUNTERS
    assert isinstance(io_bytes(sysfs), NotObserved)


def test_bytes_that_the_kernel_does_not_count_are_not_observed(sysfs: Path) -> None:
    (sysfs / "block/rbd0/queue/iostats").write_text("0\n")
    assert isinstance(io_bytes(sysfs), NotObserved)
