"""A healthy cluster with every legitimate form of use on real nodes: `diagnose` reports no warning.

Each test is alone, because `-A` covers the whole cluster. The lab has no scheduler: the tests set
the node of a claim and of a pod instead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.e2e.healthy import RUNS_S, Healthy, assert_none, healthy_namespace
from tests.lab.csi import WAITS_FOR_POD
from tests.lab.processes import wait_until
from tests.lab.workloads import claim, collection, deployment, pod_spec

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.lab.lab import Lab

Json = dict[str, Any]
ONE, OTHER = NODES = ("worker-1", "worker-2")
_SELECTED: Final = "volume.kubernetes.io/selected-node"
_HOUR_S: Final = 3600


def _stateful(name: str, node: str) -> Json:
    """Return a StatefulSet with its own claims."""
    spec = pod_spec(node=node, claims=["data"])
    spec["volumes"] = []
    spec["containers"][0]["volumeMounts"] = [{"name": "data", "mountPath": "/data"}]
    template = claim("data")
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": name},
        "spec": {
            "replicas": 1,
            "serviceName": name,
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": spec},
            "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": template["spec"]}],
        },
    }


@pytest.fixture
def healthy(lab: Lab, request: pytest.FixtureRequest) -> Iterator[Healthy]:
    with healthy_namespace(lab, request.node.name) as healthy:
        yield healthy


def _settle(healthy: Healthy) -> Sequence[str]:
    """Create the workloads that run permanently; return the targets."""
    healthy.static("rox", "ReadOnlyMany")
    healthy.claim("rwx", access_mode="ReadWriteMany", volume_mode="Block")
    healthy.claim("luks", storage_class="rbd-luks")
    healthy.claim("twice")
    healthy.claim("done")
    healthy.claim("unused")
    healthy.claim("unused-first-pod", storage_class=WAITS_FOR_POD)
    healthy.api.create(collection("StatefulSet", healthy.name), _stateful("set", OTHER))
    healthy.pod("files-0", ONE, "rox", "luks", "twice")
    healthy.running("files-0", "set-0")
    healthy.pod("files-1", ONE, "twice")
    healthy.pod("files-2", OTHER, "rox")
    healthy.running("files-1", "files-2")
    healthy.pod("block-0", ONE, "rwx", block=True)
    healthy.pod("block-1", OTHER, "rwx", block=True)
    healthy.running("block-0", "block-1")
    once = {"restartPolicy": "Never"}
    healthy.pod("done", OTHER, "done", command=("/bin/true",), spec=once)
    wait_until(
        lambda: (
            healthy.api.get(f"{collection('Pod', healthy.name)}/done")["status"]["phase"]
            == "Succeeded"
        ),
        timeout_s=RUNS_S,
        what="the pod to complete",
    )
    claims = ("rox", "rwx", "luks", "twice", "done", "unused", "unused-first-pod", "data-set-0")
    return tuple(f"pvc/{name}" for name in claims)


@pytest.mark.alone
def test_legitimate_use_raises_no_alarm(healthy: Healthy) -> None:
    """Shared, encrypted, two pods on one node, a finished pod, unused, a StatefulSet."""
    seen = {target: healthy.alarms(target) for target in _settle(healthy)}
    for node in (*NODES, None):
        seen[f"-A from {node}"] = healthy.alarms_of_all(node)
    assert_none(seen)


@pytest.mark.alone
def test_operations_in_progress_raise_no_alarm(healthy: Healthy) -> None:
    """A first pod in time, a starting pod, a young Terminating pod, a Recreate rollout."""
    healthy.claim("ending")
    # Its termination takes a while.
    stays = (
        "/bin/sh",
        "-c",
        "trap 'sleep 40; exit 0' TERM; while :; do sleep 3600 & wait $!; done",
    )
    long = {"terminationGracePeriodSeconds": _HOUR_S}
    healthy.pod("ending", OTHER, "ending", command=stays, spec=long)
    healthy.claim("moves")
    moves = deployment(
        "moves", template=pod_spec(node=ONE, claims=["moves"]), namespace=healthy.name
    )
    moves["spec"]["strategy"] = {"type": "Recreate"}
    healthy.workloads.apply(moves)
    healthy.claim("first", storage_class=WAITS_FOR_POD)
    healthy.pod("first", "", "first")
    seen = {"pvc/first, whose pod has no node yet": healthy.alarms("pvc/first")}
    wait_until(
        lambda: [name for name in healthy.pods() if name.startswith("moves-")],
        timeout_s=60,
        what="a pod of the Deployment",
    )
    healthy.running("ending", *(name for name in healthy.pods() if name.startswith("moves-")))

    path = f"{collection('PersistentVolumeClaim', healthy.name)}/first"
    healthy.api.patch(path, {"metadata": {"annotations": {_SELECTED: ONE}}})
    healthy.workloads.wait_bound("first", namespace=healthy.name)
    healthy.bind("first", ONE)
    seen["pvc/first, whose pod starts"] = healthy.alarms("pvc/first", ONE)
    healthy.workloads.delete("Pod", "ending", namespace=healthy.name, wait=False)
    seen["pvc/ending, whose pod is Terminating"] = healthy.alarms("pvc/ending", OTHER)
    template = pod_spec(node=OTHER, claims=["moves"])
    there = deployment("moves", template=template, namespace=healthy.name)
    healthy.workloads.apply({**there, "spec": {"template": there["spec"]["template"]}})
    for number, node in enumerate((None, ONE, None, OTHER, None)):
        seen[f"pvc/moves, on its way: look {number}"] = healthy.alarms("pvc/moves", node)
        seen[f"-A, all on its way: look {number}"] = healthy.alarms_of_all()
    seen["-n NAMESPACE"] = healthy.alarms_of_namespace(OTHER)
    seen["-A"] = healthy.alarms_of_all(ONE)
    assert_none(seen)
