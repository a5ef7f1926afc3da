"""Which of the processes that are called kubelet is the kubelet of the host."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from rbdagent.model import KubeletView, NotObserved, ProcessRef
from tests.support.node_files import KUBELET, OTHER_POD, ROOT_MOUNT, Tree, gap_of

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """Return a node with kubelet's directory, and a container's mount namespace."""
    made = Tree(tmp_path)
    made.write(f"host{KUBELET}/pods/x", "")
    made.namespace("container", ROOT_MOUNT, "40 28 0:40 / /x rw - tmpfs none rw")
    return made


def kubelet(tree: Tree) -> KubeletView:
    view, _ = tree.observe()
    assert not isinstance(view.kubelet, NotObserved)
    return view.kubelet


def pid(tree: Tree) -> int | None:
    process = kubelet(tree).process
    assert not isinstance(process, NotObserved)
    return process.pid if process is not None else None


@pytest.mark.parametrize(
    "arguments",
    [
        ("/usr/bin/kubelet", "--v=2"),
        ("kubelet",),
        ("/usr/local/bin/k3s", "server"),
        ("/usr/local/bin/k3s", "--debug", "agent", "--server", "https://x"),
        pytest.param(("/usr/local/bin/k3s server",), id="k3s, as it renames itself"),
        ("/usr/local/bin/rke2 agent",),
        ("/usr/local/bin/k0s", "worker"),
        ("/usr/local/bin/k0s", "controller", "--enable-worker"),
        (
            "/snap/microk8s/8148/kubelite",
            "--kubelet-args-file=/var/snap/microk8s/8148/args/kubelet",
        ),
    ],
)
def test_host_process_that_runs_kubelet_is_kubelet(tree: Tree, arguments: tuple[str, ...]) -> None:
    tree.process(70, *arguments)
    assert pid(tree) == 70


@pytest.mark.parametrize(
    "arguments",
    [
        ("/usr/bin/kubelet-wrapper",),
        ("/usr/local/bin/k3s", "kubectl", "get", "pods"),
        ("/usr/local/bin/k3s", "crictl", "ps"),
        ("/usr/local/bin/k3s token",),
        ("/usr/local/bin/k0s", "status"),
        ("/bin/sh", "kubelet"),
        ("/usr/local/bin/k3s",),
    ],
)
def test_process_that_does_not_run_kubelet_is_not_kubelet(
    tree: Tree, arguments: tuple[str, ...]
) -> None:
    tree.process(70, *arguments)
    assert pid(tree) is None


HOSTILE: dict[str, dict[str, Any]] = {
    "in a pod": {"pod": OTHER_POD},
    "in a pod's container": {"pod": OTHER_POD, "namespace": "container"},
    "of another user": {"uid": 65534},
    "of another user in its own namespace": {"uid": 65534, "namespace": "container"},
}


@pytest.mark.parametrize("where", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.parametrize("name", ["kubelet", "/usr/local/bin/k3s server"])
def test_process_of_a_tenant_is_never_kubelet(tree: Tree, where: dict[str, Any], name: str) -> None:
    """Start the process of a tenant with a lower pid, an early start and a missing directory."""
    tree.process(60, name, "--root-dir=/nonexistent", ticks=1, **where)
    assert pid(tree) is None
    tree.process(70, "/usr/bin/kubelet", ticks=5000)
    assert pid(tree) == 70
    assert kubelet(tree).roots == (KUBELET,)
    assert kubelet(tree).staging == ()


def test_last_started_of_several_kubelets_counts(tree: Tree) -> None:
    """Assert the last: after a recent restart, kubelet may be about to find the volume."""
    tree.process(60, "/usr/bin/kubelet", ticks=100)
    tree.process(70, "/usr/bin/kubelet", ticks=9000)
    tree.process(80, "/usr/bin/kubelet", ticks=500)
    assert pid(tree) == 70


def unread(tree: Tree, *path: str) -> None:
    """Replace files by directories, so that no user can read them."""
    for name in path:
        (tree.root / name).unlink()
        (tree.root / name).mkdir()


def doubt(tree: Tree) -> str:
    process = kubelet(tree).process
    assert isinstance(process, NotObserved)
    assert gap_of(tree.observe()[1], "kubelet's process").reason == process.reason
    return process.reason


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("proc/70/status", "its user cannot be read"),
        ("proc/70/cgroup", "its cgroup cannot be read"),
        ("proc/70/cmdline", "its command line cannot be read"),
    ],
)
def test_process_with_an_unreadable_property_may_be_kubelet(
    tree: Tree, path: str, reason: str
) -> None:
    tree.process(70, "/usr/bin/kubelet")
    unread(tree, path)
    assert doubt(tree) == f"process 70 (kubelet): {reason}"


def test_process_of_which_nothing_was_read_may_be_kubelet(tree: Tree) -> None:
    """Assert doubt: a busy node has processes that are not observed in time."""
    (tree.root / "proc" / "60" / "stat").mkdir(parents=True)
    assert doubt(tree) == "the state of process 60 cannot be read"
    tree.process(70, "/usr/bin/kubelet")
    assert pid(tree) == 70


def test_container_process_without_a_pod_may_be_kubelet(tree: Tree) -> None:
    """Assert doubt: Talos runs kubelet in this way, and kubelet does not see what the host sees."""
    tree.process(70, "/usr/bin/kubelet", namespace="container")
    assert "it is in another mount namespace" in doubt(tree)


def test_container_process_casts_no_doubt_on_the_host_kubelet(tree: Tree) -> None:
    tree.process(60, "/usr/bin/kubelet", namespace="container", ticks=9000)
    tree.process(70, "/usr/bin/kubelet", ticks=100)
    assert pid(tree) == 70


def test_directories_are_observed_if_kubelet_may_run(tree: Tree) -> None:
    tree.process(70, "/usr/bin/kubelet", namespace="container")
    assert kubelet(tree).roots == (KUBELET,)
    assert isinstance(kubelet(tree).process, NotObserved)


def test_kubelet_is_a_process_and_not_a_name(tree: Tree) -> None:
    tree.process(70, "/usr/bin/kubelet")
    process = kubelet(tree).process
    assert isinstance(process, ProcessRef)
    assert process.command == "/usr/bin/kubelet"
