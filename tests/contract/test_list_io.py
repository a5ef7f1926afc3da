"""``list -o wide`` shows the I/O of each device, and a watch its rates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from rbdagent.model import IoBytes, NotObserved, TargetKind
from tests.support.cli_runner import ask
from tests.support.snapshots import NO_IO, mapping, nbd_mapping, node_view, pod, target
from tests.support.unmap_plans import seen

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rbdagent.model import NodeView, Snapshot

ROWS = ("READS", "READ-BYTES", "WRITES", "WRITTEN-BYTES", "IN-FLIGHT")
RATES = ("READS/S", "READ-BYTES/S", "WRITES/S", "WRITTEN-BYTES/S")


def node(at_s: float, *, reads: int = 812, **mapped: Any) -> NodeView:  # noqa: ANN401 - as above
    """Return the node at a time, after a number of reads of 4 KiB."""
    done = {
        "io_counters": replace(NO_IO, reads=reads, in_flight=2),
        "io_bytes": IoBytes(read=reads * 4096, written=163_840, uptime_s=at_s),
    }
    return node_view(mappings=(mapping(**done | mapped),))


def snapshot(view: NodeView) -> Snapshot:
    return replace(seen(in_kube={"pods": (pod(),)}), node=view)


def of_node(view: NodeView) -> Snapshot:
    return replace(snapshot(view), target=target(argument="", kind=TargetKind.NONE, name=""))


def watched(
    monkeypatch: pytest.MonkeyPatch, snapshots: Sequence[Snapshot], *words: str
) -> list[str]:
    """Return what a watch prints about the snapshots, one after the other."""
    left = list(snapshots)

    def take(*_args: object, **_kwargs: object) -> Snapshot:
        return left.pop(0)

    def wait(_seconds: float) -> None:
        if not left:
            raise KeyboardInterrupt

    verb = words[0].replace("-", "_")
    monkeypatch.setattr(f"rbdagent.cli.{verb}.snapshot_of", take)
    monkeypatch.setattr("rbdagent.cli.output.time.sleep", wait)
    return ask(*words, "-w").stdout.split("\n--- ")


def table(text: str) -> list[dict[str, str]]:
    """Return the rows of the table in an output, each as cells by heading."""
    lines = text.split("\n\n")[1].splitlines()
    head, *rows = (line.split("   ") for line in lines)
    cells = [[cell.strip() for cell in row if cell.strip()] for row in (head, *rows)]
    return [dict(zip(cells[0], row, strict=True)) for row in cells[1:]]


SEEN = [node(100), node(105, reads=822), node(110, reads=822), node(115, reads=822)]
EXPECTED = [
    ("812", "3.2MiB", "40", "160KiB", "2", "-", "-", "-", "-"),
    ("822", "3.2MiB", "40", "160KiB", "2", "2.0", "8.0KiB", "0.0", "0B"),
    ("822", "3.2MiB", "40", "160KiB", "2", "0.0", "0B", "0.0", "0B"),
]


def test_watch_prints_rates_until_they_no_longer_change(monkeypatch: pytest.MonkeyPatch) -> None:
    printed = watched(monkeypatch, [of_node(view) for view in SEEN], "list", "-o", "wide")
    rows = [table(text)[0] for text in printed]
    assert [tuple(row[name] for name in (*ROWS, *RATES)) for row in rows] == EXPECTED


def test_watch_without_details_does_not_depend_on_the_io(monkeypatch: pytest.MonkeyPatch) -> None:
    printed = watched(monkeypatch, [of_node(view) for view in SEEN], "list")
    assert len(printed) == 1
    assert "READS" not in printed[0]


def test_answer_that_is_not_repeated_has_no_rates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rbdagent.cli.list.snapshot_of", lambda *_: of_node(SEEN[0]))
    (row,) = table(ask("list", "-o", "wide").stdout)
    assert [row[name] for name in ROWS] == ["812", "3.2MiB", "40", "160KiB", "2"]
    assert not row.keys() & set(RATES)


@pytest.mark.parametrize("mapped", [{}, {"io_counters": NotObserved(reason="denied")}])
def test_io_that_was_not_observed_is_a_dash(
    monkeypatch: pytest.MonkeyPatch, mapped: dict[str, Any]
) -> None:
    device = mapping(**{"io_bytes": NotObserved(reason="denied")} | mapped)
    view = node_view(mappings=(device,))
    monkeypatch.setattr("rbdagent.cli.list.snapshot_of", lambda *_: of_node(view))
    (row,) = table(ask("list", "-o", "wide").stdout)
    assert {row[name] for name in ROWS} == {"-"}
    (item,) = ask("list", "-o", "json").data["items"]
    assert item["io"] is None
    assert item["notObserved"]["io"] == "denied"


def test_json_has_the_same_as_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rbdagent.cli.list.snapshot_of", lambda *_: of_node(SEEN[0]))
    (item,) = ask("list", "-o", "json").data["items"]
    assert item["io"] == {
        "reads": 812,
        "readBytes": 812 * 4096,
        "writes": 40,
        "writtenBytes": 163_840,
        "inFlight": 2,
        "sinceMapping": True,
    }
    assert item["ioRates"] is None
    assert "one observation" in item["notObserved"]["ioRates"]


def test_json_of_a_watch_has_the_rates(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second, _ = watched(monkeypatch, [of_node(view) for view in SEEN], "list", "-o", "json")
    assert '"ioRates": null' in first
    assert '"ioRates": {\n        "reads": 2.0,\n        "readBytes": 8192.0,' in second


def test_nbd_device_counts_more_than_its_mapping(monkeypatch: pytest.MonkeyPatch) -> None:
    device = nbd_mapping(io_counters=NO_IO, io_bytes=IoBytes(read=4096, written=0, uptime_s=1.0))
    monkeypatch.setattr(
        "rbdagent.cli.list.snapshot_of", lambda *_: of_node(node_view(mappings=(device,)))
    )
    assert table(ask("list", "-o", "wide").stdout)[0]["READ-BYTES"] == "≤4.0KiB"
    assert ask("list", "-o", "json").data["items"][0]["io"]["sinceMapping"] is False


@pytest.mark.parametrize("output", ["table", "wide", "json", "yaml"])
def test_io_alone_is_no_other_answer_about_a_holder(
    monkeypatch: pytest.MonkeyPatch, output: str
) -> None:
    snapshots = [snapshot(view) for view in SEEN]
    printed = watched(monkeypatch, snapshots, "who-holds", "pv/pvc-1", "-o", output)
    assert len(printed) == 1
    assert ("writtenBytes" in printed[0]) is (output in {"json", "yaml"})
