"""The directory of kubelet, on hosts that have moved it, seen from another root."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from rbdagent.collect.files import followed
from rbdagent.collect.node.kubelet_dirs import existing_roots, observe_kubelet, own_root
from rbdagent.collect.node.processes import ProcessEntry
from rbdagent.model import NotObserved, ProcessRef

if TYPE_CHECKING:
    from pathlib import Path

    from rbdagent.model import KubeletView


@pytest.fixture
def host(tmp_path: Path) -> Path:
    """Return a host root with /var/lib on another disk and kubelet's directory on a third one."""
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


def test_root_behind_a_link_that_is_broken_here_is_found(host: Path) -> None:
    assert existing_roots(host, None, ()) == ("/home/kubelet",)


def test_two_names_of_one_root_count_once_by_the_name_of_kubelet(host: Path) -> None:
    (host / "data/lib/kubelet").unlink()
    (host / "data/lib/kubelet").symlink_to("../../home/kubelet")
    (host / "var/lib").unlink()
    (host / "var/lib").symlink_to("../data/lib")
    assert existing_roots(host, "/home/kubelet", ()) == ("/home/kubelet",)
    assert existing_roots(host, "/var/lib/kubelet", ()) == ("/var/lib/kubelet",)


def kubelet(*arguments: str) -> ProcessEntry:
    return ProcessEntry(
        process=ProcessRef(pid=77, command=arguments[0]),
        name="kubelet",
        arguments=arguments,
        is_kernel_thread=False,
        directory="/proc/77",
    )


@pytest.mark.parametrize(
    ("arguments", "own"),
    [
        (("/usr/bin/kubelet", "--root-dir=/data/kubelet"), "/data/kubelet"),
        (("/usr/bin/kubelet", "--v=2"), "/var/lib/kubelet"),
        (("/usr/bin/k3s", "agent"), None),
    ],
)
def test_own_root_of_kubelet_is_its_flag_or_the_default(
    arguments: tuple[str, ...], own: str | None
) -> None:
    assert own_root(kubelet(*arguments)) == own


def look(root: Path, given: str, own: str | None) -> KubeletView:
    return observe_kubelet(
        root, root / "proc", roots=(given,), process=kubelet("kubelet").ref, own=own
    )


def test_in_tree_staging_is_found_below_both_directories(tmp_path: Path) -> None:
    """Newer versions of kubelet still use the one of Kubernetes before 1.10 (kubernetes#47325)."""
    paths = [f"/var/lib/kubelet/plugins/kubernetes.io/rbd/{name}" for name in ("mounts", "rbd")]
    for path in paths:
        (tmp_path / f"{path}/k8s-image-data".lstrip("/")).mkdir(parents=True)
    staging = look(tmp_path, "/var/lib/kubelet", "/var/lib/kubelet").staging
    assert not isinstance(staging, NotObserved)
    assert [found.path for found in staging] == [f"{path}/k8s-image-data" for path in paths]


def test_directory_that_kubelet_does_not_use_is_not_observed(tmp_path: Path) -> None:
    """Assert not observed: otherwise the staging directories would read as none."""
    (tmp_path / "var/lib/kubelet/pods").mkdir(parents=True)
    seen = look(tmp_path, "/var/lib/kubelet", "/data/kubelet")
    for found in (seen.staging, seen.pod_volumes, seen.sockets):
        assert isinstance(found, NotObserved)
        assert "has its volumes in /data/kubelet that was not read" in found.reason
        assert "--kubelet-root /data/kubelet" in found.hint


def test_kubelet_directory_under_another_name_is_its_own(tmp_path: Path) -> None:
    (tmp_path / "var/lib/kubelet/pods").mkdir(parents=True)
    (tmp_path / "proc/77/root/data").mkdir(parents=True)
    (tmp_path / "proc/77/root/data/kubelet").symlink_to(tmp_path / "var/lib/kubelet")
    assert look(tmp_path, "/var/lib/kubelet", "/data/kubelet").pod_volumes == ()
    assert look(tmp_path, "/var/lib/kubelet", "/var/lib/kubelet").pod_volumes == ()


@pytest.mark.parametrize(
    "name", ["volumes/kubernetes.io~csi/pvc-1", "volumeDevices/kubernetes.io~csi/pvc-1"]
)
def test_time_of_the_last_change_of_a_pod_directory_is_read(tmp_path: Path, name: str) -> None:
    directory = tmp_path / "var/lib/kubelet/pods/uid" / name
    (directory / "mount").mkdir(parents=True)
    os.utime(directory, (0, 1_795_966_224))
    found = look(tmp_path, "/var/lib/kubelet", "/var/lib/kubelet").pod_volumes
    assert isinstance(found, tuple)
    assert [entry.changed_at for entry in found] == ["2026-11-29T15:30:24Z"]


def test_missing_directory_of_a_running_kubelet_is_not_observed(tmp_path: Path) -> None:
    for own in ("/var/lib/kubelet", None):
        assert isinstance(look(tmp_path, "/var/lib/kubelet", own).staging, NotObserved)


def test_missing_directory_is_not_a_root(tmp_path: Path) -> None:
    assert existing_roots(tmp_path, "/var/lib/kubelet", ()) == ()
