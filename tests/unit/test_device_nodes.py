"""Whether a mapping has its device node, with and without a view of the host's /dev."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rbdagent.collect.node.observer import observe_node
from rbdagent.collect.node.roots import NodeRoots
from rbdagent.model import NotObserved

if TYPE_CHECKING:
    from pathlib import Path

    from rbdagent.model import NodeView, Source


@pytest.fixture
def host(tmp_path: Path) -> Path:
    """Return a host with one krbd device, seen from a container without the host's /dev."""
    device = tmp_path / "sys/bus/rbd/devices/0"
    device.mkdir(parents=True)
    for name, value in {"pool": "k8s", "name": "a", "major": "252", "minor": "0"}.items():
        (device / name).write_text(f"{value}\n")
    (tmp_path / "proc/1").mkdir(parents=True)
    return tmp_path


def look(host: Path) -> tuple[NodeView, Source]:
    roots = NodeRoots(procfs=host / "proc", sysfs=host / "sys", host_root=host)
    view, source = observe_node(roots, node_name="n1")
    assert view is not None
    return view, source


def device_node_present(view: NodeView) -> bool | NotObserved:
    assert not isinstance(view.mappings, NotObserved)
    (mapping,) = view.mappings
    return mapping.device_node_present


def test_hidden_dev_is_a_gap_and_not_a_missing_node(host: Path) -> None:
    view, source = look(host)
    assert isinstance(device_node_present(view), NotObserved)
    assert "device nodes" in {gap.fact for gap in source.gaps}


@pytest.mark.parametrize("made", [True, False])
def test_visible_dev_shows_whether_the_node_exists(host: Path, *, made: bool) -> None:
    (host / "dev").mkdir()
    if made:
        (host / "dev/rbd0").touch()
    view, source = look(host)
    assert device_node_present(view) is made
    assert "device nodes" not in {gap.fact for gap in source.gaps}
