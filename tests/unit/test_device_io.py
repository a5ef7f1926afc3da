"""The I/O of a mapped device: since when it counts, and its rates between two observations."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from rbdagent.correlate.device_io import DeviceIo, IoRates, io_of, io_rates
from rbdagent.model import IoBytes, Mapping, NodeView, NotObserved
from rbdagent.report.text.io import io_cells, io_head
from tests.support.snapshots import NO_IO, mapping, nbd_mapping, node_view

UNSEEN = NotObserved(reason="permission denied")
BYTES = IoBytes(read=10_735_616, written=163_840, uptime_s=100.0)
LATER = IoBytes(read=10_735_616 + 5 * 1024, written=163_840 + 512, uptime_s=105.0)
MORE = replace(NO_IO, reads=NO_IO.reads + 10, writes=NO_IO.writes + 1)


def seen(**mapped: Any) -> NodeView:  # noqa: ANN401 - any field of a mapping
    """Return an observation of a node with one mapping, ten times read since it was mapped."""
    return node_view(mappings=(mapping(**{"io_bytes": BYTES} | mapped),))


def rate(node: NodeView, earlier: NodeView | None) -> IoRates | NotObserved:
    return io_rates(node, earlier)["/dev/rbd0"]


def test_counters_of_krbd_began_with_the_mapping() -> None:
    assert io_of(mapping(io_bytes=BYTES)) == DeviceIo(
        reads=812,
        read_bytes=10_735_616,
        writes=40,
        written_bytes=163_840,
        in_flight=0,
        is_since_mapping=True,
    )


def test_counters_of_nbd_are_older_than_the_mapping() -> None:
    found = io_of(nbd_mapping(io_counters=NO_IO, io_bytes=BYTES))
    assert isinstance(found, DeviceIo)
    assert not found.is_since_mapping


@pytest.mark.parametrize("mapped", [{"io_counters": UNSEEN}, {"io_bytes": UNSEEN}])
def test_io_of_which_a_part_is_unknown_is_not_observed(mapped: dict[str, NotObserved]) -> None:
    assert io_of(mapping(**{"io_bytes": BYTES} | mapped)) == UNSEEN


# --------------------------------------------------------------------------------------------------
# Rates
# --------------------------------------------------------------------------------------------------


def test_rates_are_the_difference_by_the_time_between_the_counters() -> None:
    found = rate(seen(io_counters=MORE, io_bytes=LATER), seen())
    assert found == IoRates(reads=2.0, read_bytes=1024.0, writes=0.2, written_bytes=102.4)


NOW = seen(io_counters=MORE, io_bytes=LATER)
NO_RATE = {
    "first observation": (NOW, None, "one observation"),
    "reboot": (replace(NOW, boot_id="b002"), seen(), "boot"),
    "unknown boots": (replace(NOW, boot_id=None), replace(seen(), boot_id=None), "boot"),
    "new device of the same name": (NOW, seen(incarnation="diskseq:17"), "same mapping"),
    "another image": (NOW, seen(image_id="2222"), "same mapping"),
    "another client": (NOW, seen(client_id=1), "same mapping"),
    "mapped since": (NOW, node_view(mappings=()), "same mapping"),
    "mappings not observed": (NOW, node_view(mappings=UNSEEN), "same mapping"),
    "earlier counters": (NOW, seen(io_counters=UNSEEN), "permission denied"),
    "counters now": (replace(seen(io_counters=UNSEEN)), seen(), "permission denied"),
    "lower counters": (seen(io_bytes=LATER), seen(io_counters=MORE), "lower"),
    "no time": (seen(), seen(), "no time"),
}


@pytest.mark.parametrize(
    ("node", "earlier", "why"), [pytest.param(*row, id=name) for name, row in NO_RATE.items()]
)
def test_rate_that_two_observations_do_not_show_is_not_observed(
    node: NodeView, earlier: NodeView | None, why: str
) -> None:
    found = rate(node, earlier)
    assert isinstance(found, NotObserved)
    assert why in found.reason


def test_every_mapping_has_a_rate_or_the_reason_why_not() -> None:
    node = node_view(mappings=(mapping(), nbd_mapping()))
    assert io_rates(node, None).keys() == {"/dev/rbd0", "/dev/nbd0"}
    assert io_rates(None, node) == {}


COUNT = st.integers(min_value=0, max_value=2**40)


@given(old=COUNT, new=COUNT, elapsed_s=st.floats(min_value=-1e6, max_value=1e6))
def test_no_rate_is_negative(old: int, new: int, elapsed_s: float) -> None:
    begun = seen(io_bytes=IoBytes(read=old, written=0, uptime_s=0.0))
    ended = seen(io_bytes=IoBytes(read=new, written=0, uptime_s=elapsed_s))
    found = rate(ended, begun)
    assert isinstance(found, NotObserved) or found.read_bytes >= 0


# --------------------------------------------------------------------------------------------------
# Cells
# --------------------------------------------------------------------------------------------------

CELLS = [
    (mapping(io_bytes=BYTES), ("812", "10.2MiB", "40", "160KiB", "0")),
    (
        nbd_mapping(io_counters=NO_IO, io_bytes=BYTES),
        ("≤812", "≤10.2MiB", "≤40", "≤160KiB", "0"),
    ),
    (mapping(io_counters=UNSEEN, io_bytes=UNSEEN), ("-",) * 5),
    (None, ("-",) * 5),
    (
        mapping(io_counters=replace(NO_IO, in_flight=3), io_bytes=replace(BYTES, read=0)),
        ("812", "0B", "40", "160KiB", "3"),
    ),
]


@pytest.mark.parametrize(("device", "cells"), CELLS)
def test_what_was_not_observed_is_a_dash_and_never_0(
    device: Mapping | None, cells: tuple[str, ...]
) -> None:
    assert io_cells(device, None) == cells


@pytest.mark.parametrize(
    ("found", "cells"),
    [
        (IoRates(reads=2.0, read_bytes=1e6, writes=0, written_bytes=0),
         ("2.0", "977KiB", "0.0", "0B")),
        (IoRates(reads=0.01, read_bytes=0.5, writes=1e4, written_bytes=1048575.99),
         ("<0.1", "<1B", "10000.0", "1.0MiB")),
        (UNSEEN, ("-",) * 4),
    ],
)  # fmt: skip
def test_rate_that_is_not_0_never_looks_like_0(
    found: IoRates | NotObserved, cells: tuple[str, ...]
) -> None:
    assert io_cells(mapping(), {"/dev/rbd0": found})[5:] == cells


@pytest.mark.parametrize("rates", [None, {}])
def test_each_column_has_a_heading(rates: dict[str, IoRates | NotObserved] | None) -> None:
    assert len(io_head(rates)) == len(io_cells(mapping(), rates)) == len(io_cells(None, rates))
