"""Measure which privilege each fact needs; compare docs/privileges.md and `rbdagent check`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.e2e.scene import Scene
from tests.lab.install import venv_python
from tests.lab.processes import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.lab.lab import Lab

_NODE: Final = "worker-1"
_OPEN: Final = "open files and working directories of other users' processes"
_STAGING: Final = "kubelet's staging directories"
_PODS: Final = "kubelet's pod directories"
_WATCHES: Final = "the kernel's own list of watches and hung requests"
_NOBODY: Final = ("--reuid=65534", "--regid=65534", "--clear-groups")
# The snapshot is taken below a read-only /proc and /sys, as in the DaemonSet's container.
_READ_ONLY: Final = (
    "/usr/bin/unshare", "-m", "sh", "-c",
    'mount -o remount,bind,ro /proc; mount -o remount,bind,ro /sys; exec "$@"', "sh",
)  # fmt: skip


def with_only(*capabilities: str) -> tuple[str, ...]:
    """Return setpriv's flags for a process that has these capabilities and no other."""
    kept = "".join(f",+{capability}" for capability in capabilities)
    ambient = [f"--ambient-caps={','.join(f'+{capability}' for capability in capabilities)}"]
    return (
        f"--bounding-set=-all{kept}",
        f"--inh-caps=-all{kept}",
        *(ambient if capabilities else ()),
    )


RIGHTS: Final = {
    "root without capabilities": (with_only(), {_OPEN}),
    "root with CAP_SYS_PTRACE": (with_only("sys_ptrace"), set()),
    "another user": ((*_NOBODY, *with_only()), {_OPEN, _STAGING, _PODS, _WATCHES}),
    "another user with CAP_SYS_PTRACE": (
        (*_NOBODY, *with_only("sys_ptrace")),
        {_OPEN, _STAGING, _PODS, _WATCHES},
    ),
    "another user with CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH": (
        (*_NOBODY, *with_only("sys_ptrace", "dac_read_search")),
        set(),
    ),
}


@pytest.fixture(scope="module")
def scene(lab: Lab) -> Iterator[Scene]:
    """Yield one scene with one running pod, for all snapshots."""
    scene = Scene(lab, "privileges")
    try:
        scene.claim()
        scene.run_pod(_NODE)
        yield scene
    finally:
        scene.clear()


def snapshot(scene: Scene, rights: Sequence[str]) -> Any:  # noqa: ANN401 - JSON
    """Return the node's snapshot, taken with these privileges only."""
    program = str(venv_python().parent / "rbdagent")
    done = scene.lab.nodes[_NODE].run(
        [*_READ_ONLY, "setpriv", *rights, program, "snapshot", "--no-ceph", "--no-kube"],
        timeout_s=90,
    )
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", RIGHTS)
def test_missing_privilege_causes_exactly_its_gaps(scene: Scene, name: str) -> None:
    rights, hidden = RIGHTS[name]

    def exact() -> Any | None:  # noqa: ANN401 - JSON
        seen = snapshot(scene, rights)
        gaps = {gap["fact"] for gap in seen["sources"]["node"].get("gaps", ())}
        return seen if gaps == hidden else None

    # Without CAP_SYS_PTRACE, a namespace is known by its mounts. If another test mounts between the
    # reads of process 1 and kubelet, kubelet's process is uncertain once.
    seen = wait_until(exact, timeout_s=60, what=f"exactly these gaps: {hidden}")
    volume = scene.workloads.wait_bound(scene.name)
    image = scene.image_of(volume).rpartition("/")[2]
    (mapping,) = [
        candidate for candidate in seen["node"]["mappings"] if candidate["spec"]["name"] == image
    ]
    assert mapping["clientID"]
    assert mapping["clientAddress"]["nonce"]
    assert {mount["path"] for mount in mapping["mounts"]}
    assert "user" not in mapping, "config_info needs CAP_SYS_ADMIN"


def test_check_prints_the_privilege_for_each_fact(scene: Scene) -> None:
    """With all privileges each line is ok; without any it names what is missing and the remedy."""
    lines = " ".join(scene.lab.rbdagent(_NODE, "check", "-v").stdout.split())
    for fact in (_OPEN, _STAGING, _PODS, _WATCHES):
        assert f"ok {fact} can be seen: needs" in lines
    program = str(venv_python().parent / "rbdagent")
    poor = scene.lab.nodes[_NODE].run(
        ["setpriv", *_NOBODY, *with_only(), program, "check", "--no-ceph", "--no-kube"],
        check=False,
    )
    assert poor.exit_code == 1
    for fact in (_OPEN, _STAGING, _PODS, _WATCHES):
        assert f"FAILED {fact} cannot be seen" in " ".join(poor.stdout.split())
    assert "CAP_DAC_READ_SEARCH" in poor.stdout


def test_document_matches_the_measured_privileges() -> None:
    text = (Path(__file__).parents[2] / "docs" / "privileges.md").read_text()
    for fact in (_OPEN, _STAGING, _PODS, _WATCHES):
        assert fact in text
