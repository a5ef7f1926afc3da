"""A namespace of a healthy cluster, and what `diagnose` reports about it."""

from __future__ import annotations

import contextlib
import functools
import json
from typing import TYPE_CHECKING, Any, Final

import jsonschema

from rbdagent.report.schema import schema
from tests.e2e.scene import Scene
from tests.lab.csi import static_volume
from tests.lab.errors import LabError
from tests.lab.lab import POOL
from tests.lab.processes import wait_until
from tests.lab.workloads import claim, collection, pod

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.lab.lab import Lab

Json = dict[str, Any]
RUNS_S: Final = 300.0


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
            self.workloads.wait_running(name, namespace=self.name, timeout_s=RUNS_S)

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


@contextlib.contextmanager
def healthy_namespace(lab: Lab, name: str) -> Iterator[Healthy]:
    """Make a namespace after the remains of other tests are gone; remove it at the end."""
    healthy = Healthy(lab, name)
    try:
        healthy.forget_reports()
        healthy.claim("first-of-all")

        def quiet() -> bool:
            if alarms := healthy.alarms_of_all():
                raise LabError(f"`diagnose -A` still reports {alarms}")
            return True

        wait_until(
            quiet,
            timeout_s=RUNS_S,
            what="the remains of other tests to be removed",
            interval_s=3,
        )
        yield healthy
    finally:
        healthy.clear()


def assert_none(seen: dict[str, list[str]]) -> None:
    """Assert that something was looked at, and that nothing was reported."""
    assert seen
    assert {name: alarms for name, alarms in seen.items() if alarms} == {}
