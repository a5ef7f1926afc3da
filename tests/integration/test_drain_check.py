"""`rbdagent drain-check` and the eviction API: a drain ends as it reports.

The controllers, Ceph and the API server are real, the kubelet of the node is played, and the test
writes what the agent there would publish. RBDAGENT_RECORD=1 writes tests/fixtures/drain again.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final, NamedTuple

import pytest

from tests.integration.agent_reports import report
from tests.integration.states import Making
from tests.lab.install import CHECKOUT, cache_dir
from tests.lab.lab import POOL, RBDAGENT_USER, running_lab
from tests.lab.played import PlayedNodes
from tests.lab.processes import wait_until
from tests.lab.workloads import collection

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.lab.api import Json
    from tests.lab.lab import Lab
    from tests.lab.laptop import Done

NODE: Final = "played-drained"
NAME: Final = "drained"
FIXTURES: Final = CHECKOUT / "tests" / "fixtures" / "drain"
_OF_THE_NODE: Final = ["processes and mounts beside the pods of a volume that is in use"]
"""What only the node itself shows: from outside, no node with a volume in use is clear."""
_BUDGETS: Final = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"


class Answer(NamedTuple):
    """What the check reports."""

    code: int
    items: list[tuple[str, str]]
    """The step and the subject of each."""
    not_observed: list[str]


class Drained:
    """A node with one running pod, whose budget allows no eviction."""

    def __init__(self, lab: Lab, undo: ExitStack) -> None:
        self.lab = lab
        self.api = lab.control_plane.api
        self._laptop = lab.control_plane.laptop("rbdagent")
        self.nodes = undo.enter_context(PlayedNodes(lab, undo))
        self.nodes.add(NODE)
        self.making = Making(lab, self.nodes, NAME, undo)
        self.making.bound()
        self.making.deployment()
        self.pod = self.making.pod_of_owner()
        self.making.place(self.pod, NODE)
        self.making.starts(self.pod, NODE)
        self.nodes.open(NODE)
        selected = {"minAvailable": 1, "selector": {"matchLabels": {"app": NAME}}}
        self.api.create(_BUDGETS, {"metadata": {"name": NAME}, "spec": selected})
        report(self.api, NODE, self._mapped())

    def _of_image(self, command: str) -> Json:
        answer: Json = json.loads(self.lab.ceph.rbd(command, f"{POOL}/{NAME}", "--format=json"))
        return answer

    def _mapped(self) -> Json:
        image_id = self._of_image("info")["id"]
        (watcher,) = self._of_image("status")["watchers"]
        return {
            "device": "/dev/rbd0",
            "verdict": "InUse",
            "persistentVolume": NAME,
            "clientID": watcher["client"],
            "clientAddress": watcher["address"],
            "image": {
                "fsid": self.lab.ceph.fsid,
                "pool": POOL,
                "radosNamespace": "",
                "name": NAME,
                "id": image_id,
            },
        }

    def rbdagent(self, *words: str) -> Done:
        ceph = self.lab.ceph
        keyring = ceph.conf.parent / f"ceph.client.{RBDAGENT_USER}.keyring"
        return self._laptop.run(
            *("env", f"PYTHONPATH={CHECKOUT}", sys.executable, "-m", "rbdagent", *words),
            *("--no-node", "--node-name=laptop"),
            *(f"--ceph-conf={ceph.conf}", f"--ceph-keyring={keyring}"),
        )

    def check(self, *flags: str, record: str = "") -> Answer:
        """Ask about the drain from outside of the node."""
        if record and os.environ.get("RBDAGENT_RECORD"):
            FIXTURES.mkdir(exist_ok=True)
            text = self.rbdagent("snapshot", "-A").stdout
            text = text.replace(str(self.lab.ceph.conf.parent), "/etc/ceph")
            (FIXTURES / f"{record}.json").write_text(f"{json.dumps(json.loads(text), indent=1)}\n")
        done = self.rbdagent("drain-check", NODE, *flags, "-o", "json")
        assert done.stdout, done.stderr
        answer = json.loads(done.stdout)
        return Answer(
            done.code,
            [(item["step"], item["about"]["name"]) for item in answer["items"]],
            [one["fact"] for one in answer["notObserved"]],
        )

    def evict(self) -> str:
        """Ask the API server for the eviction, as kubectl drain does; return its answer."""
        administrator = self.lab.control_plane.laptop()
        return administrator.run(
            "kubectl", "drain", NODE, "--force", "--timeout=3s", "--delete-emptydir-data"
        ).said


@pytest.fixture
def drained() -> Iterator[Drained]:
    state = cache_dir() / f"test-drain-{os.getpid()}"
    with running_lab(state, nodes=()) as lab, ExitStack() as undo:
        yield Drained(lab, undo)
    shutil.rmtree(state)


def test_a_drain_ends_as_the_check_says(drained: Drained) -> None:
    """One test, because each state follows from the one before."""
    refused = [("refused-pod", drained.pod)]
    assert drained.check(record="budget-refuses") == (3, refused, _OF_THE_NODE)
    assert "would violate the pod's disruption budget" in drained.evict()

    drained.api.delete(f"{_BUDGETS}/{NAME}")
    assert drained.check() == (1, [], _OF_THE_NODE)
    assert "evict" in drained.evict()
    pod = drained.api.get(f"{collection('Pod')}/{drained.pod}")
    assert "deletionTimestamp" in pod["metadata"]

    # The kubelet has ended the pod, and the volume is still mapped there.
    drained.making.force_delete(drained.pod)
    after = drained.check("--after", record="left-mapped")
    assert (after.code, [step for step, _ in after.items]) == (3, ["mapped"])

    drained.making.nodes.lets_go(NODE, drained.making.unique_name())
    drained.lab.processes.stop(f"librbd-{NODE}")
    report(drained.api, NODE)
    wait_until(
        lambda: drained.check("--after") == (0, [], []),
        timeout_s=90,
        what="nothing to be left on the node",
        interval_s=1,
    )
    drained.check("--after", record="clean")
