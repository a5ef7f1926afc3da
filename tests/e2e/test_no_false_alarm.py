"""A healthy cluster with every legitimate form of use on real nodes: `diagnose` reports no warning.

Each test is alone, because `-A` covers the whole cluster. The lab has no scheduler: the tests set
the node of a claim and of a pod instead.
"""

from __future__ import annotations

import functools
import json
from typing import TYPE_CHECKING, Any, Final

import jsonschema
import pytest

from rbdagent.report.schema import schema
from tests.e2e.scene import Scene
from tests.lab.csi import WAITS_FOR_POD, static_volume
from tests.lab.errors import LabError
from tests.lab.lab import POOL
from tests.lab.processes import wait_until
from tests.lab.workloads import claim, collection, deployment, pod, pod_spec

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.lab.lab import Lab

Json = dict[str, Any]
ONE, OTHER = NODES = ("worker-1", "worker-2")
_SELECTED: Final = "volume.kubernetes.io/selected-node"
_HOUR_S: Final = 3600
_RUNS_S: Final = 300.0


class Healthy:
    """A namespace without any fault; ``clear`` removes it."""

    def __init__(self, lab: Lab, name: str) -> None:
        self.lab = lab
        self.name = Scene(lab, name).name
        self.api = lab.control_plane.api
        self.workloads = lab.workloads
        self._images: list[str] = []
        self.api.create(collection("Namespace"), {"metadata": {"name": self.name}})
        account = f"{collection('ServiceAccount', self.name)}/default"
        wait_until(lambda: self.api.find(account), timeout_s=30, what=f"{account}")

    # Making ---------------------------------------------------------------------------------------

    def claim(self, name: str, **settings: str) -> None:
        self.workloads.apply(claim(name, namespace=self.name, **settings))

    def pod(self, name: str, node: str, *claims: str, **settings: Any) -> None:  # noqa: ANN401 - pod()'s own
        made = pod(name, node=node, claims=claims, namespace=self.name, **settings)
        if not node:
            del made["spec"]["nodeName"]
        self.workloads.apply(made)

    def static(self, name: str, access_mode: str) -> None:
        """Create an image with a file system, a static PV of it, and its claim."""
        image = f"{self.name}-{name}"
        self.lab.ceph.create_formatted(f"{POOL}/{image}", size="8M")
        self._images.append(image)
        self.workloads.apply(static_volume(image, pool=POOL, image=image, access_mode=access_mode))
        self.claim(name, storage_class="", access_mode=access_mode, volume_name=image)

    def bind(self, name: str, node: str) -> None:
        """Bind a pod to a node, as the scheduler does."""
        binding = {
            "metadata": {"name": name},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        self.api.create(f"{collection('Pod', self.name)}/{name}/binding", binding)

    def running(self, *names: str) -> None:
        for name in names:
            self.workloads.wait_running(name, namespace=self.name, timeout_s=_RUNS_S)

    def forget_reports(self) -> None:
        """Delete reports of other tests' agents: they have ended and will not correct them."""
        for path in (collection("RBDNode"), collection("RBDMapping")):
            for report in self.api.items(path):
                self.api.delete(f"{path}/{report['metadata']['name']}")

    def pods(self) -> list[str]:
        return [item["metadata"]["name"] for item in self.api.items(collection("Pod", self.name))]

    # Observing ------------------------------------------------------------------------------------

    def alarms(self, target: str, node: str | None = None) -> list[str]:
        """Return what `diagnose TARGET` reports at warning or above, on a node or outside any."""
        return _alarms(self._asked(node, target, "-n", self.name))

    def alarms_of_all(self, node: str | None = None) -> list[str]:
        """Return what `diagnose -A` reports at warning or above, on a node or outside any."""
        return self._alarms_of_list(node, "-A")

    def alarms_of_namespace(self, node: str) -> list[str]:
        """Return what `diagnose -n NAMESPACE` reports at warning or above."""
        return self._alarms_of_list(node, "-n", self.name)

    def _alarms_of_list(self, node: str | None, *scope: str) -> list[str]:
        report = self._asked(node, *scope)
        assert report["examined"]["claims"], report
        return [*_alarms(report), *(line for item in report["items"] for line in _alarms(item))]

    def _asked(self, node: str | None, *words: str) -> Json:
        asked = ("diagnose", *words, "-o", "json")
        done = (
            self.lab.rbdagent_from_afar(*asked)
            if node is None
            else self.lab.rbdagent_warm(node, *asked, timeout_s=120)
        )
        try:
            report: Json = json.loads(done.stdout)
        except ValueError:
            raise LabError(f"{words} on {node}: {done.exit_code}\n{done.stderr}") from None
        jsonschema.validate(report, schema(str(report["kind"])))
        return report

    # Ending ---------------------------------------------------------------------------------------

    def clear(self) -> None:
        for kind in ("Deployment", "StatefulSet"):
            for item in self.api.items(collection(kind, self.name)):
                self.workloads.delete(kind, item["metadata"]["name"], namespace=self.name)
        for name in self.pods():
            path = f"{collection('Pod', self.name)}/{name}"
            self.api.delete(path, gracePeriodSeconds=1)
        wait_until(lambda: not self.pods(), timeout_s=120, what=f"the pods of {self.name} to go")
        self.workloads.delete("Namespace", self.name, wait=False)
        for image in self._images:
            self.workloads.delete("PersistentVolume", image, wait=False)
            wait_until(
                functools.partial(self.lab.ceph.rbd, "rm", "--no-progress", f"{POOL}/{image}"),
                timeout_s=60,
                what=f"{image} to have no client",
                interval_s=1,
            )


def _alarms(report: Json) -> list[str]:
    return [
        f"{finding['code']} {finding['subject']}: {finding['message']} {finding['evidence']}"
        for finding in report["findings"]
        if finding["severity"] != "info"
    ]


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
    healthy = Healthy(lab, request.node.name)
    try:
        healthy.forget_reports()
        healthy.claim("first-of-all")

        def quiet() -> bool:
            if alarms := healthy.alarms_of_all():
                raise LabError(f"`diagnose -A` still reports {alarms}")
            return True

        wait_until(
            quiet,
            timeout_s=_RUNS_S,
            what="the remains of other tests to be removed",
            interval_s=3,
        )
        yield healthy
    finally:
        healthy.clear()


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
        timeout_s=_RUNS_S,
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
    _assert_none(seen)


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
    _assert_none(seen)


def _assert_none(seen: dict[str, list[str]]) -> None:
    assert seen
    assert {name: alarms for name, alarms in seen.items() if alarms} == {}
