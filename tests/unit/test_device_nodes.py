"""Whether a mapping has its device node, where the host's /dev is shown and where it is not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rbdagent.model import NotObserved
from rbdagent.observe.node import NodeRoots, observe_node

if TYPE_CHECKING:
    from pathlib import Path

    from rbdagent.model import NodeView, Source


@pytest.fixture
def host(tmp_path: Path) -> Path:
    """Give a host with one krbd device, seen from a container that is not shown its /dev."""
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


def node_present(view: NodeView) -> bool | NotObserved:
    assert not isinstance(view.mappings, NotObserved)
    (mapping,) = view.mappings
    return mapping.node_present


def test_a_dev_that_is_not_shown_is_a_gap_and_no_missing_node(host: Path) -> None:
    view, source = look(host)
    assert isinstance(node_present(view), NotObserved)
    assert "device nodes" in {each.fact for each in source.gaps}


@pytest.mark.parametrize("made", [True, False])
def test_a_dev_that_is_shown_has_the_node_or_has_it_not(host: Path, *, made: bool) -> None:
    (host / "dev").mkdir()
    if made:
        (host / "dev/rbd0").touch()
    view, source = look(host)
    assert node_present(view) is made
    assert "device nodes" not in {each.fact for each in source.gaps}
