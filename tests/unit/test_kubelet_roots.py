"""Where kubelet's directory is, on hosts that have moved it, seen from another root."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rbdagent.observe.files import followed
from rbdagent.observe.kubelet import existing_roots

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def host(tmp_path: Path) -> Path:
    """Give the root of a host whose /var/lib lies on another disk, and kubelet's on a third."""
    (tmp_path / "data/lib").mkdir(parents=True)
    (tmp_path / "home/kubelet").mkdir(parents=True)
    (tmp_path / "var").mkdir()
    (tmp_path / "var/lib").symlink_to("/data/lib")
    (tmp_path / "data/lib/kubelet").symlink_to("../../home/./kubelet")
    return tmp_path


@pytest.mark.parametrize(
    ("path", "leads_to"),
    [
        ("/var/lib/kubelet", "/home/kubelet"),
        ("/var/lib", "/data/lib"),
        ("/var/lib/none/below", "/data/lib/none/below"),
        ("/..", "/"),
    ],
)
def test_a_link_of_the_host_is_followed_on_the_host(host: Path, path: str, leads_to: str) -> None:
    assert followed(host, path) == leads_to


def test_a_link_to_itself_ends(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("/loop")
    assert followed(tmp_path, "/loop") == "/loop"


def test_a_root_behind_a_link_that_leads_nowhere_from_here_is_found(host: Path) -> None:
    assert existing_roots(host, None, ()) == ("/home/kubelet",)


def test_two_names_of_one_root_count_once_by_the_name_that_kubelet_has_told(host: Path) -> None:
    (host / "data/lib/kubelet").unlink()
    (host / "data/lib/kubelet").symlink_to("../../home/kubelet")
    (host / "var/lib").unlink()
    (host / "var/lib").symlink_to("../data/lib")
    assert existing_roots(host, "/home/kubelet", ()) == ("/home/kubelet",)
    assert existing_roots(host, "/var/lib/kubelet", ()) == ("/var/lib/kubelet",)


def test_where_nothing_is_no_root_is(tmp_path: Path) -> None:
    assert existing_roots(tmp_path, "/var/lib/kubelet", ()) == ()
