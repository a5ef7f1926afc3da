"""The incident for which rbdagent was written, from its first minute to its end.

scenarios.md 1, 3, 4, 46; recordings 12, 13, 14. With RBDAGENT_RECORD=1 the test writes the
snapshots of docs/stories/founding-multi-attach.md again.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from tests.e2e.life import Asked, findings, wait_recognised
from tests.lab.processes import wait_until
from tests.support.lifecycle_states import CODES_ON_NODES

if TYPE_CHECKING:
    from tests.e2e.scene import Scene


@pytest.mark.alone
def test_founding_incident(scene: Scene) -> None:  # noqa: PLR0915 - one incident from start to end
    """A pinned volume, Multi-Attach, a restart of kubelet, `still being used`, and the solution."""
    volume = scene.claim()
    old = scene.run_pod("worker-1")
    uid = scene.uid(old)

    here = scene.look("worker-1", volume)
    holder = here.holder("worker-1")
    assert here.verdict == "InUse"
    assert here.exit_code == 0
    assert holder["device"].startswith("/dev/rbd")
    assert holder["confidence"] == "certain"
    assert holder["watcher"]["client"] == holder["clientID"]
    assert holder["watcher"]["address"] == holder["clientAddress"]
    assert [pod["name"] for pod in holder["pods"]] == [old]
    assert holder["attachment"]["attached"]
    assert holder["mounts"]

    there = scene.look("worker-2", volume).holder("worker-1")
    assert there["confidence"] == "probable"
    assert there["verdict"] == "InUse"
    assert there["clientAddress"] == holder["clientAddress"]

    mount = f"/var/lib/kubelet/pods/{uid}/volumes/kubernetes.io~csi/{volume}/mount"
    pin = scene.pin_by_cwd("worker-1", mount)
    scene.workloads.delete("Pod", old)
    new = scene.start_pod("worker-2")
    scene.workloads.wait_multi_attach(new)

    pinned = scene.wait_verdict("worker-1", volume, "Pinned")
    holder = pinned.holder("worker-1")
    assert pinned.exit_code == 3
    assert pin in [opener["pid"] for opener in holder["openedBy"]]
    assert holder["mounts"] == []
    assert holder["attachment"]["attached"]
    assert not any("unmap" in command for command in pinned.next)
    _ask(scene, "founding_pinned")

    scene.lab.nodes["worker-1"].service("kubelet").restart()
    wait_until(
        lambda: (
            [attachment["spec"]["nodeName"] for attachment in scene.workloads.attachments(volume)]
            == ["worker-2"]
        ),
        timeout_s=90,
        what="the controller to detach from worker-1, of which kubelet has no record",
    )
    scene.workloads.wait_event(new, reason="FailedMount", contains="is still being used")
    forgotten = scene.look("worker-1", volume)
    holder = forgotten.holder("worker-1")
    assert forgotten.verdict == "Pinned"
    assert holder["attachment"] is None
    assert pin in [opener["pid"] for opener in holder["openedBy"]]

    scene.kill("worker-1", pin)
    orphan = scene.wait_verdict("worker-1", volume, "Orphaned")
    holder = orphan.holder("worker-1")
    assert "RBD101" in orphan.codes
    assert orphan.next[0].startswith(f"rbdagent unmap pv/{volume}")
    assert holder["openedBy"] == []
    assert holder["since"] == orphan.data["observedAt"]
    _ask(scene, "founding_orphan")

    elsewhere = scene.look("worker-2", volume)
    assert elsewhere.holder("worker-1")["verdict"] == "Undetermined"
    assert any("worker-1" in command for command in elsewhere.next)

    scene.lab.nodes["worker-1"].run(["rbd", "unmap", "-o", "noudev", holder["device"]])
    scene.workloads.wait_running(new)
    assert scene.look("worker-2", volume).holder("worker-2")["verdict"] == "InUse"


def _ask(scene: Scene, state: str) -> None:
    """Check that the first finding of `diagnose` is the root cause of the state."""
    asked = Asked(f"pvc/default/{scene.name}", "worker-1", there=True)
    if os.environ.get("RBDAGENT_RECORD"):
        wait_recognised(scene, state, asked)
    assert findings(scene, asked)[0]["code"] == CODES_ON_NODES[state][0]
