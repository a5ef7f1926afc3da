"""Devices that are unmapped while their node is observed."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Final

import pytest

from rbdagent.collect.node import observer
from rbdagent.collect.node.observer import observe_node
from rbdagent.collect.node.rbd_sysfs import observe_clients
from rbdagent.model import NotObserved
from tests.support.node_files import Tree

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from rbdagent.collect.node.rbd_sysfs import Clients
    from rbdagent.model import Mapping

_FSID: Final = "50694798-7cee-5f76-a487-c8b372b8e58a"


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    tree = Tree(tmp_path)
    for number in (0, 1):
        tree.device(number)
        tree.write(f"sys/bus/rbd/devices/{number}/cluster_fsid", f"{_FSID}\n")
        tree.write(f"sys/bus/rbd/devices/{number}/client_id", f"client50{number}\n")
        tree.write(f"{_client(number)}/osdc", "REQUESTS 0 homeless 0\n")
    return tree


def _client(number: int) -> str:
    return f"sys/kernel/debug/ceph/{_FSID}.client50{number}"


def _unmap(tree: Tree, number: int) -> None:
    """Remove what the kernel removes with a device, and with the last device of a client."""
    shutil.rmtree(tree.root / f"sys/bus/rbd/devices/{number}")
    shutil.rmtree(tree.root / f"sys/block/rbd{number}")
    shutil.rmtree(tree.root / _client(number))


def test_device_that_is_unmapped_while_it_is_observed_is_no_mapping_and_no_gap(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unmapped_first(sysfs: Path, mappings: Iterable[Mapping]) -> Clients:
        _unmap(tree, 0)
        return observe_clients(sysfs, mappings)

    monkeypatch.setattr(observer, "observe_clients", unmapped_first)
    view, source = observe_node(tree.roots, node_name="n1")
    assert view is not None
    assert not isinstance(view.mappings, NotObserved)
    assert [mapping.device for mapping in view.mappings] == ["/dev/rbd1"]
    assert not [gap for gap in source.gaps if "watches" in gap.fact]


def test_device_stays_a_mapping_if_only_the_list_of_its_client_is_missing(tree: Tree) -> None:
    shutil.rmtree(tree.root / _client(0))
    view, source = observe_node(tree.roots, node_name="n1")
    assert view is not None
    assert not isinstance(view.mappings, NotObserved)
    assert [mapping.device for mapping in view.mappings] == ["/dev/rbd0", "/dev/rbd1"]
    assert [gap for gap in source.gaps if "watches" in gap.fact]
