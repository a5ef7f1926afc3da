"""`rbdagent lint` and a real PV controller: what it foretells happens, and its pair binds.

RBDAGENT_RECORD=1 writes tests/fixtures/lint/released_by_a_restore.json again.
"""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.integration.conftest import control_plane_alone
from tests.lab.csi import static_volume
from tests.lab.csi_controller import SECRET
from tests.lab.install import CHECKOUT
from tests.lab.processes import wait_until
from tests.lab.workloads import DRIVER, claim, collection

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.lab.controlplane import ControlPlane
    from tests.lab.laptop import Done

NAME: Final = "restored"
FIXTURE: Final = CHECKOUT / "tests" / "fixtures" / "lint" / "released_by_a_restore.json"
_CLAIMS: Final = collection("PersistentVolumeClaim")
_VOLUMES: Final = collection("PersistentVolume")
_NODE: Final = "lint-node"
_INSTALLED: Final[dict[str, dict[str, Any]]] = {
    "Secret": {"metadata": {"name": SECRET}},
    "Node": {"metadata": {"name": _NODE}},
    "CSINode": {
        "metadata": {"name": _NODE},
        "spec": {"drivers": [{"name": DRIVER, "nodeID": _NODE}]},
    },
}
"""What shows a driver that is installed, with the key that its volumes name."""


class Restore:
    """The files of a backup, and the cluster into which they are applied."""

    def __init__(self, control_plane: ControlPlane, directory: Path) -> None:
        self.api = control_plane.api
        self._laptop = control_plane.laptop()
        self.file = directory / "backup.json"
        self.file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": _backup()}))

    def rbdagent(self, *words: str) -> Done:
        own = ("--no-node", "--no-ceph", "--node-name=laptop")
        program = ("env", f"PYTHONPATH={CHECKOUT}", sys.executable, "-m", "rbdagent")
        return self._laptop.run(*program, *words, *own)

    def apply(self, manifests: str) -> None:
        self._laptop.done("kubectl", "apply", "-f", "-", stdin=manifests)

    def phases(self) -> tuple[str | None, str | None]:
        """Return the phases of the PV and of the claim; None for one that does not exist."""
        found = (self.api.find(f"{path}/{NAME}") for path in (_VOLUMES, _CLAIMS))
        volume, bound = (None if one is None else one["status"].get("phase") for one in found)
        return volume, bound

    def wait_phases(self, volume: str | None, bound: str | None) -> None:
        what = f"PV and claim to be {volume} and {bound}"
        wait_until(lambda: self.phases() == (volume, bound), timeout_s=60, what=what)

    def remove(self) -> None:
        for path in (_CLAIMS, _VOLUMES):
            if self.api.find(f"{path}/{NAME}") is not None:
                self.api.delete(f"{path}/{NAME}")
        self.wait_phases(None, None)


def _backup() -> list[dict[str, Any]]:
    """Return a bound PV and its claim as `kubectl get -o yaml` saved them in another cluster."""
    volume = static_volume(NAME, pool="k8s", image=NAME)
    uid = "6a1f0c52-0000-4000-8000-000000000001"
    volume["spec"]["claimRef"] = {"namespace": "default", "name": NAME, "uid": uid}
    wanted = claim(NAME, storage_class="", volume_name=NAME)
    wanted["metadata"]["annotations"] = {"pv.kubernetes.io/bind-completed": "yes"}
    return [volume, wanted]


@pytest.fixture
def restore(tmp_path: Path) -> Iterator[Restore]:
    """Yield a separate cluster: lint compares with each PV and storage class that exists."""
    with control_plane_alone("rbdagent-lint", tmp_path / "control-plane") as (plane, _):
        made = Restore(plane, tmp_path)
        for kind, body in _INSTALLED.items():
            made.api.create(collection(kind), body)
        yield made


def test_what_lint_foretells_happens_and_its_pair_binds(restore: Restore) -> None:
    """One test: the state that was foretold is mended by the manifests of the remedy."""
    done = restore.rbdagent("lint", "-f", str(restore.file), "-o", "json")
    assert done.code == 3, done.said
    foretold = [problem["code"] for problem in json.loads(done.stdout)["problems"]]
    assert foretold == ["RBD802", "RBD404"]

    restore.apply(restore.file.read_text())
    restore.wait_phases("Released", "Lost")
    target = f"pvc/default/{NAME}"
    happened = restore.rbdagent("diagnose", target, "-o", "json")
    assert next(found["code"] for found in json.loads(happened.stdout)["findings"]) == "RBD404"
    if os.environ.get("RBDAGENT_RECORD"):
        snapshot = json.loads(restore.rbdagent("snapshot", target).stdout)
        FIXTURE.write_text(f"{json.dumps(snapshot, indent=1)}\n")

    restore.remove()
    clean = restore.rbdagent("lint", "-f", str(restore.file), "--print")
    # The exit code is about the given files, not about what is printed.
    assert clean.code == 3, clean.said
    restore.apply(clean.stdout)
    restore.wait_phases("Bound", "Bound")
    mended = json.loads(restore.rbdagent("diagnose", target, "-o", "json").stdout)
    assert "RBD404" not in [found["code"] for found in mended["findings"]]
